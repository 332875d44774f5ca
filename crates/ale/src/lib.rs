//! The Arcade Learning Environment: an Atari 2600 emulator with scores, lives and game over, behind a safe [`Ale`].
//!
//! `build.rs` compiles the C++ library; cxx binds it. Python is not needed at run time. ALE ends the process on an
//! unknown ROM or an illegal action, so this crate checks both before it calls ALE. ALE is licensed under GPL-2.0-only,
//! and so is a binary that links it.

mod state;

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Once;

use cxx::UniquePtr;

#[cxx::bridge(namespace = "quiver")]
mod ffi {
    unsafe extern "C++" {
        include!("quiver-ale/src/emulator.h");

        type Emulator;

        fn quiet();
        fn identify(image: &[u8]) -> String;
        fn load(rom: &str, seed: i32) -> Result<UniquePtr<Emulator>>;

        fn act(self: Pin<&mut Emulator>, action: i32) -> i32;
        fn game_over(self: &Emulator) -> bool;
        fn lives(self: &Emulator) -> i32;
        fn reset(self: Pin<&mut Emulator>);
        fn frame_number(self: &Emulator) -> i32;
        fn legal_actions(self: &Emulator) -> Vec<i32>;
        fn minimal_actions(self: &Emulator) -> Vec<i32>;
        fn width(self: &Emulator) -> usize;
        fn height(self: &Emulator) -> usize;
        fn screen(self: &Emulator) -> &[u8];
        fn colour(self: &Emulator, index: u8) -> u32;
        fn luminance(self: &Emulator, index: u8) -> u8;
        fn save_state(self: &Emulator) -> Result<UniquePtr<CxxString>>;
        fn restore_state(self: Pin<&mut Emulator>, bytes: &[u8]) -> Result<()>;
    }
}

// SAFETY: an emulator owns all state that it changes. State shared by instances is constant after initialization: the
// tables of the chips are filled under `std::call_once`, the list of games is filled before `main`, and the logger's
// level, a plain global, is written once before the first instance exists (`QUIET`). An emulator has no thread-local
// state, so it may move between threads.
unsafe impl Send for ffi::Emulator {}

static QUIET: Once = Once::new();

/// Why a game could not be loaded or a state could not be restored.
#[derive(Debug, thiserror::Error)]
pub enum AleError {
    /// The ROM file cannot be opened or read.
    #[error("cannot read the ROM {}: {source}; run `make setup` to restore it", path.display())]
    Unreadable {
        path: PathBuf,
        /// What the system says.
        source: std::io::Error,
    },
    /// ALE does not know the file: it is damaged, or another game or version.
    #[error("{} is damaged or not a ROM that ALE supports; run `make setup` to restore it", .0.display())]
    Unsupported(PathBuf),
    /// The emulator accepts only UTF-8 paths.
    #[error("the ROM's path {} is not valid UTF-8; move it", .0.display())]
    Path(PathBuf),
    /// The C++ side failed.
    #[error("the emulator failed: {0}")]
    Emulator(#[from] cxx::Exception),
    /// The bytes are not a state that [`Ale::save_state`] wrote.
    #[error("damaged emulator state: {0}")]
    DamagedState(&'static str),
    /// The state was saved while playing another game.
    #[error("the state is of the game '{saved}', not '{loaded}'")]
    OtherGame {
        /// The game that the state is of.
        saved: String,
        /// The game that is loaded.
        loaded: String,
    },
}

/// One of the 18 actions of an Atari joystick, with ALE's numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Action(u8);

impl Action {
    /// No input.
    pub const NOOP: Action = Action(0);

    /// All actions, in ALE's order.
    pub fn all() -> impl Iterator<Item = Action> {
        (0..NAMES.len() as u8).map(Action)
    }

    /// ALE's number, 0 to 17.
    pub fn number(self) -> u8 {
        self.0
    }

    /// The action with this ALE number; `None` above 17.
    pub fn from_number(number: u8) -> Option<Action> {
        (usize::from(number) < NAMES.len()).then_some(Action(number))
    }

    /// The name that ALE's documentation uses, in lower case: `noop`, `fire`, `up`, `upright-fire`, …
    pub fn name(self) -> &'static str {
        NAMES[usize::from(self.0)]
    }
}

const NAMES: [&str; 18] = [
    "noop",
    "fire",
    "up",
    "right",
    "left",
    "down",
    "upright",
    "upleft",
    "downright",
    "downleft",
    "up-fire",
    "right-fire",
    "left-fire",
    "down-fire",
    "upright-fire",
    "upleft-fire",
    "downright-fire",
    "downleft-fire",
];

/// An emulator with a game loaded.
///
/// Deterministic: the same actions in a new instance give the same game. ALE's own sticky actions are disabled.
pub struct Ale {
    emulator: UniquePtr<ffi::Emulator>,
    game: String,
    legal: [bool; NAMES.len()],
    gray: [u8; 256],
    rgb: [[u8; 3]; 256],
}

impl Ale {
    /// Loads the game in the file `rom`. A negative `seed` is replaced by its absolute value, because ALE interprets −1
    /// as "seed from the clock".
    pub fn load(rom: &Path, seed: i32) -> Result<Ale, AleError> {
        QUIET.call_once(ffi::quiet);
        let image = fs::read(rom).map_err(|source| AleError::Unreadable { path: rom.to_owned(), source })?;
        let game = ffi::identify(&image);
        if game.is_empty() {
            return Err(AleError::Unsupported(rom.to_owned()));
        }
        let path = rom.to_str().ok_or_else(|| AleError::Path(rom.to_owned()))?;
        let emulator = ffi::load(path, seed.checked_abs().unwrap_or(i32::MAX))?;
        let mut ale = Ale { emulator, game, legal: [false; NAMES.len()], gray: [0; 256], rgb: [[0; 3]; 256] };
        for action in ale.legal_actions() {
            ale.legal[usize::from(action.number())] = true;
        }
        for index in 0..=255 {
            let [_, colour @ ..] = ale.emulator.colour(index).to_be_bytes();
            ale.rgb[usize::from(index)] = colour;
            ale.gray[usize::from(index)] = ale.emulator.luminance(index);
        }
        Ok(ale)
    }

    /// ALE's name of the loaded game, determined by the image's checksum, not by the file name.
    pub fn game(&self) -> &str {
        &self.game
    }

    /// Every action that the game's controller allows: all 18, except in a few games without a fire button.
    pub fn legal_actions(&self) -> Vec<Action> {
        actions(self.emulator.legal_actions())
    }

    /// The actions that have an effect in this game.
    pub fn minimal_actions(&self) -> Vec<Action> {
        actions(self.emulator.minimal_actions())
    }

    /// Plays one frame and returns its reward. After game over it has no effect until [`reset`](Ale::reset).
    ///
    /// # Panics
    ///
    /// If the action is not one of [`legal_actions`](Ale::legal_actions).
    pub fn act(&mut self, action: Action) -> i32 {
        assert!(self.legal[usize::from(action.number())], "{} is not legal in {}", action.name(), self.game);
        self.emulator.pin_mut().act(i32::from(action.number()))
    }

    /// Whether the game has ended.
    pub fn game_over(&self) -> bool {
        self.emulator.game_over()
    }

    /// The remaining lives, as the game counts them; 0 in games without lives.
    pub fn lives(&self) -> i32 {
        self.emulator.lives()
    }

    /// Starts a new game. This differs from a new instance, because some games keep their own random state.
    pub fn reset(&mut self) {
        self.emulator.pin_mut().reset();
    }

    /// The frames played since the ROM was loaded.
    pub fn frame_number(&self) -> i32 {
        self.emulator.frame_number()
    }

    /// The screen's width in pixels, 160.
    pub fn width(&self) -> usize {
        self.emulator.width()
    }

    /// The screen's height in pixels: 210 in most games, up to 250 in some.
    pub fn height(&self) -> usize {
        self.emulator.height()
    }

    /// The screen as palette indices, row by row, without a copy. [`gray_palette`](Ale::gray_palette) maps an index to
    /// its brightness.
    pub fn screen(&self) -> &[u8] {
        self.emulator.screen()
    }

    /// The brightness of each palette index.
    pub fn gray_palette(&self) -> &[u8; 256] {
        &self.gray
    }

    /// Red, green and blue of each palette index.
    pub fn rgb_palette(&self) -> &[[u8; 3]; 256] {
        &self.rgb
    }

    /// Writes the screen in gray, one byte per pixel.
    ///
    /// # Panics
    ///
    /// If `out` is not width × height bytes long.
    pub fn screen_gray(&self, out: &mut [u8]) {
        let screen = self.screen();
        assert_eq!(out.len(), screen.len(), "one byte per pixel");
        for (pixel, &index) in out.iter_mut().zip(screen) {
            *pixel = self.gray[usize::from(index)];
        }
    }

    /// Writes the screen in colour, three bytes per pixel.
    ///
    /// # Panics
    ///
    /// If `out` is not 3 × width × height bytes long.
    pub fn screen_rgb(&self, out: &mut [u8]) {
        let screen = self.screen();
        assert_eq!(out.len(), 3 * screen.len(), "three bytes per pixel");
        for (pixel, &index) in out.chunks_exact_mut(3).zip(screen) {
            pixel.copy_from_slice(&self.rgb[usize::from(index)]);
        }
    }

    /// The complete state. Restored in this or another instance of the same game, the game continues exactly from here.
    pub fn save_state(&self) -> Result<Vec<u8>, AleError> {
        let payload = self.emulator.save_state()?;
        Ok(state::seal(&self.game, payload.as_bytes()))
    }

    /// Restores a saved state, including the screen. A damaged state or one of another game is an error that changes
    /// nothing.
    ///
    /// The checksum detects damage, not forgery: restore only states from trusted sources.
    pub fn restore_state(&mut self, bytes: &[u8]) -> Result<(), AleError> {
        let payload = state::open(&self.game, bytes)?;
        Ok(self.emulator.pin_mut().restore_state(payload)?)
    }
}

fn actions(numbers: Vec<i32>) -> Vec<Action> {
    numbers.into_iter().filter_map(|number| Action::from_number(u8::try_from(number).ok()?)).collect()
}

/// The folder of ROMs in the ALE source that this crate was built from.
pub fn packaged_roms() -> &'static Path {
    Path::new(env!("QUIVER_ALE_ROMS"))
}
