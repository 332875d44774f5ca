//! Agents: what an algorithm decides, behind one trait ([`Agent`]), one file per algorithm, and one list ([`agent`]).
//!
//! The actor acts with an agent and the learner trains one; neither depends on which it is. Below the trait are the parts that all
//! agents share: the network ([`QNetwork`]), whose parameters are views of one flat tensor so that Adam makes a few passes over
//! one piece of memory and weights are published by one copy; the optimizer ([`Adam`]); the fold of a window of steps into a
//! return ([`Returns`]); and how actions are drawn ([`Behaviour`]).
//!
//! Targets exist twice, on tensors for the learner and on f64 slices for the actor's initial priorities; a test compares them for
//! every agent in the list. Priorities exist once, in `value`. This crate knows nothing of shards, environments' rules or files.
#![deny(unsafe_code)]

pub mod adam;
mod agent;
pub mod architecture;
mod behaviour;
pub mod device;
mod dqn;
mod helper;
mod kernels;
mod memory;
mod munchausen_dqn;
pub mod network;
mod ops;
pub mod parameters;
pub mod read;
mod returns;
pub mod soft;
mod soft_dqn;
mod trace;

use std::sync::Arc;

use settings::Settings;
use settings::algorithms::{self, Algorithm};

pub use adam::Adam;
pub use agent::{Agent, Ahead, InnerSteps, Pass, PassNumbers, TargetValues, TdLearning, TensorBatch};
pub use architecture::{Architecture, Head};
pub use behaviour::{Behaviour, Chosen, sample};
pub use helper::Helper;
pub use memory::keep_freed_memory;
pub use network::{QNetwork, StateFormat};
pub use returns::{Folded, Returns};
pub use tch::Device;
pub use trace::Trace;

/// Makes an agent from the settings of its run.
type Make = fn(&Settings) -> Box<dyn Agent>;

/// The implementation of every algorithm that the settings list.
const AGENTS: &[(Algorithm, Make)] = &[
    (algorithms::SOFT_DQN, soft_dqn::make),
    (algorithms::DQN, dqn::make),
    (algorithms::MUNCHAUSEN_DQN, munchausen_dqn::make),
];

/// The agent that these settings describe.
///
/// # Panics
///
/// If the settings list an algorithm that has no implementation here, which a test rules out.
pub fn agent(settings: &Settings) -> Arc<dyn Agent> {
    let found = AGENTS.iter().find(|(algorithm, _)| *algorithm == settings.algorithm);
    let (_, make) = found.expect("every listed algorithm has an agent");
    Arc::from(make(settings))
}

#[cfg(test)]
mod tests {
    use super::*;
    use value::Listed;

    #[test]
    fn every_algorithm_of_the_settings_has_one_agent() {
        let implemented: Vec<_> = AGENTS.iter().map(|(algorithm, _)| *algorithm).collect();
        assert_eq!(implemented, algorithms::AlgorithmEntry::list());
    }

    #[test]
    fn an_agent_has_a_temperature_if_its_entry_declares_a_soft_policy() {
        for &algorithm in algorithms::AlgorithmEntry::list() {
            let settings = Settings { algorithm, ..Settings::paper() };
            assert_eq!(agent(&settings).temperature().is_some(), algorithm.has_soft_policy, "{algorithm}");
        }
    }
}
