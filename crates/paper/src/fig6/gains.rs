//! What one strategy gains over another.
//!
//! The paper gives no formula for its average gains. The mean over games of (a − b)/b comes nearest to its numbers, but it
//! weighs a game by how small b is there, and it is positive on average even for equal strategies: chance that doubles a/b
//! adds 100%, chance that halves it takes 50%. The geometric mean of a/b has neither fault. Two measures limit what one game
//! can do: the mean without the largest and the smallest gain (without the largest only, equal strategies would seem to
//! lose), and the difference of human-normalised scores. Each strategy also has its interquartile mean.
//!
//! Intervals are the middle 95% over seeds drawn with replacement within each game and strategy; one seed has none.

use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;
use stats::aggregate::{interquartile_mean, mean};
use stats::atari;
use stats::improvement::{permutation_test, probability_of_improvement};
use stats::{Bootstrap, Scores};
use value::Strategy;

use super::reference::{PAIRS, PaperScores};
use super::results::{Scored, finals};

/// Resamplings behind an interval.
const ROUNDS: usize = 2_000;

/// A way to compare.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Measure {
    /// Mean over games of (a − b)/b, in per cent. A game with b ≤ 0 has none.
    Relative,
    /// Geometric mean over games of a/b, minus 1, in per cent. A game with a ≤ 0 or b ≤ 0 has none.
    RelativeGeometric,
    /// [`Measure::Relative`] without the largest and the smallest gain.
    RelativeTrimmed,
    /// Mean over games of the difference of human-normalised scores, in points of 100.
    HumanNormalised,
}

impl Measure {
    pub const ALL: [Self; 4] =
        [Self::Relative, Self::RelativeGeometric, Self::RelativeTrimmed, Self::HumanNormalised];

    /// The name in files.
    pub fn name(self) -> &'static str {
        match self {
            Measure::Relative => "relative",
            Measure::RelativeGeometric => "relative_geometric",
            Measure::RelativeTrimmed => "relative_trimmed",
            Measure::HumanNormalised => "human_normalised",
        }
    }

    /// The formula, for two strategies' mean scores a and b.
    pub fn formula(self) -> &'static str {
        match self {
            Measure::Relative => "mean of (a − b)/b",
            Measure::RelativeGeometric => "geometric mean of a/b, minus 1",
            Measure::RelativeTrimmed => "mean of (a − b)/b without the largest and the smallest",
            Measure::HumanNormalised => "mean difference of human-normalised scores",
        }
    }

    /// What a game adds, from the mean scores of both strategies; none if it is not defined.
    fn of_game(self, game: &str, a: f64, b: f64) -> Option<f64> {
        match self {
            Measure::Relative | Measure::RelativeTrimmed => (b > 0.0).then(|| 100.0 * (a - b) / b),
            Measure::RelativeGeometric => (a > 0.0 && b > 0.0).then(|| (a / b).ln()),
            Measure::HumanNormalised => {
                let reference = atari::Reference::of(game)?;
                Some(100.0 * (reference.normalised(a) - reference.normalised(b)))
            }
        }
    }

    /// The gain over all games, and over how many; a trimmed one has at least one game left.
    fn of_games(self, each: &[f64]) -> Option<(f64, usize)> {
        let mut sorted = each.to_vec();
        sorted.sort_by(f64::total_cmp);
        let kept = match self {
            Measure::RelativeTrimmed if sorted.len() < 3 => return None,
            Measure::RelativeTrimmed => &sorted[1..sorted.len() - 1],
            _ => sorted.as_slice(),
        };
        let value = match self {
            Measure::RelativeGeometric => 100.0 * mean(kept).exp_m1(),
            _ => mean(kept),
        };
        (!kept.is_empty()).then_some((value, kept.len()))
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

/// How likely a run with strategy `a` scores above a run with `b` on the same game.
#[derive(Clone, Debug, PartialEq)]
pub struct Improvement {
    pub a: Strategy,
    pub b: Strategy,
    /// Over how many games.
    pub games: usize,
    pub value: f64,
    /// The middle 95% over seeds.
    pub interval: Option<(f64, f64)>,
    /// Of a permutation test of equal strategies, not adjusted for the number of pairs.
    pub p: f64,
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
    /// Resamplings behind an interval.
    rounds: usize,
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
        let scores = games.iter().flat_map(of_game).collect();
        Self { games, strategies: strategies.to_vec(), scores, rounds: ROUNDS }
    }

    /// The paper's scores of some of the games; of those that it has.
    fn of_paper(&self, games: &[usize]) -> Self {
        let known: Vec<_> = games.iter().filter_map(|&game| PaperScores::of(&self.games[game])).collect();
        let score = |reference: &PaperScores| -> Vec<Vec<f64>> {
            self.strategies.iter().map(|&strategy| reference.score(strategy).into_iter().collect()).collect()
        };
        Self {
            games: known.iter().map(|reference| reference.game.to_owned()).collect(),
            strategies: self.strategies.clone(),
            scores: known.into_iter().flat_map(score).collect(),
            rounds: self.rounds,
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

    /// The probability of improvement of every pair of strategies that there is.
    pub fn improvements(&self, seed: u64) -> Vec<Improvement> {
        let improvement = |(a, b, _)| {
            let (one, other) = (self.of_strategy(a)?, self.of_strategy(b)?);
            let mut rng = ChaCha8Rng::seed_from_u64(seed);
            let bootstrap = Bootstrap::new(self.rounds);
            let interval = bootstrap.interval_of_pair((&one, &other), &mut rng, probability_of_improvement);
            Some(Improvement {
                a,
                b,
                games: self.games.len(),
                value: probability_of_improvement(&one, &other),
                interval: interval.map(|interval| (interval.low, interval.high)),
                p: permutation_test(&one, &other, self.rounds, &mut rng),
            })
        };
        PAIRS.into_iter().filter_map(improvement).collect()
    }

    /// A strategy's scores by game.
    fn of_strategy(&self, strategy: Strategy) -> Option<Scores> {
        let place = self.strategies.iter().position(|&other| other == strategy)?;
        let of_game = |game: usize| self.scores[game * self.strategies.len() + place].clone();
        Scores::new((0..self.games.len()).map(of_game).collect()).ok()
    }

    fn gain(&self, a: Strategy, b: Strategy, measure: Measure, seed: u64) -> Option<Gain> {
        let (places, each) = self.by_game(&self.scores, a, b, measure);
        let (value, games) = measure.of_games(&each)?;
        let paper = self.of_paper(&places);
        // A resampling that changes which games count is not of the same quantity.
        let drawn = |scores: &[Vec<f64>]| {
            let (drawn, each) = self.by_game(scores, a, b, measure);
            measure.of_games(&each).filter(|_| drawn == places).map_or(f64::NAN, |(value, _)| value)
        };
        let (_, of_paper) = paper.by_game(&paper.scores, a, b, measure);
        Some(Gain {
            a,
            b,
            measure,
            games,
            value,
            interval: self.interval(seed, drawn),
            paper: measure.of_games(&of_paper).map(|(value, _)| value),
        })
    }

    /// The games for which the measure is defined, by position, and what each adds.
    fn by_game(
        &self,
        scores: &[Vec<f64>],
        a: Strategy,
        b: Strategy,
        measure: Measure,
    ) -> (Vec<usize>, Vec<f64>) {
        let gain = |(index, game): (usize, &String)| {
            let (a, b) = (self.mean(scores, index, a)?, self.mean(scores, index, b)?);
            Some((index, measure.of_game(game, a, b)?))
        };
        self.games.iter().enumerate().filter_map(gain).unzip()
    }

    fn mean(&self, scores: &[Vec<f64>], game: usize, strategy: Strategy) -> Option<f64> {
        let place = self.strategies.iter().position(|&other| other == strategy)?;
        let seeds = &scores[game * self.strategies.len() + place];
        (!seeds.is_empty()).then(|| mean(seeds))
    }

    /// The interquartile mean of every strategy; none for games whose random and human scores are not known.
    pub fn middles(&self, seed: u64) -> Vec<Middle> {
        let middle = |&strategy: &Strategy| {
            let games = self.games.iter().filter(|game| atari::Reference::of(game).is_some()).count();
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
            let known = atari::Reference::of(game);
            known.map_or(Vec::new(), |known| seeds.iter().map(|&score| known.normalised(score)).collect())
        };
        let all: Vec<f64> = self.games.iter().enumerate().flat_map(of_game).collect();
        100.0 * interquartile_mean(&all)
    }

    fn interval(&self, seed: u64, statistic: impl Fn(&[Vec<f64>]) -> f64) -> Option<(f64, f64)> {
        let scores = Scores::new(self.scores.clone()).ok()?;
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let bootstrap = Bootstrap::new(self.rounds);
        let interval = bootstrap.interval(&scores, &mut rng, |scores| statistic(scores.tasks()))?;
        Some((interval.low, interval.high))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fig6::reference::NINE;
    use crate::fig6::results::ScorePoint;
    use rand::RngExt;

    fn scored(game: &str, strategy: Strategy, seed: u64, mean: f64) -> Scored {
        let points = vec![ScorePoint { frames: 9, mean, stderr: 1.0 }];
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
        assert_eq!(gains.len(), 12);
        for ((a, b, _), expected) in PAIRS.into_iter().zip([(20.1, 18.0), (13.5, 9.4), (8.8, 7.8)]) {
            let value = |measure| of(&gains, a, b, measure).value;
            assert!((value(Measure::Relative) - expected.0).abs() < 0.05, "{a} over {b}");
            assert!((value(Measure::RelativeGeometric) - expected.1).abs() < 0.05, "{a} over {b}");
        }
        let gain = of(&gains, Strategy::VER, Strategy::PER, Measure::Relative);
        assert_eq!((gain.games, gain.paper, gain.interval), (9, Some(gain.value), None));
        let rest = of(&gains, Strategy::VER, Strategy::PER, Measure::RelativeTrimmed);
        // Without Seaquest's +51.58% and Battle Zone's −1.93%.
        assert!(
            (rest.value - (9.0 * gain.value - 51.58 + 1.93) / 7.0).abs() < 0.01 && rest.games == 7,
            "{rest:?}"
        );
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
        assert_eq!(gains.len(), 20);
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
    fn the_probability_of_improvement_is_over_all_games() {
        let improvements = board(&of_paper(5)).improvements(0);
        assert_eq!(improvements.len(), 3);
        // 1 in five games, 0 in Battle Zone and Q*bert, 15/25 in Boxing and 19/25 in Space Invaders, whose seeds overlap.
        let Improvement { games, value, interval, p, .. } = improvements[2].clone();
        let (low, high) = interval.unwrap();
        assert!(games == 9 && (value - 6.36 / 9.0).abs() < 1e-12 && low <= value && value <= high, "{value}");
        assert!(p < 0.01, "{p}");
        assert!(board(&[]).improvements(0).is_empty());
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

    #[test]
    fn the_trim_is_symmetric_and_needs_three_games() {
        let trimmed = |each: &[f64]| Measure::RelativeTrimmed.of_games(each);
        assert_eq!(trimmed(&[9.0, -1.0, 1.0, -9.0]), Some((0.0, 2)));
        assert_eq!(trimmed(&[7.0, 100.0, 3.0]), Some((7.0, 1)));
        assert_eq!(trimmed(&[7.0, 100.0]), None);
        assert_eq!(Measure::Relative.of_games(&[]), None);
    }

    #[test]
    fn the_geometric_gain_is_undone_by_its_inverse() {
        let gain = |each: &[f64]| Measure::RelativeGeometric.of_games(each).unwrap().0;
        let ratio = |a: f64, b: f64| Measure::RelativeGeometric.of_game("boxing", a, b).unwrap();
        assert!((gain(&[ratio(2.0, 1.0), ratio(1.0, 2.0)])).abs() < 1e-12);
        assert!((gain(&[ratio(2.0, 1.0), ratio(8.0, 1.0)]) - 300.0).abs() < 1e-9);
        assert_eq!(Measure::RelativeGeometric.of_game("boxing", -1.0, 2.0), None);
    }

    /// Of two equal strategies on nine games with five seeds each, whose scores are lognormal with a spread of a third:
    /// how often the 95% interval of a gain holds 0, and the mean gain.
    fn equal_strategies(measure: Measure) -> (f64, f64) {
        const EXPERIMENTS: usize = 500;
        let mut rng = ChaCha8Rng::seed_from_u64(7);
        // The sum of twelve uniform numbers has variance 1.
        let mut normal = || (0..12).map(|_| rng.random::<f64>()).sum::<f64>() - 6.0;
        let (mut held, mut sum) = (0, 0.0);
        for seed in 0..EXPERIMENTS {
            let mut runs = Vec::new();
            for game in NINE {
                for strategy in [Strategy::VER, Strategy::PER] {
                    let of_seed = |seed| scored(game.game, strategy, seed, 1_000.0 * (normal() / 3.0).exp());
                    runs.extend((0..5).map(of_seed));
                }
            }
            let games: Vec<String> = NINE.iter().map(|reference| reference.game.to_owned()).collect();
            let board = Board { rounds: 300, ..Board::new(&runs, &games, &[Strategy::PER, Strategy::VER]) };
            let gain = board.gain(Strategy::VER, Strategy::PER, measure, seed as u64).unwrap();
            let (low, high) = gain.interval.unwrap();
            held += usize::from(low <= 0.0 && 0.0 <= high);
            sum += gain.value;
        }
        (held as f64 / EXPERIMENTS as f64, sum / EXPERIMENTS as f64)
    }

    /// The share has a standard error of 1.3 points, the mean gain one of 0.3%.
    #[test]
    fn equal_strategies_are_told_apart_about_as_rarely_as_documented() {
        let (held, mean) = equal_strategies(Measure::RelativeGeometric);
        println!("geometric: {held:.3} of the intervals hold 0, mean gain {mean:+.2}%");
        assert!((held - 0.90).abs() < 0.05 && mean.abs() < 1.2, "{held} {mean}");
        let (held, mean) = equal_strategies(Measure::Relative);
        println!("arithmetic: {held:.3} of the intervals hold 0, mean gain {mean:+.2}%");
        assert!((held - 0.87).abs() < 0.05 && (0.5..4.0).contains(&mean), "biased upwards: {held} {mean}");
    }
}
