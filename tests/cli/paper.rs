//! `quiver paper`: what it hands over, and what it refuses.

use run::order::{Order, PaperFigure, PaperOrder};

use crate::fakes;
use crate::halves::ECHO;
use crate::place::Place;

fn order(place: &Place, words: &[&str]) -> PaperOrder {
    let ran = place.quiver(words);
    let Order::Paper(order) = serde_json::from_str(ran.said()).unwrap() else { panic!("{}", ran.out) };
    order
}

#[test]
fn a_figure_is_handed_over_with_what_was_asked() {
    let place = Place::new();
    place.program("quiver-paper", ECHO);
    let order = order(&place, &["paper", "fig4", "--full", "--seed", "7", "--out", "here/and/there"]);
    assert_eq!((order.figure, order.full, order.seed), (PaperFigure::Fig4, true, 7));
    assert_eq!((order.out.to_str(), order.sweep), (Some("here/and/there"), None));
    assert_eq!(place.left(), [""; 0], "the folder is the other half's to make");
}

#[test]
fn a_sweep_is_handed_over_with_its_runs() {
    let place = Place::new();
    place.other_half(ECHO);
    fakes::install_idle(&place);
    place.program("quiver-paper", ECHO);
    let words =
        ["paper", "fig6", "--games", "cartpole", "--preset", "cartpole", "--seeds", "3", "--frames", "5k"];
    let sweep = order(&place, &words).sweep.unwrap();
    assert_eq!((sweep.games, sweep.seeds, sweep.strategies.len()), (vec!["cartpole".to_owned()], 3, 3));
    assert!(sweep.flags.contains(&("frames".to_owned(), "5000".to_owned())), "{:?}", sweep.flags);
}

#[test]
fn a_missing_program_is_to_be_built() {
    let place = Place::new();
    assert!(place.quiver(&["paper", "fig1"]).refused().contains("quiver-paper is missing"));
    place.program("quiver-paper", ECHO);
    let ran = place.quiver(&["paper", "fig6", "--games", "cartpole", "--preset", "cartpole"]);
    assert!(
        ran.refused().contains("quiver-lockstep is missing"),
        "a sweep needs the whole service: {}",
        ran.err
    );
    assert_eq!(place.left(), [""; 0]);
}

#[test]
fn help_says_which_figures_there_are() {
    let place = Place::new();
    let ran = place.quiver(&["paper", "--help"]);
    for word in ["fig1", "fig6", "all", "Examples:\n  quiver paper fig1"] {
        assert!(ran.said().contains(word), "{word}: {}", ran.out);
    }
    assert!(place.quiver(&["paper", "fig6", "--help"]).said().contains("--strategies"));
}
