//! How a cluster ends: by Ctrl-C, by SIGKILL, by an error, by the launcher's death. No process is left behind.

use std::fs;

use crate::fakes::{
    LEARNER, finished, install, launch, sockets, start, start_through, started_with, wait_until,
    wait_until_gone,
};
use crate::sandbox::Sandbox;

const STUBBORN: &str = "trap '' TERM; idle";

#[test]
fn ctrl_c_stops_all_processes_and_prints_how_to_resume() {
    for signal in ["INT", "TERM", "HUP"] {
        let sandbox = Sandbox::with(LEARNER, STUBBORN, "idle");
        let launched = launch(&sandbox, &["--actors", "1"]);
        launched.wait_for_all();
        launched.signal(signal);
        let ran = launched.ended();
        assert_eq!(ran.stdout(), "stopped at frame 1,234; resume with\n  quiver train --resume mine\n");
        assert!(ran.err.contains("stopping: writing a checkpoint"), "{}", ran.err);
        wait_until_gone(&sandbox);
        assert!(!sockets(&sandbox).exists() && !sandbox.here().join("mine/processes.json").exists());
    }
}

#[test]
fn with_nohup_a_cluster_outlives_its_terminal() {
    let sandbox = Sandbox::with(LEARNER, "idle", "idle");
    sandbox.install_lockstep(crate::halves::ECHO);
    let words = ["train", "cartpole", "--run-dir", "mine", "--actors", "1"];
    let launched = start_through(&sandbox, &["env", "--ignore-signal=HUP"], &words);
    launched.wait_for_all();
    launched.signal("HUP");
    // Had the first been a request to stop, this would be the second.
    launched.signal("INT");
    assert!(launched.ended().stdout().contains("resume with"));
    wait_until_gone(&sandbox);
}

#[test]
fn a_second_ctrl_c_quits_at_once() {
    let sandbox = Sandbox::with(&format!("ready\n{STUBBORN}"), STUBBORN, STUBBORN);
    let launched = launch(&sandbox, &["--actors", "1"]);
    launched.wait_for_all();
    launched.signal("INT");
    launched.wait_for("stopping: writing a checkpoint (Ctrl-C again: quit at once, without one)");
    launched.signal("INT");
    let ran = launched.ended();
    assert_eq!(ran.code, Some(130), "{}", ran.err);
    assert!(ran.err.contains("quiver train --resume mine"), "{}", ran.err);
    wait_until_gone(&sandbox);
    assert!(!sockets(&sandbox).exists());
}

#[test]
fn a_learner_that_takes_too_long_to_stop_is_killed_and_reported() {
    let sandbox = Sandbox::with(&format!("ready\n{STUBBORN}"), "idle", "idle");
    let launched = launch(&sandbox, &["--actors", "1"]);
    launched.wait_for_all();
    launched.signal("INT");
    let ran = launched.ended();
    assert_eq!(ran.code, Some(1), "{}", ran.err);
    let last = ran.err.lines().last().unwrap();
    assert!(last.starts_with("error: the learner did not exit within 20 s and was killed"), "{last}");
    assert!(last.ends_with("quiver train --resume mine"), "{last}");
    wait_until_gone(&sandbox);
}

#[test]
fn stopping_before_the_run_is_created_leaves_nothing() {
    let sandbox = Sandbox::with("touch \"$SEEN/there\"; idle", "idle", "idle");
    let launched = launch(&sandbox, &[]);
    wait_until("the learner", || sandbox.seen().join("there").exists(), String::new);
    launched.signal("INT");
    let ran = launched.ended();
    assert_eq!(ran.stdout(), "stopped before the run was created: nothing to resume\n");
    assert_eq!(sandbox.left(), [""; 0]);
    wait_until_gone(&sandbox);
}

#[test]
fn a_learners_error_ends_the_run_and_is_printed() {
    for begun in ["", "ready;"] {
        let learner = format!("{begun} echo 'INFO hello' >&2; echo 'error: the disk is full' >&2; exit 1");
        let sandbox = Sandbox::with(&learner, "idle", "idle");
        let ran = launch(&sandbox, &[]).ended();
        assert_eq!((ran.code, ran.err.lines().last()), (Some(1), Some("error: the disk is full")));
        assert_eq!(started_with(&sandbox, "learner").len(), 1, "a restart would fail the same way");
        wait_until_gone(&sandbox);
        assert!(!sockets(&sandbox).exists());
    }
}

#[test]
fn a_loader_error_of_the_learner_is_quoted() {
    let sandbox =
        Sandbox::with("echo 'quiver-learner: symbol lookup error: x' >&2; exit 127", "idle", "idle");
    let ran = launch(&sandbox, &[]).ended();
    let expected = "learner exited with code 127 (quiver-learner: symbol lookup error: x)";
    assert_eq!(ran.refused(), expected);
    assert_eq!(sandbox.left(), [""; 0]);
}

#[test]
fn a_player_that_never_starts_ends_the_run_with_its_error_and_a_checkpoint() {
    let actor = "[ $name = evaluator ] && { echo 'error: another version' >&2; exit 2; }; idle";
    let sandbox = Sandbox::with(&LEARNER.replace("echo", "touch \"$SEEN/asked\"; echo"), actor, "idle");
    let ran = launch(&sandbox, &[]).ended();
    let last = ran.err.lines().last().unwrap();
    let expected = "error: evaluator exited with code 2 (another version), 5 times in a row shortly after its start; \
                see mine/logs/evaluator.log";
    assert_eq!(last, expected);
    assert_eq!((ran.code, started_with(&sandbox, "evaluator").len()), (Some(1), 5));
    assert!(sandbox.seen().join("asked").exists(), "the learner could write its checkpoint");
    wait_until_gone(&sandbox);
}

#[test]
fn children_exit_with_a_killed_launcher_and_the_run_can_resume_at_once() {
    let sandbox = Sandbox::with(LEARNER, "idle", "idle");
    let launched = launch(&sandbox, &["--actors", "1"]);
    launched.wait_for_all();
    launched.signal("KILL");
    assert_eq!(launched.ended().code, None);
    // No pause: the new launcher waits for processes of the previous cluster.
    let learner = format!("[ $life = 1 ] || {{ ready 700; await \"$SEEN/shard\"; {}; }}", finished());
    install(&sandbox, &learner, "idle", "touch \"$SEEN/shard\"; idle");
    let ran = start(&sandbox, &["train", "--resume", "mine"]).ended();
    assert_eq!(ran.code, Some(0), "{}", ran.err);
    wait_until_gone(&sandbox);
    assert!(!sockets(&sandbox).exists());
    let shards = started_with(&sandbox, "shard-0");
    assert_eq!(shards[0], shards[1], "the same addresses");
}

#[test]
fn a_run_has_one_launcher() {
    let sandbox = Sandbox::with(LEARNER, "idle", "idle");
    let first = launch(&sandbox, &["--actors", "1"]);
    let processes = first.wait_for_all();
    let second = sandbox.quiver(&["train", "--resume", "mine"]);
    assert!(second.refused().starts_with("mine is in use by another process"), "{}", second.err);
    assert_eq!(first.wait_for_all(), processes, "the first cluster is unaffected");
    assert_eq!(started_with(&sandbox, "learner").len(), 1);
    first.signal("INT");
    assert_eq!(first.ended().code, Some(0));
}

#[test]
fn a_run_that_trains_in_lockstep_is_in_use_too() {
    let sandbox = Sandbox::with(LEARNER, "idle", "idle");
    sandbox.install_lockstep(crate::halves::ECHO);
    let path = sandbox.run("mine", "cartpole");
    let (_held, _) = run::RunDir::open(&path).unwrap();
    let ran = sandbox.quiver(&["train", "--resume", "mine"]);
    assert!(ran.refused().starts_with("mine is in use by another process"), "{}", ran.err);
    assert!(fs::read_dir(sandbox.seen()).unwrap().next().is_none(), "no process was started");
}
