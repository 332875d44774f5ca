//! `deploy/prometheus/rules.yml` against `docs/metrics.md`, its tests and its runbook. promtool judges the rules themselves
//! (`deploy/check-monitoring`).

use std::collections::BTreeSet;
use std::path::Path;

use dashboards::catalogue::Catalogue;

fn read(path: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(path);
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// The rest of every line that begins with this key, as a rule or an entry of a list has it.
fn values<'a>(page: &'a str, key: &str) -> Vec<&'a str> {
    let value =
        |line: &'a str| line.trim_start().trim_start_matches("- ").strip_prefix(key)?.strip_prefix(": ");
    page.lines().filter_map(value).collect()
}

/// Every expression, those over several lines included.
fn expressions(rules: &str) -> Vec<String> {
    let indent = |line: &str| line.len() - line.trim_start().len();
    let lines: Vec<&str> = rules.lines().collect();
    let mut found = Vec::new();
    for (number, line) in lines.iter().enumerate() {
        let Some(first) = line.trim_start().strip_prefix("expr: ") else { continue };
        let more = lines[number + 1..].iter().take_while(|next| indent(next) > indent(line));
        let rest: Vec<&str> = if first == "|" { more.copied().collect() } else { vec![first] };
        found.push(rest.join("\n"));
    }
    found
}

#[test]
fn every_rule_asks_only_for_metrics_that_are_documented_or_recorded() {
    let (rules, catalogue) = (read("deploy/prometheus/rules.yml"), Catalogue::read(&read("docs/metrics.md")));
    let recorded: BTreeSet<String> = values(&rules, "record").into_iter().map(str::to_owned).collect();
    let expressions = expressions(&rules);
    assert_eq!(expressions.len(), recorded.len() + values(&rules, "alert").len(), "every rule has one");
    for expression in expressions {
        assert!(!expression.trim().is_empty());
        assert_eq!(catalogue.complaints(&expression, &recorded), [""; 0], "{expression}");
    }
}

#[test]
fn every_alert_is_seen_to_fire_and_has_its_paragraph() {
    let (rules, tests) = (read("deploy/prometheus/rules.yml"), read("deploy/prometheus/rules_test.yml"));
    let alerts = values(&rules, "alert");
    assert!(alerts.len() >= 9, "{alerts:?}");
    let runbook = read("docs/alerts.md");
    let sections: Vec<&str> = runbook.lines().filter_map(|line| line.strip_prefix("## ")).collect();
    assert_eq!(sections, alerts, "docs/alerts.md has a section for each alert, in the order of the rules");
    for alert in &alerts {
        let fires = format!("alertname: {alert}\n        exp_alerts:\n          - exp_labels");
        assert!(tests.contains(&fires), "rules_test.yml shows {alert} firing");
        let quiet = format!("alertname: {alert}, exp_alerts: []");
        assert!(tests.contains(&quiet), "rules_test.yml shows {alert} quiet");
        let address = format!("runbook: docs/alerts.md#{}\n", alert.to_lowercase());
        assert!(rules.contains(&address), "{alert} says where its paragraph is");
    }
}

#[test]
fn every_recorded_figure_is_tested() {
    let tests = read("deploy/prometheus/rules_test.yml");
    for name in values(&read("deploy/prometheus/rules.yml"), "record") {
        assert!(tests.contains(&format!("expr: '{name}")) || tests.contains(&format!("({name}")), "{name}");
    }
}
