//! Other files of a run: its record, torn by a kill or worse, and a checkpoint with its manifest.
//!
//! Input: which (1 byte), the file.

use std::fs::{self, File};
use std::path::Path;

use run::checkpoint::{self, Checkpoint};
use run::record::{self, Cut, Episode, Evaluation, Record, Training};
use run::tensorboard;
use tempfile::TempDir;

const LINES: [&str; 3] = ["episodes.jsonl", "evaluations.jsonl", "training.jsonl"];
const EVENTS: &str = "events.out.tfevents.0.quiver";
const MANIFEST: usize = LINES.len() + 1;
const CONTENT: &[u8] = b"the content of a checkpoint's file";

pub fn run(data: &[u8]) {
    let Some((&kind, file)) = data.split_first() else { return };
    let directory = TempDir::new().expect("a directory for a run");
    match usize::from(kind) % (MANIFEST + 1) {
        MANIFEST => manifest(directory.path(), file),
        EVENTS_AT => {
            fs::write(directory.path().join(EVENTS), file).expect("a file is written");
            resumes(directory.path());
        }
        lines => {
            fs::write(directory.path().join(LINES[lines]), file).expect("a file is written");
            resumes(directory.path());
        }
    }
}

const EVENTS_AT: usize = LINES.len();

/// A resumed record continues after its last whole line, and every later line is whole.
fn resumes(run: &Path) {
    let before = record::episodes(run);
    let mut record = Record::resume(run).expect("a record can always be resumed");
    let episode = Episode { frames: 4, score: 1.5, steps: 1, truncated: false };
    record.episode(&episode).expect("a line is written");
    let cut = record.cut().expect("a record can be synced");
    drop(record);
    let mut events = File::open(run.join(EVENTS)).expect("a record has events");
    let length = events.metadata().expect("it was opened").len();
    assert_eq!(tensorboard::complete_length(&mut events).expect("a file can be read"), length);
    match (before, record::episodes(run)) {
        (Ok(before), Ok(after)) => {
            assert!(after.starts_with(&before[..after.len() - 1]) && after.last() == Some(&episode));
        }
        (Err(_), after) => assert!(after.is_err() || after.is_ok_and(|after| after == [episode])),
        (Ok(_), Err(error)) => panic!("a line too many has spoilt the record: {error}"),
    }
    let _ = (record::evaluations(run), record::training(run));
    let mut again = Record::open(run, &cut).expect("a record can be opened where it was cut");
    assert_eq!(again.cut().expect("a record can be synced"), cut);
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

fn written(folder: &Path) -> std::path::PathBuf {
    let two = checkpoint::write(folder, "1", |writer| {
        writer.file("a", |out| out.write_all(CONTENT))?;
        writer.file("b", |out| out.write_all(CONTENT))
    });
    two.expect("a checkpoint is written")
}

pub fn seeds() -> Vec<Vec<u8>> {
    let directory = TempDir::new().expect("a directory for a seed");
    let mut record = Record::open(directory.path(), &Cut::default()).expect("a new record");
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
    let read = |path: &Path| fs::read(path).expect("it was written");
    let mut seeds: Vec<Vec<u8>> = Vec::new();
    for (kind, name) in (0u8..).zip(LINES.into_iter().chain([EVENTS])) {
        let file = read(&directory.path().join(name));
        seeds.push([&[kind], &file[..file.len() - 3]].concat());
        seeds.push([&[kind], &file[..]].concat());
    }
    let manifest = read(&written(directory.path()).join("manifest.json"));
    seeds.push([&[MANIFEST as u8], &manifest[..]].concat());
    seeds
}
