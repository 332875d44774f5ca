//! The one owner of the shard: a lock that callers take in the order in which they came.
//!
//! Whoever holds it does one job, on the thread that it is on already: a job takes microseconds, and to wake another
//! thread for it takes longer and, on a busy machine, sometimes four milliseconds more. Whoever waits for the lock
//! leaves its thread to others. Each job sees the shard as the one before left it. What others wait for is published
//! after each job:
//!
//! - the *phase* (configured, finished) changes twice in a shard's life; every writer watches it;
//! - the *inserts* change all the time; only a grant that waits for them watches;
//! - a *turn* goes to one waiting writer at a time, in the order in which they began to wait. Waking all of them for
//!   each insert that is granted would be a thousand wake-ups for one chunk.

use std::io;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use replay::ShardStatus;
use tokio::sync::futures::Notified;
use tokio::sync::{Mutex, Notify, OwnedMutexGuard, oneshot, watch};
use tokio::task::{JoinError, spawn_blocking};

use crate::metrics::{Metrics, OneMore};
use crate::refusal::Refusal;
use crate::shard::Shard;

/// What changes rarely.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Phase {
    /// The learner has said what the shard holds.
    pub configured: bool,
    /// The run has ended.
    pub finished: bool,
}

/// The way to the shard. All clones lead to the same, and it goes with the last of them.
#[derive(Clone)]
pub struct Handle(Arc<Owner>);

/// A way to the shard that does not keep it.
pub struct WeakHandle(Weak<Owner>);

impl WeakHandle {
    /// The way to a shard that someone else still uses.
    pub fn upgrade(&self) -> Option<Handle> {
        self.0.upgrade().map(Handle)
    }
}

/// Resolves when the shard is gone, which is when nobody has a handle any more, or when it fails.
pub struct Ended(oneshot::Receiver<()>);

impl Ended {
    /// Waits for the end.
    pub async fn wait(&mut self) {
        // Nothing is ever sent: the other side goes with the shard.
        let _ = (&mut self.0).await;
    }
}

struct Owner {
    shard: Arc<Mutex<Kept>>,
    /// Changes that are on the disk; whoever holds this is bringing more there. None where nobody waits for the disk.
    disk: Option<Mutex<u64>>,
    phase: watch::Receiver<Phase>,
    inserts: watch::Receiver<u64>,
    turn: Arc<Notify>,
    metrics: Metrics,
}

/// Takes care of a shard from now on. With `sync_each`, nothing is answered before what it changed is on the disk.
pub fn keep(shard: Shard, metrics: Metrics, sync_each: bool) -> (Handle, Ended) {
    let (phase_sender, phase) = watch::channel(Phase::default());
    let (inserts_sender, inserts) = watch::channel(0);
    let (alive, ended) = oneshot::channel();
    let turn = Arc::new(Notify::new());
    let published = Published {
        phase: phase_sender,
        inserts: inserts_sender,
        turn: turn.clone(),
        metrics: metrics.clone(),
    };
    let status = shard.status();
    published.publish(&status);
    let living = Living { shard, published, _alive: alive };
    let kept = Kept { living: Some(Box::new(living)), status, changes: 0 };
    let disk = sync_each.then(|| Mutex::new(0));
    let shard = Arc::new(Mutex::new(kept));
    (Handle(Arc::new(Owner { shard, disk, phase, inserts, turn, metrics })), Ended(ended))
}

impl Handle {
    /// Has a short job done, unless the caller goes away before its turn comes.
    pub async fn call<T>(&self, job: impl FnOnce(&mut Shard) -> T) -> Result<T, Refusal> {
        let (result, changes) = self.lock().await.work(job)?;
        self.on_disk(changes).await?;
        Ok(result)
    }

    /// Looks at the shard, for a short time. What others changed before need not be on the disk yet.
    pub async fn look<T>(&self, job: impl FnOnce(&Shard) -> T) -> Result<T, Refusal> {
        Ok(self.lock().await.work(|shard| job(shard))?.0)
    }

    /// Has a job done that may take long, beside the threads that serve the wire.
    pub async fn call_long<T: Send + 'static>(
        &self,
        job: impl FnOnce(&mut Shard) -> T + Send + 'static,
    ) -> Result<T, Refusal> {
        let mut kept = self.lock().await;
        // If the job panics, the shard has gone with it.
        let done = spawn_blocking(move || kept.work(job)).await.map_err(|_: JoinError| Refusal::Stopping)?;
        let (result, changes) = done?;
        self.on_disk(changes).await?;
        Ok(result)
    }

    /// A short job, and how long it took.
    pub async fn timed<T>(&self, job: impl FnOnce(&mut Shard) -> T) -> Result<(T, Duration), Refusal> {
        let timed = |shard: &mut Shard| {
            let start = Instant::now();
            let result = job(shard);
            (result, start.elapsed())
        };
        self.call(timed).await
    }

    async fn lock(&self) -> OwnedMutexGuard<Kept> {
        if let Ok(free) = self.0.shard.clone().try_lock_owned() {
            return free;
        }
        let _waiting = OneMore::new(&self.0.metrics.calls_waiting);
        self.0.shard.clone().lock_owned().await
    }

    /// Waits until so many changes are on the disk, if that is wished. Those who wait at the same time share one visit.
    async fn on_disk(&self, changes: u64) -> Result<(), Refusal> {
        let Some(disk) = &self.0.disk else { return Ok(()) };
        let mut on_disk = disk.lock().await;
        if *on_disk >= changes {
            return Ok(());
        }
        let (home, changes) = self.lock().await.work(|shard| shard.home())?;
        let started = Instant::now();
        let Some(home) = home else { return Ok(()) };
        let synced =
            spawn_blocking(move || home.sync()).await.unwrap_or_else(|failed| Err(io::Error::other(failed)));
        if let Err(error) = synced {
            // Those who wait for an answer see the stream break, and nothing was promised to them.
            tracing::error!(%error, "cannot write to the data directory, ending");
            self.lock().await.living = None;
            return Err(Refusal::Stopping);
        }
        self.0.metrics.synced(started.elapsed());
        *on_disk = changes;
        Ok(())
    }

    /// For those who only look in now and then.
    pub fn downgrade(&self) -> WeakHandle {
        WeakHandle(Arc::downgrade(&self.0))
    }

    /// Waits until the phase is as wished.
    pub async fn phase(&self, wished: impl FnMut(&Phase) -> bool) -> Result<Phase, Refusal> {
        let mut phase = self.0.phase.clone();
        let reached = phase.wait_for(wished).await.map_err(|_| Refusal::Stopping)?;
        Ok(*reached)
    }

    /// Waits until so many inserts are stored.
    pub async fn inserts(&self, least: u64) -> Result<(), Refusal> {
        let reached = self.0.inserts.clone().wait_for(|&inserts| inserts >= least).await.is_ok();
        if reached { Ok(()) } else { Err(Refusal::Stopping) }
    }

    /// A place in the queue of those who wait for room.
    pub fn queue(&self) -> Notified<'_> {
        self.0.turn.notified()
    }

    /// Whoever got a turn holds this until its job is done, so that a turn is not lost with a writer that vanishes.
    pub fn turn(&self) -> Turn<'_> {
        Turn(&self.0.turn)
    }
}

/// Passes the turn on when it goes. If there was no room after all, the next one finds out and waits again.
pub struct Turn<'a>(&'a Notify);

impl Turn<'_> {
    /// The job was done, and the turn was passed on with it if there was room.
    pub fn done(self) {
        std::mem::forget(self);
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.0.notify_one();
    }
}

/// The shard under its lock.
struct Kept {
    /// Gone after a failure.
    living: Option<Box<Living>>,
    /// Its status after the last job.
    status: ShardStatus,
    /// Jobs that changed the status.
    changes: u64,
}

struct Living {
    shard: Shard,
    published: Published,
    _alive: oneshot::Sender<()>,
}

impl Kept {
    /// Does a job. Also gives the number of changes so far.
    fn work<T>(&mut self, job: impl FnOnce(&mut Shard) -> T) -> Result<(T, u64), Refusal> {
        // A job that panics takes the shard with it: nobody shall trust what it leaves.
        let mut living = self.living.take().ok_or(Refusal::Stopping)?;
        let result = job(&mut living.shard);
        let status = living.shard.status();
        living.published.publish(&status);
        self.living = Some(living);
        // Whatever changes the store is counted, so those who only look do not wait for the disk.
        self.changes += u64::from(status != self.status);
        self.status = status;
        Ok((result, self.changes))
    }
}

/// What others see of the shard without asking.
struct Published {
    phase: watch::Sender<Phase>,
    inserts: watch::Sender<u64>,
    turn: Arc<Notify>,
    metrics: Metrics,
}

impl Published {
    fn publish(&self, status: &ShardStatus) {
        let phase = Phase { configured: status.configured, finished: status.finished };
        replace_if_other(&self.phase, phase);
        replace_if_other(&self.inserts, status.inserts());
        self.metrics.observe(status);
        if status.has_room() {
            self.turn.notify_one();
        }
    }
}

fn replace_if_other<T: PartialEq>(published: &watch::Sender<T>, new: T) {
    published.send_if_modified(|old| {
        let other = *old != new;
        *old = new;
        other
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::home::Place;
    use prometheus::Registry;

    fn kept() -> (Handle, Ended, Metrics) {
        let metrics = Metrics::register(&Registry::new());
        let shard = Shard::open(Place::memory("a".into()), 1 << 20).unwrap();
        let (handle, ended) = keep(shard, metrics.clone(), false);
        (handle, ended, metrics)
    }

    #[tokio::test]
    async fn a_job_that_panics_takes_the_shard_with_it() {
        for long in [false, true] {
            let (handle, mut ended, _) = kept();
            let caller = handle.clone();
            let fail = |_: &mut Shard| -> () { panic!("as the test wants it") };
            tokio::spawn(
                async move { if long { caller.call_long(fail).await } else { caller.call(fail).await } },
            );
            ended.wait().await;
            assert!(matches!(handle.call(|_| ()).await, Err(Refusal::Stopping)));
            assert!(matches!(handle.phase(|phase| phase.finished).await, Err(Refusal::Stopping)));
        }
    }

    #[tokio::test]
    async fn whoever_waits_for_a_long_job_is_counted_and_gets_its_turn_in_order() {
        let (handle, _ended, metrics) = kept();
        let (free, wait) = std::sync::mpsc::channel::<()>();
        let long = tokio::spawn({
            let handle = handle.clone();
            async move { handle.call_long(move |_| wait.recv().unwrap()).await }
        });
        while handle.0.shard.try_lock().is_ok() {
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
