//! Plain Q-learning: the value of a state is its best action's value, the policy is greedy.

pub use crate::target::td_error;

/// V(s) = max_a Q(s,a). NaN if any value is NaN, so that a diverged network does not hide.
pub fn value(q: &[f64]) -> f64 {
    debug_assert!(!q.is_empty(), "a state has at least one action");
    q.iter().copied().fold(
        f64::NEG_INFINITY,
        |best, value| {
            if value > best || value.is_nan() { value } else { best }
        },
    )
}

/// The action of largest value; among equals the lowest index, so that runs repeat.
pub fn greedy(q: &[f64]) -> usize {
    debug_assert!(!q.is_empty(), "a state has at least one action");
    let mut best = 0;
    for action in 1..q.len() {
        if q[action] > q[best] {
            best = action;
        }
    }
    best
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lowest_index_wins_ties() {
        assert_eq!(greedy(&[1.0, 3.0, 3.0]), 1);
        assert_eq!(greedy(&[0.0, -0.0]), 0);
        assert_eq!(greedy(&[-7.0]), 0);
    }

    #[test]
    fn value_is_the_greedy_actions_value() {
        let q = [-2.0, -1.0, -3.0];
        assert_eq!(value(&q), q[greedy(&q)]);
    }

    #[test]
    fn nan_is_not_swallowed_by_the_maximum() {
        assert!(value(&[1.0, f64::NAN, 2.0]).is_nan());
        assert!(value(&[f64::NAN, 1.0]).is_nan());
    }
}
