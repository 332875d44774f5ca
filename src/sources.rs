//! Collects settings from the command line: a preset, a file, `QUIVER_…` variables, flags.
//!
//! The flags are generated from [`SETTINGS`] at run time, so a new setting gets its flag, its variable and its help without
//! a change here.

use std::env;
use std::path::PathBuf;

use anyhow::bail;
use clap::{Arg, ArgMatches, Args, Command, Error, FromArgMatches};
use settings::nearest::hint;
use settings::resolve::{Layers, flag, variable};
use settings::units::grouped;
use settings::{SETTINGS, Settings};

/// Settings whose flags the short help (`-h`) shows; `--help` shows all.
const COMMON: [&str; 13] = [
    "seed",
    "frames",
    "device",
    "lockstep",
    "actors",
    "lanes",
    "shards",
    "algorithm",
    "temperature",
    "learning_rate",
    "batch_size",
    "strategy",
    "samples_per_insert",
];

/// Variables with the prefix `QUIVER_` that are not settings: ROMs, the build, credentials.
const OTHER_VARIABLES: [&str; 3] = ["QUIVER_ROMS", "QUIVER_ALE_SOURCE", "QUIVER_SECRETS"];

const PREFIX: &str = "QUIVER_";

/// Where a command's settings come from.
#[derive(Args)]
pub struct Sources {
    /// Preset to start from ('quiver config presets' lists them) [default: the game's own]
    #[arg(long, value_name = "NAME")]
    pub preset: Option<String>,
    /// TOML file with settings that override the preset ('quiver config show' prints one)
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    #[command(flatten)]
    pub flags: SettingFlags,
}

impl Sources {
    /// All layers, including this process's environment variables.
    pub fn layers(&self) -> anyhow::Result<Layers<'_>> {
        Ok(Layers {
            preset: self.preset.as_deref(),
            file: self.config.as_deref(),
            environment: variables()?,
            flags: self.flags.0.clone(),
        })
    }
}

/// Settings given as flags: (key, text) pairs in the order of [`SETTINGS`].
pub struct SettingFlags(pub Vec<(String, String)>);

impl Args for SettingFlags {
    fn augment_args(command: Command) -> Command {
        let paper = Settings::paper();
        command.args(SETTINGS.iter().map(|setting| {
            let default = paper.get(setting.key).expect("listed settings exist");
            let default = default.parse().map_or(default, grouped);
            let arg = Arg::new(setting.key)
                .long(flag(setting.key).trim_start_matches('-').to_owned())
                .help(format!("{} [{default}]", setting.help().trim_end_matches('.')))
                .help_heading(format!("{} settings", setting.group))
                .hide_short_help(!COMMON.contains(&setting.key));
            if setting.is_switch {
                arg.value_name("true|false")
                    .num_args(0..=1)
                    .require_equals(true)
                    .default_missing_value("true")
            } else {
                arg.value_name("VALUE").allow_negative_numbers(true)
            }
        }))
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl FromArgMatches for SettingFlags {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, Error> {
        let given = |key: &str| matches.get_one::<String>(key).cloned();
        let pairs = SETTINGS.iter().filter_map(|setting| Some((setting.key.to_owned(), given(setting.key)?)));
        Ok(Self(pairs.collect()))
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

/// The `QUIVER_…` variables of this process as (key, text) pairs. An unknown variable is an error: otherwise a typo would
/// silently train with the default.
pub fn variables() -> anyhow::Result<Vec<(String, String)>> {
    read_variables(
        env::vars_os().filter_map(|(name, text)| Some((name.into_string().ok()?, text.into_string().ok()?))),
    )
}

fn read_variables(
    variables: impl Iterator<Item = (String, String)>,
) -> anyhow::Result<Vec<(String, String)>> {
    let mut pairs = Vec::new();
    for (name, text) in variables.filter(|(name, _)| name.starts_with(PREFIX)) {
        if let Some(setting) = SETTINGS.iter().find(|setting| variable(setting.key) == name) {
            pairs.push((setting.key.to_owned(), text));
        } else if !OTHER_VARIABLES.contains(&name.as_str()) {
            let known: Vec<_> = SETTINGS.iter().map(|setting| variable(setting.key)).collect();
            let hint = hint(&name, known.iter().map(String::as_str).chain(OTHER_VARIABLES));
            bail!("unknown environment variable {name}{hint}: correct it or unset it");
        }
    }
    Ok(pairs)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(words: &[&str]) -> Result<Vec<(String, String)>, Error> {
        let command = SettingFlags::augment_args(Command::new("test").no_binary_name(true));
        Ok(SettingFlags::from_arg_matches(&command.try_get_matches_from(words)?)?.0)
    }

    fn pair(key: &str, text: &str) -> (String, String) {
        (key.into(), text.into())
    }

    #[test]
    fn every_setting_has_a_flag() {
        for setting in SETTINGS {
            let word = format!("{}=x", flag(setting.key));
            assert_eq!(parse(&[&word]).unwrap(), [pair(setting.key, "x")]);
        }
        for key in COMMON {
            assert!(SETTINGS.iter().any(|setting| setting.key == key), "{key}");
        }
    }

    #[test]
    fn a_bare_switch_is_true_and_leaves_the_next_word_alone() {
        assert_eq!(parse(&["--double"]).unwrap(), [pair("double", "true")]);
        assert_eq!(parse(&["--double=false"]).unwrap(), [pair("double", "false")]);
        assert!(parse(&["--double", "false"]).is_err());
    }

    #[test]
    fn a_negative_number_is_parsed_as_a_value() {
        assert_eq!(parse(&["--temperature", "-1"]).unwrap(), [pair("temperature", "-1")]);
    }

    #[test]
    fn variables_of_settings_are_read_and_misspelt_ones_refused() {
        let read = |name: &str| read_variables([pair(name, "7")].into_iter());
        assert_eq!(read("QUIVER_BATCH_SIZE").unwrap(), [pair("batch_size", "7")]);
        assert_eq!(read("QUIVER_ROMS").unwrap(), []);
        assert_eq!(read("PATH").unwrap(), []);
        assert!(
            read("QUIVER_BATCHSIZE").unwrap_err().to_string().contains("did you mean 'QUIVER_BATCH_SIZE'")
        );
    }
}
