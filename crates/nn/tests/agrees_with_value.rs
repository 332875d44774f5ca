//! The tensor code against `crates/value`, which computes the same numbers one by one in f64.

use nn::objective::{Batch, Objective, Shape, Target};
use nn::{Architecture, Input, QNetwork, Trunk};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use tch::{Device, Kind, Tensor};
use value::priority::{Rho, Strategy};

const COUNT: usize = 24;
const ACTIONS: usize = 5;

struct Setting {
    online: QNetwork,
    target: QNetwork,
    batch: Batch,
    actions: Vec<i64>,
    returns: Vec<f64>,
    discounts: Vec<f64>,
    weights: Vec<f64>,
    q: Vec<f64>,
    next_online: Vec<f64>,
    next_target: Vec<f64>,
}

fn setting(seed: u64) -> Setting {
    tch::set_num_threads(1);
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    let input = Input::Vector(6);
    let architecture = Architecture {
        input,
        trunk: Trunk::Mlp,
        hidden: 16,
        actions: ACTIONS as i64,
        dueling: seed % 2 == 1,
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
    let batch = Batch {
        states: online.states(&states, COUNT),
        actions: Tensor::from_slice(&actions),
        returns: Tensor::from_slice(&returns),
        discounts: Tensor::from_slice(&discounts),
        next_states: online.states(&next_states, COUNT),
        weights: Some(Tensor::from_slice(&weights)),
        reliabilities: None,
    };
    let q = online.q_values(&states, COUNT);
    let next_online = online.q_values(&next_states, COUNT);
    let next_target = target.q_values(&next_states, COUNT);
    Setting { online, target, batch, actions, returns, discounts, weights, q, next_online, next_target }
}

fn numbers(tensor: &Tensor) -> Vec<f64> {
    Vec::<f64>::try_from(&tensor.to_kind(Kind::Double)).unwrap()
}

fn close(a: f64, b: f64) -> bool {
    (a - b).abs() <= 1e-5 * (1.0 + b.abs())
}

fn check(objective: Objective, seed: u64) {
    let s = setting(seed);
    let pass = objective.pass(&s.online, &s.target, &s.batch);
    let (td_errors, priorities) = (numbers(&pass.td_errors), numbers(&pass.priorities));
    let mut loss = 0.0;
    for i in 0..COUNT {
        let row = |q: &[f64]| q[i * ACTIONS..(i + 1) * ACTIONS].to_vec();
        let (q, online, target) = (row(&s.q), row(&s.next_online), row(&s.next_target));
        let next = match (objective.target, objective.double) {
            (Target::Soft { temperature }, false) => value::soft::value(&target, temperature),
            (Target::Soft { temperature }, true) => {
                value::target::double_soft_value(&online, &target, temperature)
            }
            (Target::Hard, false) => value::hard::value(&target),
            (Target::Hard, true) => value::target::double_value(&online, &target),
        };
        let action = s.actions[i] as usize;
        let td = s.returns[i] + s.discounts[i] * next - q[action];
        assert!(close(td_errors[i], td), "{objective:?}: TD {} and {td}", td_errors[i]);
        let temperature = objective.temperature();
        let priority =
            value::priority::priority(objective.strategy, objective.rho, &q, action, td, temperature);
        assert!(close(priorities[i], priority), "{objective:?}: priority {} and {priority}", priorities[i]);
        let error = match objective.shape {
            Shape::Huber if td.abs() > 1.0 => td.abs() - 0.5,
            _ => 0.5 * td * td,
        };
        loss += s.weights[i] * error / COUNT as f64;
    }
    let got = pass.loss.double_value(&[]);
    assert!(close(got, loss), "{objective:?}: loss {got} and {loss}");
}

#[test]
fn loss_td_errors_and_priorities_agree_with_value() {
    let temperatures = [1e-3, 0.05, 0.5, 10.0, 1e3];
    let targets = temperatures.map(|temperature| Target::Soft { temperature });
    for (seed, target) in targets.into_iter().chain([Target::Hard]).enumerate() {
        for double in [false, true] {
            for shape in [Shape::Huber, Shape::Squared] {
                for strategy in Strategy::ALL {
                    for rho in [Rho::Max, Rho::Old, Rho::OldUnitTemperature] {
                        check(Objective { target, double, shape, strategy, rho }, seed as u64);
                    }
                }
            }
        }
    }
}

#[test]
fn the_gradient_is_that_of_the_loss() {
    let s = setting(4);
    let objective = Objective {
        target: Target::Soft { temperature: 0.5 },
        // Double targets move with the online network, which the gradient rightly ignores and a difference would not.
        double: false,
        shape: Shape::Squared,
        strategy: Strategy::Ver,
        rho: Rho::Max,
    };
    let gradient = s.online.parameters().gradient(&objective.pass(&s.online, &s.target, &s.batch).loss);
    let gradient = Tensor::cat(&gradient.iter().map(|part| part.reshape([-1])).collect::<Vec<_>>(), 0);
    let loss_at = |step: f64| {
        let mut moved = s.online.duplicate();
        tch::no_grad(|| {
            let _ = moved.parameters_mut().flat_mut().g_add_(&(&gradient * step));
        });
        objective.pass(&moved, &s.target, &s.batch).loss.double_value(&[])
    };
    // Along the gradient the loss grows by the gradient's squared length.
    let squared = gradient.square().sum(Kind::Double).double_value(&[]);
    let step = 1e-2 / squared.sqrt();
    let slope = (loss_at(step) - loss_at(-step)) / (2.0 * step);
    assert!((slope - squared).abs() < 2e-2 * squared, "slope {slope}, expected {squared}");
}

#[test]
fn entropy_is_between_zero_and_log_of_the_actions() {
    let q = Tensor::from_slice(&[0.0f32, 0.0, 0.0, 100.0, 0.0, 0.0]).view([2, 3]);
    let entropy = numbers(&nn::soft::entropy(&q, 1.0));
    assert!(close(entropy[0], 3f64.ln()) && close(entropy[1], 0.0), "{entropy:?}");
    assert!(close(entropy[0], value::soft::entropy(&[0.0, 0.0, 0.0], 1.0)));
}

#[test]
fn reliabilities_multiply_priorities_and_nothing_else() {
    let mut s = setting(6);
    let objective = Objective {
        target: Target::Soft { temperature: 0.5 },
        double: false,
        shape: Shape::Huber,
        strategy: Strategy::Reaper,
        rho: Rho::Max,
    };
    let plain = objective.pass(&s.online, &s.target, &s.batch);
    let shares: Vec<f64> = (0..COUNT).map(|index| index as f64 / COUNT as f64).collect();
    s.batch.reliabilities = Some(Tensor::from_slice(&shares));
    let weighed = objective.pass(&s.online, &s.target, &s.batch);
    assert_eq!(weighed.loss.double_value(&[]), plain.loss.double_value(&[]));
    let numbers = |tensor: &Tensor| Vec::<f64>::try_from(tensor).unwrap();
    let expected: Vec<f64> =
        numbers(&plain.td_errors).iter().zip(&shares).map(|(error, share)| error.abs() * share).collect();
    assert_eq!(numbers(&weighed.priorities), expected);
}
