//! The learner on batches from a real store.

use agents::TensorBatch;
use agents::read::{self, numbers};
use envs::{Element, Observation, Spec};
use learner::{Learner, TransitionDecoder};
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use replay::testing::{LaneBuilder, NOOP, one_step};
use replay::{InitialPriority, LaneKey, NewItem, Store, Taken};
use settings::Settings;
use settings::choices::{NStepEntropy, Precision, RewardClip, TerminationReward};
use tch::Device;

fn settings() -> Settings {
    let mut settings = Settings::paper();
    settings.network = settings::networks::MLP;
    settings.hidden_units = 16;
    settings.frame_stack = 2;
    settings.reward_clip = RewardClip::None;
    settings.target_period_updates.0 = 5;
    settings.capacity.0 = 100;
    settings.replay_bytes.0 = 1 << 20;
    settings
}

fn spec() -> Spec {
    let observation = Observation { element: Element::F32, shape: vec![1] };
    Spec { game: "cartpole".into(), actions: vec!["a".into(), "b".into()], observation, frames_per_step: 1 }
}

/// A store of twenty one-step transitions. The frame of each step is its number, and its reward is ten times that.
fn store(settings: &Settings) -> Store {
    let mut store = Store::new(coordinator::store_options(settings, &spec()), 0).unwrap();
    let key = LaneKey { actor: 0, incarnation: 0, lane: 0 };
    let mut lane = LaneBuilder::packed(key, settings.frame_codec, spec().observation.bytes());
    for number in 0..20u16 {
        let taken = Taken {
            action: number % 2,
            reward: f32::from(number) * 10.0,
            life_lost: number == 10,
            log_probability: -0.5,
            ..NOOP
        };
        lane.push(&f32::from(number).to_le_bytes(), Some(taken));
    }
    store.insert(&lane.chunk(lane.completed().map(|first| one_step(first, 1.0)))).unwrap();
    store
}

fn learner(settings: &Settings) -> Learner {
    tch::set_num_threads(1);
    Learner::new(settings, &spec(), Device::Cpu, &mut ChaCha8Rng::seed_from_u64(1)).unwrap()
}

fn batch(settings: &Settings, learner: &Learner, count: usize, rng: &mut impl Rng) -> TensorBatch {
    let mut store = store(settings);
    let mut decoder = TransitionDecoder::new(settings, spec().observation.bytes());
    for draw in store.sample(0, count, true, rng).unwrap() {
        let item = store.item(0, draw.key).unwrap();
        decoder.add(item.lead(), item.frames(), item.steps()).unwrap();
    }
    let online = learner.online();
    decoder.finish(&online.state_format(), None)
}

#[test]
fn a_batch_holds_the_frames_actions_and_returns_of_its_transitions() {
    let settings = settings();
    let batch = batch(&settings, &learner(&settings), 64, &mut ChaCha8Rng::seed_from_u64(2));
    let (states, next) = (numbers(&batch.states), numbers(&batch.next_states));
    let (returns, discounts) = (numbers(&batch.returns), numbers(&batch.discounts));
    for row in 0..64 {
        let number = states[2 * row + 1];
        assert_eq!(states[2 * row], (number - 1.0).max(0.0), "the first frame is repeated");
        assert_eq!([next[2 * row], next[2 * row + 1]], [number, number + 1.0]);
        assert_eq!(returns[row], number * 10.0);
        assert_eq!(discounts[row], if number == 10.0 { 0.0 } else { f64::from(settings.discount as f32) });
        assert_eq!(numbers(&batch.actions)[row], (number as i64 % 2) as f64);
    }
}

/// What the actor's first priority assumes of the same transition is in `actor/tests/lane.rs`.
#[test]
fn without_a_terminal_mask_a_terminal_transition_bootstraps_from_the_last_observation() {
    let mut settings = settings();
    settings.bootstrap_terminal = true;
    settings.termination_reward = TerminationReward(Some(-5.0));
    let mut store = Store::new(coordinator::store_options(&settings, &spec()), 0).unwrap();
    let key = LaneKey { actor: 0, incarnation: 0, lane: 0 };
    let mut lane = LaneBuilder::packed(key, settings.frame_codec, spec().observation.bytes());
    let step = Taken { reward: 1.0, ..NOOP };
    lane.push(&7f32.to_le_bytes(), Some(step));
    lane.push(&8f32.to_le_bytes(), Some(Taken { terminated: true, ..step }));
    lane.push(&9f32.to_le_bytes(), None);
    store.insert(&lane.chunk([one_step(0, 1.0), one_step(1, 1.0)])).unwrap();

    let mut decoder = TransitionDecoder::new(&settings, spec().observation.bytes());
    for draw in store.sample(0, 32, true, &mut ChaCha8Rng::seed_from_u64(8)).unwrap() {
        let item = store.item(0, draw.key).unwrap();
        decoder.add(item.lead(), item.frames(), item.steps()).unwrap();
    }
    let learner = learner(&settings);
    let online = learner.online();
    let batch = decoder.finish(&online.state_format(), None);
    let (next, returns) = (numbers(&batch.next_states), numbers(&batch.returns));
    assert_eq!(numbers(&batch.discounts), [f64::from(settings.discount as f32); 32]);
    for row in 0..32 {
        let expected = if next[2 * row + 1] == 9.0 { ([8.0, 9.0], -5.0) } else { ([7.0, 8.0], 1.0) };
        assert_eq!(([next[2 * row], next[2 * row + 1]], returns[row]), expected);
    }
    assert!(returns.contains(&-5.0) && returns.contains(&1.0));
}

/// An episode of frames 1 to 5 with windows of three steps, as an actor sends it: those at its end are shorter.
fn episode(settings: &Settings, end: Taken) -> Store {
    let mut store = Store::new(coordinator::store_options(settings, &spec()), 0).unwrap();
    let key = LaneKey { actor: 0, incarnation: 0, lane: 0 };
    let mut lane = LaneBuilder::packed(key, settings.frame_codec, spec().observation.bytes());
    for number in 1..=4u16 {
        let taken = Taken { action: number % 2, reward: 1.0, log_probability: -0.5, ..NOOP };
        let taken = if number == 4 { Taken { action: 0, ..end } } else { taken };
        lane.push(&f32::from(number).to_le_bytes(), Some(taken));
    }
    lane.push(&5f32.to_le_bytes(), None);
    let item = |(first, length)| NewItem {
        first,
        length,
        priority: InitialPriority::Of(value::priority::Priority::try_new(1.0).unwrap()),
        table: 0,
    };
    store.insert(&lane.chunk([(0, 3), (1, 3), (2, 2), (3, 1)].map(item))).unwrap();
    store
}

fn batch_of(settings: &Settings, store: &mut Store, learner: &Learner) -> TensorBatch {
    let mut decoder = TransitionDecoder::new(settings, spec().observation.bytes());
    for draw in store.sample(0, 64, true, &mut ChaCha8Rng::seed_from_u64(9)).unwrap() {
        let item = store.item(0, draw.key).unwrap();
        decoder.add(item.lead(), item.frames(), item.steps()).unwrap();
    }
    let online = learner.online();
    decoder.finish(&online.state_format(), None)
}

#[test]
fn a_batch_holds_the_inner_steps_of_its_windows_and_masks_those_after_an_end() {
    let mut settings = settings();
    settings.n_step = 3;
    let learner = learner(&settings);
    let ends = [Taken { terminated: true, ..NOOP }, Taken { truncated: true, ..NOOP }];
    for end in ends.map(|end| Taken { reward: 1.0, log_probability: -0.5, ..end }) {
        settings.n_step_entropy = NStepEntropy::Behaviour;
        let plain = batch_of(&settings, &mut episode(&settings, end), &learner);
        assert!(plain.inner.is_none(), "the states are not decoded without need");
        settings.n_step_entropy = NStepEntropy::Target;
        let batch = batch_of(&settings, &mut episode(&settings, end), &learner);
        let inner = batch.inner.unwrap();
        let (first, states) = (numbers(&batch.states), numbers(&inner.states));
        let (weights, actions) = (numbers(&inner.weights), numbers(&inner.actions));
        let (returns, discounts) = (numbers(&batch.returns), numbers(&batch.discounts));
        let (gamma, mut seen) = (settings.discount, [false; 5]);
        for row in 0..64 {
            let number = first[2 * row + 1];
            seen[number as usize] = true;
            // Frames of the two inner states, their actions and weights; zeros where the window has ended.
            let expected = match number as usize {
                1 => ([1.0, 2.0, 2.0, 3.0], [0.0, 1.0], [gamma, gamma * gamma]),
                2 => ([2.0, 3.0, 3.0, 4.0], [1.0, 0.0], [gamma, gamma * gamma]),
                3 => ([3.0, 4.0, 0.0, 0.0], [0.0, 0.0], [gamma, 0.0]),
                _ => ([0.0; 4], [0.0; 2], [0.0; 2]),
            };
            assert_eq!(states[4 * row..][..4], expected.0, "row of state {number}");
            assert_eq!(actions[2 * row..][..2], expected.1, "row of state {number}");
            let is = &weights[2 * row..][..2];
            assert!(is.iter().zip(expected.2).all(|(is, w)| (is - w).abs() < 1e-7), "{is:?}");
            let length = (5.0 - number).min(3.0) as i32;
            let rewards: f64 = (0..length).map(|k| gamma.powi(k)).sum();
            assert!((returns[row] - rewards).abs() < 1e-6, "no entropy of the behaviour");
            let ended = end.terminated && number > 1.0;
            assert!((discounts[row] - if ended { 0.0 } else { gamma.powi(length) }).abs() < 1e-7);
        }
        assert_eq!(seen, [false, true, true, true, true]);
    }
}

#[test]
fn the_entropies_of_inner_steps_are_those_of_the_target_network_or_with_double_of_the_online_network() {
    let mut settings = settings();
    (settings.n_step, settings.n_step_entropy) = (3, NStepEntropy::Target);
    (settings.temperature, settings.learning_rate) = (0.5, 1e-2);
    let end = Taken { reward: 1.0, terminated: true, ..NOOP };
    for double in [false, true] {
        settings.double = double;
        let mut learner = learner(&settings);
        // The target network is older than the online network by three updates.
        let first = batch_of(&settings, &mut episode(&settings, end), &learner);
        (0..3).for_each(|_| drop(learner.update(&first, 0.0).unwrap()));
        let batch = batch_of(&settings, &mut episode(&settings, end), &learner);
        let targets = numbers(&learner.evaluate_loss(&batch).targets);
        let rewards = numbers(&batch.returns);
        let states = numbers(&batch.states);
        let network = if double { learner.online() } else { learner.target() };
        // The window that begins in state 3 has one inner step, in state (3, 4), and no bootstrap.
        let state: Vec<u8> = [3f32, 4.0].iter().flat_map(|x| x.to_le_bytes()).collect();
        let q = learner.agent().q_rows(network, &state, 1);
        let entropy = -value::soft::clipped_log_policy(&q, 0.5, 0, settings.n_step_entropy_floor);
        let row = (0..64).find(|row| states[2 * row + 1] == 3.0).unwrap();
        let expected = rewards[row] + settings.discount * entropy;
        assert!((targets[row] - expected).abs() < 1e-6, "{double}: {} and {expected}", targets[row]);
        let other = if double { learner.target() } else { learner.online() };
        let other = learner.agent().q_rows(other, &state, 1);
        let other = -value::soft::clipped_log_policy(&other, 0.5, 0, settings.n_step_entropy_floor);
        assert!((entropy - other).abs() > 1e-4, "the networks differ");
    }
}

#[test]
fn a_frame_that_can_not_be_decoded_leaves_the_batch_unchanged() {
    let mut settings = settings();
    let learner = learner(&settings);
    let mut store = store(&settings);
    let draws = store.sample(0, 2, true, &mut ChaCha8Rng::seed_from_u64(2)).unwrap();
    settings.frame_codec = replay::codec::Codec::None;
    let mut decoder = TransitionDecoder::new(&settings, spec().observation.bytes());
    let item = store.item(0, draws[0].key).unwrap();
    assert!(decoder.add(item.lead(), item.frames(), item.steps()).is_err());
    let online = learner.online();
    let empty = decoder.finish(&online.state_format(), None);
    assert_eq!(empty.actions.size(), [0]);
}

#[test]
fn the_target_network_is_copied_every_few_updates() {
    let settings = settings();
    let mut learner = learner(&settings);
    let batch = batch(&settings, &learner, 16, &mut ChaCha8Rng::seed_from_u64(3));
    let [_, first, _] = learner.save();
    for update in 1..=5 {
        learner.update(&batch, 0.0).unwrap();
        let [online, target, _] = learner.save();
        assert_ne!(online, first);
        assert_eq!(target, if update < 5 { first.clone() } else { online });
    }
}

#[test]
fn a_target_period_in_episodes_replaces_that_in_updates() {
    let mut settings = settings();
    settings.target_period_episodes.0 = 3;
    let mut learner = learner(&settings);
    let batch = batch(&settings, &learner, 16, &mut ChaCha8Rng::seed_from_u64(3));
    let mut expected = learner.save()[1].clone();
    for (ended, copies) in [(0, false), (2, false), (1, true), (2, false), (0, false), (5, true), (2, true)] {
        (0..6).for_each(|_| drop(learner.update(&batch, 0.0).unwrap()));
        learner.end_episodes(ended);
        let [online, target, _] = learner.save();
        if copies {
            expected = online;
        }
        assert_eq!(target, expected, "{} episodes", learner.episodes());
    }
}

#[test]
fn updates_move_the_values_towards_their_targets() {
    let mut settings = settings();
    settings.learning_rate = 1e-2;
    settings.discount = 0.0;
    let mut learner = learner(&settings);
    let batch = batch(&settings, &learner, 32, &mut ChaCha8Rng::seed_from_u64(4));
    let before = learner.update(&batch, 0.0).unwrap().metrics.td_error;
    for _ in 0..2_000 {
        learner.update(&batch, 0.0).unwrap();
    }
    let after = learner.update(&batch, 0.0).unwrap();
    let td_error = after.metrics.td_error;
    assert!(td_error < before / 10.0, "|TD| went from {before} to {td_error}");
    assert_eq!(after.priorities.len(), 32);
}

#[test]
fn a_restored_learner_continues_exactly() {
    let settings = settings();
    let (mut straight, mut resumed) = (learner(&settings), learner(&settings));
    let batch = batch(&settings, &straight, 16, &mut ChaCha8Rng::seed_from_u64(5));
    for update in 0..12 {
        straight.update(&batch, 0.1).unwrap();
        resumed.update(&batch, 0.1).unwrap();
        if update == 6 {
            let saved = resumed.save();
            let mut other = learner(&settings);
            let [weights, target, optimizer] = saved.each_ref().map(Vec::as_slice);
            other.restore((resumed.updates(), resumed.episodes()), [weights, target, optimizer]).unwrap();
            resumed = other;
        }
    }
    assert_eq!(straight.save(), resumed.save());
}

#[test]
fn a_nan_loss_changes_nothing() {
    let settings = settings();
    let mut learner = learner(&settings);
    let mut batch = batch(&settings, &learner, 16, &mut ChaCha8Rng::seed_from_u64(6));
    batch.returns *= f64::NAN;
    let before = learner.save();
    assert!(learner.update(&batch, 0.0).unwrap_err().to_string().contains("diverged"));
    assert_eq!(learner.save(), before);
}

#[test]
fn examining_computes_what_the_update_will_and_changes_nothing() {
    let settings = settings();
    let mut learner = learner(&settings);
    let batch = batch(&settings, &learner, 16, &mut ChaCha8Rng::seed_from_u64(7));
    learner.update(&batch, 0.0).unwrap();
    let before = learner.save();
    let pass = learner.evaluate_loss(&batch);
    assert_eq!(learner.save(), before);
    let taken = pass.q.gather(1, &batch.actions.unsqueeze(1), false).squeeze_dim(1);
    assert_eq!(numbers(&(&pass.targets - taken)), numbers(&pass.td_errors));
    let update = learner.update(&batch, 0.0).unwrap();
    assert_eq!(numbers(&pass.loss)[0], update.metrics.loss);
    let errors = numbers(&pass.td_errors);
    let mean = errors.iter().map(|error| error.abs()).sum::<f64>() / errors.len() as f64;
    assert_eq!(mean, update.metrics.td_error);
}

#[test]
fn an_update_reads_from_the_device_once() {
    for precision in [Precision::F32, Precision::Bf16] {
        let settings = Settings { precision, ..settings() };
        let mut learner = learner(&settings);
        let batch = batch(&settings, &learner, 16, &mut ChaCha8Rng::seed_from_u64(7));
        let before = read::count();
        learner.update(&batch, 0.0).unwrap();
        assert_eq!(read::count() - before, 1, "{precision}");
    }
}

#[test]
fn target_values_computed_ahead_change_nothing_and_expire_with_their_network() {
    for algorithm in [settings::algorithms::SOFT_DQN, settings::algorithms::MUNCHAUSEN_DQN] {
        let settings = Settings { algorithm, ..settings() };
        let (mut plain, mut ahead) = (learner(&settings), learner(&settings));
        let mut batch = batch(&settings, &plain, 16, &mut ChaCha8Rng::seed_from_u64(8));
        // The target network is copied after five updates: from then on these values are another network's.
        ahead.shared_target().value_ahead(&mut batch);
        assert!(batch.ahead.is_some());
        for _ in 0..12 {
            ahead.update(&batch, 0.0).unwrap();
        }
        batch.ahead = None;
        for _ in 0..12 {
            plain.update(&batch, 0.0).unwrap();
        }
        assert_eq!(plain.save(), ahead.save());
        // After a restart too.
        let saved = plain.save();
        let [weights, target, optimizer] = saved.each_ref().map(Vec::as_slice);
        let mut restored = learner(&settings);
        let shared = restored.shared_target();
        shared.value_ahead(&mut batch);
        restored.restore((12, 0), [weights, target, optimizer]).unwrap();
        restored.update(&batch, 0.0).unwrap();
        batch.ahead = None;
        plain.update(&batch, 0.0).unwrap();
        assert_eq!(plain.save(), restored.save());
    }
}

#[test]
fn matrices_in_bf16_learn_the_same_values_within_their_precision() {
    let trained = |precision| {
        let settings = Settings { precision, learning_rate: 1e-3, discount: 0.0, ..settings() };
        let mut learner = learner(&settings);
        let batch = batch(&settings, &learner, 32, &mut ChaCha8Rng::seed_from_u64(4));
        for _ in 0..500 {
            learner.update(&batch, 0.0).unwrap();
        }
        numbers(&learner.evaluate_loss(&batch).q)
    };
    let (full, half) = (trained(Precision::F32), trained(Precision::Bf16));
    assert_ne!(full, half);
    let scale = full.iter().map(|q| q.abs()).fold(0.0, f64::max);
    for (full, half) in full.iter().zip(&half) {
        assert!((full - half).abs() < 0.1 * scale, "{full} and {half}, the largest is {scale}");
    }
}

#[test]
fn a_helper_learns_the_same() {
    let mut settings = settings();
    settings.network = settings::networks::MINATAR;
    settings.frame_stack = 1;
    for (precision, dueling) in [(Precision::F32, false), (Precision::F32, true), (Precision::Bf16, true)] {
        (settings.precision, settings.dueling) = (precision, dueling);
        tch::set_num_threads(1);
        let observation = Observation { element: Element::U8, shape: vec![4, 10, 10] };
        let spec = Spec { observation, ..spec() };
        let make = || Learner::new(&settings, &spec, Device::Cpu, &mut ChaCha8Rng::seed_from_u64(1)).unwrap();
        let (mut alone, mut helped) = (make(), make().with_helper().unwrap());
        let mut rng = ChaCha8Rng::seed_from_u64(12);
        let mut states = || {
            let mut bytes = vec![0; 8 * 400];
            rng.fill_bytes(&mut bytes);
            alone.online().states(&bytes, 8)
        };
        let format = make().online().state_format();
        let batch = TensorBatch {
            states: states(),
            next_states: states(),
            actions: format.upload(&tch::Tensor::from_slice(&[0i64, 1, 1, 0, 0, 1, 0, 1])),
            returns: format.row(&[1.0; 8]),
            discounts: format.row(&[0.9; 8]),
            inner: None,
            weights: None,
            reliabilities: None,
            ahead: None,
        };
        for _ in 0..20 {
            alone.update(&batch, 0.0).unwrap();
            helped.update(&batch, 0.0).unwrap();
        }
        // MKL rounds by how memory is aligned, which is another on another thread.
        for (a, b) in alone.online().parameters().leaves().iter().zip(helped.online().parameters().leaves()) {
            assert!(a.allclose(b, 1e-4, 1e-6, false), "{precision} {dueling}");
        }
    }
}
