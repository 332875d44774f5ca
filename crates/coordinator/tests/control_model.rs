//! Rate control among shards, actors and a learner that come and go in any order.
//!
//! Seeds are fixed. What is compared after every turn is in `model`: each step counted once, the right reason to wait,
//! nothing drawn from too little, the ratio within its bound.

mod model;
mod shard_counts;

use coordinator::control::BlockedOn;
use model::{Config, Target, Way, World};
use rand::seq::IndexedRandom;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

/// Shapes of a run that differ in who waits for whom.
fn configs() -> Vec<Config> {
    let new = Config::new;
    vec![
        new(1, 8.0, 32),
        Config { chunk: 8, ..new(2, 8.0, 32) },
        // The paper's ratio and a buffer that is full when it is large enough.
        Config { capacity: 167, ..new(3, 8.0, 32) },
        // Fewer lanes than shards: two shards have no writer.
        Config { actors: 1, chunk: 8, ..new(4, 8.0, 32) },
        Config { actors: 1, lanes: 1, ..new(2, 128.0, 32) },
        Config { chunk: 8, ..new(3, 128.0, 128) },
        Config { chunk: 8, min_size: 128, capacity: 100, ..new(4, 0.5, 128) },
        Config { ratio: None, ..new(2, 1.0, 32) },
        Config { reorder: false, actor_turns: 6, learner_turns: 2, ..new(2, 0.5, 32) },
    ]
}

#[test]
fn after_every_pair_of_faults_in_every_order_progress_resumes() {
    for (number, config) in configs().into_iter().enumerate() {
        let targets = Target::all(config.shards);
        for first in &targets {
            for second in &targets {
                for (back, between) in [([first, second], 0), ([second, first], 0), ([first, second], 300)] {
                    let mut world = World::new(config, number as u64);
                    world.expect_progress(&"nothing");
                    world.stop(*first);
                    world.turns(between);
                    world.stop(*second);
                    world.turns(between);
                    world.start(*back[0]);
                    world.turns(between);
                    world.start(*back[1]);
                    world.expect_progress(&(first, second, back, between));
                    world.calm();
                    world.turns(500);
                }
            }
        }
    }
}

#[test]
fn faults_while_the_replay_fills_do_not_stall_it() {
    for (number, config) in configs().into_iter().enumerate() {
        for first in Target::all(config.shards) {
            for second in Target::all(config.shards) {
                let mut world = World::new(config, 100 + number as u64);
                world.turns(150);
                world.stop(first);
                world.turns(150);
                world.stop(second);
                world.turns(150);
                world.start(second);
                world.start(first);
                world.expect_progress(&(first, second));
            }
        }
    }
}

#[test]
fn after_any_long_story_progress_resumes() {
    for (number, config) in configs().into_iter().enumerate() {
        let targets = Target::all(config.shards);
        for seed in 0..20 {
            let mut rng = ChaCha8Rng::seed_from_u64(1000 * number as u64 + seed);
            let mut world = World::new(config, rng.random());
            let mut story = Vec::new();
            for chapter in 0..60 {
                let target = *targets.choose(&mut rng).unwrap();
                let starts = rng.random_bool(0.5);
                story.push((starts, target));
                if starts {
                    world.start(target);
                } else {
                    world.stop(target);
                }
                world.turns(rng.random_range(0..400));
                if chapter % 20 == 19 {
                    world.start_all();
                    world.expect_progress(&story);
                    world.calm();
                    world.turns(2_000);
                }
            }
        }
    }
}

/// The bound on the drift is checked after each of these turns. Over 5,000 updates, or more where the bound is more than
/// 1 % of what is drawn in them, the ratio is within 2 %.
#[test]
fn over_many_updates_the_ratio_is_what_was_asked_for() {
    let shapes = [(1, 3, 2), (2, 3, 2), (2, 1, 1), (3, 2, 1), (4, 3, 2), (4, 1, 2)];
    // Batch, chunk, and who is quick: both alike, or the actors.
    let loads = [(32, 1, 3, 3), (32, 8, 6, 1), (128, 1, 6, 1), (128, 8, 3, 3)];
    let mut seed = 0;
    for ratio in [0.5, 8.0, 128.0] {
        for (batch, chunk, actor_turns, learner_turns) in loads {
            for (shards, actors, lanes) in shapes {
                seed += 1;
                let config = Config::new(shards, ratio, batch);
                let config = Config { actors, lanes, chunk, capacity: 2000, ..config };
                holds_the_ratio(Config { actor_turns, learner_turns, ..config }, seed);
            }
        }
    }
}

fn holds_the_ratio(config: Config, seed: u64) {
    let ratio = config.ratio.unwrap();
    let bound = 4.0 * config.limiter().slack() + ratio * config.overdraw();
    let updates = 5_000.max((bound / 0.01 / config.batch as f64) as u64);
    let mut world = World::new(config, seed);
    world.expect_progress(&"nothing");
    world.calm();
    let before = (world.samples, world.inserts, world.updates);
    while world.updates < before.2 + updates {
        world.turn();
    }
    let got = (world.samples - before.0) as f64 / (world.inserts - before.1) as f64;
    assert!((got / ratio - 1.0).abs() < 0.02, "{got} of {config:?} after {updates} updates");
}

#[test]
fn a_shard_that_comes_back_empty_is_filled_again_and_owes_no_updates() {
    let config = Config { chunk: 8, ..Config::new(2, 8.0, 32) };
    let mut world = World::new(config, 7);
    world.expect_progress(&"nothing");
    world.calm();
    world.turns(20_000);
    // Each of the two is full and holds more than min_size by itself: the other one does without it.
    world.stop(Target::Shard(0, Way::Kill));
    world.turns(5_000);
    assert!(matches!(world.control().can_sample(), Ok(()) | Err(BlockedOn::Inserts { .. })));
    // Without both there is too little.
    world.stop(Target::Shard(1, Way::Kill));
    world.turns(2_000);
    let samples = world.samples;
    assert_eq!(world.control().can_sample(), Err(BlockedOn::Filling { items: 0, min_size: 500 }));
    world.start_all();
    let inserts = world.inserts;
    while world.samples == samples {
        world.turn();
    }
    // One batch was drawn as soon as there was enough for it, not more.
    assert_eq!(world.samples, samples + 32);
    assert!(world.inserts - inserts >= 500);
    world.expect_progress(&"both killed");
}

#[test]
fn all_steps_are_counted_once_if_all_were_heard() {
    for seed in 0..20 {
        let config = Config { chunk: 8, ..Config::new(3, 8.0, 32) };
        let targets = Target::all(config.shards);
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let mut world = World::new(config, seed);
        for _ in 0..60 {
            world.turns(rng.random_range(0..2_000));
            // Everything that is stored here is reported to the learner, which writes it into its checkpoint.
            world.calm();
            assert_eq!(world.control().agent_steps(), world.agent_steps);
            world.save_checkpoint();
            let target = *targets.choose(&mut rng).unwrap();
            world.stop(target);
            world.start(target);
        }
    }
}

#[test]
fn each_side_waits_for_the_one_that_is_gone() {
    let config = Config::new(2, 8.0, 32);
    let mut world = World::new(config, 9);
    world.expect_progress(&"nothing");
    world.stop(Target::Actors);
    world.turns(10_000);
    let Err(BlockedOn::Inserts { missing }) = world.control().can_sample() else { panic!("no actors") };
    assert!((1..=4).contains(&missing), "{missing}");
    world.start(Target::Actors);
    world.expect_progress(&"actors");

    // Without a learner, actors take what it had granted and no more.
    world.stop(Target::Learner);
    let inserts = world.inserts;
    world.turns(50_000);
    assert!((world.inserts - inserts) as f64 <= config.overdraw(), "{}", world.inserts - inserts);
    world.stop(Target::Shard(1, Way::Kill));
    world.start(Target::Learner);
    world.turns(1_000);
    assert_eq!(world.control().can_sample(), Err(BlockedOn::Shards(vec![1])));
    world.start_all();
    world.expect_progress(&"everything");
}
