//! The real binary, as a child process.
#![allow(clippy::disallowed_methods, reason = "the test waits for real processes and sockets")]

use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;

use rpc::address::Address;
use tempfile::TempDir;

/// A shard as a process of its own. It dies with this.
pub struct Process {
    pub child: Child,
    pub address: Address,
    pub directory: TempDir,
}

impl Process {
    /// Starts it at this address, or at a socket in a directory of its own, and waits until it serves.
    pub fn start(listen: Option<&str>, flags: &[&str]) -> Self {
        Self::spawn(listen, flags).served()
    }

    /// Waits until it serves.
    pub fn served(mut self) -> Self {
        // The log has the real port.
        self.wait_until(|process| process.served_address().is_some());
        self.address = self.served_address().unwrap();
        self
    }

    /// Starts it and does not wait.
    pub fn spawn(listen: Option<&str>, flags: &[&str]) -> Self {
        Self::spawn_by(Command::new(env!("CARGO_BIN_EXE_quiver-replay-server")), listen, flags)
    }

    /// Starts it by a command that becomes it.
    pub fn spawn_by(mut command: Command, listen: Option<&str>, flags: &[&str]) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let socket = format!("unix:{}/s.sock", directory.path().display());
        let child = command
            .args(["--listen", listen.unwrap_or(&socket), "--exit-with-parent", "--status-file"])
            .arg(directory.path().join("status.json"))
            .args(flags)
            .stdin(Stdio::piped())
            .stderr(std::fs::File::create(directory.path().join("log")).unwrap())
            .spawn()
            .unwrap();
        let address = listen.unwrap_or(&socket).parse().unwrap();
        Self { child, address, directory }
    }

    /// Starts it where it can't start, and gives what it said.
    pub fn fails(flags: &[&str]) -> String {
        let mut process = Self::spawn(None, flags);
        let status = process.ended_or(|process| process.served_address().is_some());
        assert!(status.is_some_and(|status| !status.success()), "{}", process.log());
        process.log()
    }

    fn served_address(&self) -> Option<Address> {
        let log = self.log();
        let (_, after) = log.split_once("server listening tls=")?;
        let (_, after) = after.split_once(" address=")?;
        let (address, _) = after.split_once('\n')?;
        Some(address.parse().unwrap())
    }

    pub fn status_file(&self) -> PathBuf {
        self.directory.path().join("status.json")
    }

    pub fn log(&self) -> String {
        std::fs::read_to_string(self.directory.path().join("log")).unwrap()
    }

    fn wait_until(&mut self, mut condition: impl FnMut(&Self) -> bool) {
        for _ in 0..24_000 {
            if condition(self) {
                return;
            }
            if let Some(status) = self.child.try_wait().unwrap() {
                panic!("it ended with {status}: {}", self.log());
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        panic!("it should have happened long ago: {}", self.log());
    }

    /// A page of its metrics listener: status line and headers, then the text.
    pub fn page(&self, path: &str) -> (String, String) {
        let status = std::fs::read_to_string(self.status_file()).unwrap();
        let (_, rest) = status.split_once("\"metrics\":\"http://").unwrap();
        let mut stream = TcpStream::connect(rest.split('"').next().unwrap()).unwrap();
        write!(stream, "GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        let (head, text) = answer.split_once("\r\n\r\n").unwrap();
        (head.to_owned(), text.to_owned())
    }

    pub fn metric(&self, name: &str) -> f64 {
        super::metric(&self.page("/metrics").1, name)
    }

    /// A line of /proc/…/status in bytes: `VmRSS` for the memory taken now, `VmHWM` for the most so far.
    pub fn memory(&self, line: &str) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id())).unwrap();
        let line = status.lines().find(|text| text.starts_with(line)).unwrap();
        line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() * 1024
    }

    pub fn terminate(&self) {
        let sent = Command::new("kill").arg(self.child.id().to_string()).status().unwrap();
        assert!(sent.success());
    }

    /// Ends it at once, wherever it is.
    pub fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    pub fn ended(&mut self) -> ExitStatus {
        self.ended_or(|_| false).expect("nothing else is waited for")
    }

    /// Waits until it has ended, or something else is so.
    fn ended_or(&mut self, mut condition: impl FnMut(&Self) -> bool) -> Option<ExitStatus> {
        for _ in 0..24_000 {
            if let Some(status) = self.child.try_wait().unwrap() {
                return Some(status);
            }
            if condition(self) {
                return None;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        panic!("it should have ended long ago: {}", self.log());
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
