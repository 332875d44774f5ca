//! How a cluster ends: by Ctrl-C, by force, by an error, by the launcher's own death. Nobody is left behind.

use std::fs;

use crate::fakes::{
    LEARNER, finished, install, launch, sockets, start, start_through, started_with, wait_until,
    wait_until_gone,
};
use crate::place::Place;

/// Does not listen to a polite request.
const STUBBORN: &str = "trap '' TERM; idle";

#[test]
fn ctrl_c_stops_everyone_and_says_how_to_go_on() {
    for signal in ["INT", "TERM", "HUP"] {
        let place = Place::new();
        install(&place, LEARNER, STUBBORN, "idle");
        let launched = launch(&place, &["--actors", "1"]);
        launched.wait_for_all();
        launched.signal(signal);
        let ran = launched.ended();
        assert_eq!(ran.said(), "stopped at frame 1,234; go on with\n  quiver train --resume mine\n");
        assert!(ran.err.contains("stopping: writing a checkpoint"), "{}", ran.err);
        wait_until_gone(&place);
        assert!(!sockets(&place).exists() && !place.here().join("mine/processes.json").exists());
    }
}

#[test]
fn with_nohup_a_cluster_outlives_its_terminal() {
    let place = Place::new();
    install(&place, LEARNER, "idle", "idle");
    place.other_half(crate::halves::ECHO);
    let words = ["train", "cartpole", "--run-dir", "mine", "--actors", "1"];
    let launched = start_through(&place, &["env", "--ignore-signal=HUP"], &words);
    launched.wait_for_all();
    launched.signal("HUP");
    // Had the first been a request to stop, this would be the second.
    launched.signal("INT");
    assert!(launched.ended().said().contains("go on with"));
    wait_until_gone(&place);
}

#[test]
fn a_second_ctrl_c_ends_all_at_once() {
    let place = Place::new();
    install(&place, &format!("ready\n{STUBBORN}"), STUBBORN, STUBBORN);
    let launched = launch(&place, &["--actors", "1"]);
    launched.wait_for_all();
    launched.signal("INT");
    launched.wait_for("stopping: writing a checkpoint (once more: quit at once, without one)");
    launched.signal("INT");
    let ran = launched.ended();
    assert_eq!(ran.code, Some(130), "{}", ran.err);
    assert!(ran.err.contains("quiver train --resume mine"), "{}", ran.err);
    wait_until_gone(&place);
    assert!(!sockets(&place).exists());
}

#[test]
fn a_learner_that_takes_too_long_is_killed_and_that_is_said() {
    let place = Place::new();
    install(&place, &format!("ready\n{STUBBORN}"), "idle", "idle");
    let launched = launch(&place, &["--actors", "1"]);
    launched.wait_for_all();
    launched.signal("INT");
    let ran = launched.ended();
    assert_eq!(ran.code, Some(1), "{}", ran.err);
    let last = ran.err.lines().last().unwrap();
    assert!(last.starts_with("error: the learner did not end within 20 s and was killed"), "{last}");
    assert!(last.ends_with("quiver train --resume mine"), "{last}");
    wait_until_gone(&place);
}

#[test]
fn stopping_before_there_is_a_run_leaves_none() {
    let place = Place::new();
    install(&place, "touch \"$SEEN/there\"; idle", "idle", "idle");
    let launched = launch(&place, &[]);
    wait_until("the learner", || place.seen().join("there").exists(), String::new);
    launched.signal("INT");
    let ran = launched.ended();
    assert_eq!(ran.said(), "stopped before there was a run to go on with\n");
    assert_eq!(place.left(), [""; 0]);
    wait_until_gone(&place);
}

#[test]
fn a_learners_error_ends_the_run_with_its_words() {
    for begun in ["", "ready;"] {
        let place = Place::new();
        let learner = format!("{begun} echo 'INFO hello' >&2; echo 'error: the disk is full' >&2; exit 1");
        install(&place, &learner, "idle", "idle");
        let ran = launch(&place, &[]).ended();
        assert_eq!((ran.code, ran.err.lines().last()), (Some(1), Some("error: the disk is full")));
        assert_eq!(started_with(&place, "learner").len(), 1, "it would end the same again");
        wait_until_gone(&place);
        assert!(!sockets(&place).exists());
    }
}

#[test]
fn a_learner_that_can_not_be_loaded_is_quoted() {
    let place = Place::new();
    install(&place, "echo 'quiver-learner: symbol lookup error: x' >&2; exit 127", "idle", "idle");
    let ran = launch(&place, &[]).ended();
    let told = "learner ended with exit code 127 (quiver-learner: symbol lookup error: x)";
    assert_eq!(ran.refused(), told);
    assert_eq!(place.left(), [""; 0]);
}

#[test]
fn a_player_that_never_starts_ends_the_run_with_its_words_and_a_checkpoint() {
    let place = Place::new();
    let actor = "[ $name = evaluator ] && { echo 'error: another version' >&2; exit 2; }; idle";
    install(&place, &LEARNER.replace("echo", "touch \"$SEEN/asked\"; echo"), actor, "idle");
    let ran = launch(&place, &[]).ended();
    let last = ran.err.lines().last().unwrap();
    let told = "error: evaluator ended with exit code 2 (another version), 5 times in a row at its start; \
                see mine/logs/evaluator.log";
    assert_eq!(last, told);
    assert_eq!((ran.code, started_with(&place, "evaluator").len()), (Some(1), 5));
    assert!(place.seen().join("asked").exists(), "the learner could write its checkpoint");
    wait_until_gone(&place);
}

#[test]
fn children_end_with_a_launcher_that_was_killed_and_the_run_goes_on_at_once() {
    let place = Place::new();
    install(&place, LEARNER, "idle", "idle");
    let launched = launch(&place, &["--actors", "1"]);
    launched.wait_for_all();
    launched.signal("KILL");
    assert_eq!(launched.ended().code, None);
    // No pause: whoever of the former cluster is not gone yet is waited for.
    let learner = format!("[ $life = 1 ] || {{ ready 700; await \"$SEEN/shard\"; {}; }}", finished());
    install(&place, &learner, "idle", "touch \"$SEEN/shard\"; idle");
    let ran = start(&place, &["train", "--resume", "mine"]).ended();
    assert_eq!(ran.code, Some(0), "{}", ran.err);
    wait_until_gone(&place);
    assert!(!sockets(&place).exists());
    let shards = started_with(&place, "shard-0");
    assert_eq!(shards[0], shards[1], "the same addresses");
}

#[test]
fn a_run_has_one_launcher() {
    let place = Place::new();
    install(&place, LEARNER, "idle", "idle");
    let first = launch(&place, &["--actors", "1"]);
    let processes = first.wait_for_all();
    let second = place.quiver(&["train", "--resume", "mine"]);
    assert!(second.refused().starts_with("mine is in use by another process"), "{}", second.err);
    assert_eq!(first.wait_for_all(), processes, "the first is not disturbed");
    assert_eq!(started_with(&place, "learner").len(), 1);
    first.signal("INT");
    assert_eq!(first.ended().code, Some(0));
}

#[test]
fn a_run_that_trains_in_lockstep_is_in_use_too() {
    let place = Place::new();
    install(&place, LEARNER, "idle", "idle");
    place.other_half(crate::halves::ECHO);
    let path = place.run("mine", "cartpole");
    let (_held, _) = run::RunDir::open(&path).unwrap();
    let ran = place.quiver(&["train", "--resume", "mine"]);
    assert!(ran.refused().starts_with("mine is in use by another process"), "{}", ran.err);
    assert!(fs::read_dir(place.seen()).unwrap().next().is_none(), "nobody was started");
}
