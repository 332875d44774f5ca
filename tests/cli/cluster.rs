//! How a cluster is started and watched: who is started with which words, who is started again, what is said.

use std::fs;

use run::event::Event;
use serde_json::json;

use crate::fakes::{finished, install, launch, progress, sockets, started_with, tell, wait_until};
use crate::place::Place;

/// A learner that ends well as soon as a file is there.
fn learner_until(file: &str) -> String {
    format!("ready\nawait \"$SEEN/{file}\"\n{}", finished())
}

#[test]
fn everyone_is_started_with_what_they_need() {
    let place = Place::new();
    install(&place, &learner_until("go"), "idle", "idle");
    let launched = launch(&place, &["--actors", "2", "--shards", "2", "--lanes", "3"]);
    launched.wait_for_all();
    let (sockets, run) = (sockets(&place), place.here().join("mine"));
    let address = |name: &str| format!("unix:{}/{name}", sockets.display());
    let common = |name: &str| format!("--lifeline --status-file {}/processes/{name}.json", sockets.display());
    let (learner, config) = (address("learner"), sockets.join("config.toml"));
    for index in 0..2 {
        let name = format!("shard-{index}");
        let expected = format!("--listen {} --data-dir mine/replay/{name} {}", address(&name), common(&name));
        assert_eq!(started_with(&place, &name), [expected]);
        let name = format!("actor-{index}");
        let expected = format!("--learner {learner} --index {index} {}", common(&name));
        assert_eq!(started_with(&place, &name), [expected]);
    }
    let expected = format!("--evaluate --learner {learner} {}", common("evaluator"));
    assert_eq!(started_with(&place, "evaluator"), [expected]);
    let expected = format!(
        "--config {} --run-dir mine --listen {learner} --shard {} --shard {} --events --farewell 0 {}",
        config.display(),
        address("shard-0"),
        address("shard-1"),
        common("learner")
    );
    assert_eq!(started_with(&place, "learner"), [expected]);

    let resolved = settings::Resolved::from_file(&config).unwrap();
    assert_eq!((resolved.game.as_str(), resolved.settings.lanes), ("cartpole", 3));
    let mode = std::os::unix::fs::MetadataExt::mode(&fs::metadata(&sockets).unwrap());
    assert_eq!(mode & 0o777, 0o700, "nobody else gets at the sockets");
    fs::write(place.seen().join("go"), "").unwrap();
    let ran = launched.ended();
    assert!(ran.said().contains("\ncartpole · soft-dqn · ver · 20,000 frames, 300 updates in 1 min 1 s\n"));
    assert!(!sockets.exists() && !run.join("processes.json").exists(), "what only lives with the cluster");
}

#[test]
fn a_child_that_dies_is_started_again_and_reported() {
    for (name, death, told) in [
        ("actor-1", "kill -9 $$", "actor-1 was killed by signal 9; starting it again (1st time)"),
        ("shard-0", "exit 3", "shard-0 ended with exit code 3; starting it again (1st time)"),
        (
            "actor-0",
            "echo 'error: no ROM' >&2; exit 1",
            "actor-0 ended with exit code 1 (no ROM); starting it again (1st time)",
        ),
        (
            "evaluator",
            "printf 'thread panicked at x.rs:1:2:\\nout of range\\n' >&2; exit 101",
            "evaluator panicked (out of range); starting it again (1st time)",
        ),
    ] {
        let place = Place::new();
        let dies = format!("[ \"$name $life\" = \"{name} 1\" ] && {{ {death}; }}");
        let script = format!("{dies}\n[ $life = 2 ] && touch \"$SEEN/again\"\nidle");
        install(&place, &learner_until("again"), &script, &script);
        let ran = launch(&place, &[]).ended();
        assert!(ran.err.lines().any(|line| line == told), "'{told}' in: {}", ran.err);
        assert_eq!((ran.code, started_with(&place, name).len()), (Some(0), 2), "{}", ran.err);
    }
}

#[test]
fn a_learner_that_was_cut_off_goes_on() {
    let place = Place::new();
    let learner = format!("[ $life = 1 ] && {{ ready; kill -11 $$; }}\nready 500\n{}", finished());
    install(&place, &learner, "idle", "idle");
    let ran = launch(&place, &[]).ended();
    assert_eq!(ran.code, Some(0), "{}", ran.err);
    assert!(ran.err.contains("learner was killed by signal 11; starting it again (1st time)"), "{}", ran.err);
}

#[test]
fn what_children_say_is_kept_in_logs() {
    let place = Place::new();
    let learner = format!("echo early >&2\n{}", learner_until("spoken"));
    install(&place, &learner, "echo \"I am $name\" >&2; touch \"$SEEN/spoken\"; idle", "idle");
    let ran = launch(&place, &["--actors", "1"]).ended();
    assert_eq!(ran.code, Some(0), "{}", ran.err);
    let log = |name: &str| fs::read_to_string(place.here().join("mine/logs").join(name)).unwrap();
    assert_eq!(log("learner.log"), "early\n");
    wait_until("the log", || log("actor-0.log") == "I am actor-0\n", || log("actor-0.log"));
    assert!(!ran.err.contains("I am"), "not between the lines for people: {}", ran.err);
}

#[test]
fn the_list_of_processes_says_who_runs_where() {
    let place = Place::new();
    let status = json!({ "name": "shard-0", "pid": 1, "metrics": "http://127.0.0.1:9" });
    let shard = format!("[ $life = 2 ] && echo '{status}' >\"$status\"\nidle");
    install(&place, &learner_until("go"), "idle", &shard);
    let launched = launch(&place, &["--actors", "1"]);
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
    fs::write(place.seen().join("go"), "").unwrap();
    assert_eq!(launched.ended().code, Some(0));
}

#[test]
fn what_the_learner_tells_is_shown() {
    let place = Place::new();
    let note = tell(&Event::Note { text: "going on from checkpoint 7".into() });
    let (policy, scores) = (settings::choices::EvaluationPolicy::Greedy, vec![9.0, 11.0]);
    let evaluation = run::record::Evaluation {
        frames: 5_000,
        updates: 0,
        player: "agent".into(),
        policy,
        mean: 10.0,
        standard_error: 1.0,
        scores,
    };
    let record =
        format!("echo '{}' >\"$run/evaluations.jsonl\"", serde_json::to_string(&evaluation).unwrap());
    let lines =
        ["ready", &note, "echo 'not an event'", &record, &tell(&Event::Evaluation(evaluation)), &finished()];
    install(&place, &lines.join("\n"), "idle", "idle");
    let ran = launch(&place, &["--frames", "30k"]).ended();
    let told: Vec<_> = ran.err.lines().collect();
    let expected = [
        "training cartpole with soft-dqn and ver replay for 30,000 frames in mine",
        "going on from checkpoint 7",
        "frame       5,000  evaluation     10.00 ± 1.00 over 2 games (greedy)",
    ];
    assert_eq!(told, expected);
    assert!(ran.said().contains("  curve     mine/curve.png and curve.svg\n"), "{}", ran.out);
    assert!(place.here().join("mine/curve.png").is_file());
}

#[test]
fn the_page_is_pointed_out_whenever_it_is_somewhere_else() {
    let place = Place::new();
    // The learner dies twice, and is elsewhere in its last life only.
    let learner = format!(
        "[ $life = 3 ] && port=2222 || port=1111\n\
         echo \"{{\\\"metrics\\\":\\\"http://127.0.0.1:$port\\\"}}\" >\"$status\"\n\
         ready\n[ $life = 3 ] || kill -KILL $$\n{}",
        finished()
    );
    install(&place, &learner, "idle", "idle");
    let ran = launch(&place, &["--page", "127.0.0.1:1111"]).ended();
    let told: Vec<_> = ran.err.lines().filter(|line| line.starts_with("watch it at")).collect();
    assert_eq!(
        told,
        ["watch it at http://127.0.0.1:1111/", "watch it at http://127.0.0.1:2222/"],
        "{}",
        ran.err
    );
    let words = started_with(&place, "learner");
    assert!(words.iter().all(|words| words.contains("--metrics-listen 127.0.0.1:1111")), "{words:?}");
}

#[test]
fn lockstep_has_no_page() {
    let place = Place::new();
    let ran = place.quiver(&["train", "cartpole", "--lockstep", "--page", "127.0.0.1:1111"]);
    assert!(ran.refused().contains("lockstep serves no page"), "{}", ran.err);
    assert_eq!(place.left(), [""; 0]);
}

#[test]
fn players_that_end_when_all_is_played_are_left_alone() {
    let place = Place::new();
    // The second actor ends too early; both end when the last frame is played.
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
    install(&place, &learner, actor, "idle");
    let ran = launch(&place, &[]).ended();
    assert_eq!(ran.code, Some(0), "{}", ran.err);
    let reports: Vec<_> = ran.err.lines().filter(|line| line.contains("again")).collect();
    assert_eq!(reports, ["actor-1 ended early; starting it again (1st time)"]);
    assert_eq!((started_with(&place, "actor-0").len(), started_with(&place, "actor-1").len()), (1, 2));
}

#[test]
fn a_missing_program_is_named() {
    for missing in ["quiver-replay-server", "quiver-learner", "quiver-actor"] {
        let place = Place::new();
        place.other_half(crate::halves::ECHO);
        for name in ["quiver-replay-server", "quiver-learner", "quiver-actor"] {
            if name != missing {
                place.program(name, "exit 1");
            }
        }
        let ran = place.quiver(&["train", "cartpole"]);
        assert!(ran.refused().starts_with(&format!("{missing} is missing next to quiver")), "{}", ran.err);
        assert!(ran.err.contains("run `make build`"), "{}", ran.err);
        assert_eq!(place.left(), [""; 0]);
    }
}
