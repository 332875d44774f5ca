//! The pictures of figure 1: how replays grow with N, and what an oracle sees.

use anyhow::Result;
use envs::grid::{ACTIONS, EAST};
use plot::{Axis, Colour, Layer, Page, Panel};

use super::{Oracle, ReplayCount, World};

/// Cells of the line that is shown.
const SHOWN: usize = 8;

/// How many cells next to the goal have a value there.
const VALUED: usize = 2;

/// How something grows with the number of cells.
type Order = fn(f64) -> f64;

/// Replays against cells, both logarithmic.
pub fn growth(rows: &[ReplayCount]) -> Page {
    let mut page = Page::new(
        "Replays until the policy is optimal",
        "linear grid-world of N cells, ties at random; mean and standard error",
    );
    let mut panel = Panel::new("", Axis::log("cells N"), Axis::log("replays"));
    let names = ["random", "largest |TD|", "largest EVB"];
    for ((oracle, name), colour) in
        Oracle::ALL.into_iter().zip(names).zip([Colour::Orange, Colour::Blue, Colour::Green])
    {
        let points: Vec<_> = rows
            .iter()
            .filter(|row| row.oracle == oracle)
            .map(|row| (row.n as f64, row.mean, row.stderr))
            .collect();
        panel = panel.with(Layer::curve(name, colour, points));
    }
    let orders: [(&str, Order); 3] = [("4N², 4N, N", |n| 4.0 * n * n), ("", |n| 4.0 * n), ("", |n| n)];
    for (name, order) in orders {
        let points = rows.iter().map(|row| (row.n as f64, order(row.n as f64))).collect();
        panel = panel.with(Layer::dashed(name, Colour::Grey, points));
    }
    page.panels.push(panel);
    page
}

/// The same line twice: coloured by |TD|, and by EVB.
pub fn experiences() -> Result<Page> {
    let mut world = World::new(SHOWN);
    (SHOWN - VALUED..SHOWN).rev().for_each(|cell| world.replay(cell, EAST));
    let mut page = Page::new(
        "Which experience is worth a replay",
        format!("{SHOWN} cells, the goal behind the last; each cell has north, east, south, west"),
    );
    page.size = (800, 380);
    for (title, oracle, colour) in [("|TD|", Oracle::Td, Colour::Blue), ("EVB", Oracle::Evb, Colour::Green)] {
        let axis = |length: f64| Axis::linear("").range(0.0..length).bare();
        let (wide, high) = (axis(SHOWN as f64 + 1.0), axis(1.0));
        let goal = (SHOWN as f64 + 0.5, 0.5);
        page.panels.push(
            Panel::new(title, wide, high)
                .with(Layer::patches(colour, patches(&world, oracle)))
                .with(Layer::words(goal, "goal".to_owned())),
        );
    }
    Ok(page)
}

/// How strong an experience is drawn that is worth something, but not the most.
const FAINT: f64 = 0.3;

/// A triangle for each experience: strong if the oracle would take it now, faint if it is worth less.
fn patches(world: &World, oracle: Oracle) -> Vec<(Vec<(f64, f64)>, f64)> {
    let all = || (0..world.cells()).flat_map(|cell| (0..ACTIONS.len()).map(move |action| (cell, action)));
    let most = all().map(|(cell, action)| world.worth(oracle, cell, action)).fold(0.0, f64::max);
    let triangle = |cell: usize, action: usize| {
        let (left, middle) = (cell as f64, (cell as f64 + 0.5, 0.5));
        let corners = [(left, 0.0), (left, 1.0), (left + 1.0, 1.0), (left + 1.0, 0.0)];
        // North is between the corners 1 and 2, then clockwise.
        vec![corners[(action + 1) % 4], corners[(action + 2) % 4], middle]
    };
    let strength = |cell: usize, action: usize| match world.worth(oracle, cell, action) / most {
        share if share >= 1.0 - 1e-12 => 1.0,
        share => FAINT * share,
    };
    all().map(|(cell, action)| (triangle(cell, action), strength(cell, action))).collect()
}
