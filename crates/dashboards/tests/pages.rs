//! The dashboards against `docs/metrics.md`, and the files that are checked in against both.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use dashboards::catalogue::Catalogue;
use dashboards::panel::{COLUMNS, DashboardPanel};
use dashboards::{SCRAPE_SECONDS, Shape, all, files};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn read(path: &str) -> String {
    std::fs::read_to_string(root().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

#[test]
fn every_panel_asks_only_for_metrics_that_are_documented() {
    let catalogue = Catalogue::read(&read("docs/metrics.md"));
    assert!(catalogue.len() > 80, "docs/metrics.md lists only {} metrics", catalogue.len());
    let mut complaints = Vec::new();
    for dashboard in all() {
        for panel in dashboard.panels() {
            for query in &panel.queries {
                let wrong = catalogue.complaints(query.expression, &BTreeSet::new());
                complaints
                    .extend(wrong.iter().map(|of| format!("{}, {:?}: {of}", dashboard.name, panel.title)));
            }
        }
    }
    assert!(complaints.is_empty(), "{}", complaints.join("\n"));
}

#[test]
fn the_files_are_those_that_the_source_makes() {
    let stale = files::stale(&root());
    assert!(stale.is_empty(), "stale, run 'cargo run --release -p quiver-dashboards -- write': {stale:?}");
    for folder in ["deploy/grafana/dashboards", "deploy/prometheus/consoles"] {
        let made: BTreeSet<PathBuf> =
            files::generated().into_iter().map(|(path, _)| root().join(path)).collect();
        for entry in std::fs::read_dir(root().join(folder)).unwrap() {
            let path = entry.unwrap().path();
            assert!(made.contains(&path), "{} is made by nothing", path.display());
        }
    }
}

#[test]
fn every_panel_can_be_read_and_fits() {
    for dashboard in all() {
        let mut titles = BTreeSet::new();
        for panel in dashboard.panels() {
            let DashboardPanel { title, about, width, queries, .. } = panel;
            assert!(about.ends_with('.') && about.len() > 10, "{title:?} says how to read it: {about:?}");
            assert!((1..=COLUMNS).contains(width), "{title:?} is {width} wide");
            assert!(!queries.is_empty(), "{title:?} asks for something");
            assert!(titles.insert(*title) || panel.shape != Shape::Stat, "{title:?} stands there twice");
            let legends: BTreeSet<_> = queries.iter().map(|query| query.legend).collect();
            assert_eq!(legends.len(), queries.len(), "{title:?} has two legends that are the same");
        }
        for row in &dashboard.rows {
            let width: u32 = row.panels.iter().map(|panel| panel.width).sum();
            assert_eq!(width % COLUMNS, 0, "row {:?} of {} leaves a gap", row.title, dashboard.name);
        }
    }
}

#[test]
fn no_series_is_of_one_actor() {
    for dashboard in all() {
        let actors = dashboard.panels().flat_map(|panel| &panel.queries);
        for query in actors.filter(|query| query.expression.contains("actor_")) {
            let expression = query.expression;
            let per_actor = query.legend.contains("{instance}") || expression.contains("instance");
            assert!(!per_actor, "there may be hundreds of actors: {expression}");
            let gathers =
                ["sum", "max", "min", "avg", "quantile", "histogram_quantile", "60 * sum", "round(sum"];
            assert!(
                gathers.iter().any(|start| expression.starts_with(start)),
                "one series for all: {expression}"
            );
        }
    }
}

#[test]
fn the_consoles_need_nothing_from_elsewhere() {
    let mut pages: Vec<String> = files::generated().into_iter().map(|(_, text)| text).collect();
    for entry in std::fs::read_dir(root().join("deploy/prometheus/console_libraries")).unwrap() {
        pages.push(std::fs::read_to_string(entry.unwrap().path()).unwrap());
    }
    assert_eq!(pages.len(), 12, "eight files are made, and four libraries are written by hand");
    for page in pages {
        let others = page.replace("http://www.w3.org/2000/svg", "");
        assert!(!others.contains("http://") && !others.contains("https://"), "an address in {page}");
        assert!(!others.contains("src="), "something to load in {page}");
    }
}

#[test]
fn everyone_goes_by_the_same_scrape_interval() {
    let prometheus = format!("scrape_interval: {SCRAPE_SECONDS}s\n");
    assert!(read("deploy/prometheus/prometheus.yml").contains(&prometheus));
    let grafana = format!("timeInterval: {SCRAPE_SECONDS}s\n");
    assert!(read("deploy/grafana/provisioning/datasources/prometheus.yaml").contains(&grafana));
}
