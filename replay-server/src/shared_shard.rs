//! A shard that many tasks share: a fair async lock, taken in the order of arrival.
//!
//! [`SharedShard::call`] runs a job inline, on the current thread of the runtime: most jobs take less time than a hand-over
//! to another thread. Exceptions hold up that thread: a sample of thousands of items takes up to hundreds of
//! milliseconds, and a page of a mapped file that is not in memory costs a read of the disk. Jobs that allocate files or
//! scan a whole table use [`SharedShard::call_blocking`]. A task that waits for the lock does not block its thread. Each job sees the shard as the previous one left it. After each job, the state that tasks wait for is
//! published:
//!
//! - the *phase* (configured, finished) changes rarely: at the first grant, at the end of the run, and when a newer
//!   learner continues a finished run. Every writer watches it.
//! - the number of *inserts* changes all the time. Only a grant that waits for inserts watches it.
//! - a *turn* goes to one blocked writer at a time, first come, first served. Waking all of them for each granted
//!   insert would be a thousand wake-ups for one chunk.
#![allow(clippy::disallowed_methods, reason = "the shard's process measures and waits")]

use std::io;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use replay::ShardStatus;
use tokio::sync::futures::Notified;
use tokio::sync::{Mutex, Notify, OwnedMutexGuard, oneshot, watch};
use tokio::task::{JoinError, spawn_blocking};

use crate::metrics::{GaugeGuard, Metrics};
use crate::refusal::Refusal;
use crate::shard::Shard;

/// The part of the status that changes rarely. (The phase of an episode is another concept, in crate `replay`.)
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ShardPhase {
    /// A learner has configured the shard.
    pub configured: bool,
    /// The shard has the key of the run's tickets. A restored snapshot has none before the first grant.
    pub verifies: bool,
    /// The run has ended.
    pub finished: bool,
}

/// Cloneable handle to the shard. The shard is dropped with the last clone.
#[derive(Clone)]
pub struct SharedShard(Arc<SharedState>);

/// A handle that does not keep the shard alive.
pub struct WeakSharedShard(Weak<SharedState>);

impl WeakSharedShard {
    /// A [`SharedShard`], if another one is still alive.
    pub fn upgrade(&self) -> Option<SharedShard> {
        self.0.upgrade().map(SharedShard)
    }
}

/// Resolves when the shard was dropped: after the last [`SharedShard`], or because it failed.
pub struct ShardDropped(oneshot::Receiver<()>);

impl ShardDropped {
    pub async fn wait(&mut self) {
        // Nothing is ever sent. The sender is dropped with the shard, which ends this wait.
        let _ = (&mut self.0).await;
    }
}

struct SharedState {
    locked: Arc<Mutex<LockedShard>>,
    /// The newest revision on disk ([`LockedShard::revision`]). The holder of this mutex is running fsync. `None` unless each
    /// change is flushed (`--fsync always`).
    flushed_revision: Option<Mutex<u64>>,
    phase: watch::Receiver<ShardPhase>,
    inserts: watch::Receiver<u64>,
    turn: Arc<Notify>,
    metrics: Metrics,
}

impl SharedShard {
    /// Starts serving a shard. With `sync_each`, a call returns only after its changes are on disk.
    pub fn new(shard: Shard, metrics: Metrics, sync_each: bool) -> (Self, ShardDropped) {
        let (phase_sender, phase) = watch::channel(ShardPhase::default());
        let (inserts_sender, inserts) = watch::channel(0);
        let (alive, dropped) = oneshot::channel();
        let turn = Arc::new(Notify::new());
        let published = StatusChannels {
            phase: phase_sender,
            inserts: inserts_sender,
            turn: turn.clone(),
            metrics: metrics.clone(),
        };
        let status = shard.status();
        published.publish(&status, shard.has_ticket_key());
        let running = LiveShard { shard, published, _alive: alive };
        let locked = LockedShard { running: Some(Box::new(running)), status, revision: 0 };
        let flushed_revision = sync_each.then(|| Mutex::new(0));
        let locked = Arc::new(Mutex::new(locked));
        let state = SharedState { locked, flushed_revision, phase, inserts, turn, metrics };
        (Self(Arc::new(state)), ShardDropped(dropped))
    }

    /// Runs a short job on the shard. A caller that is dropped before it gets the lock runs nothing.
    pub async fn call<T>(&self, job: impl FnOnce(&mut Shard) -> T) -> Result<T, Refusal> {
        let (result, revision) = self.lock().await.run_job(job)?;
        self.wait_until_flushed(revision).await?;
        Ok(result)
    }

    /// Reads from the shard, for a short time. Does not wait until earlier changes are on disk.
    pub async fn read<T>(&self, job: impl FnOnce(&Shard) -> T) -> Result<T, Refusal> {
        Ok(self.lock().await.run_job(|shard| job(shard))?.0)
    }

    /// Runs a long job on a thread for blocking work, so that it does not hold up a thread that serves RPCs.
    pub async fn call_blocking<T: Send + 'static>(
        &self,
        job: impl FnOnce(&mut Shard) -> T + Send + 'static,
    ) -> Result<T, Refusal> {
        let mut locked = self.lock().await;
        // If the job panics, the shard is dropped with it.
        let done =
            spawn_blocking(move || locked.run_job(job)).await.map_err(|_: JoinError| Refusal::Stopping)?;
        let (result, revision) = done?;
        self.wait_until_flushed(revision).await?;
        Ok(result)
    }

    /// Runs a short job, and returns how long it took.
    pub async fn timed<T>(&self, job: impl FnOnce(&mut Shard) -> T) -> Result<(T, Duration), Refusal> {
        let timed = |shard: &mut Shard| {
            let start = Instant::now();
            let result = job(shard);
            (result, start.elapsed())
        };
        self.call(timed).await
    }

    async fn lock(&self) -> OwnedMutexGuard<LockedShard> {
        if let Ok(free) = self.0.locked.clone().try_lock_owned() {
            return free;
        }
        let _waiting = GaugeGuard::new(&self.0.metrics.calls_waiting);
        self.0.locked.clone().lock_owned().await
    }

    /// Waits until this revision is on disk, if the shard flushes each change. Concurrent callers share one flush.
    async fn wait_until_flushed(&self, revision: u64) -> Result<(), Refusal> {
        let Some(flushed) = &self.0.flushed_revision else { return Ok(()) };
        let mut flushed = flushed.lock().await;
        if *flushed >= revision {
            return Ok(());
        }
        let (storage, revision) = self.lock().await.run_job(|shard| shard.storage())?;
        let started = Instant::now();
        let Some(storage) = storage else { return Ok(()) };
        let synced = spawn_blocking(move || storage.sync())
            .await
            .unwrap_or_else(|failed| Err(io::Error::other(failed)));
        if let Err(error) = synced {
            // Callers that wait for an answer see their stream break. Nothing was acknowledged to them.
            self.stop_after_failed_flush(&error, started.elapsed()).await;
            return Err(Refusal::Stopping);
        }
        self.0.metrics.record_sync(started.elapsed());
        *flushed = revision;
        Ok(())
    }

    /// Drops the shard, whose changes may be lost although its memory still has them.
    pub async fn stop_after_failed_flush(&self, error: &io::Error, elapsed: Duration) {
        let elapsed_seconds = elapsed.as_secs_f64();
        tracing::error!(%error, elapsed_seconds, "flush to disk failed, stopping the shard");
        self.lock().await.running = None;
    }

    /// A handle for periodic tasks, which must not keep the shard alive.
    pub fn downgrade(&self) -> WeakSharedShard {
        WeakSharedShard(Arc::downgrade(&self.0))
    }

    /// Waits until the phase satisfies a condition.
    pub async fn wait_for_phase(
        &self,
        condition: impl FnMut(&ShardPhase) -> bool,
    ) -> Result<ShardPhase, Refusal> {
        let mut phase = self.0.phase.clone();
        let reached = phase.wait_for(condition).await.map_err(|_| Refusal::Stopping)?;
        Ok(*reached)
    }

    /// Waits until the shard has at least this many inserts, including the surcharge.
    pub async fn wait_for_inserts(&self, least: u64) -> Result<(), Refusal> {
        let reached = self.0.inserts.clone().wait_for(|&inserts| inserts >= least).await.is_ok();
        if reached { Ok(()) } else { Err(Refusal::Stopping) }
    }

    /// Waits in the queue of blocked writers for a turn.
    pub fn next_turn(&self) -> Notified<'_> {
        self.0.turn.notified()
    }

    /// The holder of a turn keeps this until its job is done, so that the turn is not lost if its task is dropped.
    pub fn turn_guard(&self) -> TurnGuard<'_> {
        TurnGuard(&self.0.turn)
    }
}

/// Passes the turn on when it is dropped. If the allowance is used up by then, the next writer waits again.
pub struct TurnGuard<'a>(&'a Notify);

impl TurnGuard<'_> {
    /// The job ran. If there was allowance left, publishing its result has passed the turn on.
    pub fn disarm(self) {
        std::mem::forget(self);
    }
}

impl Drop for TurnGuard<'_> {
    fn drop(&mut self) {
        self.0.notify_one();
    }
}

/// The state under the lock.
struct LockedShard {
    /// `None` after a failure.
    running: Option<Box<LiveShard>>,
    /// Its status after the last job.
    status: ShardStatus,
    /// How many jobs have changed the status.
    revision: u64,
}

struct LiveShard {
    shard: Shard,
    published: StatusChannels,
    _alive: oneshot::Sender<()>,
}

impl LockedShard {
    /// Runs a job. Also returns the revision after it.
    fn run_job<T>(&mut self, job: impl FnOnce(&mut Shard) -> T) -> Result<(T, u64), Refusal> {
        // If the job panics, the shard is dropped: its state may be inconsistent.
        let mut running = self.running.take().ok_or(Refusal::Stopping)?;
        let result = job(&mut running.shard);
        let status = running.shard.status();
        running.published.publish(&status, running.shard.has_ticket_key());
        self.running = Some(running);
        // Every change of the store changes a counter of the status. So a call that only reads does not wait for the
        // disk.
        self.revision += u64::from(status != self.status);
        self.status = status;
        Ok((result, self.revision))
    }
}

/// The state of the shard that is visible without the lock.
struct StatusChannels {
    phase: watch::Sender<ShardPhase>,
    inserts: watch::Sender<u64>,
    turn: Arc<Notify>,
    metrics: Metrics,
}

impl StatusChannels {
    fn publish(&self, status: &ShardStatus, verifies: bool) {
        let phase = ShardPhase { configured: status.configured, verifies, finished: status.finished };
        replace_if_changed(&self.phase, phase);
        replace_if_changed(&self.inserts, status.inserts_charged());
        self.metrics.observe(status);
        if status.accepts_inserts() {
            self.turn.notify_one();
        }
    }
}

fn replace_if_changed<T: PartialEq>(published: &watch::Sender<T>, new: T) {
    published.send_if_modified(|old| {
        let changed = *old != new;
        *old = new;
        changed
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store_backend::StoreBackend;
    use prometheus::Registry;

    fn guarded() -> (SharedShard, ShardDropped, Metrics) {
        let metrics = Metrics::register(&Registry::new());
        let shard = Shard::open(StoreBackend::in_memory("a".into()), 1 << 20).unwrap();
        let (handle, dropped) = SharedShard::new(shard, metrics.clone(), false);
        (handle, dropped, metrics)
    }

    #[tokio::test]
    async fn a_panicking_job_stops_the_shard() {
        for long in [false, true] {
            let (handle, mut dropped, _) = guarded();
            let caller = handle.clone();
            let fail = |_: &mut Shard| -> () { panic!("on purpose") };
            tokio::spawn(async move {
                if long { caller.call_blocking(fail).await } else { caller.call(fail).await }
            });
            dropped.wait().await;
            assert!(matches!(handle.call(|_| ()).await, Err(Refusal::Stopping)));
            assert!(matches!(handle.wait_for_phase(|phase| phase.finished).await, Err(Refusal::Stopping)));
        }
    }

    #[tokio::test]
    async fn callers_behind_a_long_job_are_counted_and_served_in_order() {
        let (handle, _dropped, metrics) = guarded();
        let (free, wait) = std::sync::mpsc::channel::<()>();
        let long = tokio::spawn({
            let handle = handle.clone();
            async move { handle.call_blocking(move |_| wait.recv().unwrap()).await }
        });
        while handle.0.locked.try_lock().is_ok() {
            tokio::task::yield_now().await;
        }
        let order = Arc::new(std::sync::Mutex::new(Vec::new()));
        let mut callers = Vec::new();
        for number in 0..3 {
            let (handle, order) = (handle.clone(), order.clone());
            callers
                .push(tokio::spawn(async move { handle.call(|_| order.lock().unwrap().push(number)).await }));
            while metrics.calls_waiting.get() <= number {
                tokio::task::yield_now().await;
            }
        }
        free.send(()).unwrap();
        long.await.unwrap().unwrap();
        for caller in callers {
            caller.await.unwrap().unwrap();
        }
        assert_eq!(*order.lock().unwrap(), [0, 1, 2]);
        assert_eq!(metrics.calls_waiting.get(), 0);
    }
}
