//! Progress of work with a known end.

use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};

/// Time between two changes of a counter.
const COUNTER_EVERY: Duration = Duration::from_millis(200);

/// A plain counter for work with a known end; hidden where there is no terminal.
pub fn counter(count: u64, what: &str) -> ProgressBar {
    let bar = ProgressBar::new(count);
    let style = format!("{{bar:24.cyan/blue}} {{pos}}/{{len}} {what} · {{eta}} left");
    bar.set_style(ProgressStyle::with_template(&style).expect("the template is well formed"));
    bar.enable_steady_tick(COUNTER_EVERY);
    bar
}
