//! The scale on which scores of several games are put together.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Context, bail};
use stats::atari::Reference;

/// For each game, the scores that become 0 and 1.
#[derive(Clone, Debug, PartialEq)]
pub enum Scale {
    /// Random play and people, for the 57 games of the literature.
    Human,
    /// From a file.
    File(BTreeMap<String, (f64, f64)>),
}

impl Scale {
    /// Reads a CSV file with the columns `game`, `zero` and `one`.
    pub fn read(path: &Path) -> anyhow::Result<Self> {
        let shown = path.display();
        let text = std::fs::read_to_string(path).with_context(|| format!("can't read {shown}"))?;
        let mut lines = text.lines().map(str::trim).enumerate().filter(|(_, line)| !line.is_empty());
        let header: Option<Vec<&str>> =
            lines.next().map(|(_, line)| line.split(',').map(str::trim).collect());
        if header.as_deref() != Some(&["game", "zero", "one"]) {
            bail!("{shown}: the first line must be 'game,zero,one'");
        }
        let mut games = BTreeMap::new();
        for (index, line) in lines {
            let number = index + 1;
            let cells: Vec<&str> = line.split(',').map(str::trim).collect();
            let [game, zero, one] = cells[..] else { bail!("{shown}: line {number} must have three cells") };
            let game = envs::canonical(game).with_context(|| format!("{shown}: line {number}"))?;
            let ends = zero.parse::<f64>().ok().zip(one.parse::<f64>().ok());
            let is_usable = |(zero, one): &(f64, f64)| zero.is_finite() && one.is_finite() && zero != one;
            let Some(ends) = ends.filter(is_usable) else {
                bail!("{shown}: line {number}: zero and one must be two different numbers");
            };
            games.insert(game, ends);
        }
        Ok(Self::File(games))
    }

    /// The score on this scale; none if the game has no reference.
    pub fn apply(&self, game: &str, score: f64) -> Option<f64> {
        match self {
            Self::Human => Reference::of(game).map(|reference| reference.normalised(score)),
            Self::File(games) => games.get(game).map(|(zero, one)| (score - zero) / (one - zero)),
        }
    }

    /// The name in files.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Human => "human_normalised",
            Self::File(_) => "file",
        }
    }

    /// The label of an axis.
    pub fn label(&self) -> &'static str {
        match self {
            Self::Human => "human-normalised score",
            Self::File(_) => "normalised score",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn a_file_gives_zero_and_one_of_each_game() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("scale.csv");
        fs::write(&path, "game,zero,one\ncartpole, 20, 200\n\nPong,-21,21\n").unwrap();
        let scale = Scale::read(&path).unwrap();
        assert_eq!(scale.apply("cartpole", 110.0), Some(0.5));
        assert_eq!((scale.apply("pong", 21.0), scale.apply("boxing", 0.0)), (Some(1.0), None));
        for (text, part) in [
            ("cartpole,20,200", "the first line"),
            ("game,zero,one\ncartpole,20", "line 2 must have three"),
            ("game,zero,one\n\ncartpole,20,20", "line 3: zero and one must be"),
            ("game,zero,one\ncartpol,20,200", "line 2: "),
        ] {
            fs::write(&path, text).unwrap();
            let error = Scale::read(&path).unwrap_err();
            let error = format!("{error:#}");
            assert!(error.contains(part), "{error}");
        }
    }

    #[test]
    fn the_human_scale_has_the_games_of_the_literature() {
        assert_eq!(Scale::Human.apply("boxing", 12.1), Some(1.0));
        assert_eq!(Scale::Human.apply("cartpole", 200.0), None);
    }
}
