//! Rates per second of wall time of sides that take turns, some of them in other processes.
//!
//! [`crate::measure`] counts CPU time of this process only. Here each side measures itself, wall time and CPU time of
//! all its threads, so that a side may use two cores or be a process of its own. Within a round the sides take turns in
//! slices (A B A B …), and one waits while another works.
#![allow(clippy::disallowed_methods, reason = "a benchmark measures time")]

use std::time::Instant;

use anyhow::Result;

use crate::measure::{ROUNDS, Rates, cpu_seconds};

/// Slices of a side in a round, if no call takes longer than one.
const SLICES: f64 = 4.0;

/// What a side has done.
#[derive(Clone, Copy, Debug, Default)]
pub struct Spent {
    pub calls: u64,
    /// Seconds of wall time.
    pub wall: f64,
    /// Seconds of CPU time of all threads.
    pub cpu: f64,
}

impl Spent {
    fn add(&mut self, other: Spent) {
        self.calls += other.calls;
        self.wall += other.wall;
        self.cpu += other.cpu;
    }
}

/// A side's rates, per second of wall time and of CPU time.
#[derive(Clone, Copy, Debug, Default)]
pub struct Timed {
    pub wall: Rates,
    pub cpu: Rates,
}

impl Timed {
    /// Sets a round's rates.
    pub fn set(&mut self, round: usize, spent: Spent) {
        self.wall.0[round] = spent.calls as f64 / spent.wall;
        self.cpu.0[round] = spent.calls as f64 / spent.cpu;
    }

    /// Cores in use: 1 for one that is always busy. Of the round in the middle.
    pub fn cores(&self) -> f64 {
        self.wall.ratio(&self.cpu)
    }
}

/// One side: works for so many seconds of wall time, and at least one call.
pub type Side<'a> = Box<dyn FnMut(f64) -> Result<Spent> + 'a>;

/// Measures each side for so many seconds of wall time per round.
pub fn take_turns(seconds: f64, sides: &mut [Side<'_>]) -> Result<Vec<Timed>> {
    let slice = seconds / SLICES;
    // The first calls allocate and fill caches.
    for side in &mut *sides {
        side(slice)?;
    }
    let mut timed = vec![Timed::default(); sides.len()];
    for round in 0..ROUNDS {
        let mut spent = vec![Spent::default(); sides.len()];
        while spent.iter().any(|spent| spent.wall < seconds) {
            for (side, spent) in sides.iter_mut().zip(&mut spent) {
                if spent.wall < seconds {
                    spent.add(side(slice)?);
                }
            }
        }
        for (timed, spent) in timed.iter_mut().zip(spent) {
            timed.set(round, spent);
        }
    }
    Ok(timed)
}

/// Repeats a call for so many seconds of wall time.
pub fn repeat(seconds: f64, mut call: impl FnMut() -> Result<()>) -> Result<Spent> {
    let (start, cpu, mut calls) = (Instant::now(), cpu_seconds(), 0);
    while calls == 0 || start.elapsed().as_secs_f64() < seconds {
        call()?;
        calls += 1;
    }
    Ok(Spent { calls, wall: start.elapsed().as_secs_f64(), cpu: cpu_seconds() - cpu })
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use super::*;

    #[test]
    fn sides_take_turns_and_get_the_same_time() {
        let order = RefCell::new(String::new());
        let side = |name, calls| -> Side<'_> {
            let order = &order;
            Box::new(move |seconds| {
                order.borrow_mut().push(name);
                Ok(Spent { calls, wall: seconds, cpu: 2.0 * seconds })
            })
        };
        let timed = take_turns(1.0, &mut [side('a', 1), side('b', 5)]).unwrap();
        assert_eq!(order.into_inner(), "ab".repeat(1 + ROUNDS * SLICES as usize));
        assert_eq!((timed[0].wall.0, timed[1].cpu.0), ([4.0; ROUNDS], [10.0; ROUNDS]));
        assert_eq!((timed[1].wall.ratio(&timed[0].wall), timed[0].cores()), (5.0, 2.0));
    }

    #[test]
    fn a_call_longer_than_its_slice_is_made_once() {
        assert_eq!(repeat(0.0, || Ok(())).unwrap().calls, 1);
    }
}
