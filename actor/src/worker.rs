//! The main loop of an actor: load the newest weights, step the lanes, send the chunks to the shards.
//!
//! A lane belongs to one shard for its whole lifetime, also if the shard moves. Lanes whose shard is blocked pause
//! while the others continue; the writer bounds how far a lane may be ahead of its shard. If the run continues without
//! a shard, this membership ends, and the next one spreads its lanes over the remaining shards.
#![allow(clippy::disallowed_methods, reason = "the actor's process measures its work")]

use std::time::Instant;

use anyhow::{Result, anyhow};
use proto::{Report, v1};
use replay::Chunk;
use rpc::shard_entry::ShardEntry;
use rpc::writer::{ChunkWriter, WriterState};
use tokio::runtime::Runtime;
use tokio::time::{Duration, timeout};
use tracing::{info, warn};

use crate::lane::EpisodeEnd;
use crate::lanes::Lanes;
use crate::start::{JoinedProcess, MembershipEnd, POLL_INTERVAL};

/// How long the worker waits at its end for chunks in flight to be acknowledged.
const FLUSH_WAIT_MAX: Duration = Duration::from_secs(2);
/// Interval of the log line about blocked shards.
const LOG_INTERVAL: Duration = Duration::from_secs(10);

pub(crate) struct Worker {
    member: JoinedProcess,
    lanes: Lanes,
    writers: Vec<Option<ChunkWriter>>,
    /// Shard number of each lane.
    shard_of: Vec<usize>,
    /// Shards that were excluded when this member joined.
    excluded: Vec<usize>,
    counted: Counted,
}

/// Sums of the writers' counters at the last update of the metrics.
#[derive(Default)]
struct Counted {
    chunks: u64,
    duplicates: u64,
    reconnects: u64,
}

impl Worker {
    /// A worker for these shards, at least one of which is not excluded.
    pub fn new(member: JoinedProcess, shards: &[ShardEntry]) -> Result<Self> {
        let joined = &member.membership.joined;
        let settings = &member.resolved.settings;
        let chunk_steps = settings.chunk_steps as usize;
        let lanes = Lanes::new(
            &member.resolved,
            joined.index,
            joined.incarnation,
            joined.learner_start,
            chunk_steps,
        )?;
        let lane_count = settings.lanes as usize;
        let updates = &member.membership.updates;
        let count = shards.len();
        let excluded = excluded(shards);
        let present: Vec<usize> = (0..count).filter(|shard| !excluded.contains(shard)).collect();
        // Assign shards round-robin over the lanes of all actors. With gaps in the indices of actors, or fewer lanes than
        // shards, a shard may get none.
        let shard_of: Vec<usize> = (0..lane_count)
            .map(|lane| present[(joined.index as usize * lane_count + lane) % present.len()])
            .collect();
        let hello = v1::InsertHello {
            caller: Some(proto::caller(&joined.run)),
            actor: joined.index,
            incarnation: joined.incarnation,
            ticket: joined.ticket.clone(),
            codec: settings.frame_codec.name().into(),
            frame_bytes: (member.architecture.input.bytes() / settings.frame_stack) as u32,
            stack: settings.frame_stack as u32,
            ..v1::InsertHello::default()
        };
        let writer = |shard: usize| {
            let own = shard_of.iter().filter(|&&of| of == shard).count();
            let seed = u64::from(joined.index) << 16 | shard as u64;
            let updates = updates.clone();
            // The learner has not reached a shard without an id yet, so another shard may listen at its address.
            let entry =
                move || updates.borrow().shards.get(shard).filter(|entry| !entry.id.is_empty()).cloned();
            (own > 0).then(|| {
                ChunkWriter::spawn(shard, entry, member.credentials.clone(), hello.clone(), own, seed)
            })
        };
        let writers = (0..count).map(writer).collect();
        member.metrics.lanes.set(lane_count as i64);
        Ok(Self { member, lanes, writers, shard_of, excluded, counted: Counted::default() })
    }

    pub fn run(mut self, runtime: &Runtime) -> Result<MembershipEnd> {
        let mut weights = match self.member.wait_for_weights(runtime, "weights", |_| true) {
            Ok(weights) => weights,
            Err(end) => return Ok(end),
        };
        self.member.load(&weights)?;
        loop {
            if let Some(end) = self.end()? {
                self.flush(runtime);
                return Ok(end);
            }
            let (newest, agent_steps) = {
                let update = self.member.membership.updates.borrow();
                (update.weights.clone(), update.agent_steps)
            };
            if let Some(newest) = newest.filter(|newest| newest.version != weights.version) {
                self.member.load(&newest)?;
                weights = newest;
            }
            let started = Instant::now();
            let (writers, shard_of) = (&self.writers, &self.shard_of);
            let ready = |lane: usize| writers[shard_of[lane]].as_ref().is_some_and(ChunkWriter::has_room);
            let stepped = self.lanes.step(&self.member.network, weights.version, agent_steps, ready)?;
            // No lane is ready: every shard is blocked or unreachable.
            if stepped.agent_steps == 0 {
                self.wait(runtime);
                continue;
            }
            let metrics = &self.member.metrics;
            metrics.step_seconds.observe(started.elapsed().as_secs_f64());
            metrics.frames.inc_by(stepped.frames);
            metrics.agent_steps.inc_by(stepped.agent_steps);
            self.report(&stepped.episodes);
            for chunk in stepped.chunks {
                self.send(runtime, chunk);
            }
            self.update_counters();
        }
    }

    /// Why this membership ends, if it does: because of a writer, the shard directory, the learner or a signal.
    fn end(&self) -> Result<Option<MembershipEnd>> {
        for writer in self.writers.iter().flatten() {
            match writer.state() {
                WriterState::Finished => return Ok(Some(MembershipEnd::Done)),
                WriterState::Fenced(reason) => return Ok(Some(MembershipEnd::Rejected(reason))),
                WriterState::Refused(reason) => {
                    return Err(anyhow!("a shard refuses this actor's chunks: {reason}"));
                }
                WriterState::Open | WriterState::Waiting(_) => {}
            }
        }
        if excluded(&self.member.membership.updates.borrow().shards) != self.excluded {
            return Ok(Some(MembershipEnd::ShardsChanged));
        }
        Ok(self.member.end())
    }

    /// Passes a chunk to its shard's writer. Lanes step only while the writer has room for a chunk of each, so this
    /// does not block.
    fn send(&self, runtime: &Runtime, chunk: Chunk) {
        let writer =
            self.writers[self.shard_of[chunk.lane.lane as usize]].as_ref().expect("its lane has a writer");
        // An error means that the writer has ended; `end` handles that before the next step.
        let _ = runtime.block_on(writer.send(chunk));
    }

    /// Waits until a writer has room again, and reports the reason in the log, the metrics and the health page.
    fn wait(&self, runtime: &Runtime) {
        let started = Instant::now();
        let mut logged_at = started;
        self.member.metrics.set_blocked_on(Some("shard"));
        while !self.writers.iter().flatten().any(ChunkWriter::has_room)
            && !matches!(self.end(), Ok(Some(_)) | Err(_))
        {
            if logged_at.elapsed() >= LOG_INTERVAL {
                logged_at = Instant::now();
                let blocked_on = self.blocked_on();
                let blocked_seconds = started.elapsed().as_secs_f64();
                info!(blocked_on, blocked_seconds, "actor blocked");
                self.member.health.waiting(blocked_on);
            }
            let writers: Vec<&ChunkWriter> = self.writers.iter().flatten().collect();
            let any = rpc::writer::any_room(&writers);
            let _ = runtime.block_on(async { timeout(POLL_INTERVAL, any).await });
        }
        self.member.metrics.set_blocked_on(None);
        self.member.health.ready();
        self.member.metrics.blocked_seconds_total.inc_by(started.elapsed().as_secs_f64());
    }

    /// What each shard's writer is blocked on, as text.
    fn blocked_on(&self) -> String {
        let blocked_on = |(shard, writer): (usize, &Option<ChunkWriter>)| {
            let text = match writer.as_ref()?.state() {
                WriterState::Waiting(blocked_on) => blocked_on,
                WriterState::Open => "acknowledgement of the chunks in flight".to_owned(),
                state => format!("{state:?}"),
            };
            Some(format!("shard {shard}: {text}"))
        };
        self.writers.iter().enumerate().filter_map(blocked_on).collect::<Vec<_>>().join("; ")
    }

    fn report(&self, episodes: &[EpisodeEnd]) {
        if episodes.is_empty() {
            return;
        }
        let metrics = &self.member.metrics;
        let message = |end: &EpisodeEnd| proto::EpisodeReport {
            score: end.score,
            steps: end.steps,
            truncated: end.truncated,
        };
        let reported =
            self.member.membership.report(Report::Episodes(episodes.iter().map(message).collect()));
        metrics.reports_dropped.inc_by(u64::from(!reported));
        metrics.episodes.inc_by(episodes.len() as u64);
        metrics.episode_score.set(episodes[episodes.len() - 1].score);
    }

    fn update_counters(&mut self) {
        use std::sync::atomic::Ordering::Relaxed;
        let mut now = Counted::default();
        let mut in_flight = 0;
        for writer in self.writers.iter().flatten() {
            now.chunks += writer.sent().chunks.load(Relaxed);
            now.duplicates += writer.sent().duplicates.load(Relaxed);
            now.reconnects += writer.sent().reconnects.load(Relaxed);
            in_flight += writer.in_flight();
        }
        let metrics = &self.member.metrics;
        metrics.chunks.inc_by(now.chunks - self.counted.chunks);
        metrics.duplicates.inc_by(now.duplicates - self.counted.duplicates);
        metrics.reconnects.inc_by(now.reconnects - self.counted.reconnects);
        metrics.chunks_in_flight.set(in_flight as i64);
        self.counted = now;
    }

    /// Waits for chunks in flight to be acknowledged, at most `FLUSH_WAIT_MAX` per writer, and logs those that were not.
    fn flush(&self, runtime: &Runtime) {
        for writer in self.writers.iter().flatten() {
            if !writer.state().is_final() {
                let _ = runtime.block_on(async { timeout(FLUSH_WAIT_MAX, writer.flush()).await });
            }
        }
        // After the end of the run, shards discard chunks on purpose.
        let running = |writer: &&ChunkWriter| writer.state() != WriterState::Finished;
        let writers: Vec<&ChunkWriter> = self.writers.iter().flatten().filter(running).collect();
        let chunks: usize = writers.iter().map(|writer| writer.in_flight()).sum();
        if chunks > 0 {
            let steps: u64 = writers.iter().map(|writer| writer.steps_in_flight()).sum();
            let blocked_on = self.blocked_on();
            warn!(chunks, steps, blocked_on, "unacknowledged chunks dropped, their steps may be lost");
        }
    }
}

/// Numbers of the shards that the run continues without.
fn excluded(shards: &[ShardEntry]) -> Vec<usize> {
    shards.iter().enumerate().filter(|(_, entry)| entry.excluded).map(|(shard, _)| shard).collect()
}
