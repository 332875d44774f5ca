//! The whole of figure 6 with a few lines of shell in the place of `quiver`: what is drawn of the records.

use std::fs;
use std::path::Path;
use std::sync::atomic::AtomicBool;

use run::command::{Sweep, Vary};
use sweep::Stopped;
use sweep::testing::{fake, started, sweep};
use value::Strategy;

use super::*;
use crate::options::Effort;

fn options(out: &Path) -> Options {
    Options { effort: Effort::Quick, seed: 4, out: out.to_owned() }
}

fn made(options: &Options, sweep: &Sweep, quiver: &Path) -> Result<Figure> {
    let claim = LockedSweep::new(&options.out, options.seed, sweep, quiver.to_owned())?;
    make(options, &claim, &AtomicBool::new(false), &mut SweepProgress::plain("fig6", &|_| {}))
}

#[test]
fn a_sweep_makes_every_run_once_and_draws_them() {
    let folder = tempfile::tempdir().unwrap();
    let options = options(&folder.path().join("out"));
    let quiver = fake(folder.path(), "");
    let figure = made(&options, &sweep(5_000), &quiver).unwrap();
    assert_eq!(started(folder.path()).len(), 6);
    assert!(figure.claims.iter().all(|claim| claim.verdict == Verdict::Open), "{:?}", figure.claims);
    assert!(figure.about.contains("says nothing of which is better"));
    let rows = fs::read_to_string(options.out.join("fig6.csv")).unwrap();
    assert!(rows.starts_with("game,strategy,seed,frames,mean,stderr\ncartpole,uniform,4,0,1,1\n"), "{rows}");
    assert!(rows.contains("cartpole,ver,5,500,35,1"), "{rows}");
    let gains = fs::read_to_string(options.out.join("fig6_gains.csv")).unwrap();
    // Seeds 4 and 5: 34.5 over 14.5.
    assert!(gains.contains(&format!("ver,uniform,relative,1,{}", 100.0 * (34.5 - 14.5) / 14.5)), "{gains}");
    assert!(options.out.join("fig6.svg").is_file());
}

#[test]
fn a_stopped_sweep_draws_the_runs_that_there_are() {
    let folder = tempfile::tempdir().unwrap();
    let options = options(&folder.path().join("out"));
    let sweep = sweep(5_000);
    let claim = LockedSweep::new(&options.out, options.seed, &sweep, fake(folder.path(), "")).unwrap();
    let stopped = make(&options, &claim, &AtomicBool::new(true), &mut SweepProgress::plain("fig6", &|_| {}));
    assert!(stopped.unwrap_err().downcast_ref::<Stopped>().is_some_and(|stopped| !stopped.killed));
    assert!(options.out.join("fig6.json").is_file());
    assert_eq!(started(folder.path()).len(), 0);
}

#[test]
fn a_sweep_is_named_after_what_it_trains() {
    let title = |games: &[&str], strategies: &[Strategy]| {
        let games = games.iter().map(|&game| game.to_owned()).collect();
        title(&Sweep { games, vary: vec![Vary::strategies(strategies)], ..sweep(5_000) })
    };
    let nine = NINE.each_ref().map(|known| known.game);
    assert_eq!(title(&nine, &Strategy::PAPER), "Atari: uniform, prioritized and valuable replay");
    assert_eq!(title(&nine[..4], &[Strategy::VER]), "4 games: valuable replay");
    let two = title(&["ms_pacman", "space_invaders"], &[Strategy::UNIFORM, Strategy::REAPER]);
    assert_eq!(two, "Ms Pacman and Space Invaders: uniform and ReaPER replay");
    assert_eq!(title(&["cartpole"], &[Strategy::PER]), "CartPole: prioritized replay");
}

#[test]
fn only_the_papers_own_experiment_can_decide() {
    let gain = |measure, interval, games| Gain {
        a: Strategy::VER,
        b: Strategy::PER,
        measure,
        games,
        value: 5.0,
        interval,
        paper: None,
    };
    let both = |arithmetic, geometric, games, frames, seeds, preset: &str| {
        let gains =
            [gain(Measure::Relative, arithmetic, games), gain(Measure::RelativeGeometric, geometric, games)];
        let sweep = Sweep { seeds, preset: Some(preset.to_owned()), ..sweep(5_000) };
        verdict(&gains.each_ref(), frames, &sweep)
    };
    let paper =
        |interval, games, frames, seeds| both(interval, interval, games, frames, seeds, "paper-atari");
    assert_eq!(paper(Some((1.0, 9.0)), 9, FRAMES, 5), Verdict::Holds);
    assert_eq!(paper(Some((-9.0, -1.0)), 9, FRAMES, 5), Verdict::Fails);
    assert_eq!(paper(Some((-1.0, 9.0)), 9, FRAMES, 5), Verdict::Open);
    assert_eq!(paper(Some((1.0, 9.0)), 9, FRAMES, 4), Verdict::Open, "too few seeds");
    assert_eq!(paper(Some((1.0, 9.0)), 2, FRAMES, 5), Verdict::Open);
    assert_eq!(paper(Some((1.0, 9.0)), 9, 200_000, 5), Verdict::Open);
    assert_eq!(paper(None, 9, FRAMES, 5), Verdict::Open);
    let other = Some((1.0, 9.0));
    assert_eq!(both(other, other, 9, FRAMES, 5, "quick"), Verdict::Open);
    assert_eq!(
        both(other, Some((-1.0, 9.0)), 9, FRAMES, 5, "paper-atari"),
        Verdict::Open,
        "the means differ"
    );
}
