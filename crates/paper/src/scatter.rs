//! Metrics against a bound: one panel for each of EVB, PIV and EIV, with the identity line.

use plot::{Axis, Colour, Layer, Panel};

use crate::experience::Experience;

/// A number of an experience.
pub type Number = fn(&Experience) -> f64;

/// The metric that has no lower bound.
const PIV: &str = "|PIV|";

/// The three metrics, by name.
pub const METRICS: [(&str, Number); 3] = [
    ("|EVB|", |experience| experience.metrics.evb.abs()),
    (PIV, |experience| experience.metrics.piv.abs()),
    ("|EIV|", |experience| experience.metrics.eiv.abs()),
];

/// At most so many points are drawn in a panel.
const POINTS_MAX: usize = 4_000;

/// Decades of a metric that a panel shows below the largest; |PIV| is of second order and has no smallest value.
const DECADES: i32 = 12;
/// The share of numbers, the smallest ones, that a panel need not show.
const HIDDEN_SHARE: f64 = 0.005;

/// Three panels: each metric against the upper bound of all three, with the line that no point may lie above. Both axes are
/// logarithmic, so a metric that is 0 has no point; the heading counts those.
pub fn panels(kept: &[Experience], title: &str, bound: (&str, Number), colour: Colour) -> Vec<Panel> {
    draw(kept, title, bound, colour, |_| true)
}

/// Three panels: each metric against the lower bound of |EVB| and |EIV|. No theorem bounds |PIV| from below, so its panel
/// has no line.
pub fn lower_panels(kept: &[Experience], title: &str, bound: (&str, Number), colour: Colour) -> Vec<Panel> {
    draw(kept, title, bound, colour, |metric| metric != PIV)
}

fn draw(
    kept: &[Experience],
    title: &str,
    bound: (&str, Number),
    colour: Colour,
    has_bound: impl Fn(&str) -> bool,
) -> Vec<Panel> {
    let stride = kept.len().div_ceil(POINTS_MAX).max(1);
    let shown = || kept.iter().step_by(stride);
    let numbers = METRICS.iter().flat_map(|(_, metric)| shown().map(metric)).chain(shown().map(bound.1));
    let mut numbers: Vec<f64> = numbers.filter(|number| *number > 0.0).collect();
    numbers.sort_by(f64::total_cmp);
    let most = numbers.last().copied().unwrap_or(1.0);
    let least = numbers.get((numbers.len() as f64 * HIDDEN_SHARE) as usize).copied().unwrap_or(most);
    let range = (0.5 * least).max(most * 10f64.powi(-DECADES))..2.0 * most;
    let axis = |label: &str| Axis::log(label).range(range.clone());
    let panel = |(name, metric): (&str, Number)| {
        let points = shown().map(|experience| (bound.1(experience), metric(experience))).collect();
        let mut heading =
            [name, title].into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join(", ");
        let zeros = kept.iter().filter(|experience| metric(experience) == 0.0).count();
        if zeros > 0 {
            heading += &format!(" ({} are 0)", percent(zeros, kept.len()));
        }
        let panel = Panel::new(heading, axis(bound.0), axis(name));
        let panel = if has_bound(name) { panel.with(Layer::identity("the bound")) } else { panel };
        panel.with(Layer::points("", colour, points))
    };
    METRICS.map(panel).into()
}

/// A share in per cent; one that is small and not 0 does not read as 0.
fn percent(count: usize, of: usize) -> String {
    match 100.0 * count as f64 / of as f64 {
        share if share < 1.0 => "under 1%".to_owned(),
        share => format!("{share:.0}%"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experience::Rule;

    #[test]
    fn no_line_is_drawn_where_no_theorem_has_a_bound_and_zeros_are_counted() {
        let experience = |target| Experience::new(Rule::Hard, (0, 0), &[1.0, 2.0], (0, 0.0), target, 1.0);
        let kept = [experience(1.5), experience(1.25), experience(3.0), experience(2.5)];
        let svg = |panels: Vec<Panel>| {
            let mut page = plot::Page::new("", "");
            (page.columns, page.panels) = (3, panels);
            page.svg().unwrap()
        };
        let bound: (&str, Number) = ("x", |experience| experience.bounds.upper);
        let [upper, lower] =
            [svg(panels(&kept, "", bound, Colour::Blue)), svg(lower_panels(&kept, "", bound, Colour::Blue))];
        // The line is the only mark in black with this width; the legend has one more.
        let lines = |svg: &str| svg.matches("stroke-width=\"1.2\"").count();
        assert_eq!((lines(&upper), lines(&lower)), (4, 3), "{upper}");
        assert!(upper.contains("|EVB| (50% are 0)"), "{upper}");
        assert!(upper.contains("|EIV| (100% are 0)"), "{upper}");
    }
}
