//! The tensor route of every agent against its f64 route, and both against `value`.

use std::sync::Arc;

use agents::read::numbers;
use agents::{
    Agent, Architecture, Folded, Head, InnerSteps, Pass, PassNumbers, QNetwork, TargetValues, TensorBatch,
};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use settings::Settings;
use settings::algorithms::{self, Algorithm};
use settings::choices::{Loss, NStepEntropy, Precision};
use settings::networks::{MLP, NetworkInput};
use tch::{Device, Kind, Tensor};
use value::strategy::{self, Strategy};
use value::{Listed, Rho};

const COUNT: usize = 24;
const ACTIONS: usize = 5;
/// Inner steps of a window of three steps.
const INNER: usize = 2;

struct Setting {
    online: QNetwork,
    target: QNetwork,
    batch: TensorBatch,
    actions: Vec<i64>,
    returns: Vec<f64>,
    discounts: Vec<f64>,
    weights: Vec<f64>,
    q: Vec<f64>,
    /// The target network's Q-values of the states.
    target_q: Vec<f64>,
    next_online: Vec<f64>,
    next_target: Vec<f64>,
    inner: Inner,
}

/// Inner steps, row by row; a weight of 0 is a step after the window's end.
struct Inner {
    actions: Vec<i64>,
    weights: Vec<f64>,
    online: Vec<f64>,
    target: Vec<f64>,
}

impl Setting {
    fn pass(&self, agent: &dyn Agent) -> Pass {
        agent.pass(&self.online, &agent.target_values(&self.target, &self.batch), &self.batch)
    }

    fn priorities(&self, agent: &dyn Agent, pass: &Pass) -> Vec<f64> {
        let read = PassNumbers::read(pass, &Tensor::from(0f32), &self.batch);
        agent.priorities(&read, self.batch.reliabilities.as_deref())
    }

    /// Of one row: action, weight, and the Q-values of the state of each inner step, by one of the networks.
    fn inner<'a>(&'a self, q: &'a [f64], index: usize) -> impl Iterator<Item = (usize, f64, &'a [f64])> {
        let steps = index * INNER..(index + 1) * INNER;
        steps.map(|step| (self.inner.actions[step] as usize, self.inner.weights[step], row(q, step)))
    }
}

fn setting(agent: &dyn Agent, seed: u64) -> Setting {
    tch::set_num_threads(1);
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    let head = Head {
        actions: ACTIONS as i64,
        outputs_per_action: agent.outputs_per_action(),
        dueling: seed % 2 == 1,
    };
    let architecture = Architecture {
        input: NetworkInput::Vector(6),
        network: MLP,
        hidden: 16,
        head,
        precision: Precision::F32,
    };
    let online = QNetwork::random(architecture, Device::Cpu, &mut rng).unwrap();
    let target = QNetwork::random(architecture, Device::Cpu, &mut rng).unwrap();
    let mut states =
        || -> Vec<u8> { (0..COUNT * 6).flat_map(|_| rng.random_range(-3f32..3.0).to_le_bytes()).collect() };
    let (states, next_states) = (states(), states());
    let actions: Vec<i64> = (0..COUNT).map(|_| rng.random_range(0..ACTIONS as i64)).collect();
    let returns: Vec<f64> = (0..COUNT).map(|_| rng.random_range(-2.0..2.0)).collect();
    let discounts: Vec<f64> = (0..COUNT).map(|i| if i % 5 == 0 { 0.0 } else { 0.97 }).collect();
    let weights: Vec<f64> = (0..COUNT).map(|_| rng.random_range(0.1..1.0)).collect();
    let inner_states: Vec<u8> =
        (0..COUNT * INNER * 6).flat_map(|_| rng.random_range(-3f32..3.0).to_le_bytes()).collect();
    let inner_actions: Vec<i64> = (0..COUNT * INNER).map(|_| rng.random_range(0..ACTIONS as i64)).collect();
    // Some windows end after two steps, some after one.
    let weight = |i: usize, step: usize| if i % 4 < 2 - step { 0.0 } else { [0.97, 0.97 * 0.97][step] };
    let inner_weights: Vec<f64> = (0..COUNT * INNER).map(|i| weight(i / INNER, i % INNER)).collect();
    let columns = |tensor: Tensor| tensor.view([COUNT as i64, INNER as i64]);
    let format = online.state_format();
    let batch = TensorBatch {
        states: online.states(&states, COUNT),
        actions: Tensor::from_slice(&actions),
        returns: format.row(&returns),
        discounts: format.row(&discounts),
        next_states: online.states(&next_states, COUNT),
        inner: agent.uses_inner_steps().then(|| InnerSteps {
            states: online.states(&inner_states, COUNT * INNER),
            actions: columns(Tensor::from_slice(&inner_actions)),
            weights: columns(format.row(&inner_weights)),
        }),
        weights: Some(format.row(&weights)),
        reliabilities: None,
        ahead: None,
    };
    let q = agent.q_rows(&online, &states, COUNT);
    let target_q = agent.q_rows(&target, &states, COUNT);
    let next_online = agent.q_rows(&online, &next_states, COUNT);
    let next_target = agent.q_rows(&target, &next_states, COUNT);
    let inner = Inner {
        actions: inner_actions,
        weights: inner_weights,
        online: agent.q_rows(&online, &inner_states, COUNT * INNER),
        target: agent.q_rows(&target, &inner_states, COUNT * INNER),
    };
    Setting {
        online,
        target,
        batch,
        actions,
        returns,
        discounts,
        weights,
        q,
        target_q,
        next_online,
        next_target,
        inner,
    }
}

fn row(q: &[f64], index: usize) -> &[f64] {
    &q[index * ACTIONS..(index + 1) * ACTIONS]
}

fn close(a: f64, b: f64) -> bool {
    (a - b).abs() <= 1e-5 * (1.0 + b.abs())
}

/// The value of a next state by the formulas of `value`.
fn next_value(settings: &Settings, online: &[f64], target: &[f64]) -> f64 {
    let beta = settings.temperature;
    match (settings.algorithm != algorithms::DQN, settings.double) {
        (true, false) => value::soft::value(target, beta),
        (true, true) => value::target::double_soft_value(online, target, beta),
        (false, false) => value::hard::value(target),
        (false, true) => value::target::double_value(online, target),
    }
}

/// What the inner steps of a row add to its target by the formulas of `value`.
fn inner_bonuses(settings: &Settings, s: &Setting, index: usize) -> f64 {
    if settings.n_step_entropy == NStepEntropy::Behaviour || settings.n_step == 1 {
        return 0.0;
    }
    let q = if settings.double { &s.inner.online } else { &s.inner.target };
    let bonus = |(action, weight, q): (usize, f64, &[f64])| {
        let clipped = |floor| value::soft::clipped_log_policy(q, settings.temperature, action, floor);
        let entropy = -clipped(settings.n_step_entropy_floor);
        match settings.algorithm == algorithms::MUNCHAUSEN_DQN {
            true => weight * (0.9 * clipped(-1.0) + entropy),
            false => weight * entropy,
        }
    };
    s.inner(q, index).map(bonus).sum()
}

fn check(settings: &Settings, seed: u64) {
    let agent = agents::agent(settings);
    let s = setting(&*agent, seed);
    let pass = s.pass(&*agent);
    let (td_errors, priorities) = (numbers(&pass.td_errors), s.priorities(&*agent, &pass));
    let mut loss = 0.0;
    for i in 0..COUNT {
        let (q, action) = (row(&s.q, i), s.actions[i] as usize);
        let next = next_value(settings, row(&s.next_online, i), row(&s.next_target, i));
        let bonus = if settings.algorithm == algorithms::MUNCHAUSEN_DQN {
            let log_policy = value::soft::log_probability(row(&s.target_q, i), settings.temperature, action);
            0.9 * (settings.temperature * log_policy).clamp(-1.0, 0.0)
        } else {
            0.0
        };
        let inner = inner_bonuses(settings, &s, i);
        let td = s.returns[i] + bonus + inner + s.discounts[i] * next - q[action];
        assert!(close(td_errors[i], td), "{agent:?}: TD {} and {td}", td_errors[i]);
        let experience = strategy::PriorityInputs {
            q,
            action,
            td,
            temperature: agent.temperature(),
            rho: settings.rho,
            reliability: None,
        };
        let priority = settings.strategy.priority(&experience);
        assert!(close(priorities[i], priority), "{agent:?}: priority {} and {priority}", priorities[i]);
        let error = match settings.loss {
            Loss::Huber if td.abs() > 1.0 => td.abs() - 0.5,
            _ => 0.5 * td * td,
        };
        loss += s.weights[i] * error / COUNT as f64;
    }
    let got = numbers(&pass.loss)[0];
    assert!(close(got, loss), "{agent:?}: loss {got} and {loss}");
}

#[test]
fn loss_td_errors_and_priorities_agree_with_value() {
    let soft = [1e-3, 0.05, 0.5, 10.0, 1e3].map(|temperature| (algorithms::SOFT_DQN, temperature));
    let munchausen = [0.03, 0.5, 10.0].map(|temperature| (algorithms::MUNCHAUSEN_DQN, temperature));
    let all = soft.into_iter().chain(munchausen).chain([(algorithms::DQN, 1.0)]);
    for (seed, (algorithm, temperature)) in all.enumerate() {
        for double in [false, true] {
            for loss in [Loss::Huber, Loss::Squared] {
                for &strategy in strategy::Definition::list().iter().filter(|s| algorithm.accepts(**s)) {
                    for rho in Rho::ALL {
                        let paper = Settings::paper();
                        let settings =
                            Settings { algorithm, temperature, double, loss, strategy, rho, ..paper };
                        check(&settings, seed as u64);
                    }
                }
            }
        }
    }
}

#[test]
fn targets_with_the_entropies_of_the_policy_in_the_target_agree_with_value() {
    for algorithm in [algorithms::SOFT_DQN, algorithms::MUNCHAUSEN_DQN] {
        for (seed, temperature) in [1e-3, 0.05, 0.5, 10.0, 1e3].into_iter().enumerate() {
            for (double, n_step_entropy_floor) in [(false, -1.0), (true, -1.0), (false, -30.0), (true, 0.0)] {
                let n_step_entropy = NStepEntropy::Target;
                let paper = Settings { algorithm, temperature, double, ..Settings::paper() };
                for n_step in [1, 3] {
                    let settings = Settings { n_step, n_step_entropy, n_step_entropy_floor, ..paper.clone() };
                    check(&settings, seed as u64);
                }
            }
        }
    }
}

/// What holds for every agent in the list, also for those that `value` knows nothing of.
#[test]
fn both_routes_of_every_agent_give_the_same_targets() {
    for &algorithm in algorithms::AlgorithmEntry::list() {
        let cases = [(0.03, false), (0.03, true), (0.5, false), (10.0, true)];
        let entropies = [NStepEntropy::Behaviour, NStepEntropy::Target];
        let entropies =
            entropies.into_iter().filter(|&of| algorithm.has_soft_policy || of == NStepEntropy::Behaviour);
        let cases = entropies.flat_map(|n_step_entropy| cases.map(|(t, double)| (t, double, n_step_entropy)));
        for (seed, (temperature, double, n_step_entropy)) in cases.enumerate() {
            let paper = Settings { n_step: 3, ..Settings::paper() };
            let agent = agents::agent(&Settings { algorithm, temperature, double, n_step_entropy, ..paper });
            let s = setting(&*agent, seed as u64);
            // The f64 route has one network for everything: the one that acts.
            let values = agent.target_values(&s.online, &s.batch);
            let targets = numbers(&tch::no_grad(|| agent.targets(&s.online, &values, &s.batch)));
            for (i, got) in targets.into_iter().enumerate() {
                let inner = s.inner(&s.inner.online, i);
                let inner: f64 = inner.map(|(action, weight, q)| weight * agent.inner_bonus(q, action)).sum();
                let folded = Folded { sum: s.returns[i] + inner, discount: s.discounts[i] };
                let next = row(&s.next_online, i);
                let target = agent.target(row(&s.q, i), s.actions[i] as usize, folded, Some(next));
                assert!(close(got, target), "{agent:?}: {got} and {target}");
                if s.discounts[i] == 0.0 {
                    // An actor has no next state after an end.
                    let ended = agent.target(row(&s.q, i), s.actions[i] as usize, folded, None);
                    assert!(close(got, ended), "{agent:?}: {got} and {ended}");
                }
            }
        }
    }
}

fn soft(algorithm: Algorithm, strategy: Strategy, loss: Loss) -> Arc<dyn Agent> {
    agents::agent(&Settings { algorithm, strategy, loss, temperature: 0.5, ..Settings::paper() })
}

#[test]
fn the_gradient_of_every_agent_is_that_of_its_loss() {
    for &algorithm in algorithms::AlgorithmEntry::list() {
        let agent = soft(algorithm, Strategy::UNIFORM, Loss::Squared);
        let s = setting(&*agent, 4);
        let target = agent.target_values(&s.target, &s.batch);
        let loss = |online: &QNetwork| agent.pass(online, &target, &s.batch).loss;
        let pass = agent.pass(&s.online, &target, &s.batch);
        let gradient = s.online.gradient(&pass.loss, &pass.trace, None);
        let gradient = Tensor::cat(&gradient.iter().map(|part| part.reshape([-1])).collect::<Vec<_>>(), 0);
        let loss_at = |step: f64| {
            let mut moved = s.online.duplicate();
            tch::no_grad(|| {
                let _ = moved.parameters_mut().flat_mut().values.g_add_(&(&gradient * step));
            });
            numbers(&loss(&moved))[0]
        };
        // Along the gradient the loss grows by the gradient's squared length.
        let squared = numbers(&gradient.square().sum(Kind::Float))[0];
        let step = 1e-2 / squared.sqrt();
        let slope = (loss_at(step) - loss_at(-step)) / (2.0 * step);
        assert!((slope - squared).abs() < 2e-2 * squared, "{agent:?}: slope {slope}, expected {squared}");
    }
}

#[test]
fn entropy_is_between_zero_and_log_of_the_actions() {
    for &algorithm in algorithms::AlgorithmEntry::list() {
        let agent = agents::agent(&Settings { algorithm, temperature: 0.5, ..Settings::paper() });
        let entropy = [[0.0, 0.0, 0.0], [100.0, 0.0, 0.0]].map(|q| agent.entropy(&q));
        assert!(close(entropy[0], 3f64.ln()) && close(entropy[1], 0.0), "{entropy:?}");
    }
}

#[test]
fn reliabilities_scale_priorities_and_nothing_else() {
    let agent = soft(algorithms::SOFT_DQN, Strategy::REAPER, Loss::Huber);
    let mut s = setting(&*agent, 6);
    let plain = s.pass(&*agent);
    let shares: Vec<f64> = (0..COUNT).map(|index| index as f64 / COUNT as f64).collect();
    let expected: Vec<f64> =
        numbers(&plain.td_errors).iter().zip(&shares).map(|(error, share)| error.abs() * share).collect();
    s.batch.reliabilities = Some(shares);
    let scaled = s.pass(&*agent);
    assert_eq!(numbers(&scaled.loss), numbers(&plain.loss));
    assert_eq!(s.priorities(&*agent, &scaled), expected);
}

/// An agent whose head has three outputs per action, of which Q is the mean.
#[derive(Debug)]
struct MeanOfThree(Arc<dyn Agent>);

impl Agent for MeanOfThree {
    fn learning(&self) -> &agents::TdLearning {
        self.0.learning()
    }
    fn outputs_per_action(&self) -> i64 {
        3
    }
    fn q_values(&self, output: Tensor) -> Tensor {
        output.view([-1, ACTIONS as i64, 3]).mean_dim(2, false, Kind::Float)
    }
    fn policy(&self, q: &[f64], probabilities: &mut [f64]) {
        self.0.policy(q, probabilities);
    }
    fn temperature(&self) -> Option<f64> {
        self.0.temperature()
    }
    fn entropy(&self, q: &[f64]) -> f64 {
        self.0.entropy(q)
    }
    fn value(&self, q: &[f64]) -> f64 {
        self.0.value(q)
    }
    fn targets(&self, _online: &QNetwork, target: &TargetValues, batch: &TensorBatch) -> Tensor {
        &batch.returns + &batch.discounts * agents::soft::value(&target.next, 0.5)
    }
}

#[test]
fn an_agent_may_read_its_values_from_several_outputs_per_action() {
    let agent = MeanOfThree(soft(algorithms::SOFT_DQN, Strategy::VER, Loss::Huber));
    for seed in [2, 3] {
        let s = setting(&agent, seed);
        let pass = s.pass(&agent);
        for (i, target) in numbers(&pass.targets).into_iter().enumerate() {
            let next = value::soft::value(row(&s.next_target, i), 0.5);
            assert!(close(target, s.returns[i] + s.discounts[i] * next));
        }
        assert_eq!(s.priorities(&agent, &pass).len(), COUNT);
        assert_eq!(s.online.gradient(&pass.loss, &pass.trace, None).len(), if seed == 3 { 10 } else { 6 });
    }
}
