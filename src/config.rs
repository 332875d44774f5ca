//! `quiver config`: prints resolved settings, presets, and the configuration reference.

use clap::{Args, Subcommand};
use settings::presets::{self, PRESETS};
use settings::{SETTINGS, Settings};

use crate::output::print_line;
use crate::sources::Sources;
use crate::train::note_gym_differences;

/// The head of `quiver config reference`.
const REFERENCE_HEAD: &str = "\
# Configuration reference

`quiver config reference` generates this page; a test compares the two.

Every setting is a flag of `quiver train` (`--batch-size 64`), a key of a TOML file (`batch_size = 64`, with `--config FILE`)
and an environment variable (`QUIVER_BATCH_SIZE=64`). The order of precedence is preset, file, variables, flags: later wins. An
unknown name is an error that suggests the nearest known one. `quiver config show GAME --explain` prints the settings in
force.

The default is preset `paper-atari`. The last column lists presets with another value.
";

/// The game whose settings are shown when the user names neither a game nor a preset.
const EXAMPLE_GAME: &str = "pong";

/// Print settings and presets
#[derive(Args)]
pub struct ConfigCommand {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Print the settings that 'quiver train' would use, as a TOML file for --config
    #[command(after_help = "\
Examples:
  quiver config show pong --preset quick --explain
  quiver config show pong --temperature 0.1 >my.toml && quiver train --config my.toml")]
    Show(Show),
    /// List the presets and how each differs from paper-atari
    Presets,
    /// Print every setting with its default in each preset, as the Markdown of docs/configuration.md
    Reference,
}

#[derive(Args)]
struct Show {
    /// The game ('quiver games' lists them) [default: the file's, else an example game of the preset]
    game: Option<String>,
    #[command(flatten)]
    sources: Sources,
    /// Add the meaning of each setting as a comment
    #[arg(long)]
    explain: bool,
}

impl ConfigCommand {
    pub fn run(&self) -> anyhow::Result<()> {
        match &self.command {
            Command::Show(show) => show.run(),
            Command::Presets => print_line(list_presets().trim_end()),
            Command::Reference => print_line(reference().trim_end()),
        }
    }
}

impl Show {
    fn run(&self) -> anyhow::Result<()> {
        let layers = self.sources.layers()?;
        let preset = layers.preset.and_then(|name| presets::find(name).ok());
        let example = preset.map_or(EXAMPLE_GAME, |preset| preset.example_game);
        let game = self.game.as_deref().or(layers.file.is_none().then_some(example));
        let resolved = layers.resolve(game)?;
        note_gym_differences(game, &resolved);
        print_line(resolved.to_toml(self.explain).trim_end())
    }
}

fn list_presets() -> String {
    let mut out = String::new();
    for preset in PRESETS {
        out += &format!("{}: {}\n", preset.name, preset.about);
        for (key, text) in preset.differences {
            out += &format!("    {key} = {text}\n");
        }
        for (algorithm, key, text) in preset.for_algorithms() {
            out += &format!("    {key} = {text} with algorithm {algorithm}\n");
        }
        out.push('\n');
    }
    out
}

/// The configuration reference: a table for each group of settings.
fn reference() -> String {
    let mut out = REFERENCE_HEAD.to_owned();
    let paper = Settings::paper();
    let presets: Vec<_> = PRESETS.iter().map(|preset| (preset.name, preset.settings())).collect();
    let mut group = "";
    for setting in SETTINGS {
        if setting.group != group {
            group = setting.group;
            out += &format!(
                "\n## {group}\n\n| setting | default | meaning | other presets |\n|---|---|---|---|\n"
            );
        }
        let key = setting.key;
        let default = paper.get(key).unwrap_or_default();
        let differing = presets.iter().filter_map(|(preset, settings)| {
            let own = settings.get(key).filter(|value| *value != default).map(|value| format!("`{value}`"));
            // The sources of a preset may have a program for each algorithm.
            let of_algorithms =
                presets::find(preset).ok()?.for_algorithms().filter(|(_, other, _)| *other == key);
            let of_algorithms =
                of_algorithms.map(|(algorithm, _, text)| format!("`{text}` with {algorithm}"));
            let values: Vec<_> = own.into_iter().chain(of_algorithms).collect();
            (!values.is_empty()).then(|| format!("{preset}: {}", values.join(" or ")))
        });
        let differing = differing.collect::<Vec<_>>().join(", ");
        // A bar would end the table's cell.
        let meaning = setting.help().replace('|', "\\|");
        out += &format!("| `{key}` | `{default}` | {meaning} | {differing} |\n");
    }
    out
}
