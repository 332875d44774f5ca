//! Priorities: the numbers that the sum tree stores.

use serde::{Deserialize, Serialize};

/// A priority that the sum tree can trust: finite and not negative.
#[derive(Clone, Copy, Debug, PartialEq, PartialOrd, Serialize, Deserialize)]
#[serde(try_from = "f64", into = "f64")]
pub struct Priority(f64);

/// The number is not a valid priority.
#[derive(Clone, Copy, Debug, PartialEq, thiserror::Error)]
#[error("priority must be finite and at least 0, got {0}")]
pub struct InvalidPriority(pub f64);

impl Priority {
    /// The priority, unless it is NaN, infinite or negative.
    pub fn try_new(value: f64) -> Result<Self, InvalidPriority> {
        if value.is_finite() && value >= 0.0 { Ok(Self(value)) } else { Err(InvalidPriority(value)) }
    }

    pub fn get(self) -> f64 {
        self.0
    }
}

impl TryFrom<f64> for Priority {
    type Error = InvalidPriority;
    fn try_from(value: f64) -> Result<Self, InvalidPriority> {
        Self::try_new(value)
    }
}

impl From<Priority> for f64 {
    fn from(priority: Priority) -> f64 {
        priority.0
    }
}

#[cfg(test)]
mod tests {
    use super::Priority;

    #[test]
    fn refuses_what_a_sum_tree_could_not_hold() {
        for bad in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY, -1e-300] {
            assert!(Priority::try_new(bad).is_err(), "{bad}");
        }
        assert_eq!(Priority::try_new(0.25).map(Priority::get), Ok(0.25));
        assert_eq!(serde_json::to_string(&Priority(0.25)).unwrap(), "0.25");
        assert!(serde_json::from_str::<Priority>("-1.0").is_err());
    }
}
