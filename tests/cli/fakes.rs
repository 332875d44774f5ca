//! A cluster of a few lines of shell, to see how it is started, watched and ended.

use std::fs::{self, File};
use std::path::PathBuf;
use std::process::{Child, Command};
use std::thread::sleep;
use std::time::{Duration, Instant};

use run::event::{Event, Outcome, Progress};
use serde_json::Value;

use crate::halves::ECHO;
use crate::place::{Place, Ran};

/// Longer than anything here should take on the busiest machine.
const PATIENCE: Duration = Duration::from_secs(120);

/// How every fake begins. `$name` is who it is, `$life` how often it was started, `$run` the run's directory.
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
# Until the lifeline ends or a trap does.
idle() { cat <&3 >/dev/null 2>&1 & wait $!; exit 0; }
# Until a file is there; the lifeline counts here too.
await() { while ! [ -e "$1" ]; do kill -0 $PPID || exit 0; sleep 0.02; done; }
ready() {
    mkdir -p "$run/checkpoints"; cp "$config" "$run/config.toml"
    echo "{\"event\":\"ready\",\"run_dir\":\"$run\",\"frames\":${1:-0}}"
}
"#;

/// A learner that stops as it should.
pub const LEARNER: &str = r#"
trap 'echo "{\"event\":\"stopped\",\"frames\":1234}"; exit 0' TERM
ready
idle
"#;

/// Programs that are there and do nothing.
pub fn install_idle(place: &Place) {
    install(place, "idle", "idle", "idle");
    place.program("quiver-paper", "exit 1");
}

/// Programs for a cluster, each a script after the prelude.
pub fn install(place: &Place, learner: &str, actor: &str, shard: &str) {
    let scripts = [("quiver-learner", learner), ("quiver-actor", actor), ("quiver-replay-server", shard)];
    for (name, script) in scripts {
        place.program(name, &format!("{PRELUDE}\n{script}"));
    }
}

/// A line of shell that tells the launcher something.
pub fn tell(event: &Event) -> String {
    format!("echo '{}'", serde_json::to_string(event).unwrap())
}

/// Training has got to this frame.
pub fn progress(frames: u64) -> String {
    tell(&Event::Progress(Progress { frames, ..Progress::default() }))
}

/// All is done.
pub fn finished() -> String {
    let evaluations = Vec::new();
    tell(&Event::Finished(Outcome { frames: 20_000, updates: 300, seconds: 61.0, evaluations })) + "; exit 0"
}

/// A launcher that runs.
pub struct Launched<'a> {
    place: &'a Place,
    process: Child,
}

/// Starts `quiver train` on CartPole in the directory `mine`, with a libtorch that works.
pub fn launch<'a>(place: &'a Place, words: &[&str]) -> Launched<'a> {
    place.other_half(ECHO);
    let words = [&["train", "cartpole", "--run-dir", "mine"], words].concat();
    start(place, &words)
}

/// The same with all words given.
pub fn start<'a>(place: &'a Place, words: &[&str]) -> Launched<'a> {
    // Whoever runs the tests may have told them to ignore the end of their terminal.
    start_through(place, &["env", "--default-signal=HUP"], words)
}

/// The same, started by another command.
pub fn start_through<'a>(place: &'a Place, by: &[&str], words: &[&str]) -> Launched<'a> {
    let file = |name: &str| File::create(place.seen().join(name)).unwrap();
    let seen = place.seen();
    let mut command = place.command_through(by, words, &[("SEEN", seen.to_str().unwrap())]);
    let process = command.stdout(file("out")).stderr(file("err")).spawn().unwrap();
    Launched { place, process }
}

impl Launched<'_> {
    pub fn signal(&self, name: &str) {
        let status =
            Command::new("kill").args([&format!("-{name}"), &self.process.id().to_string()]).status();
        assert!(status.unwrap().success());
    }

    /// Waits until the launcher has said something.
    #[track_caller]
    pub fn wait_for(&self, words: &str) {
        wait_until(words, || self.text("err").contains(words), || self.text("err"));
    }

    /// Waits until the list of processes is as it should be, and gives it.
    #[track_caller]
    pub fn wait_for_processes(&self, wanted: impl Fn(&[Value]) -> bool) -> Vec<Value> {
        let path = self.place.here().join("mine/processes.json");
        let read = || serde_json::from_slice::<Vec<Value>>(&fs::read(&path).ok()?).ok();
        wait_until("processes", || read().is_some_and(|all| wanted(&all)), || self.text("err"));
        read().unwrap()
    }

    /// Waits until everyone in the list runs.
    #[track_caller]
    pub fn wait_for_all(&self) -> Vec<Value> {
        self.wait_for_processes(|all| all.iter().all(|process| process["pid"].is_u64()))
    }

    /// Waits for the end.
    #[track_caller]
    pub fn ended(mut self) -> Ran {
        let started = Instant::now();
        while self.process.try_wait().unwrap().is_none() {
            assert!(started.elapsed() < PATIENCE, "no end: {}", self.text("err"));
            sleep(Duration::from_millis(10));
        }
        let code = self.process.wait().unwrap().code();
        Ran { code, out: self.text("out"), err: self.text("err") }
    }

    fn text(&self, name: &str) -> String {
        fs::read_to_string(self.place.seen().join(name)).unwrap()
    }
}

/// A test that fails leaves nobody behind: children end with their launcher.
impl Drop for Launched<'_> {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// The words with which a child was started, each time.
pub fn started_with(place: &Place, name: &str) -> Vec<String> {
    let text = fs::read_to_string(place.seen().join(name)).unwrap_or_default();
    text.lines().map(str::to_owned).collect()
}

/// The directory of the sockets, from the learner's words.
pub fn sockets(place: &Place) -> PathBuf {
    let words = started_with(place, "learner").remove(0);
    let config = words.split(' ').nth(1).unwrap().to_owned();
    PathBuf::from(config).parent().unwrap().to_owned()
}

/// Waits until every child that was ever started is gone.
#[track_caller]
pub fn wait_until_gone(place: &Place) {
    let pids = fs::read_to_string(place.seen().join("pids")).unwrap();
    for pid in pids.lines() {
        // A zombie is gone too: whoever adopted it may not care to bury it.
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
        assert!(started.elapsed() < PATIENCE, "waited for {what} in vain: {}", instead());
        sleep(Duration::from_millis(10));
    }
}
