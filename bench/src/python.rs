//! The Python side of a comparison: environments that `bench/peers/setup.sh` installs, and scripts that work on request.

use std::env;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;

/// Where the environments are.
pub fn environments() -> PathBuf {
    env::var_os("QUIVER_PEERS").map_or_else(|| PathBuf::from("target/peers"), PathBuf::from)
}

/// Where the scripts are.
pub fn scripts() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("peers")
}

/// Installs these environments, once; by default those of the peers.
pub fn set_up(names: &[&str]) -> Result<()> {
    let setup = scripts().join("setup.sh");
    let status = Command::new(setup).arg(environments()).args(names).stdout(Stdio::null()).status();
    let status = status.context("can't run bench/peers/setup.sh")?;
    ensure!(status.success(), "bench/peers/setup.sh failed, see above");
    Ok(())
}

/// A Python with PyTorch. `None`, with a message, if it can't be installed: its rows are then left out.
pub fn with_torch() -> Option<PathBuf> {
    let environment = environments().join("torch");
    if !environment.join(".installed").is_file() {
        eprintln!(
            "installing PyTorch into {} (about 5 GB, some minutes, only this time)",
            environment.display()
        );
    }
    match set_up(&["torch"]) {
        Ok(()) => Some(environment.join("bin/python")),
        Err(error) => {
            eprintln!(
                "skipped the rows of PyTorch: {error:#}; QUIVER_PEERS names a folder to install into, PYTHON an \
                 interpreter (3.10 or later)"
            );
            None
        }
    }
}

/// glibc keeps freed memory instead of returning it, which spares the page faults of every update.
pub const KEEP_MEMORY: [(&str, &str); 3] = [
    ("MALLOC_TRIM_THRESHOLD_", "1073741824"),
    ("MALLOC_MMAP_THRESHOLD_", "33554432"),
    ("MALLOC_TOP_PAD_", "67108864"),
];

/// A script of `bench/peers` that answers requests and is idle between them. Killed on drop.
pub struct Server {
    script: &'static str,
    child: Child,
    requests: ChildStdin,
    answers: BufReader<ChildStdout>,
}

impl Server {
    /// Starts a script. Threads wait as OpenMP does by default, whatever the environment of this process says.
    pub fn start(
        python: &Path,
        script: &'static str,
        arguments: &[&str],
        variables: &[(&str, &str)],
    ) -> Result<Self> {
        let mut child = Command::new(python)
            .arg(scripts().join(script))
            .args(arguments)
            .env_remove("OMP_NUM_THREADS")
            .env_remove("OMP_WAIT_POLICY")
            .envs(variables.iter().copied())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::inherit())
            .spawn()
            .with_context(|| format!("can't run {}", python.display()))?;
        let requests = child.stdin.take().context("a child has an input")?;
        let answers = BufReader::new(child.stdout.take().context("a child has an output")?);
        Ok(Self { script, child, requests, answers })
    }

    /// Sends a request and waits for its answer.
    pub fn ask(&mut self, request: &Value) -> Result<Value> {
        // If the script has ended, the reason is in its answer's place.
        let _ = writeln!(self.requests, "{request}");
        let mut answer = String::new();
        self.answers.read_line(&mut answer)?;
        if answer.is_empty() {
            bail!("{} ended ({}), see above", self.script, self.child.wait()?);
        }
        serde_json::from_str(&answer).with_context(|| format!("{} did not answer with JSON", self.script))
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A number of an answer.
pub fn number(answer: &Value, key: &str) -> Result<f64> {
    answer[key].as_f64().with_context(|| format!("the answer {answer} has no number '{key}'"))
}
