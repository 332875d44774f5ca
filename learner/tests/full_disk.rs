//! A full disk while a run is recorded. A separate test process, because it limits the size of its own files.

use std::path::Path;
use std::sync::Arc;

use anyhow::Result;
use learner::checkpoint::RunState;
use learner::journal::Journal;
use learner::patience::until_written;
use replay::ReplayStatus;
use run::RunDir;
use run::averages::{RECORD_EVERY_UPDATES, UpdateMetrics};
use run::checkpoint::Checkpoint;
use run::record::{AGENT, Cut, Evaluation, Record, episodes, evaluations, training};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use settings::Layers;
use settings::choices::EvaluationPolicy;

/// Files may not grow beyond this: writes fail as on a full disk.
fn limit_files(bytes: Option<u64>) {
    let limit = getrlimit(Resource::Fsize);
    setrlimit(Resource::Fsize, Rlimit { current: bytes, ..limit }).unwrap();
}

fn journal(folder: &Path) -> Journal {
    let resolved = Layers::default().resolve(Some("cartpole")).unwrap();
    let directory = RunDir::create(folder, &resolved).unwrap();
    let record = Record::open(folder, &Cut::default()).unwrap();
    Journal::new(directory, record, RunState::default())
}

/// Writes while the disk is full; there is space again after the third attempt.
fn write_while_full<T>(journal: &mut Journal, write: impl FnMut(&mut Journal) -> Result<T>) -> T {
    limit_files(Some(0));
    let mut attempts = 0;
    let written = until_written(journal, write, |_, error, _| {
        assert!(format!("{error:#}").contains("free"), "it says what to do: {error:#}");
        attempts += 1;
        if attempts == 3 {
            limit_files(None);
        }
        true
    });
    assert_eq!(attempts, 3);
    written.unwrap()
}

#[test]
fn a_full_disk_pauses_the_record_and_then_everything_is_in_it_once() {
    // As the learner does; otherwise the limit kills the process.
    signal_hook::flag::register(signal_hook::consts::SIGXFSZ, Arc::default()).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let run = folder.path().join("run");
    let mut journal = journal(&run);
    for frames in 1..=3 {
        journal.state.frames = frames;
        write_while_full(&mut journal, |journal| journal.episode(frames as f64, 7, false));
    }
    assert_eq!(journal.training_score(), Some(2.0), "each score counts once");

    (0..RECORD_EVERY_UPDATES).for_each(|_| journal.update(&UpdateMetrics::default()));
    let replay = ReplayStatus::default();
    let entry = write_while_full(&mut journal, |journal| journal.training(200, &replay));
    assert!(entry.is_some());
    assert!(journal.training(200, &replay).unwrap().is_none());

    let evaluation = Evaluation { frames: 3, ..Evaluation::new(AGENT, EvaluationPolicy::Greedy, vec![5.0]) };
    write_while_full(&mut journal, |journal| journal.record_evaluation(&evaluation));
    let save = |_: &RunState, writer: &mut run::checkpoint::CheckpointWriter| {
        writer.file("weights.safetensors", |out| out.write_all(b"weights"))
    };
    write_while_full(&mut journal, |journal| journal.save_best(&evaluation, save));
    assert_eq!(journal.state.best, Some(5.0));
    write_while_full(&mut journal, |journal| journal.checkpoint(200, 2, save));
    write_while_full(&mut journal, |journal| journal.checkpoint(201, 2, save));

    let scores: Vec<f64> = episodes(&run).unwrap().values.iter().map(|episode| episode.score).collect();
    assert_eq!(scores, [1.0, 2.0, 3.0]);
    assert_eq!(
        (training(&run).unwrap().values.len(), evaluations(&run).unwrap().values),
        (1, vec![evaluation])
    );
    for name in ["best", "3"] {
        let checkpoint = Checkpoint::find(&run.join("checkpoints"), Some(name)).unwrap();
        assert_eq!(checkpoint.read("weights.safetensors").unwrap(), b"weights");
    }
}
