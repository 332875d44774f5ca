//! How an environment is played. There are no defaults here: an experiment chooses. An entry declares what it ignores
//! ([`EnvEntry::fixed_settings`](crate::EnvEntry::fixed_settings)).

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::EnvError;

/// Which actions an agent may choose from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ActionSet {
    /// Those that make a difference in the game.
    Minimal,
    /// All 18.
    Full,
}

impl fmt::Display for ActionSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            ActionSet::Minimal => "minimal",
            ActionSet::Full => "full",
        })
    }
}

impl FromStr for ActionSet {
    type Err = EnvError;

    fn from_str(name: &str) -> Result<Self, EnvError> {
        match name {
            "minimal" => Ok(ActionSet::Minimal),
            "full" => Ok(ActionSet::Full),
            _ => Err(EnvError::UnknownActionSet(name.to_owned())),
        }
    }
}

/// Which maximum of the last two frames of a step an agent sees.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum FrameMaximum {
    /// Of red, green and blue each, then in gray: Mnih et al. (2015).
    Rgb,
    /// Of the two frames in gray: Gymnasium's `AtariPreprocessing`.
    Gray,
}

impl fmt::Display for FrameMaximum {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            FrameMaximum::Rgb => "rgb",
            FrameMaximum::Gray => "gray",
        })
    }
}

impl FromStr for FrameMaximum {
    type Err = EnvError;

    fn from_str(name: &str) -> Result<Self, EnvError> {
        match name {
            "rgb" => Ok(FrameMaximum::Rgb),
            "gray" => Ok(FrameMaximum::Gray),
            _ => Err(EnvError::UnknownFrameMaximum(name.to_owned())),
        }
    }
}

/// The settings of an environment.
#[derive(Debug, Clone, PartialEq)]
pub struct EnvOptions {
    /// Frames for which an action is held; at least 1. The observation is the maximum of the last two, pixel by pixel.
    pub frame_skip: u32,
    /// Which maximum that is.
    pub frame_maximum: FrameMaximum,
    /// The probability, at each frame, that the action of the frame before is played instead.
    pub sticky_actions: f64,
    /// An episode starts with 1 to this many frames without action, or with none if this is 0.
    pub noop_max: u32,
    /// Which actions there are.
    pub action_set: ActionSet,
    /// Frames after which an episode is cut off, not counting those without action at its start; 0 means never. A step is
    /// always played to its end.
    pub time_limit_frames: u32,
    /// Whether a game becomes more difficult during an episode. Only MinAtar can be played without.
    pub difficulty_ramping: bool,
    /// The folder with the ROMs, if not [`crate::roms::directory`].
    pub roms: Option<PathBuf>,
}

impl EnvOptions {
    pub(crate) fn check(&self) -> Result<(), EnvError> {
        let error = |name, value: String, must_be| Err(EnvError::Option { name, value, must_be });
        if self.frame_skip == 0 {
            return error("frame_skip", self.frame_skip.to_string(), "at least 1");
        }
        if !(0.0..=1.0).contains(&self.sticky_actions) {
            return error("sticky_actions", self.sticky_actions.to_string(), "between 0 and 1");
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OPTIONS: EnvOptions = EnvOptions {
        frame_skip: 4,
        frame_maximum: FrameMaximum::Rgb,
        sticky_actions: 0.25,
        noop_max: 30,
        action_set: ActionSet::Minimal,
        time_limit_frames: 108_000,
        difficulty_ramping: true,
        roms: None,
    };

    #[test]
    fn the_name_of_an_action_set_reads_back() {
        for set in [ActionSet::Minimal, ActionSet::Full] {
            assert_eq!(set.to_string().parse::<ActionSet>().unwrap(), set);
            assert_eq!(serde_json::to_string(&set).unwrap(), format!("\"{set}\""));
        }
        assert!("some".parse::<ActionSet>().is_err());
    }

    #[test]
    fn the_name_of_a_frame_maximum_reads_back() {
        for maximum in [FrameMaximum::Rgb, FrameMaximum::Gray] {
            assert_eq!(maximum.to_string().parse::<FrameMaximum>().unwrap(), maximum);
            assert_eq!(serde_json::to_string(&maximum).unwrap(), format!("\"{maximum}\""));
        }
        assert!("grey".parse::<FrameMaximum>().unwrap_err().to_string().contains("rgb or gray"));
    }

    #[test]
    fn impossible_settings_are_refused_by_name() {
        let check = |options: EnvOptions, expected: &str| {
            assert_eq!(options.check().unwrap_err().to_string(), expected);
        };
        assert!(OPTIONS.check().is_ok());
        check(EnvOptions { frame_skip: 0, ..OPTIONS }, "frame_skip is 0, but must be at least 1");
        check(
            EnvOptions { sticky_actions: 1.5, ..OPTIONS },
            "sticky_actions is 1.5, but must be between 0 and 1",
        );
        check(
            EnvOptions { sticky_actions: f64::NAN, ..OPTIONS },
            "sticky_actions is NaN, but must be between 0 and 1",
        );
    }
}
