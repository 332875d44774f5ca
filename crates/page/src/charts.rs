//! The charts of the page: rates, score, ratio, replay and time, each with a text alternative.

use plot::{Axis, Colour, Layer, Page, Panel, PlotError, number};
use settings::units::duration;

use crate::history::{Sample, SampleSpan};
use crate::story::{NOW_SECONDS, Shares, Story};
use crate::time::TimeAxis;

/// Maximum points of a curve: more would be noise on a small chart.
const POINTS_MAX: usize = 120;

/// Width and height of a chart, in units in which its text is 13.5 high.
const SIZE: (u32, u32) = (460, 220);

/// Dash and gap of target lines.
const DASHES: (f64, f64) = (6.0, 4.0);

/// A chart of the page.
pub struct Chart {
    /// Unique id on the page.
    pub id: &'static str,
    pub heading: &'static str,
    pub text: String,
    panel: Panel,
}

impl Chart {
    /// The chart as an SVG element.
    pub fn element(&self) -> Result<String, PlotError> {
        let mut page = Page::new("", "");
        page.size = SIZE;
        page.panels.push(self.panel.clone());
        page.element(self.id, self.heading, &self.text)
    }
}

/// All charts, in the order of the page.
pub fn charts(story: &Story<'_>) -> Vec<Chart> {
    let samples = story.history.thinned(POINTS_MAX);
    let time = TimeAxis::new(story.now().seconds);
    vec![
        speed("frames", "Frames per second", &samples, &time, |sample| sample.frames),
        speed("updates", "Updates per second", &samples, &time, |sample| sample.updates),
        score(story, &samples),
        ratio(story, &samples, &time),
        replay(story, &samples, &time),
        shares(&samples, &time),
    ]
}

fn speed(
    id: &'static str,
    heading: &'static str,
    samples: &[Sample],
    time: &TimeAxis,
    count: fn(&Sample) -> u64,
) -> Chart {
    let speeds =
        over(samples, |first, last| SampleSpan::new(first, last).rate(|sample| count(sample) as f64));
    let text = summary(&speeds, time);
    let panel = Panel::new("", time.axis(), upwards(&speeds)).with(Layer::curve(
        "",
        Colour::Blue,
        time.curve(&speeds),
    ));
    Chart { id, heading, text, panel }
}

fn score(story: &Story<'_>, samples: &[Sample]) -> Chart {
    let (unit, per_unit) = frame_unit(story.now().frames as f64);
    let evaluations = &story.history.evaluations;
    let curve = evaluations.iter().map(|point| (point.frames / per_unit, point.mean, point.error)).collect();
    let lately = samples.iter().filter_map(|sample| Some((sample.frames as f64, sample.training_score?)));
    let training = story.history.past_scores.iter().copied().chain(lately);
    let training: Vec<_> = training.map(|(frames, score)| (frames / per_unit, score, 0.0)).collect();
    let newest = match evaluations.last() {
        Some(point) => format!(
            "{} evaluation{}; the latest is {} ± {} at frame {}.",
            evaluations.len(),
            if evaluations.len() == 1 { "" } else { "s" },
            short(point.mean),
            short(point.error),
            short(point.frames)
        ),
        None => "No evaluation yet.".into(),
    };
    let text = match story.now().training_score {
        Some(score) => format!("{newest} Recent training games have a mean score of {}.", short(score)),
        None => newest,
    };
    let panel = Panel::new("", Axis::linear(unit), Axis::linear(""))
        .with(Layer::curve("evaluation ± standard error", Colour::Blue, curve))
        .with(Layer::curve("training games", Colour::Orange, training));
    Chart { id: "score", heading: "Score per game", text, panel }
}

fn ratio(story: &Story<'_>, samples: &[Sample], time: &TimeAxis) -> Chart {
    let ratios: Vec<(f64, f64)> = samples
        .iter()
        .filter_map(|sample| Some((sample.seconds, sample.replay.samples_per_insert?)))
        .collect();
    let target = story.settings.samples_per_insert.0;
    let mut panel = Panel::new("", time.axis(), around(&ratios, target)).with(Layer::curve(
        "measured",
        Colour::Blue,
        time.curve(&ratios),
    ));
    let wanted = match target {
        Some(target) => {
            panel = panel.with(time.level("target", target));
            format!("The target is {}.", short(target))
        }
        None => "There is no target: actors and learner are decoupled.".into(),
    };
    let text = format!("{wanted} {}", summary(&ratios, time));
    Chart { id: "ratio", heading: "Samples per insert", text, panel }
}

fn replay(story: &Story<'_>, samples: &[Sample], time: &TimeAxis) -> Chart {
    let (capacity, most) = (story.settings.capacity.0, story.settings.replay_bytes.0);
    let part = |of: fn(&Sample) -> u64, all: u64| -> Vec<(f64, f64)> {
        let share = |sample: &Sample| 100.0 * of(sample) as f64 / all.max(1) as f64;
        samples.iter().map(|sample| (sample.seconds, share(sample))).collect()
    };
    let (items, bytes) =
        (part(|sample| sample.replay.items, capacity), part(|sample| sample.replay.bytes, most));
    let now = story.now();
    let text = format!(
        "{} of {} transitions, {} of {} bytes.",
        number(now.replay.items as f64),
        number(capacity as f64),
        number(now.replay.bytes as f64),
        number(most as f64)
    );
    let panel = Panel::new("", time.axis(), Axis::linear("%").range(0.0..104.0))
        .with(Layer::curve("transitions", Colour::Blue, time.curve(&items)))
        .with(Layer::curve("bytes", Colour::Orange, time.curve(&bytes)).dashes(DASHES.0, DASHES.1));
    Chart { id: "replay", heading: "Replay usage", text, panel }
}

fn shares(samples: &[Sample], time: &TimeAxis) -> Chart {
    let curve = |of: fn(&Shares) -> f64| {
        over(samples, |first, last| Shares::of(first, last).map(|shares| 100.0 * of(&shares)))
    };
    let parts = [
        ("training", Colour::Blue, curve(|shares| shares.training)),
        ("waiting", Colour::Orange, curve(|shares| shares.waiting)),
        ("other", Colour::Green, curve(|shares| shares.other)),
    ];
    let mut panel = Panel::new("", time.axis(), Axis::linear("%").range(0.0..104.0));
    let mut texts = Vec::new();
    for (name, colour, points) in parts {
        texts.push(format!("{name}: {}", summary(&points, time)));
        panel = panel.with(Layer::curve(name, colour, time.curve(&points)));
    }
    let beside = curve(|shares| shares.preparing);
    texts.push(format!("preparing batches, in parallel: {}", summary(&beside, time)));
    let beside = Layer::dashed("preparing", Colour::Grey, time.points(&beside)).dashes(DASHES.0, DASHES.1);
    Chart {
        id: "time",
        heading: "Where the learner's time goes",
        text: texts.join(" "),
        panel: panel.with(beside),
    }
}

/// A value for each pair of a sample and the sample [`NOW_SECONDS`] before it, as (seconds, value). Neighbours alone would
/// give spikes, because a slow update is counted when it ends.
fn over(samples: &[Sample], value: impl Fn(&Sample, &Sample) -> Option<f64>) -> Vec<(f64, f64)> {
    let mut before = 0;
    let mut points = Vec::with_capacity(samples.len());
    for (at, sample) in samples.iter().enumerate().skip(1) {
        while before + 1 < at && samples[before + 1].seconds <= sample.seconds - NOW_SECONDS {
            before += 1;
        }
        points.extend(value(&samples[before], sample).map(|value| (sample.seconds, value)));
    }
    points
}

fn finite(points: &[(f64, f64)]) -> impl DoubleEndedIterator<Item = f64> {
    points.iter().map(|(_, value)| *value).filter(|value| value.is_finite())
}

/// An axis from zero to slightly above the largest value.
fn upwards(points: &[(f64, f64)]) -> Axis {
    Axis::linear("").range(0.0..1.1 * finite(points).fold(0.0, f64::max))
}

/// An axis of all values and at least ±20% around the target, so that a deviation of a few percent looks small.
fn around(points: &[(f64, f64)], target: Option<f64>) -> Axis {
    let Some(target) = target else { return upwards(points) };
    let (low, high) = (0.8 * target, 1.2 * target);
    Axis::linear("").range(finite(points).fold(low, f64::min)..finite(points).fold(high, f64::max))
}

/// The text alternative of a curve.
fn summary(points: &[(f64, f64)], time: &TimeAxis) -> String {
    let Some(now) = finite(points).next_back() else { return "No data yet.".into() };
    let (least, most) = (finite(points).fold(now, f64::min), finite(points).fold(now, f64::max));
    format!("Now {}; in {} between {} and {}.", short(now), duration(time.seconds), short(least), short(most))
}

/// A number with about three digits.
pub fn short(value: f64) -> String {
    let decimals = match value.abs() {
        large if large >= 100.0 => 1.0,
        medium if medium >= 10.0 => 10.0,
        _ => 100.0,
    };
    if value.is_finite() { number((value * decimals).round() / decimals) } else { "unknown".into() }
}

/// The unit of the frame axis, and the frames per unit.
fn frame_unit(frames: f64) -> (&'static str, f64) {
    match frames {
        large if large >= 1e6 => ("million frames", 1e6),
        medium if medium >= 1e4 => ("thousand frames", 1e3),
        _ => ("frames", 1.0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_short() {
        let cases = [
            (0.0, "0"),
            (8.004, "8"),
            (7.961, "7.96"),
            (44.94, "44.9"),
            (18_926.6, "18,927"),
            (-20.5, "−20.5"),
        ];
        for (value, expected) in cases {
            assert_eq!(short(value), expected);
        }
        assert_eq!(short(f64::NAN), "unknown");
    }

    #[test]
    fn slow_updates_have_a_steady_rate() {
        let sample = |second: u32| Sample {
            seconds: f64::from(second),
            updates: u64::from(second / 5),
            ..Sample::default()
        };
        let samples: Vec<Sample> = (0..60).map(sample).collect();
        let speed =
            |first: &Sample, last: &Sample| SampleSpan::new(first, last).rate(|sample| sample.updates as f64);
        let speeds = over(&samples, speed);
        assert_eq!(speeds.len(), 59);
        assert!(speeds[9..].iter().all(|(_, speed)| *speed == 0.2), "{speeds:?}");
        assert_eq!((over(&samples[..1], speed), over(&[], speed)), (Vec::new(), Vec::new()));
    }

    #[test]
    fn a_curve_has_a_text_alternative() {
        let points = [(1.0, 3.0), (2.0, f64::NAN), (3.0, 5.0), (4.0, 4.0)];
        assert_eq!(summary(&points, &TimeAxis::new(90.0)), "Now 4; in 1 min 30 s between 3 and 5.");
        assert_eq!(summary(&[], &TimeAxis::new(0.0)), "No data yet.");
    }
}
