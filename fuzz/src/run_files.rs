//! Files of a run directory: its record, torn by a kill or worse, a checkpoint with its manifest, and the small files
//! that the learner reads when it starts.
//!
//! Input: which (1 byte), the file.

use std::fs::{self, File};
use std::path::Path;

use coordinator::shard_directory;
use run::adjusted;
use run::checkpoint::{self, Checkpoint};
use run::curve;
use run::directory::read_settings;
use run::lines::Lines;
use run::record::{self, Cut, Episode, Evaluation, Record, Training};
use run::tensorboard;
use tempfile::TempDir;

const LINES: [&str; 3] = ["episodes.jsonl", "evaluations.jsonl", "training.jsonl"];
const EVENTS: &str = "events.out.tfevents.0.quiver";
const SMALL: [&str; 3] = ["config.toml", "adjusted.json", "shards.json"];
/// Kinds of files, in the order of the first byte.
const EVENTS_AT: usize = LINES.len();
const MANIFEST_AT: usize = EVENTS_AT + 1;
const SMALL_AT: usize = MANIFEST_AT + 1;
const KINDS: usize = SMALL_AT + SMALL.len();
const CONTENT: &[u8] = b"the content of a checkpoint's file";

pub fn run(data: &[u8]) {
    let Some((&kind, file)) = data.split_first() else { return };
    let directory = TempDir::new().expect("a directory for a run");
    let run = directory.path();
    let put = |name: &str| fs::write(run.join(name), file).expect("a file is written");
    match usize::from(kind) % KINDS {
        MANIFEST_AT => manifest(run, file),
        EVENTS_AT => {
            put(EVENTS);
            resumes(run);
        }
        lines if lines < EVENTS_AT => {
            put(LINES[lines]);
            resumes(run);
        }
        small => {
            put(SMALL[small - SMALL_AT]);
            small_files(run);
        }
    }
}

/// A resumed record continues after its last whole line, every later line is whole, and whatever a line holds, all others
/// can be read and shown.
fn resumes(run: &Path) {
    let before = record::episodes(run).map(|lines| lines.values).unwrap_or_default();
    let mut record = Record::resume(run).expect("a record can always be resumed");
    let episode = Episode { frames: 4, score: 1.5, steps: 1, truncated: false };
    record.episode(&episode).expect("a line is written");
    let cut = record.cut().expect("a record can be synced");
    drop(record);
    let mut events = File::open(run.join(EVENTS)).expect("a record has events");
    let length = events.metadata().expect("it was opened").len();
    assert_eq!(tensorboard::complete_length(&mut events).expect("a file can be read"), length);
    let after = values(record::episodes(run));
    assert!(after.starts_with(&before[..after.len() - 1]) && after.last() == Some(&episode));
    let finite = |numbers: &[f64]| numbers.iter().all(|number| number.is_finite());
    for (frames, score) in curve::smoothed(&after) {
        assert!(finite(&[frames, score]));
    }
    let evaluations = values(record::evaluations(run));
    for point in curve::points(&evaluations) {
        assert!(finite(&[point.frames, point.mean, point.error]));
    }
    for Evaluation { scores, .. } in evaluations.into_iter().filter(|played| !played.scores.is_empty()) {
        let (mean, error) = Evaluation::mean_and_error(&scores);
        assert!(finite(&[mean, error]));
    }
    values(record::training(run));
    sweep::progress::frames(run);
    let mut again = Record::open(run, &cut).expect("a record can be opened where it was cut");
    assert_eq!(again.cut().expect("a record can be synced"), cut);
}

/// What a file of the record holds. Each bad line is named, with its file, up to a few.
fn values<T>(lines: Result<Lines<T>, run::directory::RunDirError>) -> Vec<T> {
    let lines = lines.expect("no content of a record is fatal");
    assert!(lines.bad.len() <= lines.bad_count && lines.bad.iter().all(|bad| bad.line > 0));
    let mut reported = 0;
    let values = lines.reported(|_| reported += 1);
    assert!(reported <= 6);
    values
}

/// For any manifest, a file is returned only if it is the one that was written.
fn manifest(folder: &Path, manifest: &[u8]) {
    let path = written(folder);
    fs::write(path.join("manifest.json"), manifest).expect("a file is written");
    let Ok(opened) = Checkpoint::open(&path) else { return };
    for name in ["a", "b", "c", "manifest.json"] {
        if let Ok(read) = opened.read(name) {
            assert!(name == "manifest.json" || read == CONTENT);
        }
    }
}

/// Files that decide what a run is are read or refused as a whole, and a change saved over one that was read can be read.
fn small_files(run: &Path) {
    let _ = (read_settings(run).is_ok(), shard_directory::saved_ids(run).is_ok());
    let Ok(mut changes) = adjusted::load(run) else { return };
    let one = adjusted::Changes::from([("capacity".to_owned(), "1000".to_owned())]);
    adjusted::save(run, &one).expect("a change can be saved");
    changes.extend(one);
    assert_eq!(adjusted::load(run).expect("and read"), changes);
}

fn written(folder: &Path) -> std::path::PathBuf {
    let two = checkpoint::write(folder, "1", |writer| {
        writer.file("a", |out| out.write_all(CONTENT))?;
        writer.file("b", |out| out.write_all(CONTENT))
    });
    two.expect("a checkpoint is written")
}

/// A record with a few entries.
fn record(run: &Path) {
    let mut record = Record::open(run, &Cut::default()).expect("a new record");
    let policy = settings::choices::EvaluationPolicy::Greedy;
    for frames in [4, 8] {
        let (score, scores) = (1.5, vec![1.0, 2.0]);
        let episode = Episode { frames, score, steps: 1, truncated: false };
        let evaluation = Evaluation { frames, updates: 1, ..Evaluation::new(record::AGENT, policy, scores) };
        let training = Training {
            frames,
            updates: 1,
            loss: 0.1,
            td_error: 0.2,
            q: 0.3,
            entropy: 0.4,
            gradient_norm: 0.5,
            importance_weight: 0.6,
            replay_items: 7,
            replay_bytes: 8,
            frames_per_second: 9.5,
            updates_per_second: 10.5,
        };
        record.episode(&episode).expect("a line is written");
        record.evaluation(&evaluation).expect("a line is written");
        record.training(&training).expect("a line is written");
    }
}

pub fn seeds() -> Vec<Vec<u8>> {
    let directory = TempDir::new().expect("a directory for a seed");
    record(directory.path());
    let read = |path: &Path| fs::read(path).expect("it was written");
    let mut seeds: Vec<Vec<u8>> = Vec::new();
    for (kind, name) in (0u8..).zip(LINES.into_iter().chain([EVENTS])) {
        let file = read(&directory.path().join(name));
        seeds.push([&[kind], &file[..file.len() - 3]].concat());
        seeds.push([&[kind], &file[..]].concat());
        // A bad line between good ones, and numbers at the edge.
        seeds.push([&[kind], &file[..], b"\0\0\xff\n", &file[..]].concat());
        let text = String::from_utf8_lossy(&file).replace("1.5", "1.7e308").replace("2.0", "null");
        seeds.push([&[kind], text.as_bytes()].concat());
    }
    let manifest = read(&written(directory.path()).join("manifest.json"));
    seeds.push([&[MANIFEST_AT as u8], &manifest[..]].concat());
    let resolved = settings::Layers::default().resolve(Some(envs::CARTPOLE)).expect("the game has settings");
    let small = [
        resolved.to_toml(true),
        r#"{"capacity":"1000","min_size":"100"}"#.to_owned(),
        r#"{"ids":["a","b"],"returning":[1]}"#.to_owned(),
    ];
    seeds.extend((SMALL_AT as u8..).zip(small).map(|(kind, text)| [&[kind], text.as_bytes()].concat()));
    seeds
}
