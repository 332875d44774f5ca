//! A CPU tensor's memory as a slice.
//!
//! Adam reads and writes each parameter once if it can see the numbers; through tensor operations it would make
//! about ten passes over memory. States are unpacked into tensors without a copy in between.

#![allow(unsafe_code, reason = "the one file of this crate that looks into a tensor's memory")]

use tch::{Device, Kind, Tensor};

use crate::kernels::Bf16;

/// An element type that a tensor's memory can be seen as.
///
/// # Safety
///
/// `KIND` has this type's size and alignment, and every bit pattern is a value.
pub unsafe trait Visible: Copy {
    const KIND: Kind;
}

// SAFETY: a Float tensor holds f32.
unsafe impl Visible for f32 {
    const KIND: Kind = Kind::Float;
}

// SAFETY: a BFloat16 tensor holds numbers of 16 bits, of which `Bf16` is a transparent wrapper.
unsafe impl Visible for Bf16 {
    const KIND: Kind = Kind::BFloat16;
}

// SAFETY: a Uint8 tensor holds bytes.
unsafe impl Visible for u8 {
    const KIND: Kind = Kind::Uint8;
}

/// The elements of a contiguous tensor on the CPU, to read; `None` for any other tensor.
pub fn elements<T: Visible>(tensor: &Tensor) -> Option<&[T]> {
    let length = visible_length::<T>(tensor)?;
    // SAFETY: the tensor is contiguous, of this type and on the CPU, so its data pointer is aligned and valid for `length`
    // elements for as long as the tensor lives, which the borrow guarantees. libtorch only writes to this memory
    // in calls made by this crate's owner thread, and none is made while the slice is borrowed.
    Some(unsafe { std::slice::from_raw_parts(tensor.data_ptr().cast::<T>(), length) })
}

/// The elements of a contiguous tensor on the CPU, to change; `None` for any other tensor.
///
/// Views of the same memory see the change, as they do with libtorch's own in-place operations.
pub fn elements_mut<T: Visible>(tensor: &mut Tensor) -> Option<&mut [T]> {
    let length = visible_length::<T>(tensor)?;
    // SAFETY: as above; the exclusive borrow of the tensor, and this crate never making two slices of one storage at
    // a time, make the slice unique.
    Some(unsafe { std::slice::from_raw_parts_mut(tensor.data_ptr().cast::<T>(), length) })
}

/// Copies the elements of an f32 tensor as little-endian bytes: one pass over memory, or one transfer from the tensor's
/// device.
///
/// # Panics
/// If the tensor is of another kind or empty, or if there are not four bytes for each element.
pub fn copy_to_bytes(tensor: &Tensor, bytes: &mut [u8]) {
    let on_cpu = tensor.to_device(Device::Cpu).contiguous();
    let values = elements::<f32>(&on_cpu).expect("an f32 tensor with elements");
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
    if let Some(places) = elements_mut::<f32>(tensor) {
        for (place, value) in places.iter_mut().zip(values) {
            *place = f32::from_le_bytes(*value);
        }
        return;
    }
    let values = Tensor::from_data_size(bytes, &tensor.size(), Kind::Float);
    tch::no_grad(|| tensor.copy_(&values));
}

fn visible_length<T: Visible>(tensor: &Tensor) -> Option<usize> {
    let visible = tensor.device() == Device::Cpu && tensor.kind() == T::KIND && tensor.is_contiguous();
    (visible && tensor.numel() > 0).then(|| tensor.numel())
}

/// Makes glibc keep freed memory instead of returning it to the system. A network allocates the same megabytes again with every
/// pass, and faulting them in anew each time costs up to a tenth of an update. Other C libraries have their own policies.
pub fn keep_freed_memory() {
    #[cfg(target_env = "gnu")]
    {
        // The largest value that glibc accepts for the second.
        const OPTIONS: [(i32, i32); 2] =
            [(libc::M_TRIM_THRESHOLD, 1 << 30), (libc::M_MMAP_THRESHOLD, 32 << 20)];
        for (option, value) in OPTIONS {
            // SAFETY: mallopt may be called at any time, and a value that it refuses changes nothing.
            unsafe { libc::mallopt(option, value) };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_of_the_slice_is_a_change_of_the_tensor_and_its_views() {
        let mut tensor = Tensor::from_slice(&[1f32, 2.0, 3.0, 4.0]);
        let view = tensor.narrow(0, 2, 2);
        elements_mut::<f32>(&mut tensor).unwrap()[3] = 9.0;
        assert_eq!(elements::<f32>(&tensor).unwrap(), [1.0, 2.0, 3.0, 9.0]);
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
        assert!(elements::<f32>(&matrix).is_none());
        let mut plain = Tensor::zeros([2], (Kind::Float, Device::Cpu));
        for other in [&mut matrix, &mut plain] {
            copy_from_bytes(other, &bytes);
            assert_eq!(Vec::<f32>::try_from(other.reshape([-1])).unwrap(), [1.0, -2.5]);
        }
    }

    #[test]
    fn only_plain_tensors_of_the_type_are_visible() {
        let matrix = Tensor::from_slice(&[1f32, 2.0, 3.0, 4.0]).view([2, 2]);
        assert!(elements::<f32>(&matrix).is_some());
        assert!(elements::<f32>(&matrix.tr()).is_none());
        assert!(elements::<Bf16>(&matrix).is_none());
        assert!(elements::<f32>(&Tensor::from_slice(&[1i64])).is_none());
        let halves = matrix.to_kind(Kind::BFloat16);
        assert_eq!(elements::<Bf16>(&halves).unwrap()[0], Bf16(0x3f80), "1 in bf16");
    }
}
