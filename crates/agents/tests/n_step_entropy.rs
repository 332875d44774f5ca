//! The two forms of the n-step soft target in small random MDPs: an agent's f64 route as an expected operator on tables.
//!
//! V(s) = Q(s,a) − β·log π(a|s) holds for every action. So with log π of the target's own policy, an n-step target is unbiased at
//! the soft optimum whatever the behaviour; with the behaviour's own log-probability it is not. The price: far from the behaviour
//! the operator is no contraction. docs/decisions/0022-n-step-soft-targets.md has the figures that these tests print
//! (`cargo test --release -p quiver-agents --test n_step_entropy -- --nocapture`).

use std::sync::Arc;

use agents::{Agent, Folded};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use settings::Settings;
use settings::algorithms::{self, Algorithm};
use settings::choices::NStepEntropy;
use value::soft;

const STATES: usize = 10;
const ACTIONS: usize = 3;
const PAIRS: usize = STATES * ACTIONS;
const STEPS: usize = 3;
const DISCOUNT: f64 = 0.99;
const TEMPERATURE: f64 = 0.02;
const MDPS: u64 = 200;
const NO_FLOOR: f64 = f64::NEG_INFINITY;

/// One number for each state and action, state by state.
type Table = [f64; PAIRS];

/// Rewards of 0 to 1; each action leads to `branches` random states.
struct Mdp {
    rewards: Table,
    successors: Vec<Vec<(usize, f64)>>,
}

/// An agent whose entropies are those of the behaviour.
fn of_behaviour(algorithm: Algorithm) -> Arc<dyn Agent> {
    let paper = Settings { algorithm, temperature: TEMPERATURE, discount: DISCOUNT, ..Settings::paper() };
    agents::agent(&Settings { n_step: STEPS as u32, ..paper })
}

/// An agent whose entropies are those of the policy in the target, with a lower bound of β·log π.
fn of_target(algorithm: Algorithm, n_step_entropy_floor: f64) -> Arc<dyn Agent> {
    let paper = Settings { algorithm, temperature: TEMPERATURE, discount: DISCOUNT, ..Settings::paper() };
    let n_step_entropy = NStepEntropy::Target;
    agents::agent(&Settings { n_step: STEPS as u32, n_step_entropy, n_step_entropy_floor, ..paper })
}

fn soft_of_target(floor: f64) -> Arc<dyn Agent> {
    of_target(algorithms::SOFT_DQN, floor)
}

impl Mdp {
    fn random(seed: u64, branches: usize) -> Self {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let rewards = std::array::from_fn(|_| rng.random_range(0.0..1.0));
        let successors = (0..PAIRS).map(|_| {
            let mut drawn: Vec<_> = (0..branches)
                .map(|_| (rng.random_range(0..STATES), -rng.random_range(f64::MIN_POSITIVE..1.0).ln()))
                .collect();
            let sum: f64 = drawn.iter().map(|(_, weight)| weight).sum();
            drawn.iter_mut().for_each(|(_, weight)| *weight /= sum);
            drawn
        });
        Self { rewards, successors: successors.collect() }
    }

    /// r + γ·E[values(s′)].
    fn backup(&self, values: &[f64; STATES]) -> Table {
        std::array::from_fn(|pair| {
            let next = self.successors[pair].iter().map(|&(state, share)| share * values[state]);
            self.rewards[pair] + DISCOUNT * next.sum::<f64>()
        })
    }

    /// The fixed point of the agent's one-step target.
    fn optimum(&self, agent: &dyn Agent) -> Table {
        let mut q = [0.0; PAIRS];
        loop {
            let next = self.targets(agent, &q, &UNIFORM, 1);
            let change = distance(&next, &q);
            q = next;
            if change < 1e-13 {
                return q;
            }
        }
    }

    /// The expected target of every state and action after `steps` steps under a behaviour.
    fn targets(&self, agent: &dyn Agent, q: &Table, behaviour: &Table, steps: usize) -> Table {
        let bonus = |pair: usize| {
            let of_policy = agent.inner_bonus(row(q, pair / ACTIONS), pair % ACTIONS);
            agent.bonus(1, 1.0, behaviour[pair].ln()) + of_policy
        };
        let mut targets = self.backup(&values(agent, q));
        if steps > 1 {
            let bonus: Table = std::array::from_fn(bonus);
            for _ in 1..steps {
                // A target of one step more: what the inner step adds, and the target from there.
                let inner = std::array::from_fn(|state| {
                    let pairs = state * ACTIONS..(state + 1) * ACTIONS;
                    pairs.map(|pair| behaviour[pair] * (bonus[pair] + targets[pair])).sum()
                });
                targets = self.backup(&inner);
            }
        }
        // What the agent adds for the first action.
        let nothing = Folded { sum: 0.0, discount: 0.0 };
        let first = |pair: usize| agent.target(row(q, pair / ACTIONS), pair % ACTIONS, nothing, None);
        std::array::from_fn(|pair| targets[pair] + first(pair))
    }

    /// The derivative at `q` of soft DQN's targets without a clip: one row for each target.
    fn derivative(&self, q: &Table, behaviour: &Table) -> Vec<Table> {
        let value = |state: usize| -> Table {
            let mut row_of = [0.0; PAIRS];
            soft::policy(row(q, state), TEMPERATURE, &mut row_of[state * ACTIONS..(state + 1) * ACTIONS]);
            row_of
        };
        let backup = |values: &[Table]| -> Vec<Table> {
            let of = |pair: usize| {
                let mut sum = [0.0; PAIRS];
                for &(state, share) in &self.successors[pair] {
                    add(&mut sum, DISCOUNT * share, &values[state]);
                }
                sum
            };
            (0..PAIRS).map(of).collect()
        };
        let values: Vec<Table> = (0..STATES).map(value).collect();
        let mut targets = backup(&values);
        for _ in 1..STEPS {
            let inner = |state: usize| {
                let mut sum = values[state];
                for pair in state * ACTIONS..(state + 1) * ACTIONS {
                    sum[pair] -= behaviour[pair];
                    add(&mut sum, behaviour[pair], &targets[pair]);
                }
                sum
            };
            targets = backup(&(0..STATES).map(inner).collect::<Vec<_>>());
        }
        targets
    }

    /// Moves Q from 0 by `step` of the way to its targets until it changes no more, for at most `most` times. Returns the last Q, or
    /// `None` if it did not settle, and the largest |Q| on the way.
    fn iterate(&self, agent: &dyn Agent, step: f64, most: usize) -> (Option<Table>, f64) {
        let (mut q, mut largest) = ([0.0; PAIRS], 0f64);
        for _ in 0..most {
            let targets = self.targets(agent, &q, &UNIFORM, STEPS);
            let next: Table = std::array::from_fn(|pair| q[pair] + step * (targets[pair] - q[pair]));
            let change = distance(&next, &q);
            q = next;
            largest = q.iter().fold(largest, |largest, value| largest.max(value.abs()));
            if change < step * 1e-7 {
                return (Some(q), largest);
            }
        }
        (None, largest)
    }
}

const UNIFORM: Table = [1.0 / ACTIONS as f64; PAIRS];

fn row(q: &Table, state: usize) -> &[f64] {
    &q[state * ACTIONS..(state + 1) * ACTIONS]
}

fn values(agent: &dyn Agent, q: &Table) -> [f64; STATES] {
    std::array::from_fn(|state| agent.value(row(q, state)))
}

fn distance(a: &Table, b: &Table) -> f64 {
    a.iter().zip(b).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max)
}

fn add(sum: &mut Table, factor: f64, other: &Table) {
    sum.iter_mut().zip(other).for_each(|(sum, other)| *sum += factor * other);
}

fn median(mut numbers: Vec<f64>) -> f64 {
    numbers.sort_by(f64::total_cmp);
    numbers[numbers.len() / 2]
}

/// Random action probabilities, at least 0.02 each.
fn random_behaviour(seed: u64) -> Table {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    let mut table: Table = std::array::from_fn(|_| rng.random_range(0.05..1.0));
    for state in table.chunks_mut(ACTIONS) {
        let sum: f64 = state.iter().sum();
        state.iter_mut().for_each(|share| *share /= sum);
    }
    table
}

/// softmax(Q/β) with a share of random actions.
fn explored(q: &Table, epsilon: f64) -> Table {
    let mut table = [0.0; PAIRS];
    for (state, out) in table.chunks_mut(ACTIONS).enumerate() {
        soft::policy(row(q, state), TEMPERATURE, out);
        out.iter_mut().for_each(|share| *share = (1.0 - epsilon) * *share + epsilon / ACTIONS as f64);
    }
    table
}

/// The largest |eigenvalue|, by Gelfand's formula: ‖Mᵏ‖^(1/k) with k = 2¹².
fn spectral_radius(mut matrix: Vec<Table>) -> f64 {
    let (mut log, mut power) = (0.0, 1.0);
    for _ in 0..12 {
        let norm = matrix.iter().flatten().map(|x| x * x).sum::<f64>().sqrt();
        log += norm.ln() / power;
        matrix.iter_mut().flatten().for_each(|x| *x /= norm);
        let squared = matrix.iter().map(|of| {
            let mut sum = [0.0; PAIRS];
            of.iter().zip(&matrix).for_each(|(factor, other)| add(&mut sum, *factor, other));
            sum
        });
        matrix = squared.collect();
        power *= 2.0;
    }
    let norm = matrix.iter().flatten().map(|x| x * x).sum::<f64>().sqrt();
    (log + norm.ln() / power).exp()
}

#[test]
fn at_the_optimum_the_targets_own_policy_has_no_bias_and_the_behaviours_log_probabilities_have() {
    let (exact, clipped) = (soft_of_target(NO_FLOOR), soft_of_target(-1.0));
    let stored = of_behaviour(algorithms::SOFT_DQN);
    let (mut exact_bias, mut explored_bias, mut random_bias) = (0f64, Vec::new(), Vec::new());
    for seed in 0..MDPS {
        let mdp = Mdp::random(seed, 1 + seed as usize % 3);
        let optimum = mdp.optimum(&*stored);
        let bias = |agent: &Arc<dyn Agent>, behaviour: &Table| {
            distance(&mdp.targets(&**agent, &optimum, behaviour, STEPS), &optimum)
        };
        let (random, epsilon) = (random_behaviour(seed), explored(&optimum, 0.1));
        for behaviour in [&random, &epsilon, &UNIFORM] {
            exact_bias = exact_bias.max(bias(&exact, behaviour));
        }
        explored_bias.push(bias(&stored, &epsilon));
        random_bias.push(bias(&stored, &random));
        // A clip takes from each inner step at most what V(s) − Q(s,a) exceeds it by.
        let gap = values(&*stored, &optimum).iter().enumerate().fold(0f64, |gap, (state, value)| {
            row(&optimum, state).iter().fold(gap, |gap, q| gap.max(value - q))
        });
        let most = (DISCOUNT + DISCOUNT * DISCOUNT) * (gap - 1.0).max(0.0) + 1e-9;
        assert!(bias(&clipped, &random) <= most, "seed {seed}");
    }
    let least = random_bias.iter().copied().fold(f64::INFINITY, f64::min);
    let (explored_bias, random_bias) = (median(explored_bias), median(random_bias));
    println!(
        "largest bias at the optimum, of {MDPS}: target {exact_bias:.1e}; behaviour, median: softmax with a tenth of random \
         actions {explored_bias:.2}, random {random_bias:.2}"
    );
    assert!(exact_bias <= 1e-9, "{exact_bias}");
    assert!(
        least > 0.1 && explored_bias > 0.02 && random_bias > 0.3,
        "{least} {explored_bias} {random_bias}"
    );
}

#[test]
fn at_munchausens_fixed_point_its_inner_steps_have_no_bias_and_bare_rewards_have() {
    let (exact, bare) =
        (of_target(algorithms::MUNCHAUSEN_DQN, NO_FLOOR), of_behaviour(algorithms::MUNCHAUSEN_DQN));
    for seed in 0..20 {
        let mdp = Mdp::random(seed, 1 + seed as usize % 3);
        let optimum = mdp.optimum(&*bare);
        for behaviour in [random_behaviour(seed), UNIFORM] {
            let bias =
                |agent: &dyn Agent| distance(&mdp.targets(agent, &optimum, &behaviour, STEPS), &optimum);
            assert!(bias(&*exact) <= 1e-9, "seed {seed}: {}", bias(&*exact));
            assert!(bias(&*bare) > 0.01, "seed {seed}: {}", bias(&*bare));
        }
    }
}

#[test]
fn without_a_clip_whole_steps_do_not_settle_in_a_quarter_of_deterministic_mdps_and_small_steps_do_in_all() {
    let (mut unstable, mut unsettled, mut farthest) = (0, 0, 0f64);
    let agent = soft_of_target(NO_FLOOR);
    for seed in 0..MDPS {
        let mdp = Mdp::random(seed, 1);
        let optimum = mdp.optimum(&*agent);
        let is_unstable = spectral_radius(mdp.derivative(&optimum, &UNIFORM)) > 1.0;
        unstable += u64::from(is_unstable);
        let (settled, most) = mdp.iterate(&*agent, 1.0, 4_000);
        // Values at the optimum are at most 1/(1 − γ), and little more with the entropy.
        assert!(most < 1_000.0, "seed {seed}: |Q| reaches {most}");
        unsettled += u64::from(settled.is_none());
        assert!(!is_unstable || settled.is_none(), "seed {seed} settled at an unstable optimum");
        let (settled, _) = mdp.iterate(&*agent, 0.1, 20_000);
        let settled = settled.unwrap_or_else(|| panic!("seed {seed} does not settle with small steps"));
        farthest = farthest.max(distance(&settled, &optimum));
    }
    println!(
        "deterministic, uniform behaviour, of {MDPS}: spectral radius above 1 in {unstable}, unsettled {unsettled}; \
         with steps of 0.1 all settle, at most {farthest:.1e} from the optimum"
    );
    assert!((MDPS * 15 / 100..=MDPS * 35 / 100).contains(&unstable), "{unstable}");
    assert!(farthest < 1e-5, "{farthest}");
}

/// With β·log π ≥ −c the target is at most Σ γᵏ·(1 + c) + γⁿ·(max |Q| + β·log A), whatever the behaviour: |Q| can't grow.
#[test]
fn a_clip_bounds_every_iteration_and_no_clip_lets_one_step_multiply_large_values() {
    let growth = DISCOUNT.powi(STEPS as i32);
    let unclipped = soft_of_target(NO_FLOOR);
    for floor in [-0.3, -1.0, -5.0] {
        let clipped = soft_of_target(floor);
        let own = 1.0
            + (DISCOUNT + DISCOUNT * DISCOUNT) * (1.0 - floor)
            + growth * TEMPERATURE * (ACTIONS as f64).ln();
        for seed in 0..MDPS {
            let mdp = Mdp::random(seed, 1 + seed as usize % 3);
            let (_, largest) = mdp.iterate(&*clipped, 1.0, 500);
            assert!(largest <= own / (1.0 - growth), "seed {seed}: {largest}");
            // Values of another scale, as a diverging network has them.
            let mut rng = ChaCha8Rng::seed_from_u64(seed);
            let q: Table = std::array::from_fn(|_| rng.random_range(-1e6..1e6));
            let norm = |q: &Table| q.iter().fold(0f64, |norm, value| norm.max(value.abs()));
            let targets = |agent: &dyn Agent| norm(&mdp.targets(agent, &q, &UNIFORM, STEPS));
            assert!(targets(&*clipped) <= own + growth * norm(&q), "seed {seed}");
            assert!(targets(&*unclipped) > norm(&q), "seed {seed}: one step enlarges the values");
        }
    }
}

#[test]
fn with_the_clip_small_steps_settle_in_every_mdp_nearer_to_the_optimum_than_the_behaviours_entropies() {
    let stored = of_behaviour(algorithms::SOFT_DQN);
    let clipped =
        [0.0, -0.3, -1.0, -3.0].map(|floor| (format!("target, floor {floor}"), soft_of_target(floor)));
    let agents = [("behaviour".to_owned(), stored.clone())].into_iter().chain(clipped);
    let error = |(name, agent): (String, Arc<dyn Agent>)| {
        let of = |seed| {
            let mdp = Mdp::random(seed, 1 + seed as usize % 3);
            let (settled, _) = mdp.iterate(&*agent, 0.1, 20_000);
            let settled = settled.unwrap_or_else(|| panic!("{name}, seed {seed}: does not settle"));
            distance(&settled, &mdp.optimum(&*stored))
        };
        let errors: Vec<f64> = (0..MDPS).map(of).collect();
        let largest = errors.iter().copied().fold(0.0, f64::max);
        let error = median(errors);
        println!(
            "uniform behaviour, {name}: all {MDPS} settle, error median {error:.2}, largest {largest:.2}"
        );
        error
    };
    let errors: Vec<f64> = agents.map(error).collect();
    // Of the last three, a lower floor is nearer; that of the presets is much nearer than the behaviour's.
    assert!(errors[2..].windows(2).all(|pair| pair[1] <= pair[0] + 1e-6), "{errors:?}");
    assert!(errors[3] < errors[0] / 4.0, "{errors:?}");
}
