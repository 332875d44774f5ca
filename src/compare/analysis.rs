//! The statistics of a comparison: tables, aggregates, profiles, pairs, curves.

use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;
use stats::aggregate::{Aggregate, mean};
use stats::curve::{common_frames, score_at};
use stats::improvement::{RUNS_MIN, holm, permutation_test, probability_of_improvement};
use stats::profile::{performance_profile, thresholds};
use stats::{Bootstrap, Interval, Scores};

use super::table::ScoreTable;

/// Frames at which curves are compared, at most: more would cost time and look the same.
const CURVE_POINTS_MAX: usize = 30;

/// Thresholds of a performance profile.
const THRESHOLDS: usize = 101;

/// Pairs whose adjusted p-value is larger are not declared different.
const SIGNIFICANCE: f64 = 0.05;

/// A number with its 95% interval; a single run has none.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Estimate {
    pub value: f64,
    pub interval: Option<Interval>,
}

/// A group's runs of one game, in the game's scores.
#[derive(Clone, Debug, PartialEq)]
pub struct GameRow {
    pub game: usize,
    pub group: usize,
    pub seeds: usize,
    pub mean: f64,
    /// Standard error of the mean over seeds; none of one seed.
    pub stderr: Option<f64>,
    pub iqm: Estimate,
}

/// Aggregates of a group over the compared games.
#[derive(Clone, Debug, PartialEq)]
pub struct AggregateRow {
    pub group: usize,
    pub seeds: usize,
    pub estimates: Vec<(Aggregate, Estimate)>,
}

/// A group's performance profile.
#[derive(Clone, Debug, PartialEq)]
pub struct Profile {
    pub group: usize,
    /// (threshold, share of runs above it).
    pub points: Vec<(f64, Estimate)>,
}

/// What a comparison of two groups allows to say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PairVerdict {
    TooFewSeeds,
    Open,
    Higher,
    Lower,
}

impl PairVerdict {
    /// The name in files.
    pub fn name(self) -> &'static str {
        match self {
            Self::TooFewSeeds => "too_few_seeds",
            Self::Open => "open",
            Self::Higher => "higher",
            Self::Lower => "lower",
        }
    }
}

/// Two groups: how likely a run of `a` scores above a run of `b`.
#[derive(Clone, Debug, PartialEq)]
pub struct Pair {
    pub a: usize,
    pub b: usize,
    pub probability: Estimate,
    /// Of the permutation test.
    pub p: f64,
    /// Holm's adjustment for the number of pairs.
    pub p_adjusted: f64,
    pub verdict: PairVerdict,
}

/// The interquartile mean over seeds during training.
#[derive(Clone, Debug, PartialEq)]
pub struct Curve {
    /// None for all compared games together.
    pub game: Option<usize>,
    pub group: usize,
    pub seeds: usize,
    /// (frames, interquartile mean).
    pub points: Vec<(f64, Estimate)>,
}

/// How to compute.
#[derive(Clone, Copy, Debug)]
pub struct AnalysisOptions {
    /// Rounds of the bootstrap and of the permutation test.
    pub rounds: usize,
    pub seed: u64,
    /// The group with which all others are compared, instead of each with each.
    pub baseline: Option<usize>,
}

/// All statistics of a table.
#[derive(Clone, Debug)]
pub struct Analysis {
    pub by_game: Vec<GameRow>,
    /// Empty without a common scale.
    pub aggregates: Vec<AggregateRow>,
    /// Empty without a common scale.
    pub profiles: Vec<Profile>,
    pub pairs: Vec<Pair>,
    pub curves: Vec<Curve>,
}

impl Analysis {
    pub fn of(table: &ScoreTable, options: &AnalysisOptions) -> Self {
        Self {
            by_game: by_game(table, options),
            aggregates: aggregates(table, options),
            profiles: profiles(table, options),
            pairs: pairs(table, options),
            curves: curves(table, options),
        }
    }
}

/// The aggregates that make sense on the table's scale.
pub fn aggregates_of(table: &ScoreTable) -> Vec<Aggregate> {
    // Only normalised scores have a target.
    let has_target = table.scale.is_some();
    Aggregate::ALL.into_iter().filter(|&one| has_target || one != Aggregate::OptimalityGap).collect()
}

/// Each statistic has its own generator, so that none depends on which others are computed.
fn rng(options: &AnalysisOptions) -> ChaCha8Rng {
    ChaCha8Rng::seed_from_u64(options.seed)
}

fn iqm(scores: &Scores, options: &AnalysisOptions) -> Estimate {
    let statistic = |scores: &Scores| Aggregate::InterquartileMean.of(scores);
    let interval = Bootstrap::new(options.rounds).interval(scores, &mut rng(options), statistic);
    Estimate { value: statistic(scores), interval }
}

fn by_game(table: &ScoreTable, options: &AnalysisOptions) -> Vec<GameRow> {
    let cells =
        (0..table.games.len()).flat_map(|game| (0..table.groups.len()).map(move |group| (game, group)));
    let row = |(game, group): (usize, usize)| {
        let scores: Vec<f64> = table.runs_of(game, group).map(|run| run.score).collect();
        let (count, middle) = (scores.len() as f64, mean(&scores));
        let squares = scores.iter().map(|score| (score - middle).powi(2)).sum::<f64>();
        let stderr = (scores.len() > 1).then(|| (squares / (count - 1.0) / count).sqrt());
        let seeds = scores.len();
        let iqm = iqm(&Scores::new(vec![scores]).ok()?, options);
        Some(GameRow { game, group, seeds, mean: middle, stderr, iqm })
    };
    cells.filter_map(row).collect()
}

fn aggregates(table: &ScoreTable, options: &AnalysisOptions) -> Vec<AggregateRow> {
    let wanted = aggregates_of(table);
    let row = |group: usize| {
        let scores = table.complete(group)?;
        let all = |scores: &Scores| wanted.iter().map(|aggregate| aggregate.of(scores)).collect::<Vec<_>>();
        let intervals = Bootstrap::new(options.rounds).bands(&scores, &mut rng(options), all);
        let estimates = wanted.iter().zip(all(&scores)).enumerate().map(|(index, (aggregate, value))| {
            (*aggregate, Estimate { value, interval: intervals.as_ref().map(|intervals| intervals[index]) })
        });
        Some(AggregateRow { group, seeds: scores.runs_min(), estimates: estimates.collect() })
    };
    (0..table.groups.len()).filter_map(row).collect()
}

fn profiles(table: &ScoreTable, options: &AnalysisOptions) -> Vec<Profile> {
    let scores: Vec<(usize, Scores)> =
        (0..table.groups.len()).filter_map(|group| Some((group, table.complete(group)?))).collect();
    if scores.is_empty() {
        return Vec::new();
    }
    let thresholds = thresholds(scores.iter().map(|(_, scores)| scores), THRESHOLDS);
    let profile = |(group, scores): &(usize, Scores)| {
        let shares = |scores: &Scores| performance_profile(scores, &thresholds);
        let bands = Bootstrap::new(options.rounds).bands(scores, &mut rng(options), shares);
        let points = thresholds.iter().zip(shares(scores)).enumerate().map(|(index, (threshold, value))| {
            (*threshold, Estimate { value, interval: bands.as_ref().map(|bands| bands[index]) })
        });
        Profile { group: *group, points: points.collect() }
    };
    scores.iter().map(profile).collect()
}

fn pairs(table: &ScoreTable, options: &AnalysisOptions) -> Vec<Pair> {
    let groups = 0..table.groups.len();
    let order: Vec<(usize, usize)> = match options.baseline {
        Some(baseline) => groups.filter(|&group| group != baseline).map(|group| (group, baseline)).collect(),
        None => groups.clone().flat_map(|a| (a + 1..groups.end).map(move |b| (a, b))).collect(),
    };
    let pair = |(a, b): (usize, usize)| {
        let (one, other) = (table.raw(a)?, table.raw(b)?);
        let interval = Bootstrap::new(options.rounds).interval_of_pair(
            (&one, &other),
            &mut rng(options),
            probability_of_improvement,
        );
        let value = probability_of_improvement(&one, &other);
        let p = permutation_test(&one, &other, options.rounds, &mut rng(options));
        let few = one.runs_min().min(other.runs_min()) < RUNS_MIN;
        let verdict = if few { PairVerdict::TooFewSeeds } else { PairVerdict::Open };
        Some(Pair { a, b, probability: Estimate { value, interval }, p, p_adjusted: p, verdict })
    };
    let mut pairs: Vec<Pair> = order.into_iter().filter_map(pair).collect();
    let adjusted = holm(&pairs.iter().map(|pair| pair.p).collect::<Vec<_>>());
    for (pair, p_adjusted) in pairs.iter_mut().zip(adjusted) {
        pair.p_adjusted = p_adjusted;
        if pair.verdict == PairVerdict::Open && p_adjusted <= SIGNIFICANCE {
            pair.verdict =
                if pair.probability.value > 0.5 { PairVerdict::Higher } else { PairVerdict::Lower };
        }
    }
    pairs
}

/// Curves of all compared games together, if they have a common scale, then of each game.
fn curves(table: &ScoreTable, options: &AnalysisOptions) -> Vec<Curve> {
    let several = table.has_unit() && table.compared().len() > 1;
    let together = if several { together(table, options) } else { Vec::new() };
    let games = (0..table.games.len()).flat_map(|game| {
        let all = table.runs.iter().filter(|run| run.game == game).map(|run| run.points.as_slice());
        let frames = common_frames(all, points(table, Some(game)));
        (0..table.groups.len()).filter_map(move |group| {
            let at = |&frames: &f64| {
                let scores = table.runs_of(game, group).filter_map(|run| score_at(&run.points, frames));
                let scores = Scores::new(vec![scores.collect()]).ok()?;
                Some((frames, iqm(&scores, options)))
            };
            let points: Vec<_> = frames.iter().filter_map(at).collect();
            let seeds = table.runs_of(game, group).count();
            (!points.is_empty()).then_some(Curve { game: Some(game), group, seeds, points })
        })
    });
    together.into_iter().chain(games).collect()
}

fn together(table: &ScoreTable, options: &AnalysisOptions) -> Vec<Curve> {
    let compared = table.compared();
    let all = table.runs.iter().filter(|run| compared.contains(&run.game)).map(|run| run.points.as_slice());
    let frames = common_frames(all, points(table, None));
    let curve = |group: usize| {
        let at = |&frames: &f64| {
            let of_game = |&game: &usize| -> Vec<f64> {
                let runs = table.complete_runs(game, group).into_iter();
                runs.filter_map(|run| Some(table.unit(game, score_at(&run.points, frames)?))).collect()
            };
            let scores = Scores::new(compared.iter().map(of_game).collect()).ok()?;
            Some((frames, iqm(&scores, options)))
        };
        let points: Vec<_> = frames.iter().filter_map(at).collect();
        let seeds = table.complete_seeds(group).len();
        (!points.is_empty()).then_some(Curve { game: None, group, seeds, points })
    };
    (0..table.groups.len()).filter_map(curve).collect()
}

/// As many points as the run with the fewest evaluations has: more would be interpolated everywhere.
fn points(table: &ScoreTable, game: Option<usize>) -> usize {
    let runs = table.runs.iter().filter(|run| game.is_none_or(|game| run.game == game));
    runs.map(|run| run.points.len()).min().unwrap_or(0).min(CURVE_POINTS_MAX)
}

/// The fewest seeds of a group in a compared game.
pub fn seeds_min(table: &ScoreTable) -> usize {
    let compared = table.compared();
    let counts = (0..table.groups.len())
        .flat_map(|group| compared.iter().map(move |game| (group, *game)))
        .map(|(group, game)| table.runs_of(game, group).count());
    counts.min().unwrap_or(0)
}
