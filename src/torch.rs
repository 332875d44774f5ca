//! Starts the programs that link libtorch: `quiver-lockstep`, and `quiver-paper` for the paper's figures.
//!
//! Before this process replaces itself by one of them, it runs the program once as a probe to see whether libtorch loads.
//! The dynamic loader's own message names a shared object; ours adds the remedy.
#![allow(clippy::disallowed_methods, reason = "the launcher polls its child processes")]

use std::env;
use std::io::{ErrorKind, Read};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{anyhow, bail};
use run::command;

use crate::output::one_line;
use crate::programs::{self, LOCKSTEP, PAPER};

/// How long libtorch may take to load. Half a gigabyte from a cold disk takes seconds, not minutes.
const PROBE_WAIT_MAX: Duration = Duration::from_secs(60);

/// The exit code when the dynamic loader fails.
const LOADER_FAILED: i32 = 127;

/// Replaces this process by the program that executes `request`. Returns only on an error.
pub fn hand_over(request: &command::Command) -> anyhow::Result<()> {
    let program = program(request);
    probe_of(program)?;
    let error = command(program, request)?.exec();
    Err(cannot_start(program, &error))
}

/// The program that executes a command.
fn program(request: &command::Command) -> &'static str {
    match request {
        command::Command::Paper(_) => PAPER,
        command::Command::Probe
        | command::Command::Train { .. }
        | command::Command::Evaluate { .. }
        | command::Command::Play { .. } => LOCKSTEP,
    }
}

/// The result of a probe.
#[derive(Debug, PartialEq, Eq)]
pub struct Probed {
    /// Whether libtorch computed a sum correctly.
    pub works: bool,
    /// The number of GPUs that libtorch finds.
    pub gpus: u64,
}

/// Runs `quiver-lockstep` to check that libtorch loads and works.
pub fn probe() -> anyhow::Result<Probed> {
    probe_of(LOCKSTEP)
}

fn probe_of(program: &str) -> anyhow::Result<Probed> {
    let mut command = command(program, &command::Command::Probe)?;
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().map_err(|error| cannot_start(program, &error))?;
    let status = wait(&mut child)?;
    let (mut out, mut err) = (String::new(), String::new());
    // The output is a few lines and fits the pipes' buffers, so reading after the exit cannot deadlock.
    child.stdout.take().expect("piped").read_to_string(&mut out)?;
    child.stderr.take().expect("piped").read_to_string(&mut err)?;
    check_exit(program, status, &err)?;
    read_answer(program, &out)
}

fn read_answer(program: &str, out: &str) -> anyhow::Result<Probed> {
    let answer: Option<serde_json::Value> = serde_json::from_str(out).ok();
    let read =
        |answer: &serde_json::Value| Some((answer.get("works")?.as_bool()?, answer.get("gpus")?.as_u64()?));
    match answer.as_ref().and_then(read) {
        Some((works, gpus)) => Ok(Probed { works, gpus }),
        None => bail!("quiver and {program} are different versions: run 'make build'"),
    }
}

fn command(program: &str, request: &command::Command) -> anyhow::Result<Command> {
    let mut command = Command::new(programs::find(program)?);
    command.arg(serde_json::to_string(request)?);
    make_openmp_passive(&mut command);
    Ok(command)
}

/// Sets OMP_WAIT_POLICY: by default idle OpenMP threads spin and take CPU time from other processes.
pub fn make_openmp_passive(command: &mut Command) {
    if env::var_os("OMP_WAIT_POLICY").is_none() {
        command.env("OMP_WAIT_POLICY", "passive");
    }
}

fn wait(child: &mut Child) -> anyhow::Result<ExitStatus> {
    let started = Instant::now();
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(status);
        }
        if started.elapsed() > PROBE_WAIT_MAX {
            let _ = child.kill();
            let _ = child.wait();
            let seconds = PROBE_WAIT_MAX.as_secs();
            bail!("libtorch did not load within {seconds} s: check free memory and the disk, then try again");
        }
        thread::sleep(Duration::from_millis(5));
    }
}

fn check_exit(program: &str, status: ExitStatus, err: &str) -> anyhow::Result<()> {
    if status.success() {
        return Ok(());
    }
    let remedy = "run 'make setup', or set LD_LIBRARY_PATH to its folder";
    if let Some((_, what)) = err.split_once("error while loading shared libraries: ") {
        let object = what.split(':').next().unwrap_or(what).trim();
        bail!("libtorch is missing or damaged ({object}): {remedy}");
    }
    if status.code() == Some(LOADER_FAILED) || status.signal().is_some() {
        let message = one_line(err);
        let what = if message.is_empty() { status.to_string() } else { message };
        bail!("libtorch is missing or damaged ({what}): {remedy}");
    }
    bail!("{program} can't start ({}): run 'make build'", one_line(err.trim_start_matches("error: ")));
}

fn cannot_start(program: &str, error: &std::io::Error) -> anyhow::Error {
    match error.kind() {
        ErrorKind::ArgumentListTooLong => anyhow!("can't start {program}: {error}; use shorter paths"),
        _ => anyhow!("can't start {program}: {error}; run 'make build'"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(code: i32, err: &str) -> String {
        check_exit(LOCKSTEP, ExitStatus::from_raw(code), err).unwrap_err().to_string()
    }

    #[test]
    fn a_loader_error_is_reported_with_a_remedy() {
        let loader = "quiver-lockstep: error while loading shared libraries: libc10.so: cannot open shared object file";
        let expected = "libtorch is missing or damaged (libc10.so): run 'make setup', or set LD_LIBRARY_PATH to its folder";
        assert_eq!(message(127 << 8, loader), expected);
        assert!(message(127 << 8, "x: symbol lookup error: y").contains("symbol lookup error"));
        assert!(message(7, "").contains("libtorch is missing or damaged (signal: 7"));
        assert!(check_exit(LOCKSTEP, ExitStatus::from_raw(0), "a warning").is_ok());
    }

    #[test]
    fn the_answer_of_another_version_is_an_error() {
        assert_eq!(
            read_answer(LOCKSTEP, "{\"works\":true,\"gpus\":2}\n").unwrap(),
            Probed { works: true, gpus: 2 }
        );
        for answer in ["", "2.13.0", "{\"works\":1}"] {
            assert!(
                read_answer(LOCKSTEP, answer).unwrap_err().to_string().contains("make build"),
                "{answer}"
            );
        }
    }

    #[test]
    fn any_other_failure_is_quoted() {
        assert_eq!(
            message(1 << 8, "error: bad\nrequest"),
            "quiver-lockstep can't start (bad request): run 'make build'"
        );
    }
}
