//! Keeps a shard configured and supplied with an allowance while a client, writer or sampler uses it.
//!
//! A restarted shard has no allowance, and without a data directory it has no configuration either.
#![allow(clippy::disallowed_methods, reason = "Python callers wait in wall-clock time")]

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use proto::v1::replay_client::ReplayClient;
use proto::{StoreSpec, convert, v1};
use rpc::channel::Channel;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::sleep;
use tonic::Status;

/// Learner incarnation of all Python clients.
pub const LEARNER_INCARNATION: u32 = 1;

/// How often the keeper polls the shard.
const POLL_INTERVAL: Duration = Duration::from_secs(1);

/// Handle of the background task. The task stops when the last handle is dropped, or on `stop`.
pub struct Keeper {
    desired: watch::Sender<DesiredState>,
    task: Mutex<Option<JoinHandle<()>>>,
}

/// The configuration and allowance that the shard should have.
#[derive(Clone)]
pub struct DesiredState {
    pub run: String,
    pub spec: StoreSpec,
    /// Total number of inserts that the shard may accept.
    pub inserts_max: u64,
}

impl Keeper {
    /// Starts the background task. Must be called within the runtime.
    pub fn start(client: ReplayClient<Channel>, desired: DesiredState) -> Self {
        let (desired, changes) = watch::channel(desired);
        let task = Mutex::new(Some(tokio::spawn(keep(client, changes))));
        Self { desired, task }
    }

    /// Changes the desired state.
    pub fn update(&self, change: impl FnOnce(&mut DesiredState)) {
        self.desired.send_modify(change);
    }

    pub fn desired(&self) -> DesiredState {
        self.desired.borrow().clone()
    }

    pub fn stop(&self) {
        if let Some(task) = self.task.lock().unwrap_or_else(PoisonError::into_inner).take() {
            task.abort();
        }
    }
}

impl Drop for Keeper {
    fn drop(&mut self) {
        self.stop();
    }
}

async fn keep(mut client: ReplayClient<Channel>, mut changes: watch::Receiver<DesiredState>) {
    loop {
        let desired = changes.borrow_and_update().clone();
        // Errors are ignored: they may be temporary, and the calls of writers and samplers report them.
        reconcile(&mut client, &desired).await.ok();
        tokio::select! {
            () = sleep(POLL_INTERVAL) => {}
            changed = changes.changed() => if changed.is_err() { return },
        }
    }
}

/// Configures a shard that has no configuration, and sets the allowance of a shard that has none. It does not change an
/// allowance that another client has set.
async fn reconcile(client: &mut ReplayClient<Channel>, desired: &DesiredState) -> Result<(), Status> {
    let info = client.info(v1::InfoRequest {}).await?.into_inner();
    if info.store.is_none() {
        grant(client, desired, true, None).await?;
    }
    let allowed = info.shard.map_or(0, |shard| shard.allowance);
    if allowed == 0 && desired.inserts_max > 0 {
        allow(client, desired).await?;
    }
    Ok(())
}

/// Sets the total number of inserts that the shard may accept.
pub async fn allow(client: &mut ReplayClient<Channel>, desired: &DesiredState) -> Result<(), Status> {
    // An allowance is valid for one incarnation of the shard, which the first grant returns.
    let shard = grant(client, desired, false, None).await?;
    let allowance = v1::Allowance { shard_incarnation: shard.incarnation, inserts: desired.inserts_max };
    grant(client, desired, false, Some(allowance)).await.map(drop)
}

/// Sends a grant: with the configuration if `store`, with an allowance if given.
pub async fn grant(
    client: &mut ReplayClient<Channel>,
    desired: &DesiredState,
    store: bool,
    allowance: Option<v1::Allowance>,
) -> Result<v1::ShardStatus, Status> {
    let request = v1::GrantRequest {
        caller: Some(proto::caller(&desired.run)),
        learner_incarnation: LEARNER_INCARNATION,
        store: store.then(|| convert::store_message(&desired.spec)),
        allowance,
        ..v1::GrantRequest::default()
    };
    let reply = client.grant(request).await?.into_inner();
    reply.shard.ok_or_else(|| Status::internal("the shard's reply has no status"))
}
