//! Needs ROMs. FIRE in Breakout, where the ball waits for it, through a lane and an evaluation.

use actor::Rules;
use actor::evaluation::{EvaluationGames, Game};
use actor::lane::{EpisodeEnd, Lane};
use agents::Behaviour;
use envs::Image;
use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;
use replay::{Chunk, LaneKey, WeightsVersion};
use settings::Settings;
use settings::choices::PressFire;

/// Enough steps without an action to lose all five balls, if they are in play.
const STEPS: usize = 1_500;

fn settings(press_fire: PressFire) -> Settings {
    let mut settings = Settings::paper();
    settings.press_fire = press_fire;
    settings.life_loss_refills = press_fire == PressFire::Lives;
    settings
}

fn lane(settings: &Settings, rules: &Rules) -> Lane {
    let environment = envs::make("breakout", &settings.environment(), 1).unwrap();
    Lane::new(LaneKey { actor: 0, incarnation: 0, lane: 0 }, environment, ChaCha8Rng::seed_from_u64(1), rules)
}

/// A step of doing nothing, or at random.
fn act(lane: &mut Lane, rules: &Rules, behaviour: Behaviour) -> (Option<EpisodeEnd>, Option<Chunk>) {
    let q = [1.0, 0.0, 0.0, 0.0];
    let (_, end) = lane.act(rules, behaviour, WeightsVersion::default(), &q, |_| q.to_vec()).unwrap();
    (end, lane.take_chunk())
}

/// Lives lost and games ended by an agent that does nothing.
fn idle(press_fire: PressFire) -> (usize, usize) {
    let settings = settings(press_fire);
    let rules = Rules::new(&settings);
    let mut lane = lane(&settings, &rules);
    let (mut lost, mut ended) = (0, 0);
    for _ in 0..STEPS {
        let (end, chunk) = act(&mut lane, &rules, Behaviour::Greedy);
        let taken = chunk.into_iter().flat_map(|chunk| chunk.steps).filter_map(|step| step.taken);
        lost += taken.filter(|taken| taken.life_lost).count();
        ended += usize::from(end.is_some());
        if ended > 0 {
            break;
        }
    }
    (lost, ended)
}

#[test]
fn an_idle_agent_loses_every_ball_that_fire_has_put_into_play() {
    assert_eq!(idle(PressFire::Never), (0, 0), "the ball waits");
    assert_eq!(idle(PressFire::Games), (1, 0), "the first ball is lost, the second waits");
    // Four lost lives, and the fifth ends the game.
    assert_eq!(idle(PressFire::Lives), (4, 1));
}

#[test]
fn the_ball_is_in_play_when_an_evaluation_game_starts() {
    let settings = settings(PressFire::Lives);
    let (options, agent) = (settings.environment(), agents::agent(&settings));
    let picture_after = |press_fire, steps| -> Image {
        let games = EvaluationGames {
            game: "breakout",
            options: &options,
            stack: 4,
            press_fire,
            seed: 1,
            threads: 1,
        };
        let mut game = Game::start(&games, 0).unwrap();
        for _ in 0..steps {
            game.act(&*agent, Behaviour::Greedy, &[1.0, 0.0, 0.0, 0.0]);
        }
        game.render()
    };
    // Without FIRE nothing moves; with it the ball is in another place after each step.
    assert!(picture_after(false, 5) == picture_after(false, 6));
    assert!(picture_after(true, 5) != picture_after(true, 6));
}

#[test]
fn a_saved_lane_repeats_every_lost_life_and_fire_exactly() {
    let mut settings = settings(PressFire::Lives);
    settings.sticky_actions = 0.25;
    let rules = Rules::new(&settings);
    let mut straight = lane(&settings, &rules);
    let mut seen = Vec::new();
    let mut saved = vec![(0, straight.save().unwrap())];
    for step in 1..=600 {
        let (end, chunk) = act(&mut straight, &rules, Behaviour::Random);
        let is_lost =
            chunk.iter().flat_map(|chunk| &chunk.steps).any(|step| step.taken.is_some_and(|t| t.life_lost));
        seen.push((end, chunk, straight.state().to_vec()));
        if is_lost || end.is_some() {
            saved.push((step, straight.save().unwrap()));
        }
    }
    assert!(saved.len() > 6, "lives and games were lost: {}", saved.len());
    for (at, bytes) in saved {
        let mut restored = lane(&settings, &rules);
        restored.restore(&bytes).unwrap();
        for expected in &seen[at..(at + 60).min(seen.len())] {
            let (end, chunk) = act(&mut restored, &rules, Behaviour::Random);
            assert!((end, chunk, restored.state().to_vec()) == *expected, "saved after step {at}");
        }
    }
}
