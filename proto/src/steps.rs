//! Converts steps between the columns of a message and [`Taken`].

use replay::{Taken, WeightsVersion};

use crate::convert::{Invalid, finite, same};
use crate::v1;

const TERMINATED: u8 = 1;
const TRUNCATED: u8 = 2;
const LIFE_LOST: u8 = 4;
const FINAL: u8 = 8;
pub(crate) const STARTS_EPISODE: u8 = 16;
pub(crate) const KEY_FRAME: u8 = 32;

pub(crate) fn flag(set: bool, flag: u8) -> u8 {
    if set { flag } else { 0 }
}

/// Checks that all columns have `count` entries.
pub(crate) fn check(steps: &v1::Steps, count: usize) -> Result<(), Invalid> {
    same("actions", steps.actions.len(), count)?;
    same("rewards", steps.rewards.len(), count)?;
    same("log_probabilities", steps.log_probabilities.len(), count)?;
    same("flags", steps.flags.len(), count)?;
    same("weights_incarnations", steps.weights_incarnations.len(), count)?;
    same("weights_numbers", steps.weights_numbers.len(), count)
}

/// Steps of a chunk that have an action: all but final observations.
pub fn agent_steps(chunk: &v1::Chunk) -> u64 {
    let is_taken = |&&flags: &&u8| flags & FINAL == 0;
    chunk.steps.as_ref().map_or(0, |steps| steps.flags.iter().filter(is_taken).count() as u64)
}

/// One step of checked columns, `None` for a final observation. Actions must be below `actions`.
pub(crate) fn taken(steps: &v1::Steps, index: usize, actions: u16) -> Result<Option<Taken>, Invalid> {
    let flags = steps.flags[index];
    if flags >= 2 * KEY_FRAME {
        return Err(Invalid::range("flags", flags, "below 64"));
    }
    if flags & FINAL != 0 {
        return Ok(None);
    }
    let number = steps.actions[index];
    let action = u16::try_from(number).ok().filter(|&action| action < actions);
    Ok(Some(Taken {
        action: action.ok_or_else(|| Invalid::range("action", number, format!("below {actions}")))?,
        reward: finite("reward", steps.rewards[index])?,
        terminated: flags & TERMINATED != 0,
        truncated: flags & TRUNCATED != 0,
        life_lost: flags & LIFE_LOST != 0,
        log_probability: finite("log_probability", steps.log_probabilities[index])?,
        weights: WeightsVersion {
            incarnation: steps.weights_incarnations[index],
            number: steps.weights_numbers[index],
        },
    }))
}

/// Appends one step to all columns except the flags, and returns its flags.
pub(crate) fn push(steps: &mut v1::Steps, taken: Option<Taken>) -> u8 {
    let weights = taken.map_or_else(WeightsVersion::default, |taken| taken.weights);
    steps.actions.push(taken.map_or(0, |taken| taken.action.into()));
    steps.rewards.push(taken.map_or(0.0, |taken| taken.reward));
    steps.log_probabilities.push(taken.map_or(0.0, |taken| taken.log_probability));
    steps.weights_incarnations.push(weights.incarnation);
    steps.weights_numbers.push(weights.number);
    taken.map_or(FINAL, |taken| {
        flag(taken.terminated, TERMINATED)
            | flag(taken.truncated, TRUNCATED)
            | flag(taken.life_lost, LIFE_LOST)
    })
}
