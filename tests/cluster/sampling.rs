//! Four real shards with known priorities, drawn from as the learner does, against the closed form of every item's
//! probability: P(i) = share of its shard · (p + constant)^α / Σ of its shard.
//!
//! Seeds are fixed. The same is tested without processes in `crates/replay/tests/spread_sampling.rs`.

use std::time::Duration;

use coordinator::spread::{Masses, Point};
use proto::{StoreSpec, Updates, v1};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use replay::Allowance;
use replay::codec::Codec;
use replay::testing::statistics::{chi_square, chi_square_tail};
use replay::testing::{self, Lane, NOOP, one_step};
use replay::{ItemKey, LaneKey, StoreOptions, TableOptions};
use rpc::address::Address;
use rpc::channel::Credentials;
use rpc::place::Place;
use rpc::shard::{Shard, Told};
use rpc::writer::Writer;
use tempfile::TempDir;

use crate::harness::folder;
use crate::process::Process;
use crate::wire::{patiently, runtime};

const RUN: &str = "sampling";
const EXPONENT: f64 = 0.6;
const CONSTANT: f64 = 0.01;
const BATCH: usize = 256;
/// Items and scale of priorities, by shard.
const SIZES_AND_SCALES: [(usize, f64); 4] = [(40, 1.0), (150, 0.3), (7, 5.0), (90, 2.0)];

/// Shards, and what is in them.
struct Shards {
    clients: Vec<Shard>,
    incarnations: Vec<u32>,
    /// By shard and item. The item's number is its slot: nothing is ever overwritten here.
    priorities: Vec<Vec<f64>>,
    processes: Vec<Process>,
    folder: TempDir,
}

/// What came back for one draw.
struct Drawn {
    shard: usize,
    item: usize,
    /// P(i): the known share of its shard times the exact probability inside.
    probability: f64,
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
            shards.clients.push(Shard::new(shards.address(index), Credentials::none(), told(), index as u64));
            let news = shards.news(index).await;
            shards.incarnations.push(news.incarnation);
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
    async fn news(&mut self, index: usize) -> replay::ShardStatus {
        let client = &mut self.clients[index];
        patiently(async {
            loop {
                match client.grant(None, 0, Duration::ZERO, false).await {
                    Ok(news) => return news,
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
        let mut lane = Lane::new(LaneKey { actor: index as u32, incarnation, lane: 0 });
        (0..=priorities.len()).for_each(|_| lane.push(&[0], Some(NOOP)));
        let items = lane.completed().zip(priorities).map(|(first, &value)| one_step(first, value));
        let chunk = lane.chunk(items);
        let writer = Writer::spawn(Place::fixed(self.address(index)), Credentials::none(), hello, 1, 0);
        patiently(async {
            writer.send(chunk).await.unwrap();
            writer.flush().await.unwrap();
        })
        .await;
        self.priorities[index].extend(priorities);
        assert_eq!(self.news(index).await.first_table().items, inserts);
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
    async fn masses(&mut self) -> Masses {
        let mut masses = Vec::new();
        for index in 0..4 {
            masses.push(self.news(index).await.first_table().mass);
        }
        Masses::new(masses)
    }

    /// The same by the closed form.
    fn true_masses(&self) -> Vec<f64> {
        let weight = |priority: &f64| (priority + CONSTANT).powf(EXPONENT);
        self.priorities.iter().map(|priorities| priorities.iter().map(weight).sum()).collect()
    }

    /// Every item's probability, shard after shard: masses by shard as known, weights as they are.
    fn probabilities(&self, known: &[f64]) -> Vec<f64> {
        let total: f64 = known.iter().sum();
        let now = self.true_masses();
        let of_shard = |(index, priorities): (usize, &Vec<f64>)| {
            let share = known[index] / total / now[index];
            let probability = move |priority: &f64| share * (priority + CONSTANT).powf(EXPONENT);
            priorities.iter().map(probability).collect::<Vec<_>>()
        };
        self.priorities.iter().enumerate().flat_map(of_shard).collect()
    }

    /// Where an item stands in [`Self::probabilities`].
    fn index(&self, drawn: &Drawn) -> usize {
        self.priorities[..drawn.shard].iter().map(Vec::len).sum::<usize>() + drawn.item
    }

    /// One batch: points over the whole, then each shard's part, all asked at once.
    async fn draw(&mut self, masses: &Masses, stratified: bool, rng: &mut ChaCha8Rng) -> Vec<Drawn> {
        let points = masses.draw(BATCH, stratified, rng);
        let mut drawn = Vec::with_capacity(BATCH);
        for (index, client) in self.clients.iter_mut().enumerate() {
            let here = |point: &&Point| point.shard == index;
            let within: Vec<f64> = points.iter().filter(here).map(|point| point.within).collect();
            let wanted = within.len();
            let (batch, _) = patiently(client.sample(within, None)).await.unwrap();
            assert_eq!(batch.len(), wanted);
            drawn.extend(batch.items().map(|item| Drawn {
                shard: index,
                item: item.key().slot as usize,
                probability: masses.share(index) * item.probability(),
            }));
        }
        drawn
    }

    /// Changes two shards after their masses were heard: the first grows, the second has new priorities. Gives the
    /// masses of before.
    async fn change(&mut self, rng: &mut ChaCha8Rng) -> Vec<f64> {
        let old = self.true_masses();
        let new: Vec<f64> = (0..80).map(|_| rng.random_range(0.5..4.0)).collect();
        self.insert(0, &new).await;
        let updates: Vec<_> = (0..150).step_by(2).map(|item| (item, rng.random_range(0.5..4.0))).collect();
        self.update(1, &updates).await;
        let now = self.true_masses();
        assert!(now[0] > 3.0 * old[0] && now[1] > 1.5 * old[1], "{old:?} {now:?}");
        old
    }
}

fn told() -> Told {
    let table = TableOptions {
        priority_exponent: EXPONENT,
        priority_constant: CONSTANT,
        ..testing::table("transitions")
    };
    let options = StoreOptions { stack: 1, frame_bytes: 1, tables: vec![table], ..testing::options() };
    let spec = StoreSpec { options, codec: Codec::None, actions: 1 };
    Told { run: RUN.into(), learner_incarnation: 1, spec, reliabilities: false }
}

/// Draws without strata until the rarest item is expected 20 times; then 0.001 < p < 0.999 for the frequencies.
async fn fits(shards: &mut Shards, masses: &Masses, expected: &[f64], rng: &mut ChaCha8Rng) {
    assert!((expected.iter().sum::<f64>() - 1.0).abs() < 1e-9);
    let rarest = expected.iter().copied().fold(1.0, f64::min);
    let batches = (20.0 / rarest / BATCH as f64).ceil() as usize;
    let mut counts = vec![0u64; expected.len()];
    for _ in 0..batches {
        for drawn in shards.draw(masses, false, rng).await {
            let index = shards.index(&drawn);
            counts[index] += 1;
            let ratio = drawn.probability / expected[index];
            assert!((ratio - 1.0).abs() < 1e-9, "P of item {} of shard {}", drawn.item, drawn.shard);
        }
    }
    let draws = (batches * BATCH) as f64;
    let expected: Vec<f64> = expected.iter().map(|p| p * draws).collect();
    assert!(expected.iter().all(|e| *e >= 20.0));
    let tail = chi_square_tail(chi_square(&counts, &expected), counts.len() - 1);
    println!("{} items, {draws} draws, p = {tail}", counts.len());
    assert!(0.001 < tail && tail < 0.999, "p = {tail}");
}

#[test]
fn without_strata_every_item_of_four_shards_comes_with_its_probability() {
    runtime().block_on(async {
        let rng = &mut ChaCha8Rng::seed_from_u64(1);
        let mut shards = Shards::start(rng).await;
        let masses = shards.masses().await;
        let expected = shards.probabilities(&shards.true_masses());
        fits(&mut shards, &masses, &expected, rng).await;
    });
}

#[test]
fn with_old_masses_every_item_comes_with_the_probability_it_says() {
    runtime().block_on(async {
        let rng = &mut ChaCha8Rng::seed_from_u64(2);
        let mut shards = Shards::start(rng).await;
        let old = shards.change(rng).await;
        let expected = shards.probabilities(&old);
        fits(&mut shards, &Masses::new(old), &expected, rng).await;
    });
}

/// One point falls into each stratum, and an item shares a stratum with a neighbour at each of its two ends at most:
/// |count − B·P| < 2 in every batch.
#[test]
fn with_strata_counts_stay_within_a_stratum_at_each_end() {
    runtime().block_on(async {
        let rng = &mut ChaCha8Rng::seed_from_u64(3);
        let mut shards = Shards::start(rng).await;
        let masses = shards.masses().await;
        let expected = shards.probabilities(&shards.true_masses());
        assert!(expected.iter().any(|p| p * BATCH as f64 > 3.0), "some items are longer than a stratum");
        let batches = 200;
        let mut sums = vec![0u64; expected.len()];
        for _ in 0..batches {
            let mut counts = vec![0u64; expected.len()];
            for drawn in shards.draw(&masses, true, rng).await {
                counts[shards.index(&drawn)] += 1;
            }
            for (item, (got, p)) in counts.iter().zip(&expected).enumerate() {
                let due = p * BATCH as f64;
                assert!((*got as f64 - due).abs() < 2.0, "item {item}: {got} instead of {due}");
            }
            sums.iter_mut().zip(counts).for_each(|(sum, n)| *sum += n);
        }
        // Two shared strata give a variance of at most 1/4 each; five standard errors.
        let tolerance = 5.0 * (0.5 / f64::from(batches)).sqrt();
        for (sum, p) in sums.iter().zip(&expected) {
            let (mean, due) = (*sum as f64 / f64::from(batches), p * BATCH as f64);
            assert!((mean - due).abs() < tolerance, "{mean} instead of {due}");
        }
    });
}

/// At β_IS = 1 the weights turn any sampling into uniform sampling. With n draws, x some number of each item and μ its
/// plain mean over all N items, the mean of x/(N·P) is μ with a standard error of √(Σ P·(x/(N·P) − μ)² / n), and so, but
/// for a bias of order 1/n, is the mean weighted by 1/(N·P), with √(Σ P·((x − μ)/(N·P))² / n). Tolerance: four standard
/// errors, while the mean without weights must be twenty off.
#[test]
fn with_old_masses_weighted_means_are_still_uniform_means() {
    runtime().block_on(async {
        let rng = &mut ChaCha8Rng::seed_from_u64(4);
        let mut shards = Shards::start(rng).await;
        let old = shards.change(rng).await;
        let expected = shards.probabilities(&old);
        let items = expected.len() as f64;
        // A number that goes with the priority, so that biased sampling shows.
        let numbers: Vec<f64> = shards.priorities.iter().flatten().map(|p| 1.0 + p).collect();
        let uniform = numbers.iter().sum::<f64>() / items;
        let masses = Masses::new(old);

        let batches = 300;
        let (mut plain, mut weighted, mut weights) = (0.0, 0.0, 0.0);
        for _ in 0..batches {
            for drawn in shards.draw(&masses, false, rng).await {
                let (number, weight) = (numbers[shards.index(&drawn)], 1.0 / (items * drawn.probability));
                plain += number;
                weighted += weight * number;
                weights += weight;
            }
        }
        let draws = f64::from(batches) * BATCH as f64;
        let error = |spread: &dyn Fn(f64, f64) -> f64| {
            let variance: f64 = numbers.iter().zip(&expected).map(|(x, p)| p * spread(*x, *p).powi(2)).sum();
            (variance / draws).sqrt()
        };
        let exact_error = error(&|x, p| x / (items * p) - uniform);
        let ratio_error = error(&|x, p| (x - uniform) / (items * p));
        let (exact, ratio) = (weighted / draws, weighted / weights);
        println!("{exact} ± {exact_error}, {ratio} ± {ratio_error}, {} without weights", plain / draws);
        assert!((exact - uniform).abs() < 4.0 * exact_error, "{exact} instead of {uniform}");
        assert!((ratio - uniform).abs() < 4.0 * ratio_error, "{ratio} instead of {uniform}");
        assert!(
            (plain / draws - uniform).abs() > 20.0 * exact_error,
            "sampling is not biased enough to tell"
        );
    });
}
