//! Fake programs in shell, to test how a cluster is started, supervised and ended.
#![allow(clippy::disallowed_methods, reason = "the test waits for real processes and sockets")]

use std::fs::{self, File};
use std::path::PathBuf;
use std::process::{Child, Command};
use std::thread::sleep;
use std::time::{Duration, Instant};

use run::event::{Event, ProgressUpdate, RunOutcome};
use serde_json::Value;

use crate::halves::ECHO;
use crate::sandbox::{Ran, Sandbox};

/// Longer than any step takes on a busy machine.
const TIMEOUT: Duration = Duration::from_secs(120);

/// The start of every fake. `$name` is the process' name, `$life` the number of its starts, `$run` the run directory.
const PRELUDE: &str = r#"
words="$*"
name=evaluator
while [ $# -gt 0 ]; do
    case "$1" in
        --data-dir) name=${2##*/} ;;
        --index) name=actor-$2 ;;
        --events) name=learner ;;
        --run-dir) run=$2 ;;
        --config) config=$2 ;;
        --status-file) status=$2 ;;
    esac
    shift
done
echo $$ >>"$SEEN/pids"
echo "$words" >>"$SEEN/$name"
life=$(wc -l <"$SEEN/$name")
exec 3<&0
# Until stdin closes or a trap exits.
idle() { cat <&3 >/dev/null 2>&1 & wait $!; exit 0; }
# Until a file exists, or the launcher has died.
await() { while ! [ -e "$1" ]; do kill -0 $PPID || exit 0; sleep 0.02; done; }
ready() {
    mkdir -p "$run/checkpoints"; cp "$config" "$run/config.toml"
    echo "{\"event\":\"ready\",\"run_dir\":\"$run\",\"frames\":${1:-0}}"
}
"#;

/// A learner that stops on SIGTERM.
pub const LEARNER: &str = r#"
trap 'echo "{\"event\":\"stopped\",\"frames\":1234}"; exit 0' TERM
ready
idle
"#;

/// Installs programs that do nothing.
pub fn install_idle(sandbox: &Sandbox) {
    install(sandbox, "idle", "idle", "idle");
    sandbox.program("quiver-paper", "exit 1");
}

impl Sandbox {
    /// A sandbox with the programs of a cluster, each a script after the prelude.
    pub fn with(learner: &str, actor: &str, shard: &str) -> Self {
        let sandbox = Self::new();
        install(&sandbox, learner, actor, shard);
        sandbox
    }
}

/// Installs the programs of a cluster, each a script after the prelude.
pub fn install(sandbox: &Sandbox, learner: &str, actor: &str, shard: &str) {
    let scripts = [("quiver-learner", learner), ("quiver-actor", actor), ("quiver-replay-server", shard)];
    for (name, script) in scripts {
        sandbox.program(name, &format!("{PRELUDE}\n{script}"));
    }
}

/// A line of shell that sends an event to the launcher.
pub fn send(event: &Event) -> String {
    format!("echo '{}'", serde_json::to_string(event).unwrap())
}

/// Sends progress: training is at this frame.
pub fn progress(frames: u64) -> String {
    send(&Event::Progress(ProgressUpdate { frames, ..ProgressUpdate::default() }))
}

/// Sends that the run has finished, and exits.
pub fn finished() -> String {
    let evaluations = Vec::new();
    send(&Event::Finished(RunOutcome { frames: 20_000, updates: 300, seconds: 61.0, evaluations }))
        + "; exit 0"
}

pub struct Launched<'a> {
    sandbox: &'a Sandbox,
    process: Child,
}

/// Starts `quiver train` on CartPole in the directory `mine`, with a libtorch that works.
pub fn launch<'a>(sandbox: &'a Sandbox, words: &[&str]) -> Launched<'a> {
    sandbox.install_lockstep(ECHO);
    let words = [&["train", "cartpole", "--run-dir", "mine"], words].concat();
    start(sandbox, &words)
}

/// The same with all arguments given.
pub fn start<'a>(sandbox: &'a Sandbox, words: &[&str]) -> Launched<'a> {
    // The tests may run under nohup, which ignores SIGHUP.
    start_through(sandbox, &["env", "--default-signal=HUP"], words)
}

/// The same, started by another command.
pub fn start_through<'a>(sandbox: &'a Sandbox, by: &[&str], words: &[&str]) -> Launched<'a> {
    let file = |name: &str| File::create(sandbox.seen().join(name)).unwrap();
    let seen = sandbox.seen();
    let mut command = sandbox.command_through(by, words, &[("SEEN", seen.to_str().unwrap())]);
    let process = command.stdout(file("out")).stderr(file("err")).spawn().unwrap();
    Launched { sandbox, process }
}

impl Launched<'_> {
    pub fn signal(&self, name: &str) {
        let status =
            Command::new("kill").args([&format!("-{name}"), &self.process.id().to_string()]).status();
        assert!(status.unwrap().success());
    }

    /// Waits until the launcher has printed these words.
    #[track_caller]
    pub fn wait_for(&self, words: &str) {
        wait_until(words, || self.text("err").contains(words), || self.text("err"));
    }

    /// Waits until `processes.json` is as wanted, and returns it.
    #[track_caller]
    pub fn wait_for_processes(&self, wanted: impl Fn(&[Value]) -> bool) -> Vec<Value> {
        let path = self.sandbox.here().join("mine/processes.json");
        let read = || serde_json::from_slice::<Vec<Value>>(&fs::read(&path).ok()?).ok();
        wait_until("processes", || read().is_some_and(|all| wanted(&all)), || self.text("err"));
        read().unwrap()
    }

    /// Waits until all listed processes run.
    #[track_caller]
    pub fn wait_for_all(&self) -> Vec<Value> {
        self.wait_for_processes(|all| all.iter().all(|process| process["pid"].is_u64()))
    }

    /// Waits for the launcher to exit.
    #[track_caller]
    pub fn ended(mut self) -> Ran {
        let started = Instant::now();
        while self.process.try_wait().unwrap().is_none() {
            assert!(started.elapsed() < TIMEOUT, "did not exit: {}", self.text("err"));
            sleep(Duration::from_millis(10));
        }
        let code = self.process.wait().unwrap().code();
        Ran { code, out: self.text("out"), err: self.text("err") }
    }

    fn text(&self, name: &str) -> String {
        fs::read_to_string(self.sandbox.seen().join(name)).unwrap()
    }
}

/// A failing test leaves no process behind: children exit with their launcher.
impl Drop for Launched<'_> {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// The arguments of each start of a child.
pub fn started_with(sandbox: &Sandbox, name: &str) -> Vec<String> {
    let text = fs::read_to_string(sandbox.seen().join(name)).unwrap_or_default();
    text.lines().map(str::to_owned).collect()
}

/// The directory of the sockets, from the learner's arguments.
pub fn sockets(sandbox: &Sandbox) -> PathBuf {
    let words = started_with(sandbox, "learner").remove(0);
    let config = words.split(' ').nth(1).unwrap().to_owned();
    PathBuf::from(config).parent().unwrap().to_owned()
}

/// Waits until every child that was started is gone.
#[track_caller]
pub fn wait_until_gone(sandbox: &Sandbox) {
    let pids = fs::read_to_string(sandbox.seen().join("pids")).unwrap();
    for pid in pids.lines() {
        // A zombie counts as gone: its new parent may not reap it.
        let stat = || fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        let is_gone =
            || stat().rsplit(')').next().is_none_or(|rest| rest.is_empty() || rest.starts_with(" Z"));
        wait_until("children to be gone", is_gone, stat);
    }
}

#[track_caller]
pub fn wait_until(what: &str, holds: impl Fn() -> bool, instead: impl Fn() -> String) {
    let started = Instant::now();
    while !holds() {
        assert!(started.elapsed() < TIMEOUT, "timed out waiting for {what}: {}", instead());
        sleep(Duration::from_millis(10));
    }
}
