//! Kill it again and again, anywhere, and nothing that was acknowledged is lost, changed or doubled.
#![allow(clippy::disallowed_methods, reason = "the test waits for real processes and sockets")]

use std::collections::HashMap;
use std::time::{Duration, Instant};

use proto::v1;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use replay::ItemKey;
use tonic::Status;

use super::ledger::{Actor, finish, firsts, for_each_lane};
use crate::common::process::Process;
use crate::common::*;

const ACTORS: u32 = 3;
/// Lives of each shard. Most of the time goes into starting the process and into the writers' pauses.
const KILLS: usize = 300;

/// All that the shard has answered to the learner, so it must keep it.
#[derive(Default)]
struct Memory {
    items: HashMap<ItemKey, Known>,
    shard: Option<v1::ShardStatus>,
}

/// One item as the learner knows it.
struct Known {
    actor: u32,
    lane: u32,
    first_step: u64,
    times_sampled: u32,
    priority: f64,
    /// Sent, and not acknowledged: it may be there or not.
    tried: Option<f64>,
}

impl Known {
    /// Its priority is one of those that it can have.
    fn settle(&mut self, priority: f64) {
        let possible = [Some(self.priority), self.tried.take()];
        assert!(possible.contains(&Some(priority)), "a priority of {priority}, not {possible:?}");
        self.priority = priority;
    }
}

impl Memory {
    /// The shard is the one that it was, and has not counted backwards.
    fn check_shard(&mut self, shard: v1::ShardStatus) {
        if let Some(before) = &self.shard {
            assert_eq!((&shard.id, shard.incarnation), (&before.id, before.incarnation));
            let counters = |shard: &v1::ShardStatus| {
                let v1::Counters { chunks, duplicate_chunks, steps, agent_steps, inserts, .. } =
                    shard.counters.unwrap();
                let mut counters = vec![chunks, duplicate_chunks, steps, agent_steps, inserts];
                for table in &shard.tables {
                    counters.extend([table.inserts, table.evicted, table.reclaimed_items]);
                    counters.extend([table.samples, table.updates, table.stale_updates]);
                }
                counters
            };
            let (now, then) = (counters(&shard), counters(before));
            assert!(now.iter().zip(&then).all(|(now, then)| now >= then), "{now:?} after {then:?}");
        }
        self.shard = Some(shard);
    }

    /// The same key means the same item, with the priority and the draws that were acknowledged. An item may have made
    /// room if `evicts`.
    async fn check_items(&mut self, client: &mut Client, evicts: bool) -> Result<(), Status> {
        let keys: Vec<ItemKey> = self.items.keys().copied().take(20).collect();
        for key in keys {
            let reply = match client.get_item(look(key)).await {
                Ok(reply) => reply.into_inner(),
                Err(status) if status.code() == tonic::Code::NotFound && evicts => {
                    self.items.remove(&key);
                    continue;
                }
                Err(status) => return Err(status),
            };
            let batch = batch(reply.batch);
            let item = batch.items().next().unwrap();
            let known = self.items.get_mut(&key).unwrap();
            let lane = item.lane();
            assert_eq!(
                (lane.actor, lane.lane, item.first_step()),
                (known.actor, known.lane, known.first_step)
            );
            assert_frames(&item);
            assert!(item.times_sampled() >= known.times_sampled, "draws of {key:?} are forgotten");
            known.settle(item.priority().get());
        }
        Ok(())
    }

    /// Draws some items and gives them priorities, as a learner does, until the shard is gone.
    async fn learn(&mut self, client: &mut Client, rng: &mut ChaCha8Rng, evicts: bool) -> Result<(), Status> {
        loop {
            let mut sampling = Sampling::try_open(client).await?;
            let points: Vec<f64> = (0..8).map(|_| rng.random()).collect();
            let reply = sampling.ask(sample(1, points)).await?;
            self.check_shard(reply.shard.unwrap());
            let drawn = batch(reply.batch);
            for item in drawn.items() {
                assert_frames(&item);
                let known = self.items.entry(item.key()).or_insert_with(|| Known {
                    actor: item.lane().actor,
                    lane: item.lane().lane,
                    first_step: item.first_step(),
                    times_sampled: 0,
                    priority: item.priority().get(),
                    tried: None,
                });
                known.times_sampled = known.times_sampled.max(item.times_sampled());
                known.settle(item.priority().get());
            }
            let mut keys: Vec<ItemKey> = drawn.items().map(|item| item.key()).collect();
            keys.sort_unstable_by_key(|key| (key.slot, key.generation));
            keys.dedup();
            let priorities: Vec<_> = keys.iter().map(|&key| (key, rng.random_range(0.0..1e6))).collect();
            for (key, priority) in &priorities {
                self.items.get_mut(key).unwrap().tried = Some(*priority);
            }
            let reply = client.update_priorities(update(1, updates(&priorities))).await?.into_inner();
            assert_eq!(reply.applied + reply.stale, priorities.len() as u64);
            // Writers may be faster than the learner, but only where there is not room for all.
            assert!(reply.stale == 0 || evicts, "{} of {} keys mean nothing", reply.stale, keys.len());
            for (key, priority) in priorities {
                let known = self.items.get_mut(&key).unwrap();
                (known.priority, known.tried) = (priority, None);
            }
            self.check_shard(reply.shard.unwrap());
        }
    }
}

/// A shard that is killed `KILLS` times while three actors write and a learner learns.
struct Story {
    store: v1::Store,
    /// Whether items of the first table have to make room.
    evicts: bool,
    rng: ChaCha8Rng,
    memory: Memory,
}

impl Story {
    fn new(store: v1::Store, evicts: bool, seed: u64) -> Self {
        Self { store, evicts, rng: ChaCha8Rng::seed_from_u64(seed), memory: Memory::default() }
    }

    fn grant(&self, shard: &v1::ShardStatus, inserts: u64) -> v1::GrantRequest {
        let inserts = shard.counters.unwrap().inserts + inserts;
        grant_with(self.store.clone(), allowance(shard.incarnation, inserts))
    }

    /// One life: looks whether everything is there, lets writers write some, and kills.
    async fn live(&mut self, mut process: Process, actors: &[Actor]) {
        let acknowledged = || actors.iter().map(Actor::acknowledged).sum::<u64>();
        let mut client = client(&process.address);
        let info = state(&mut client).await;
        let shard = info.shard.unwrap();
        let damaged = info.recovered.unwrap();
        assert_eq!((damaged.damaged_chunks, damaged.damaged_priorities), (0, 0));
        assert_eq!((damaged.damaged_lanes, damaged.lost_items), (0, 0));
        self.memory.check_shard(shard.clone());
        self.memory.check_items(&mut client, self.evicts).await.unwrap();
        // So much that some of it is in flight when it ends, and so little that it is not all for the disk.
        let chunks = self.rng.random_range(1..=60);
        let grant = self.grant(&shard, chunks * 4 * self.store.tables.len() as u64);
        let enough = acknowledged() + self.rng.random_range(0..=chunks) / 2;
        client.grant(grant).await.unwrap();
        let (pause, learns) = (self.rng.random_range(0..=1), self.rng.random_range(0..4) > 0);
        let killer = async {
            while acknowledged() < enough {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
            tokio::time::sleep(Duration::from_millis(pause)).await;
            process.kill();
        };
        let learner = async {
            if learns {
                let ended = self.memory.learn(&mut client, &mut self.rng, self.evicts).await;
                let status = ended.unwrap_err();
                assert!(!rpc::shard::is_refusal(&status), "{status:?}");
            }
        };
        patiently(async { tokio::join!(killer, learner) }).await;
    }
}

/// Kills a shard with this store, and gives its last life, with what each actor has written.
async fn kill_again_and_again(
    store: v1::Store,
    evicts: bool,
    seed: u64,
) -> (Process, Vec<u64>, tempfile::TempDir) {
    let directory = tempfile::tempdir().unwrap();
    let socket = format!("unix:{}/s.sock", directory.path().display());
    let data = directory.path().join("data");
    let flags = ["--data-dir", data.to_str().unwrap(), "--fsync", "none"];
    let tables = store.tables.len() as u8;
    let mut story = Story::new(store, evicts, seed);
    let address = socket.parse().unwrap();
    let actors: Vec<Actor> = (0..ACTORS).map(|actor| Actor::start(&address, actor, tables)).collect();
    let began = Instant::now();
    for _ in 0..KILLS {
        // Some do not live to see a caller.
        if story.rng.random_range(0..8) == 0 {
            let mut process = Process::spawn(Some(&socket), &flags);
            tokio::time::sleep(Duration::from_micros(story.rng.random_range(0..20_000))).await;
            process.kill();
        }
        let process = Process::start(Some(&socket), &flags);
        story.live(process, &actors).await;
    }
    let seconds = began.elapsed().as_secs_f64();
    let process = Process::start(Some(&socket), &flags);
    let mut client = client(&process.address);
    let shard = state(&mut client).await.shard.unwrap();
    story.memory.check_shard(shard.clone());
    // Without a limit on inserts, writers on a busy machine would soon evict what is checked below.
    actors.iter().for_each(Actor::stop);
    client.grant(story.grant(&shard, 1_000_000)).await.unwrap();
    let (handed, duplicates) = finish(actors).await;
    story.memory.check_items(&mut client, evicts).await.unwrap();
    let shard = state(&mut client).await.shard.unwrap();
    let counters = shard.counters.unwrap();
    // Each chunk was stored once, and never missed.
    assert_eq!((counters.chunks, counters.lost_chunks), (handed.iter().sum::<u64>(), 0));
    assert!(counters.duplicate_chunks >= duplicates);
    println!(
        "{:.1} kills/s, {} chunks, of which {} sent again",
        KILLS as f64 / seconds,
        counters.chunks,
        counters.duplicate_chunks
    );
    (process, handed, directory)
}

fn uniform(name: &str, capacity: u64) -> v1::Table {
    v1::Table { capacity, sampler: "uniform".into(), ..table(name) }
}

#[tokio::test(flavor = "multi_thread")]
async fn whatever_was_acknowledged_is_there_once_after_hundreds_of_kills() {
    let store =
        v1::Store { bytes_max: 32 << 20, ..store_of(vec![uniform("all", 1 << 17), uniform("new", 300)]) };
    let (process, handed, _directory) = kill_again_and_again(store, false, 1).await;
    let mut client = client(&process.address);
    let all = firsts(&all_items(&mut client, 0).await);
    let new = firsts(&all_items(&mut client, 1).await);
    for_each_lane(&handed, |lane, expected| {
        let expected: Vec<u64> = expected.collect();
        assert_eq!(all[&lane], expected, "actor and lane {lane:?}");
        // Of a table with less room the newest are there, without a hole.
        let newest = new.get(&lane).map_or(&[][..], |firsts| firsts);
        assert!(expected.ends_with(newest), "actor and lane {lane:?}");
    });
    assert_eq!(new.values().map(Vec::len).sum::<usize>(), 300);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_ring_that_is_used_round_and_round_keeps_the_newest_through_hundreds_of_kills() {
    let store = v1::Store { bytes_max: 96 << 10, ..store_of(vec![uniform("all", 1 << 12)]) };
    let (process, handed, _directory) = kill_again_and_again(store, true, 2).await;
    let mut client = client(&process.address);
    let shard = state(&mut client).await.shard.unwrap();
    assert!(shard.tables[0].reclaimed_items > 0, "{shard:?}");
    assert!(shard.bytes_used > 80 << 10, "{shard:?}");
    let all = firsts(&all_items(&mut client, 0).await);
    for_each_lane(&handed, |lane, expected| {
        let there = all.get(&lane).map_or(&[][..], |firsts| firsts);
        assert!(expected.collect::<Vec<_>>().ends_with(there), "actor and lane {lane:?}");
    });
}
