//! `quiver games`: lists the games.

use std::io::{IsTerminal, stdout};

use clap::Args;

use crate::output::{print_line, print_note};

/// List all games
#[derive(Args)]
#[command(after_help = "\
Game names are case-insensitive; dashes and underscores are ignored. Gym ids are accepted: MsPacman, ms-pacman and
ALE/MsPacman-v5 all select ms_pacman. A Gym id selects only the game. Quiver's settings still apply, for example
sticky_actions, and 200 steps per CartPole episode. RAM variants (-ram) are not supported.")]
pub struct Games {}

/// Assumed width of a terminal that does not set COLUMNS.
const COLUMNS: usize = 80;

impl Games {
    #[expect(clippy::unused_self, reason = "every command has the same signature")]
    pub fn run(&self) -> anyhow::Result<()> {
        let games = envs::games();
        let roms = roms();
        // Like ls: columns on a terminal, one name per line in a pipe.
        if stdout().is_terminal() {
            let width = std::env::var("COLUMNS").ok().and_then(|text| text.parse().ok()).unwrap_or(COLUMNS);
            print_line(&in_columns(&games, width))?;
            print_line(&format!("\n{roms}"))
        } else {
            print_line(&games.join("\n"))?;
            print_note(&roms);
            Ok(())
        }
    }
}

/// How many ROMs are installed, where, and the remedy for missing ones.
fn roms() -> String {
    let (folder, entries) = (envs::roms::directory(), envs::entries());
    let with_rom: Vec<_> = entries.iter().filter(|entry| entry.needs_rom).collect();
    let is_there = |name: &str| envs::roms::find(name, Some(&folder)).is_ok();
    let found = with_rom.iter().filter(|entry| is_there(entry.name)).count();
    let remedy = match with_rom.len() - found {
        0 => String::new(),
        missing => format!(", {missing} missing: run 'make setup', or set QUIVER_ROMS"),
    };
    let (games, roms) = (entries.len(), with_rom.len());
    format!("{games} games; {found} of {roms} ROMs found in {}{remedy}", folder.display())
}

/// Names in column-major order, in as many columns as fit.
fn in_columns(names: &[String], width: usize) -> String {
    let cell = names.iter().map(|name| name.len() + 2).max().unwrap_or(1);
    let columns = (width / cell).max(1);
    let rows = names.len().div_ceil(columns);
    let line = |row| {
        let line: String =
            names.iter().skip(row).step_by(rows).map(|name| format!("{name:<cell$}")).collect();
        line.trim_end().to_owned()
    };
    (0..rows).map(line).collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_run_down_the_columns() {
        let names: Vec<String> = ["a", "b", "c", "d", "e"].map(String::from).into();
        assert_eq!(in_columns(&names, 9), "a  c  e\nb  d");
        assert_eq!(in_columns(&names, 1), "a\nb\nc\nd\ne");
        assert_eq!(in_columns(&[], 80), "");
    }
}
