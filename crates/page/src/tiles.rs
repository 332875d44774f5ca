//! The tiles of the page: current figures, each with a reference value.

use plot::escaped;
use settings::units::grouped;

use crate::charts::short;
use crate::story::Story;

pub struct Tile {
    label: &'static str,
    value: String,
    note: String,
}

impl Tile {
    /// The tile as a group of a description list.
    pub fn element(&self) -> String {
        let Self { label, value, note } = self;
        let (value, note) = (escaped(value), escaped(note));
        format!(
            "<div class=\"card\"><dt>{label}</dt><dd class=\"value\">{value}</dd><dd class=\"note\">{note}</dd></div>\n"
        )
    }
}

/// Shown while a figure is unknown.
const UNKNOWN: &str = "–";

/// All tiles, in the order of the page.
pub fn tiles(story: &Story<'_>) -> Vec<Tile> {
    let now = story.now();
    let figure = |value: Option<f64>| value.map_or(UNKNOWN.into(), short);
    vec![
        Tile {
            label: "Frames per second",
            value: figure(story.frames_rate()),
            note: format!("{} frames so far", grouped(now.frames)),
        },
        Tile {
            label: "Updates per second",
            value: figure(story.updates_rate()),
            note: format!("{} updates so far", grouped(now.updates)),
        },
        score(story),
        Tile {
            label: "Samples per insert",
            value: figure(now.replay.samples_per_insert),
            note: match story.settings.samples_per_insert.0 {
                Some(target) => format!("target {}", short(target)),
                None => "no target".into(),
            },
        },
        replay(story),
        members(story),
    ]
}

fn score(story: &Story<'_>) -> Tile {
    let training = story.now().training_score.map(|score| format!("training {}", short(score)));
    let evaluations = &story.history.evaluations;
    let best = evaluations.iter().map(|point| point.mean).filter(|mean| mean.is_finite()).reduce(f64::max);
    let best = best.map(|best| format!("best {}", short(best)));
    let notes: Vec<String> = best.into_iter().chain(training).collect();
    Tile {
        label: "Evaluation score",
        value: evaluations.last().map_or(UNKNOWN.into(), |point| short(point.mean)),
        note: if notes.is_empty() { "none yet".into() } else { notes.join(" · ") },
    }
}

fn replay(story: &Story<'_>) -> Tile {
    let (now, capacity) = (story.now(), story.settings.capacity.0);
    let percent = 100.0 * now.replay.items as f64 / capacity.max(1) as f64;
    Tile {
        label: "Replay",
        value: format!("{}% full", short(percent)),
        note: format!("{} items · {} MB", grouped(now.replay.items), short(now.replay.bytes as f64 / 1e6)),
    }
}

fn members(story: &Story<'_>) -> Tile {
    let now = story.now();
    Tile {
        label: "Connected",
        value: counted(now.actors, story.settings.actors, "actor"),
        note: format!(
            "{} · {}",
            counted(now.replay.shards, story.history.shards, "shard"),
            counted(now.evaluators, now.evaluators, "evaluator")
        ),
    }
}

/// `2 actors`, or `1 of 2 actors`. A cluster on several machines may have more actors than its settings.
fn counted(connected: u32, expected: u32, what: &str) -> String {
    let of = if connected < expected { format!(" of {expected}") } else { String::new() };
    let plural = if connected.max(expected) == 1 { "" } else { "s" };
    format!("{connected}{of} {what}{plural}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_processes_are_counted_too() {
        let cases = [
            (2, 2, "2 actors"),
            (1, 2, "1 of 2 actors"),
            (0, 1, "0 of 1 actor"),
            (1, 1, "1 actor"),
            (16, 2, "16 actors"),
        ];
        for (connected, expected, text) in cases {
            assert_eq!(counted(connected, expected, "actor"), text);
        }
        assert_eq!(counted(0, 0, "evaluator"), "0 evaluators");
    }
}
