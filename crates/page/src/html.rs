//! The page as one file: head, progress, figures, who waits for whom, pictures.
//!
//! It is written so that an XML parser reads it as well, which the tests use.

use plot::escaped;
use run::curve::display_name;
use settings::Resolved;
use settings::units::{duration, grouped};

use crate::History;
use crate::charts::{Chart, charts};
use crate::story::{Shares, State, Story};
use crate::tiles::{Tile, tiles};

const STYLE: &str = include_str!("style.css");
const SCRIPT: &str = include_str!("refresh.js");

/// The page of a run with these settings and this history.
pub fn html(resolved: &Resolved, history: &History) -> String {
    let story = Story { settings: &resolved.settings, history };
    let game = escaped(&display_name(&resolved.game));
    let percent = (100.0 * story.progress()).floor();
    let (head, progress, waits) = (head(resolved, &story), progress(&story), waits(&story));
    let tiles: String = tiles(&story).iter().map(Tile::element).collect();
    let charts: String = charts(&story).iter().map(card).collect();
    format!(
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\"/>\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\"/>\n\
         <meta name=\"color-scheme\" content=\"light dark\"/>\n<title>{percent}% · {game} · Quiver</title>\n\
         <noscript><meta http-equiv=\"refresh\" content=\"5\"/></noscript>\n<style>{STYLE}</style>\n</head>\n<body>\n\
         <p id=\"silence\" role=\"status\" hidden=\"hidden\"></p>\n<main>\n{head}{progress}\
         <dl class=\"tiles\">\n{tiles}</dl>\n{waits}<div class=\"charts\">\n{charts}</div>\n</main>\n\
         <footer>Quiver, drawn by the learner every few seconds. For programs: \
         <a href=\"metrics\">metrics</a>, <a href=\"healthz\">health</a>.</footer>\n\
         <script>{SCRIPT}</script>\n</body>\n</html>\n"
    )
}

fn head(resolved: &Resolved, story: &Story<'_>) -> String {
    let settings = &resolved.settings;
    let about = format!("{} with {} replay, seed {}", settings.algorithm, settings.strategy, settings.seed);
    let state = story.state();
    let look = match state {
        State::Training => "good",
        State::Waiting => "warn",
        State::Starting | State::Evaluating | State::Finished => "calm",
    };
    format!(
        "<header>\n<h1>{} <span class=\"state {look}\">{}</span></h1>\n<p>{} · learner up for {}</p>\n</header>\n",
        escaped(&display_name(&resolved.game)),
        state.words(),
        escaped(&about),
        duration(story.now().seconds),
    )
}

fn progress(story: &Story<'_>) -> String {
    let part = 100.0 * story.progress();
    let left = match (story.seconds_left(), story.state()) {
        (Some(seconds), State::Training | State::Waiting | State::Starting) => {
            format!("about {} left at this pace", duration(seconds))
        }
        (_, State::Evaluating) => "playing the final games".into(),
        (_, State::Finished) => "done".into(),
        _ => "time left unknown yet".into(),
    };
    let (frames, budget) = (grouped(story.now().frames), grouped(story.settings.frames.0));
    format!(
        "<section class=\"progress\" aria-label=\"Progress\">\n<p><span><b>{frames}</b> of {budget} frames ({part:.1}%)</span> \
         <span class=\"left\">{left}</span></p>\n{}</section>\n",
        bar(&format!("{part:.1}% of all frames are played"), &[("blue", part)])
    )
}

fn waits(story: &Story<'_>) -> String {
    let verdict = escaped(&story.verdict());
    let time = story.shares().map(|Shares { training, waiting, other, preparing }| {
        let [training, waiting, other, preparing] =
            [training, waiting, other, preparing].map(|share| 100.0 * share);
        let parts = [
            ("training", "blue", training),
            ("waiting for batches", "orange", waiting),
            ("weights, record, checkpoints", "green", other),
        ];
        let words = parts.map(|(name, _, part)| format!("{name} {part:.0}%")).join(", ");
        let entry = |(name, ink, part): (&str, &str, f64)| {
            format!("<li><span class=\"swatch ink-{ink}\"></span>{name} {part:.0}%</li>\n")
        };
        format!(
            "{}<ul>\n{}<li>beside it, sampling, unpacking and copying batches {preparing:.0}%</li>\n</ul>\n",
            bar(
                &format!("The training thread's last minute: {words}"),
                &parts.map(|(_, ink, part)| (ink, part))
            ),
            parts.map(entry).concat(),
        )
    });
    format!(
        "<section class=\"card waits\">\n<h2>Who waits for whom, in the last minute</h2>\n<p>{verdict}</p>\n{}</section>\n",
        time.unwrap_or_default()
    )
}

/// Parts of a hundred as a bar.
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
    // The font is built in; that it can't be read is not to be expected.
    let picture = chart.element().unwrap_or_else(|error| format!("<p>{}</p>", escaped(&error.to_string())));
    format!("<section class=\"card\">\n<h2>{}</h2>\n{picture}</section>\n", chart.heading)
}
