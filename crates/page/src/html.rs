//! The page as one file: head, progress, tiles, bottleneck, charts.
//!
//! It is also well-formed XML, so that the tests can parse it.

use plot::escaped;
use run::curve::display_name;
use settings::Resolved;
use settings::units::{duration, grouped};

use crate::History;
use crate::charts::{Chart, charts};
use crate::story::{LearnerState, Shares, Story};
use crate::tiles::{Tile, tiles};

const STYLE: &str = include_str!("style.css");
const SCRIPT: &str = include_str!("refresh.js");

/// The page of a run.
pub fn html(resolved: &Resolved, history: &History) -> String {
    let story = Story { settings: &resolved.settings, history };
    let game = escaped(&display_name(&resolved.game));
    let percent = (100.0 * story.progress()).floor();
    let (head, progress, bottleneck) = (head(resolved, &story), progress(&story), bottleneck(&story));
    let tiles: String = tiles(&story).iter().map(Tile::element).collect();
    let charts: String = charts(&story).iter().map(card).collect();
    format!(
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\"/>\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\"/>\n\
         <meta name=\"color-scheme\" content=\"light dark\"/>\n<title>{percent}% · {game} · Quiver</title>\n\
         <noscript><meta http-equiv=\"refresh\" content=\"5\"/></noscript>\n<style>{STYLE}</style>\n</head>\n<body>\n\
         <p id=\"silence\" role=\"status\" hidden=\"hidden\"></p>\n<main>\n{head}{progress}\
         <dl class=\"tiles\">\n{tiles}</dl>\n{bottleneck}<div class=\"charts\">\n{charts}</div>\n</main>\n\
         <footer>Served by Quiver's learner and updated every few seconds. For programs: \
         <a href=\"metrics\">metrics</a>, <a href=\"healthz\">health</a>.</footer>\n\
         <script>{SCRIPT}</script>\n</body>\n</html>\n"
    )
}

fn head(resolved: &Resolved, story: &Story<'_>) -> String {
    let settings = &resolved.settings;
    let about = format!("{} with {} replay, seed {}", settings.algorithm, settings.strategy, settings.seed);
    let state = story.state();
    let style = match state {
        LearnerState::Training => "good",
        LearnerState::Waiting => "warn",
        LearnerState::Starting | LearnerState::Evaluating | LearnerState::Finished => "calm",
    };
    format!(
        "<header>\n<h1>{} <span class=\"state {style}\">{}</span></h1>\n<p>{} · learner up for {}</p>\n</header>\n",
        escaped(&display_name(&resolved.game)),
        state.words(),
        escaped(&about),
        duration(story.now().seconds),
    )
}

fn progress(story: &Story<'_>) -> String {
    let part = 100.0 * story.progress();
    let left = match (story.seconds_left(), story.state()) {
        (Some(seconds), LearnerState::Training | LearnerState::Waiting | LearnerState::Starting) => {
            format!("about {} left at this rate", duration(seconds))
        }
        (_, LearnerState::Evaluating) => "playing the final evaluation".into(),
        (_, LearnerState::Finished) => "done".into(),
        _ => "time left not known yet".into(),
    };
    let (frames, budget) = (grouped(story.now().frames), grouped(story.settings.frames.0));
    format!(
        "<section class=\"progress\" aria-label=\"Progress\">\n<p><span><b>{frames}</b> of {budget} frames ({part:.1}%)</span> \
         <span class=\"left\">{left}</span></p>\n{}</section>\n",
        bar(&format!("{part:.1}% of the frame budget"), &[("blue", part)])
    )
}

fn bottleneck(story: &Story<'_>) -> String {
    let sentence = escaped(&story.bottleneck());
    let time = story.shares().map(|Shares { training, waiting, other, preparing }| {
        let [training, waiting, other, preparing] =
            [training, waiting, other, preparing].map(|share| 100.0 * share);
        let parts = [
            ("training", "blue", training),
            ("waiting for batches", "orange", waiting),
            ("publishing, recording, checkpoints", "green", other),
        ];
        let words = parts.map(|(name, _, part)| format!("{name} {part:.0}%")).join(", ");
        let entry = |(name, ink, part): (&str, &str, f64)| {
            format!("<li><span class=\"swatch ink-{ink}\"></span>{name} {part:.0}%</li>\n")
        };
        format!(
            "{}<ul>\n{}<li>in parallel: sampling, decoding and assembling batches {preparing:.0}%</li>\n</ul>\n",
            bar(
                &format!("The training thread in the last minute: {words}"),
                &parts.map(|(_, ink, part)| (ink, part))
            ),
            parts.map(entry).concat(),
        )
    });
    format!(
        "<section class=\"card waits\">\n<h2>Bottleneck in the last minute</h2>\n<p>{sentence}</p>\n{}</section>\n",
        time.unwrap_or_default()
    )
}

/// A bar of parts in percent.
fn bar(text: &str, parts: &[(&str, f64)]) -> String {
    let mut at = 0.0;
    let mut rectangles = String::new();
    for (ink, part) in parts.iter().filter(|(_, part)| *part > 0.0) {
        rectangles += &format!(
            "<rect class=\"ink-{ink}\" fill=\"currentColor\" x=\"{at:.2}\" y=\"0\" width=\"{part:.2}\" height=\"1\"/>"
        );
        at += part;
    }
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" class=\"bar\" viewBox=\"0 0 100 1\" preserveAspectRatio=\"none\" \
         role=\"img\"><title>{}</title>{rectangles}</svg>\n",
        escaped(text)
    )
}

fn card(chart: &Chart) -> String {
    // Drawing fails only if the built-in font can't be read.
    let picture = chart.element().unwrap_or_else(|error| format!("<p>{}</p>", escaped(&error.to_string())));
    format!("<section class=\"card\">\n<h2>{}</h2>\n{picture}</section>\n", chart.heading)
}
