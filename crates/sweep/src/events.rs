//! What happens in a sweep, as JSON for programs: one object per line, named by its key `event`.

use std::path::Path;

use serde_json::{Map, Value, json};
use settings::units::grouped;

use crate::plan::Run;
use crate::progress::Status;
use crate::scores::{FinalScores, final_score};
use crate::{LockedSweep, SweepOutcome};

/// What happened to a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RunEvent<'a> {
    /// It starts at its first frame.
    Started,
    /// It starts at a checkpoint.
    Resumed,
    /// Another process trains it, which is waited for.
    Elsewhere,
    /// It has trained to its end.
    Finished,
    /// It stopped on request.
    Stopped,
    /// Its process failed, for this reason.
    Failed(&'a str),
}

impl RunEvent<'_> {
    fn name(self) -> &'static str {
        match self {
            RunEvent::Started => "started",
            RunEvent::Resumed => "resumed",
            RunEvent::Elsewhere => "waiting",
            RunEvent::Finished => "finished",
            RunEvent::Stopped => "stopped",
            RunEvent::Failed(_) => "failed",
        }
    }

    /// The line for people. `frames` is where the run is.
    pub fn text(self, run: &Run, frames: u64) -> String {
        let (name, frames) = (&run.name, grouped(frames));
        match self {
            RunEvent::Started => format!("starting {name}"),
            RunEvent::Resumed => format!("resuming {name} at frame {frames}"),
            RunEvent::Elsewhere => format!("{name} is being trained by another process; waiting for it"),
            RunEvent::Finished => format!("{name} is done"),
            RunEvent::Stopped => format!("{name} stopped; it resumes at frame {frames}"),
            RunEvent::Failed(why) => why.to_owned(),
        }
    }

    /// The object for programs. `frames` is where the run is.
    pub fn json(self, run: &Run, frames: u64) -> Value {
        let mut value = described(run);
        value["event"] = self.name().into();
        value["frames"] = frames.into();
        match self {
            RunEvent::Failed(why) => value["error"] = why.into(),
            RunEvent::Finished => value["score"] = final_score(run).ok().flatten().into(),
            _ => {}
        }
        value
    }
}

/// The plan: all runs, with their state at the start.
pub fn plan(sweep: &LockedSweep<'_>) -> Value {
    let run = |run: &Run| {
        let mut value = described(run);
        let state = match run.resumes_at() {
            _ if run.is_finished() => "finished",
            Some(_) => "resumable",
            None => "new",
        };
        value["state"] = state.into();
        value["preset"] = run.resolved.preset.as_str().into();
        value["budget"] = run.budget().into();
        value["log"] = path(&run.log);
        value
    };
    let runs: Vec<Value> = sweep.runs().iter().map(run).collect();
    json!({ "event": "plan", "out": path(sweep.out()), "parallel": sweep.sweep().parallel, "runs": runs })
}

/// The progress of the whole sweep.
pub fn progress(status: &Status) -> Value {
    json!({
        "event": "progress",
        "runs": status.runs,
        "finished": status.finished,
        "running": status.running,
        "failed": status.failed,
        "frames": status.frames,
        "budget": status.budget,
        "frames_per_second": status.frames_per_second,
        "seconds_left": status.seconds_left,
    })
}

/// How the sweep ended.
pub fn summary(sweep: &LockedSweep<'_>, outcome: &SweepOutcome, scores: &[FinalScores]) -> Value {
    let runs = sweep.runs();
    let finished = runs.iter().filter(|run| run.is_finished()).count();
    json!({
        "event": "summary",
        "out": path(sweep.out()),
        "runs": runs.len(),
        "finished": finished,
        "failed": outcome.failures.len(),
        "stopped": outcome.stopped,
        "seconds": outcome.seconds,
        "failures": outcome.failures,
        "scores": scores.iter().map(FinalScores::json).collect::<Vec<_>>(),
    })
}

fn described(run: &Run) -> Value {
    json!({
        "run": run.name,
        "path": path(&run.path),
        "game": run.game,
        "settings": variant(&run.variant),
        "seed": run.seed,
    })
}

/// Values of varied settings as an object of strings.
pub fn variant(variant: &[(String, String)]) -> Value {
    let pairs = variant.iter().map(|(key, text)| (key.clone(), Value::from(text.as_str())));
    Value::Object(pairs.collect::<Map<_, _>>())
}

fn path(path: &Path) -> Value {
    path.display().to_string().into()
}
