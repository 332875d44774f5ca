//! From a run's settings to the objects that learn.

use envs::{Element, Spec};
use nn::objective::{Objective, Shape, Target};
use nn::{Architecture, Input, Trunk};
use replay::{Remover, Sampler, StoreOptions, TableOptions};
use run::choices::{Algorithm, Device, Loss, Network};
use run::settings::Settings;
use value::priority::Strategy;

/// The network for an environment.
pub fn architecture(settings: &Settings, spec: &Spec) -> Architecture {
    let stack = settings.frame_stack as i64;
    let shape: Vec<i64> = spec.observation.shape.iter().map(|&size| size as i64).collect();
    let input = match (spec.observation.element, shape.as_slice()) {
        (Element::U8, &[height, width]) => Input::Pixels { stack, height, width },
        _ => Input::Vector(stack * shape.iter().product::<i64>()),
    };
    let trunk = match settings.network {
        Network::Nature => Trunk::Nature,
        Network::Small => Trunk::Small,
        Network::Mlp => Trunk::Mlp,
    };
    let (hidden, actions) = (settings.hidden_units as i64, spec.actions.len() as i64);
    Architecture { input, trunk, hidden, actions, dueling: settings.dueling }
}

/// What is minimised.
pub fn objective(settings: &Settings) -> Objective {
    Objective {
        target: match settings.algorithm {
            Algorithm::SoftDqn => Target::Soft { temperature: settings.temperature },
            Algorithm::Dqn => Target::Hard,
        },
        double: settings.double,
        shape: match settings.loss {
            Loss::Huber => Shape::Huber,
            Loss::Squared => Shape::Squared,
        },
        strategy: settings.strategy,
        rho: settings.rho,
    }
}

/// Whether the priorities of a strategy need to know how reliable an item's target is.
pub fn wants_reliabilities(settings: &Settings) -> bool {
    settings.strategy == Strategy::Reaper
}

/// The whole replay.
pub fn store(settings: &Settings, spec: &Spec) -> StoreOptions {
    let table = TableOptions {
        name: "transitions".into(),
        capacity: settings.capacity.0 as usize,
        sampler: match settings.strategy {
            Strategy::Uniform => Sampler::Uniform,
            Strategy::Per | Strategy::Ver | Strategy::Reaper => Sampler::Proportional,
        },
        remover: Remover::Fifo,
        max_times_sampled: 0,
        priority_exponent: settings.priority_exponent,
        priority_constant: settings.priority_constant,
        first_priority: settings.first_priority,
    };
    StoreOptions {
        bytes_max: settings.replay_bytes.0 as usize,
        stack: settings.frame_stack,
        frame_bytes: spec.observation.bytes(),
        tables: vec![table],
    }
}

/// The device asked for.
pub fn device(device: Device) -> Result<tch::Device, nn::device::NoSuchDevice> {
    match device {
        Device::Auto => Ok(nn::device::automatic()),
        Device::Cpu => Ok(tch::Device::Cpu),
        Device::Cuda(number) => nn::device::cuda(number),
    }
}
