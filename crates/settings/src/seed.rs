//! Derives the seeds of a run's parts from the run's seed.

use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

/// The purpose of a generator; two purposes never share a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// Initial weights of the network.
    Weights = 1,
    /// Sampling batches.
    Sampling = 2,
    /// An environment and its sticky actions.
    Environment = 3,
    /// Choosing actions.
    Actions = 4,
    /// Environments of an evaluation.
    EvaluationEnvironment = 5,
    /// Choosing actions in an evaluation.
    EvaluationActions = 6,
}

/// A generator for one purpose; `path` identifies its owner (actor, incarnation, lane, episode, …).
///
/// The run's seed is the key of the cipher. Purpose and path are mixed in one after the other, so a difference in any part
/// gives another stream.
pub fn generator(seed: u64, purpose: Purpose, path: &[u64]) -> ChaCha8Rng {
    let mut state = seed;
    for part in [&[purpose as u64], path].concat() {
        let mut mixer = ChaCha8Rng::seed_from_u64(state);
        mixer.set_stream(part);
        state = mixer.next_u64();
    }
    ChaCha8Rng::seed_from_u64(state)
}

/// A seed as a number.
pub fn number(seed: u64, purpose: Purpose, path: &[u64]) -> u64 {
    generator(seed, purpose, path).next_u64()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_part_of_the_path_matters() {
        let all = [
            number(0, Purpose::Actions, &[0, 0]),
            number(1, Purpose::Actions, &[0, 0]),
            number(0, Purpose::Sampling, &[0, 0]),
            number(0, Purpose::Actions, &[1, 0]),
            number(0, Purpose::Actions, &[0, 1]),
            number(0, Purpose::Actions, &[0]),
        ];
        let distinct: std::collections::BTreeSet<_> = all.iter().collect();
        assert_eq!(distinct.len(), all.len());
        assert_eq!(all[0], number(0, Purpose::Actions, &[0, 0]));
    }
}
