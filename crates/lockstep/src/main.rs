//! The part of `quiver` that needs libtorch: trains in lockstep, evaluates, plays.
//!
//! Not a user interface: `quiver` checks its command line and starts this program with one argument, a
//! [`Command`](run::command::Command) as JSON. The library beside this file executes it.
#![forbid(unsafe_code)]

use anyhow::{Context, Result, bail};

fn main() {
    if let Err(error) = run_command() {
        let text = format!("{error:#}");
        run::output::print_note(&format!("error: {}", text.split_whitespace().collect::<Vec<_>>().join(" ")));
        std::process::exit(1);
    }
}

fn run_command() -> Result<()> {
    let mut arguments = std::env::args().skip(1);
    // A command is a JSON object, or a JSON string if it has no fields.
    let command = arguments.next().filter(|text| text.starts_with(['{', '"']));
    let (Some(command), None) = (command, arguments.next()) else {
        bail!("this program is started by 'quiver': run 'quiver --help'");
    };
    let command = serde_json::from_str(&command).context(
        "the command is not valid for this version: 'quiver' and 'quiver-lockstep' are from different builds, run 'make build'",
    )?;
    lockstep::execute(command)
}
