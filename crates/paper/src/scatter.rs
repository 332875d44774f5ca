//! Metrics against a bound: one panel for each of EVB, PIV and EIV, with the identity line.

use plot::{Axis, Colour, Layer, Panel};

use crate::experience::Experience;

/// A number of an experience.
pub type Number = fn(&Experience) -> f64;

/// The three metrics, by name.
pub const METRICS: [(&str, Number); 3] = [
    ("|EVB|", |experience| experience.metrics.evb.abs()),
    ("|PIV|", |experience| experience.metrics.piv.abs()),
    ("|EIV|", |experience| experience.metrics.eiv.abs()),
];

/// At most so many points are drawn in a panel.
const POINTS_MAX: usize = 4_000;

/// Decades of a metric that a logarithmic panel shows below the largest; |PIV| is of second order and has no smallest value.
const DECADES: i32 = 12;
/// The share of numbers, the smallest ones, that a logarithmic panel need not show.
const HIDDEN_SHARE: f64 = 0.005;

/// How both axes are divided.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Scale {
    /// Linear from 0, up to what this share of the bounds reaches: a few that are far larger would hide the rest.
    Linear(f64),
    /// Logarithmic: all sizes are seen, but nothing that is 0.
    Log,
}

/// Three panels: each metric against `bound`.
pub fn panels(
    kept: &[Experience],
    title: &str,
    bound: (&str, Number),
    colour: Colour,
    scale: Scale,
) -> Vec<Panel> {
    let stride = kept.len().div_ceil(POINTS_MAX).max(1);
    let shown = || kept.iter().step_by(stride);
    let mut bounds: Vec<f64> = shown().map(bound.1).filter(|bound| *bound > 0.0).collect();
    bounds.sort_by(f64::total_cmp);
    let at = |share: f64| bounds.get((bounds.len().saturating_sub(1) as f64 * share) as usize).copied();
    let numbers = METRICS.iter().flat_map(|(_, metric)| shown().map(metric)).chain(shown().map(bound.1));
    let mut numbers: Vec<f64> = numbers.filter(|number| *number > 0.0).collect();
    numbers.sort_by(f64::total_cmp);
    let most = numbers.last().copied().unwrap_or(1.0);
    let least = numbers.get((numbers.len() as f64 * HIDDEN_SHARE) as usize).copied().unwrap_or(most);
    let axis = |label: &str| match scale {
        Scale::Linear(share) => Axis::linear(label).range(0.0..1.05 * at(share).unwrap_or(1.0)),
        Scale::Log => Axis::log(label).range((0.5 * least).max(most * 10f64.powi(-DECADES))..2.0 * most),
    };
    let panel = |(name, metric): (&str, Number)| {
        let points = shown().map(|experience| (bound.1(experience), metric(experience))).collect();
        let heading = if title.is_empty() { name.to_owned() } else { format!("{name}, {title}") };
        Panel::new(heading, axis(bound.0), axis(name))
            .with(Layer::identity("the bound"))
            .with(Layer::points("", colour, points))
    };
    METRICS.map(panel).into()
}
