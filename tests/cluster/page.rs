//! The learner's page, as it serves it while it trains.

use crate::harness::Cluster;
use crate::process::until;

#[test]
fn the_page_follows_a_run_and_knows_its_past_after_a_restart() {
    let mut cluster = Cluster::start(2, 1, &["--min-size", "128"]);
    let evaluator = cluster.start_member("evaluator", &["--evaluate"]);
    until("there is an evaluation", || evaluator.metric("quiver_actor_evaluations_total") >= 1.0);
    let shows = |cluster: &Cluster, words: &str| {
        until(&format!("the page shows {words}"), || cluster.learner.page("/").contains(words));
    };
    for words in ["CartPole <span class=\"state good\">training", "2 shards · 1 evaluator", "; the latest is"]
    {
        shows(&cluster, words);
    }
    let page = cluster.learner.page("/");
    let folder = cluster.path().display().to_string();
    for secret in [folder.as_str(), "unix:", &cluster.run().0] {
        assert!(!page.contains(secret), "{secret} is in the page");
    }

    drop(evaluator);
    cluster.learner.kill();
    cluster.start_learner();
    // Without an evaluator, so what it shows is of its former life.
    shows(&cluster, "; the latest is");
    shows(&cluster, "2 shards · 0 evaluators");
}
