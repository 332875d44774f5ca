//! Settings of a run: `config.toml`, the same as JSON from the learner, and changes to them as `adjusted.json` keeps
//! them.
//!
//! Input: which (1 byte), the text.

use std::collections::BTreeMap;
use std::fs;

use settings::{Layers, Resolved};
use tempfile::TempDir;

thread_local! {
    static DIRECTORY: TempDir = TempDir::new().expect("a directory for a file");
}

pub fn run(data: &[u8]) {
    let Some((&kind, text)) = data.split_first() else { return };
    match kind % 3 {
        0 => file(text),
        1 => message(text),
        _ => changes(text),
    }
}

/// A file that was accepted says the same when it is written again.
fn file(text: &[u8]) {
    DIRECTORY.with(|directory| {
        let path = directory.path().join("config.toml");
        let read = |text: &[u8]| {
            fs::write(&path, text).expect("a file is written");
            Resolved::from_run(&path)
        };
        let Ok(resolved) = read(text) else { return };
        for explained in [false, true] {
            assert_eq!(read(resolved.to_toml(explained).as_bytes()), Ok(resolved.clone()));
        }
    });
}

/// What a learner sends to actors is not checked by them, but has to be read.
fn message(text: &[u8]) {
    let Ok(resolved) = serde_json::from_slice::<Resolved>(text) else { return };
    let again = serde_json::to_vec(&resolved).expect("settings can be written");
    assert_eq!(serde_json::from_slice::<Resolved>(&again).expect("and read"), resolved);
    let _ = resolved.settings.validate(&resolved.game);
}

/// Any value of any setting is set or refused; what is set can be shown and set again.
fn changes(text: &[u8]) {
    let Ok(changes) = serde_json::from_slice::<BTreeMap<String, String>>(text) else { return };
    let mut settings = Layers::default().resolve(Some("pong")).expect("pong has settings").settings;
    for (key, text) in changes {
        let Some(Ok(())) = settings.set(&key, &text) else { continue };
        let shown = settings.get(&key).expect("what can be set can be shown");
        let mut again = settings.clone();
        assert_eq!(again.set(&key, &shown), Some(Ok(())), "{key} = {shown}");
        assert_eq!(again.get(&key), Some(shown));
        let _ = settings.validate("pong");
    }
}

pub fn seeds() -> Vec<Vec<u8>> {
    let resolved = |game| Layers::default().resolve(Some(game)).expect("the game has settings");
    let mut seeds = Vec::new();
    for game in ["pong", envs::CARTPOLE] {
        let mut resolved = resolved(game);
        // One of those that need all their digits.
        resolved.settings.temperature = 0.907_303_832_202_868_9;
        let json = serde_json::to_vec(&resolved).expect("settings can be written");
        seeds.push([&[0], resolved.to_toml(false).as_bytes()].concat());
        seeds.push([&[1][..], &json].concat());
    }
    let changes =
        br#"{"capacity": "2.5M", "samples_per_insert": "none", "replay_bytes": "1.5GiB", "min_size": "5e4"}"#;
    let others = br#"{"device": "cuda:1", "priority_exponent": "0.4", "lockstep": "yes", "rho": "old", "seed": "1_000"}"#;
    seeds.extend([[&[2], &changes[..]].concat(), [&[2], &others[..]].concat()]);
    seeds
}
