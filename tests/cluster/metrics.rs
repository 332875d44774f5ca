//! `docs/metrics.md` against what the processes really export.

use std::collections::BTreeSet;
use std::path::Path;

use crate::harness::Cluster;
use crate::process::until;

/// Names in backticks in the first column of the page's tables, without labels.
fn documented() -> BTreeSet<String> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/metrics.md");
    let page = std::fs::read_to_string(&path)
        .unwrap_or_else(|error| panic!("{} must list every metric: {error}", path.display()));
    let name = |line: &str| {
        let first = line.trim().strip_prefix('|')?.split('|').next()?.trim();
        let name = first.strip_prefix('`')?.split(['`', '{']).next()?;
        Some(name.to_owned())
    };
    let mut names = BTreeSet::new();
    for name in page.lines().filter_map(name) {
        assert!(names.insert(name.clone()), "docs/metrics.md lists `{name}` twice");
    }
    names
}

/// Families of a page of metrics.
fn families(page: &str) -> impl Iterator<Item = String> {
    let types = page.lines().filter_map(|line| line.strip_prefix("# TYPE "));
    types.map(|rest| rest.split(' ').next().unwrap_or_default().to_owned())
}

#[test]
fn the_documented_metrics_are_exactly_those_that_the_processes_export() {
    let cluster = Cluster::start(1, 1, &["--min-size", "128"]);
    let evaluator = cluster.start_member("evaluator", &["--evaluate"]);
    cluster.moves_on(&[0]);
    until("there is an evaluation", || evaluator.metric("quiver_actor_evaluations_total") >= 1.0);
    let processes = [&cluster.shards[0], &cluster.learner, &cluster.actors[0], &evaluator];
    let exported: BTreeSet<String> = processes
        .iter()
        .flat_map(|process| families(&process.page("/metrics")).collect::<Vec<_>>())
        .collect();
    let documented = documented();
    let only = |one: &BTreeSet<String>, other| one.difference(other).cloned().collect::<Vec<_>>();
    assert!(
        exported == documented,
        "docs/metrics.md must list exactly what is exported\nexported and not documented: {:?}\ndocumented and not exported: {:?}",
        only(&exported, &documented),
        only(&documented, &exported),
    );
}
