//! Observes the learner: at every so many updates, each transition of the batch becomes an [`Experience`].
//!
//! Q(s,·) is the online network's row before the step, the target is the learner's own, from the same pass as the update's;
//! the target stands in for Q_new(s,a), as in the paper's section 5. The theorems' proofs hold for any number in the place of
//! Q_new(s,a), so n-step, double and dueling targets satisfy them by arithmetic: the code below does not depend on the kind of
//! target.
//!
//! After the step the same states are valued once more, for [`Real`].

use std::collections::HashMap;

use agents::read::numbers;
use agents::{QNetwork, TensorBatch};
use learner::Learner;
use lockstep::UpdateObserver;
use settings::Settings;

use super::real::Real;
use crate::experience::{Experience, Rule, Tally};

/// Names a transition of a run: the run's seed, and the number of transitions drawn before it.
pub type TransitionName = (u64, u64);

/// What the target of a transition was computed from, besides its reward.
#[derive(Clone, Debug, PartialEq)]
pub struct Successor {
    /// The factor of V(s'): γ, or 0 after a termination with a terminal mask.
    pub discount: f64,
    /// Whether the episode terminated with the transition.
    pub terminated: bool,
    /// Q(s',·) of the target network.
    pub q: Vec<f64>,
    /// Q(s',·) of the online network, which chooses the action of double Q-learning.
    pub online_q: Vec<f64>,
}

/// Examines the updates of one run.
pub struct Examiner {
    /// The bounds of the transitions examined so far.
    pub tally: Tally,
    /// The effects of the real steps.
    pub real: Real,
    /// Successors of the transitions that the tally keeps, and of others.
    pub successors: HashMap<TransitionName, Successor>,
    rule: Rule,
    trial: u64,
    every: u64,
    termination_reward: Option<f64>,
    /// Transitions of the step in progress.
    current: Vec<Experience>,
}

impl Examiner {
    /// Examines every `every`-th update of a run.
    pub fn new(rule: Rule, settings: &Settings, every: u64) -> Self {
        Self {
            tally: Tally::new(),
            real: Real::default(),
            successors: HashMap::new(),
            rule,
            trial: settings.seed,
            every,
            termination_reward: settings.termination_reward.0,
            current: Vec::new(),
        }
    }

    /// Ends the run. Of the successors, only those of kept transitions remain.
    pub fn finish(mut self) -> Self {
        let mut kept = HashMap::new();
        for experience in self.tally.kept() {
            let name = (experience.trial, experience.step);
            kept.extend(self.successors.remove_entry(&name));
        }
        Self { successors: kept, ..self }
    }

    fn successors(&mut self, learner: &Learner, batch: &TensorBatch, first: u64) {
        let rows = |network: &QNetwork| {
            let output = tch::no_grad(|| network.forward(&batch.next_states));
            numbers(&learner.agent().q_values(output))
        };
        let (target, online) = (rows(learner.target()), rows(learner.online()));
        let (discounts, returns) = (decimals(&batch.discounts), decimals(&batch.returns));
        let width = target.len() / discounts.len();
        let rows = target.chunks_exact(width).zip(online.chunks_exact(width));
        for (index, (q, online_q)) in rows.enumerate() {
            let discount = discounts[index];
            // In one step of CartPole no other transition has these values.
            let terminated = discount == 0.0 || self.termination_reward == Some(returns[index]);
            let (q, online_q) = (q.to_vec(), online_q.to_vec());
            let name = (self.trial, first + index as u64);
            self.successors.insert(name, Successor { discount, terminated, q, online_q });
        }
    }
}

impl UpdateObserver for Examiner {
    fn before(&mut self, learner: &Learner, batch: &TensorBatch) {
        if !learner.updates().is_multiple_of(self.every) {
            return;
        }
        let pass = learner.evaluate_loss(batch);
        let (q, targets) = (numbers(&pass.q), numbers(&pass.targets));
        // The return of one step is its reward; of several, their sum with the agent's bonuses between.
        let (actions, returns) = (numbers(&batch.actions), numbers(&batch.returns));
        let width = q.len() / actions.len();
        let first = learner.updates() * actions.len() as u64;
        self.successors(learner, batch, first);
        self.current.extend(q.chunks_exact(width).enumerate().map(|(index, q)| {
            let name = (self.trial, first + index as u64);
            let taken = (actions[index] as usize, returns[index]);
            Experience::new(self.rule, name, q, taken, targets[index], 1.0)
        }));
    }

    fn after(&mut self, learner: &Learner, batch: &TensorBatch) {
        if self.current.is_empty() {
            return;
        }
        let output = tch::no_grad(|| learner.online().forward(&batch.states));
        let q = numbers(&learner.agent().q_values(output));
        let width = q.len() / self.current.len();
        for (experience, new) in self.current.drain(..).zip(q.chunks_exact(width)) {
            self.real.add(&experience, new);
            self.tally.add(experience);
        }
    }
}

/// The numbers that f32 elements were rounded from, if those have few digits, as discounts and rewards do.
fn decimals(tensor: &tch::Tensor) -> Vec<f64> {
    let shortest = |number: f64| (number as f32).to_string().parse().unwrap_or(number);
    numbers(tensor).into_iter().map(shortest).collect()
}
