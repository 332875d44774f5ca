//! The disk of the run directory is full for a while, which a limit of the learner's file sizes stands for.

use run::record::{episodes, training};

use crate::harness::Cluster;
use crate::process::until;

#[test]
fn a_full_disk_pauses_training_and_the_run_resumes_by_itself_with_nothing_lost() {
    let mut cluster = Cluster::start(1, 1, &["--min-size", "128"]);
    cluster.moves_on(&[0]);
    cluster.learner.limit_files(Some(0));
    until("the learner waits for space", || cluster.learner_waits_for(&["disk"]));
    let updates = cluster.updates();
    // Members and shards stay connected meanwhile.
    assert_eq!(cluster.learner.metric("quiver_learner_members{role=\"actor\"}"), 1.0);
    assert_eq!(cluster.updates(), updates, "training is paused");
    cluster.learner.limit_files(None);
    until("training resumes", || !cluster.learner_waits_for(&["disk"]) && cluster.updates() > updates);
    cluster.moves_on(&[0]);
    assert!(cluster.learner.ended().is_none());
    cluster.learner.kill();
    // The record has every entry whole and once.
    let (episodes, training) = (episodes(&cluster.run_dir()).unwrap(), training(&cluster.run_dir()).unwrap());
    assert_eq!((episodes.bad_count, training.bad_count), (0, 0));
    let (episodes, training) = (episodes.values, training.values);
    assert!(episodes.is_sorted_by_key(|episode| episode.frames) && !episodes.is_empty());
    assert!(training.is_sorted_by(|earlier, later| earlier.updates < later.updates));
}
