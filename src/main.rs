//! `quiver`: the command-line program.
//!
//! It does not link libtorch, so that a missing libtorch is a clear error instead of the dynamic loader's. It parses and
//! checks everything that can be checked before it writes a file. Then it starts and supervises a cluster of processes
//! ([`cluster`]), or, for work that needs a network in one process, replaces itself by `quiver-lockstep` or `quiver-paper`
//! ([`torch`]). Each command has its own file; [`sources`] collects settings.
#![forbid(unsafe_code)]

mod adjust;
mod agent;
mod certs;
mod cluster;
mod compare;
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
mod sweep;
mod torch;
mod train;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// Distributed DQN training with prioritized replay
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
    Sweep(sweep::SweepCommand),
    Compare(compare::Compare),
    Paper(paper::Paper),
    Inspect(inspect::Inspect),
    Adjust(adjust::Adjust),
    Snapshot(snapshot::Snapshot),
    Config(config::ConfigCommand),
    Games(games::Games),
    Certs(certs::Certs),
    Doctor(doctor::Doctor),
    Health(health::HealthCommand),
}

const EXAMPLES: &str = "\
Examples:
  quiver doctor                                       check the installation
  quiver train cartpole                               a first run, about a minute
  quiver train kung_fu_master --preset quick          a first Atari run, on two cores
  quiver train cartpole --lockstep                    one process, bit-for-bit repeatable
  quiver evaluate kung_fu_master-ver-seed0 --episodes 30
  quiver play kung_fu_master-ver-seed0 --video game.gif
  quiver plot cartpole-ver-seed0 cartpole-ver-seed1   learning curves of two runs
  quiver sweep cartpole --seeds 5 --vary strategy=per,ver
                                                      ten runs, to compare two strategies
  quiver compare runs/cartpole-*                      groups of seeds: intervals, probability of improvement
  quiver inspect cartpole-ver-seed0 --watch           a running replay: contents and blocked callers
  quiver paper all --quick                            the paper's figures, and its claims beside measured values

  A run is named by its directory, or by its name below runs/.";

fn main() -> ExitCode {
    let done = match Cli::parse().command {
        Command::Train(train) => return train.run().unwrap_or_else(|error| failed(&error)),
        Command::Sweep(sweep) => return sweep.run().unwrap_or_else(|error| failed(&error)),
        Command::Evaluate(evaluate) => evaluate.run(),
        Command::Play(play) => play.run(),
        Command::Plot(plot) => plot.run(),
        Command::Compare(compare) => compare.run(),
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
    output::print_error(error);
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
