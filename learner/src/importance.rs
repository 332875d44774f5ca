//! Importance weights, which correct for non-uniform sampling.

use settings::Settings;

/// The importance exponent β_IS as a function of the number of updates.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Importance {
    exponent: Option<(f64, f64)>,
    anneal_updates: u64,
}

impl Importance {
    /// The schedule of these settings. Uniform replay needs no correction.
    pub fn new(settings: &Settings) -> Self {
        let last = match settings.importance_anneal_updates.0 {
            0 => settings.importance_exponent,
            _ => settings.importance_exponent_final,
        };
        let exponents = (settings.importance_exponent, last);
        let exponent = settings.strategy.uses_priorities.then_some(exponents);
        Self { exponent, anneal_updates: settings.importance_anneal_updates.0 }
    }

    /// β_IS after `updates` updates; `None` without correction.
    pub fn exponent(&self, updates: u64) -> Option<f64> {
        let (first, last) = self.exponent?;
        let share = (updates as f64 / self.anneal_updates.max(1) as f64).min(1.0);
        Some(first + (last - first) * share)
    }
}

/// (N·P(i))^−β, divided by the batch's largest. The smallest probability has the largest weight, so N cancels.
pub fn weights(probabilities: &[f64], exponent: f64) -> Vec<f64> {
    let smallest = probabilities.iter().copied().fold(f64::INFINITY, f64::min);
    assert!(smallest > 0.0, "a sampled item has probability 0");
    probabilities.iter().map(|probability| (probability / smallest).powf(-exponent)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn weights_match_the_closed_form() {
        let (probabilities, items, exponent) = ([0.1, 0.02, 0.4], 7.0f64, 0.6);
        let raw: Vec<f64> = probabilities.iter().map(|p| (items * p).powf(-exponent)).collect();
        let largest = raw.iter().copied().fold(0.0, f64::max);
        for (weight, raw) in weights(&probabilities, exponent).iter().zip(raw) {
            assert!((weight - raw / largest).abs() < 1e-12);
        }
    }

    #[test]
    fn the_exponent_is_annealed_or_constant_or_absent() {
        let mut settings = Settings::paper();
        let annealed = Importance::new(&settings);
        let halfway_and_at_the_end = [1_250_000, 2_500_000].map(|n| annealed.exponent(n).unwrap());
        assert_eq!(halfway_and_at_the_end, [0.8, 1.0], "over the 40M frames of paper-atari");
        settings.importance_anneal_updates.0 = 0;
        assert_eq!(Importance::new(&settings).exponent(1_000_000), Some(0.6));
        settings.importance_exponent = 0.4;
        settings.importance_anneal_updates.0 = 100;
        let annealed = Importance::new(&settings);
        assert_eq!([0, 50, 100, 900].map(|n| annealed.exponent(n).unwrap()), [0.4, 0.7, 1.0, 1.0]);
        settings.strategy = value::Strategy::UNIFORM;
        assert_eq!(Importance::new(&settings).exponent(5), None);
    }
}
