//! Which device tensors live on.

use settings::choices::{self, Precision};
use tch::{Cuda, Device, Tensor};

/// The requested GPU does not exist, or this build or the machine's driver can't use it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoSuchDevice {
    #[error(
        "GPU {requested} not found: this build is for the CPU; build with GPU=1 (see docs/gpu.md), or use --device cpu"
    )]
    BuiltForCpu { requested: usize },
    #[error(
        "GPU {requested} not found: libtorch sees {found} GPUs; check with nvidia-smi that the driver is of series 580 or newer \
         (see docs/gpu.md), or use --device cpu"
    )]
    NotVisible { requested: usize, found: i64 },
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
    if !tch::utils::has_cudart() {
        return Err(NoSuchDevice::BuiltForCpu { requested: number });
    }
    let found = if Cuda::is_available() { Cuda::device_count() } else { 0 };
    if (number as i64) < found {
        Ok(Device::Cuda(number))
    } else {
        Err(NoSuchDevice::NotVisible { requested: number, found })
    }
}

/// Why `precision` is a bad choice on this device, if it is.
pub fn precision_warning(precision: Precision, device: Device) -> Option<&'static str> {
    if precision == Precision::F32 || device != Device::Cpu {
        return None;
    }
    // Processors with AMX have it too.
    #[cfg(target_arch = "x86_64")]
    if is_x86_feature_detected!("avx512bf16") {
        return None;
    }
    Some("precision is bf16, which this processor computes slowly, without avx512_bf16: use --precision f32")
}

/// Copies a tensor of this process to `device`. The copy to a GPU is asynchronous: it starts from page-locked memory that libtorch
/// hands out anew each time and reuses only after the copy has ended, so nothing here writes to it again.
pub(crate) fn upload(tensor: &Tensor, device: Device) -> Tensor {
    if !device.is_cuda() {
        return tensor.to_device(device);
    }
    let staged = tensor.pin_memory(device);
    staged.internal_to_copy((tensor.kind(), device), true)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_gpu_is_refused() {
        assert!(cuda(999).unwrap_err().to_string().contains("--device cpu"));
    }

    /// The build script links libtorch_cuda if it is beside libtorch_cpu.
    #[test]
    fn the_remedy_for_a_missing_gpu_depends_on_the_build() {
        let remedy = if tch::utils::has_cudart() { "nvidia-smi" } else { "build with GPU=1" };
        assert!(cuda(999).unwrap_err().to_string().contains(remedy));
    }
}
