//! What `docs/metrics.md` lists, and whether an expression keeps to it.

use std::collections::{BTreeMap, BTreeSet};

use crate::promql::{self, Selector};

/// The page of metrics.
#[derive(Clone, Debug, Default)]
pub struct Catalogue(BTreeMap<String, Metric>);

/// A row of the page.
#[derive(Clone, Debug, Default)]
struct Metric {
    histogram: bool,
    /// Its label, if it has one, and the values that this can have.
    label: Option<(String, BTreeSet<String>)>,
}

/// Labels that Prometheus adds to everything.
const TARGET_LABELS: [&str; 2] = ["job", "instance"];
/// Series that Prometheus makes itself.
const PROMETHEUS_SERIES: [&str; 2] = ["up", "ALERTS"];
/// What a histogram's series are called behind its name.
const HISTOGRAM_SUFFIXES: [&str; 3] = ["_bucket", "_sum", "_count"];

impl Catalogue {
    /// Reads the page: rows of tables whose first cell is `` `name` `` or `` `name` {label: value, …} ``.
    pub fn read(page: &str) -> Self {
        Self(page.lines().filter_map(row).collect())
    }

    /// How many metrics there are.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// What is wrong with an expression; `recorded` are the names of recording rules.
    pub fn complaints(&self, expression: &str, recorded: &BTreeSet<String>) -> Vec<String> {
        let ours = |selector: &Selector| {
            !recorded.contains(&selector.name) && !PROMETHEUS_SERIES.contains(&selector.name.as_str())
        };
        promql::selectors(expression).iter().filter(|of| ours(of)).flat_map(|of| self.judge(of)).collect()
    }

    fn judge(&self, selector: &Selector) -> Vec<String> {
        let name = &selector.name;
        let Some((metric, bucket)) = self.find(name) else {
            return vec![format!("docs/metrics.md does not list {name}")];
        };
        let known = |(label, value): &(String, String)| {
            let own = metric.label.as_ref().filter(|(own, _)| own == label);
            let listed = own.is_some_and(|(_, values)| values.contains(value));
            listed || TARGET_LABELS.contains(&label.as_str()) || (bucket && label == "le")
        };
        let unknown = selector.matchers.iter().filter(|matcher| !known(matcher));
        unknown
            .map(|(label, value)| format!("docs/metrics.md lists no {name}{{{label}=\"{value}\"}}"))
            .collect()
    }

    /// The metric of a series, and whether it is a histogram's buckets. A histogram has no series of its own name.
    fn find(&self, series: &str) -> Option<(&Metric, bool)> {
        if let Some(metric) = self.0.get(series) {
            return (!metric.histogram).then_some((metric, false));
        }
        let part = |suffix: &&str| {
            let metric = self.0.get(series.strip_suffix(*suffix)?)?;
            metric.histogram.then_some((metric, *suffix == "_bucket"))
        };
        HISTOGRAM_SUFFIXES.iter().find_map(part)
    }
}

fn row(line: &str) -> Option<(String, Metric)> {
    let mut cells = line.trim().strip_prefix('|')?.split(" | ");
    let (name, labels) = cells.next()?.trim().strip_prefix('`')?.split_once('`')?;
    let label = labels.trim().strip_prefix('{').and_then(|inside| inside.strip_suffix('}')).map(|inside| {
        let (label, values) = inside.split_once(':').unwrap_or((inside, ""));
        (label.trim().to_owned(), values.split(',').map(|value| value.trim().to_owned()).collect())
    });
    let histogram = cells.next().is_some_and(|meaning| meaning.contains("(histogram)"));
    Some((name.to_owned(), Metric { histogram, label }))
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: &str = "
| metric | meaning | a bad value |
|---|---|---|
| `shard_items` | transitions | 0 |
| `shard_chunks_total` {result: stored, lost} | chunks | `lost` grows |
| `shard_seconds` | time of one (histogram) | |
";

    fn check(expression: &str, expected: &[&str]) {
        let recorded = BTreeSet::from(["quiver:known".to_owned()]);
        assert_eq!(Catalogue::read(PAGE).complaints(expression, &recorded), expected, "{expression}");
    }

    #[test]
    fn what_is_listed_passes() {
        check(
            "sum(shard_items{job=\"replay\"}) / rate(shard_chunks_total{result=~\"stored|lost\"}[1m])",
            &[],
        );
        check(
            "rate(shard_seconds_sum[1m]) + rate(shard_seconds_bucket{le=\"1\"}[1m]) + quiver:known + up",
            &[],
        );
    }

    #[test]
    fn what_is_not_listed_is_named() {
        check("shard_item", &["docs/metrics.md does not list shard_item"]);
        check("quiver:other", &["docs/metrics.md does not list quiver:other"]);
        check("shard_items_sum", &["docs/metrics.md does not list shard_items_sum"]);
        check("shard_seconds", &["docs/metrics.md does not list shard_seconds"]);
        check(
            "shard_chunks_total{result=~\"stored|gone\"}",
            &["docs/metrics.md lists no shard_chunks_total{result=\"gone\"}"],
        );
        check("shard_items{le=\"1\"}", &["docs/metrics.md lists no shard_items{le=\"1\"}"]);
    }
}
