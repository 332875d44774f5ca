//! Environments: the [`Environment`] trait, the registry of implementations ([`find`], [`make`]), and [`grid`], the paper's
//! tabular worlds.
//!
//! An environment reports facts: the raw reward, a lost life, the newest frame. Clipping rewards, ending an episode at a lost
//! life and stacking frames belong to the actor and the learner. Everything random comes from the seed given to [`make`], and
//! [`Environment::save`] captures all of it, so that a run can stop and resume bit for bit.
//!
//! The cargo feature `ale` (on by default) builds the Arcade Learning Environment. Without it Atari games keep their names
//! and entries, and making one is an error; crates that only read entries switch it off and build no C++.

#![forbid(unsafe_code)]

mod error;
pub mod grid;
mod options;
mod registry;
#[cfg(feature = "ale")]
pub mod roms;
mod saved;
#[cfg(feature = "ale")]
pub mod scale;
pub mod stack;

pub use error::EnvError;
pub use options::{ActionSet, EnvOptions, FrameMaximum};
pub use registry::{
    CARTPOLE, EnvEntry, canonical, display_name, entries, find, games, gym_setting, make, minatar_replay,
};

/// The type of one element of an observation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Element {
    /// An unsigned byte, read as a fraction of 255: the brightness of a pixel, or 255 for "present" in a channel.
    U8,
    /// A little-endian 32-bit float.
    F32,
}

impl Element {
    /// Bytes per element.
    pub fn bytes(self) -> usize {
        match self {
            Element::U8 => 1,
            Element::F32 => 4,
        }
    }
}

/// The shape of what [`Environment::observation`] returns.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Observation {
    /// The type of its elements.
    pub element: Element,
    /// Its dimensions, the slowest first: `[4]` is a vector, `[84, 84]` an image with one channel, `[4, 10, 10]` one with four.
    pub shape: Vec<usize>,
}

impl Observation {
    /// The length of an observation in bytes.
    pub fn bytes(&self) -> usize {
        self.element.bytes() * self.shape.iter().product::<usize>()
    }
}

/// The constant properties of an environment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Spec {
    /// The game's name, as [`games`] lists it.
    pub game: String,
    /// The names of the actions; an action is an index into this.
    pub actions: Vec<String>,
    /// The shape of an observation.
    pub observation: Observation,
    /// Frames that one step plays, unless the episode ends within it.
    pub frames_per_step: u32,
}

/// The result of one step.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct StepOutcome {
    /// The points of this step, neither clipped nor scaled.
    pub reward: f32,
    /// The game is over: nothing follows.
    pub terminated: bool,
    /// The time limit cut the game off: something would have followed. Never together with `terminated`.
    pub truncated: bool,
    /// A life was lost in this step, and at least one is left. Every death is reported once: the last one as `terminated`,
    /// even in games whose counter reaches 0 slightly earlier.
    pub life_lost: bool,
    /// The frames that this step played.
    pub frames: u32,
}

impl StepOutcome {
    /// Whether the episode ended, one way or the other.
    pub fn done(&self) -> bool {
        self.terminated || self.truncated
    }
}

/// A picture in colour.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Image {
    /// Pixels per row.
    pub width: usize,
    /// Rows.
    pub height: usize,
    /// Red, green and blue of each pixel, row by row.
    pub rgb: Vec<u8>,
}

/// A game in progress. A new one is at the start of its first episode.
pub trait Environment: Send {
    /// The constant properties.
    fn spec(&self) -> &Spec;

    /// Starts a new episode. Atari then does nothing for 1 to `noop_max` frames, so that episodes differ.
    fn reset(&mut self);

    /// Plays one action. It never resets by itself; a step after the end of an episode is a bug of the caller.
    ///
    /// # Panics
    ///
    /// If `action` is not an index into the spec's actions.
    fn step(&mut self, action: usize) -> StepOutcome;

    /// The newest frame, alone, in the spec's shape.
    fn observation(&self) -> &[u8];

    /// The current screen, for people.
    fn render(&mut self) -> Image;

    /// Everything that changes: emulator, random generator, counters, observation. `None` if the environment cannot save its
    /// state, which its entry then declares ([`EnvEntry::saves_state`]).
    fn save(&self) -> Option<Vec<u8>> {
        None
    }

    /// Restores what [`save`](Environment::save) returned, in this or another environment of the same game and options. On an
    /// error nothing has changed.
    fn restore(&mut self, _state: &[u8]) -> Result<(), EnvError> {
        Err(EnvError::StateNotRestored(self.spec().game.clone()))
    }
}
