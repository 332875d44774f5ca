//! Tests that need the packaged ROMs (`make setup` fetches them): every game loads, and saving is exact in all of them.

use std::fs;
use std::path::{Path, PathBuf};
use std::thread;

use ale::{Action, Ale, AleError, packaged_roms};

/// ROMs for which ALE has no single-player rules.
const TWO_PLAYERS: [&str; 4] = ["combat", "joust", "maze_craze", "warlords"];

fn rom(game: &str) -> PathBuf {
    packaged_roms().join(format!("{game}.bin"))
}

/// The names of all ROMs, sorted.
fn all_roms() -> Vec<String> {
    let entries = fs::read_dir(packaged_roms()).expect("the ROMs exist: run `make setup`");
    let paths = entries.map(|entry| entry.unwrap().path());
    let mut names: Vec<String> = paths
        .filter(|path| path.extension().is_some_and(|extension| extension == "bin"))
        .map(|path| path.file_stem().unwrap().to_string_lossy().into_owned())
        .collect();
    names.sort();
    names
}

/// The paper's nine games, the games in which ALE's own state is not exact (see `state.cc`), and a paddle game.
const GAMES: [&str; 20] = [
    "alien",
    "atlantis2",
    "battle_zone",
    "beam_rider",
    "boxing",
    "breakout",
    "chopper_command",
    "demon_attack",
    "hangman",
    "miniature_golf",
    "ms_pacman",
    "pitfall2",
    "qbert",
    "seaquest",
    "space_invaders",
    "tetris",
    "tic_tac_toe_3d",
    "video_checkers",
    "video_cube",
    "yars_revenge",
];

/// Number of moments at which each game is saved.
const MOMENTS: u32 = 12;

/// Plays pseudo-random actions from a fixed seed.
struct Player(u64);

impl Player {
    fn act(&mut self, ale: &mut Ale) -> i32 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let actions = ale.legal_actions();
        let action = actions[(self.0 >> 33) as usize % actions.len()];
        let reward = ale.act(action);
        if ale.game_over() {
            ale.reset();
        }
        reward
    }

    fn play(&mut self, ale: &mut Ale, frames: u32) {
        for _ in 0..frames {
            self.act(ale);
        }
    }
}

/// Saves at many moments and restores into a second instance, which is in another state each time.
fn assert_restoring_is_exact(game: &str) {
    let mut original = Ale::load(&rom(game), 1).unwrap();
    let mut restored = Ale::load(&rom(game), 2).unwrap();
    let mut player = Player(1);
    for moment in 0..MOMENTS {
        player.play(&mut original, 20 + moment % 2);
        let saved = original.save_state().unwrap();
        restored.restore_state(&saved).unwrap();
        assert!(restored.save_state().unwrap() == saved, "{game}: saved again at {moment}");
        assert!(restored.screen() == original.screen(), "{game}: the screen at {moment}");
        assert_eq!(restored.frame_number(), original.frame_number(), "{game}");

        let mut second = Player(player.0);
        for frame in 0..4 {
            let at = format!("{game}: frame {frame} after {moment}");
            assert_eq!(player.act(&mut original), second.act(&mut restored), "{at}: reward");
            assert_eq!(original.lives(), restored.lives(), "{at}: lives");
            assert!(original.screen() == restored.screen(), "{at}: screen");
        }
        assert!(
            original.save_state().unwrap() == restored.save_state().unwrap(),
            "{game}: state after {moment}"
        );
    }
}

#[test]
fn restoring_into_another_instance_is_exact() {
    let (a, b) = GAMES.split_at(GAMES.len() / 2);
    // Two games in parallel, which also shows that instances do not affect each other.
    thread::scope(|scope| {
        scope.spawn(|| a.iter().for_each(|game| assert_restoring_is_exact(game)));
        b.iter().for_each(|game| assert_restoring_is_exact(game));
    });
}

/// Continues from a saved state twice, in one instance.
fn assert_restoring_repeats_the_game(mut ale: Ale) {
    Player(5).play(&mut ale, 30);
    let saved = ale.save_state().unwrap();
    let mut ends = Vec::new();
    for _ in 0..2 {
        ale.restore_state(&saved).unwrap();
        Player(6).play(&mut ale, 30);
        ends.push((ale.screen().to_vec(), ale.save_state().unwrap()));
    }
    assert!(ends[0] == ends[1], "{}", ale.game());
}

#[test]
fn every_rom_is_known_by_its_own_name_and_can_be_saved_or_is_refused() {
    for game in all_roms() {
        match Ale::load(&rom(&game), 0) {
            Ok(ale) => {
                assert_eq!(ale.game(), game);
                assert_eq!(ale.width(), 160);
                assert!((210..=250).contains(&ale.height()), "{game}: {}", ale.height());
                let (legal, minimal) = (ale.legal_actions(), ale.minimal_actions());
                assert!(minimal.len() > 1 && minimal.iter().all(|action| legal.contains(action)), "{game}");
                let without_fire = ["lost_luggage", "skiing"].contains(&game.as_str());
                assert_eq!(legal.len(), if without_fire { 9 } else { 18 }, "{game}");
                assert_restoring_repeats_the_game(ale);
            }
            Err(AleError::Unsupported(_)) => assert!(TWO_PLAYERS.contains(&game.as_str()), "{game}"),
            Err(error) => panic!("{game}: {error}"),
        }
    }
}

#[test]
fn a_missing_or_damaged_rom_is_an_error_that_says_what_to_do() {
    let missing = Ale::load(Path::new("no-such.bin"), 0).err().unwrap();
    assert!(matches!(missing, AleError::Unreadable { .. }));
    let folder = std::env::temp_dir().join(format!("quiver-ale-{}", std::process::id()));
    fs::create_dir_all(&folder).unwrap();
    let damaged = folder.join("pong.bin");
    let mut image = fs::read(rom("pong")).unwrap();
    image[100] ^= 1;
    for image in [image.as_slice(), &image[..1000], b""] {
        fs::write(&damaged, image).unwrap();
        let error = Ale::load(&damaged, 0).err().unwrap().to_string();
        assert!(error.contains("pong.bin") && error.contains("run `make setup` to restore it"), "{error}");
    }
    fs::remove_dir_all(&folder).unwrap();
}

#[test]
fn garbage_is_refused_and_changes_nothing() {
    let mut ale = Ale::load(&rom("pong"), 0).unwrap();
    Player(3).play(&mut ale, 50);
    let saved = ale.save_state().unwrap();
    for bytes in [b"".as_slice(), b"garbage", &saved[..saved.len() - 1], &saved[1..]] {
        assert!(matches!(ale.restore_state(bytes), Err(AleError::DamagedState(_))));
    }
    let other = Ale::load(&rom("alien"), 0).unwrap().save_state().unwrap();
    assert!(matches!(ale.restore_state(&other), Err(AleError::OtherGame { .. })));
    assert_eq!(ale.save_state().unwrap(), saved);
}

#[test]
fn gray_and_colour_follow_the_palette() {
    let mut ale = Ale::load(&rom("seaquest"), 0).unwrap();
    Player(4).play(&mut ale, 50);
    let (mut gray, mut rgb) = (vec![0; 210 * 160], vec![0; 3 * 210 * 160]);
    ale.screen_gray(&mut gray);
    ale.screen_rgb(&mut rgb);
    for (gray, rgb) in gray.iter().zip(rgb.chunks(3)) {
        let luminance = 0.2989 * f64::from(rgb[0]) + 0.587 * f64::from(rgb[1]) + 0.114 * f64::from(rgb[2]);
        assert!((f64::from(*gray) - luminance).abs() <= 1.0, "{gray} for {rgb:?}");
    }
    assert!(gray.iter().any(|&pixel| pixel != gray[0]));
}

#[test]
fn the_action_numbers_are_checked() {
    assert_eq!(Action::from_number(17).unwrap().name(), "downleft-fire");
    assert_eq!(Action::from_number(18), None);
}
