//! Starts `quiver-lockstep` as `quiver` would.
#![allow(clippy::disallowed_methods, reason = "the test waits for real processes and sockets")]

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use run::command;
use settings::Layers;
use sha2::{Digest, Sha256};

/// The order to train `game` with some settings.
pub fn order(path: &Path, game: &str, settings: &[(&str, &str)], resume: bool) -> String {
    let settings = settings.iter().chain(&[("lockstep", "true")]);
    let flags = settings.map(|(key, text)| ((*key).into(), (*text).into())).collect();
    let resolved = Layers { flags, ..Layers::default() }.resolve(Some(game)).unwrap();
    let (run, resolved) = (path.to_owned(), Box::new(resolved));
    let order = command::Command::Train { run, resolved, resume, exit_with_parent: false };
    serde_json::to_string(&order).unwrap()
}

/// The program with one order, one torch thread, and its output kept.
pub fn command(order: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_quiver-lockstep"));
    command.arg(order).env("OMP_NUM_THREADS", "1").stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// Runs to the end and demands success.
pub fn succeed(order: &str) -> String {
    let output = command(order).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{text}{}", String::from_utf8_lossy(&output.stderr));
    text
}

/// Demands a failure with a message of one line, and returns that line.
pub fn refused(output: &Output) -> String {
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!output.status.success(), "should have failed: {text}");
    let errors: Vec<_> = text.lines().filter(|line| line.starts_with("error: ")).collect();
    assert_eq!(errors.len(), 1, "{text}");
    assert!(text.ends_with(&format!("{}\n", errors[0])), "the error is the last line: {text}");
    errors[0].to_owned()
}

/// A hash of the final weights.
pub fn final_weights(path: &Path) -> String {
    let bytes = std::fs::read(path.join("checkpoints/final/weights.safetensors")).unwrap();
    Sha256::digest(&bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Waits until the run has written its first checkpoints.
pub fn wait_for_checkpoint(path: &Path, least: u64, child: &mut Child) -> PathBuf {
    let folder = path.join("checkpoints");
    let patience = Instant::now() + Duration::from_secs(300);
    loop {
        if let Some(number) = run::checkpoint::numbers(&folder).last().filter(|number| **number >= least) {
            return folder.join(number.to_string());
        }
        assert!(child.try_wait().unwrap().is_none(), "the run ended before its checkpoint");
        assert!(Instant::now() < patience, "no checkpoint came");
        std::thread::sleep(Duration::from_millis(5));
    }
}
