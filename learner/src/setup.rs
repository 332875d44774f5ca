//! From a run's settings to the objects that learn.

use settings::choices::Device;

/// The device asked for.
pub fn device(device: Device) -> Result<tch::Device, agents::device::NoSuchDevice> {
    match device {
        Device::Auto => Ok(agents::device::automatic()),
        Device::Cpu => Ok(tch::Device::Cpu),
        Device::Cuda(number) => agents::device::cuda(number),
    }
}
