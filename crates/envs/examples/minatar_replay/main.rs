//! Replays a recorded MinAtar game and prints one hash per step, as `docs/minatar-fixtures.md` defines them:
//! `cargo run --release -p quiver-envs --example minatar_replay -- FILE`.
//!
//! Hashes and totals that the file contains are compared. The exit code is 1 if one differs or if the file cannot be replayed.

mod check;
mod fixture;

use std::io::{BufWriter, Write};
use std::path::Path;
use std::process::ExitCode;

use fixture::Fixture;

fn main() -> ExitCode {
    let arguments: Vec<_> = std::env::args_os().skip(1).collect();
    let [file] = arguments.as_slice() else {
        eprintln!("usage: minatar_replay FILE");
        return ExitCode::FAILURE;
    };
    match run(Path::new(file)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{}: {error}", file.display());
            ExitCode::FAILURE
        }
    }
}

fn run(file: &Path) -> Result<(), String> {
    let json = std::fs::read(file).map_err(|error| error.to_string())?;
    let fixture = Fixture::read(&json)?;
    drop(json);
    let mut out = BufWriter::new(std::io::stdout().lock());
    let unwritable = |error| format!("can't print: {error}");
    let found = check::replay(&fixture, &mut |hash| writeln!(out, "{hash}").map_err(unwritable));
    out.flush().map_err(unwritable)?;
    let totals = found?;
    eprintln!(
        "{}: {} steps, {} episodes ended, rewards {}, {} hashes compared",
        fixture.game, totals.steps, totals.episodes_ended, totals.reward_sum, totals.compared
    );
    Ok(())
}
