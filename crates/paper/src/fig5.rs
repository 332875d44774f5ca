//! Figure 5: fifty experiences each from maze and CartPole, ordered by the bound, which is the priority of valuable
//! experience replay: what |TD| and what the policy contribute to it.
//!
//! Fifty are drawn, as in the paper. Its claim, that the highest bounds go with high |TD| and high ρ, is tested on all that
//! were sampled (`factors`).
#![allow(clippy::disallowed_methods, reason = "the report states how long the figure took")]

mod factors;

use std::time::Instant;

use anyhow::{Result, ensure};
use plot::{Axis, Colour, Layer, Page, Panel};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

use crate::experience::Experience;
use crate::figure::Figure;
use crate::maze;
use crate::options::Options;
use factors::{Factors, HighFactors, RUNS_MIN, Share, TOP_SHARES};

/// Experiences of each system that are drawn.
const SHOWN: usize = 50;

/// Powers of ten that a logarithmic panel shows below the largest.
const DECADES: i32 = 8;

/// A system and its experiences.
struct System<'a> {
    name: &'static str,
    /// Fifty at random, the largest bound first.
    shown: Vec<(&'a Experience, Factors)>,
    /// What was measured on all, for each of [`TOP_SHARES`].
    measured: Vec<HighFactors>,
}

impl<'a> System<'a> {
    fn new(name: &'static str, experiences: &'a [Experience], rng: &mut ChaCha8Rng) -> Result<Self> {
        let shown = ordered(experiences, rng)?;
        let factors: Vec<Factors> = experiences.iter().filter_map(Factors::of).collect();
        let measured = TOP_SHARES.map(|top| HighFactors::measure(&factors, top)).into();
        Ok(Self { name, shown, measured })
    }

    /// The system's name in titles. The maze is a table and no environment of the registry.
    fn title(&self) -> String {
        envs::display_name(self.name)
    }
}

/// Draws fifty of each, tests the claim on all, and writes `fig5.csv` and `fig5_factors.csv`. Its time is counted from
/// `started`.
pub fn run(
    options: &Options,
    maze: &[Experience],
    cartpole: &[Experience],
    started: Instant,
    say: &dyn Fn(&str),
) -> Result<Figure> {
    say("fig5: fifty experiences of each system");
    let mut rng = ChaCha8Rng::seed_from_u64(options.seed);
    let systems = [System::new("maze", maze, &mut rng)?, System::new(envs::CARTPOLE, cartpole, &mut rng)?];
    write(options, &systems)?;

    let mut figure = Figure::new("fig5", "What makes the bound: |TD| and the policy", options);
    figure.about = format!(
        "Fifty random experiences of soft Q-learning in the maze (figure 3's main experiment) and of soft DQN on CartPole, \
         ordered by the bound ρ^max·|TD|, and its two factors beside it. The claim is tested on all sampled experiences that \
         moved a value: a factor is high above its median over the sample, so that half of the experiences have a high one. The \
         claim holds if more than half of the tenth with the highest bounds have a high |TD|, and more than half a high ρ^max: \
         both 95% intervals over runs must lie above 50%. It fails if one lies below, and is open otherwise or with fewer than \
         {RUNS_MIN} runs."
    );
    systems.iter().for_each(|system| claim(&mut figure, system));
    table(&mut figure, &systems);
    figure.picture(
        options,
        "fig5",
        "Bound, |TD| (both logarithmic) and ρ^max of the same fifty experiences, maze left, CartPole right. A bar that would end \
         below its axis is missing.",
        &page(&systems),
    )?;
    figure.setting("experiences drawn", SHOWN);
    figure.finish(options, started)
}

fn claim(figure: &mut Figure, system: &System<'_>) {
    let judged = &system.measured[0];
    let claim = format!("{}: the highest bounds go with high |TD| and with high ρ", system.title());
    let few = if judged.runs < RUNS_MIN { "; too few runs for a verdict" } else { "" };
    let measured = format!(
        "of the {} experiences with the highest bounds (a tenth; runs: {}) {} have a high |TD| and {} a high ρ^max; of as \
         many with the highest |TD|, {} have a high ρ^max{few}",
        judged.top,
        judged.runs,
        interval(judged.td),
        interval(judged.policy),
        percent(judged.policy_of_top_td)
    );
    figure.claim(&claim, measured, judged.verdict());
}

fn percent(share: f64) -> String {
    format!("{:.1}%", 100.0 * share)
}

fn interval(share: Share) -> String {
    format!("{} ({:.1} to {:.1})", percent(share.share), 100.0 * share.low, 100.0 * share.high)
}

fn table(figure: &mut Figure, systems: &[System<'_>]) {
    let rows = systems.iter().flat_map(|system| {
        system.measured.iter().map(|of| {
            let top = format!("{:.0}%", 100.0 * of.top_share);
            let shares = [of.both, of.both_of_all, of.policy_of_top_td].map(percent);
            [
                cells![system.title(), top, of.top, of.runs, interval(of.td), interval(of.policy)],
                shares.into(),
            ]
            .concat()
        })
    });
    figure.table(
        "Factors above their median over the sample, among the highest bounds; 95% intervals over runs",
        &[
            "system",
            "highest bounds",
            "experiences",
            "runs",
            "high |TD|",
            "high ρ^max",
            "both",
            "both, of all experiences",
            "high ρ^max, of the highest |TD|",
        ],
        rows.collect(),
    );
}

/// How high a bar is.
type Height = fn(&Factors) -> f64;

fn page(systems: &[System<'_>]) -> Page {
    let mut page = Page::new(
        "Fifty experiences, ordered by the bound",
        "each bar is one experience; a column of bars is the same one",
    );
    (page.columns, page.size) = (2, (1000, 900));
    let bars: [(&str, Colour, Height); 3] = [
        ("ρ^max·|TD|, the bound", Colour::Green, |of| of.bound),
        ("|TD|", Colour::Blue, |of| of.td),
        ("ρ^max, the policy's part", Colour::Orange, |of| of.policy),
    ];
    for (index, (label, colour, number)) in bars.into_iter().enumerate() {
        for system in systems {
            // The bound is at most |TD|, and one range for both shows by how much.
            let most = system.shown.iter().map(|(_, of)| of.td).fold(f64::MIN_POSITIVE, f64::max);
            let least = system.shown.last().map_or(most, |(_, of)| 0.5 * of.bound);
            let least = least.max(most * 10f64.powi(-DECADES));
            let is_policy = index == 2;
            let axis = if is_policy {
                Axis::linear(label).range(0.0..1.05)
            } else {
                Axis::log(label).range(least..2.0 * most)
            };
            let heights = system.shown.iter().enumerate();
            let heights = heights.map(|(rank, (_, of))| (rank as f64 + 1.0, number(of))).collect();
            let panel = Panel::new(system.title(), Axis::linear("rank by the bound"), axis);
            page.panels.push(panel.with(Layer::bars("", colour, heights, 0.8, 0.0)));
        }
    }
    page
}

/// The fifty with the whole transition beside them, and what was measured on all.
fn write(options: &Options, systems: &[System<'_>]) -> Result<()> {
    let header = ["system", "rank", "bound", "abs_td", "policy"].map(str::to_owned);
    let header: Vec<String> = header.into_iter().chain(maze::header()).collect();
    let rows = systems.iter().flat_map(|System { name, shown, .. }| {
        (1..).zip(shown).map(move |(rank, (experience, of)): (usize, &(&Experience, Factors))| {
            let own = cells![name, rank, of.bound, of.td, of.policy];
            [own, maze::row(experience)].concat()
        })
    });
    options.csv("fig5.csv", &header, rows)?;
    let header = [
        "system",
        "top_share",
        "experiences",
        "top",
        "runs",
        "td_high",
        "td_high_low",
        "td_high_up",
        "policy_high",
        "policy_high_low",
        "policy_high_up",
        "both_high",
        "both_high_of_all",
        "policy_high_of_top_td",
    ];
    let rows = systems.iter().flat_map(|System { name, measured, .. }| {
        measured.iter().map(move |of| {
            let HighFactors { td, policy, .. } = of;
            let first = cells![name, of.top_share, of.experiences, of.top, of.runs];
            let shares = cells![td.share, td.low, td.high, policy.share, policy.low, policy.high];
            [first, shares, cells![of.both, of.both_of_all, of.policy_of_top_td]].concat()
        })
    });
    options.csv("fig5_factors.csv", &header, rows).map(drop)
}

/// Fifty at random whose Q-value moved, the largest bound first.
fn ordered<'a>(
    experiences: &'a [Experience],
    rng: &mut ChaCha8Rng,
) -> Result<Vec<(&'a Experience, Factors)>> {
    let mut moved: Vec<(&Experience, Factors)> =
        experiences.iter().filter_map(|experience| Some((experience, Factors::of(experience)?))).collect();
    ensure!(moved.len() >= SHOWN, "only {} experiences moved a value, {SHOWN} are to be shown", moved.len());
    let mut shown: Vec<(&Experience, Factors)> =
        (0..SHOWN).map(|_| moved.swap_remove(rng.random_range(0..moved.len()))).collect();
    shown.sort_by(|(_, one), (_, other)| other.bound.total_cmp(&one.bound));
    Ok(shown)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experience::Rule;
    use crate::figure::Verdict;
    use crate::options::Effort;

    #[test]
    fn the_bars_are_ordered_and_multiply() {
        let experience = |step: u64| {
            let q = [(step as f64 * 0.7).sin(), 0.2];
            Experience::new(Rule::Soft(0.3), (step % 5, step), &q, (0, 1.0), (step as f64).cos(), 1.0)
        };
        let experiences: Vec<_> = (0..500).map(experience).collect();
        let out = tempfile::tempdir().unwrap();
        let options = Options { effort: Effort::Quick, seed: 0, out: out.path().to_owned() };
        let run = |maze: &[Experience]| run(&options, maze, &experiences, Instant::now(), &|_| {});
        let figure = run(&experiences).unwrap();
        assert_eq!(figure.claims.len(), 2);
        assert!(figure.claims.iter().all(|claim| claim.verdict != Verdict::Open), "{:?}", figure.claims);
        let rows = std::fs::read_to_string(out.path().join("fig5.csv")).unwrap();
        let columns = |line: &str| line.split(',').count();
        assert!(rows.lines().count() == 101 && rows.lines().all(|line| columns(line) == 34), "{rows:.400}");
        assert!(rows.starts_with("system,rank,bound,abs_td,policy,variant,seed,episode,step,temperature,"));
        crate::agrees(out.path());
        let shown = ordered(&experiences, &mut ChaCha8Rng::seed_from_u64(0)).unwrap();
        assert!(shown.windows(2).all(|pair| pair[0].1.bound >= pair[1].1.bound));
        assert!(shown.iter().all(|(_, of)| (of.td * of.policy - of.bound).abs() < 1e-12 && of.policy <= 1.0));
        assert!(run(&experiences[..10]).is_err());
    }

    /// The Python check counts the shares again from the transitions of figure 3.
    #[test]
    fn the_factors_of_the_maze_are_those_of_the_transitions_of_figure_3() {
        let out = tempfile::tempdir().unwrap();
        let options = Options { effort: Effort::Quick, seed: 4, out: out.path().to_owned() };
        let (tallies, runs) = maze::learn_all(&[crate::fig3::MAIN], 6, 4);
        maze::write(&options, "fig3", &tallies, &runs).unwrap();
        let maze = tallies[0].kept();
        let figure = run(&options, maze, maze, Instant::now(), &|_| {}).unwrap();
        assert_eq!(figure.tables[0].rows.len(), 2 * TOP_SHARES.len());
        let said = crate::agrees(out.path());
        assert_eq!(said.matches("bounds of the maze agree").count(), TOP_SHARES.len(), "{said}");
    }
}
