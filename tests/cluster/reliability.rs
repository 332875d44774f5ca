//! ReaPER: shards say how much of an episode's error is resolved behind an item, and the learner weighs by it.

use std::pin::Pin;

use prometheus::Registry;
use proto::v1;
use proto::v1::replay_client::ReplayClient;
use proto::v1::replay_server::{Replay, ReplayServer};
use rpc::address::Address;
use rpc::channel::Channel;
use rpc::edge::Edge;
use rpc::gate::Gate;
use rpc::serve::Listener;
use tokio_stream::{Stream, StreamExt};
use tonic::service::Routes;
use tonic::{Request, Response, Status, Streaming};

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

/// A shard of a version that knows nothing of reliabilities: stands before a real one and passes over that field.
struct Older(ReplayClient<Channel>);

type Replies<T> = Pin<Box<dyn Stream<Item = Result<T, Status>> + Send>>;

/// Passes a call on as it is.
macro_rules! passed_on {
    ($self:ident, $call:ident, $request:ident) => {
        $self.0.clone().$call($request.into_inner()).await
    };
}

#[tonic::async_trait]
impl Replay for Older {
    type InsertStream = Replies<v1::InsertReply>;
    type SampleStream = Replies<v1::SampleReply>;
    type SnapshotStream = Replies<v1::SnapshotReply>;

    async fn insert(
        &self,
        request: Request<Streaming<v1::InsertRequest>>,
    ) -> Result<Response<Self::InsertStream>, Status> {
        let requests = request.into_inner().map_while(Result::ok);
        Ok(self.0.clone().insert(requests).await?.map(|replies| Box::pin(replies) as Self::InsertStream))
    }

    async fn sample(
        &self,
        request: Request<Streaming<v1::SampleRequest>>,
    ) -> Result<Response<Self::SampleStream>, Status> {
        let requests = request.into_inner().map_while(Result::ok);
        let requests = requests.map(|request| v1::SampleRequest { reliabilities: false, ..request });
        Ok(self.0.clone().sample(requests).await?.map(|replies| Box::pin(replies) as Self::SampleStream))
    }

    async fn update_priorities(
        &self,
        request: Request<v1::UpdatePrioritiesRequest>,
    ) -> Result<Response<v1::UpdatePrioritiesReply>, Status> {
        passed_on!(self, update_priorities, request)
    }

    async fn grant(&self, request: Request<v1::GrantRequest>) -> Result<Response<v1::GrantReply>, Status> {
        passed_on!(self, grant, request)
    }

    async fn issue_ticket(
        &self,
        request: Request<v1::IssueTicketRequest>,
    ) -> Result<Response<v1::IssueTicketReply>, Status> {
        passed_on!(self, issue_ticket, request)
    }

    async fn info(&self, request: Request<v1::InfoRequest>) -> Result<Response<v1::InfoReply>, Status> {
        passed_on!(self, info, request)
    }

    async fn configure(
        &self,
        request: Request<v1::ConfigureRequest>,
    ) -> Result<Response<v1::ConfigureReply>, Status> {
        passed_on!(self, configure, request)
    }

    async fn inspect(
        &self,
        request: Request<v1::InspectRequest>,
    ) -> Result<Response<v1::InspectReply>, Status> {
        passed_on!(self, inspect, request)
    }

    async fn get_item(
        &self,
        request: Request<v1::GetItemRequest>,
    ) -> Result<Response<v1::GetItemReply>, Status> {
        passed_on!(self, get_item, request)
    }

    async fn snapshot(
        &self,
        _: Request<v1::SnapshotRequest>,
    ) -> Result<Response<Self::SnapshotStream>, Status> {
        Err(Status::unimplemented("not in this test"))
    }
}

#[test]
fn a_shard_that_can_not_say_how_reliable_targets_are_ends_the_run_with_a_reason() {
    let mut cluster = Cluster::start(1, 1, &["--strategy", "reaper", "--min-size", "128"]);
    cluster.moves_on(&[0]);
    cluster.learner.kill();
    let older = Address::Unix(cluster.path().join("older"));
    let (runtime, real) = (&cluster.runtime, cluster.shard_address(0));
    runtime.spawn({
        let older = older.clone();
        async move {
            let edge = Edge::register(&Registry::new()).unwrap();
            let listener = Listener::bind(&older, edge, Gate::open()).await.unwrap();
            let service = ReplayServer::new(Older(shard_client(&real)));
            listener.serve(Routes::new(service), std::future::pending()).await.unwrap();
        }
    });
    cluster.start_learner_with_shards(&[older]);
    assert_eq!(cluster.learner.end().code(), Some(1));
    let log = cluster.learner.log();
    let reason =
        "the shard does not compute reliabilities: run the same version of quiver on learner and shards";
    assert!(log.contains(reason), "{log}");
}
