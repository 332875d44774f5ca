//! Plays one game and records it as a video.

use std::path::Path;

use actor::evaluation::{Game, GameEnd};
use anyhow::Result;
use run::command::TrainedAgent;

use crate::evaluate::{EvaluationSetup, LoadedAgent};
use crate::video::Video;
use run::output::print_line;

/// Executes `quiver play`.
pub fn play(agent: &TrainedAgent, path: &Path, steps_max: u64) -> Result<()> {
    let trained = LoadedAgent::load(agent)?;
    let setup = EvaluationSetup::new(&trained.resolved, agent.seed);
    let mut game = Game::start(&setup.games(), 0)?;
    let entry = envs::find(&trained.resolved.game)?;
    let rate = entry.frames_per_second / f64::from(trained.spec.frames_per_step);
    let mut video = Video::create(path, &game.render(), rate)?;
    let bar = crate::progress::counter(steps_max, "agent steps");
    let mut steps = 0;
    let mut done = false;
    while !done && steps < steps_max {
        video.add(&game.render())?;
        let q = trained.agent.q_rows(&trained.network, game.state(), 1);
        done = game.act(&*trained.agent, trained.behaviour(), &q);
        steps += 1;
        bar.set_position(steps);
    }
    video.add(&game.render())?;
    bar.finish_and_clear();
    let written = video.finish()?;
    let ended = match game.end() {
        Some(GameEnd::Terminated) => "terminated",
        Some(GameEnd::TimeLimit) => "time limit",
        None => "stopped by --steps-max",
    };
    print_line(&format!("score {} after {steps} agent steps ({ended}); {written}", game.score()));
    Ok(())
}
