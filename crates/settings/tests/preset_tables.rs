//! Compares the tables of the presets in docs/paper.md with the presets.

use std::collections::BTreeMap;

use settings::SETTINGS;
use settings::presets::{self, Preset};

/// A section of the page whose table has the values of two presets.
struct Table {
    presets: [&'static str; 2],
    rows: BTreeMap<String, Vec<String>>,
}

impl Table {
    fn read(presets: [&'static str; 2]) -> Self {
        let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/paper.md");
        let page = std::fs::read_to_string(page).unwrap();
        let heading = format!("## Presets `{}` and `{}`\n", presets[0], presets[1]);
        let section = page.split_once(&heading).unwrap_or_else(|| panic!("no section {heading}")).1;
        let section = section.split("\n## ").next().unwrap();
        let mut lines = section.lines().filter(|line| line.starts_with('|')).map(|line| {
            line.trim_matches('|').split('|').map(|cell| cell.trim().replace('`', "")).collect::<Vec<_>>()
        });
        let head = lines.next().unwrap();
        assert_eq!(head[..3], ["setting", presets[0], presets[1]]);
        let rows: Vec<_> = lines.skip(1).collect();
        let by_setting: BTreeMap<_, _> = rows.iter().map(|row| (row[0].clone(), row[1..].to_vec())).collect();
        assert_eq!(by_setting.len(), rows.len(), "a setting has two rows");
        for (key, row) in &by_setting {
            assert_eq!(row.len(), head.len() - 1, "{key}: one cell for each column");
        }
        Self { presets, rows: by_setting }
    }

    /// Checks the values, and that each setting with another value than its default has a row.
    fn check(&self) {
        for (column, name) in self.presets.into_iter().enumerate() {
            let preset = presets::find(name).unwrap();
            for (key, row) in &self.rows {
                assert_eq!(row[column], shown(preset, key), "{name}: {key}");
            }
            let keys = preset.differences.iter().map(|(key, _)| *key);
            for key in keys.chain(preset.for_algorithms().map(|(_, key, _)| key)) {
                assert!(self.rows.contains_key(key), "{name}: {key} has no row");
            }
        }
    }
}

/// The value of a setting as a table has it.
fn shown(preset: &Preset, key: &str) -> String {
    let value = preset.settings().get(key).unwrap_or_else(|| panic!("no setting {key}"));
    let own = preset.for_algorithms().filter(|(_, own, _)| *own == key);
    own.fold(value, |shown, (algorithm, _, text)| format!("{shown}; {algorithm}: {text}"))
}

#[test]
fn the_table_of_the_cartpole_presets_is_complete_and_has_their_values() {
    Table::read(["paper-cartpole", "authors-cartpole"]).check();
}

#[test]
fn the_table_of_the_atari_presets_has_every_setting_of_the_experiment_and_their_values() {
    let table = Table::read(["paper-atari", "authors-atari"]);
    table.check();
    // Group Run chooses machines, processes and checkpoints, except for the length of the run.
    for setting in SETTINGS.iter().filter(|setting| setting.group != "Run" || setting.key == "frames") {
        let row = table.rows.get(setting.key);
        let row = row.unwrap_or_else(|| panic!("docs/paper.md has no row for {}", setting.key));
        let [.., text, _, code] = row.as_slice() else { panic!("{row:?}") };
        assert!(!text.is_empty() && !code.is_empty(), "{}: what have the text and the code?", setting.key);
    }
}
