//! Tells a shard what it holds and how much it may take in, for as long as someone here uses it.
//!
//! A shard that was started anew has no allowance, and without files it does not know what it holds either.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use proto::v1::replay_client::ReplayClient;
use proto::{StoreSpec, convert, v1};
use rpc::channel::Channel;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::sleep;
use tonic::Status;

/// A shard knows learners by their starts. Python's are all the first.
pub const LEARNER_INCARNATION: u32 = 1;

/// How often the shard is looked at.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// Ends with the last who holds it, or when it is told to.
pub struct Keeper {
    told: watch::Sender<Told>,
    task: Mutex<Option<JoinHandle<()>>>,
}

/// What the shard is told.
#[derive(Clone)]
pub struct Told {
    pub run: String,
    pub spec: StoreSpec,
    /// Inserts in total.
    pub inserts_max: u64,
}

impl Keeper {
    /// Begins to look after the shard. Must be called within the runtime.
    pub fn start(client: ReplayClient<Channel>, told: Told) -> Self {
        let (told, heard) = watch::channel(told);
        let task = Mutex::new(Some(tokio::spawn(keep(client, heard))));
        Self { told, task }
    }

    /// From now on it is this.
    pub fn tell(&self, change: impl FnOnce(&mut Told)) {
        self.told.send_modify(change);
    }

    pub fn told(&self) -> Told {
        self.told.borrow().clone()
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

async fn keep(mut client: ReplayClient<Channel>, mut heard: watch::Receiver<Told>) {
    loop {
        let told = heard.borrow_and_update().clone();
        // What is in the way is said by those who need the shard, and may pass.
        look(&mut client, &told).await.ok();
        tokio::select! {
            () = sleep(LOOK_EVERY) => {}
            changed = heard.changed() => if changed.is_err() { return },
        }
    }
}

/// A shard that has forgotten is told again. One that others have told more is left alone.
async fn look(client: &mut ReplayClient<Channel>, told: &Told) -> Result<(), Status> {
    let info = client.info(v1::InfoRequest {}).await?.into_inner();
    if info.store.is_none() {
        grant(client, told, true, None).await?;
    }
    let allowed = info.shard.map_or(0, |shard| shard.inserts_allowed);
    if allowed == 0 && told.inserts_max > 0 {
        allow(client, told).await?;
    }
    Ok(())
}

/// Says how many inserts the shard may take in.
pub async fn allow(client: &mut ReplayClient<Channel>, told: &Told) -> Result<(), Status> {
    let shard = grant(client, told, false, None).await?;
    let allowance = v1::Allowance { shard_incarnation: shard.incarnation, inserts: told.inserts_max };
    grant(client, told, false, Some(allowance)).await.map(drop)
}

/// Tells it.
pub async fn grant(
    client: &mut ReplayClient<Channel>,
    told: &Told,
    store: bool,
    allowance: Option<v1::Allowance>,
) -> Result<v1::ShardStatus, Status> {
    let request = v1::GrantRequest {
        caller: Some(proto::caller(&told.run)),
        learner_incarnation: LEARNER_INCARNATION,
        store: store.then(|| convert::store_message(&told.spec)),
        allowance,
        ..v1::GrantRequest::default()
    };
    let reply = client.grant(request).await?.into_inner();
    reply.shard.ok_or_else(|| Status::internal("the answer has no shard in it"))
}
