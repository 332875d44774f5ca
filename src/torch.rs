//! The other half of the command: `quiver-lockstep`, and `quiver-paper` for the paper's figures, which link libtorch.
//!
//! Before this process becomes either, it is run once to see whether libtorch loads. The loader's own message is about
//! a shared object; ours says what to do.

use std::env;
use std::io::{ErrorKind, Read};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{anyhow, bail};
use run::order::Order;

use crate::output::one_line;
use crate::programs::{self, LOCKSTEP, PAPER};

/// How long libtorch may take to load: half a gigabyte from a cold disk is seconds, not minutes.
const PROBE_WAIT_MAX: Duration = Duration::from_secs(60);

/// The exit code of the dynamic loader.
const LOADER_FAILED: i32 = 127;

/// Becomes the other half with `order`; comes back only with an error.
pub fn hand_over(order: &Order) -> anyhow::Result<()> {
    let program = program(order);
    probe_of(program)?;
    let error = command(program, order)?.exec();
    Err(cannot_start(program, &error))
}

/// Who does it.
fn program(order: &Order) -> &'static str {
    match order {
        Order::Paper(_) => PAPER,
        Order::Probe | Order::Train { .. } | Order::Evaluate { .. } | Order::Play { .. } => LOCKSTEP,
    }
}

/// What the other half says of libtorch.
#[derive(Debug, PartialEq, Eq)]
pub struct Probed {
    /// A sum came out right.
    pub works: bool,
    /// How many GPUs it sees.
    pub gpus: u64,
}

/// Asks the other half whether libtorch loads and works.
pub fn probe() -> anyhow::Result<Probed> {
    probe_of(LOCKSTEP)
}

fn probe_of(program: &str) -> anyhow::Result<Probed> {
    let mut command = command(program, &Order::Probe)?;
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().map_err(|error| cannot_start(program, &error))?;
    let status = wait(&mut child)?;
    let (mut out, mut err) = (String::new(), String::new());
    // A few lines, which the pipes have held.
    child.stdout.take().expect("piped").read_to_string(&mut out)?;
    child.stderr.take().expect("piped").read_to_string(&mut err)?;
    judge(program, status, &err)?;
    read_answer(program, &out)
}

fn read_answer(program: &str, out: &str) -> anyhow::Result<Probed> {
    let answer: Option<serde_json::Value> = serde_json::from_str(out).ok();
    let read =
        |answer: &serde_json::Value| Some((answer.get("works")?.as_bool()?, answer.get("gpus")?.as_u64()?));
    match answer.as_ref().and_then(read) {
        Some((works, gpus)) => Ok(Probed { works, gpus }),
        None => bail!("quiver and {program} differ in version: run `make build`"),
    }
}

fn command(program: &str, order: &Order) -> anyhow::Result<Command> {
    let mut command = Command::new(programs::find(program)?);
    command.arg(serde_json::to_string(order)?);
    calm(&mut command);
    Ok(command)
}

/// Idle OpenMP threads spin by default and take the cores from whoever has work.
pub fn calm(command: &mut Command) {
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
            bail!(
                "libtorch did not load within {seconds} s: is memory short or the disk slow? then try again"
            );
        }
        thread::sleep(Duration::from_millis(5));
    }
}

fn judge(program: &str, status: ExitStatus, err: &str) -> anyhow::Result<()> {
    if status.success() {
        return Ok(());
    }
    let mend = "run `make setup`, or set LD_LIBRARY_PATH to its folder";
    if let Some((_, what)) = err.split_once("error while loading shared libraries: ") {
        let object = what.split(':').next().unwrap_or(what).trim();
        bail!("libtorch is missing or damaged ({object}): {mend}");
    }
    if status.code() == Some(LOADER_FAILED) || status.signal().is_some() {
        let said = one_line(err);
        let what = if said.is_empty() { status.to_string() } else { said };
        bail!("libtorch is missing or damaged ({what}): {mend}");
    }
    bail!("{program} can't start ({}): run `make build`", one_line(err.trim_start_matches("error: ")));
}

fn cannot_start(program: &str, error: &std::io::Error) -> anyhow::Error {
    match error.kind() {
        ErrorKind::ArgumentListTooLong => anyhow!("can't start {program}: {error}; use shorter paths"),
        _ => anyhow!("can't start {program}: {error}; run `make build`"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(code: i32, err: &str) -> String {
        judge(LOCKSTEP, ExitStatus::from_raw(code), err).unwrap_err().to_string()
    }

    #[test]
    fn the_loaders_message_becomes_advice() {
        let loader = "quiver-lockstep: error while loading shared libraries: libc10.so: cannot open shared object file";
        let expected = "libtorch is missing or damaged (libc10.so): run `make setup`, or set LD_LIBRARY_PATH to its folder";
        assert_eq!(said(127 << 8, loader), expected);
        assert!(said(127 << 8, "x: symbol lookup error: y").contains("symbol lookup error"));
        assert!(said(7, "").contains("libtorch is missing or damaged (signal: 7"));
        assert!(judge(LOCKSTEP, ExitStatus::from_raw(0), "a warning").is_ok());
    }

    #[test]
    fn an_answer_of_another_version_is_told_from_ours() {
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
            said(1 << 8, "error: bad\norder"),
            "quiver-lockstep can't start (bad order): run `make build`"
        );
    }
}
