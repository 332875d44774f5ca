//! What one strategy gains over another.
//!
//! The paper takes the mean over games of (a − b)/b, which weighs a game by how small b is there: one game can carry
//! it. So there are two more measures beside it, the same without the game that adds most, and the difference of
//! human-normalised scores; and for each strategy the interquartile mean of these. Intervals are the middle 95% over
//! seeds drawn with replacement within each game and strategy; one seed has none.

use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;
use value::Strategy;

use super::reference::{PAIRS, Reference};
use super::results::{Scored, finals};
use crate::statistics::{bootstrap, interquartile_mean};

/// Resamplings behind an interval.
const ROUNDS: usize = 2_000;

/// A way to compare.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Measure {
    /// Mean over games of (a − b)/b, in per cent, as the paper computes it. A game with b ≤ 0 has none.
    Relative,
    /// The same without the game that adds most to it.
    WithoutLargest,
    /// Mean over games of the difference of human-normalised scores, in points of 100.
    HumanNormalised,
}

impl Measure {
    /// All, the paper's first.
    pub const ALL: [Self; 3] = [Self::Relative, Self::WithoutLargest, Self::HumanNormalised];

    /// The name in files.
    pub fn name(self) -> &'static str {
        match self {
            Measure::Relative => "relative",
            Measure::WithoutLargest => "relative_without_largest",
            Measure::HumanNormalised => "human_normalised",
        }
    }
}

/// One comparison.
#[derive(Clone, Debug, PartialEq)]
pub struct Gain {
    /// What is better if it is positive.
    pub a: Strategy,
    /// Than what.
    pub b: Strategy,
    /// By which measure.
    pub measure: Measure,
    /// Over how many games.
    pub games: usize,
    /// How much.
    pub value: f64,
    /// The middle 95% over seeds.
    pub interval: Option<(f64, f64)>,
    /// The same of the paper's scores at 40M frames, over the same games.
    pub paper: Option<f64>,
}

/// A strategy's interquartile mean over games and seeds of human-normalised scores, in points of 100.
#[derive(Clone, Debug, PartialEq)]
pub struct Middle {
    /// Whose.
    pub strategy: Strategy,
    /// Over how many games.
    pub games: usize,
    /// How much.
    pub value: f64,
    /// The middle 95% over seeds.
    pub interval: Option<(f64, f64)>,
}

/// Scores at the end, of those games for which every strategy has some.
#[derive(Clone, Debug, PartialEq)]
pub struct Board {
    games: Vec<String>,
    strategies: Vec<Strategy>,
    /// Scores by seed, for each game and in it each strategy.
    scores: Vec<Vec<f64>>,
}

impl Board {
    /// Takes the finished runs.
    pub fn new(scored: &[Scored], games: &[String], strategies: &[Strategy]) -> Self {
        let whole =
            |game: &&String| strategies.iter().all(|&strategy| !finals(scored, game, strategy).is_empty());
        let games: Vec<String> = games.iter().filter(whole).cloned().collect();
        let of_game = |game: &String| -> Vec<Vec<f64>> {
            let means = |strategy| finals(scored, game, strategy).iter().map(|point| point.mean).collect();
            strategies.iter().map(|&strategy| means(strategy)).collect()
        };
        Self { scores: games.iter().flat_map(of_game).collect(), games, strategies: strategies.to_vec() }
    }

    /// The paper's scores of some of the games; of those that it has.
    fn of_paper(&self, games: &[usize]) -> Self {
        let known: Vec<_> = games.iter().filter_map(|&game| Reference::of(&self.games[game])).collect();
        let score = |reference: &Reference| -> Vec<Vec<f64>> {
            self.strategies.iter().map(|&strategy| reference.score(strategy).into_iter().collect()).collect()
        };
        Self {
            games: known.iter().map(|reference| reference.game.to_owned()).collect(),
            strategies: self.strategies.clone(),
            scores: known.into_iter().flat_map(score).collect(),
        }
    }

    /// Every pair of strategies that there is, by every measure that can be computed.
    pub fn gains(&self, seed: u64) -> Vec<Gain> {
        let there = |strategy: Strategy| self.strategies.contains(&strategy);
        let pairs = PAIRS.into_iter().filter(|&(a, b, _)| there(a) && there(b));
        let of_pair =
            |(a, b, _)| Measure::ALL.into_iter().filter_map(move |measure| self.gain(a, b, measure, seed));
        pairs.flat_map(of_pair).collect()
    }

    fn gain(&self, a: Strategy, b: Strategy, measure: Measure, seed: u64) -> Option<Gain> {
        let each = self.by_game(&self.scores, a, b, measure);
        let (value, games) = summarise(&each, measure)?;
        let kept: Vec<usize> = each.iter().map(|(game, _)| *game).collect();
        let paper = self.of_paper(&kept);
        // A seed that would change which games count has no say in an interval over them.
        let drawn = |scores: &[Vec<f64>]| {
            let each = self.by_game(scores, a, b, measure);
            let same = each.len() == kept.len();
            summarise(&each, measure).filter(|_| same).map_or(f64::NAN, |(value, _)| value)
        };
        Some(Gain {
            a,
            b,
            measure,
            games,
            value,
            interval: self.interval(seed, drawn),
            paper: summarise(&paper.by_game(&paper.scores, a, b, measure), measure).map(|(value, _)| value),
        })
    }

    /// What each game adds, by its place, if it can be said.
    fn by_game(&self, scores: &[Vec<f64>], a: Strategy, b: Strategy, measure: Measure) -> Vec<(usize, f64)> {
        let gain = |(index, game): (usize, &String)| {
            let (a, b) = (self.mean(scores, index, a)?, self.mean(scores, index, b)?);
            let gain = match measure {
                Measure::Relative | Measure::WithoutLargest => (b > 0.0).then(|| 100.0 * (a - b) / b),
                Measure::HumanNormalised => {
                    let reference = Reference::of(game)?;
                    Some(100.0 * (reference.normalised(a) - reference.normalised(b)))
                }
            };
            Some((index, gain?))
        };
        self.games.iter().enumerate().filter_map(gain).collect()
    }

    fn mean(&self, scores: &[Vec<f64>], game: usize, strategy: Strategy) -> Option<f64> {
        let place = self.strategies.iter().position(|&other| other == strategy)?;
        let seeds = &scores[game * self.strategies.len() + place];
        (!seeds.is_empty()).then(|| seeds.iter().sum::<f64>() / seeds.len() as f64)
    }

    /// The interquartile mean of every strategy; none for games whose random and human scores are not known.
    pub fn middles(&self, seed: u64) -> Vec<Middle> {
        let middle = |&strategy: &Strategy| {
            let games = self.games.iter().filter(|game| Reference::of(game).is_some()).count();
            (games > 0).then(|| Middle {
                strategy,
                games,
                value: self.middle(&self.scores, strategy),
                interval: self.interval(seed, |scores| self.middle(scores, strategy)),
            })
        };
        self.strategies.iter().filter_map(middle).collect()
    }

    fn middle(&self, scores: &[Vec<f64>], strategy: Strategy) -> f64 {
        let place = self.strategies.iter().position(|&other| other == strategy).unwrap_or_default();
        let of_game = |(index, game): (usize, &String)| -> Vec<f64> {
            let seeds = &scores[index * self.strategies.len() + place];
            let known = Reference::of(game);
            known.map_or(Vec::new(), |known| seeds.iter().map(|&score| known.normalised(score)).collect())
        };
        let all: Vec<f64> = self.games.iter().enumerate().flat_map(of_game).collect();
        100.0 * interquartile_mean(&all)
    }

    fn interval(&self, seed: u64, statistic: impl Fn(&[Vec<f64>]) -> f64) -> Option<(f64, f64)> {
        let several = self.scores.iter().all(|seeds| seeds.len() > 1);
        let draw = || bootstrap(&self.scores, ROUNDS, &mut ChaCha8Rng::seed_from_u64(seed), statistic);
        let interval = several.then(draw);
        interval.filter(|(low, high)| low.is_finite() && high.is_finite())
    }
}

/// The mean over games, and over how many; of at least two if the largest is left out.
fn summarise(each: &[(usize, f64)], measure: Measure) -> Option<(f64, usize)> {
    let gains = || each.iter().map(|(_, gain)| *gain);
    let (sum, count) = match measure {
        Measure::WithoutLargest => {
            (gains().sum::<f64>() - gains().fold(f64::NEG_INFINITY, f64::max), each.len().saturating_sub(1))
        }
        _ => (gains().sum(), each.len()),
    };
    (count > 0).then(|| (sum / count as f64, count))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fig6::reference::NINE;
    use crate::fig6::results::Point;

    fn scored(game: &str, strategy: Strategy, seed: u64, mean: f64) -> Scored {
        let points = vec![Point { frames: 9, mean, stderr: 1.0 }];
        Scored { game: game.to_owned(), strategy, seed, finished: true, points }
    }

    fn board(scored: &[Scored]) -> Board {
        let games: Vec<String> = NINE.iter().map(|reference| reference.game.to_owned()).collect();
        Board::new(scored, &games, &Strategy::PAPER)
    }

    /// The paper's own scores as if we had measured them.
    fn of_paper(seeds: u64) -> Vec<Scored> {
        let score = |seed: u64| {
            NINE.iter().flat_map(move |reference| {
                Strategy::PAPER.map(|strategy| {
                    let score = reference.score(strategy).unwrap();
                    scored(reference.game, strategy, seed, score + 10.0 * seed as f64)
                })
            })
        };
        (0..seeds).flat_map(score).collect()
    }

    fn of(gains: &[Gain], a: Strategy, b: Strategy, measure: Measure) -> Gain {
        gains.iter().find(|gain| (gain.a, gain.b, gain.measure) == (a, b, measure)).unwrap().clone()
    }

    #[test]
    fn the_papers_scores_give_the_papers_gains() {
        let gains = board(&of_paper(1)).gains(0);
        assert_eq!(gains.len(), 9);
        let gain = of(&gains, Strategy::VER, Strategy::PER, Measure::Relative);
        assert!((gain.value - 8.8).abs() < 0.05 && gain.games == 9, "{gain:?}");
        assert_eq!((gain.paper, gain.interval), (Some(gain.value), None));
        let rest = of(&gains, Strategy::VER, Strategy::PER, Measure::WithoutLargest);
        // Without Seaquest's 51.6%.
        assert!((rest.value - (9.0 * gain.value - 51.58) / 8.0).abs() < 0.01 && rest.games == 8, "{rest:?}");
        let people = of(&gains, Strategy::VER, Strategy::UNIFORM, Measure::HumanNormalised);
        assert!(people.value.is_finite() && people.paper == Some(people.value));
    }

    #[test]
    fn a_strategy_that_the_paper_does_not_have_is_compared_without_it() {
        let mut runs = of_paper(1);
        runs.extend(NINE.iter().map(|game| scored(game.game, Strategy::REAPER, 0, 100.0)));
        let games: Vec<String> = NINE.iter().map(|reference| reference.game.to_owned()).collect();
        let strategies = [Strategy::UNIFORM, Strategy::PER, Strategy::VER, Strategy::REAPER];
        let gains = Board::new(&runs, &games, &strategies).gains(0);
        assert_eq!(gains.len(), 15);
        let gain = of(&gains, Strategy::REAPER, Strategy::PER, Measure::Relative);
        assert!(gain.games == 9 && gain.value.is_finite() && gain.paper.is_none(), "{gain:?}");
    }

    #[test]
    fn several_seeds_have_an_interval_that_holds_the_value() {
        let board = board(&of_paper(3));
        for gain in board.gains(1) {
            let (low, high) = gain.interval.unwrap();
            assert!(low <= gain.value && gain.value <= high && low < high, "{gain:?}");
        }
        for middle in board.middles(1) {
            let (low, high) = middle.interval.unwrap();
            assert!(low <= middle.value && middle.value <= high && middle.games == 9, "{middle:?}");
        }
    }

    #[test]
    fn a_game_without_all_strategies_or_with_nothing_to_divide_by_is_left_out() {
        let mut runs = vec![scored("qbert", Strategy::VER, 0, 500.0)];
        assert_eq!(board(&runs).games.len(), 0);
        runs.extend(Strategy::PAPER.map(|strategy| scored("boxing", strategy, 0, -3.0)));
        let board = board(&runs);
        assert_eq!(board.games.len(), 1);
        let gains = board.gains(0);
        assert!(gains.iter().all(|gain| gain.measure == Measure::HumanNormalised), "{gains:?}");
    }
}
