//! Figure 6: soft DQN with uniform, prioritized and valuable replay on Atari.
//!
//! A sweep over the training service itself (the crate `sweep`). What its runs recorded becomes curves (`results`), the
//! gains of the paper and others that one game can't carry (`gains`), beside what the paper found ([`mod@reference`]).
//!
//! The paper trains for 40M frames. At a budget of hours on two cores all games are still near random play; the figure
//! is drawn all the same and says what it can not show.

mod departures;
mod gains;
mod picture;
pub mod reference;
mod results;
mod tables;

use std::path::PathBuf;
use std::sync::atomic::AtomicBool;

use anyhow::{Context, Result, bail};
use run::command::Sweep;
use settings::units::grouped;
use stats::atari;
use stats::improvement::RUNS_MIN;
use sweep::{LockedSweep, Run, SweepProgress};
use value::Strategy;

use crate::figure::{Extent, Figure, Verdict};
use crate::options::Options;
use gains::{Board, Gain, Measure};
use reference::{FRAMES, NINE, PAIRS};
use results::{ScorePoint, Scored, finals, pooled};

/// Seeds from which on an interval over seeds is taken as evidence.
const SEEDS_MIN: u64 = RUNS_MIN as u64;

/// Games that a title names; more are counted.
const GAMES_NAMED_MAX: usize = 3;

/// Plans the sweep and locks the results' folder. The runs are trained by the `quiver` beside this program.
pub fn claim<'a>(options: &Options, sweep: &'a Sweep) -> Result<LockedSweep<'a>> {
    LockedSweep::new(&options.out, options.seed, sweep, quiver()?)
}

/// Trains what is left of the sweep, then draws what all runs recorded and writes `fig6.csv` and `fig6_gains.csv`.
pub fn run(options: &Options, claim: &LockedSweep<'_>, say: &dyn Fn(&str)) -> Result<Figure> {
    let stop = sweep::stop_on_signals()?;
    make(options, claim, &stop, &mut SweepProgress::new("fig6", say))
}

fn quiver() -> Result<PathBuf> {
    let path = std::env::current_exe().context("can't tell where this program is")?.with_file_name("quiver");
    if !path.is_file() {
        bail!("quiver is missing next to quiver-paper (no {}): run `make build`", path.display());
    }
    Ok(path)
}

/// [`run`] until `stop` becomes true.
fn make(
    options: &Options,
    claim: &LockedSweep<'_>,
    stop: &AtomicBool,
    progress: &mut SweepProgress<'_>,
) -> Result<Figure> {
    let outcome = claim.run(stop, progress);
    let scored = claim.runs().iter().map(Scored::read).collect::<Result<Vec<_>>>()?;
    let mut figure = draw(options, claim.sweep(), claim.runs(), &scored)?;
    figure.seconds = outcome.seconds;
    figure.save(options)?;
    claim.check(&outcome)?;
    Ok(figure)
}

fn draw(options: &Options, sweep: &Sweep, runs: &[Run], scored: &[Scored]) -> Result<Figure> {
    let settings = &runs[0].resolved.settings;
    let (frames, every) = (settings.frames.0, settings.evaluate_every_frames.0);
    let board = Board::new(scored, &sweep.games, &sweep.strategies());
    let gains = board.gains(options.seed);
    options.csv("fig6.csv", &Scored::HEADER, scored.iter().flat_map(Scored::rows))?;
    tables::write_gains(options, &board, &gains)?;

    let mut figure = Figure::new("fig6", &title(sweep), options);
    if sweep.changed {
        figure.effort = Extent::Asked;
    }
    figure.about = about(sweep, runs, scored, frames);
    for (a, b, text) in PAIRS {
        let judged: Vec<&Gain> = gains.iter().filter(|gain| is_judged(gain, a, b)).collect();
        if let Some(text) = text
            && !judged.is_empty()
        {
            let claim = format!("{a} is better than {b} on average, by {text}% in the paper, at 40M frames");
            figure.claim(&claim, measured(&judged, frames), verdict(&judged, frames, sweep));
        }
    }
    tables::scores(&mut figure, sweep, scored, frames);
    tables::gains(&mut figure, &gains);
    tables::improvements(&mut figure, &board, options.seed);
    tables::middles(&mut figure, &board, options.seed);
    figure.picture(
        options,
        "fig6",
        "Learning curves: the mean score of each evaluation, by replay strategy.",
        &picture::curves(scored, &sweep.games, settings, sweep.seeds),
    )?;
    let episodes = settings.evaluate_episodes;
    figure.setting("preset", &runs[0].resolved.preset);
    figure.setting("frames", grouped(frames));
    figure.setting("seeds", format!("{} from {}", sweep.seeds, options.seed));
    figure.setting(
        "evaluation",
        format!("{episodes} games every {} frames, {}", grouped(every), settings.evaluation_policy),
    );
    for (key, here, there) in departures::differences(&runs[0]) {
        figure.setting(key, format!("{here} ({there} in {})", departures::compared(&runs[0])));
    }
    Ok(figure)
}

/// Which games, by which strategies.
fn title(sweep: &Sweep) -> String {
    let strategy = |strategy: &Strategy| strategy.title.to_owned();
    let all = NINE.iter().all(|known| sweep.games.iter().any(|game| game == known.game));
    let games = match sweep.games.as_slice() {
        games if all && games.len() == NINE.len() => "Atari".to_owned(),
        games if games.len() > GAMES_NAMED_MAX => format!("{} games", games.len()),
        games => listed(games.iter().map(|game| envs::display_name(game)).collect()),
    };
    format!("{games}: {} replay", listed(sweep.strategies().iter().map(strategy).collect()))
}

/// `a, b and c`.
fn listed(mut words: Vec<String>) -> String {
    match words.pop() {
        Some(last) if !words.is_empty() => format!("{} and {last}", words.join(", ")),
        last => last.unwrap_or_default(),
    }
}

/// What was done and, at a small budget, what can't be concluded from it.
fn about(sweep: &Sweep, runs: &[Run], scored: &[Scored], frames: u64) -> String {
    let done = runs.iter().filter(|run| run.is_finished()).count();
    let mut about = format!(
        "{} games, {} strategies, {} seeds, {} frames each, all else equal (preset {}); {done} of {} runs have ended. Each is a \
         training service of its own: shards, actors, learner, evaluator.",
        sweep.games.len(),
        sweep.strategies().len(),
        sweep.seeds,
        grouped(frames),
        runs[0].resolved.preset,
        runs.len()
    );
    if !departures::differences(&runs[0]).is_empty() {
        about += &format!(
            " Settings that are not those of preset {} are listed below.",
            departures::compared(&runs[0])
        );
    }
    sweep.games.iter().for_each(|game| about += &apart(sweep, scored, game));
    if frames < FRAMES {
        about += &format!(
            " The paper compares at {} frames; this is {:.2}% of that. It shows that the strategies train through the same \
             service and what a comparison looks like; which one is ahead so early says nothing of which is better in the \
             end.",
            grouped(FRAMES),
            100.0 * frames as f64 / FRAMES as f64
        );
    }
    if sweep.seeds < SEEDS_MIN {
        about +=
            &format!(" With fewer than {SEEDS_MIN} seeds no interval is evidence, and there is no verdict.");
    }
    about
}

/// How far a game's strategies are apart at the end, against their errors and against random play.
fn apart(sweep: &Sweep, scored: &[Scored], game: &str) -> String {
    let end = |&strategy: &Strategy| {
        let points = finals(scored, game, strategy);
        (!points.is_empty()).then(|| (strategy, pooled(&points)))
    };
    let mut ends: Vec<(Strategy, ScorePoint)> = sweep.strategies().iter().filter_map(end).collect();
    ends.sort_by(|one, other| one.1.mean.total_cmp(&other.1.mean));
    let (Some(least), Some(most)) = (ends.first(), ends.last()) else { return String::new() };
    if ends.len() < 2 {
        return String::new();
    }
    let error = least.1.stderr.hypot(most.1.stderr);
    let random = atari::Reference::of(game)
        .map_or(String::new(), |known| format!(", random play {:.0}", known.random));
    format!(
        " {}: from {:.0} ({}) to {:.0} ({}), {:.1} standard errors apart{random}.",
        envs::display_name(game),
        least.1.mean,
        least.0,
        most.1.mean,
        most.0,
        (most.1.mean - least.1.mean) / error
    )
}

/// The paper gives no formula, so its claim is judged by both means.
fn is_judged(gain: &Gain, a: Strategy, b: Strategy) -> bool {
    gain.a == a && gain.b == b && matches!(gain.measure, Measure::Relative | Measure::RelativeGeometric)
}

fn measured(judged: &[&Gain], frames: u64) -> String {
    let one = |gain: &&Gain| {
        let interval = gain.interval.map_or("one seed, no interval".to_owned(), |(low, high)| {
            format!("95% of resampled seeds between {low:+.1}% and {high:+.1}%")
        });
        format!(
            "{:+.1}% over {} games by the {} ({interval})",
            gain.value,
            gain.games,
            gain.measure.formula()
        )
    };
    format!("at {} frames {}", grouped(frames), judged.iter().map(one).collect::<Vec<_>>().join("; "))
}

/// Open unless it is the paper's experiment with enough seeds, and even then if an interval holds 0 or the two means differ.
fn verdict(judged: &[&Gain], frames: u64, sweep: &Sweep) -> Verdict {
    let preset = sweep.preset.as_deref() == Some(departures::PAPER);
    if !preset
        || frames < FRAMES
        || sweep.seeds < SEEDS_MIN
        || judged.iter().any(|gain| gain.games < NINE.len())
    {
        return Verdict::Open;
    }
    let all = |holds: fn((f64, f64)) -> bool| judged.iter().all(|gain| gain.interval.is_some_and(holds));
    match (all(|(low, _)| low > 0.0), all(|(_, high)| high < 0.0)) {
        (true, _) => Verdict::Holds,
        (_, true) => Verdict::Fails,
        _ => Verdict::Open,
    }
}

#[cfg(test)]
mod tests;
