//! Plays in a run: newest weights, one decision after the other, chunks to the shards.
//!
//! A lane belongs to one shard for its whole life, wherever that shard goes. Lanes whose shard takes nothing pause and the
//! others play on; how far a lane may be ahead of its shard is bounded by the writer. If the run goes on without a shard,
//! this membership ends: the lanes of the next one are spread over those that are left.

use std::time::Instant;

use anyhow::{Result, anyhow, bail};
use proto::{Report, v1};
use replay::Chunk;
use rpc::place::Place;
use rpc::writer::{State, Writer};
use tokio::runtime::Runtime;
use tokio::time::{Duration, timeout};
use tracing::info;

use crate::lane::EpisodeEnd;
use crate::player::Player;
use crate::start::{End, LOOK_EVERY, Member};

/// How long what is under way may take to be acknowledged at the end.
const FLUSH_WAIT_MAX: Duration = Duration::from_secs(2);
/// How often a log line repeats what is waited for.
const COMPLAIN_EVERY: Duration = Duration::from_secs(10);

pub(crate) struct Playing {
    member: Member,
    player: Player,
    writers: Vec<Option<Writer>>,
    /// The shard of each lane.
    shard_of: Vec<usize>,
    /// Shards that the run did without when this member joined.
    absent: Vec<usize>,
    counted: Counted,
}

/// What the writers had done when it was last counted.
#[derive(Default)]
struct Counted {
    chunks: u64,
    duplicates: u64,
    reconnects: u64,
}

impl Playing {
    pub fn new(member: Member) -> Result<Self> {
        let joined = &member.membership.joined;
        let settings = &member.resolved.settings;
        let chunk_steps = settings.chunk_steps as usize;
        let player = Player::new(&member.resolved, joined.index, joined.incarnation, chunk_steps)?;
        let lanes = settings.lanes as usize;
        let news = &member.membership.news;
        let count = news.borrow().shards.len();
        let absent = absent(&news.borrow().shards);
        let present: Vec<usize> = (0..count).filter(|shard| !absent.contains(shard)).collect();
        if present.is_empty() {
            bail!("the learner names no shard: start it with --shard");
        }
        // Neighbouring lanes have different shards, over all actors: every shard gets its share.
        let shard_of: Vec<usize> =
            (0..lanes).map(|lane| present[(joined.index as usize * lanes + lane) % present.len()]).collect();
        let hello = v1::InsertHello {
            caller: Some(proto::caller(&joined.run)),
            actor: joined.index,
            incarnation: joined.incarnation,
            codec: settings.frame_codec.name().into(),
            frame_bytes: (member.architecture.input.bytes() / settings.frame_stack) as u32,
            stack: settings.frame_stack as u32,
            ..v1::InsertHello::default()
        };
        let writer = |shard: usize| {
            let own = shard_of.iter().filter(|&&of| of == shard).count();
            let seed = u64::from(joined.index) << 16 | shard as u64;
            let news = news.clone();
            // A shard without a name was not heard yet: who is at its address may be another.
            let place = move || news.borrow().shards.get(shard).filter(|place| !place.id.is_empty()).cloned();
            (own > 0).then(|| Writer::spawn(place, member.credentials.clone(), hello.clone(), own, seed))
        };
        let writers = (0..count).map(writer).collect();
        member.metrics.lanes.set(lanes as i64);
        Ok(Self { member, player, writers, shard_of, absent, counted: Counted::default() })
    }

    pub fn run(mut self, runtime: &Runtime) -> Result<End> {
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
                let news = self.member.membership.news.borrow();
                (news.weights.clone(), news.agent_steps)
            };
            if let Some(newest) = newest.filter(|newest| newest.version != weights.version) {
                self.member.load(&newest)?;
                weights = newest;
            }
            let started = Instant::now();
            let (writers, shard_of) = (&self.writers, &self.shard_of);
            let ready = |lane: usize| writers[shard_of[lane]].as_ref().is_some_and(Writer::has_room);
            let played = self.player.step(&self.member.network, weights.version, agent_steps, ready)?;
            if played.agent_steps == 0 {
                self.wait(runtime);
                continue;
            }
            let metrics = &self.member.metrics;
            metrics.step_seconds.observe(started.elapsed().as_secs_f64());
            metrics.frames.inc_by(played.frames);
            metrics.agent_steps.inc_by(played.agent_steps);
            self.report(&played.episodes);
            for chunk in played.chunks {
                self.send(runtime, chunk);
            }
            self.count();
        }
    }

    /// Whether to stop, for the run's sake or a shard's.
    fn end(&self) -> Result<Option<End>> {
        for writer in self.writers.iter().flatten() {
            match writer.state() {
                State::Finished => return Ok(Some(End::Done)),
                State::Fenced(reason) => return Ok(Some(End::Replaced(reason))),
                State::Refused(reason) => {
                    return Err(anyhow!("a shard refuses this actor's chunks: {reason}"));
                }
                State::Open | State::Waiting(_) => {}
            }
        }
        if absent(&self.member.membership.news.borrow().shards) != self.absent {
            return Ok(Some(End::Rearranged));
        }
        Ok(self.member.end())
    }

    /// Hands a chunk over. Lanes step only while there is room for a chunk of each, so this does not wait.
    fn send(&self, runtime: &Runtime, chunk: Chunk) {
        let writer =
            self.writers[self.shard_of[chunk.lane.lane as usize]].as_ref().expect("its lane has a writer");
        // An error means that the writer has ended, which is looked at before the next step.
        let _ = runtime.block_on(writer.send(chunk));
    }

    /// Waits until a shard takes something again, and says for what.
    fn wait(&self, runtime: &Runtime) {
        let started = Instant::now();
        let mut told = started;
        self.member.metrics.waits_for(Some("shard"));
        while !self.writers.iter().flatten().any(Writer::has_room)
            && !matches!(self.end(), Ok(Some(_)) | Err(_))
        {
            if told.elapsed() >= COMPLAIN_EVERY {
                told = Instant::now();
                let states: Vec<_> = self.writers.iter().flatten().map(Writer::state).collect();
                info!(seconds = started.elapsed().as_secs_f64(), ?states, "waiting for the shards");
                self.member.health.waiting(format!("the shards: {states:?}"));
            }
            let writers: Vec<&Writer> = self.writers.iter().flatten().collect();
            let any = rpc::writer::any_room(&writers);
            let _ = runtime.block_on(async { timeout(LOOK_EVERY, any).await });
        }
        self.member.metrics.waits_for(None);
        self.member.health.ready();
        self.member.metrics.wait_seconds.inc_by(started.elapsed().as_secs_f64());
    }

    fn report(&self, episodes: &[EpisodeEnd]) {
        if episodes.is_empty() {
            return;
        }
        let metrics = &self.member.metrics;
        let message = |end: &EpisodeEnd| proto::Episode {
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

    fn count(&mut self) {
        use std::sync::atomic::Ordering::Relaxed;
        let mut now = Counted::default();
        let mut under_way = 0;
        for writer in self.writers.iter().flatten() {
            now.chunks += writer.sent().chunks.load(Relaxed);
            now.duplicates += writer.sent().duplicates.load(Relaxed);
            now.reconnects += writer.sent().reconnects.load(Relaxed);
            under_way += writer.under_way();
        }
        let metrics = &self.member.metrics;
        metrics.chunks.inc_by(now.chunks - self.counted.chunks);
        metrics.duplicates.inc_by(now.duplicates - self.counted.duplicates);
        metrics.reconnects.inc_by(now.reconnects - self.counted.reconnects);
        metrics.chunks_under_way.set(under_way as i64);
        self.counted = now;
    }

    /// What is under way is acknowledged, if that is soon.
    fn flush(&self, runtime: &Runtime) {
        for writer in self.writers.iter().flatten() {
            if !writer.state().is_final() {
                let _ = runtime.block_on(async { timeout(FLUSH_WAIT_MAX, writer.flush()).await });
            }
        }
    }
}

/// Numbers of the shards that the run goes on without.
fn absent(shards: &[Place]) -> Vec<usize> {
    shards.iter().enumerate().filter(|(_, place)| place.absent).map(|(shard, _)| shard).collect()
}
