//! Every MinAtar game against recorded games of the reference package (`docs/minatar-fixtures.md`), step by step.

#[path = "../examples/minatar_replay/check.rs"]
mod check;
#[path = "../examples/minatar_replay/fixture.rs"]
mod fixture;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use envs::minatar_replay::RecordedGame;
use fixture::Fixture;
use serde_json::{Value, json};

/// The files `minatar_<game>_<number>.json`.
fn files() -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures");
    let is_recorded = |path: &PathBuf| {
        let stem = path.file_stem().unwrap().to_str().unwrap();
        stem.starts_with("minatar_") && stem.ends_with(|last: char| last.is_ascii_digit())
    };
    folder.read_dir().unwrap().map(|entry| entry.unwrap().path()).filter(is_recorded).collect()
}

/// The hashes and totals of a replay.
fn replayed(fixture: &Value) -> Result<(Vec<String>, check::Totals), String> {
    let fixture = Fixture::read(fixture.to_string().as_bytes())?;
    let mut hashes = Vec::new();
    let totals = check::replay(&fixture, &mut |hash| {
        hashes.push(hash.to_owned());
        Ok(())
    })?;
    Ok((hashes, totals))
}

#[test]
fn every_recorded_game_is_played_alike() {
    let mut steps = BTreeMap::<String, Vec<usize>>::new();
    for file in files() {
        let recorded: Value = serde_json::from_slice(&std::fs::read(&file).unwrap()).unwrap();
        let (hashes, totals) =
            replayed(&recorded).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
        assert_eq!((hashes.len(), totals.compared), (totals.steps, totals.steps), "{}", file.display());
        assert!(totals.reward_sum > 0.0 && totals.episodes_ended > 0, "{}: {totals:?}", file.display());
        steps.entry(recorded["game"].as_str().unwrap().to_owned()).or_default().push(totals.steps);
    }
    for game in RecordedGame::games() {
        assert!(steps[game].iter().filter(|steps| **steps == 10_000).count() >= 3, "{game}: {steps:?}");
    }
}

/// Two steps of Freeway, with the fields that a replay needs and no others.
fn two_steps() -> Value {
    let periods = [1, 2, 3, 4, 5, 5, 4, 3].map(|period| json!(period));
    let uniforms =
        [0.25, 0.75, 0.5, 0.0, 0.125, 0.625, 0.25, 0.75, 0.0625, 0.5].map(|uniform| json!(uniform));
    let draws = [&periods[..], &uniforms].concat();
    json!({
        "game": "freeway", "sticky_action_prob": 0, "difficulty_ramping": false, "actions": [2, 0], "draws": draws
    })
}

/// [`two_steps`] with another value of one field.
fn with(field: &str, value: Value) -> Value {
    let mut fixture = two_steps();
    fixture[field] = value;
    fixture
}

#[test]
fn both_forms_of_draws_and_hashes_are_understood() {
    let (hashes, totals) = replayed(&two_steps()).unwrap();
    assert_eq!((hashes.len(), totals.steps, totals.compared), (2, 2, 0));
    let packed: String = two_steps()["draws"]
        .as_array()
        .unwrap()
        .iter()
        .map(|draw| match draw.as_u64() {
            Some(integer) => char::from(b'A' + integer as u8).to_string(),
            None => format!("{:014x}", (draw.as_f64().unwrap() * 2f64.powi(53)) as u64),
        })
        .collect();
    assert_eq!(replayed(&with("draws", json!(packed))).unwrap().0, hashes);
    assert_eq!(replayed(&with("actions", json!("20"))).unwrap().0, hashes);
    let joined: String = hashes.iter().map(|hash| &hash[..5]).collect();
    for recorded in [json!(hashes), json!(joined), json!([hashes[0], hashes[1][..1]])] {
        assert_eq!(replayed(&with("hashes", recorded)).unwrap().1.compared, 2);
    }
}

#[test]
fn the_first_difference_is_named() {
    let (hashes, _) = replayed(&two_steps()).unwrap();
    let check = |field, value, expected: &str| {
        let error = replayed(&with(field, value)).unwrap_err();
        assert!(error.contains(expected), "{field}: {error}");
    };
    check("hashes", json!([hashes[0], "zz"]), &format!("step 2: the hash is {}", hashes[1]));
    check("hashes", json!([hashes[1], "zz"]), "step 1: the hash is");
    check("hashes", json!([hashes[0], ""]), "step 2: the hash is");
    check("start", json!(hashes[1]), "start: the hash is");
    check("digest", json!(hashes[0]), "digest: the hash is");
    check("reward_sum", json!(1.0), "the rewards add up to 0");
    check("episodes_ended", json!(1), "0 episodes ended");
}

#[test]
fn draws_that_do_not_fit_are_named_with_their_step() {
    let check = |change: fn(&mut Vec<Value>), expected: &str| {
        let mut draws = two_steps()["draws"].as_array().unwrap().clone();
        change(&mut draws);
        assert_eq!(replayed(&with("draws", json!(draws))).unwrap_err(), expected);
    };
    check(
        |draws| draws[2] = json!(6),
        "reset before step 1: draw 3 is 6, but the game asks for an integer from 1 to 5",
    );
    check(
        |draws| draws.swap(7, 8),
        "reset before step 1: draw 8 is 0.25, but the game asks for an integer from 1 to 5",
    );
    check(|draws| draws[16] = json!(3), "step 1: draw 17 is 3, but the game asks for a uniform in [0, 1)");
    check(
        |draws| draws.truncate(17),
        "step 2: all 17 draws are used, but the game asks for a uniform in [0, 1)",
    );
    check(|draws| draws.push(json!(0.5)), "after step 2: 1 of 19 draws are left over");
}

#[test]
fn a_malformed_file_is_refused() {
    let check = |field, value, expected: &str| {
        let error = replayed(&with(field, value)).unwrap_err();
        assert!(error.contains(expected), "{field}: {error}");
    };
    check("game", json!("pong"), "unknown game \"pong\": the games are asterix, breakout");
    check("format", json!("other 1"), "the format is \"other 1\"");
    check("sticky_action_prob", json!(1.5), "sticky_action_prob is 1.5");
    check("difficulty_ramping", json!(3), "expected a boolean");
    check("actions", json!("26"), "the action of step 2 is 6, but must be 0 to 5");
    check("actions", json!([2, -1]), "the action of step 2 is -1");
    check("actions", json!([2.5]), "the action of step 1 is 2.5");
    check("actions", json!(7), "a string of digits or a list of integers");
    check("steps", json!(3), "steps is 3, but there are 2 actions");
    check("hashes", json!("abc"), "hashes has 3 digits");
    check("hashes", json!("éa"), "hashes contains other characters than digits");
    check("hashes", json!(["abc"]), "there are 1 hashes for 2 steps");
    check("draws", json!("ABx"), "draw 3, at character 3 of draws");
    check("draws", json!("A118fe1565f12aé"), "draw 2, at character 2 of draws");
    check("draws", json!("20000000000000"), "draw 1, at character 1");
    check("draws", json!([0.5, null]), "JSON number");
    let mut fixture = two_steps();
    fixture.as_object_mut().unwrap().remove("actions");
    assert!(replayed(&fixture).unwrap_err().contains("missing field `actions`"));
    assert!(Fixture::read(b"{").is_err());
}
