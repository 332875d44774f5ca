//! `quiver`: the one command a person types.
//!
//! It links no libtorch, so that a missing one is a clear error and not the loader's. It parses and checks all that
//! can be checked before anything is written. Then it starts and watches a cluster of processes ([`cluster`]), or, for
//! what one process with a network does, becomes its other half, `quiver-lockstep` or `quiver-paper` (see [`torch`]).
//! Each command has a file of its own; [`sources`] is where settings come from.
#![forbid(unsafe_code)]

mod adjust;
mod agent;
mod certs;
mod cluster;
mod config;
mod doctor;
mod games;
mod health;
mod inspect;
mod output;
mod paper;
mod plot;
mod processes;
mod programs;
mod resume;
mod runs;
mod snapshot;
mod sources;
mod torch;
mod train;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// Actor-learner training with valuable experience replay
#[derive(Parser)]
#[command(name = "quiver", version, after_help = EXAMPLES)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Train(train::Train),
    Evaluate(agent::Evaluate),
    Play(agent::Play),
    Plot(plot::Plot),
    Paper(paper::Paper),
    Inspect(inspect::Inspect),
    Adjust(adjust::Adjust),
    Snapshot(snapshot::Snapshot),
    Config(config::Config),
    Games(games::Games),
    Certs(certs::Certs),
    Doctor(doctor::Doctor),
    Health(health::Health),
}

const EXAMPLES: &str = "\
Examples:
  quiver doctor                              is everything there?
  quiver train cartpole                      a first run, about a minute
  quiver train pong --preset quick           Atari on two cores, a small cluster of processes
  quiver train cartpole --lockstep           one process, bit for bit repeatable
  quiver evaluate pong-ver-seed0 --episodes 30
  quiver play pong-ver-seed0 --video pong.mp4
  quiver plot pong-ver-seed0 pong-per-seed0
  quiver paper all                           the paper's figures, beside what it claims
  quiver inspect pong-ver-seed0 --watch      what is in the replay, and who waits for whom

A run is named by its directory, or by its name below runs/.";

fn main() -> ExitCode {
    let done = match Cli::parse().command {
        Command::Train(train) => return train.run().unwrap_or_else(|error| failed(&error)),
        Command::Evaluate(evaluate) => evaluate.run(),
        Command::Play(play) => play.run(),
        Command::Plot(plot) => plot.run(),
        Command::Paper(paper) => paper.run(),
        Command::Inspect(inspect) => inspect.run(),
        Command::Adjust(adjust) => adjust.run(),
        Command::Snapshot(snapshot) => snapshot.run(),
        Command::Config(config) => config.run(),
        Command::Games(games) => games.run(),
        Command::Certs(certs) => certs.run(),
        Command::Doctor(doctor) => doctor.run(),
        Command::Health(health) => health.run(),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => failed(&error),
    }
}

fn failed(error: &anyhow::Error) -> ExitCode {
    output::complain(error);
    ExitCode::FAILURE
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_consistent() {
        super::Cli::command().debug_assert();
    }
}
