//! Looks on at the learner: every so many updates, each transition of the batch becomes an [`Experience`].
//!
//! Q(s,·) is the online network's row before the step, the target is the learner's own, from the pass that the update
//! makes too; the target stands in for Q_new(s,a), as in the paper's section 5. The theorems' proofs hold for any
//! number that takes Q(s,a)'s place, so that n-step, double and dueling targets satisfy them by arithmetic: nothing
//! below knows which it is.
//!
//! After the step the same states are valued once more, for [`Real`].

use agents::TensorBatch;
use learner::Learner;
use lockstep::UpdateObserver;
use tch::{Device, Kind, Tensor};

use super::real::Real;
use crate::experience::{Experience, Rule, Tally};

/// Examines the updates of one run.
pub struct Examiner {
    /// What the theorems say of the transitions seen so far.
    pub tally: Tally,
    /// What the steps really did.
    pub real: Real,
    rule: Rule,
    /// The run's seed: it names the transition.
    trial: u64,
    /// Updates from one that is examined to the next.
    every: u64,
    /// Those of the step that is being made.
    current: Vec<Experience>,
}

impl Examiner {
    /// Looks at every `every`-th update.
    pub fn new(rule: Rule, trial: u64, every: u64) -> Self {
        Self { tally: Tally::new(), real: Real::default(), rule, trial, every, current: Vec::new() }
    }
}

impl UpdateObserver for Examiner {
    fn before(&mut self, learner: &Learner, batch: &TensorBatch) {
        if !learner.updates().is_multiple_of(self.every) {
            return;
        }
        let pass = learner.evaluate_loss(batch);
        let (q, targets) = (numbers(&pass.q), numbers(&pass.targets));
        // The return of one step is its reward; of several, their sum with what entropy adds between.
        let (actions, returns) = (numbers(&batch.actions), numbers(&batch.returns));
        let width = q.len() / actions.len();
        // A transition's number is how many were drawn before it in this run.
        let first = learner.updates() * actions.len() as u64;
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

/// The elements of a tensor, row by row; those of an f32 become the same numbers.
fn numbers(tensor: &Tensor) -> Vec<f64> {
    let tensor = tensor.to_device(Device::Cpu).to_kind(Kind::Double);
    let mut numbers = vec![0.0; tensor.numel()];
    tensor.copy_data(&mut numbers, tensor.numel());
    numbers
}
