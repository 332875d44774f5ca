//! The runs of figure 6: games × strategies × seeds, and the settings that all runs share.

use anyhow::{Context, bail};
use clap::Args;
use run::command::{Strategy, Sweep, Vary};
use settings::SETTINGS;
use settings::nearest::hint;
use settings::text::Text;
use settings::units::Frames;

use super::Common;
use crate::sources;
use crate::sweep::check;

/// The paper's nine games, in its order.
const NINE: [&str; 9] = [
    "alien",
    "battle_zone",
    "boxing",
    "beam_rider",
    "demon_attack",
    "ms_pacman",
    "qbert",
    "seaquest",
    "space_invaders",
];

/// Two of the nine that learn early, for two cores.
const TWO: [&str; 2] = ["ms_pacman", "space_invaders"];

/// The paper's experiment, over its preset: the final evaluation has as many games as the others.
const FULL: [(&str, &str); 1] = [("evaluate_final_episodes", "8")];

/// Runs of which two cores finish twelve in about an hour, over preset `quick`.
const QUICK: [(&str, &str); 5] = [
    ("frames", "150000"),
    ("evaluate_every_frames", "25000"),
    ("checkpoint_every_frames", "25000"),
    ("evaluate_final_episodes", "8"),
    ("baselines", "false"),
];

/// Settings that have their own flags here.
const OWN: [(&str, &str); 3] = [("seed", "--seed"), ("strategy", "--strategies"), ("frames", "--frames")];

/// Options of a sweep.
#[derive(Args)]
pub struct SweepArgs {
    #[command(flatten)]
    pub common: Common,
    /// Games, comma-separated [default: the paper's nine; with --quick ms_pacman,space_invaders]
    #[arg(long, value_name = "GAMES", value_delimiter = ',')]
    games: Vec<String>,
    /// Replay strategies, comma-separated
    #[arg(long, value_name = "NAMES", value_delimiter = ',', default_values = ["uniform", "per", "ver"])]
    strategies: Vec<Strategy>,
    /// Frames of each run, such as 40M [default: the preset's; with --quick 150k]
    #[arg(long, value_name = "COUNT", value_parser = |text: &str| Frames::read(text))]
    frames: Option<Frames>,
    /// Number of seeds per game and strategy [default: 1; with --quick 2]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=1_000))]
    seeds: Option<u64>,
    /// Number of runs at a time; each is a cluster of processes that keeps about two cores busy
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=256))]
    parallel: u16,
    /// Preset of all runs [default: paper-atari; with --quick quick]
    #[arg(long, value_name = "NAME")]
    preset: Option<String>,
    /// Override a setting in all runs, such as device=cuda; repeat for each ('quiver config show' lists settings)
    #[arg(long = "set", value_name = "KEY=VALUE")]
    settings: Vec<String>,
}

impl SweepArgs {
    /// The sweep, after every check that is possible before its first run.
    pub fn sweep(&self, full: bool) -> anyhow::Result<Sweep> {
        let games = match self.games.as_slice() {
            [] if full => NINE.map(str::to_owned).to_vec(),
            [] => TWO.map(str::to_owned).to_vec(),
            games => games.to_vec(),
        };
        let sweep = Sweep {
            games: unique(games.iter().map(|game| envs::canonical(game)).collect::<Result<_, _>>()?),
            vary: vec![Vary::strategies(&unique(self.strategies.clone()))],
            seeds: self.seeds.unwrap_or(if full { 1 } else { 2 }),
            parallel: self.parallel.into(),
            preset: Some(
                self.preset.clone().unwrap_or(if full { "paper-atari" } else { "quick" }.to_owned()),
            ),
            config: None,
            flags: self.flags(full)?,
            changed: self.is_changed(),
            environment: sources::variables()?,
        };
        check(&sweep, self.common.seed)?;
        Ok(sweep)
    }

    /// Whether any run differs from the paper's, or from the quick version's.
    fn is_changed(&self) -> bool {
        let Self { games, frames, preset, settings, .. } = self;
        !games.is_empty() || frames.is_some() || preset.is_some() || !settings.is_empty()
    }

    /// Settings that override the preset; later ones win.
    fn flags(&self, full: bool) -> anyhow::Result<Vec<(String, String)>> {
        let defaults: &[(&str, &str)] = if full { &FULL } else { &QUICK };
        let mut flags: Vec<(String, String)> =
            defaults.iter().map(|(key, text)| ((*key).to_owned(), (*text).to_owned())).collect();
        let mut put = |key: &str, text: String| {
            flags.retain(|(there, _)| there != key);
            flags.push((key.to_owned(), text));
        };
        if let Some(frames) = self.frames {
            put("frames", frames.show());
        }
        for setting in &self.settings {
            let (key, text) =
                setting.split_once('=').with_context(|| format!("--set {setting}: expected KEY=VALUE"))?;
            let key = key.trim().replace('-', "_");
            if let Some((_, flag)) = OWN.iter().find(|(own, _)| *own == key) {
                bail!("--set {setting}: {key} has its own flag, use {flag}");
            }
            if !SETTINGS.iter().any(|setting| setting.key == key) {
                let known = SETTINGS.iter().map(|setting| setting.key);
                bail!(
                    "--set {setting}: unknown setting{}; 'quiver config show' lists all settings",
                    hint(&key, known)
                );
            }
            put(&key, text.trim().to_owned());
        }
        Ok(flags)
    }
}

/// Drops repeated elements.
fn unique<T: PartialEq>(all: Vec<T>) -> Vec<T> {
    let mut seen = Vec::new();
    for one in all {
        if !seen.contains(&one) {
            seen.push(one);
        }
    }
    seen
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        args: SweepArgs,
    }

    fn sweep(full: bool, words: &[&str]) -> Result<Sweep, String> {
        let line = Line::try_parse_from([&["quiver"], words].concat()).map_err(|error| error.to_string())?;
        line.args.sweep(full).map_err(|error| error.to_string())
    }

    fn flag<'a>(sweep: &'a Sweep, key: &str) -> Option<&'a str> {
        sweep.flags.iter().find(|(there, _)| there == key).map(|(_, text)| text.as_str())
    }

    #[test]
    fn the_papers_scale_is_the_default_and_quick_is_smaller() {
        let full = sweep(true, &[]).unwrap();
        assert_eq!((full.games.len(), full.strategies().len(), full.seeds), (9, 3, 1));
        assert_eq!((full.preset.as_deref(), flag(&full, "frames")), (Some("paper-atari"), None));
        let quick = sweep(false, &[]).unwrap();
        assert_eq!((quick.games.len(), quick.strategies().len(), quick.seeds), (2, 3, 2));
        assert_eq!((quick.preset.as_deref(), flag(&quick, "frames")), (Some("quick"), Some("150000")));
        assert!(!full.changed && !quick.changed);
        assert!(!sweep(false, &["--seeds", "5", "--parallel", "2"]).unwrap().changed);
        assert!(sweep(true, &["--frames", "10M"]).unwrap().changed);
    }

    #[test]
    fn flags_override_the_defaults() {
        let words =
            ["--games", "Boxing,boxing,Qbert", "--strategies", "ver", "--frames", "2M", "--seeds", "5"];
        let more = ["--set", "temperature=0.01", "--set", "evaluate-final-episodes=3", "--parallel", "2"];
        let sweep = sweep(false, &[&words[..], &more].concat()).unwrap();
        assert_eq!(sweep.games, ["boxing", "qbert"]);
        assert_eq!((sweep.strategies(), sweep.seeds, sweep.parallel), (vec![Strategy::VER], 5, 2));
        assert_eq!((flag(&sweep, "frames"), flag(&sweep, "temperature")), (Some("2000000"), Some("0.01")));
        assert_eq!(flag(&sweep, "evaluate_final_episodes"), Some("3"));
    }

    #[test]
    fn a_sweep_that_can_not_train_is_refused_before_its_first_run() {
        let refused = |words: &[&str]| sweep(false, words).unwrap_err();
        assert!(refused(&["--games", "boxng"]).contains("boxing"));
        assert!(refused(&["--strategies", "best"]).contains("uniform"));
        assert!(refused(&["--set", "seed=3"]).contains("its own flag, use --seed"));
        assert!(refused(&["--set", "temprature=3"]).contains("did you mean 'temperature'"));
        assert!(refused(&["--set", "temperature"]).contains("KEY=VALUE"));
        assert!(refused(&["--set", "temperature=-1"]).contains("temperature"));
        assert!(refused(&["--preset", "cartpole"]).contains("not for ms_pacman"));
        assert!(refused(&["--frames", "many"]).contains("expected a count"));
    }
}
