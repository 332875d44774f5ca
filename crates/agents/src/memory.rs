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

/// Copies the elements of an f32 tensor as little-endian bytes: one pass over memory, or one transfer from the tensor's
/// device.
///
/// # Panics
/// If the tensor is of another kind or empty, or if there are not four bytes for each element.
pub fn copy_to_bytes(tensor: &Tensor, bytes: &mut [u8]) {
    let on_cpu = tensor.to_device(Device::Cpu).contiguous();
    let values = floats(&on_cpu).expect("an f32 tensor with elements");
    let (places, rest) = bytes.as_chunks_mut::<{ size_of::<f32>() }>();
    assert!(places.len() == tensor.numel() && rest.is_empty(), "four bytes for each element");
    for (place, value) in places.iter_mut().zip(values) {
        *place = value.to_le_bytes();
    }
}

/// The inverse of [`copy_to_bytes`]: one pass over memory, or one transfer to the tensor's device.
///
/// # Panics
/// If there are not four bytes for each element.
pub fn copy_from_bytes(tensor: &mut Tensor, bytes: &[u8]) {
    let (values, rest) = bytes.as_chunks::<{ size_of::<f32>() }>();
    assert!(values.len() == tensor.numel() && rest.is_empty(), "four bytes for each element");
    if let Some(places) = floats_mut(tensor) {
        for (place, value) in places.iter_mut().zip(values) {
            *place = f32::from_le_bytes(*value);
        }
        return;
    }
    let values = Tensor::from_data_size(bytes, &tensor.size(), Kind::Float);
    tch::no_grad(|| tensor.copy_(&values));
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
    fn bytes_are_little_endian_and_come_back() {
        let tensor = Tensor::from_slice(&[1f32, -2.5]);
        let mut bytes = [0; 8];
        copy_to_bytes(&tensor, &mut bytes);
        assert_eq!(bytes, [0, 0, 128, 63, 0, 0, 32, 192]);
        // A tensor whose memory is not visible takes the other route.
        let mut matrix = Tensor::zeros([2, 2], (Kind::Float, Device::Cpu)).narrow(1, 0, 1);
        assert!(floats(&matrix).is_none());
        let mut plain = Tensor::zeros([2], (Kind::Float, Device::Cpu));
        for other in [&mut matrix, &mut plain] {
            copy_from_bytes(other, &bytes);
            assert_eq!(Vec::<f32>::try_from(other.reshape([-1])).unwrap(), [1.0, -2.5]);
        }
    }

    #[test]
    fn only_plain_float_tensors_are_visible() {
        let matrix = Tensor::from_slice(&[1f32, 2.0, 3.0, 4.0]).view([2, 2]);
        assert!(floats(&matrix).is_some());
        assert!(floats(&matrix.tr()).is_none());
        assert!(floats(&Tensor::from_slice(&[1i64])).is_none());
    }
}
