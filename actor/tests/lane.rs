//! Compares a lane's transitions with the episode that produced them, in an environment where every step is scripted.

use actor::Rules;
use agents::Behaviour;

use actor::lane::Lane;
use envs::{Element, EnvError, Environment, Image, Observation, Spec, StepOutcome};
use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;
use replay::{
    Chunk, InitialPriority, LaneKey, NewItem, Step, Store, StoreOptions, Taken, WeightsVersion, testing,
};
use settings::Settings;
use settings::choices::{NStepEntropy, RewardClip, TerminationReward};

/// Frame n contains the number n; the script defines the outcome of each step.
struct Scripted {
    spec: Spec,
    script: Vec<StepOutcome>,
    at: usize,
    shown: [u8; 1],
}

const CONTINUES: StepOutcome =
    StepOutcome { reward: 1.0, terminated: false, truncated: false, life_lost: false, frames: 4 };
const LIFE_LOST: StepOutcome = StepOutcome { life_lost: true, ..CONTINUES };
const OVER: StepOutcome = StepOutcome { terminated: true, ..CONTINUES };
const CUT: StepOutcome = StepOutcome { truncated: true, ..CONTINUES };

impl Scripted {
    fn new(script: &[StepOutcome]) -> Self {
        let observation = Observation { element: Element::U8, shape: vec![1] };
        let actions = vec!["a".into(), "b".into()];
        let spec = Spec { game: "scripted".into(), actions, observation, frames_per_step: 4 };
        Self { spec, script: script.to_vec(), at: 0, shown: [0] }
    }
}

impl Environment for Scripted {
    fn spec(&self) -> &Spec {
        &self.spec
    }
    fn reset(&mut self) {
        self.shown[0] += 1;
    }
    fn step(&mut self, _: usize) -> StepOutcome {
        self.shown[0] += 1;
        self.at += 1;
        StepOutcome { reward: self.at as f32, ..self.script[self.at - 1] }
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

fn settings(n_step: u32) -> Settings {
    let mut settings = Settings::paper();
    settings.n_step = n_step;
    settings.reward_clip = RewardClip::None;
    settings.random_steps.0 = 0;
    settings.frame_codec = replay::codec::Codec::None;
    settings.frame_stack = 2;
    settings.initial_priority = settings::choices::InitialPriority::Computed;
    settings
}

/// Q-values that identify their state.
fn q_of(state: &[u8]) -> Vec<f64> {
    vec![f64::from(*state.last().unwrap()) * 0.01, 0.02]
}

fn lane(script: &[StepOutcome], rules: &Rules) -> Lane {
    let key = LaneKey { actor: 3, incarnation: 7, lane: 1 };
    Lane::new(key, Box::new(Scripted::new(script)), ChaCha8Rng::seed_from_u64(1), rules)
}

fn act(lane: &mut Lane, rules: &Rules) -> Option<Chunk> {
    let q = q_of(lane.state());
    let behaviour = Behaviour::Policy { epsilon: 0.0 };
    lane.act(rules, behaviour, WeightsVersion::default(), &q, q_of).unwrap();
    lane.take_chunk()
}

fn play(script: &[StepOutcome], rules: &Rules) -> Vec<Chunk> {
    let mut lane = lane(script, rules);
    (0..script.len()).filter_map(|_| act(&mut lane, rules)).collect()
}

fn spans(chunks: &[Chunk]) -> Vec<(u64, u8)> {
    chunks.iter().flat_map(|chunk| chunk.items.iter().map(|item| (item.first, item.length))).collect()
}

#[test]
fn windows_have_n_steps_and_stop_at_an_end() {
    let rules = Rules::new(&settings(3));
    let script = [CONTINUES, CONTINUES, CONTINUES, CONTINUES, OVER, CONTINUES];
    // Steps 0 to 4 and the final observation 5; the next episode starts with step 6.
    assert_eq!(spans(&play(&script, &rules)), [(0, 3), (1, 3), (2, 3), (3, 2), (4, 1)]);
}

#[test]
fn a_lost_life_ends_a_window_but_not_the_frame_stack() {
    let script = [CONTINUES, LIFE_LOST, CONTINUES, CONTINUES];
    let rules = Rules::new(&settings(3));
    let chunks = play(&script, &rules);
    // The two windows that the lost life ends wait for the frame after it, which is step 2.
    assert_eq!(spans(&chunks), [(0, 2), (1, 1)]);
    assert_eq!(chunks[2].items.len(), 2);
    let starts: Vec<bool> =
        chunks.iter().flat_map(|chunk| &chunk.steps).map(|step| step.starts_episode).collect();
    assert_eq!(starts, [true, false, false, false]);

    let mut whole_games = settings(3);
    whole_games.life_loss_ends = false;
    assert_eq!(spans(&play(&script, &Rules::new(&whole_games))), [(0, 3)]);
}

#[test]
fn both_kinds_of_end_send_the_last_observation_as_a_step_without_action() {
    for end in [OVER, CUT] {
        let chunks = play(&[CONTINUES, end, CONTINUES], &Rules::new(&settings(1)));
        let shown: Vec<(u8, bool, bool)> = steps(&chunks)
            .into_iter()
            .map(|(frame, step)| (frame, step.taken.is_some(), step.starts_episode))
            .collect();
        assert_eq!(shown, [(0, true, true), (1, true, false), (2, false, false), (3, true, true)]);
    }
}

/// All steps, each with its frame of one byte.
fn steps(chunks: &[Chunk]) -> Vec<(u8, Step)> {
    let steps = chunks.iter().flat_map(|chunk| chunk.frames.iter().copied().zip(chunk.steps.iter().copied()));
    steps.collect()
}

/// The priority of a transition, computed from the steps that were sent.
fn expected_priority(settings: &Settings, item: &NewItem, chunks: &[Chunk]) -> f64 {
    let steps = steps(chunks);
    let (first, length) = (item.first as usize, usize::from(item.length));
    let taken: Vec<_> = steps[first..first + length].iter().map(|(_, step)| step.taken.unwrap()).collect();
    let reward = |taken: &Taken| match settings.termination_reward.0 {
        Some(reward) if taken.terminated => reward,
        _ => f64::from(taken.reward),
    };
    let rewards: Vec<f64> = taken.iter().map(reward).collect();
    let beta = settings.temperature;
    let log = |(step, taken): (usize, &Taken)| match settings.n_step_entropy {
        NStepEntropy::Behaviour => f64::from(taken.log_probability),
        NStepEntropy::Target => {
            let q = q_of(&[steps[first + step].0]);
            let floor = settings.n_step_entropy_floor;
            value::soft::clipped_log_policy(&q, beta, taken.action.into(), floor) / beta
        }
    };
    let logs: Vec<f64> = taken.iter().enumerate().map(log).collect();
    let last = taken[length - 1];
    let ended = (last.terminated || last.life_lost) && !settings.bootstrap_terminal;
    let (q, next) = (q_of(&[steps[first].0]), q_of(&[steps[first + length].0]));
    let bootstrap = (!ended).then(|| value::soft::value(&next, beta));
    let target = value::target::n_step_soft(&rewards, &logs, settings.discount, beta, bootstrap);
    let action = usize::from(taken[0].action);
    settings.strategy.priority(&value::strategy::PriorityInputs {
        q: &q,
        action,
        td: target - q[action],
        temperature: Some(beta),
        rho: settings.rho,
        reliability: None,
    })
}

#[test]
fn initial_priorities_are_those_of_the_networks_own_values() {
    let cases = [(1, false), (3, false), (1, true), (3, true)];
    let entropies = [NStepEntropy::Behaviour, NStepEntropy::Target];
    for ((n_step, unmasked), n_step_entropy) in
        entropies.into_iter().flat_map(|entropy| cases.map(|case| (case, entropy)))
    {
        let mut settings = settings(n_step);
        settings.n_step_entropy = n_step_entropy;
        settings.n_step_entropy_floor = -0.04;
        settings.bootstrap_terminal = unmasked;
        settings.termination_reward = TerminationReward(unmasked.then_some(-5.0));
        let script = [
            CONTINUES, LIFE_LOST, CONTINUES, CONTINUES, CONTINUES, OVER, CONTINUES, CONTINUES, CUT, CONTINUES,
        ];
        let chunks = play(&script, &Rules::new(&settings));
        let items: Vec<NewItem> = chunks.iter().flat_map(|chunk| chunk.items.clone()).collect();
        assert!(items.len() >= 8);
        for item in &items {
            let expected = expected_priority(&settings, item, &chunks);
            let InitialPriority::Of(priority) = item.priority else { panic!("computed priorities") };
            let close = (priority.get() - expected).abs() < 1e-6 * (1.0 + expected);
            assert!(close, "{item:?}: expected {expected}");
        }
    }
}

#[test]
fn a_store_takes_every_chunk() {
    let script: Vec<StepOutcome> =
        [CONTINUES, CONTINUES, LIFE_LOST, CONTINUES, OVER, CUT, OVER, CONTINUES, CUT].repeat(6);
    let rules = Rules::new(&settings(2));
    let options = StoreOptions { stack: 2, frame_bytes: 1, ..testing::options() };
    let mut store = Store::new(options, 0).unwrap();
    for chunk in play(&script, &rules) {
        store.insert(&chunk).unwrap();
    }
    // Every step with an action became a transition, except those whose window is still open.
    assert_eq!(store.tables()[0].len(), script.len());
    assert_eq!(store.counters().items_without_frames, 0);
}

#[test]
fn a_restored_lane_continues_exactly_where_it_was_saved() {
    let script = [CONTINUES, LIFE_LOST, CONTINUES, CONTINUES, OVER, CONTINUES, CUT, CONTINUES, CONTINUES];
    let rules = Rules::new(&settings(3));
    let straight = play(&script, &rules);
    for stop in 0..script.len() {
        let mut first = lane(&script, &rules);
        let mut chunks: Vec<Chunk> = (0..stop).filter_map(|_| act(&mut first, &rules)).collect();
        let mut second = lane(&script, &rules);
        assert!(second.restore(b"nonsense").is_err());
        second.restore(&first.save().unwrap()).unwrap();
        chunks.extend((stop..script.len()).filter_map(|_| act(&mut second, &rules)));
        assert_eq!(chunks, straight, "stopped after {stop}");
    }
}

#[test]
fn a_nan_value_stops_the_lane() {
    let rules = Rules::new(&settings(1));
    let mut lane = lane(&[CONTINUES, CONTINUES], &rules);
    act(&mut lane, &rules);
    let broken = [f64::NAN, 0.0];
    let result = lane.act(&rules, Behaviour::Random, WeightsVersion::default(), &broken, q_of);
    assert!(result.unwrap_err().to_string().contains("diverged"));
}
