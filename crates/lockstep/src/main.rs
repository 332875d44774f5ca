//! The half of `quiver` that needs libtorch: trains in lockstep, evaluates, plays.
//!
//! Not for people: `quiver` checks what it is told and starts this with one argument, an
//! [`Order`](run::order::Order) as JSON. What it does is in the library beside this file.
#![forbid(unsafe_code)]

use anyhow::{Context, Result, bail};

fn main() {
    if let Err(error) = run_order() {
        let text = format!("{error:#}");
        run::output::note(&format!("error: {}", text.split_whitespace().collect::<Vec<_>>().join(" ")));
        std::process::exit(1);
    }
}

fn run_order() -> Result<()> {
    let mut arguments = std::env::args().skip(1);
    let (Some(order), None) = (arguments.next(), arguments.next()) else {
        bail!("this program is started by 'quiver': type 'quiver --help'");
    };
    let order = serde_json::from_str(&order)
        .context("not an order; 'quiver' and 'quiver-lockstep' differ in version, run make build")?;
    lockstep::obey(order)
}
