//! Figure 1: how many replays it takes until a linear grid-world is solved, by what is replayed first.
//!
//! There is one buffer with all 4N experiences of a line of N cells; an oracle picks one after the other: any
//! (`random`), one with the largest |TD| (`td`), or one with the largest EVB (`evb`), ties broken at random. Each replay is a whole
//! backup (α = 1, γ = 0.99, Q = 0 at first). It is solved when east is the only best action in every cell.
//!
//! # What to expect, exactly
//!
//! Number the cells 1 … N, the goal behind cell N. A cell gets a value only by its experience *east*, and only once the
//! cell to its east has one: all other actions lead to cells that are worth nothing yet, or less than where one is. The
//! value that it gets is the final one, γ^(N−s) for cell s. So cells are valued in the order N, N−1, …, 1, and with the
//! last of them it is solved: staying is worth γ·V(s) and going west γ²·V(s), both below V(s).
//!
//! - **random**: at each time one experience of 4N is the next useful one, so each of the N steps takes 4N replays on
//!   average: **4N²**.
//! - **evb**: only that one experience changes any value, all others have EVB 0: **N**, always.
//! - **td**: let level k be the experiences whose target is γ^k. Level 0 is east of cell N. Level k has east of cell N−k,
//!   staying by north or by south in cell N−k+1 and, for k ≥ 2, west of cell N−k+2 (west of cell N−k+2 leads to N−k+1):
//!   3 experiences for k = 1 and 4 beyond. All of a level have |TD| = γ^k while their Q is 0, exactly and to the last bit, since each is
//!   γ times the same number. So levels are replayed one after the other, whole, up to level N−1. There the replays end
//!   with east of cell 1, which is equally likely to be at any place of the level. That makes
//!   1 + 3 + 4·(N−3) + 5/2 = **4N − 5.5** for N ≥ 3; 1 for N = 1, and 1 + 2 = 3 for N = 2.
#![allow(clippy::disallowed_methods, reason = "the report states how long the figure took")]

mod oracle;
mod picture;

use std::time::Instant;

use anyhow::Result;
use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;

use crate::figure::{Figure, Verdict};
use crate::options::Options;
use crate::statistics::mean_and_error;
pub use oracle::{Oracle, World};

/// Lines of 2 to this many cells.
const CELLS_MAX: usize = 50;
/// Lines are solved this often.
const SEEDS: (u64, u64) = (100, 400);

/// How far a mean may be from its expectation, in standard errors. With 147 means, one beyond 4.5 is a chance in a thousand.
const ERRORS_MAX: f64 = 4.5;

/// One line of `fig1.csv`.
#[derive(Clone, Debug, PartialEq)]
pub struct ReplayCount {
    /// Cells.
    pub n: usize,
    /// Who picks.
    pub oracle: Oracle,
    /// How often it was tried.
    pub seeds: u64,
    /// Replays until solved.
    pub mean: f64,
    /// Its standard error.
    pub stderr: f64,
}

impl ReplayCount {
    /// How many replays are expected, see the module's documentation.
    pub fn expected(&self) -> f64 {
        let n = self.n as f64;
        match (self.oracle, self.n) {
            (Oracle::Random, _) => 4.0 * n * n,
            (Oracle::Evb, _) => n,
            (Oracle::Td, 1) => 1.0,
            (Oracle::Td, 2) => 3.0,
            (Oracle::Td, _) => 4.0 * n - 5.5,
        }
    }

    /// How far the mean is from that, in standard errors; rounding aside, 0 where nothing is left to chance.
    pub fn errors_off(&self) -> f64 {
        let off = (self.mean - self.expected()).abs();
        if off == 0.0 { 0.0 } else { off / self.stderr }
    }
}

/// Runs the experiment, draws it and writes `fig1.csv`.
pub fn run(options: &Options, say: &dyn Fn(&str)) -> Result<Figure> {
    let started = Instant::now();
    let rows = measure(CELLS_MAX, options.effort.pick(SEEDS.0, SEEDS.1), options.seed, say);
    let header = ["n", "oracle", "seeds", "mean", "stderr", "expected"];
    options.csv(
        "fig1.csv",
        &header,
        rows.iter()
            .map(|row| cells![row.n, row.oracle.name(), row.seeds, row.mean, row.stderr, row.expected()]),
    )?;

    let mut figure = Figure::new("fig1", "Linear grid-world: replays until the policy is optimal", options);
    figure.about = format!(
        "One buffer of all 4N experiences of a line of N cells; an oracle picks which to replay. {} seeds for each N from \
         2 to {}. Optimal means that east is the only best action everywhere.",
        rows[0].seeds,
        rows[rows.len() - 1].n
    );
    for oracle in Oracle::ALL {
        let of_oracle = || rows.iter().filter(|row| row.oracle == oracle);
        let worst = of_oracle().map(ReplayCount::errors_off).fold(0.0, f64::max);
        let largest = of_oracle().next_back().expect("there are lines");
        let measured = format!(
            "N = {}: {:.1} ± {:.1}, expected {}; over all N at most {worst:.1} standard errors from the exact expectation",
            largest.n,
            largest.mean,
            largest.stderr,
            largest.expected()
        );
        figure.claim(oracle.claim(), measured, Verdict::of(worst <= ERRORS_MAX));
    }
    let shown = |row: &&ReplayCount| [2, 5, 10, 20, 50].contains(&row.n);
    let cells = |row: &ReplayCount| {
        let [mean, stderr, expected] =
            [row.mean, row.stderr, row.expected()].map(|number| format!("{number:.2}"));
        cells![row.n, row.oracle.name(), mean, stderr, expected]
    };
    figure.table(
        "Replays until optimal",
        &["N", "oracle", "mean", "standard error", "expected"],
        rows.iter().filter(shown).map(cells).collect(),
    );
    figure.picture(
        options,
        "fig1",
        "Mean replays until optimal, with the orders 4N², 4N and N (dashed).",
        &picture::growth(&rows),
    )?;
    let caption = "Which experiences an oracle would replay now (strong) and which are worth less to it (faint), by |TD| above and \
                   by EVB below, when the two cells next to the goal have a value.";
    figure.picture(options, "fig1_experiences", caption, &picture::experiences()?)?;
    figure.setting("cells", format!("2 to {}", rows[rows.len() - 1].n));
    figure.setting("seeds", rows[0].seeds);
    figure.setting("alpha, gamma", "1, 0.99");
    figure.finish(options, started)
}

/// Solves every line as often as there are seeds with each oracle.
pub fn measure(cells_max: usize, seeds: u64, seed: u64, say: &dyn Fn(&str)) -> Vec<ReplayCount> {
    let mut rows = Vec::new();
    for n in 2..=cells_max {
        for oracle in Oracle::ALL {
            let replays: Vec<f64> = (0..seeds)
                .map(|number| {
                    let mut rng = ChaCha8Rng::seed_from_u64(seed);
                    rng.set_stream(((n as u64) << 32 | number) * 3 + oracle as u64);
                    World::new(n).replays_until_optimal(oracle, &mut rng) as f64
                })
                .collect();
            let (mean, stderr) = mean_and_error(&replays);
            rows.push(ReplayCount { n, oracle, seeds, mean, stderr });
        }
        if n % 10 == 0 {
            say(&format!("fig1: lines of up to {n} of {cells_max} cells"));
        }
    }
    rows
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn means_are_what_the_derivation_says() {
        let rows = measure(8, 300, 0, &|_| {});
        assert_eq!(rows.len(), 7 * 3);
        for row in &rows {
            assert!(row.errors_off() <= ERRORS_MAX, "{row:?}, expected {}", row.expected());
            if row.oracle == Oracle::Evb {
                assert_eq!((row.mean, row.stderr), (row.n as f64, 0.0));
            }
        }
    }

    #[test]
    fn the_shortest_lines_are_as_derived_too() {
        let mut rng = ChaCha8Rng::seed_from_u64(0);
        for oracle in [Oracle::Td, Oracle::Evb] {
            assert_eq!(World::new(1).replays_until_optimal(oracle, &mut rng), 1);
        }
    }
}
