//! Reading tensors: the only place of learner and actor where numbers leave libtorch.
//!
//! On a GPU each read waits until all work before it is done, so an update must make one and not fifteen. Reads are counted, and
//! `clippy.toml` disallows tch's own methods elsewhere.
#![allow(clippy::disallowed_methods, reason = "the one module that reads tensors")]

use std::cell::Cell;

use tch::{Device, Kind, Tensor};

use crate::memory;

thread_local! {
    static READS: Cell<u64> = const { Cell::new(0) };
}

/// Reads that this thread has made.
pub fn count() -> u64 {
    READS.get()
}

/// The elements of tensors, one tensor after the other, row by row. One read, whatever their number.
pub fn floats(tensors: &[&Tensor]) -> Vec<f32> {
    READS.set(READS.get() + 1);
    let rows: Vec<Tensor> =
        tensors.iter().map(|tensor| tensor.detach().reshape([-1]).to_kind(Kind::Float)).collect();
    let row = match rows.as_slice() {
        [row] => row.shallow_clone(),
        rows => Tensor::cat(rows, 0),
    };
    let row = row.to_device(Device::Cpu);
    let mut floats = vec![0.0; row.numel()];
    row.copy_data(&mut floats, row.numel());
    floats
}

/// The elements of one tensor in f64, row by row.
pub fn numbers(tensor: &Tensor) -> Vec<f64> {
    floats(&[tensor]).into_iter().map(f64::from).collect()
}

/// The bytes of an f32 tensor.
pub fn bytes(tensor: &Tensor) -> Vec<u8> {
    READS.set(READS.get() + 1);
    let tensor = tensor.to_device(Device::Cpu);
    let mut bytes = vec![0; tensor.numel() * size_of::<f32>()];
    tensor.copy_data_u8(&mut bytes, tensor.numel());
    bytes
}

/// Writes the bytes of an f32 tensor into `bytes`: one pass over memory, or one transfer from its device.
pub(crate) fn into(tensor: &Tensor, bytes: &mut [u8]) {
    READS.set(READS.get() + 1);
    memory::copy_to_bytes(tensor, bytes);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn several_tensors_are_read_at_once() {
        let before = count();
        let (scalar, matrix) = (Tensor::from(1.5f32), Tensor::from_slice(&[2i64, 3, 4, 5]).view([2, 2]));
        assert_eq!(floats(&[&scalar, &matrix.tr()]), [1.5, 2.0, 4.0, 3.0, 5.0]);
        assert_eq!(count() - before, 1);
    }
}
