//! How runs end by themselves, and what can follow.

use crate::harness::Cluster;
use crate::launcher::Launched;

/// At the frame budget the learner may not have made an update since it last ordered an evaluation: here none at all.
#[test]
fn a_run_that_ends_before_its_first_update_is_evaluated_all_the_same() {
    let mut launched = Launched::start(&["--frames", "1001", "--evaluate-final-episodes", "5"]);
    assert_eq!(launched.process.end().code(), Some(0), "{}", launched.process.log());
    launched.ended_well(1001, 5);
}

#[test]
fn everyone_leaves_a_finished_run_and_with_more_frames_it_goes_on_with_the_same_shards() {
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
        assert!(cluster.counters(0).actions >= frames.parse().unwrap());
    }
}
