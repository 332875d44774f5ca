//! `quiver games`: what can be played.

use std::io::{IsTerminal, stdout};

use clap::Args;

use crate::output::{remark, say};

/// List every game by name
#[derive(Args)]
#[command(after_help = "\
Case, dashes and underscores do not matter, and Gym's names are understood: MsPacman, ms-pacman and
ALE/MsPacman-v5 are all ms_pacman.")]
pub struct Games {}

/// Width of a terminal that does not say how wide it is.
const COLUMNS: usize = 80;

impl Games {
    #[expect(clippy::unused_self, reason = "every command is run alike")]
    pub fn run(&self) -> anyhow::Result<()> {
        let games = envs::games();
        let roms = roms(&games);
        // As ls does: columns for people, a name per line for programs.
        if stdout().is_terminal() {
            let width = std::env::var("COLUMNS").ok().and_then(|text| text.parse().ok()).unwrap_or(COLUMNS);
            say(&in_columns(&games, width))?;
            say(&format!("\n{roms}"))
        } else {
            say(&games.join("\n"))?;
            remark(&roms);
            Ok(())
        }
    }
}

/// Where ROMs are looked for and which were not found.
fn roms(games: &[String]) -> String {
    let folder = envs::roms::directory();
    let atari: Vec<_> = games.iter().filter(|game| *game != "cartpole").collect();
    let missing = atari.iter().filter(|game| envs::roms::find(game, Some(&folder)).is_err()).count();
    let found = atari.len() - missing;
    let mend = if missing > 0 {
        format!(", {missing} missing: run `make setup`, or set QUIVER_ROMS")
    } else {
        String::new()
    };
    format!("{} games; {found} of {} ROMs found in {}{mend}", games.len(), atari.len(), folder.display())
}

/// Names down the columns, as many columns as fit.
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
