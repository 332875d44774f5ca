//! A progress bar for work of known length.

use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};

/// Time between two redraws of a bar.
const COUNTER_EVERY: Duration = Duration::from_millis(200);

/// A progress bar that counts to `count`; hidden without a terminal.
pub fn counter(count: u64, what: &str) -> ProgressBar {
    let bar = ProgressBar::new(count);
    let style = format!("{{bar:24.cyan/blue}} {{pos}}/{{len}} {what} · {{eta}} left");
    bar.set_style(ProgressStyle::with_template(&style).expect("the template is well formed"));
    bar.enable_steady_tick(COUNTER_EVERY);
    bar
}
