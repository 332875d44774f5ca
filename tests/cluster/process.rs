//! One process of ours: started, looked at over HTTP, signalled, and gone when dropped.
#![allow(clippy::disallowed_methods, reason = "the test waits for real processes and sockets")]

use std::fs::{self, File};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Resource, Rlimit, Signal, kill_process, prlimit};

/// How long something may take that will happen, however busy the machine is.
pub const PATIENCE: Duration = Duration::from_secs(120);

/// Waits until a condition holds. `what` is the claim that failed if it never does.
#[track_caller]
pub fn until(what: &str, mut condition: impl FnMut() -> bool) {
    until_some(what, || condition().then_some(()));
}

/// Waits until there is an answer.
#[track_caller]
pub fn until_some<T>(what: &str, mut answer: impl FnMut() -> Option<T>) -> T {
    let started = Instant::now();
    loop {
        if let Some(answer) = answer() {
            return answer;
        }
        assert!(started.elapsed() < PATIENCE, "waited {PATIENCE:?} in vain: {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// A program of ours, found beside `quiver`.
pub fn program(name: &str) -> PathBuf {
    let path = Path::new(env!("CARGO_BIN_EXE_quiver")).with_file_name(name);
    assert!(path.is_file(), "{} is not built: cargo build --release, or make test", path.display());
    path
}

/// A command without this process's settings, and with one thread for libtorch.
pub fn command(name: &str) -> Command {
    let mut command = Command::new(program(name));
    for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("QUIVER_")) {
        command.env_remove(name);
    }
    command.env("OMP_NUM_THREADS", "1").env("OMP_WAIT_POLICY", "passive");
    command.stdin(Stdio::null());
    command
}

/// A running process. What it says is kept in `<name>.log` and `<name>.out`, over all its lives.
pub struct Process {
    child: Child,
    name: String,
    folder: PathBuf,
}

impl Process {
    /// Starts a program that takes `--status-file`.
    pub fn start(folder: &Path, name: &str, program: &str, arguments: &[String]) -> Self {
        let status = folder.join(format!("{name}.json"));
        let _ = fs::remove_file(&status);
        let mut command = command(program);
        command.args(arguments).arg("--status-file").arg(status);
        Self::spawn(folder, name, command)
    }

    pub fn spawn(folder: &Path, name: &str, mut command: Command) -> Self {
        let file = |ending: &str| {
            File::options().create(true).append(true).open(folder.join(format!("{name}.{ending}"))).unwrap()
        };
        let child = command.stdout(file("out")).stderr(file("log")).spawn().unwrap();
        Self { child, name: name.to_owned(), folder: folder.to_owned() }
    }

    /// Everything it has logged, in all its lives.
    pub fn log(&self) -> String {
        fs::read_to_string(self.folder.join(format!("{}.log", self.name))).unwrap_or_default()
    }

    pub fn signal(&self, signal: Signal) {
        // Not reaped yet, so the number is still its own.
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }

    /// Holds it where it is.
    pub fn stop(&self) {
        self.signal(Signal::STOP);
    }

    /// Limits the size of its files, or lifts the limit.
    pub fn limit_files(&self, bytes: Option<u64>) {
        let limit = Rlimit { current: bytes, maximum: None };
        prlimit(Some(Pid::from_child(&self.child)), Resource::Fsize, limit).unwrap();
    }

    /// Resumes the stopped process.
    pub fn resume(&self) {
        self.signal(Signal::CONT);
    }

    /// SIGKILL, and waits until it is gone.
    pub fn kill(&mut self) {
        let _ = self.child.kill();
        self.child.wait().unwrap();
    }

    /// How it ended, if it has.
    pub fn ended(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().unwrap()
    }

    /// Waits until it has ended by itself.
    #[track_caller]
    pub fn end(&mut self) -> ExitStatus {
        let what = format!("{} ends", self.name);
        until_some(&what, || self.child.try_wait().unwrap())
    }

    /// A page of its metrics listener, waiting until it is there.
    #[track_caller]
    pub fn page(&self, path: &str) -> String {
        until_some(&format!("{} answers {path}; its log:\n{}", self.name, tail(&self.log())), || {
            self.page_now(path)
        })
    }

    fn page_now(&self, path: &str) -> Option<String> {
        let status = fs::read(self.folder.join(format!("{}.json", self.name))).ok()?;
        let status: serde_json::Value = serde_json::from_slice(&status).ok()?;
        get(status["metrics"].as_str()?, path)
    }

    /// One figure by its name with labels, as it is exported.
    #[track_caller]
    pub fn metric(&self, name: &str) -> f64 {
        metric(&self.page("/metrics"), name)
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill();
        if std::thread::panicking() {
            eprintln!("--- the end of the log of {}:\n{}", self.name, tail(&self.log()));
        }
    }
}

/// Of all that is exported, one figure.
#[track_caller]
pub fn metric(text: &str, name: &str) -> f64 {
    let line = text.lines().find(|line| line.strip_prefix(name).is_some_and(|rest| rest.starts_with(' ')));
    line.unwrap_or_else(|| panic!("no {name} in {text}")).rsplit_once(' ').unwrap().1.parse().unwrap()
}

/// GET over plain HTTP; `None` without an answer.
pub fn get(base: &str, path: &str) -> Option<String> {
    let address = base.strip_prefix("http://")?;
    let mut stream = TcpStream::connect(address).ok()?;
    stream.set_read_timeout(Some(Duration::from_secs(10))).ok()?;
    write!(stream, "GET {path} HTTP/1.0\r\nHost: {address}\r\n\r\n").ok()?;
    let mut text = String::new();
    stream.read_to_string(&mut text).ok()?;
    text.split_once("\r\n\r\n").map(|(_, body)| body.to_owned())
}

pub fn tail(text: &str) -> String {
    let lines: Vec<_> = text.lines().collect();
    lines[lines.len().saturating_sub(25)..].join("\n")
}
