//! How a cluster is started and supervised: command lines, restarts, output.

use std::fs;

use run::event::Event;
use run::record::Evaluation;
use serde_json::json;

use crate::fakes::{finished, launch, progress, send, sockets, started_with, wait_until};
use crate::sandbox::Sandbox;

/// A learner that finishes the run as soon as a file exists.
fn learner_until(file: &str) -> String {
    format!("ready\nawait \"$SEEN/{file}\"\n{}", finished())
}

#[test]
fn every_process_is_started_with_its_arguments() {
    let sandbox = Sandbox::with(&learner_until("go"), "idle", "idle");
    let launched = launch(&sandbox, &["--actors", "2", "--shards", "2", "--lanes", "3"]);
    launched.wait_for_all();
    let (sockets, run) = (sockets(&sandbox), sandbox.here().join("mine"));
    let address = |name: &str| format!("unix:{}/{name}", sockets.display());
    let common =
        |name: &str| format!("--exit-with-parent --status-file {}/processes/{name}.json", sockets.display());
    let (learner, config) = (address("learner"), sockets.join("config.toml"));
    for index in 0..2 {
        let name = format!("shard-{index}");
        let expected = format!("--listen {} --data-dir mine/replay/{name} {}", address(&name), common(&name));
        assert_eq!(started_with(&sandbox, &name), [expected]);
        let name = format!("actor-{index}");
        let expected = format!("--learner {learner} --index {index} {}", common(&name));
        assert_eq!(started_with(&sandbox, &name), [expected]);
    }
    let expected = format!("--evaluate --learner {learner} {}", common("evaluator"));
    assert_eq!(started_with(&sandbox, "evaluator"), [expected]);
    let expected = format!(
        "--config {} --run-dir mine --listen {learner} --shard {} --shard {} --events --linger-seconds 0 {}",
        config.display(),
        address("shard-0"),
        address("shard-1"),
        common("learner")
    );
    assert_eq!(started_with(&sandbox, "learner"), [expected]);

    let resolved = settings::Resolved::from_file(&config).unwrap();
    assert_eq!((resolved.game.as_str(), resolved.settings.lanes), ("cartpole", 3));
    let mode = std::os::unix::fs::MetadataExt::mode(&fs::metadata(&sockets).unwrap());
    assert_eq!(mode & 0o777, 0o700, "other users have no access to the sockets");
    fs::write(sandbox.seen().join("go"), "").unwrap();
    let ran = launched.ended();
    assert!(ran.stdout().contains("\ncartpole · soft-dqn · ver · 20,000 frames, 300 updates in 1 min 1 s\n"));
    assert!(!sockets.exists() && !run.join("processes.json").exists(), "deleted with the cluster");
}

#[test]
fn a_child_that_dies_is_restarted_and_reported() {
    for (name, death, report) in [
        ("actor-1", "kill -9 $$", "actor-1 was killed by signal 9; restarting it (1st time)"),
        ("shard-0", "exit 3", "shard-0 exited with code 3; restarting it (1st time)"),
        (
            "actor-0",
            "echo 'error: no ROM' >&2; exit 1",
            "actor-0 exited with code 1 (no ROM); restarting it (1st time)",
        ),
        (
            "evaluator",
            "printf 'thread panicked at x.rs:1:2:\\nout of range\\n' >&2; exit 101",
            "evaluator panicked (out of range); restarting it (1st time)",
        ),
    ] {
        let dies = format!("[ \"$name $life\" = \"{name} 1\" ] && {{ {death}; }}");
        let script = format!("{dies}\n[ $life = 2 ] && touch \"$SEEN/again\"\nidle");
        let sandbox = Sandbox::with(&learner_until("again"), &script, &script);
        let ran = launch(&sandbox, &[]).ended();
        assert!(ran.err.lines().any(|line| line == report), "'{report}' in: {}", ran.err);
        assert_eq!((ran.code, started_with(&sandbox, name).len()), (Some(0), 2), "{}", ran.err);
    }
}

#[test]
fn a_learner_that_crashes_is_restarted() {
    let learner = format!("[ $life = 1 ] && {{ ready; kill -11 $$; }}\nready 500\n{}", finished());
    let sandbox = Sandbox::with(&learner, "idle", "idle");
    let ran = launch(&sandbox, &[]).ended();
    assert_eq!(ran.code, Some(0), "{}", ran.err);
    assert!(ran.err.contains("learner was killed by signal 11; restarting it (1st time)"), "{}", ran.err);
}

#[test]
fn output_of_children_is_written_to_logs() {
    let learner = format!("echo early >&2\n{}", learner_until("spoken"));
    let sandbox = Sandbox::with(&learner, "echo \"I am $name\" >&2; touch \"$SEEN/spoken\"; idle", "idle");
    let ran = launch(&sandbox, &["--actors", "1"]).ended();
    assert_eq!(ran.code, Some(0), "{}", ran.err);
    let log = |name: &str| fs::read_to_string(sandbox.here().join("mine/logs").join(name)).unwrap();
    assert_eq!(log("learner.log"), "early\n");
    wait_until("the log", || log("actor-0.log") == "I am actor-0\n", || log("actor-0.log"));
    assert!(!ran.err.contains("I am"), "not in the launcher's output: {}", ran.err);
}

#[test]
fn processes_json_lists_pids_addresses_and_restarts() {
    let status = json!({ "name": "shard-0", "pid": 1, "metrics": "http://127.0.0.1:9" });
    let shard = format!("[ $life = 2 ] && echo '{status}' >\"$status\"\nidle");
    let sandbox = Sandbox::with(&learner_until("go"), "idle", &shard);
    let launched = launch(&sandbox, &["--actors", "1"]);
    let names = ["shard-0", "learner", "actor-0", "evaluator"];
    let before = launched.wait_for_all();
    assert_eq!(before.iter().map(|process| &process["name"]).collect::<Vec<_>>(), names);
    assert!(before.iter().all(|process| process["restarts"] == 0 && process["metrics"].is_null()));
    assert!(before[0]["address"].as_str().is_some_and(|address| address.ends_with("/shard-0")));
    let pid = before[0]["pid"].to_string();
    assert!(std::process::Command::new("kill").args(["-9", &pid]).status().unwrap().success());
    let after = launched.wait_for_processes(|all| all[0]["metrics"].is_string());
    assert_eq!((&after[0]["restarts"], &after[0]["metrics"]), (&json!(1), &json!("http://127.0.0.1:9")));
    assert_ne!(after[0]["pid"], before[0]["pid"]);
    assert_eq!(after[1..], before[1..]);
    fs::write(sandbox.seen().join("go"), "").unwrap();
    assert_eq!(launched.ended().code, Some(0));
}

#[test]
fn events_of_the_learner_are_displayed() {
    let note = send(&Event::Note { text: "resuming from checkpoint 7".into() });
    let policy = settings::choices::EvaluationPolicy::Greedy;
    let evaluation = Evaluation { frames: 5_000, ..Evaluation::new("agent", policy, vec![9.0, 11.0]) };
    let record =
        format!("echo '{}' >\"$run/evaluations.jsonl\"", serde_json::to_string(&evaluation).unwrap());
    let lines =
        ["ready", &note, "echo 'not an event'", &record, &send(&Event::Evaluation(evaluation)), &finished()];
    let sandbox = Sandbox::with(&lines.join("\n"), "idle", "idle");
    let ran = launch(&sandbox, &["--frames", "30k"]).ended();
    let shown: Vec<_> = ran.err.lines().collect();
    let expected = [
        "training cartpole with soft-dqn and ver replay for 30,000 frames in mine",
        "resuming from checkpoint 7",
        "frame       5,000  evaluation     10.00 ± 1.00 over 2 games (greedy)",
    ];
    assert_eq!(shown, expected);
    assert!(ran.stdout().contains("  curve     mine/curve.png and curve.svg\n"), "{}", ran.out);
    assert!(sandbox.here().join("mine/curve.png").is_file());
}

#[test]
fn the_pages_address_is_printed_whenever_it_changes() {
    // The learner dies twice and has another address only after the second restart.
    let learner = format!(
        "[ $life = 3 ] && port=2222 || port=1111\n\
         echo \"{{\\\"metrics\\\":\\\"http://127.0.0.1:$port\\\"}}\" >\"$status\"\n\
         ready\n[ $life = 3 ] || kill -KILL $$\n{}",
        finished()
    );
    let sandbox = Sandbox::with(&learner, "idle", "idle");
    let ran = launch(&sandbox, &["--page", "127.0.0.1:1111"]).ended();
    let shown: Vec<_> = ran.err.lines().filter(|line| line.starts_with("live page")).collect();
    assert_eq!(
        shown,
        ["live page: http://127.0.0.1:1111/", "live page: http://127.0.0.1:2222/"],
        "{}",
        ran.err
    );
    let words = started_with(&sandbox, "learner");
    assert!(words.iter().all(|words| words.contains("--metrics-listen 127.0.0.1:1111")), "{words:?}");
}

#[test]
fn lockstep_has_no_page() {
    let sandbox = Sandbox::new();
    let ran = sandbox.quiver(&["train", "cartpole", "--lockstep", "--page", "127.0.0.1:1111"]);
    ran.refused_for(&["a lockstep run has no live page"]);
    assert_eq!(sandbox.left(), [""; 0]);
}

#[test]
fn players_that_exit_after_the_last_frame_are_not_restarted() {
    // The second actor exits too early once; both exit after the last frame.
    let actor = r#"
    [ "$name $life" = "actor-1 1" ] && exit 0
    [ "$name $life" = "actor-1 2" ] && touch "$SEEN/both"
    [ $name = evaluator ] && idle
    await "$SEEN/last-frame"; touch "$SEEN/$name-done"; exit 0"#;
    let learner = format!(
        "ready\nawait \"$SEEN/both\"\n{}\ntouch \"$SEEN/last-frame\"\nawait \"$SEEN/actor-0-done\"\n\
         await \"$SEEN/actor-1-done\"\nsleep 2\n{}",
        progress(20_000),
        finished()
    );
    let sandbox = Sandbox::with(&learner, actor, "idle");
    let ran = launch(&sandbox, &[]).ended();
    assert_eq!(ran.code, Some(0), "{}", ran.err);
    let reports: Vec<_> = ran.err.lines().filter(|line| line.contains("restarting")).collect();
    assert_eq!(reports, ["actor-1 exited early; restarting it (1st time)"]);
    assert_eq!((started_with(&sandbox, "actor-0").len(), started_with(&sandbox, "actor-1").len()), (1, 2));
}

#[test]
fn a_missing_program_is_named() {
    for missing in ["quiver-replay-server", "quiver-learner", "quiver-actor"] {
        let sandbox = Sandbox::new();
        sandbox.install_lockstep(crate::halves::ECHO);
        for name in ["quiver-replay-server", "quiver-learner", "quiver-actor"] {
            if name != missing {
                sandbox.program(name, "exit 1");
            }
        }
        let ran = sandbox.quiver(&["train", "cartpole"]);
        assert!(ran.refused().starts_with(&format!("{missing} is missing next to quiver")), "{}", ran.err);
        assert!(ran.err.contains("run 'make build'"), "{}", ran.err);
        assert_eq!(sandbox.left(), [""; 0]);
    }
}
