//! From a run's settings to the objects that learn.

use envs::Spec;
use replay::{Remover, Sampler, StoreOptions, TableOptions};
use settings::Settings;
use settings::choices::Device;

/// The whole replay.
pub fn store(settings: &Settings, spec: &Spec) -> StoreOptions {
    let table = TableOptions {
        name: "transitions".into(),
        capacity: settings.capacity.0 as usize,
        sampler: if settings.strategy.uses_priorities { Sampler::Proportional } else { Sampler::Uniform },
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
pub fn device(device: Device) -> Result<tch::Device, agents::device::NoSuchDevice> {
    match device {
        Device::Auto => Ok(agents::device::automatic()),
        Device::Cpu => Ok(tch::Device::Cpu),
        Device::Cuda(number) => agents::device::cuda(number),
    }
}
