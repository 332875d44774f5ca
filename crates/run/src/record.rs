//! A run's record: episodes, evaluations and training figures as JSON lines and as TensorBoard events.
//!
//! The files only grow. A checkpoint stores their lengths. A lockstep run that resumes from it first truncates the files to
//! these lengths, so that nothing is recorded twice.
#![allow(clippy::disallowed_methods, reason = "the record and the progress line carry wall-clock time")]

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::averages;
use crate::directory::{RunDirError, io_error};
use crate::lines::{self, Lines};
use crate::tensorboard;
use settings::choices::EvaluationPolicy;

/// A finished training game.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Episode {
    /// Frames of the whole run when it ended.
    pub frames: u64,
    /// Unclipped score.
    pub score: f64,
    pub steps: u64,
    /// Whether the time limit cut it off.
    pub truncated: bool,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Evaluation {
    pub frames: u64,
    pub updates: u64,
    /// The player: `agent`, `random`, `untrained` or `constant <ACTION>`.
    pub player: String,
    /// How it chose actions.
    pub policy: EvaluationPolicy,
    /// Mean score.
    pub mean: f64,
    /// Standard error of the mean.
    pub standard_error: f64,
    /// Every score, unclipped.
    pub scores: Vec<f64>,
}

impl Evaluation {
    /// An evaluation of a player that was not trained: mean and standard error of the scores, after 0 frames and 0 updates.
    pub fn new(player: impl Into<String>, policy: EvaluationPolicy, scores: Vec<f64>) -> Self {
        let (mean, standard_error) = Self::mean_and_error(&scores);
        Self { frames: 0, updates: 0, player: player.into(), policy, mean, standard_error, scores }
    }

    /// Mean and standard error of the mean (0 for a single score). Finite for finite scores.
    pub fn mean_and_error(scores: &[f64]) -> (f64, f64) {
        let (mean, error) = mean_and_error(scores);
        if mean.is_finite() && error.is_finite() {
            return (mean, error);
        }
        // A sum or a square was too large: compute in units of the largest score. The usual way comes first, so that
        // the digits of usual scores do not change.
        let unit = scores.iter().fold(0.0, |most: f64, score| most.max(score.abs()));
        let scaled: Vec<f64> = scores.iter().map(|score| score / unit).collect();
        let (mean, error) = mean_and_error(&scaled);
        let finite = |number: f64| number.clamp(f64::MIN, f64::MAX);
        (finite(mean * unit), finite(error * unit))
    }
}

fn mean_and_error(scores: &[f64]) -> (f64, f64) {
    let count = scores.len() as f64;
    let mean = averages::mean(scores);
    let variance = scores.iter().map(|score| (score - mean).powi(2)).sum::<f64>() / (count - 1.0).max(1.0);
    (mean, (variance / count).sqrt())
}

/// Means over the updates since the previous entry.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Training {
    pub frames: u64,
    pub updates: u64,
    /// Mean loss.
    pub loss: f64,
    /// Mean |TD|.
    pub td_error: f64,
    /// Mean Q-value over states and actions.
    pub q: f64,
    /// Mean entropy of the policy in the sampled states, in nats.
    pub entropy: f64,
    /// Mean norm of the gradient before clamping.
    pub gradient_norm: f64,
    /// Mean importance weight.
    pub importance_weight: f64,
    /// Transitions in the replay.
    pub replay_items: u64,
    /// Compressed bytes of frames in the replay.
    pub replay_bytes: u64,
    /// Frames per second of wall time.
    pub frames_per_second: f64,
    /// Updates per second of wall time.
    pub updates_per_second: f64,
}

/// The lengths of the files at a checkpoint.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cut([u64; FILES.len()]);

impl Cut {
    /// Lengths that truncate nothing.
    pub fn whole() -> Self {
        Self([u64::MAX; FILES.len()])
    }
}

/// The file of a run's directory that holds its evaluations.
pub const EVALUATIONS_FILE: &str = "evaluations.jsonl";

const FILES: [&str; 4] =
    ["episodes.jsonl", EVALUATIONS_FILE, "training.jsonl", "events.out.tfevents.0.quiver"];
const EPISODES: usize = 0;
const EVALUATIONS: usize = 1;
const TRAINING: usize = 2;
const EVENTS: usize = 3;

/// The open files of a run's record.
#[derive(Debug)]
pub struct Record {
    files: [Tail; FILES.len()],
}

/// The end of a file that only grows, by whole entries. An entry that could not be written, on a full disk, leaves
/// nothing behind and can be written again.
#[derive(Debug)]
struct Tail {
    file: File,
    /// End of the last whole entry.
    length: u64,
    /// Part of an entry may be behind it.
    is_torn: bool,
    /// Everything before this is on disk.
    synced: u64,
    /// A sync failed: the kernel may take for written what is not on disk.
    sync_failed: bool,
}

impl Tail {
    fn new(file: File) -> io::Result<Self> {
        let length = file.metadata()?.len();
        Ok(Self { file, length, is_torn: false, synced: length, sync_failed: false })
    }

    fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.repair()?;
        self.is_torn = true;
        self.file.write_all_at(bytes, self.length)?;
        self.is_torn = false;
        self.length += bytes.len() as u64;
        Ok(())
    }

    /// Goes back to an earlier end.
    fn truncate(&mut self, length: u64) {
        self.is_torn |= length < self.length;
        self.length = length;
        // If this fails, the next append does it first.
        let _ = self.repair();
    }

    fn repair(&mut self) -> io::Result<()> {
        if self.is_torn {
            self.file.set_len(self.length)?;
            self.is_torn = false;
        }
        Ok(())
    }

    fn sync(&mut self) -> io::Result<()> {
        self.repair()?;
        if self.sync_failed {
            self.rewrite()?;
        }
        self.sync_failed = true;
        self.file.sync_data()?;
        (self.sync_failed, self.synced) = (false, self.length);
        Ok(())
    }

    /// Writes everything that no sync has covered once more: after a failed sync another one alone would report success
    /// for what the kernel has dropped.
    fn rewrite(&self) -> io::Result<()> {
        const PIECE: u64 = 1 << 16;
        let mut at = self.synced.min(self.length);
        while at < self.length {
            let mut piece = vec![0; PIECE.min(self.length - at) as usize];
            self.file.read_exact_at(&mut piece, at)?;
            self.file.write_all_at(&piece, at)?;
            at += piece.len() as u64;
        }
        Ok(())
    }
}

impl Record {
    /// Opens the record in `run` and truncates it to the lengths of a checkpoint (all zero for a new run).
    pub fn open(run: &Path, cut: &Cut) -> Result<Self, RunDirError> {
        let open = |index: usize| -> Result<Tail, RunDirError> {
            let path = run.join(FILES[index]);
            let open = || -> io::Result<Tail> {
                let file = File::options().create(true).truncate(false).read(true).write(true).open(&path)?;
                let length = file.metadata()?.len().min(cut.0[index]);
                file.set_len(length)?;
                Tail::new(file)
            };
            open().map_err(|error| io_error(&path, error))
        };
        let mut record = Self { files: [open(0)?, open(1)?, open(2)?, open(3)?] };
        if record.cut().is_ok_and(|cut| cut.0[EVENTS] == 0) {
            record.append(&[(EVENTS, tensorboard::header(now()))]).map_err(|error| io_error(run, error))?;
        }
        Ok(record)
    }

    /// Opens the record in `run` to append to it. An incomplete last line or event, left by a kill, is truncated.
    pub fn resume(run: &Path) -> Result<Self, RunDirError> {
        let mut cut = Cut::default();
        for (index, length) in cut.0.iter_mut().enumerate() {
            let path = run.join(FILES[index]);
            let complete = match File::open(&path) {
                Ok(mut file) if index == EVENTS => tensorboard::complete_length(&mut file),
                Ok(mut file) => complete_lines(&mut file),
                Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(0),
                Err(error) => Err(error),
            };
            *length = complete.map_err(|error| io_error(&path, error))?;
        }
        Self::open(run, &cut)
    }

    /// Syncs the files to disk and returns their lengths.
    pub fn cut(&mut self) -> io::Result<Cut> {
        let mut cut = Cut::default();
        for (length, file) in cut.0.iter_mut().zip(&mut self.files) {
            file.sync()?;
            *length = file.length;
        }
        Ok(cut)
    }

    /// Appends episodes with one write to each file, because members report hundreds at a time.
    pub fn episodes(&mut self, episodes: &[Episode]) -> io::Result<()> {
        let (mut lines, mut events, time) = (Vec::new(), Vec::new(), now());
        for episode in episodes {
            serde_json::to_writer(&mut lines, episode)?;
            lines.push(b'\n');
            let values = [("training/score", episode.score), ("training/steps", episode.steps as f64)];
            events.extend(tensorboard::scalars(time, episode.frames, &values));
        }
        self.append(&[(EPISODES, lines), (EVENTS, events)])
    }

    pub fn episode(&mut self, episode: &Episode) -> io::Result<()> {
        self.episodes(std::slice::from_ref(episode))
    }

    pub fn evaluation(&mut self, evaluation: &Evaluation) -> io::Result<()> {
        let mut entries = vec![line(EVALUATIONS, evaluation)?];
        if evaluation.player == AGENT {
            entries.push(scalars_of(evaluation.frames, &[("evaluation/score", evaluation.mean)]));
        }
        self.append(&entries)
    }

    pub fn training(&mut self, training: &Training) -> io::Result<()> {
        let values = [
            ("learner/loss", training.loss),
            ("learner/td_error", training.td_error),
            ("learner/q", training.q),
            ("learner/entropy", training.entropy),
            ("learner/gradient_norm", training.gradient_norm),
            ("learner/importance_weight", training.importance_weight),
            ("replay/items", training.replay_items as f64),
            ("replay/bytes", training.replay_bytes as f64),
            ("speed/frames_per_second", training.frames_per_second),
            ("speed/updates_per_second", training.updates_per_second),
        ];
        self.append(&[line(TRAINING, training)?, scalars_of(training.frames, &values)])
    }

    /// Appends entries to files: all of them, or none if one fails.
    fn append(&mut self, entries: &[(usize, Vec<u8>)]) -> io::Result<()> {
        let before = self.files.each_ref().map(|tail| tail.length);
        let appended = entries.iter().try_for_each(|(file, bytes)| self.files[*file].append(bytes));
        if appended.is_err() {
            self.files.iter_mut().zip(before).for_each(|(tail, length)| tail.truncate(length));
        }
        appended
    }
}

fn line(file: usize, value: &impl Serialize) -> io::Result<(usize, Vec<u8>)> {
    let mut line = serde_json::to_vec(value)?;
    line.push(b'\n');
    Ok((file, line))
}

fn scalars_of(step: u64, values: &[(&str, f64)]) -> (usize, Vec<u8>) {
    (EVENTS, tensorboard::scalars(now(), step, values))
}

/// A start of the learner and the checkpoint it resumed from. Updates between that checkpoint and this start are lost; their
/// frames still count towards the budget.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LearnerStart {
    /// Incarnation of the learner.
    pub incarnation: u32,
    /// Frames of the checkpoint that it resumed from; 0 without one.
    pub frames: u64,
    /// Updates of that checkpoint.
    pub updates: u64,
    /// Seconds since 1970.
    pub time: f64,
}

impl LearnerStart {
    /// Appends a line about a start that happens now.
    pub fn append(run: &Path, incarnation: u32, frames: u64, updates: u64) -> Result<(), RunDirError> {
        let path = run.join("starts.jsonl");
        let start = Self { incarnation, frames, updates, time: now() };
        let append = || -> io::Result<()> {
            let mut line = serde_json::to_vec(&start)?;
            line.push(b'\n');
            File::options().create(true).append(true).open(&path)?.write_all(&line)
        };
        append().map_err(|error| io_error(&path, error))
    }
}

/// The length of a file up to its last complete line.
fn complete_lines(file: &mut File) -> io::Result<u64> {
    const BLOCK: u64 = 1 << 16;
    let mut end = file.metadata()?.len();
    while end > 0 {
        let start = end.saturating_sub(BLOCK);
        let mut block = vec![0; (end - start) as usize];
        file.seek(SeekFrom::Start(start))?;
        file.read_exact(&mut block)?;
        if let Some(at) = block.iter().rposition(|byte| *byte == b'\n') {
            return Ok(start + at as u64 + 1);
        }
        end = start;
    }
    Ok(0)
}

/// The name under which the trained agent's evaluations are recorded.
pub const AGENT: &str = "agent";

/// Reads a run's evaluations.
pub fn evaluations(run: &Path) -> Result<Lines<Evaluation>, RunDirError> {
    read(&run.join(FILES[EVALUATIONS]))
}

/// Reads a run's training episodes.
pub fn episodes(run: &Path) -> Result<Lines<Episode>, RunDirError> {
    read(&run.join(FILES[EPISODES]))
}

/// Reads a run's training figures.
pub fn training(run: &Path) -> Result<Lines<Training>, RunDirError> {
    read(&run.join(FILES[TRAINING]))
}

fn read<T: DeserializeOwned>(path: &Path) -> Result<Lines<T>, RunDirError> {
    lines::read(path).map_err(|error| io_error(path, error))
}

fn now() -> f64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0.0, |since| since.as_secs_f64())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn episode(frames: u64) -> Episode {
        Episode { frames, score: 1.5, steps: 10, truncated: false }
    }

    #[test]
    fn a_truncated_record_drops_what_came_after_the_checkpoint() {
        let folder = tempfile::tempdir().unwrap();
        let mut record = Record::open(folder.path(), &Cut::default()).unwrap();
        record.episode(&episode(1)).unwrap();
        let cut = record.cut().unwrap();
        record.episode(&episode(2)).unwrap();
        drop(record);
        let mut record = Record::open(folder.path(), &cut).unwrap();
        record.episode(&episode(3)).unwrap();
        assert_eq!(episodes(folder.path()).unwrap().values, [episode(1), episode(3)]);
    }

    #[test]
    fn an_incomplete_last_line_is_skipped() {
        let folder = tempfile::tempdir().unwrap();
        let mut record = Record::open(folder.path(), &Cut::default()).unwrap();
        record.episode(&episode(1)).unwrap();
        record.append(&[(EPISODES, b"{\"frames\":2,".to_vec())]).unwrap();
        let whole = Lines { values: vec![episode(1)], ..Lines::default() };
        assert_eq!(episodes(folder.path()).unwrap(), whole);
        record.append(&[(EPISODES, b"\n".to_vec())]).unwrap();
        let read = episodes(folder.path()).unwrap();
        assert_eq!((read.values, read.bad[0].line), (vec![episode(1)], 2));
    }

    #[test]
    fn a_record_resumes_after_the_last_complete_entry() {
        let folder = tempfile::tempdir().unwrap();
        let mut record = Record::resume(folder.path()).unwrap();
        record.episode(&episode(1)).unwrap();
        let whole = record.cut().unwrap();
        record.episode(&episode(2)).unwrap();
        let two = record.cut().unwrap();
        for file in FILES {
            let path = folder.path().join(file);
            let length = std::fs::metadata(&path).unwrap().len();
            File::options().write(true).open(&path).unwrap().set_len(length.saturating_sub(3)).unwrap();
        }
        let mut record = Record::resume(folder.path()).unwrap();
        let cut = record.cut().unwrap();
        assert_eq!(cut.0[EPISODES], whole.0[EPISODES]);
        // An episode writes two scalars in one event: the event may be complete although the file is cut.
        assert!(cut.0[EVENTS] >= whole.0[EVENTS] && cut.0[EVENTS] < two.0[EVENTS]);
        record.episode(&episode(3)).unwrap();
        assert_eq!(episodes(folder.path()).unwrap().values, [episode(1), episode(3)]);
    }

    #[test]
    fn a_mean_of_finite_scores_is_finite() {
        let largest = f64::MAX;
        assert_eq!(Evaluation::mean_and_error(&[1.7e308, 1.7e308]), (1.7e308, 0.0));
        for scores in [
            &[largest, largest, -largest][..],
            &[largest, -largest],
            &[1e200, 3e200],
            &[largest],
            &[largest; 3],
        ] {
            let (mean, error) = Evaluation::mean_and_error(scores);
            assert!(mean.is_finite() && error.is_finite(), "{scores:?}: {mean} ± {error}");
        }
        let evaluation = Evaluation::new(AGENT, EvaluationPolicy::Greedy, vec![1.7e308, 1.7e308]);
        let text = serde_json::to_string(&evaluation).unwrap();
        assert_eq!(serde_json::from_str::<Evaluation>(&text).unwrap(), evaluation);
    }

    #[test]
    fn an_entry_that_fails_half_way_leaves_nothing_and_can_be_recorded_again() {
        let folder = tempfile::tempdir().unwrap();
        let mut record = Record::open(folder.path(), &Cut::default()).unwrap();
        record.episode(&episode(1)).unwrap();
        let before = record.cut().unwrap();
        // The line is written, and the disk is full when its event follows.
        let full = File::options().read(true).write(true).open("/dev/full").unwrap();
        let events = std::mem::replace(&mut record.files[EVENTS].file, full);
        for attempt in 0..3 {
            let error = record.episode(&episode(2)).unwrap_err();
            assert!(attempt > 0 || error.kind() == io::ErrorKind::StorageFull, "{error}");
            assert_eq!(episodes(folder.path()).unwrap().values, [episode(1)]);
        }
        record.files[EVENTS].file = events;
        record.episode(&episode(2)).unwrap();
        assert_eq!(episodes(folder.path()).unwrap().values, [episode(1), episode(2)]);
        let events = std::fs::read(folder.path().join(FILES[EVENTS])).unwrap().len() as u64;
        let after = record.cut().unwrap();
        assert!(after.0[EVENTS] == events && after.0[EPISODES] > before.0[EPISODES]);
    }

    #[test]
    fn what_a_failed_sync_may_have_lost_is_written_again_before_the_next() {
        let folder = tempfile::tempdir().unwrap();
        let mut record = Record::open(folder.path(), &Cut::default()).unwrap();
        record.episode(&episode(1)).unwrap();
        record.cut().unwrap();
        record.episode(&episode(2)).unwrap();
        // A device that has no sync.
        let device = File::options().read(true).write(true).open("/dev/null").unwrap();
        let file = std::mem::replace(&mut record.files[EPISODES].file, device);
        record.cut().unwrap_err();
        record.files[EPISODES].file = file;
        assert!(record.files[EPISODES].sync_failed && record.files[EPISODES].synced > 0);
        let cut = record.cut().unwrap();
        let tail = &record.files[EPISODES];
        assert!(!tail.sync_failed && tail.synced == cut.0[EPISODES]);
        assert_eq!(episodes(folder.path()).unwrap().values, [episode(1), episode(2)]);
    }

    #[test]
    fn the_standard_error_is_that_of_the_mean() {
        assert_eq!(Evaluation::mean_and_error(&[1.0, 3.0]), (2.0, 1.0));
        assert_eq!(Evaluation::mean_and_error(&[5.0]), (5.0, 0.0));
    }
}
