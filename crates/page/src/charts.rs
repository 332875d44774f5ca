//! The pictures of the page: speeds, score, ratio, replay and time, each with a text that tells the same.

use plot::{Axis, Colour, Layer, Page, Panel, PlotError, number};
use settings::units::duration;

use crate::history::{Sample, Stretch};
use crate::story::{NOW_SECONDS, Shares, Story};
use crate::time::TimeAxis;

/// As many points as a curve shows: more would be noise on a small picture.
const POINTS_MAX: usize = 120;

/// Width and height of a picture, in units in which its letters are 13.5 high.
const SIZE: (u32, u32) = (460, 220);

/// Dashes of what a curve should reach.
const DASHES: (f64, f64) = (6.0, 4.0);

/// A picture of the page.
pub struct Chart {
    /// Its own on the page.
    pub id: &'static str,
    /// What it shows.
    pub heading: &'static str,
    /// The same in words.
    pub text: String,
    panel: Panel,
}

impl Chart {
    /// The picture as an SVG element.
    pub fn element(&self) -> Result<String, PlotError> {
        let mut page = Page::new("", "");
        page.size = SIZE;
        page.panels.push(self.panel.clone());
        page.element(self.id, self.heading, &self.text)
    }
}

/// All pictures, in the order of the page.
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
    let speeds = over(samples, |first, last| Stretch::new(first, last).speed(|sample| count(sample) as f64));
    let text = spoken(&speeds, time);
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
            "{} evaluation{}; the newest is {} ± {} at frame {}.",
            evaluations.len(),
            if evaluations.len() == 1 { "" } else { "s" },
            short(point.mean),
            short(point.error),
            short(point.frames)
        ),
        None => "No evaluation yet.".into(),
    };
    let text = match story.now().training_score {
        Some(score) => format!("{newest} The newest training games score {} on average.", short(score)),
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
        None => "There is no target: actors and learner run free.".into(),
    };
    let text = format!("{wanted} {}", spoken(&ratios, time));
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
    Chart { id: "replay", heading: "How full the replay is", text, panel }
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
        texts.push(format!("{name}: {}", spoken(&points, time)));
        panel = panel.with(Layer::curve(name, colour, time.curve(&points)));
    }
    let beside = curve(|shares| shares.preparing);
    texts.push(format!("preparing batches, beside it: {}", spoken(&beside, time)));
    let beside = Layer::dashed("preparing", Colour::Grey, time.places(&beside)).dashes(DASHES.0, DASHES.1);
    Chart {
        id: "time",
        heading: "Where the learner's time goes",
        text: texts.join(" "),
        panel: panel.with(beside),
    }
}

/// A value for each sample and the one before it by as many seconds as figures of now are over, as (seconds, value). A
/// slow update is counted when it ends, so neighbours alone would show nothing and then too much.
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

/// From zero to a little above all values.
fn upwards(points: &[(f64, f64)]) -> Axis {
    Axis::linear("").range(0.0..1.1 * finite(points).fold(0.0, f64::max))
}

/// All values, and enough around the target that a deviation of a few percent looks small.
fn around(points: &[(f64, f64)], target: Option<f64>) -> Axis {
    let Some(target) = target else { return upwards(points) };
    let (low, high) = (0.8 * target, 1.2 * target);
    Axis::linear("").range(finite(points).fold(low, f64::min)..finite(points).fold(high, f64::max))
}

/// A curve for those who do not see it.
fn spoken(points: &[(f64, f64)], time: &TimeAxis) -> String {
    let Some(now) = finite(points).next_back() else { return "Nothing yet.".into() };
    let (least, most) = (finite(points).fold(now, f64::min), finite(points).fold(now, f64::max));
    format!("Now {}; over {} from {} to {}.", short(now), duration(time.seconds), short(least), short(most))
}

/// A number with no more digits than one reads at a glance.
pub fn short(value: f64) -> String {
    let decimals = match value.abs() {
        large if large >= 100.0 => 1.0,
        medium if medium >= 10.0 => 10.0,
        _ => 100.0,
    };
    if value.is_finite() { number((value * decimals).round() / decimals) } else { "unknown".into() }
}

/// What the axis of frames counts in, and how many frames that is.
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
    fn what_is_counted_now_and_then_has_a_steady_speed() {
        let sample = |second: u32| Sample {
            seconds: f64::from(second),
            updates: u64::from(second / 5),
            ..Sample::default()
        };
        let samples: Vec<Sample> = (0..60).map(sample).collect();
        let speed =
            |first: &Sample, last: &Sample| Stretch::new(first, last).speed(|sample| sample.updates as f64);
        let speeds = over(&samples, speed);
        assert_eq!(speeds.len(), 59);
        assert!(speeds[9..].iter().all(|(_, speed)| *speed == 0.2), "{speeds:?}");
        assert_eq!((over(&samples[..1], speed), over(&[], speed)), (Vec::new(), Vec::new()));
    }

    #[test]
    fn a_curve_is_told_in_words() {
        let points = [(1.0, 3.0), (2.0, f64::NAN), (3.0, 5.0), (4.0, 4.0)];
        assert_eq!(spoken(&points, &TimeAxis::new(90.0)), "Now 4; over 1 min 30 s from 3 to 5.");
        assert_eq!(spoken(&[], &TimeAxis::new(0.0)), "Nothing yet.");
    }
}
