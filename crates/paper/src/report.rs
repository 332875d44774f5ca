//! What came out, for people: `report.html`, one file with everything in it, and `report.md`.
//!
//! Both are made of the `figN.json` that figures leave behind, whichever of them there are. So each figure can be made
//! alone, in any order, on different days, and the report is always of all that is there.

mod base64;
mod html;
mod markdown;

use std::path::Path;

use anyhow::{Context, Result};

use crate::figure::{Figure, Verdict};
use crate::options::Options;

/// Names of all figures in the paper's order.
pub const NAMES: [&str; 6] = ["fig1", "fig2", "fig3", "fig4", "fig5", "fig6"];

/// A picture up to this size goes in as a drawing, a larger one as pixels: tens of thousands of dots are slow to draw.
const DRAWING_BYTES_MAX: usize = 256 << 10;

/// Writes both files of whatever figures there are.
pub fn write(options: &Options) -> Result<()> {
    let mut figures = Vec::new();
    for name in NAMES {
        figures.extend(Figure::load(options, name)?);
    }
    let picture = |stem: &str| picture(options.out(), stem);
    options.write("report.html", html::page(&figures, &picture)?.as_bytes())?;
    options.write("report.md", markdown::page(&figures).as_bytes())?;
    Ok(())
}

/// A picture as an address that holds it whole.
fn picture(folder: &Path, stem: &str) -> Result<String> {
    let read = |ending: &str| {
        let path = folder.join(format!("{stem}.{ending}"));
        std::fs::read(&path).with_context(|| format!("can't read {}; make its figure again", path.display()))
    };
    let drawing = read("svg")?;
    let (kind, bytes) =
        if drawing.len() <= DRAWING_BYTES_MAX { ("svg+xml", drawing) } else { ("png", read("png")?) };
    Ok(format!("data:image/{kind};base64,{}", base64::encode(&bytes)))
}

fn verdict(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Holds => "holds",
        Verdict::Fails => "fails",
        Verdict::Open => "open",
    }
}

/// `quick, seed 0, took 12 s`.
fn conditions(figure: &Figure) -> String {
    let effort = figure.effort.name();
    format!("{effort}, seed {}, took {}", figure.seed, settings::units::duration(figure.seconds))
}

/// Which figures are missing, with the command that makes them.
fn missing(figures: &[Figure]) -> Vec<String> {
    let there = |name: &&str| figures.iter().any(|figure| figure.name == **name);
    NAMES.iter().filter(|name| !there(name)).map(|name| format!("quiver paper {name}")).collect()
}

/// Above both.
const TITLE: &str = "Revisiting Prioritized Experience Replay: A Value Perspective, measured";

/// Below the title.
const ABOUT: &str = "Every figure of the paper (Li, Lu, Miao, 2021) as Quiver reproduces it: what is claimed, by the paper or by us, beside what was \
                     measured. A claim holds, fails, or stays open because the experiment is too small to say. The bounds are true of \
                     every single update by construction: checking them checks arithmetic. Departures from the \
                     paper's text are listed in crates/paper/README.md.";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::options::Effort;

    fn figure(options: &Options) -> Figure {
        let mut figure = Figure::new("fig2", "A <b>title</b> & more", options);
        figure.about = "about".to_owned();
        figure.claim("|EVB| ≤ |TD|", "0 violations".to_owned(), Verdict::Holds);
        figure.table("Numbers", &["a|b", "c"], vec![vec!["1".to_owned(), "<2>".to_owned()]]);
        figure.setting("alpha", 1);
        figure
    }

    #[test]
    fn a_report_is_one_file_with_everything_in_it_and_nothing_unescaped() {
        let out = tempfile::tempdir().unwrap();
        let options = Options { effort: Effort::Quick, seed: 7, out: out.path().to_owned() };
        let mut made = figure(&options);
        let panel = plot::Panel::new("", plot::Axis::linear("x"), plot::Axis::linear("y"));
        let mut page = plot::Page::new("A picture", "");
        page.panels.push(panel.with(plot::Layer::curve(
            "",
            plot::Colour::Blue,
            vec![(0.0, 0.0, 0.1), (1.0, 1.0, 0.1)],
        )));
        made.picture(&options, "fig2", "what \"one\" sees", &page).unwrap();
        made.save(&options).unwrap();
        write(&options).unwrap();
        let html = std::fs::read_to_string(out.path().join("report.html")).unwrap();
        for text in [
            "A &lt;b&gt;title",
            "&lt;2&gt;",
            "data:image/svg+xml;base64,",
            "seed 7",
            "what &quot;one&quot; sees",
        ] {
            assert!(html.contains(text), "{text}");
        }
        assert!(!html.contains("<b>") && !html.contains("http"), "nothing from outside");
        let text = std::fs::read_to_string(out.path().join("report.md")).unwrap();
        assert!(text.contains("![what \"one\" sees](fig2.png)"), "{text}");
        assert!(text.contains("\\|EVB\\| ≤ \\|TD\\|") && text.contains("quiver paper fig1"), "{text}");
    }

    #[test]
    fn a_report_of_nothing_says_what_to_do() {
        let out = tempfile::tempdir().unwrap();
        let options = Options { effort: Effort::Quick, seed: 0, out: out.path().to_owned() };
        write(&options).unwrap();
        let html = std::fs::read_to_string(out.path().join("report.html")).unwrap();
        assert!(NAMES.iter().all(|name| html.contains(&format!("quiver paper {name}"))));
    }
}
