//! Four shards with known priorities, and checks of what is drawn from them against the closed form of every item's
//! probability: P(i) = share of its shard · (p + constant)^α / Σ of its shard.
//!
//! Shards in this process and shards as processes are checked by the same arithmetic; each backend has its own loop that
//! draws. Items are numbered shard after shard.

mod chi_square;

use std::ops::Range;

use chi_square::{chi_square, chi_square_tail};

/// Draws of a batch.
pub const BATCH: usize = 256;
/// The tables' priority exponent, α.
pub const EXPONENT: f64 = 0.6;
/// The tables' priority constant.
pub const CONSTANT: f64 = 0.01;
/// Items and scale of priorities, by shard. Shards differ in size and in how large their priorities are.
pub const SIZES_AND_SCALES: [(usize, f64); 4] = [(40, 1.0), (150, 0.3), (7, 5.0), (90, 2.0)];

pub struct Drawn {
    pub item: usize,
    /// P(i) as the draw reports it: the known share of its shard times the exact probability inside.
    pub probability: f64,
}

/// The items of a shard.
pub fn items_of(shard: usize, priorities: &[Vec<f64>]) -> Range<usize> {
    let first = priorities[..shard].iter().map(Vec::len).sum();
    first..first + priorities[shard].len()
}

/// The mass of each shard, summed in another way than the tree does.
pub fn true_masses(priorities: &[Vec<f64>]) -> Vec<f64> {
    priorities.iter().map(|shard| shard.iter().map(weight).sum()).collect()
}

/// The probability of every item: masses by shard as known, weights as they are.
pub fn probabilities(priorities: &[Vec<f64>], known: &[f64]) -> Vec<f64> {
    let total: f64 = known.iter().sum();
    let shards = priorities.iter().zip(known).zip(true_masses(priorities));
    let of_shard = |((shard, known), mass): ((&Vec<f64>, &f64), f64)| {
        let share = known / total;
        shard.iter().map(move |priority| share * weight(priority) / mass).collect::<Vec<_>>()
    };
    shards.flat_map(of_shard).collect()
}

fn weight(priority: &f64) -> f64 {
    (priority + CONSTANT).powf(EXPONENT)
}

/// Batches in which the rarest item that can be drawn at all is expected 20 times.
pub fn batches_for(probabilities: &[f64]) -> usize {
    assert!((probabilities.iter().sum::<f64>() - 1.0).abs() < 1e-9);
    let rarest = probabilities.iter().copied().filter(|p| *p > 0.0).fold(1.0, f64::min);
    (20.0 / rarest / BATCH as f64).ceil() as usize
}

/// Draws without strata report their items' probabilities, and their frequencies fit: 0.001 < p < 0.999, neither too far
/// off nor too good to be true. Items of probability 0 must never come.
#[track_caller]
pub fn assert_fit(drawn: &[Drawn], probabilities: &[f64]) {
    for Drawn { item, probability } in drawn {
        assert!((probability / probabilities[*item] - 1.0).abs() < 1e-9, "P of item {item}");
    }
    let (draws, counts) = (drawn.len() as f64, counts(drawn, probabilities));
    let possible = || probabilities.iter().zip(&counts).filter(|(p, _)| **p > 0.0);
    let observed: Vec<u64> = possible().map(|(_, n)| *n).collect();
    let expected: Vec<f64> = possible().map(|(p, _)| p * draws).collect();
    assert!(expected.iter().all(|e| *e >= 20.0));
    assert_eq!(observed.iter().sum::<u64>(), draws as u64, "something impossible was drawn");
    let tail = chi_square_tail(chi_square(&observed, &expected), observed.len() - 1);
    println!("{} items, {draws} draws, p = {tail}", observed.len());
    assert!(0.001 < tail && tail < 0.999, "p = {tail}");
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
#[track_caller]
pub fn assert_within_strata(drawn: &[Drawn], probabilities: &[f64]) {
    let count = BATCH as f64;
    for batch in drawn.chunks(BATCH) {
        let mut start = 0.0;
        for (got, p) in counts(batch, probabilities).into_iter().zip(probabilities) {
            // Ends are sums of rounded numbers: one that lies on the edge of a stratum may be on either side of it.
            let (end, edge) = (start + count * p, 1e-9);
            let least = (end - edge).floor() - (start + edge).ceil();
            let most = (end + edge).ceil() - (start - edge).floor();
            let got = got as f64;
            assert!(least <= got && got <= most, "{got} of {start}..{end}");
            assert!((got - count * p).abs() < 2.0, "{got} instead of {}", count * p);
            start = end;
        }
    }
    // Strata change no expected count. Two shared strata give a variance of at most 1/4 each; five standard errors.
    let batches = drawn.len() as f64 / count;
    let tolerance = 5.0 * (0.5 / batches).sqrt();
    for (sum, p) in counts(drawn, probabilities).into_iter().zip(probabilities) {
        let mean = sum as f64 / batches;
        assert!((mean - count * p).abs() < tolerance, "{mean} instead of {}", count * p);
    }
}

/// At β_IS = 1 the weights turn any sampling into uniform sampling. With n draws, x some number of each item and μ its
/// plain mean over all N items, the mean of x/(N·P) is μ with a standard error of √(Σ P·(x/(N·P) − μ)² / n), and so, but
/// for a bias of order 1/n, is the mean weighted by (N·P)^−1 over the largest, with √(Σ P·((x − μ)/(N·P))² / n).
/// Tolerance: four standard errors, while the mean without weights must be twenty off.
#[track_caller]
pub fn assert_uniform_means(drawn: &[Drawn], probabilities: &[f64], priorities: &[Vec<f64>]) {
    let (items, draws) = (probabilities.len() as f64, drawn.len() as f64);
    // A number that goes with the priority, so that biased sampling shows.
    let numbers: Vec<f64> = priorities.iter().flatten().map(|p| 1.0 + p).collect();
    let uniform = numbers.iter().sum::<f64>() / items;
    let (mut plain, mut weighted, mut weights) = (0.0, 0.0, 0.0);
    for Drawn { item, probability } in drawn {
        let (number, weight) = (numbers[*item], 1.0 / (items * probability));
        plain += number;
        weighted += weight * number;
        weights += weight;
    }
    let error = |spread: &dyn Fn(f64, f64) -> f64| {
        let variance: f64 = numbers.iter().zip(probabilities).map(|(x, p)| p * spread(*x, *p).powi(2)).sum();
        (variance / draws).sqrt()
    };
    let exact_error = error(&|x, p| x / (items * p) - uniform);
    let ratio_error = error(&|x, p| (x - uniform) / (items * p));
    let (exact, ratio) = (weighted / draws, weighted / weights);
    println!("{exact} ± {exact_error}, {ratio} ± {ratio_error}, {} without weights", plain / draws);
    assert!((exact - uniform).abs() < 4.0 * exact_error, "{exact} instead of {uniform}");
    assert!((ratio - uniform).abs() < 4.0 * ratio_error, "{ratio} instead of {uniform}");
    assert!((plain / draws - uniform).abs() > 20.0 * exact_error, "sampling is not biased enough to tell");
}

/// How often each item was drawn.
fn counts(drawn: &[Drawn], probabilities: &[f64]) -> Vec<u64> {
    let mut counts = vec![0; probabilities.len()];
    drawn.iter().for_each(|drawn| counts[drawn.item] += 1);
    counts
}
