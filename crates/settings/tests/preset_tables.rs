//! Compares the table of the presets for CartPole in docs/paper.md with the presets.

use std::collections::BTreeMap;

use settings::presets::{self, Preset};

const HEADING: &str = "## Presets `paper-cartpole` and `authors-cartpole`";

/// The cells of each row, by setting: the value in either preset.
fn table(names: [&str; 2]) -> BTreeMap<String, [String; 2]> {
    let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/paper.md");
    let page = std::fs::read_to_string(page).unwrap();
    let section = page.split_once(HEADING).expect("the section exists").1;
    let section = section.split("\n## ").next().unwrap();
    let mut rows = section.lines().filter(|line| line.starts_with('|')).map(|line| {
        line.trim_matches('|').split('|').map(|cell| cell.trim().replace('`', "")).collect::<Vec<_>>()
    });
    let head = rows.next().unwrap();
    assert_eq!((head[0].as_str(), [head[1].as_str(), head[2].as_str()]), ("setting", names));
    let rows: Vec<_> = rows.skip(1).collect();
    let table: BTreeMap<_, _> =
        rows.iter().map(|row| (row[0].clone(), [row[1].clone(), row[2].clone()])).collect();
    assert_eq!(table.len(), rows.len(), "a setting has two rows");
    table
}

/// The value of a setting as the table has it.
fn shown(preset: &Preset, key: &str) -> String {
    let value = preset.settings().get(key).unwrap_or_else(|| panic!("no setting {key}"));
    let own = preset.for_algorithms().filter(|(_, own, _)| *own == key);
    own.fold(value, |shown, (algorithm, _, text)| format!("{shown}; {algorithm}: {text}"))
}

#[test]
fn the_table_of_the_cartpole_presets_is_complete_and_has_their_values() {
    let names = ["paper-cartpole", "authors-cartpole"];
    let table = table(names);
    for (column, name) in names.into_iter().enumerate() {
        let preset = presets::find(name).unwrap();
        for (key, values) in &table {
            assert_eq!(values[column], shown(preset, key), "{name}: {key}");
        }
        let keys = preset.differences.iter().map(|(key, _)| *key);
        for key in keys.chain(preset.for_algorithms().map(|(_, key, _)| key)) {
            assert!(table.contains_key(key), "{name}: {key} has no row");
        }
    }
}
