//! The scores of all runs by game and group, and what is missing among them.

use std::collections::BTreeSet;
use std::path::PathBuf;

use anyhow::bail;
use envs::display_name;
use stats::Scores;

use super::scale::Scale;

/// A run with its score.
#[derive(Clone, Debug, PartialEq)]
pub struct ScoredRun {
    pub path: PathBuf,
    /// Position in [`ScoreTable::games`].
    pub game: usize,
    /// Position in [`ScoreTable::groups`].
    pub group: usize,
    pub seed: u64,
    /// Frames of the last evaluation that the score uses.
    pub frames: f64,
    pub score: f64,
    /// Evaluations as (frames, mean score).
    pub points: Vec<(f64, f64)>,
}

/// Every run of every group.
#[derive(Clone, Debug)]
pub struct ScoreTable {
    /// Canonical names, sorted.
    pub games: Vec<String>,
    /// The groups' labels.
    pub groups: Vec<String>,
    pub runs: Vec<ScoredRun>,
    /// The scale for several games, and for one if it was requested.
    pub scale: Option<Scale>,
}

impl ScoreTable {
    /// Takes the human scale for several games that all have a reference, unless another scale is `requested`. Refuses two
    /// runs of a group with the same game and seed, which would count one experiment twice.
    pub fn new(
        games: Vec<String>,
        groups: Vec<String>,
        runs: Vec<ScoredRun>,
        requested: Option<Scale>,
    ) -> anyhow::Result<Self> {
        for (index, run) in runs.iter().enumerate() {
            let same =
                |other: &&ScoredRun| (other.group, other.game, other.seed) == (run.group, run.game, run.seed);
            if let Some(other) = runs[..index].iter().find(same) {
                bail!(
                    "{} and {} have the same settings and the same seed: leave one of them out",
                    other.path.display(),
                    run.path.display()
                );
            }
        }
        let mut table = Self { games, groups, runs, scale: None };
        table.scale = match requested {
            Some(scale) => {
                if let Some(game) = table.without_reference(&scale).first() {
                    bail!("the file of --normalise has no line for {game}: add one, or leave its runs out");
                }
                Some(scale)
            }
            None if table.compared().len() > 1 && table.without_reference(&Scale::Human).is_empty() => {
                Some(Scale::Human)
            }
            None => None,
        };
        Ok(table)
    }

    /// The compared games that a scale does not have.
    pub fn without_reference(&self, scale: &Scale) -> Vec<&str> {
        let games = self.compared().into_iter().map(|game| self.games[game].as_str());
        games.filter(|game| scale.apply(game, 0.0).is_none()).collect()
    }

    /// The runs of a game and a group.
    pub fn runs_of(&self, game: usize, group: usize) -> impl Iterator<Item = &ScoredRun> {
        self.runs.iter().filter(move |run| run.game == game && run.group == group)
    }

    /// The games of which every group has a run.
    pub fn compared(&self) -> Vec<usize> {
        let has_all =
            |game: &usize| (0..self.groups.len()).all(|group| self.runs_of(*game, group).next().is_some());
        (0..self.games.len()).filter(has_all).collect()
    }

    /// Whether scores of all compared games can be put together.
    pub fn has_unit(&self) -> bool {
        self.scale.is_some() || self.compared().len() == 1
    }

    /// The label of an axis with [`ScoreTable::unit`]s.
    pub fn unit_label(&self) -> &'static str {
        self.scale.as_ref().map_or("score", Scale::label)
    }

    /// A score on the common scale; the score itself without one.
    pub fn unit(&self, game: usize, score: f64) -> f64 {
        let scale = self.scale.as_ref();
        scale.and_then(|scale| scale.apply(&self.games[game], score)).unwrap_or(score)
    }

    /// Unscaled scores of all runs of the compared games, which suffice to compare within a game.
    pub fn raw(&self, group: usize) -> Option<Scores> {
        let of_game = |game: usize| self.runs_of(game, group).map(|run| run.score).collect();
        Scores::new(self.compared().into_iter().map(of_game).collect()).ok()
    }

    /// The seeds of which a group has a run of every compared game, so that each game weighs the same in aggregates.
    pub fn complete_seeds(&self, group: usize) -> Vec<u64> {
        let seeds = |game: usize| self.runs_of(game, group).map(|run| run.seed).collect::<BTreeSet<_>>();
        let common = self.compared().into_iter().map(seeds).reduce(|one, other| &one & &other);
        common.unwrap_or_default().into_iter().collect()
    }

    /// The runs of the complete seeds of a game.
    pub fn complete_runs(&self, game: usize, group: usize) -> Vec<&ScoredRun> {
        let seeds = self.complete_seeds(group);
        let run = |seed: &u64| self.runs_of(game, group).find(|run| run.seed == *seed);
        seeds.iter().filter_map(run).collect()
    }

    /// Scores of the complete seeds on the common scale, by compared game. None without a scale or a complete seed.
    pub fn complete(&self, group: usize) -> Option<Scores> {
        let of_game = |game: usize| {
            self.complete_runs(game, group).into_iter().map(|run| self.unit(game, run.score)).collect()
        };
        self.has_unit().then(|| Scores::new(self.compared().into_iter().map(of_game).collect()).ok())?
    }

    /// What is missing, one sentence each.
    pub fn gaps(&self) -> Vec<String> {
        let mut gaps = Vec::new();
        for (game, name) in self.games.iter().enumerate() {
            let name = display_name(name);
            let all: BTreeSet<u64> =
                self.runs.iter().filter(|run| run.game == game).map(|run| run.seed).collect();
            for (group, label) in self.groups.iter().enumerate() {
                let seeds: BTreeSet<u64> = self.runs_of(game, group).map(|run| run.seed).collect();
                let missing: Vec<String> = (&all - &seeds).iter().map(u64::to_string).collect();
                if seeds.is_empty() {
                    gaps.push(format!(
                        "{label} has no run of {name}: {name} is in its own table only, not in comparisons."
                    ));
                } else if !missing.is_empty() {
                    let noun = if missing.len() == 1 { "seed" } else { "seeds" };
                    gaps.push(format!("{label} has no run of {name} with {noun} {}.", missing.join(", ")));
                }
            }
        }
        for (group, label) in self.groups.iter().enumerate() {
            let most = self.compared().into_iter().map(|game| self.runs_of(game, group).count()).max();
            let complete = self.complete_seeds(group).len();
            if self.has_unit() && most.is_some_and(|most| complete < most) {
                gaps.push(format!(
                    "Aggregates of {label} use the seeds of which it has all games ({complete}), so that games weigh the same."
                ));
            }
        }
        gaps
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(games: &[&str], runs: &[(usize, usize, u64, f64)]) -> anyhow::Result<ScoreTable> {
        let run = |&(game, group, seed, score): &(usize, usize, u64, f64)| ScoredRun {
            path: format!("run-{game}-{group}-{seed}").into(),
            game,
            group,
            seed,
            frames: 9.0,
            score,
            points: vec![(9.0, score)],
        };
        let games = games.iter().map(|&game| game.to_owned()).collect();
        ScoreTable::new(games, vec!["a".into(), "b".into()], runs.iter().map(run).collect(), None)
    }

    #[test]
    fn a_seed_that_is_there_twice_is_refused() {
        let error = table(&["pong"], &[(0, 0, 1, 2.0), (0, 1, 1, 3.0), (0, 0, 1, 2.0)]).unwrap_err();
        assert!(error.to_string().contains("run-0-0-1 and run-0-0-1 have the same settings"), "{error}");
    }

    #[test]
    fn games_that_a_group_lacks_are_not_compared_and_named() {
        let table =
            table(&["boxing", "pong"], &[(0, 0, 1, 12.1), (0, 1, 1, 0.1), (1, 0, 1, 5.0), (0, 1, 2, 0.1)])
                .unwrap();
        assert_eq!(table.compared(), [0]);
        assert_eq!(table.scale, None, "one game has its own unit");
        assert_eq!(table.complete(1).unwrap().tasks(), [[0.1, 0.1]]);
        let gaps = table.gaps();
        assert!(gaps.iter().any(|gap| gap.starts_with("b has no run of Pong")), "{gaps:?}");
        assert!(gaps.iter().any(|gap| gap == "a has no run of Boxing with seed 2."), "{gaps:?}");
    }

    #[test]
    fn aggregates_take_the_seeds_with_all_games() {
        let both = [(0, 0, 1, 12.1), (1, 0, 1, 14.6), (0, 0, 2, 0.1), (0, 1, 1, 0.1), (1, 1, 1, -20.7)];
        let table = table(&["boxing", "pong"], &both).unwrap();
        assert_eq!(table.scale, Some(Scale::Human));
        assert_eq!(table.complete(0).unwrap().tasks(), [[1.0], [1.0]]);
        assert_eq!(table.raw(0).unwrap().tasks(), [vec![12.1, 0.1], vec![14.6]]);
        assert!(
            table
                .gaps()
                .iter()
                .any(|gap| gap.starts_with("Aggregates of a use the seeds of which it has all games (1)"))
        );
    }

    #[test]
    fn games_without_a_reference_are_not_put_together() {
        let table =
            table(&["boxing", "cartpole"], &[(0, 0, 1, 1.0), (0, 1, 1, 2.0), (1, 0, 1, 1.0), (1, 1, 1, 2.0)]);
        let table = table.unwrap();
        assert!(!table.has_unit() && table.complete(0).is_none() && table.raw(0).is_some());
        assert_eq!(table.without_reference(&Scale::Human), ["cartpole"]);
    }
}
