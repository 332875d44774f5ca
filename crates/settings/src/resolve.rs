//! Combines preset, file, environment variables and flags; later layers override earlier ones.

use std::collections::BTreeSet;
use std::path::Path;

use crate::nearest::hint;
use crate::presets;
use crate::{SETTINGS, Settings};

/// The layers of settings, lowest precedence first.
#[derive(Debug, Default)]
pub struct Layers<'a> {
    /// A preset given by name. Without it the file's preset is used, else the game's default.
    pub preset: Option<&'a str>,
    /// A TOML file.
    pub file: Option<&'a Path>,
    /// Variables `QUIVER_<KEY>` as (key in lower case, text).
    pub environment: Vec<(String, String)>,
    /// Flags as (key, text).
    pub flags: Vec<(String, String)>,
}

/// A run's settings and its game.
#[derive(Clone, Debug, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct Resolved {
    /// Canonical name of the game.
    pub game: String,
    /// Name of the preset that the settings start from.
    pub preset: String,
    /// All settings, resolved.
    pub settings: Settings,
}

/// Settings younger than some runs, and the value with which those were played, where a preset may have another.
const FORMER: [(&str, &str); 4] = [
    // A file without this key predates clusters.
    ("lockstep", "true"),
    ("frame_maximum", "gray"),
    ("life_loss_refills", "false"),
    ("press_fire", "never"),
];

/// Why settings could not be resolved: one line that names the source and the remedy.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct ConfigError(pub String);

impl Layers<'_> {
    /// Combines the layers and validates the result. `game` may be `None` if the file names one.
    pub fn resolve(&self, game: Option<&str>) -> Result<Resolved, ConfigError> {
        let file = self.file.map(read_file).transpose()?.unwrap_or_default();
        let entry = |name: &str| envs::find(name).map_err(|error| ConfigError(error.to_string()));
        if let (Some(asked), Some(named)) = (game, &file.game)
            && entry(asked)?.name != entry(named)?.name
        {
            return Err(ConfigError(format!(
                "the file is for {named}, not for {asked}: leave one of them out"
            )));
        }
        let game = game.map(str::to_owned).or_else(|| file.game.clone());
        let game = game
            .ok_or_else(|| ConfigError("no game given: name one, for example 'quiver train pong'".into()))?;
        let entry = entry(&game)?;
        let (game, own) = (entry.name.to_owned(), entry.default_preset);

        let preset = self.preset.or(file.preset.as_deref()).unwrap_or(own);
        let preset = presets::find(preset).map_err(ConfigError)?;
        if !preset.is_for(&game) {
            return Err(ConfigError(format!("preset {} is not for {game}: use --preset {own}", preset.name)));
        }
        let mut settings = preset.settings();
        let mut given = BTreeSet::new();
        let file_name = self.file.map_or(String::new(), |path| path.display().to_string());
        let of_file = file.settings.iter().map(|(key, text)| (format!("{file_name}: {key}"), key, text));
        let variables = self.environment.iter().map(|(key, text)| (variable(key), key, text));
        let flags = self.flags.iter().map(|(key, text)| (flag(key), key, text));
        for (source, key, text) in of_file.chain(variables).chain(flags) {
            apply(&mut settings, key, text).map_err(|error| ConfigError(format!("{source}: {error}")))?;
            given.insert(key.as_str());
        }
        for (algorithm, key, text) in preset.for_algorithms() {
            if algorithm == settings.algorithm && !given.contains(key) {
                apply(&mut settings, key, text).map_err(ConfigError)?;
            }
        }
        if let Some(epsilon) = settings.algorithm.epsilon {
            explore(&mut settings, epsilon, &given);
        }
        settings.validate(&game).map_err(ConfigError)?;
        Ok(Resolved { game, preset: preset.name.into(), settings })
    }
}

impl Resolved {
    /// The settings as a TOML file that resolves to the same settings, with the help as comments if `explained`.
    pub fn to_toml(&self, explained: bool) -> String {
        let mut out = format!("game = \"{}\"\npreset = \"{}\"\n", self.game, self.preset);
        let mut group = "";
        for setting in SETTINGS {
            if setting.group != group {
                group = setting.group;
                out += &format!("\n# {group}\n");
            }
            let text = self.settings.get(setting.key).expect("listed settings exist");
            let number = text.parse::<i64>().is_ok() || (text.contains('.') && text.parse::<f64>().is_ok());
            let bare = number || text == "true" || text == "false";
            let value = if bare { text } else { format!("\"{text}\"") };
            if explained {
                out += &format!("# {}\n", setting.help());
            }
            out += &format!("{} = {value}\n", setting.key);
        }
        out
    }

    /// Reads a file that names its game, such as [`Resolved::to_toml`] writes.
    pub fn from_file(path: &Path) -> Result<Self, ConfigError> {
        Layers { file: Some(path), ..Layers::default() }.resolve(None)
    }

    /// Reads the file of a run directory, which an older version may have written.
    pub fn from_run(path: &Path) -> Result<Self, ConfigError> {
        let mut resolved = Self::from_file(path)?;
        let written = read_file(path)?.settings;
        let fixed =
            envs::find(&resolved.game).map_err(|error| ConfigError(error.to_string()))?.fixed_settings;
        for (key, text) in FORMER {
            if !written.iter().any(|(own, _)| own == key) && !fixed.iter().any(|(own, _)| *own == key) {
                apply(&mut resolved.settings, key, text).map_err(ConfigError)?;
            }
        }
        Ok(resolved)
    }
}

/// The flag of a setting.
pub fn flag(key: &str) -> String {
    format!("--{}", key.replace('_', "-"))
}

/// The environment variable of a setting.
pub fn variable(key: &str) -> String {
    format!("QUIVER_{}", key.to_uppercase())
}

fn apply(settings: &mut Settings, key: &str, text: &str) -> Result<(), String> {
    match settings.set(key, text) {
        Some(result) => result,
        None => Err(unknown_key(key)),
    }
}

fn unknown_key(key: &str) -> String {
    let known = SETTINGS.iter().map(|setting| setting.key);
    format!("unknown setting '{key}'{}; 'quiver config show' lists all settings", hint(key, known))
}

/// Sets the ε of an algorithm whose policy does not explore by itself, unless the user set it.
fn explore(settings: &mut Settings, (first, last): (f64, f64), given: &BTreeSet<&str>) {
    if !given.contains("epsilon") {
        settings.epsilon = first;
    }
    if !given.contains("epsilon_final") {
        settings.epsilon_final = last;
    }
}

#[derive(Default)]
struct File {
    game: Option<String>,
    preset: Option<String>,
    settings: Vec<(String, String)>,
}

fn read_file(path: &Path) -> Result<File, ConfigError> {
    let fail = |what: String| ConfigError(format!("{}: {what}", path.display()));
    let text = std::fs::read_to_string(path)
        .map_err(|error| ConfigError(format!("can't read {}: {error}; check the path", path.display())))?;
    let table: toml::Table =
        text.parse().map_err(|error: toml::de::Error| fail(error.message().to_owned()))?;
    let mut file = File::default();
    for (key, value) in table {
        let text = match value {
            toml::Value::String(text) => text,
            toml::Value::Integer(number) => number.to_string(),
            toml::Value::Float(number) => number.to_string(),
            toml::Value::Boolean(switch) => switch.to_string(),
            _ => {
                return Err(fail(format!(
                    "{key}: expected a single value; settings can't be grouped in tables"
                )));
            }
        };
        match key.as_str() {
            "game" => file.game = Some(text),
            "preset" => file.preset = Some(text),
            _ if SETTINGS.iter().any(|setting| setting.key == key) => file.settings.push((key, text)),
            _ => return Err(fail(unknown_key(&key))),
        }
    }
    Ok(file)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn flags(pairs: &[(&str, &str)]) -> Vec<(String, String)> {
        pairs.iter().map(|(key, text)| ((*key).into(), (*text).into())).collect()
    }

    fn file(text: &str) -> tempfile::NamedTempFile {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), text).unwrap();
        file
    }

    #[test]
    fn later_layers_win() {
        let file = file("seed = 1\ntemperature = 0.1\nframes = \"2M\"\n");
        let layers = Layers {
            preset: Some("quick"),
            file: Some(file.path()),
            environment: flags(&[("temperature", "0.2"), ("seed", "2")]),
            flags: flags(&[("seed", "3")]),
        };
        let resolved = layers.resolve(Some("pong")).unwrap();
        assert_eq!(resolved.settings.seed, 3);
        assert_eq!(resolved.settings.temperature, 0.2);
        assert_eq!(resolved.settings.frames.0, 2_000_000);
        assert_eq!(resolved.settings.sticky_actions, 0.25, "from the preset");
    }

    #[test]
    fn a_written_file_resolves_to_the_same_settings() {
        for explained in [false, true] {
            let changed = [
                ("rho", "old"),
                ("samples_per_insert", "4"),
                ("seed", "18446744073709551615"),
                ("gradient_clamp", "1e30"),
            ];
            let layers = Layers { flags: flags(&changed), ..Layers::default() };
            let resolved = layers.resolve(Some("pong")).unwrap();
            let file = file(&resolved.to_toml(explained));
            assert_eq!(Resolved::from_file(file.path()), Ok(resolved));
        }
    }

    #[test]
    fn a_run_older_than_clusters_is_in_lockstep() {
        let resolved = Layers::default().resolve(Some("cartpole")).unwrap();
        assert!(!resolved.settings.lockstep);
        let old = resolved.to_toml(false).replace("lockstep = false\n", "");
        assert!(Resolved::from_run(file(&old).path()).unwrap().settings.lockstep);
        let new = file(&resolved.to_toml(false));
        assert_eq!(Resolved::from_run(new.path()), Ok(resolved));
    }

    #[test]
    fn an_unknown_key_suggests_the_nearest() {
        let file = file("temprature = 1\n");
        let error =
            Layers { file: Some(file.path()), ..Layers::default() }.resolve(Some("pong")).unwrap_err();
        assert!(error.0.contains("did you mean 'temperature'"), "{error}");
    }

    #[test]
    fn a_preset_may_have_its_own_values_for_an_algorithm_and_the_user_wins() {
        let resolved = |more: &[(&str, &str)]| {
            let layers = Layers { preset: Some("authors-cartpole"), flags: flags(more), ..Layers::default() };
            layers.resolve(Some("cartpole")).unwrap()
        };
        let numbers = |more| {
            let settings = resolved(more).settings;
            (settings.capacity.0, settings.random_steps.0, settings.epsilon)
        };
        assert_eq!(numbers(&[]), (1_000, 1_000, 0.0));
        let dqn = [("algorithm", "dqn"), ("capacity", "2000")];
        assert_eq!(numbers(&dqn[..1]), (10_000, 0, 1.0));
        assert_eq!(numbers(&dqn), (2_000, 0, 1.0));
        let written = file(&resolved(&dqn[..1]).to_toml(false));
        assert_eq!(Resolved::from_file(written.path()), Ok(resolved(&dqn[..1])));
    }

    #[test]
    fn settings_that_an_older_run_lacks_have_their_former_meaning() {
        let resolved = Layers::default().resolve(Some("cartpole")).unwrap();
        let new = ["epsilon_schedule", "termination_reward", "bootstrap_terminal", "target_period_episodes"];
        let text = resolved.to_toml(false);
        let is_new = |line: &&str| new.iter().any(|key| line.starts_with(&format!("{key} = ")));
        assert_eq!(text.lines().filter(is_new).count(), new.len(), "a run records each setting");
        let old: Vec<&str> = text.lines().filter(|line| !is_new(line)).collect();
        assert_eq!(Resolved::from_run(file(&old.join("\n")).path()), Ok(resolved));
    }

    #[test]
    fn an_older_run_keeps_its_frames_its_stack_and_no_fire() {
        let of = |game: &str, preset| {
            let layers = Layers { preset, ..Layers::default() };
            layers.resolve(Some(game)).unwrap()
        };
        let older = |resolved: &Resolved| {
            let is_new =
                |line: &&str| FORMER[1..].iter().any(|(key, _)| line.starts_with(&format!("{key} = ")));
            let text = resolved.to_toml(false);
            let old: Vec<&str> = text.lines().filter(|line| !is_new(line)).collect();
            Resolved::from_run(file(&old.join("\n")).path()).unwrap()
        };
        for preset in ["paper-atari", "authors-atari", "quick"] {
            let old = older(&of("pong", Some(preset)));
            let values = FORMER[1..].iter().map(|(key, _)| old.settings.get(key).unwrap());
            assert_eq!(values.collect::<Vec<_>>(), ["gray", "false", "never"], "{preset}");
            assert_eq!(old.settings.validate("pong"), Ok(()), "{preset}");
        }
        let cartpole = of("cartpole", None);
        assert_eq!(older(&cartpole), cartpole, "an environment whose values are fixed keeps them");
    }

    #[test]
    fn dqn_explores_unless_the_user_sets_epsilon() {
        let dqn = flags(&[("algorithm", "dqn"), ("strategy", "per")]);
        let resolved = Layers { flags: dqn.clone(), ..Layers::default() }.resolve(Some("pong")).unwrap();
        assert_eq!((resolved.settings.epsilon, resolved.settings.epsilon_final), (1.0, 0.01));
        for (key, expected) in [("epsilon", (0.1, 0.01)), ("epsilon_final", (1.0, 0.1))] {
            let flags = [dqn.clone(), flags(&[(key, "0.1")])].concat();
            let settings = Layers { flags, ..Layers::default() }.resolve(Some("pong")).unwrap().settings;
            assert_eq!((settings.epsilon, settings.epsilon_final), expected);
        }
    }
}
