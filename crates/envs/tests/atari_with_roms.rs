//! Needs ROMs. Atari as an `Environment`: what a seed decides, what is saved, and how episodes end.

use std::fs;
use std::path::PathBuf;

use envs::{ActionSet, EnvError, EnvOptions, Environment, FrameMaximum, StepOutcome};

fn options() -> EnvOptions {
    EnvOptions {
        frame_skip: 4,
        frame_maximum: FrameMaximum::Rgb,
        sticky_actions: 0.25,
        noop_max: 30,
        action_set: ActionSet::Minimal,
        time_limit_frames: 108_000,
        difficulty_ramping: true,
        roms: None,
    }
}

/// Plays `steps` steps, resetting where an episode ends, and returns all that could be seen.
fn play(environment: &mut dyn Environment, steps: usize) -> Vec<(StepOutcome, Vec<u8>)> {
    let actions = environment.spec().actions.len();
    let mut seen = Vec::new();
    for step in 0..steps {
        let outcome = environment.step((step * 7 + step / 11) % actions);
        if outcome.done() {
            environment.reset();
        }
        seen.push((outcome, environment.observation().to_vec()));
    }
    seen
}

#[test]
fn the_seed_decides_everything() {
    let run = |seed| play(envs::make("breakout", &options(), seed).unwrap().as_mut(), 600);
    let first = run(1);
    assert!(first == run(1));
    assert!(first != run(2));
    assert!(first.iter().any(|(outcome, _)| outcome.done()), "several episodes were compared");
}

#[test]
fn a_restored_environment_continues_like_the_original() {
    for game in ["qbert", "breakout", "seaquest"] {
        let mut original = envs::make(game, &options(), 1).unwrap();
        play(original.as_mut(), 123);
        let saved = original.save().unwrap();
        let mut restored = envs::make(game, &options(), 99).unwrap();
        play(restored.as_mut(), 17);
        restored.restore(&saved).unwrap();
        assert!(restored.save().unwrap() == saved, "{game}: saved again");
        assert!(restored.observation() == original.observation(), "{game}: observation");
        assert!(restored.render() == original.render(), "{game}: picture");
        assert!(play(original.as_mut(), 400) == play(restored.as_mut(), 400), "{game}: afterwards");
        assert!(original.save() == restored.save(), "{game}: at the end");
        // And back in the same environment.
        original.restore(&saved).unwrap();
        assert!(original.save().unwrap() == saved, "{game}: restored in place");
    }
}

#[test]
fn a_state_of_another_game_or_garbage_is_refused_and_changes_nothing() {
    let mut pong = envs::make("pong", &options(), 1).unwrap();
    let before = pong.save().unwrap();
    let other = envs::make("alien", &options(), 1).unwrap().save().unwrap();
    assert!(matches!(pong.restore(&other), Err(EnvError::OtherGame { .. })));
    for garbage in [b"".as_slice(), b"garbage", &before[..before.len() / 2], &before[1..]] {
        assert!(matches!(pong.restore(garbage), Err(EnvError::DamagedState(_))));
    }
    assert!(pong.save().unwrap() == before);
}

#[test]
fn observations_have_the_promised_shape_and_show_something() {
    let environment = envs::make("MsPacmanNoFrameskip-v4", &options(), 1).unwrap();
    let spec = environment.spec();
    assert_eq!((spec.game.as_str(), spec.frames_per_step), ("ms_pacman", 4));
    assert_eq!(spec.observation.shape, [84, 84]);
    assert_eq!(environment.observation().len(), spec.observation.bytes());
    assert!(environment.observation().iter().any(|pixel| *pixel != environment.observation()[0]));
}

#[test]
fn action_sets_differ_in_size_and_name_their_actions() {
    let actions = |action_set| {
        let options = EnvOptions { action_set, ..options() };
        envs::make("pong", &options, 1).unwrap().spec().actions.clone()
    };
    assert_eq!(actions(ActionSet::Minimal), ["noop", "fire", "right", "left", "right-fire", "left-fire"]);
    assert_eq!(actions(ActionSet::Full).len(), 18);
}

#[test]
fn the_time_limit_truncates() {
    let options = EnvOptions { time_limit_frames: 40, ..options() };
    let mut pong = envs::make("pong", &options, 1).unwrap();
    for _episode in 0..2 {
        for _ in 0..9 {
            assert!(!pong.step(0).done());
        }
        let last = pong.step(0);
        assert!(last.truncated && !last.terminated);
        pong.reset();
    }
}

#[test]
fn every_death_is_reported_once() {
    let options = EnvOptions { sticky_actions: 0.0, noop_max: 0, ..options() };
    let mut breakout = envs::make("breakout", &options, 1).unwrap();
    let (mut lost, mut outcome) = (0, breakout.step(1));
    while !outcome.done() {
        lost += u32::from(outcome.life_lost);
        outcome = breakout.step(1);
    }
    // Five lives: four are lost along the way, the fifth is the end.
    assert!(outcome.terminated && !outcome.life_lost && outcome.frames <= 4);
    assert_eq!(lost, 4);
    breakout.reset();
    assert!(!breakout.step(0).done());
}

#[test]
fn with_certain_stickiness_no_action_is_ever_taken() {
    let run = |sticky_actions, action| {
        let options = EnvOptions { sticky_actions, noop_max: 0, ..options() };
        let mut pong = envs::make("pong", &options, 1).unwrap();
        (0..60).map(|_| (pong.step(action), pong.observation().to_vec())).collect::<Vec<_>>()
    };
    assert!(run(1.0, 2) == run(0.0, 0), "stuck at doing nothing");
    assert!(run(0.0, 2) != run(0.0, 0));
}

#[test]
fn a_missing_damaged_or_wrong_rom_says_what_to_do() {
    let folder = std::env::temp_dir().join(format!("quiver-envs-{}", std::process::id()));
    fs::create_dir_all(&folder).unwrap();
    let pong = folder.join("pong.bin");
    let options = EnvOptions { roms: Some(folder.clone()), ..options() };
    let error = || envs::make("pong", &options, 1).err().unwrap();

    assert!(matches!(error(), EnvError::RomMissing { .. }));
    assert!(error().to_string().contains("run 'make setup', or set QUIVER_ROMS"));
    fs::write(&pong, b"not a game").unwrap();
    assert!(matches!(error(), EnvError::Ale(_)));
    assert!(error().to_string().contains("run `make setup` to restore it"));
    let alien: PathBuf = envs::roms::find("alien", None).unwrap();
    fs::copy(alien, &pong).unwrap();
    assert!(matches!(error(), EnvError::RomMixedUp { found, .. } if found == "alien"));
    fs::remove_dir_all(&folder).unwrap();
}

#[test]
fn the_games_are_the_roms_of_the_package() {
    let mut playable = Vec::new();
    for entry in fs::read_dir(envs::roms::directory()).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_stem().unwrap().to_string_lossy().into_owned();
        if path.extension().is_some_and(|extension| extension == "bin") {
            match envs::canonical(&name) {
                Ok(canonical) => playable.push(canonical),
                Err(error) => assert!(matches!(error, EnvError::TwoPlayers(_)), "{error}"),
            }
        }
    }
    playable.sort();
    let with_roms = envs::entries().iter().filter(|entry| entry.needs_rom);
    assert_eq!(playable, with_roms.map(|entry| entry.name.to_owned()).collect::<Vec<_>>());
}

#[test]
fn a_taller_screen_is_seen_and_drawn_whole() {
    // One of the few that are not 210 lines high.
    let mut environment = envs::make("air_raid", &options(), 1).unwrap();
    let image = environment.render();
    assert_eq!((image.width, image.height), (160, 250));
    assert_eq!(image.rgb.len(), 3 * 160 * 250);
    environment.step(0);
    assert_eq!(environment.observation().len(), 84 * 84);
}
