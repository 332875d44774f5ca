//! The rate limiter: couples acting and learning by samples per insert.
//!
//! Only arithmetic over two monotone counters. The owner of the counters does the waiting. Only inserts after the first
//! `min_size` count, otherwise filling the replay would owe a burst of updates:
//!
//! ```text
//! | samples − samples_per_insert · (inserts − min_size) | ≤ slack      once inserts ≥ min_size
//! ```
//!
//! If `slack` is at least half of (one insert's worth of samples plus one batch), at least one of the two sides may
//! always continue. [`RateLimiter::new`] rejects less.

/// Decides which side may continue. The module documentation has the rule.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RateLimiter {
    samples_per_insert: Option<f64>,
    min_size: u64,
    batch: u64,
    slack: f64,
}

impl RateLimiter {
    /// A limiter for a learner that draws `batch` items at a time.
    ///
    /// With a `samples_per_insert` of `None`, both sides run unlimited once `min_size` items are inserted. `slack`, in
    /// samples, is how far the two may drift apart; `None` is the least that cannot stall.
    pub fn new(
        samples_per_insert: Option<f64>,
        min_size: u64,
        batch: u64,
        slack: Option<f64>,
    ) -> Result<Self, RateError> {
        if batch == 0 || batch > min_size {
            return Err(RateError::Batch { batch, min_size });
        }
        let ratio = samples_per_insert.unwrap_or(1.0);
        if !(ratio.is_finite() && ratio > 0.0) {
            return Err(RateError::Ratio(ratio));
        }
        let least = (ratio + batch as f64) / 2.0;
        let slack = slack.unwrap_or(least);
        if !slack.is_finite() || slack < least {
            return Err(RateError::Slack { slack, least });
        }
        Ok(Self { samples_per_insert, min_size, batch, slack })
    }

    /// The total number of inserts allowed after `samples` samples. Never decreases as `samples` grows, so it can be
    /// granted as an absolute allowance.
    pub fn inserts_allowed(&self, samples: u64) -> u64 {
        let Some(ratio) = self.samples_per_insert else { return u64::MAX };
        let beyond = ((samples as f64 + self.slack) / ratio).floor() as u64;
        self.min_size.saturating_add(beyond)
    }

    /// The total number of samples allowed after `inserts` inserts.
    pub fn samples_allowed(&self, inserts: u64) -> u64 {
        let Some(beyond) = inserts.checked_sub(self.min_size) else { return 0 };
        match self.samples_per_insert {
            Some(ratio) => (beyond as f64 * ratio + self.slack).floor() as u64,
            None => u64::MAX,
        }
    }

    /// Whether one more item may be inserted. A writer that then inserts a whole chunk may overdraw by the rest of the
    /// chunk, once.
    pub fn can_insert(&self, inserts: u64, samples: u64) -> bool {
        inserts < self.inserts_allowed(samples)
    }

    /// Whether one more batch may be drawn.
    pub fn can_sample(&self, inserts: u64, samples: u64) -> bool {
        samples.saturating_add(self.batch) <= self.samples_allowed(inserts)
    }

    /// Inserts needed before one more batch may be drawn; 0 if it may be drawn now.
    pub fn inserts_wanted(&self, inserts: u64, samples: u64) -> u64 {
        if self.can_sample(inserts, samples) {
            return 0;
        }
        let ratio = self.samples_per_insert.unwrap_or(1.0);
        let owed = samples.saturating_add(self.batch) as f64 - self.slack;
        let beyond = (owed.max(0.0) / ratio).ceil() as u64;
        self.min_size.saturating_add(beyond).saturating_sub(inserts).max(1)
    }

    /// Items that must be inserted before the first sample.
    pub fn min_size(&self) -> u64 {
        self.min_size
    }

    /// Samples per insert, or `None` if both sides run unlimited.
    pub fn samples_per_insert(&self) -> Option<f64> {
        self.samples_per_insert
    }

    /// How far the two sides may drift apart, in samples.
    pub fn slack(&self) -> f64 {
        self.slack
    }
}

/// Why a limiter is invalid.
#[derive(Clone, Copy, Debug, PartialEq, thiserror::Error)]
pub enum RateError {
    /// The batch is empty, or larger than the replay at the first sample.
    #[error("batch must be from 1 to min_size ({min_size}), got {batch}")]
    Batch {
        /// Items in a batch.
        batch: u64,
        /// Items before the first sample.
        min_size: u64,
    },
    /// The ratio is not a positive finite number.
    #[error("samples_per_insert must be finite and above 0, got {0}; use none to run without a limit")]
    Ratio(f64),
    /// Both sides could block on each other.
    #[error("internal error: rate limiter slack {slack} is below the minimum {least}; please report it")]
    Slack {
        slack: f64,
        /// The least that cannot stall.
        least: f64,
    },
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn blocks_samples_until_min_size_is_reached() {
        let limiter = RateLimiter::new(Some(8.0), 100, 32, None).unwrap();
        assert!(!limiter.can_sample(99, 0));
        assert!((0..100).all(|inserts| limiter.can_insert(inserts, 0)));
    }

    #[test]
    fn filling_the_replay_owes_no_burst_of_updates() {
        let limiter = RateLimiter::new(Some(8.0), 50_000, 32, None).unwrap();
        assert_eq!(limiter.samples_allowed(50_000), 20);
    }

    #[test]
    fn the_papers_ratio_alternates_four_inserts_and_one_batch() {
        let limiter = RateLimiter::new(Some(8.0), 64, 32, None).unwrap();
        let (mut inserts, mut samples, mut inserts_before) = (64, 0, Vec::new());
        let mut since = 0;
        while inserts_before.len() < 100 {
            if limiter.can_sample(inserts, samples) {
                samples += 32;
                inserts_before.push(since);
                since = 0;
            } else {
                assert!(limiter.can_insert(inserts, samples));
                inserts += 1;
                since += 1;
            }
        }
        assert!(inserts_before[1..].iter().all(|&n| n == 4), "{inserts_before:?}");
    }

    #[test]
    fn without_a_ratio_only_min_size_blocks() {
        let limiter = RateLimiter::new(None, 10, 10, None).unwrap();
        assert!(limiter.can_insert(u64::MAX - 1, 0));
        assert!(!limiter.can_sample(9, 0));
        assert!(limiter.can_sample(10, 1 << 40));
    }

    #[test]
    fn settings_that_could_stall_are_refused() {
        let new = RateLimiter::new;
        assert_eq!(new(Some(8.0), 4, 32, None), Err(RateError::Batch { batch: 32, min_size: 4 }));
        assert_eq!(new(Some(0.0), 64, 32, None), Err(RateError::Ratio(0.0)));
        assert!(matches!(new(Some(f64::NAN), 64, 32, None), Err(RateError::Ratio(_))));
        let slack = RateError::Slack { slack: 19.0, least: 20.0 };
        assert_eq!(new(Some(8.0), 64, 32, Some(19.0)), Err(slack));
        assert!(matches!(new(Some(8.0), 64, 32, Some(f64::NAN)), Err(RateError::Slack { .. })));
    }

    proptest! {
        /// The side that is picked continues if it may. If it may not, the other side must be allowed to, and the drift
        /// must stay within the slack.
        #[test]
        fn over_any_schedule_the_ratio_holds_and_one_side_can_continue(
            ratio in 0.01f64..100.0,
            batch in 1u64..600,
            extra_min in 0u64..1000,
            extra_slack in 0.0f64..1000.0,
            picks in prop::collection::vec(any::<bool>(), 1..2000),
        ) {
            let min_size = batch + extra_min;
            let slack = (ratio + batch as f64) / 2.0 + extra_slack;
            let limiter = RateLimiter::new(Some(ratio), min_size, batch, Some(slack)).unwrap();
            let (mut inserts, mut samples) = (min_size.saturating_sub(100), 0u64);
            for pick_insert in picks {
                let (insert, sample) =
                    (limiter.can_insert(inserts, samples), limiter.can_sample(inserts, samples));
                prop_assert!(insert || sample, "both blocked at {inserts}, {samples}");
                if insert && (pick_insert || !sample) {
                    inserts += 1;
                } else {
                    samples += batch;
                }
                if inserts >= min_size {
                    let drift = samples as f64 - ratio * (inserts - min_size) as f64;
                    prop_assert!(drift.abs() <= slack * (1.0 + 1e-9), "drift {drift}");
                } else {
                    prop_assert_eq!(samples, 0);
                }
            }
        }
    }
}
