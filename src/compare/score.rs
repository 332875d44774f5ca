//! What counts as the score of a run.

use std::fmt;
use std::str::FromStr;

use stats::curve;

/// How a run's evaluations become one number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ScoreKind {
    /// The last evaluation: of a finished run, the one after training.
    Final,
    /// The mean over training, weighted by frames: the area under the learning curve over its width.
    Auc,
    /// The mean of this many last evaluations.
    Last(usize),
}

impl ScoreKind {
    /// The score of a run with these evaluations; none without any.
    pub fn of(self, points: &[(f64, f64)]) -> Option<f64> {
        let mean =
            |points: &[(f64, f64)]| points.iter().map(|(_, score)| score).sum::<f64>() / points.len() as f64;
        match self {
            Self::Final => points.last().map(|(_, score)| *score),
            Self::Auc => curve::mean_over_training(points),
            Self::Last(count) => {
                let last = &points[points.len().saturating_sub(count)..];
                (!last.is_empty()).then(|| mean(last))
            }
        }
    }

    /// The score in words.
    pub fn about(self) -> String {
        match self {
            Self::Final => "the last evaluation of each run".to_owned(),
            Self::Auc => "the mean over each run's training (area under the curve)".to_owned(),
            Self::Last(count) => format!("the mean of the last {count} evaluations of each run"),
        }
    }
}

impl FromStr for ScoreKind {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let count = || text.strip_prefix("last-")?.parse().ok().filter(|count| *count > 0);
        match text {
            "final" => Ok(Self::Final),
            "auc" => Ok(Self::Auc),
            _ => count()
                .map(Self::Last)
                .ok_or_else(|| "expected final, auc or last-N, such as last-5".to_owned()),
        }
    }
}

impl fmt::Display for ScoreKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Final => f.write_str("final"),
            Self::Auc => f.write_str("auc"),
            Self::Last(count) => write!(f, "last-{count}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_kind_is_read_shown_and_computed() {
        let points = [(0.0, 0.0), (10.0, 4.0), (20.0, 6.0)];
        for (text, expected) in [("final", 6.0), ("auc", 3.5), ("last-2", 5.0), ("last-9", 10.0 / 3.0)] {
            let kind: ScoreKind = text.parse().unwrap();
            assert_eq!((kind.to_string().as_str(), kind.of(&points)), (text, Some(expected)));
            assert_eq!(kind.of(&[]), None);
        }
        for text in ["best", "last-0", "last-", "last-x", ""] {
            assert!(text.parse::<ScoreKind>().is_err(), "{text}");
        }
    }
}
