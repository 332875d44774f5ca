//! Four real shards with known priorities, drawn from as the learner does, against the closed form of every item's
//! probability: P(i) = share of its shard · (p + constant)^α / Σ of its shard.
//!
//! Seeds are fixed. The same is tested without processes in `crates/coordinator/tests/spread_sampling.rs`.
#![allow(clippy::disallowed_methods, reason = "the test waits for real processes and sockets")]

use std::time::Duration;

use coordinator::sample_points::{SamplePoint, ShardMasses};
use proto::{StoreSpec, Updates, v1};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use replay::Allowance;
use replay::codec::Codec;
use replay::testing::statistics::{
    BATCH, CONSTANT, Drawn, EXPONENT, SIZES_AND_SCALES, assert_fit, assert_uniform_means,
    assert_within_strata, batches_for, items_of, probabilities, true_masses,
};
use replay::testing::{self, LaneBuilder, NOOP, one_step};
use replay::{ItemKey, LaneKey, StoreOptions, TableOptions};
use rpc::address::Address;
use rpc::channel::Credentials;
use rpc::shard::{ShardClient, ShardConfig};
use rpc::shard_entry::ShardEntry;
use rpc::writer::ChunkWriter;
use tempfile::TempDir;

use crate::harness::folder;
use crate::process::Process;
use crate::wire::{patiently, runtime};

const RUN: &str = "sampling";

/// Shards, and what is in them.
struct Shards {
    clients: Vec<ShardClient>,
    incarnations: Vec<u32>,
    /// By shard and item. The item's number is its slot: nothing is ever overwritten here.
    priorities: Vec<Vec<f64>>,
    processes: Vec<Process>,
    folder: TempDir,
}

impl Shards {
    async fn start(rng: &mut ChaCha8Rng) -> Self {
        let folder = folder();
        let mut shards = Self {
            clients: Vec::new(),
            incarnations: Vec::new(),
            priorities: vec![Vec::new(); 4],
            processes: Vec::new(),
            folder,
        };
        for index in 0..4 {
            let arguments = ["--listen".into(), shards.address(index).to_string()];
            let name = format!("shard-{index}");
            shards.processes.push(Process::start(
                shards.folder.path(),
                &name,
                "quiver-replay-server",
                &arguments,
            ));
            shards.clients.push(ShardClient::new(
                shards.address(index),
                Credentials::none(),
                shard_config(),
                index as u64,
            ));
            let status = shards.status(index).await;
            shards.incarnations.push(status.incarnation);
        }
        for (index, (size, scale)) in SIZES_AND_SCALES.into_iter().enumerate() {
            let priorities: Vec<f64> = (0..size).map(|_| scale * rng.random_range(0.05..1.0)).collect();
            shards.insert(index, &priorities).await;
        }
        shards
    }

    fn address(&self, index: usize) -> Address {
        Address::Unix(self.folder.path().join(format!("s{index}")))
    }

    /// Asks until the shard answers; its process may just be starting.
    async fn status(&mut self, index: usize) -> replay::ShardStatus {
        let client = &mut self.clients[index];
        patiently(async {
            loop {
                match client.grant(None, 0, Duration::ZERO, false).await {
                    Ok(status) => return status,
                    Err(_) => tokio::time::sleep(Duration::from_millis(20)).await,
                }
            }
        })
        .await
    }

    /// One chunk of an episode of its own, by a new incarnation of the shard's writer, whose steps complete one-step
    /// items with these priorities.
    async fn insert(&mut self, index: usize, priorities: &[f64]) {
        let before = self.priorities[index].len();
        let incarnation = before as u64 + 1;
        let inserts = (before + priorities.len()) as u64;
        let allowance = Some(Allowance { incarnation: self.incarnations[index], inserts });
        self.clients[index].grant(allowance, 0, Duration::ZERO, false).await.unwrap();
        let hello = v1::InsertHello {
            caller: Some(proto::caller(RUN)),
            actor: index as u32,
            incarnation,
            codec: "none".into(),
            frame_bytes: 1,
            stack: 1,
            ..v1::InsertHello::default()
        };
        let mut lane = LaneBuilder::new(LaneKey { actor: index as u32, incarnation, lane: 0 });
        (0..=priorities.len()).for_each(|_| lane.push(&[0], Some(NOOP)));
        let items = lane.completed().zip(priorities).map(|(first, &value)| one_step(first, value));
        let chunk = lane.chunk(items);
        let writer = ChunkWriter::spawn(
            index,
            ShardEntry::fixed(self.address(index)),
            Credentials::none(),
            hello,
            1,
            0,
        );
        patiently(async {
            writer.send(chunk).await.unwrap();
            writer.flush().await.unwrap();
        })
        .await;
        self.priorities[index].extend(priorities);
        assert_eq!(self.status(index).await.first_table().items, inserts);
    }

    /// Gives items of a shard new priorities.
    async fn update(&mut self, index: usize, updates: &[(usize, f64)]) {
        let incarnation = self.incarnations[index];
        let update = |&(item, priority): &(usize, f64)| {
            let key = ItemKey { incarnation, slot: item as u32, generation: item as u64 };
            (key, proto::convert::priority(priority).unwrap())
        };
        let message = Updates { priorities: updates.iter().map(update).collect(), ..Updates::default() };
        let (applied, _) = patiently(self.clients[index].updater().update(&message)).await.unwrap();
        assert_eq!(applied, updates.len() as u64);
        updates.iter().for_each(|&(item, priority)| self.priorities[index][item] = priority);
    }

    /// As the shards say themselves.
    async fn masses(&mut self) -> ShardMasses {
        let mut masses = Vec::new();
        for index in 0..4 {
            masses.push(self.status(index).await.first_table().mass);
        }
        ShardMasses::new(masses)
    }

    /// Batches: for each, points over the whole, then each shard's part.
    async fn draw(
        &mut self,
        masses: &ShardMasses,
        stratified: bool,
        batches: usize,
        rng: &mut ChaCha8Rng,
    ) -> Vec<Drawn> {
        let mut drawn = Vec::with_capacity(batches * BATCH);
        for _ in 0..batches {
            let points = masses.draw(BATCH, stratified, rng);
            for (index, client) in self.clients.iter_mut().enumerate() {
                let here = |point: &&SamplePoint| point.shard == index;
                let within: Vec<f64> = points.iter().filter(here).map(|point| point.within).collect();
                let wanted = within.len();
                let (batch, _) = patiently(client.sample(within, None)).await.unwrap();
                assert_eq!(batch.len(), wanted);
                let first = items_of(index, &self.priorities).start;
                drawn.extend(batch.items().map(|item| Drawn {
                    item: first + item.key().slot as usize,
                    probability: masses.share(index) * item.probability(),
                }));
            }
        }
        drawn
    }

    /// Changes two shards after their masses were reported: the first grows, the second has new priorities. Gives the
    /// masses of before.
    async fn change(&mut self, rng: &mut ChaCha8Rng) -> Vec<f64> {
        let old = true_masses(&self.priorities);
        let new: Vec<f64> = (0..80).map(|_| rng.random_range(0.5..4.0)).collect();
        self.insert(0, &new).await;
        let updates: Vec<_> = (0..150).step_by(2).map(|item| (item, rng.random_range(0.5..4.0))).collect();
        self.update(1, &updates).await;
        let now = true_masses(&self.priorities);
        assert!(now[0] > 3.0 * old[0] && now[1] > 1.5 * old[1], "{old:?} {now:?}");
        old
    }
}

fn shard_config() -> ShardConfig {
    let table = TableOptions {
        priority_exponent: EXPONENT,
        priority_constant: CONSTANT,
        ..testing::table("transitions")
    };
    let options = StoreOptions { stack: 1, frame_bytes: 1, tables: vec![table], ..testing::options() };
    let spec = StoreSpec { options, codec: Codec::None, actions: 1 };
    ShardConfig { run: RUN.into(), learner_incarnation: 1, spec, ticket_key: None, reliabilities: false }
}

#[test]
fn without_strata_every_item_of_four_shards_comes_with_its_probability() {
    runtime().block_on(async {
        let rng = &mut ChaCha8Rng::seed_from_u64(1);
        let mut shards = Shards::start(rng).await;
        let masses = shards.masses().await;
        let expected = probabilities(&shards.priorities, &true_masses(&shards.priorities));
        assert_fit(&shards.draw(&masses, false, batches_for(&expected), rng).await, &expected);
    });
}

#[test]
fn with_old_masses_every_item_comes_with_the_probability_it_says() {
    runtime().block_on(async {
        let rng = &mut ChaCha8Rng::seed_from_u64(2);
        let mut shards = Shards::start(rng).await;
        let old = shards.change(rng).await;
        let expected = probabilities(&shards.priorities, &old);
        let masses = ShardMasses::new(old);
        assert_fit(&shards.draw(&masses, false, batches_for(&expected), rng).await, &expected);
    });
}

#[test]
fn with_strata_counts_stay_within_a_stratum_at_each_end() {
    runtime().block_on(async {
        let rng = &mut ChaCha8Rng::seed_from_u64(3);
        let mut shards = Shards::start(rng).await;
        let masses = shards.masses().await;
        let expected = probabilities(&shards.priorities, &true_masses(&shards.priorities));
        assert!(expected.iter().any(|p| p * BATCH as f64 > 3.0), "some items are longer than a stratum");
        assert_within_strata(&shards.draw(&masses, true, 200, rng).await, &expected);
    });
}

#[test]
fn with_old_masses_weighted_means_are_still_uniform_means() {
    runtime().block_on(async {
        let rng = &mut ChaCha8Rng::seed_from_u64(4);
        let mut shards = Shards::start(rng).await;
        let old = shards.change(rng).await;
        let expected = probabilities(&shards.priorities, &old);
        let drawn = shards.draw(&ShardMasses::new(old), false, 300, rng).await;
        assert_uniform_means(&drawn, &expected, &shards.priorities);
    });
}
