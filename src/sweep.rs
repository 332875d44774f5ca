//! `quiver sweep`: trains every game with every combination of varied settings and every seed, resumably.
//!
//! The crate `sweep` plans and runs it; here are the arguments, the checks that need the games, and the output.

use std::env;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, bail};
use clap::Args;
use run::command::{Sweep, Vary};
use serde_json::Value;
use settings::SETTINGS;
use settings::nearest::hint;
use settings::resolve::flag;
use sweep::scores::{self, FinalScores};
use sweep::{LockedSweep, Stopped, SweepOutcome, SweepProgress, events, plan};

use crate::output::{print_line, print_note};
use crate::sources::Sources;
use crate::{programs, runs, torch, train};

/// Train many runs: games × varied settings × seeds, resumable
///
/// Every combination of games, --vary values and seeds becomes a run of its own, as 'quiver train' makes it. All other
/// settings are fixed: by preset, --config and the flags of 'quiver train'. Repeat the command to resume a sweep that was
/// stopped or killed: finished runs are not repeated, and unfinished ones continue from their checkpoints. Games, values
/// and seeds may be added later; other fixed settings need another --out. A run that fails does not stop the others; the
/// same command retries it. The replay of a finished run is deleted to free the disk.
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub struct SweepCommand {
    /// Games, comma-separated ('quiver games' lists them); not needed if --config names one
    #[arg(value_name = "GAMES", value_delimiter = ',')]
    games: Vec<String>,
    /// A setting and the values to compare, such as temperature=0.005,0.02; repeat for each setting
    #[arg(long, value_name = "KEY=VALUES")]
    vary: Vec<String>,
    /// Number of seeds per game and combination; the first is --seed
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..=1_000))]
    seeds: u64,
    /// Number of runs at a time. Each is a cluster of processes that keeps about two cores busy; with --lockstep, one core
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=256))]
    parallel: u16,
    /// The sweep's folder; its runs are in DIR/runs
    #[arg(long, value_name = "DIR", default_value = "sweep")]
    out: PathBuf,
    /// Print one JSON object per line for each event: plan, started, resumed, progress, finished, failed, stopped, summary
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    sources: Sources,
}

const EXAMPLES: &str = "\
Examples:
  quiver sweep cartpole --seeds 5 --vary strategy=uniform,per,ver
                                            15 runs, one after the other
  quiver sweep pong,breakout --preset quick --seeds 3 --vary temperature=0.005,0.02 --vary n_step=1,3
                                            2 games x 4 combinations x 3 seeds = 24 runs
  quiver sweep cartpole,minatar_breakout --seeds 5 --learning-rate 0.0005
                                            each game with its own preset and a fixed learning rate
  quiver sweep cartpole --seeds 5 --parallel 2 --lockstep
                                            one core for each run, bit-for-bit repeatable
  quiver sweep qbert --seeds 3 --seed 10 --out qbert-sweep --json
                                            seeds 10, 11 and 12; events for a program
  quiver compare sweep                      compare the runs of a sweep

  Runs are named by game, strategy, other varied settings and seed: sweep/runs/pong-ver-temperature0.02-n-step3-seed0.
  All commands take them: quiver plot sweep/runs/cartpole-*-seed0. Their output is in sweep/logs.
  Ctrl-C stops the sweep; each run writes a checkpoint first.";

impl SweepCommand {
    pub fn run(&self) -> anyhow::Result<ExitCode> {
        let (sweep, first_seed) = self.sweep()?;
        runs::check_out(&self.out)?;
        let needed = programs::ALL.iter().filter(|&&name| name != programs::PAPER);
        needed.map(|name| programs::find(name)).try_for_each(|found| found.map(drop))?;
        torch::probe()?;
        let quiver = env::current_exe().context("can't find quiver's own path: start it by its full path")?;
        let claim = LockedSweep::new(&self.out, first_seed, &sweep, quiver)?;
        let stop = sweep::stop_on_signals()?;
        let mut progress = SweepProgress::new("sweep", &print_note);
        if self.json {
            emit(&events::plan(&claim));
            progress = progress.with_events(&emit);
        }
        let outcome = claim.run(&stop, &mut progress);
        self.conclude(&claim, &outcome)
    }

    /// Prints the scores, and turns the outcome into an exit code.
    fn conclude(&self, claim: &LockedSweep<'_>, outcome: &SweepOutcome) -> anyhow::Result<ExitCode> {
        let scores = FinalScores::read(claim.runs())?;
        if self.json {
            emit(&events::summary(claim, outcome, &scores));
        }
        if scores.iter().any(|row| !row.scores.is_empty()) {
            let hint = format!("\ncompare the runs with: quiver compare {}", self.out.display());
            for line in scores::table(&scores).iter().chain([&hint]) {
                if self.json { print_note(line) } else { print_line(line)? }
            }
        }
        let Err(error) = claim.check(outcome) else { return Ok(ExitCode::SUCCESS) };
        let Some(stopped) = error.downcast_ref::<Stopped>() else { return Err(error) };
        print_note(&stopped.to_string());
        Ok(stopped.exit_code().into())
    }

    /// The sweep and its first seed, after every check that is possible before the first run.
    fn sweep(&self) -> anyhow::Result<(Sweep, u64)> {
        let layers = self.sources.layers()?;
        let vary = self.vary.iter().map(|text| axis(text)).collect::<Result<Vec<_>, _>>()?;
        for (number, Vary { key, .. }) in vary.iter().enumerate() {
            if vary[..number].iter().any(|other| other.key == *key) {
                bail!("--vary {key} is given twice: list all its values in one, --vary {key}=A,B");
            }
            if layers.flags.iter().any(|(fixed, _)| fixed == key) {
                bail!("{} fixes what --vary {key} varies: leave one of them out", flag(key));
            }
        }
        let games: Vec<String> =
            self.games.iter().map(|game| envs::canonical(game)).collect::<Result<_, _>>()?;
        if games.is_empty() && self.sources.config.is_none() {
            bail!("no game given: name one or more, for example 'quiver sweep pong,breakout'");
        }
        let base = layers.resolve(games.first().map(String::as_str))?;
        let sweep = Sweep {
            games: if games.is_empty() { vec![base.game.clone()] } else { games },
            vary,
            seeds: self.seeds,
            parallel: self.parallel.into(),
            preset: self.sources.preset.clone(),
            config: self.sources.config.clone(),
            flags: layers.flags,
            environment: layers.environment,
            changed: false,
        };
        let first_seed = base.settings.seed;
        check(&sweep, first_seed)?;
        for game in &self.games {
            train::note_gym_differences(Some(game), &plan::layers(&sweep).resolve(Some(game))?);
        }
        Ok((sweep, first_seed))
    }
}

/// A closed pipe must not end the training, so errors are ignored.
fn emit(event: &Value) {
    let _ = print_line(&event.to_string());
}

/// Reads `temperature=0.005,0.02`.
fn axis(text: &str) -> anyhow::Result<Vary> {
    let Some((key, values)) = text.split_once('=') else {
        bail!("--vary {text}: expected KEY=VALUE,VALUE, such as temperature=0.005,0.02");
    };
    let key = key.trim().replace('-', "_");
    match key.as_str() {
        "seed" => bail!("--vary {text}: use --seeds for the number of seeds and --seed for the first"),
        "game" => bail!("--vary {text}: list the games instead, for example 'quiver sweep pong,breakout'"),
        _ => {}
    }
    if !SETTINGS.iter().any(|setting| setting.key == key) {
        let hint = hint(&key, SETTINGS.iter().map(|setting| setting.key));
        bail!("--vary {text}: unknown setting{hint}; 'quiver config show' lists all settings");
    }
    let values: Vec<String> = values.split(',').map(|value| value.trim().to_owned()).collect();
    if values.iter().any(String::is_empty) {
        bail!("--vary {text}: a value is empty; list values with commas and no spaces");
    }
    Ok(Vary { key, values })
}

/// Resolves the settings of every run, and loads every game, again where a variant changes the environment.
pub fn check(sweep: &Sweep, first_seed: u64) -> anyhow::Result<()> {
    let runs = plan::runs(Path::new(""), first_seed, sweep)?;
    let mut loaded = None;
    for run in runs.iter().filter(|run| run.seed == first_seed) {
        train::check_shards(&run.resolved.settings)?;
        let environment = Some((&run.game, run.resolved.settings.environment()));
        if environment != loaded {
            train::check_game(&run.resolved)?;
            loaded = environment;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        sweep: SweepCommand,
    }

    fn sweep(words: &[&str]) -> Result<(Sweep, u64), String> {
        let line = Line::try_parse_from([&["quiver"], words].concat()).map_err(|error| error.to_string())?;
        line.sweep.sweep().map_err(|error| error.to_string())
    }

    #[test]
    fn settings_are_fixed_by_the_flags_of_train_and_varied_by_vary() {
        let words = ["CartPole,minatar_breakout", "--seeds", "3", "--seed", "10", "--lockstep"];
        let more = ["--vary", "strategy=per,ver", "--vary", "n-step=1,3", "--batch-size", "16"];
        let (sweep, first) = sweep(&[&words[..], &more].concat()).unwrap();
        assert_eq!(sweep.games, ["cartpole", "minatar_breakout"]);
        assert_eq!((sweep.seeds, first, sweep.parallel, sweep.preset.as_deref()), (3, 10, 1, None));
        let runs = plan::runs(Path::new("out"), first, &sweep).unwrap();
        assert_eq!(runs.len(), 2 * 4 * 3);
        assert_eq!(runs.last().unwrap().name, "minatar_breakout-ver-n-step3-seed12");
        assert!(runs.iter().all(|run| run.resolved.settings.lockstep));
        assert!(runs.iter().all(|run| run.resolved.settings.get("batch_size").as_deref() == Some("16")));
        let presets: Vec<_> = runs[..5].iter().map(|run| run.resolved.preset.as_str()).collect();
        assert_eq!(presets, ["cartpole", "cartpole", "cartpole", "cartpole", "minatar"]);
    }

    #[test]
    fn the_game_preset_and_first_seed_may_come_from_a_file() {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), "game = \"cartpole\"\npreset = \"paper-cartpole\"\nseed = 7\n").unwrap();
        let (sweep, first) = sweep(&["--config", file.path().to_str().unwrap(), "--seeds", "2"]).unwrap();
        let runs = plan::runs(Path::new("out"), first, &sweep).unwrap();
        let names: Vec<_> = runs.iter().map(|run| (run.name.as_str(), &*run.resolved.preset)).collect();
        assert_eq!(
            names,
            [("cartpole-uniform-seed7", "paper-cartpole"), ("cartpole-uniform-seed8", "paper-cartpole")]
        );
    }

    #[test]
    fn a_sweep_that_can_not_train_is_refused_before_its_first_run() {
        let refused = |words: &[&str]| sweep(&[&["cartpole"], words].concat()).unwrap_err();
        let vary = |text: &str| refused(&["--vary", text]);
        assert!(sweep(&[]).unwrap_err().contains("no game given"));
        assert!(sweep(&["boxng"]).unwrap_err().contains("boxing"));
        assert!(sweep(&["pong,pong"]).unwrap_err().contains("planned twice"));
        assert!(vary("temprature=1").contains("did you mean 'temperature'"));
        assert!(vary("temperature").contains("expected KEY=VALUE,VALUE"));
        assert!(vary("temperature=0.1,,0.2").contains("a value is empty"));
        assert!(vary("temperature=0.1,0.10").contains("planned twice"));
        assert!(vary("temperature=0.1,-1").contains("cartpole with temperature=-1: temperature must"));
        assert!(vary("seed=1,2").contains("use --seeds"));
        assert!(vary("game=pong").contains("list the games instead"));
        assert!(vary("network=mlp,nature").starts_with("cartpole with network=nature: "));
        let twice = refused(&["--vary", "n_step=1", "--vary", "n-step=3"]);
        assert!(twice.contains("--vary n_step is given twice"), "{twice}");
        let both = refused(&["--vary", "n_step=1,3", "--n-step", "3"]);
        assert!(both.contains("--n-step fixes what --vary n_step varies"), "{both}");
        let many = refused(&["--seeds", "1000", "--vary", "n_step=1,2,3,4,5,6,7,8,9,10,11"]);
        assert!(many.contains("11000 runs"), "{many}");
    }
}
