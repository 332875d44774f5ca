//! `quiver config`: which settings would be in force, and which presets there are.

use clap::{Args, Subcommand};
use settings::presets::{self, PRESETS};

use crate::output::say;
use crate::sources::Sources;

/// The game whose settings are shown when the user names neither a game nor a preset.
const EXAMPLE_GAME: &str = "pong";

/// Show settings and presets
#[derive(Args)]
pub struct Config {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Print the settings that 'quiver train' would use, as a file for --config
    #[command(after_help = "\
Examples:
  quiver config show pong --preset quick --explain
  quiver config show pong --temperature 0.1 >my.toml && quiver train --config my.toml")]
    Show(Show),
    /// List the presets and how each differs from paper-atari
    Presets,
}

#[derive(Args)]
struct Show {
    /// Which game [default: the file's, else one that the preset is for]
    game: Option<String>,
    #[command(flatten)]
    sources: Sources,
    /// Say what each setting means
    #[arg(long)]
    explain: bool,
}

impl Config {
    pub fn run(&self) -> anyhow::Result<()> {
        match &self.command {
            Command::Show(show) => show.run(),
            Command::Presets => say(list_presets().trim_end()),
        }
    }
}

impl Show {
    fn run(&self) -> anyhow::Result<()> {
        let layers = self.sources.layers()?;
        let preset = layers.preset.and_then(|name| presets::find(name).ok());
        let example = preset.map_or(EXAMPLE_GAME, |preset| preset.example_game);
        let game = self.game.as_deref().or(layers.file.is_none().then_some(example));
        say(layers.resolve(game)?.to_toml(self.explain).trim_end())
    }
}

fn list_presets() -> String {
    let mut out = String::new();
    for preset in PRESETS {
        out += &format!("{}: {}\n", preset.name, preset.about);
        for (key, text) in preset.differences {
            out += &format!("    {key} = {text}\n");
        }
        out.push('\n');
    }
    out
}
