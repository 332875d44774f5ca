//! The picture of figure 6: a panel for each game, a curve for each strategy.

use envs::display_name;
use plot::{Axis, Colour, Layer, Page, Panel};
use settings::Settings;
use value::Listed;
use value::strategy::Definition;

use super::results::{Scored, curve};

/// Colours in the order of the list of strategies.
const COLOURS: [Colour; 8] = [
    Colour::Grey,
    Colour::Orange,
    Colour::Blue,
    Colour::Green,
    Colour::Pink,
    Colour::Amber,
    Colour::Sky,
    Colour::Black,
];

/// Learning curves of runs with these settings.
pub fn curves(scored: &[Scored], games: &[String], settings: &Settings, seeds: u64) -> Page {
    let (frames, every) = (settings.frames.0, settings.evaluate_every_frames.0);
    let error =
        if seeds > 1 { "over games, or over seeds if larger" } else { "over the games of an evaluation" };
    let mut page = Page::new(
        "Soft DQN on Atari by replay strategy",
        format!("mean score of evaluations, {} policy; standard error {error}", settings.evaluation_policy),
    );
    page.columns = games.len().clamp(1, 3);
    let rows = games.len().div_ceil(page.columns);
    page.size = (if page.columns == 3 { 1100 } else { 500 * page.columns as u32 }, 120 + 300 * rows as u32);
    let (scale, unit) =
        if frames >= 2_000_000 { (1e6, "frames (millions)") } else { (1e3, "frames (thousands)") };
    for game in games {
        let mut panel = Panel::new(display_name(game), Axis::linear(unit), Axis::linear("score"));
        for (&strategy, colour) in Definition::list().iter().zip(COLOURS.into_iter().cycle()) {
            let points: Vec<_> = curve(scored, game, strategy, every)
                .iter()
                .map(|point| (point.frames as f64 / scale, point.mean, point.stderr))
                .collect();
            if !points.is_empty() {
                panel = panel.with(Layer::curve(strategy.name, colour, points));
            }
        }
        page.panels.push(panel);
    }
    page
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_strategy_has_a_colour_of_its_own() {
        assert!(Definition::list().len() <= COLOURS.len(), "add a colour");
    }
}
