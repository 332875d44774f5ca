//! The one owner of the shard: a thread that does one job after the other.
//!
//! Jobs come through a bounded mailbox and answer through a channel of their own. So nothing is locked, a slow table
//! slows its callers instead of piling up work, and each job sees the shard as the one before left it. What others wait
//! for is published after each job:
//!
//! - the *phase* (configured, finished) changes twice in a shard's life; every writer watches it;
//! - the *inserts* change all the time; only a grant that waits for them watches;
//! - a *turn* goes to one waiting writer at a time, in the order in which they began to wait. Waking all of them for
//!   each insert that is granted would be a thousand wake-ups for one chunk.

use std::io;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use tokio::sync::futures::Notified;
use tokio::sync::{Notify, mpsc, oneshot, watch};

use crate::metrics::Metrics;
use crate::refusal::Refusal;
use crate::shard::{Shard, Standing};

/// Jobs that may wait for the thread. Each caller has one at a time, so this is about who waits where; deep enough
/// that the thread never idles while there is work.
const MAILBOX_JOBS_MAX: usize = 256;

/// Does its work and gives its answer, which is sent once everyone can see what the work has changed.
type Job = Box<dyn FnOnce(&mut Shard) -> Answer + Send>;
/// Nobody to answer if the caller has gone away.
type Answer = Option<Box<dyn FnOnce() + Send>>;

/// What changes rarely.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Phase {
    /// The learner has said what the shard holds.
    pub configured: bool,
    /// The run has ended.
    pub finished: bool,
}

/// The way to the shard. All clones lead to the same.
#[derive(Clone)]
pub struct Handle {
    jobs: mpsc::Sender<Job>,
    phase: watch::Receiver<Phase>,
    inserts: watch::Receiver<u64>,
    turn: Arc<Notify>,
}

/// A way to the shard that does not keep its thread alive.
pub struct WeakHandle {
    jobs: mpsc::WeakSender<Job>,
    phase: watch::Receiver<Phase>,
    inserts: watch::Receiver<u64>,
    turn: Arc<Notify>,
}

impl WeakHandle {
    /// The way to a shard that someone else still uses.
    pub fn upgrade(&self) -> Option<Handle> {
        let Self { jobs, phase, inserts, turn } = self;
        Some(Handle {
            jobs: jobs.upgrade()?,
            phase: phase.clone(),
            inserts: inserts.clone(),
            turn: turn.clone(),
        })
    }
}

/// Resolves when the thread has ended, which it does when nobody has a handle any more, or when it fails.
pub struct Ended(oneshot::Receiver<()>);

/// Starts the thread. With `sync_each`, nothing is answered before what it changed is on the disk.
pub fn spawn(shard: Shard, metrics: Metrics, sync_each: bool) -> io::Result<(Handle, Ended)> {
    let (jobs, mailbox) = mpsc::channel(MAILBOX_JOBS_MAX);
    let (phase_sender, phase) = watch::channel(Phase::default());
    let (inserts_sender, inserts) = watch::channel(0);
    let (alive, ended) = oneshot::channel();
    let turn = Arc::new(Notify::new());
    let published = Published { phase: phase_sender, inserts: inserts_sender, turn: turn.clone(), metrics };
    let work = move || {
        work(mailbox, shard, &published, sync_each);
        drop(alive);
    };
    thread::Builder::new().name("shard".into()).spawn(work)?;
    Ok((Handle { jobs, phase, inserts, turn }, Ended(ended)))
}

fn work(mut mailbox: mpsc::Receiver<Job>, mut shard: Shard, published: &Published, sync_each: bool) {
    let mut synced = shard.standing();
    published.publish(&synced);
    let mut answers = Vec::new();
    while let Some(job) = mailbox.blocking_recv() {
        answers.extend(job(&mut shard));
        // Whatever waits already shares one visit to the disk.
        while sync_each && answers.len() < MAILBOX_JOBS_MAX {
            let Ok(job) = mailbox.try_recv() else { break };
            answers.extend(job(&mut shard));
        }
        let standing = shard.standing();
        // Whatever changes the store is counted, so those who only look do not wait for the disk.
        if sync_each && standing != synced {
            if let Err(error) = sync(&shard, &published.metrics) {
                // Those who wait for an answer see the stream break, and nothing was promised to them.
                tracing::error!(%error, "cannot write to the data directory, ending");
                return;
            }
            synced.clone_from(&standing);
        }
        published.publish(&standing);
        published.metrics.mailbox_depth.set(mailbox.len() as i64);
        answers.drain(..).for_each(|answer| answer());
    }
}

fn sync(shard: &Shard, metrics: &Metrics) -> io::Result<()> {
    let Some(home) = shard.home() else { return Ok(()) };
    let started = Instant::now();
    home.sync()?;
    metrics.synced(started.elapsed());
    Ok(())
}

impl Ended {
    /// Waits for the end.
    pub async fn wait(&mut self) {
        // Nothing is ever sent: the thread drops its side.
        let _ = (&mut self.0).await;
    }
}

impl Handle {
    /// Has a job done, unless the caller goes away before its turn comes. Waits while the mailbox is full.
    pub async fn call<T: Send + 'static>(
        &self,
        job: impl FnOnce(&mut Shard) -> T + Send + 'static,
    ) -> Result<T, Refusal> {
        let (reply, answer) = oneshot::channel();
        let job: Job = Box::new(move |shard| {
            if reply.is_closed() {
                return None;
            }
            let result = job(shard);
            Some(Box::new(move || drop(reply.send(result))))
        });
        self.jobs.send(job).await.map_err(|_| Refusal::Stopping)?;
        answer.await.map_err(|_| Refusal::Stopping)
    }

    /// For those who only look in now and then.
    pub fn downgrade(&self) -> WeakHandle {
        let Self { jobs, phase, inserts, turn } = self.clone();
        WeakHandle { jobs: jobs.downgrade(), phase, inserts, turn }
    }

    /// The same, and how long it took the thread.
    pub async fn timed<T: Send + 'static>(
        &self,
        job: impl FnOnce(&mut Shard) -> T + Send + 'static,
    ) -> Result<(T, Duration), Refusal> {
        let timed = |shard: &mut Shard| {
            let start = Instant::now();
            let result = job(shard);
            (result, start.elapsed())
        };
        self.call(timed).await
    }

    /// Waits until the phase is as wished.
    pub async fn phase(&self, wished: impl FnMut(&Phase) -> bool) -> Result<Phase, Refusal> {
        let mut phase = self.phase.clone();
        let reached = phase.wait_for(wished).await.map_err(|_| Refusal::Stopping)?;
        Ok(*reached)
    }

    /// Waits until so many inserts are stored.
    pub async fn inserts(&self, least: u64) -> Result<(), Refusal> {
        let reached = self.inserts.clone().wait_for(|&inserts| inserts >= least).await.is_ok();
        if reached { Ok(()) } else { Err(Refusal::Stopping) }
    }

    /// A place in the queue of those who wait for room.
    pub fn queue(&self) -> Notified<'_> {
        self.turn.notified()
    }

    /// Whoever got a turn holds this until its job is done, so that a turn is not lost with a writer that vanishes.
    pub fn turn(&self) -> Turn<'_> {
        Turn(&self.turn)
    }
}

/// Passes the turn on when it goes. If there was no room after all, the next one finds out and waits again.
pub struct Turn<'a>(&'a Notify);

impl Turn<'_> {
    /// The job was done, and the thread has passed the turn on if there was room.
    pub fn done(self) {
        std::mem::forget(self);
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.0.notify_one();
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
    fn publish(&self, standing: &Standing) {
        let phase = Phase { configured: standing.configured, finished: standing.finished };
        replace_if_other(&self.phase, phase);
        replace_if_other(&self.inserts, standing.inserts());
        self.metrics.observe(standing);
        if standing.has_room() {
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
