//! A CPU tensor's memory as a slice: the only unsafe code of this crate.
//!
//! Adam reads and writes each parameter once if it can see the numbers; through tensor operations it would make
//! about ten passes over memory.

#![allow(unsafe_code, reason = "the one file of this crate that looks into a tensor's memory")]

use tch::{Device, Kind, Tensor};

/// The elements of a contiguous f32 tensor on the CPU, to read; `None` for any other tensor.
pub fn floats(tensor: &Tensor) -> Option<&[f32]> {
    let length = visible_length(tensor)?;
    // SAFETY: the tensor is contiguous, f32 and on the CPU, so its data pointer is aligned and valid for `length`
    // elements for as long as the tensor lives, which the borrow guarantees. libtorch only writes to this memory
    // in calls made by this crate's owner thread, and none is made while the slice is borrowed.
    Some(unsafe { std::slice::from_raw_parts(tensor.data_ptr().cast::<f32>(), length) })
}

/// The elements of a contiguous f32 tensor on the CPU, to change; `None` for any other tensor.
///
/// Views of the same memory see the change, as they do with libtorch's own in-place operations.
pub fn floats_mut(tensor: &mut Tensor) -> Option<&mut [f32]> {
    let length = visible_length(tensor)?;
    // SAFETY: as above; the exclusive borrow of the tensor, and this crate never making two slices of one storage at
    // a time, make the slice unique.
    Some(unsafe { std::slice::from_raw_parts_mut(tensor.data_ptr().cast::<f32>(), length) })
}

fn visible_length(tensor: &Tensor) -> Option<usize> {
    let visible = tensor.device() == Device::Cpu && tensor.kind() == Kind::Float && tensor.is_contiguous();
    (visible && tensor.numel() > 0).then(|| tensor.numel())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_of_the_slice_is_a_change_of_the_tensor_and_its_views() {
        let mut tensor = Tensor::from_slice(&[1f32, 2.0, 3.0, 4.0]);
        let view = tensor.narrow(0, 2, 2);
        floats_mut(&mut tensor).unwrap()[3] = 9.0;
        assert_eq!(floats(&tensor).unwrap(), [1.0, 2.0, 3.0, 9.0]);
        assert_eq!(Vec::<f32>::try_from(&view).unwrap(), [3.0, 9.0]);
    }

    #[test]
    fn only_plain_float_tensors_are_visible() {
        let matrix = Tensor::from_slice(&[1f32, 2.0, 3.0, 4.0]).view([2, 2]);
        assert!(floats(&matrix).is_some());
        assert!(floats(&matrix.tr()).is_none());
        assert!(floats(&Tensor::from_slice(&[1i64])).is_none());
    }
}
