//! FIRE, and the frame stack after a lost life, in an environment that records what is done to it.

use std::sync::{Arc, Mutex};

use actor::evaluation::{EvaluationGames, Game};
use actor::lane::{EpisodeEnd, Lane};
use actor::{Rules, fire};
use agents::Behaviour;
use envs::{Element, EnvError, Environment, Image, Observation, Spec, StepOutcome};
use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;
use replay::{Chunk, LaneKey, Step, Store, StoreOptions, WeightsVersion, testing};
use settings::Settings;
use settings::choices::{PressFire, TerminationReward};

const CONTINUES: StepOutcome =
    StepOutcome { reward: 1.0, terminated: false, truncated: false, life_lost: false, frames: 4 };
const LIFE_LOST: StepOutcome = StepOutcome { life_lost: true, ..CONTINUES };
const OVER: StepOutcome = StepOutcome { terminated: true, ..CONTINUES };
const CUT: StepOutcome = StepOutcome { truncated: true, ..CONTINUES };

/// What the environment was asked to do, in order: an action, or a reset.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Asked {
    Reset,
    Step(usize),
}
use Asked::{Reset, Step as Pressed};

/// The agent's only action; 0, 1 and 2 are no-op, FIRE and the action after it.
const AGENT: usize = 3;
const ACTIONS: [&str; 4] = ["noop", "fire", "right", "left"];

/// Frame n contains the number n. The script lists the outcome of each step, the agent's or not; afterwards the game continues.
struct Scripted {
    spec: Spec,
    script: Vec<StepOutcome>,
    at: usize,
    shown: [u8; 1],
    asked: Arc<Mutex<Vec<Asked>>>,
}

impl Environment for Scripted {
    fn spec(&self) -> &Spec {
        &self.spec
    }
    fn reset(&mut self) {
        self.asked.lock().unwrap().push(Reset);
        self.shown[0] += 1;
    }
    fn step(&mut self, action: usize) -> StepOutcome {
        self.asked.lock().unwrap().push(Pressed(action));
        self.shown[0] += 1;
        self.at += 1;
        self.script.get(self.at - 1).copied().unwrap_or(CONTINUES)
    }
    fn observation(&self) -> &[u8] {
        &self.shown
    }
    fn render(&mut self) -> Image {
        Image { width: 1, height: 1, rgb: vec![0; 3] }
    }
    fn save(&self) -> Option<Vec<u8>> {
        Some(vec![self.at as u8, self.shown[0]])
    }
    fn restore(&mut self, state: &[u8]) -> Result<(), EnvError> {
        (self.at, self.shown[0]) = (state[0].into(), state[1]);
        Ok(())
    }
}

/// An environment with that script and action set, and the record of what it is asked.
fn scripted(script: &[StepOutcome], actions: &[&str]) -> (Box<Scripted>, Arc<Mutex<Vec<Asked>>>) {
    let asked = Arc::new(Mutex::new(Vec::new()));
    let observation = Observation { element: Element::U8, shape: vec![1] };
    let actions = actions.iter().map(|name| (*name).to_owned()).collect();
    let spec = Spec { game: "scripted".into(), actions, observation, frames_per_step: 4 };
    let environment =
        Scripted { spec, script: script.to_vec(), at: 0, shown: [0], asked: Arc::clone(&asked) };
    (Box::new(environment), asked)
}

fn settings(press_fire: PressFire) -> Settings {
    let mut settings = Settings::paper();
    settings.press_fire = press_fire;
    settings.life_loss_refills = press_fire == PressFire::Lives;
    settings.frame_codec = replay::codec::Codec::None;
    settings.frame_stack = 3;
    settings
}

fn lane(environment: Box<Scripted>, rules: &Rules) -> Lane {
    let key = LaneKey { actor: 0, incarnation: 0, lane: 0 };
    Lane::new(key, environment, ChaCha8Rng::seed_from_u64(1), rules)
}

fn act(lane: &mut Lane, rules: &Rules) -> (u32, Option<EpisodeEnd>) {
    let q = [0.0, 0.0, 0.0, 1.0];
    lane.act(rules, Behaviour::Greedy, WeightsVersion::default(), &q, |_| q.to_vec()).unwrap()
}

/// Takes `steps` agent steps and returns the ends of games.
fn play(lane: &mut Lane, rules: &Rules, steps: usize) -> Vec<EpisodeEnd> {
    (0..steps).filter_map(|_| act(lane, rules).1).collect()
}

/// All steps, each with its frame of one byte.
fn steps(chunk: &Chunk) -> Vec<(u8, Step)> {
    chunk.frames.iter().copied().zip(chunk.steps.iter().copied()).collect()
}

#[test]
fn training_presses_fire_when_a_game_starts_and_after_a_noop_when_a_life_is_lost() {
    // Two presses, two agent steps, three steps after the lost life, an agent step that ends the game.
    let script = [
        CONTINUES, CONTINUES, CONTINUES, LIFE_LOST, CONTINUES, CONTINUES, CONTINUES, OVER, CONTINUES,
        CONTINUES,
    ];
    let (environment, asked) = scripted(&script, &ACTIONS);
    let rules = Rules::new(&settings(PressFire::Lives));
    let mut lane = lane(environment, &rules);
    let ends = play(&mut lane, &rules, 4);
    let [fire, next] = [Pressed(1), Pressed(2)];
    let expected = [
        fire,
        next,
        Pressed(AGENT),
        Pressed(AGENT),
        Pressed(0),
        fire,
        next,
        Pressed(AGENT),
        Reset,
        fire,
        next,
        Pressed(AGENT),
    ];
    assert_eq!(*asked.lock().unwrap(), expected);
    // Each of the eight steps of the first game gave a point; three of them were the agent's.
    assert_eq!(ends, [EpisodeEnd { score: 8.0, steps: 3, truncated: false }]);
}

#[test]
fn fire_between_games_only_leaves_lost_lives_to_the_agent() {
    let (environment, asked) = scripted(&[CONTINUES, CONTINUES, LIFE_LOST, OVER], &ACTIONS);
    let rules = Rules::new(&settings(PressFire::Games));
    let mut lane = lane(environment, &rules);
    let ends = play(&mut lane, &rules, 2);
    let start = [Pressed(1), Pressed(2)];
    assert_eq!(
        *asked.lock().unwrap(),
        [&start[..], &[Pressed(AGENT), Pressed(AGENT), Reset], &start].concat()
    );
    assert_eq!(ends, [EpisodeEnd { score: 4.0, steps: 2, truncated: false }]);
}

#[test]
fn nothing_is_pressed_in_games_without_fire_or_by_default() {
    for (press_fire, actions) in [
        (PressFire::Never, ACTIONS),
        (PressFire::Lives, ["noop", "up", "right", "left"]),
        (PressFire::Lives, ["noop", "left", "right", "fire"]),
    ] {
        let (environment, asked) = scripted(&[LIFE_LOST, OVER], &actions);
        let rules = Rules::new(&settings(press_fire));
        let mut lane = lane(environment, &rules);
        assert_eq!(play(&mut lane, &rules, 2).len(), 1);
        assert_eq!(*asked.lock().unwrap(), [Pressed(AGENT), Pressed(AGENT), Reset], "{actions:?}");
    }
    let (environment, _) = scripted(&[], &["noop", "fire"]);
    assert!(!fire::has_fire(environment.spec()), "there is no action 2");
}

#[test]
fn frames_of_presses_are_not_counted() {
    let (environment, _) = scripted(&[CONTINUES, CONTINUES, LIFE_LOST], &ACTIONS);
    let rules = Rules::new(&settings(PressFire::Lives));
    let mut lane = lane(environment, &rules);
    assert_eq!(act(&mut lane, &rules), (4, None));
}

#[test]
fn a_game_that_ends_after_a_lost_life_is_reported_and_the_next_one_starts_with_fire() {
    for (ending, truncated) in [(OVER, false), (CUT, true)] {
        // The game ends at FIRE, the second of the three steps after the lost life.
        let (environment, asked) = scripted(&[CONTINUES, CONTINUES, LIFE_LOST, CONTINUES, ending], &ACTIONS);
        let rules = Rules::new(&settings(PressFire::Lives));
        let mut lane = lane(environment, &rules);
        assert_eq!(play(&mut lane, &rules, 1), [EpisodeEnd { score: 5.0, steps: 1, truncated }]);
        let expected = [1, 2, AGENT, 0, 1].map(Pressed);
        assert_eq!(*asked.lock().unwrap(), [&expected[..], &[Reset, Pressed(1), Pressed(2)]].concat());
        act(&mut lane, &rules);
        let steps = steps(&lane.take_chunk().unwrap());
        let shown: Vec<_> =
            steps.iter().map(|(frame, step)| (*frame, step.taken.is_some(), step.starts_episode)).collect();
        assert_eq!(shown, [(2, true, true), (3, false, false), (8, true, true)]);
    }
}

#[test]
fn a_game_that_ends_while_it_is_started_is_reset_and_dropped() {
    for (script, expected) in [
        ([OVER, CONTINUES, OVER], [Pressed(1), Reset, Pressed(2)]),
        ([CONTINUES, CUT, OVER], [Pressed(1), Pressed(2), Reset]),
    ] {
        let (environment, asked) = scripted(&script, &ACTIONS);
        let rules = Rules::new(&settings(PressFire::Games));
        let mut lane = lane(environment, &rules);
        assert_eq!(*asked.lock().unwrap(), expected);
        let end = act(&mut lane, &rules).1.unwrap();
        // The points of the dropped game are not part of the next one's score.
        let of_next = expected.iter().skip_while(|asked| **asked != Reset).count() as f64;
        assert_eq!((end.score, end.steps), (of_next, 1));
    }
}

#[test]
fn a_lost_life_refills_the_frame_stack_only_if_asked() {
    let script = [CONTINUES, LIFE_LOST, CONTINUES];
    let state = |refills: bool, fires: PressFire| {
        let (environment, _) = scripted(&script, &ACTIONS);
        let mut settings = settings(fires);
        settings.life_loss_refills = refills;
        let rules = Rules::new(&settings);
        let mut lane = lane(environment, &rules);
        play(&mut lane, &rules, 2);
        lane.state().to_vec()
    };
    assert_eq!(state(false, PressFire::Never), [0, 1, 2]);
    assert_eq!(state(true, PressFire::Never), [2, 2, 2]);
    // Here the life is lost in the second press, which is not the agent's: nothing is refilled.
    assert_eq!(state(true, PressFire::Lives), [2, 3, 4]);
}

#[test]
fn a_life_that_refills_the_stack_ends_the_recorded_episode_and_not_the_game() {
    let (environment, _) = scripted(&[CONTINUES, LIFE_LOST, CONTINUES, OVER], &ACTIONS);
    let mut settings = settings(PressFire::Never);
    (settings.life_loss_refills, settings.n_step) = (true, 3);
    settings.termination_reward = TerminationReward(Some(-5.0));
    let rules = Rules::new(&settings);
    let mut lane = lane(environment, &rules);
    let ends = play(&mut lane, &rules, 4);
    assert_eq!(ends, [EpisodeEnd { score: 4.0, steps: 4, truncated: false }]);
    let chunk = lane.take_chunk().unwrap();
    let steps = steps(&chunk);
    let shown: Vec<_> =
        steps.iter().map(|(frame, step)| (*frame, step.taken.is_some(), step.starts_episode)).collect();
    // Frame 2, after the lost life, is both the last of an episode and the first of the next.
    assert_eq!(
        shown,
        [
            (0, true, true),
            (1, true, false),
            (2, false, false),
            (2, true, true),
            (3, true, false),
            (4, false, false)
        ]
    );
    let lost = steps[1].1.taken.unwrap();
    assert!(lost.terminated && lost.life_lost);
    assert_eq!(rules.returns.reward(&lost), 1.0, "termination_reward is for games that end");
    let spans: Vec<_> = chunk.items.iter().map(|item| (item.first, item.length)).collect();
    assert_eq!(spans, [(0, 2), (1, 1), (3, 2), (4, 1)], "no transition spans the lost life");

    let options = StoreOptions { stack: 3, frame_bytes: 1, ..testing::options() };
    let mut store = Store::new(options, 0).unwrap();
    store.insert(&chunk).unwrap();
    assert_eq!(store.tables()[0].len(), 4);
}

#[test]
fn a_restored_lane_continues_as_if_it_had_not_been_saved() {
    let life = [CONTINUES, CONTINUES, CONTINUES];
    let script = [&life[..], &[LIFE_LOST], &life, &[CONTINUES, LIFE_LOST], &life, &[OVER], &life].concat();
    let rules = Rules::new(&settings(PressFire::Lives));
    let start = || lane(scripted(&script, &ACTIONS).0, &rules);
    let run = |lane: &mut Lane, steps: usize| -> Vec<(Option<EpisodeEnd>, Option<Chunk>, Vec<u8>)> {
        (0..steps).map(|_| (act(lane, &rules).1, lane.take_chunk(), lane.state().to_vec())).collect()
    };
    let straight = run(&mut start(), 9);
    for stop in 0..9 {
        let mut first = start();
        let mut seen = run(&mut first, stop);
        let mut second = start();
        second.restore(&first.save().unwrap()).unwrap();
        seen.extend(run(&mut second, 9 - stop));
        assert_eq!(seen, straight, "stopped after {stop}");
    }
}

#[test]
fn evaluation_presses_fire_when_a_game_starts_and_not_after_a_lost_life() {
    let options = Settings::paper().environment();
    let agent = agents::agent(&Settings::paper());
    for (press_fire, presses) in [(true, &[1, 2][..]), (false, &[])] {
        let games = EvaluationGames {
            game: "scripted",
            options: &options,
            stack: 2,
            press_fire,
            seed: 1,
            threads: 1,
        };
        let script = [vec![CONTINUES; presses.len()], vec![LIFE_LOST, OVER]].concat();
        let (environment, asked) = scripted(&script, &ACTIONS);
        let mut game = Game::start_in(environment, &games, 0);
        assert_eq!(game.state(), [presses.len() as u8; 2], "the stack starts after the presses");
        let mut act = || game.act(&*agent, Behaviour::Greedy, &[0.0, 0.0, 0.0, 1.0]);
        assert_eq!([act(), act()], [false, true]);
        let pressed = presses.iter().chain(&[AGENT; 2]).map(|&action| Pressed(action));
        assert_eq!(*asked.lock().unwrap(), pressed.collect::<Vec<_>>());
        assert_eq!(game.score(), (presses.len() + 2) as f64);
    }
}
