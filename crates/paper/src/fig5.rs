//! Figure 5: fifty experiences each from maze and CartPole, ordered by the bound, which is the priority of valuable
//! experience replay: what |TD| and what the policy contribute to it.

use std::time::Instant;

use anyhow::{Result, ensure};
use envs::grid::ACTIONS;
use plot::{Axis, Colour, Layer, Page, Panel};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

use crate::experience::Experience;
use crate::figure::{Figure, Verdict};
use crate::options::Options;

/// Experiences of each system.
const SHOWN: usize = 50;

/// How high a bar is.
type Height = fn(&Bars<'_>) -> f64;

/// Draws fifty of each, and writes `fig5.csv`. Its time is counted from `started`.
pub fn run(
    options: &Options,
    maze: &[Experience],
    cartpole: &[Experience],
    started: Instant,
    say: &dyn Fn(&str),
) -> Result<Figure> {
    say("fig5: fifty experiences of each system");
    let mut rng = ChaCha8Rng::seed_from_u64(options.seed);
    let systems = [("maze", ordered(maze, &mut rng)?), (envs::CARTPOLE, ordered(cartpole, &mut rng)?)];
    write(options, &systems)?;

    let mut figure = Figure::new("fig5", "What makes the bound: |TD| and the policy", options);
    figure.about = "Fifty random experiences of soft Q-learning in the maze and of soft DQN on CartPole, ordered by the \
                    bound ρ^max·|TD|, and its two factors beside it. Drawn from those that moved a value."
        .to_owned();
    for (system, shown) in &systems {
        let (agree, pairs) = agreement(shown);
        let measured = format!(
            "of {pairs} pairs, |TD| alone orders {:.0}% as the bound does",
            100.0 * agree as f64 / pairs as f64
        );
        let claim =
            format!("{}: the bound is not |TD| alone, the policy reorders experiences", title(system));
        figure.claim(&claim, measured, Verdict::of(agree < pairs));
    }
    let mut page = Page::new(
        "Fifty experiences, ordered by the bound",
        "each bar is one experience; a column of bars is the same one",
    );
    (page.columns, page.size) = (2, (1000, 900));
    let bars: [(&str, Colour, Height); 3] = [
        ("ρ^max·|TD|, the bound", Colour::Green, |bars| bars.bound),
        ("|TD|", Colour::Blue, |bars| bars.td),
        ("ρ^max, the policy's part", Colour::Orange, |bars| bars.policy),
    ];
    for (label, colour, number) in bars {
        for (system, shown) in &systems {
            let bars =
                shown.iter().enumerate().map(|(rank, bars)| (rank as f64 + 1.0, number(bars))).collect();
            let panel = Panel::new(title(system), Axis::linear("rank"), Axis::linear(label));
            page.panels.push(panel.with(Layer::bars("", colour, bars, 0.8, 0.0)));
        }
    }
    figure.picture(
        options,
        "fig5",
        "Bound, |TD| and policy term of the same fifty experiences, maze left, CartPole right.",
        &page,
    )?;
    figure.setting("experiences", SHOWN);
    figure.finish(options, started)
}

/// Each with the whole transition beside it; a state has as many Q-values as actions, and the other columns are empty.
fn write(options: &Options, systems: &[(&str, Vec<Bars<'_>>)]) -> Result<()> {
    let actions = ACTIONS.len();
    let header = ["system", "rank", "bound", "abs_td", "policy"].map(str::to_owned);
    let header: Vec<String> = header.into_iter().chain(Experience::header(actions)).collect();
    let header: Vec<&str> = header.iter().map(String::as_str).collect();
    let first_q = header.iter().position(|name| *name == "q_0").expect("a transition has Q-values");
    let rows = systems.iter().flat_map(|(system, shown)| {
        (1..).zip(shown).map(move |(rank, bars): (usize, &Bars<'_>)| {
            let numbers = [bars.bound, bars.td, bars.policy].map(|number| number.to_string());
            let names = [(*system).to_owned(), rank.to_string()];
            let mut row: Vec<String> =
                names.into_iter().chain(numbers).chain(bars.experience.row()).collect();
            let own = bars.experience.q.len();
            row.splice(first_q + own..first_q + own, vec![String::new(); actions - own]);
            row
        })
    });
    options.csv("fig5.csv", &header, rows).map(drop)
}

/// The system's name in titles. The maze is a table and no environment of the registry.
fn title(system: &str) -> String {
    envs::display_name(system)
}

/// One experience's bars.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Bars<'a> {
    experience: &'a Experience,
    bound: f64,
    td: f64,
    policy: f64,
}

/// Fifty at random whose Q-value moved, the largest bound first.
fn ordered<'a>(experiences: &'a [Experience], rng: &mut ChaCha8Rng) -> Result<Vec<Bars<'a>>> {
    let mut moved: Vec<&Experience> =
        experiences.iter().filter(|experience| experience.change() != 0.0).collect();
    ensure!(moved.len() >= SHOWN, "only {} experiences moved a value, {SHOWN} are to be shown", moved.len());
    let mut bars: Vec<Bars<'_>> = (0..SHOWN)
        .map(|_| {
            let experience = moved.swap_remove(rng.random_range(0..moved.len()));
            let td = experience.change().abs();
            Bars { experience, bound: experience.bounds.upper, td, policy: experience.bounds.upper / td }
        })
        .collect();
    bars.sort_by(|one, other| other.bound.total_cmp(&one.bound));
    Ok(bars)
}

/// How many pairs |TD| orders as the bound does, and how many there are.
fn agreement(bars: &[Bars<'_>]) -> (usize, usize) {
    let pairs = || {
        bars.iter()
            .enumerate()
            .flat_map(|(index, one)| bars[index + 1..].iter().map(move |other| (one, other)))
    };
    (pairs().filter(|(one, other)| one.td >= other.td).count(), pairs().count())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experience::Rule;
    use crate::options::Effort;

    #[test]
    fn the_bars_are_ordered_and_multiply() {
        let experience = |step: u64| {
            let q = [(step as f64 * 0.7).sin(), 0.2];
            Experience::new(Rule::Soft(0.3), (0, step), &q, (0, 1.0), (step as f64).cos(), 1.0)
        };
        let experiences: Vec<_> = (0..500).map(experience).collect();
        let out = tempfile::tempdir().unwrap();
        let options = Options { effort: Effort::Quick, seed: 0, out: out.path().to_owned() };
        let run = |maze: &[Experience]| run(&options, maze, &experiences, Instant::now(), &|_| {});
        assert!(run(&experiences).unwrap().holds());
        let rows = std::fs::read_to_string(out.path().join("fig5.csv")).unwrap();
        let columns = |line: &str| line.split(',').count();
        assert!(rows.lines().count() == 101 && rows.lines().all(|line| columns(line) == 24), "{rows:.300}");
        assert!(rows.starts_with(
            "system,rank,bound,abs_td,policy,trial,step,temperature,alpha,q_0,q_1,q_2,q_3,action,"
        ));
        crate::agrees(out.path());
        let bars = ordered(&experiences, &mut ChaCha8Rng::seed_from_u64(0)).unwrap();
        assert!(bars.windows(2).all(|pair| pair[0].bound >= pair[1].bound));
        assert!(
            bars.iter().all(|bars| (bars.td * bars.policy - bars.bound).abs() < 1e-12 && bars.policy <= 1.0)
        );
        assert!(run(&experiences[..10]).is_err());
    }
}
