//! How runs end by themselves, and what can follow.

use crate::harness::Cluster;
use crate::launcher::Launched;
use rustix::process::Signal;

/// At the frame budget the learner may not have made an update since it last ordered an evaluation: here none at all.
#[test]
fn a_run_that_ends_before_its_first_update_is_evaluated_all_the_same() {
    let mut launched = Launched::start(&["--frames", "1001", "--evaluate-final-episodes", "5"]);
    assert_eq!(launched.process.end().code(), Some(0), "{}", launched.process.log());
    launched.ended_well(1001, 5);
}

#[test]
fn all_members_leave_a_finished_run_and_with_more_frames_it_resumes_with_the_same_shards() {
    let flags = |frames| ["--min-size", "128", "--evaluate-final-episodes", "2", "--frames", frames];
    let mut cluster = Cluster::start(1, 1, &flags("600"));
    for frames in ["600", "1500"] {
        cluster.configure(&flags(frames));
        let mut evaluator = cluster.start_member("evaluator", &["--evaluate"]);
        if frames != "600" {
            cluster.start_learner();
            cluster.start_actor(0);
        }
        assert_eq!(cluster.learner.end().code(), Some(0), "at {frames} frames");
        assert_eq!(cluster.actors[0].end().code(), Some(0), "at {frames} frames");
        assert_eq!(evaluator.end().code(), Some(0), "at {frames} frames");
        assert!(cluster.counters(0).agent_steps >= frames.parse().unwrap());
    }
}

/// The learner stays for late members until it is stopped; restarted, it reports the end again.
#[test]
fn an_actor_that_starts_when_the_run_has_ended_hears_of_it_and_leaves() {
    const LONGER_THAN_THE_TEST: u32 = 3600;
    let flags = ["--min-size", "128", "--evaluate-final-episodes", "2", "--frames", "600"];
    let mut cluster = Cluster::start_with_linger(1, 1, &flags, LONGER_THAN_THE_TEST);
    let mut evaluator = cluster.start_member("evaluator", &["--evaluate"]);
    for life in ["first", "second"] {
        assert_eq!(cluster.actors[0].end().code(), Some(0), "of the learner's {life} life");
        assert_eq!(evaluator.end().code(), Some(0), "of the learner's {life} life");
        let mut late = cluster.start_member("late", &[]);
        assert_eq!(late.end().code(), Some(0), "of the learner's {life} life");
        assert_eq!(cluster.learner.ended(), None);
        cluster.learner.signal(Signal::TERM);
        assert_eq!(cluster.learner.end().code(), Some(0));
        // These find no learner and wait.
        cluster.start_actor(0);
        evaluator = cluster.start_member("evaluator", &["--evaluate"]);
        cluster.start_learner();
    }
}

/// What was changed in mid-run lasts, unless the resumed run sets something else. Launcher and learner agree.
#[test]
fn a_run_continues_without_an_excluded_shard_until_it_is_included_again() {
    let flags = |frames| ["--min-size", "128", "--evaluate-final-episodes", "2", "--frames", frames];
    let ends = |launched: &mut Launched, budget: u64| {
        assert_eq!(launched.process.end().code(), Some(0), "{}", launched.process.log());
        launched.ended_well(budget, 2);
    };
    let mut launched = Launched::start(&[&flags("600")[..], &["--shards", "2"]].concat());
    ends(&mut launched, 600);
    let said = |launched: &Launched| launched.file("adjusted.json").unwrap_or_default();
    let changes = [("without_shards".to_owned(), "1".to_owned())].into();
    run::adjusted::save(launched.run(), &changes).unwrap();
    let data = launched.run().join("replay/shard-1");
    std::fs::remove_dir_all(&data).unwrap();
    launched.resume(&["--frames", "900"]);
    ends(&mut launched, 900);
    assert!(said(&launched).contains("\"1\""));
    assert!(!data.exists(), "no process has started it");
    launched.resume(&["--frames", "1500", "--without-shards", "none"]);
    ends(&mut launched, 1500);
    assert!(data.exists());
    assert!(said(&launched).contains("none"));
}
