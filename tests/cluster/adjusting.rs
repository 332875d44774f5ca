//! Settings that change while a run trains.

use proto::v1;
use tonic::Code;

use crate::harness::Cluster;
use crate::process::until;
use crate::wire::{learner_client, patiently};

pub fn adjust(cluster: &Cluster, key: &str, value: &str) -> Result<(), tonic::Status> {
    let settings = [(key.to_owned(), value.to_owned())].into();
    let address = cluster.learner_address();
    cluster.runtime.block_on(patiently(async {
        learner_client(&address).adjust(v1::AdjustRequest { settings }).await.map(drop)
    }))
}

fn table(cluster: &Cluster, shard: usize) -> v1::Table {
    cluster.info(shard).store.unwrap().tables[0].clone()
}

#[test]
fn adjusted_settings_stay_in_force_after_the_learner_was_killed() {
    let mut cluster = Cluster::start(2, 2, &["--min-size", "256", "--samples-per-insert", "64"]);
    cluster.moves_on(&[0, 1]);
    adjust(&cluster, "capacity", "600").unwrap();
    adjust(&cluster, "priority_exponent", "0.9").unwrap();
    until("both shards keep fewer items", || {
        let fits = |shard| table(&cluster, shard).capacity == 300 && cluster.table(shard).items <= 300;
        fits(0) && fits(1)
    });
    until("both shards draw by the new exponent", || {
        [0, 1].map(|shard| table(&cluster, shard).priority_exponent) == [0.9; 2]
    });
    cluster.moves_on(&[0, 1]);

    // What would stall the run is refused, and nothing changes.
    for (key, value) in [("min_size", "601"), ("min_size", "1"), ("capacity", "0"), ("gamma", "1")] {
        let status = adjust(&cluster, key, value).unwrap_err();
        assert_eq!(status.code(), Code::InvalidArgument, "{status}");
    }
    adjust(&cluster, "samples_per_insert", "8").unwrap();
    until("samples per insert come to be 8", || {
        let counts = || [0, 1].map(|shard| cluster.table(shard));
        let sum = |tables: [v1::TableStatus; 2]| {
            let samples: u64 = tables.iter().map(|table| table.samples).sum();
            (samples, tables.iter().map(|table| table.inserts).sum::<u64>())
        };
        let (samples, inserts) = sum(counts());
        until("there are some more inserts", || sum(counts()).1 > inserts + 2000);
        let (now_samples, now_inserts) = sum(counts());
        let ratio = (now_samples - samples) as f64 / (now_inserts - inserts) as f64;
        (6.0..10.0).contains(&ratio)
    });

    cluster.learner.kill();
    cluster.start_learner();
    cluster.moves_on(&[0, 1]);
    assert_eq!([0, 1].map(|shard| table(&cluster, shard).capacity), [300; 2]);
}
