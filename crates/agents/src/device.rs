//! Which device tensors live on.

use settings::choices;
use tch::{Cuda, Device};

/// The requested GPU does not exist.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "GPU {requested} not found: libtorch sees {found} GPUs; use --device cpu, or a libtorch built for CUDA (see docs/gpu.md)"
)]
pub struct NoSuchDevice {
    requested: usize,
    found: i64,
}

/// The device that a run's settings request. `auto` is the first GPU if there is one, else the CPU.
pub fn open(device: choices::Device) -> Result<Device, NoSuchDevice> {
    match device {
        choices::Device::Auto => Ok(Device::cuda_if_available()),
        choices::Device::Cpu => Ok(Device::Cpu),
        choices::Device::Cuda(number) => cuda(number),
    }
}

fn cuda(number: usize) -> Result<Device, NoSuchDevice> {
    let found = if Cuda::is_available() { Cuda::device_count() } else { 0 };
    if (number as i64) < found {
        Ok(Device::Cuda(number))
    } else {
        Err(NoSuchDevice { requested: number, found })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_gpu_is_refused() {
        assert!(cuda(999).unwrap_err().to_string().contains("--device cpu"));
    }
}
