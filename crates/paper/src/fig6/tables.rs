//! The tables of figure 6: scores beside the paper's, gains, interquartile means; and the file of gains.

use anyhow::Result;
use run::command::Sweep;
use settings::units::grouped;
use stats::atari;

use super::gains::{Board, Gain, Improvement, Measure, Middle};
use super::reference::{FRAMES, PaperScores};
use super::results::{ScorePoint, Scored, finals, pooled};
use crate::figure::Figure;
use crate::options::Options;

/// Writes `fig6_gains.csv`; what can't be said is left empty.
pub fn write_gains(options: &Options, board: &Board, gains: &[Gain]) -> Result<()> {
    let number = |number: Option<f64>| number.map_or(String::new(), |number| number.to_string());
    let pairs = gains.iter().map(|gain| {
        let (low, high) = gain.interval.unzip();
        let (a, b, measure, paper) = (gain.a, gain.b, gain.measure.name(), number(gain.paper));
        cells![a, b, measure, gain.games, gain.value, number(low), number(high), paper]
    });
    let improvements = board.improvements(options.seed);
    let improvements = improvements.iter().map(|one| {
        let (low, high) = one.interval.unzip();
        let measure = "probability_of_improvement";
        cells![one.a, one.b, measure, one.games, one.value, number(low), number(high), ""]
    });
    let middles = board.middles(options.seed);
    let alone = middles.iter().map(|middle| {
        let (low, high) = middle.interval.unzip();
        let (games, value) = (middle.games, middle.value);
        cells![middle.strategy, "", "interquartile_mean", games, value, number(low), number(high), ""]
    });
    let header = ["a", "b", "measure", "games", "value", "low", "high", "paper"];
    options.csv("fig6_gains.csv", &header, pairs.chain(improvements).chain(alone)).map(drop)
}

/// Adds the scores at the end beside the paper's.
pub fn scores(figure: &mut Figure, sweep: &Sweep, scored: &[Scored], frames: u64) {
    let strategies = sweep.strategies();
    let mut columns = vec!["game".to_owned()];
    columns.extend(strategies.iter().map(|strategy| format!("{strategy}, ours")));
    columns.extend(strategies.iter().map(|strategy| format!("{strategy}, paper")));
    columns.extend(["random", "human"].map(str::to_owned));
    let row = |game: &String| {
        let ours = strategies.iter().map(|&strategy| match finals(scored, game, strategy).as_slice() {
            [] => "–".to_owned(),
            points => {
                let ScorePoint { mean, stderr, .. } = pooled(points);
                format!("{mean:.1} ± {stderr:.1}")
            }
        });
        let known = PaperScores::of(game);
        let players = atari::Reference::of(game);
        let number = |number: Option<f64>| number.map_or("–".to_owned(), |number| number.to_string());
        let paper = strategies.iter().map(|&strategy| number(known.and_then(|known| known.score(strategy))));
        let ends = [number(players.map(|known| known.random)), number(players.map(|known| known.human))];
        [envs::display_name(game)].into_iter().chain(ours).chain(paper).chain(ends).collect()
    };
    let caption = format!(
        "Scores of the last evaluation at {} frames, mean and standard error (over the evaluation games, or over seeds if \
         that is larger), beside the paper's at {} (read off its figure, ±2% of the axes)",
        grouped(frames),
        grouped(FRAMES)
    );
    figure.table(&caption, &columns, sweep.games.iter().map(row).collect());
}

/// Adds the gains.
pub fn gains(figure: &mut Figure, gains: &[Gain]) {
    let row = |gain: &Gain| {
        let unit = if gain.measure == Measure::HumanNormalised { " points" } else { "%" };
        cells![
            format!("{} over {}", gain.a, gain.b),
            gain.measure.formula(),
            gain.games,
            format!("{:+.1}{unit}", gain.value),
            gain.interval.map_or("–".to_owned(), |(low, high)| format!("{low:+.1} to {high:+.1}")),
            gain.paper.map_or("–".to_owned(), |paper| format!("{paper:+.1}{unit}")),
        ]
    };
    figure.table(
        "Gains, over games, of mean scores a over b; the interval is the middle 95% over resampled seeds. The paper gives no \
         formula for its gains; the column paper applies each to its scores at 40M frames over the same games",
        &["pair", "formula", "games", "gain", "interval", "paper"],
        gains.iter().map(row).collect(),
    );
}

/// Adds the probabilities of improvement.
pub fn improvements(figure: &mut Figure, board: &Board, seed: u64) {
    let row = |one: Improvement| {
        let interval = one.interval.map_or("–".to_owned(), |(low, high)| format!("{low:.2} to {high:.2}"));
        let pair = format!("{} over {}", one.a, one.b);
        cells![pair, one.games, format!("{:.2}", one.value), interval, format!("{:.3}", one.p)]
    };
    figure.table(
        "Probability of improvement: how likely a run with the first strategy scores higher on the same game; p is that of a \
         permutation test of equal strategies, not adjusted for the number of pairs",
        &["pair", "games", "probability", "interval", "p"],
        board.improvements(seed).into_iter().map(row).collect(),
    );
}

/// Adds the interquartile means.
pub fn middles(figure: &mut Figure, board: &Board, seed: u64) {
    let row = |middle: Middle| {
        let interval =
            middle.interval.map_or("–".to_owned(), |(low, high)| format!("{low:.1} to {high:.1}"));
        cells![middle.strategy, middle.games, format!("{:.1}", middle.value), interval]
    };
    figure.table(
        "Interquartile mean over games and seeds of human-normalised scores (0 is random play, 100 a person)",
        &["strategy", "games", "interquartile mean", "interval"],
        board.middles(seed).into_iter().map(row).collect(),
    );
}
