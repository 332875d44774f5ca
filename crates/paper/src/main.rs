//! The paper's figures, which need libtorch for their learning.
//!
//! Internal: `quiver paper` validates its arguments, then replaces itself by this program with one argument, a
//! [`Command`] as JSON. The library beside this file executes it.
#![forbid(unsafe_code)]

use std::process::ExitCode;

use anyhow::{Context, Result, bail};
use run::command::Command;

fn main() -> ExitCode {
    paper::exit_code(run_command()).into()
}

fn run_command() -> Result<()> {
    let mut arguments = std::env::args().skip(1);
    // A command is a JSON object, or a JSON string if it has no fields.
    let command = arguments.next().filter(|text| text.starts_with(['{', '"']));
    let (Some(command), None) = (command, arguments.next()) else {
        bail!("this program is started by 'quiver paper': run 'quiver paper --help'");
    };
    let command = serde_json::from_str(&command).context(
        "the command is not valid for this version: 'quiver' and 'quiver-paper' are from different builds, run 'make build'",
    )?;
    match command {
        Command::Paper(command) => paper::execute(&command),
        // Whether libtorch loads is the same question for both programs.
        other => lockstep::execute(other),
    }
}
