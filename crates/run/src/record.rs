//! A run's record: episodes, evaluations and training figures as JSON lines and as TensorBoard events.
//!
//! The files only grow. A checkpoint stores their lengths. A lockstep run that resumes from it first truncates the files to
//! these lengths, so that nothing is recorded twice.
#![allow(clippy::disallowed_methods, reason = "the record and the progress line carry wall-clock time")]

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};
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
    files: [File; FILES.len()],
}

impl Record {
    /// Opens the record in `run` and truncates it to the lengths of a checkpoint (all zero for a new run).
    pub fn open(run: &Path, cut: &Cut) -> Result<Self, RunDirError> {
        let open = |index: usize| -> Result<File, RunDirError> {
            let path = run.join(FILES[index]);
            let open = || -> io::Result<File> {
                let mut file = File::options().create(true).truncate(false).write(true).open(&path)?;
                let length = file.metadata()?.len().min(cut.0[index]);
                file.set_len(length)?;
                file.seek(SeekFrom::End(0))?;
                Ok(file)
            };
            open().map_err(|error| io_error(&path, error))
        };
        let mut record = Self { files: [open(0)?, open(1)?, open(2)?, open(3)?] };
        if record.cut().is_ok_and(|cut| cut.0[EVENTS] == 0) {
            record.append(EVENTS, &tensorboard::header(now())).map_err(|error| io_error(run, error))?;
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
            file.sync_data()?;
            *length = file.stream_position()?;
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
        self.append(EPISODES, &lines)?;
        self.append(EVENTS, &events)
    }

    pub fn episode(&mut self, episode: &Episode) -> io::Result<()> {
        self.episodes(std::slice::from_ref(episode))
    }

    pub fn evaluation(&mut self, evaluation: &Evaluation) -> io::Result<()> {
        self.line(EVALUATIONS, evaluation)?;
        if evaluation.player == AGENT {
            self.scalars(evaluation.frames, &[("evaluation/score", evaluation.mean)])?;
        }
        Ok(())
    }

    pub fn training(&mut self, training: &Training) -> io::Result<()> {
        self.line(TRAINING, training)?;
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
        self.scalars(training.frames, &values)
    }

    fn line(&mut self, file: usize, value: &impl Serialize) -> io::Result<()> {
        let mut line = serde_json::to_vec(value)?;
        line.push(b'\n');
        self.append(file, &line)
    }

    fn scalars(&mut self, step: u64, values: &[(&str, f64)]) -> io::Result<()> {
        self.append(EVENTS, &tensorboard::scalars(now(), step, values))
    }

    fn append(&mut self, file: usize, bytes: &[u8]) -> io::Result<()> {
        self.files[file].write_all(bytes)
    }
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
        record.append(EPISODES, b"{\"frames\":2,").unwrap();
        let whole = Lines { values: vec![episode(1)], ..Lines::default() };
        assert_eq!(episodes(folder.path()).unwrap(), whole);
        record.append(EPISODES, b"\n").unwrap();
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
    fn the_standard_error_is_that_of_the_mean() {
        assert_eq!(Evaluation::mean_and_error(&[1.0, 3.0]), (2.0, 1.0));
        assert_eq!(Evaluation::mean_and_error(&[5.0]), (5.0, 0.0));
    }
}
