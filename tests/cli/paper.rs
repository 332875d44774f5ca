//! `quiver paper`: the command that it passes on, and its errors.

use run::command::{Command, PaperCommand, PaperFigure};

use crate::fakes;
use crate::halves::ECHO;
use crate::sandbox::Sandbox;

fn command(sandbox: &Sandbox, words: &[&str]) -> PaperCommand {
    let ran = sandbox.quiver(words);
    let Command::Paper(command) = serde_json::from_str(ran.stdout()).unwrap() else { panic!("{}", ran.out) };
    command
}

#[test]
fn a_figure_is_passed_on_with_its_options() {
    let sandbox = Sandbox::new();
    sandbox.program("quiver-paper", ECHO);
    let command = command(&sandbox, &["paper", "fig4", "--full", "--seed", "7", "--out", "here/and/there"]);
    assert_eq!((command.figure, command.full, command.seed), (PaperFigure::Fig4, true, 7));
    assert_eq!((command.out.to_str(), command.sweep), (Some("here/and/there"), None));
    assert_eq!(sandbox.left(), [""; 0], "quiver-paper creates the folder");
}

#[test]
fn a_sweep_is_passed_on_with_its_runs() {
    let sandbox = Sandbox::new();
    sandbox.install_lockstep(ECHO);
    fakes::install_idle(&sandbox);
    sandbox.program("quiver-paper", ECHO);
    let words =
        ["paper", "fig6", "--games", "cartpole", "--preset", "cartpole", "--seeds", "3", "--frames", "5k"];
    let sweep = command(&sandbox, &words).sweep.unwrap();
    assert_eq!((sweep.strategies().len(), sweep.seeds, sweep.games), (3, 3, vec!["cartpole".to_owned()]));
    assert!(sweep.flags.contains(&("frames".to_owned(), "5000".to_owned())), "{:?}", sweep.flags);
}

#[test]
fn a_missing_program_is_reported() {
    let sandbox = Sandbox::new();
    sandbox.quiver(&["paper", "fig1"]).refused_for(&["quiver-paper is missing"]);
    sandbox.program("quiver-paper", ECHO);
    // A sweep needs the whole service.
    let ran = sandbox.quiver(&["paper", "fig6", "--games", "cartpole", "--preset", "cartpole"]);
    ran.refused_for(&["quiver-lockstep is missing"]);
    assert_eq!(sandbox.left(), [""; 0]);
}

#[test]
fn help_lists_the_figures() {
    let sandbox = Sandbox::new();
    let ran = sandbox.quiver(&["paper", "--help"]);
    for word in ["fig1", "fig6", "all", "Examples:\n  quiver paper fig1"] {
        assert!(ran.stdout().contains(word), "{word}: {}", ran.out);
    }
    assert!(sandbox.quiver(&["paper", "fig6", "--help"]).stdout().contains("--strategies"));
}
