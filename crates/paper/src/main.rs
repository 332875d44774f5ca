//! The paper's figures, which need libtorch for their learning.
//!
//! Not for people: `quiver paper` checks its arguments and becomes this with one argument, an
//! [`Command`] as JSON. What it does is in the library beside this file.
#![forbid(unsafe_code)]

use std::process::ExitCode;

use anyhow::{Context, Result, bail};
use run::command::Command;

fn main() -> ExitCode {
    paper::exit_code(run_order()).into()
}

fn run_order() -> Result<()> {
    let mut arguments = std::env::args().skip(1);
    let (Some(order), None) = (arguments.next(), arguments.next()) else {
        bail!("this program is started by 'quiver': type 'quiver paper --help'");
    };
    let order = serde_json::from_str(&order)
        .context("not an order; 'quiver' and 'quiver-paper' differ in version, run make build")?;
    match order {
        Command::Paper(order) => paper::execute(&order),
        // Whether libtorch loads is the same question for both programs.
        other => lockstep::execute(other),
    }
}
