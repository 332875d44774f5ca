//! Starts and stops the processes of single runs, and reads the ends of their logs.

use std::fs::{self, File};
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use anyhow::{Context, Result};
use run::directory::{RunDirError, check_free, write_atomically};
use rustix::process::{Pid, Signal, kill_process};
use settings::SETTINGS;
use settings::resolve::variable;

use crate::plan::Run;

/// How much of a failed run's log is quoted.
const QUOTED_LINES: usize = 5;
const QUOTED_BYTES_MAX: u64 = 4 << 10;

/// Asks a run to write a checkpoint and exit. The child is not reaped yet, so its pid can't belong to another process.
pub fn terminate(child: &mut Child) {
    let _ = kill_process(Pid::from_child(child), Signal::TERM);
}

/// Starts a run in its own process group, so that Ctrl-C in a terminal reaches only the sweep, which forwards it once.
/// If the sweep dies, the run's stdin closes and the run exits.
///
/// A run starts from a file with all its settings, so that it has the planned ones even if the sweep's config file has
/// changed since. For the same reason it does not see `QUIVER_…` variables of settings, which are part of the plan.
pub fn start(quiver: &Path, run: &Run) -> Result<Child> {
    let resumes = run.resumes_at().is_some();
    if !resumes && run.path.exists() {
        // The run was killed before its first checkpoint, so it starts over.
        fs::remove_dir_all(&run.path).with_context(|| format!("can't delete {}", run.path.display()))?;
    }
    if !resumes {
        write_atomically(&run.config, run.resolved.to_toml(false).as_bytes())?;
    }
    let arguments = run.arguments();
    let open = || File::options().create(true).append(true).open(&run.log);
    let mut log =
        open().with_context(|| format!("can't write {}: free some disk space", run.log.display()))?;
    writeln!(log, "$ quiver {}", arguments.join(" "))?;
    let errors = log.try_clone()?;
    let mut command = Command::new(quiver);
    command.args(arguments).stdin(Stdio::piped()).stdout(log).stderr(errors).process_group(0);
    for setting in SETTINGS {
        command.env_remove(variable(setting.key));
    }
    command.spawn().with_context(|| format!("can't start {}: run `make build`", quiver.display()))
}

/// Whether another process trains the run now.
pub fn is_elsewhere(run: &Run) -> bool {
    matches!(check_free(&run.path), Err(RunDirError::InUse(_)))
}

/// The end of a run's log.
pub fn log_tail(run: &Run) -> String {
    let text = tail(&run.log, QUOTED_BYTES_MAX).unwrap_or_default();
    let lines: Vec<&str> = text.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    let last = &lines[lines.len().saturating_sub(QUOTED_LINES)..];
    format!("; the end of {} is\n  {}", run.log.display(), last.join("\n  "))
}

/// The last bytes of a file as text.
pub fn tail(path: &Path, bytes_max: u64) -> std::io::Result<String> {
    let mut file = File::open(path)?;
    let length = file.metadata()?.len();
    file.seek(SeekFrom::Start(length.saturating_sub(bytes_max)))?;
    let mut bytes = Vec::new();
    file.take(bytes_max).read_to_end(&mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}
