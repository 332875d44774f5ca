//! The page as a browser gets it: complete, well-formed, and correct for extreme figures.

use page::{History, Sample, html};
use replay::ReplayStatus;
use roxmltree::{Document, Node};
use run::curve::CurvePoint;
use settings::{Layers, Resolved};

fn resolved(flags: &[(&str, &str)]) -> Resolved {
    let flags = flags.iter().map(|(key, text)| ((*key).into(), (*text).into())).collect();
    Layers { flags, ..Layers::default() }.resolve(Some("space_invaders")).unwrap()
}

/// A run that trains at 400 frames and 25 updates a second.
fn history(seconds: u32) -> History {
    let mut history = History::new();
    history.shards = 2;
    for second in 0..seconds {
        let (seconds, count) = (f64::from(second), u64::from(second));
        history.push(Sample {
            seconds,
            frames: 400 * count,
            updates: 25 * count,
            waited: 0.2 * seconds,
            trained: 0.7 * seconds,
            prepared: 0.3 * seconds,
            training_score: Some(181.5),
            actors: 1,
            evaluators: 1,
            replay: ReplayStatus {
                shards: 2,
                items: 100 * count,
                bytes: 31_000 * count,
                samples_per_insert: Some(7.96),
                ..ReplayStatus::default()
            },
        });
    }
    history.evaluations = vec![
        CurvePoint { frames: 0.0, mean: 148.0, error: 12.0 },
        CurvePoint { frames: 40_000.0, mean: 302.25, error: 20.0 },
    ];
    history
}

/// Parses the page, and checks what holds for every page.
fn checked(page: &str, check: impl FnOnce(&Document<'_>)) {
    let body = page.strip_prefix("<!DOCTYPE html>\n").expect("it is HTML");
    let document = Document::parse(body).unwrap_or_else(|error| panic!("{error}\n{page}"));
    let elements = || document.descendants().filter(Node::is_element);
    let mut ids: Vec<&str> = elements().filter_map(|element| element.attribute("id")).collect();
    let all = ids.len();
    ids.sort_unstable();
    ids.dedup();
    assert_eq!(ids.len(), all, "an id is there twice");
    for picture in elements().filter(|element| element.has_tag_name(("http://www.w3.org/2000/svg", "svg"))) {
        assert_eq!(picture.attribute("role"), Some("img"));
        assert!(picture.first_element_child().is_some_and(|first| first.tag_name().name() == "title"));
        let named = picture.attribute("aria-labelledby").unwrap_or_default().split(' ');
        assert!(named.filter(|id| !id.is_empty()).all(|id| ids.contains(&id)));
    }
    for element in elements() {
        for name in ["src", "href"] {
            let target = element.attribute(name).unwrap_or_default();
            assert!(!target.contains("//"), "it loads {target}");
        }
    }
    for word in ["NaN", ">inf", "\"inf", "inf%"] {
        assert!(!page.contains(word), "{word} in {}", &page[page.find("<main>").unwrap()..]);
    }
    assert!(page.len() < 200_000, "{} bytes", page.len());
    check(&document);
}

fn texts(document: &Document<'_>, tag: &str) -> Vec<String> {
    let found = document.descendants().filter(|element| element.tag_name().name() == tag);
    found
        .map(|element| {
            element.descendants().filter_map(|node| node.text().filter(|_| node.is_text())).collect()
        })
        .collect()
}

const HEADINGS: [&str; 7] = [
    "Bottleneck in the last minute",
    "Frames per second",
    "Updates per second",
    "Score per game",
    "Samples per insert",
    "Replay usage",
    "Where the learner's time goes",
];

#[test]
fn every_panel_shows_the_runs_figures() {
    checked(&html(&resolved(&[("frames", "1M")]), &history(200)), |document| {
        assert_eq!(texts(document, "h2"), HEADINGS);
        assert_eq!(texts(document, "h1"), ["Space Invaders training"]);
        assert_eq!(texts(document, "title")[0], "7% · Space Invaders · Quiver");
        let values = texts(document, "dd");
        let expected = [
            "400",
            "79,600 frames so far",
            "25",
            "4,975 updates so far",
            "302",
            "best 302 · training 182",
            "7.96",
            "target 8",
            "1.99% full",
            "19,900 items · 6.17 MB",
            "1 of 2 actors",
            "2 shards · 1 evaluator",
        ];
        assert_eq!(values, expected);
        let paragraphs = texts(document, "p");
        assert!(paragraphs.iter().any(|text| text.contains("about 38 min 21 s left")), "{paragraphs:?}");
        assert!(
            paragraphs.iter().any(|text| text.contains("actors and learner keep pace")),
            "{paragraphs:?}"
        );
        let entries = texts(document, "li");
        assert_eq!(entries[..2], ["training 70%", "waiting for batches 20%"]);
    });
}

#[test]
fn charts_have_text_alternatives() {
    checked(&html(&resolved(&[]), &history(200)), |document| {
        let texts = texts(document, "desc");
        assert_eq!(texts[0], "Now 400; in 3 min 19 s between 400 and 400.");
        assert!(
            texts[2].starts_with("2 evaluations; the latest is 302 ± 20 at frame 40,000."),
            "{}",
            texts[2]
        );
        assert!(texts[3].starts_with("The target is 8. Now 7.96"), "{}", texts[3]);
        assert!(
            texts[5].contains("training: Now 70;") && texts[5].contains("waiting: Now 20;"),
            "{}",
            texts[5]
        );
    });
}

#[test]
fn a_page_before_the_first_sample_has_every_panel() {
    checked(&html(&resolved(&[]), &History::new()), |document| {
        assert_eq!(texts(document, "h2"), HEADINGS);
        assert_eq!(texts(document, "h1"), ["Space Invaders starting"]);
    });
    checked(&html(&resolved(&[("samples_per_insert", "none")]), &history(1)), |document| {
        assert_eq!(texts(document, "h2"), HEADINGS);
        assert!(texts(document, "dd").contains(&"no target".into()));
    });
}

#[test]
fn nan_and_huge_figures_are_shown_without_harm() {
    let mut history = history(50);
    history.past_scores = vec![(f64::NAN, 1.0), (0.0, f64::NEG_INFINITY), (5.0, 1e308)];
    history.evaluations = vec![
        CurvePoint { frames: 1e18, mean: f64::MAX, error: f64::INFINITY },
        CurvePoint { frames: f64::NAN, mean: f64::NAN, error: f64::NAN },
    ];
    let (most, nan) = (u64::MAX, f64::NAN);
    let ratio = |ratio| ReplayStatus { samples_per_insert: Some(ratio), ..ReplayStatus::default() };
    history.push(Sample {
        seconds: 60.0,
        frames: most,
        updates: most,
        replay: ReplayStatus { items: most, bytes: most, ..ReplayStatus::default() },
        ..Sample::default()
    });
    history.push(Sample {
        seconds: 61.0,
        waited: nan,
        trained: nan,
        prepared: nan,
        replay: ratio(nan),
        ..Sample::default()
    });
    history.push(Sample {
        seconds: nan,
        replay: ratio(f64::INFINITY),
        training_score: Some(-1e300),
        ..Sample::default()
    });
    checked(&html(&resolved(&[]), &history), |document| assert_eq!(texts(document, "h2"), HEADINGS));
    history.push(Sample {
        seconds: 1e12,
        actors: u32::MAX,
        replay: ReplayStatus { shards: u32::MAX, ..ReplayStatus::default() },
        ..Sample::default()
    });
    checked(&html(&resolved(&[]), &history), |document| assert_eq!(texts(document, "h2"), HEADINGS));
}

#[test]
fn the_text_of_a_blocked_learner_is_escaped() {
    let mut history = History::new();
    let blocked_on = Some("<script>alert(\"x\")</script> & more".to_owned());
    history
        .push(Sample { replay: ReplayStatus { blocked_on, ..ReplayStatus::default() }, ..Sample::default() });
    let page = html(&resolved(&[]), &history);
    assert!(!page.contains("alert(\""), "{page}");
    checked(&page, |document| {
        assert!(
            texts(document, "p").iter().any(|text| text.contains("<script>alert(\"x\")</script> & more"))
        );
    });
}

#[test]
fn a_long_run_is_no_larger_than_a_short_one() {
    let (short, long) = (html(&resolved(&[]), &history(300)), html(&resolved(&[]), &history(50_000)));
    assert!(long.len() < 2 * short.len(), "{} against {}", long.len(), short.len());
}
