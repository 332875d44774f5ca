//! What is drawn through several real tables, against the closed form of every item's probability:
//! P(i) = share of its shard · (p + constant)^α / Σ of its shard.
//!
//! Seeds are fixed. A goodness-of-fit test passes with 0.001 < p < 0.999: neither too far off nor too good to be true.

mod tables;

use coordinator::spread::Masses;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use replay::testing::statistics::{chi_square, chi_square_tail};
use tables::{Drawn, Shard};

/// Batches of this many.
const BATCH: usize = 256;

fn rng(seed: u64) -> ChaCha8Rng {
    ChaCha8Rng::seed_from_u64(seed)
}

/// True masses, summed in another way than the tree does.
fn true_masses(shards: &[Shard]) -> Vec<f64> {
    shards.iter().map(|shard| shard.weights().iter().sum()).collect()
}

/// Tables that changed after their masses were heard: the first grew, the second has new priorities.
fn changed(rng: &mut ChaCha8Rng) -> (Vec<Shard>, Vec<f64>) {
    let mut shards = tables::shards(rng);
    let old = true_masses(&shards);
    let new: Vec<f64> = (0..80).map(|_| rng.random_range(0.5..4.0)).collect();
    shards[0].insert(&new);
    for item in (0..150).step_by(2) {
        shards[1].set(item, rng.random_range(0.5..4.0));
    }
    let now = true_masses(&shards);
    assert!(now[0] > 3.0 * old[0] && now[1] > 1.5 * old[1], "{old:?} {now:?}");
    (shards, old)
}

/// Draws without strata until the rarest item is expected 20 times, and compares frequencies. Items of probability 0 must
/// never come.
fn fits(shards: &mut [Shard], masses: &Masses, expected: &[f64], rng: &mut ChaCha8Rng) {
    assert!((expected.iter().sum::<f64>() - 1.0).abs() < 1e-9);
    let rarest = expected.iter().copied().filter(|p| *p > 0.0).fold(1.0, f64::min);
    let batches = (20.0 / rarest / BATCH as f64).ceil() as usize;
    let mut counts = vec![0u64; expected.len()];
    for _ in 0..batches {
        for Drawn { shard, item, probability } in tables::draw(shards, masses, BATCH, false, rng) {
            let index = tables::index(shards, shard, item);
            counts[index] += 1;
            assert!((probability / expected[index] - 1.0).abs() < 1e-9, "P of item {item} of shard {shard}");
        }
    }
    let draws = (batches * BATCH) as f64;
    let possible = || expected.iter().zip(&counts).filter(|(p, _)| **p > 0.0);
    let observed: Vec<u64> = possible().map(|(_, n)| *n).collect();
    let expected: Vec<f64> = possible().map(|(p, _)| p * draws).collect();
    assert!(expected.iter().all(|e| *e >= 20.0));
    assert_eq!(observed.iter().sum::<u64>(), draws as u64, "something impossible was drawn");
    let tail = chi_square_tail(chi_square(&observed, &expected), observed.len() - 1);
    assert!(0.001 < tail && tail < 0.999, "p = {tail}");
}

#[test]
fn without_strata_every_item_comes_with_its_probability() {
    let rng = &mut rng(1);
    let mut shards = tables::shards(rng);
    let masses = tables::masses(&shards);
    let expected = tables::probabilities(&shards, &true_masses(&shards));
    fits(&mut shards, &masses, &expected, rng);
}

#[test]
fn with_old_masses_every_item_comes_with_the_probability_it_says() {
    let rng = &mut rng(2);
    let (mut shards, old) = changed(rng);
    let expected = tables::probabilities(&shards, &old);
    fits(&mut shards, &Masses::new(old), &expected, rng);
}

#[test]
fn when_a_shard_is_lost_the_others_take_its_part() {
    let rng = &mut rng(3);
    let mut shards = tables::shards(rng);
    let mut known = true_masses(&shards);
    let mut masses = tables::masses(&shards);
    let before = tables::probabilities(&shards, &known);
    let lost = masses.share(1);
    masses.lose(1);
    known[1] = 0.0;
    let after = tables::probabilities(&shards, &known);
    let gone = tables::index(&shards, 1, 0)..tables::index(&shards, 2, 0);
    for (index, (before, after)) in before.iter().zip(&after).enumerate() {
        let renormalised = if gone.contains(&index) { 0.0 } else { before / (1.0 - lost) };
        assert!((after - renormalised).abs() < 1e-12);
    }
    fits(&mut shards, &masses, &after, rng);
}

/// Measured in strata the whole is an interval of length B, of which item i has the part from a to a + B·P(i). One point
/// falls into each stratum. So an item gets one for each stratum that lies within its part, and at most one more for
/// each of the two that it shares with neighbours:
///
/// ```text
/// ⌊a + B·P⌋ − ⌈a⌉ ≤ count ≤ ⌈a + B·P⌉ − ⌊a⌋,    therefore |count − B·P| < 2
/// ```
///
/// Not 1: an item of exactly one stratum's length that begins in the middle of one is drawn 0, 1 or 2 times.
fn stays_within_its_strata(shards: &mut [Shard], masses: &Masses, expected: &[f64], rng: &mut ChaCha8Rng) {
    let (count, batches) = (BATCH as f64, 400);
    let mut sums = vec![0u64; expected.len()];
    for _ in 0..batches {
        let mut counts = vec![0u64; expected.len()];
        for Drawn { shard, item, .. } in tables::draw(shards, masses, BATCH, true, rng) {
            counts[tables::index(shards, shard, item)] += 1;
        }
        let mut start = 0.0;
        for (got, p) in counts.iter().zip(expected) {
            // Ends are sums of rounded numbers: one that lies on the edge of a stratum may be on either side of it.
            let (end, edge) = (start + count * p, 1e-9);
            let least = (end - edge).floor() - (start + edge).ceil();
            let most = (end + edge).ceil() - (start - edge).floor();
            let got = *got as f64;
            assert!(least <= got && got <= most, "{got} of {start}..{end}");
            assert!((got - count * p).abs() < 2.0);
            start = end;
        }
        sums.iter_mut().zip(counts).for_each(|(sum, n)| *sum += n);
    }
    // Strata change no expected count. Two shared strata give a variance of at most 1/4 each; five standard errors.
    let tolerance = 5.0 * (0.5 / f64::from(batches)).sqrt();
    for (sum, p) in sums.iter().zip(expected) {
        let mean = *sum as f64 / f64::from(batches);
        assert!((mean - count * p).abs() < tolerance, "{mean} instead of {}", count * p);
    }
}

#[test]
fn with_strata_no_item_comes_much_more_or_less_often_than_it_should() {
    let rng = &mut rng(4);
    let mut shards = tables::shards(rng);
    let masses = tables::masses(&shards);
    let expected = tables::probabilities(&shards, &true_masses(&shards));
    // Some items are longer than a stratum, most are shorter.
    assert!(expected.iter().any(|p| p * BATCH as f64 > 3.0));
    stays_within_its_strata(&mut shards, &masses, &expected, rng);
}

#[test]
fn with_strata_and_old_masses_too() {
    let rng = &mut rng(5);
    let (mut shards, old) = changed(rng);
    let expected = tables::probabilities(&shards, &old);
    stays_within_its_strata(&mut shards, &Masses::new(old), &expected, rng);
}

/// At β_IS = 1 the weights turn any sampling into uniform sampling. With n draws, x some number of each item and μ its
/// plain mean over all N items, the mean of x/(N·P) is μ with a standard error of √(Σ P·(x/(N·P) − μ)² / n), and so, but
/// for a bias of order 1/n, is the mean weighted by (N·P)^−1 over the largest, with √(Σ P·((x − μ)/(N·P))² / n).
/// Tolerance: four standard errors, while the mean without weights must be twenty off.
#[test]
fn with_old_masses_weighted_means_are_still_uniform_means() {
    let rng = &mut rng(6);
    let (mut shards, old) = changed(rng);
    let expected = tables::probabilities(&shards, &old);
    let items = expected.len() as f64;
    // A number that goes with the priority, so that biased sampling shows.
    let numbers: Vec<f64> =
        shards.iter().flat_map(|shard| shard.priorities.clone()).map(|p| 1.0 + p).collect();
    let uniform = numbers.iter().sum::<f64>() / items;
    let masses = Masses::new(old);

    let batches = 400;
    let (mut plain, mut weighted, mut weights) = (0.0, 0.0, 0.0);
    for _ in 0..batches {
        for Drawn { shard, item, probability } in tables::draw(&mut shards, &masses, BATCH, false, rng) {
            let number = numbers[tables::index(&shards, shard, item)];
            let weight = 1.0 / (items * probability);
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
    assert!((weighted / draws - uniform).abs() < 4.0 * exact_error, "{} {uniform}", weighted / draws);
    assert!((weighted / weights - uniform).abs() < 4.0 * ratio_error, "{} {uniform}", weighted / weights);
    assert!((plain / draws - uniform).abs() > 20.0 * exact_error, "sampling is not biased enough to tell");
}

/// What the learner computes, (P/smallest P)^−β, is (N·P)^−β over the batch's largest, from P's that are the closed form.
#[test]
fn importance_weights_of_a_batch_are_the_closed_form() {
    let rng = &mut rng(7);
    let (mut shards, old) = changed(rng);
    let expected = tables::probabilities(&shards, &old);
    let (items, masses) = (expected.len() as f64, Masses::new(old));
    for exponent in [0.4, 0.6, 1.0] {
        let drawn = tables::draw(&mut shards, &masses, BATCH, true, rng);
        let closed: Vec<f64> = drawn
            .iter()
            .map(|draw| (items * expected[tables::index(&shards, draw.shard, draw.item)]).powf(-exponent))
            .collect();
        let largest = closed.iter().copied().fold(0.0, f64::max);
        let smallest = drawn.iter().map(|draw| draw.probability).fold(1.0, f64::min);
        for (draw, closed) in drawn.iter().zip(closed) {
            let weight = (draw.probability / smallest).powf(-exponent);
            assert!((weight - closed / largest).abs() < 1e-9, "{weight} {}", closed / largest);
            assert!(weight <= 1.0);
        }
    }
}
