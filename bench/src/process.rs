//! The other programs of Quiver as child processes: found next to this program, started, inspected, stopped.
#![allow(clippy::disallowed_methods, reason = "a benchmark measures time")]

use std::collections::HashMap;
use std::env;
use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use rustix::process::{Pid, Signal, kill_process};

/// Poll interval.
pub const POLL_EVERY: Duration = Duration::from_millis(10);

/// How long a program may take to start on a busy machine.
const START_PATIENCE: Duration = Duration::from_secs(60);

/// How long a program may take to end by itself; a learner writes a checkpoint then.
const END_PATIENCE: Duration = Duration::from_secs(20);

/// A child process, killed on drop.
pub struct Process {
    program: &'static str,
    child: Child,
    log: PathBuf,
    status: PathBuf,
}

impl Process {
    /// Starts a program from the folder of this program. Its log is in `directory`.
    pub fn start<A: AsRef<OsStr>>(program: &'static str, directory: &Path, arguments: &[A]) -> Result<Self> {
        let path = env::current_exe().context("can't tell where quiver-bench is")?.with_file_name(program);
        if !path.is_file() {
            bail!("{program} is missing next to quiver-bench (no {}): run 'make build'", path.display());
        }
        let (log, status) =
            (directory.join(format!("{program}.log")), directory.join(format!("{program}.json")));
        let output = File::create(&log).with_context(|| format!("can't write {}", log.display()))?;
        let mut command = Command::new(&path);
        command.args(arguments).stdin(Stdio::piped()).stdout(output.try_clone()?).stderr(output);
        // As `quiver train` does: otherwise every process that links OpenMP takes all cores.
        command.env("OMP_NUM_THREADS", "1");
        // Ours alone: `quiver` takes every variable that begins like this for a setting.
        command.env_remove("QUIVER_PEERS");
        let child = command.spawn().with_context(|| format!("can't start {}", path.display()))?;
        Ok(Self { program, child, log, status })
    }

    /// Starts a program that serves metrics, and waits until it serves them. It exits with this process.
    pub fn serve(program: &'static str, directory: &Path, arguments: &[String]) -> Result<Self> {
        let status = directory.join(format!("{program}.json")).display().to_string();
        let own = ["--exit-with-parent".to_owned(), "--status-file".to_owned(), status];
        let mut process = Self::start(program, directory, &[arguments, &own].concat())?;
        process.wait("start", START_PATIENCE, |process| Ok(process.status.is_file()))?;
        Ok(process)
    }

    /// Polls `reached` until it returns true; fails if the process exits or `timeout` expires.
    pub fn wait(
        &mut self,
        what: &str,
        timeout: Duration,
        mut reached: impl FnMut(&Self) -> Result<bool>,
    ) -> Result<()> {
        let start = Instant::now();
        while !reached(self)? {
            if let Some(status) = self.child.try_wait()? {
                bail!("{} ended ({status}): {}", self.program, self.last_words());
            }
            if start.elapsed() > timeout {
                bail!("{} did not {what} within {timeout:?}: {}", self.program, self.last_words());
            }
            sleep(POLL_EVERY);
        }
        Ok(())
    }

    /// CPU time taken so far, by all of its threads. The system counts in steps of usually 10 ms.
    pub fn cpu_seconds(&self) -> Result<f64> {
        let path = format!("/proc/{}/stat", self.child.id());
        let text = fs::read_to_string(&path).with_context(|| format!("{} is gone", self.program))?;
        let ticks = ticks(&text).with_context(|| format!("{path} is not as expected"))?;
        Ok(ticks as f64 / rustix::param::clock_ticks_per_second() as f64)
    }

    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Memory that it has in use.
    pub fn resident_bytes(&self) -> Result<u64> {
        resident_bytes(self.id())
    }

    /// What it exports now, without what has labels.
    pub fn metrics(&self) -> Result<Metrics> {
        let status: serde_json::Value = serde_json::from_str(&fs::read_to_string(&self.status)?)?;
        let address = status["metrics"].as_str().and_then(|url| url.strip_prefix("http://"));
        let address = address.with_context(|| format!("{} has no address", self.status.display()))?;
        let mut stream = TcpStream::connect(address)?;
        stream.set_read_timeout(Some(END_PATIENCE))?;
        write!(stream, "GET /metrics HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n")?;
        let mut text = String::new();
        stream.read_to_string(&mut text)?;
        Ok(Metrics::parse(&text))
    }

    /// Asks it to end, and waits until it has.
    pub fn end(mut self) -> Result<()> {
        kill_process(Pid::from_child(&self.child), Signal::TERM)?;
        let start = Instant::now();
        while self.child.try_wait()?.is_none() {
            if start.elapsed() > END_PATIENCE {
                bail!("{} did not end within {END_PATIENCE:?}: {}", self.program, self.last_words());
            }
            sleep(POLL_EVERY);
        }
        Ok(())
    }

    /// The last line of its log.
    fn last_words(&self) -> String {
        let log = fs::read_to_string(&self.log).unwrap_or_default();
        log.lines().rfind(|line| !line.trim().is_empty()).unwrap_or("it said nothing").to_owned()
    }
}

/// Memory that a process has in use.
pub fn resident_bytes(pid: u32) -> Result<u64> {
    let text = fs::read_to_string(format!("/proc/{pid}/status"))?;
    let line = text.lines().find_map(|line| line.strip_prefix("VmRSS:")).context("there is no VmRSS")?;
    let kilobytes: u64 = line.trim().trim_end_matches(" kB").parse()?;
    Ok(kilobytes * 1024)
}

impl Drop for Process {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// User and system time from the text of `/proc/PID/stat`. The second field is a name in brackets, which may have
/// blanks and brackets in it.
fn ticks(stat: &str) -> Option<u64> {
    let mut fields = stat.rsplit_once(')')?.1.split_whitespace().skip(11);
    let mut next = || fields.next()?.parse::<u64>().ok();
    Some(next()? + next()?)
}

/// Figures that a program exported at one moment.
pub struct Metrics {
    pub at: Instant,
    figures: HashMap<String, f64>,
}

impl Metrics {
    fn parse(text: &str) -> Self {
        let figures = text.lines().filter_map(|line| {
            let (name, figure) = line.split_once(' ')?;
            Some((name.to_owned(), figure.trim().parse().ok()?))
        });
        Self { at: Instant::now(), figures: figures.collect() }
    }

    pub fn get(&self, name: &str) -> Result<f64> {
        self.figures.get(name).copied().with_context(|| format!("there is no metric {name}"))
    }

    /// How much one has grown since `earlier`.
    pub fn since(&self, earlier: &Metrics, name: &str) -> Result<f64> {
        Ok(self.get(name)? - earlier.get(name)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpu_time_is_found_behind_any_name() {
        let stat = "17 (a) b (c) S 1 17 17 0 -1 4194304 100 0 0 0 250 50 0 0 20 0 3 0 1 2 3";
        assert_eq!(ticks(stat), Some(300));
        assert_eq!(ticks("17 no brackets"), None);
    }

    #[test]
    fn metrics_without_labels_are_read() {
        let earlier = Metrics::parse("HTTP/1.1 200 OK\r\n\r\n# HELP a Help\na 1.5\nb{for=\"x\"} 3\n");
        let now = Metrics::parse("a 4\n");
        assert_eq!(now.since(&earlier, "a").unwrap(), 2.5);
        assert!(earlier.get("b").is_err());
    }
}
