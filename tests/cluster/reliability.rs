//! ReaPER: shards say how much of an episode's error is resolved behind an item, and the learner weighs by it.

use proto::v1;

use crate::harness::Cluster;
use crate::process::until;
use crate::wire::{even_points, patiently, shard_client};

#[test]
fn a_cluster_trains_by_reliability_too() {
    let cluster = Cluster::start(2, 2, &["--strategy", "reaper", "--min-size", "256"]);
    cluster.moves_on(&[0, 1]);
    // New items enter with |TD|; a share below 1 of it is what the learner sends back.
    let (run, incarnation) = cluster.run();
    until("an item has a share between none and all behind it", || {
        let points = even_points(200);
        let caller = Some(proto::caller(&run));
        let request = v1::SampleRequest {
            caller,
            learner_incarnation: incarnation,
            points,
            reliabilities: true,
            ..v1::SampleRequest::default()
        };
        let address = cluster.shard_address(0);
        let reply = cluster.runtime.block_on(patiently(async {
            let mut client = shard_client(&address);
            let mut replies = client.sample(tokio_stream::once(request)).await.ok()?.into_inner();
            replies.message().await.ok()?
        }));
        let shares = reply.and_then(|reply| reply.batch).map(|batch| batch.reliabilities).unwrap_or_default();
        shares.len() == 200 && shares.iter().any(|share| (0.1..0.9).contains(share))
    });
}
