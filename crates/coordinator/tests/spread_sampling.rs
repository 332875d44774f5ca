//! What is drawn through several real tables, against the closed form of every item's probability:
//! P(i) = share of its shard · (p + constant)^α / Σ of its shard.
//!
//! Seeds are fixed. The same is tested with shards as processes in `tests/cluster/sampling.rs`.

mod tables;

use coordinator::sample_points::ShardMasses;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use replay::testing::statistics::{
    BATCH, assert_fit, assert_uniform_means, assert_within_strata, batches_for, items_of, probabilities,
    true_masses,
};
use tables::Shards;

fn rng(seed: u64) -> ChaCha8Rng {
    ChaCha8Rng::seed_from_u64(seed)
}

/// Tables that changed after their masses were reported: the first grew, the second has new priorities.
fn changed(rng: &mut ChaCha8Rng) -> (Shards, Vec<f64>) {
    let mut shards = Shards::new(rng);
    let old = true_masses(&shards.priorities);
    let new: Vec<f64> = (0..80).map(|_| rng.random_range(0.5..4.0)).collect();
    shards.insert(0, &new);
    for item in (0..150).step_by(2) {
        shards.set(1, item, rng.random_range(0.5..4.0));
    }
    let now = true_masses(&shards.priorities);
    assert!(now[0] > 3.0 * old[0] && now[1] > 1.5 * old[1], "{old:?} {now:?}");
    (shards, old)
}

/// Draws without strata until the rarest item is expected 20 times, and compares frequencies.
fn fits(shards: &mut Shards, masses: &ShardMasses, expected: &[f64], rng: &mut ChaCha8Rng) {
    assert_fit(&shards.draw(masses, false, batches_for(expected), rng), expected);
}

#[test]
fn without_strata_every_item_comes_with_its_probability() {
    let rng = &mut rng(1);
    let mut shards = Shards::new(rng);
    let masses = shards.masses();
    let expected = probabilities(&shards.priorities, &true_masses(&shards.priorities));
    fits(&mut shards, &masses, &expected, rng);
}

#[test]
fn with_old_masses_every_item_comes_with_the_probability_it_says() {
    let rng = &mut rng(2);
    let (mut shards, old) = changed(rng);
    let expected = probabilities(&shards.priorities, &old);
    fits(&mut shards, &ShardMasses::new(old), &expected, rng);
}

#[test]
fn when_a_shard_is_lost_the_others_take_its_part() {
    let rng = &mut rng(3);
    let mut shards = Shards::new(rng);
    let mut known = true_masses(&shards.priorities);
    let mut masses = shards.masses();
    let before = probabilities(&shards.priorities, &known);
    let lost = masses.share(1);
    masses.exclude(1);
    known[1] = 0.0;
    let after = probabilities(&shards.priorities, &known);
    let gone = items_of(1, &shards.priorities);
    for (index, (before, after)) in before.iter().zip(&after).enumerate() {
        let renormalised = if gone.contains(&index) { 0.0 } else { before / (1.0 - lost) };
        assert!((after - renormalised).abs() < 1e-12);
    }
    fits(&mut shards, &masses, &after, rng);
}

#[test]
fn with_strata_no_item_comes_much_more_or_less_often_than_it_should() {
    let rng = &mut rng(4);
    let mut shards = Shards::new(rng);
    let masses = shards.masses();
    let expected = probabilities(&shards.priorities, &true_masses(&shards.priorities));
    // Some items are longer than a stratum, most are shorter.
    assert!(expected.iter().any(|p| p * BATCH as f64 > 3.0));
    assert_within_strata(&shards.draw(&masses, true, 400, rng), &expected);
}

#[test]
fn with_strata_and_old_masses_too() {
    let rng = &mut rng(5);
    let (mut shards, old) = changed(rng);
    let expected = probabilities(&shards.priorities, &old);
    assert_within_strata(&shards.draw(&ShardMasses::new(old), true, 400, rng), &expected);
}

#[test]
fn with_old_masses_weighted_means_are_still_uniform_means() {
    let rng = &mut rng(6);
    let (mut shards, old) = changed(rng);
    let expected = probabilities(&shards.priorities, &old);
    let drawn = shards.draw(&ShardMasses::new(old), false, 400, rng);
    assert_uniform_means(&drawn, &expected, &shards.priorities);
}

/// What the learner computes, (P/smallest P)^−β, is (N·P)^−β over the batch's largest, from P's that are the closed form.
#[test]
fn importance_weights_of_a_batch_are_the_closed_form() {
    let rng = &mut rng(7);
    let (mut shards, old) = changed(rng);
    let expected = probabilities(&shards.priorities, &old);
    let (items, masses) = (expected.len() as f64, ShardMasses::new(old));
    for exponent in [0.4, 0.6, 1.0] {
        let drawn = shards.draw(&masses, true, 1, rng);
        let closed: Vec<f64> =
            drawn.iter().map(|draw| (items * expected[draw.item]).powf(-exponent)).collect();
        let largest = closed.iter().copied().fold(0.0, f64::max);
        let smallest = drawn.iter().map(|draw| draw.probability).fold(1.0, f64::min);
        for (draw, closed) in drawn.iter().zip(closed) {
            let weight = (draw.probability / smallest).powf(-exponent);
            assert!((weight - closed / largest).abs() < 1e-9, "{weight} {}", closed / largest);
            assert!(weight <= 1.0);
        }
    }
}
