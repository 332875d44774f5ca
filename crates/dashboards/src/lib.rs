//! Four dashboards (overview, replay, actors, learner), said once and written twice: as Grafana's JSON and as Prometheus'
//! console templates.
//!
//! [`panel`] is the vocabulary; [`overview`], [`replay`], [`actors`] and [`learner`] say what is shown. [`grafana`] and
//! [`console`] write it down, and [`files`] names what is written where. [`promql`] finds the metrics of an expression and
//! [`catalogue`] reads those that `docs/metrics.md` lists, so that a test can compare them; [`probe`] asks a live
//! Prometheus whether every panel has something to show. Knows no metric's code: the page is what both sides go by.
#![forbid(unsafe_code)]

pub mod actors;
pub mod catalogue;
pub mod console;
pub mod files;
pub mod grafana;
pub mod learner;
pub mod overview;
pub mod panel;
pub mod probe;
pub mod promql;
pub mod replay;

pub use panel::{Dashboard, DashboardPanel, DashboardRow, Shape, Unit};

/// All of them, in the order of their menu.
pub fn all() -> Vec<Dashboard> {
    vec![overview::dashboard(), replay::dashboard(), actors::dashboard(), learner::dashboard()]
}

/// Seconds between two scrapes: `deploy/prometheus/prometheus.yml` says the same, which a test compares.
pub const SCRAPE_SECONDS: u32 = 5;
