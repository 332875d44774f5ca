//! Operations on tensors that tch does not bind, or not in the form that is fastest here.

#![allow(unsafe_code, reason = "calls C++")]

use std::ffi::{CStr, c_char};

use tch::{Device, Kind, Tensor};
use torch_sys::C_tensor;

unsafe extern "C" {
    fn quiver_convolution_backward(
        gradient: *const C_tensor,
        input: *const C_tensor,
        weight: *const C_tensor,
        stride: i64,
        wants_input: bool,
        input_gradient: *mut *mut C_tensor,
        weight_gradient: *mut *mut C_tensor,
        bias_gradient: *mut *mut C_tensor,
        error: *mut c_char,
        error_size: usize,
    ) -> bool;
}

/// The gradient of a convolution's input.
pub fn convolution_input_gradient(gradient: &Tensor, input: &Tensor, weight: &Tensor, stride: i64) -> Tensor {
    let [input, _, _] = convolution_backward(gradient, input, weight, stride, true);
    input.expect("asked for")
}

/// The gradients of a convolution's weight and bias.
pub fn convolution_weight_gradient(
    gradient: &Tensor,
    input: &Tensor,
    weight: &Tensor,
    stride: i64,
) -> [Tensor; 2] {
    let [_, weight, bias] = convolution_backward(gradient, input, weight, stride, false);
    [weight.expect("asked for"), bias.expect("asked for")]
}

/// # Panics
///
/// If the shapes do not fit, as tch's own operations do.
fn convolution_backward(
    gradient: &Tensor,
    input: &Tensor,
    weight: &Tensor,
    stride: i64,
    wants_input: bool,
) -> [Option<Tensor>; 3] {
    let mut gradients = [std::ptr::null_mut(); 3];
    let [input_gradient, weight_gradient, bias_gradient] = &mut gradients;
    let mut error = [0; 1024];
    // SAFETY: the three tensors live until the call returns, the places for results and error are valid, and the error's last
    // byte stays 0. tch's C_tensor is an at::Tensor.
    let done = unsafe {
        quiver_convolution_backward(
            gradient.as_ptr(),
            input.as_ptr(),
            weight.as_ptr(),
            stride,
            wants_input,
            input_gradient,
            weight_gradient,
            bias_gradient,
            error.as_mut_ptr(),
            error.len(),
        )
    };
    // SAFETY: the text ends with a 0.
    assert!(done, "convolution_backward: {}", unsafe { CStr::from_ptr(error.as_ptr()) }.to_string_lossy());
    // SAFETY: what is not null is a new tensor, which the caller owns.
    gradients.map(|gradient| (!gradient.is_null()).then(|| unsafe { Tensor::from_ptr(gradient) }))
}

/// Multiplications from which oneDNN is faster than MKL, which is slow on processors that are not Intel's. Measured on an AMD EPYC
/// (Zen 5) with layers of 1,536 to 1.6M weights and 1 to 128 rows.
const ONEDNN_FROM: usize = 1 << 22;

/// Whether to multiply these rows by a layer's weights in oneDNN. In bf16 libtorch does so by itself.
fn uses_onednn(rows: &Tensor, weight: &Tensor) -> bool {
    let size = rows.size()[0] as usize * weight.numel();
    rows.kind() == Kind::Float && rows.device() == Device::Cpu && size >= ONEDNN_FROM
}

/// rows·weightᵀ + bias. Has no graph.
pub fn linear(rows: &Tensor, weight: &Tensor, bias: &Tensor) -> Tensor {
    if uses_onednn(rows, weight) {
        return rows.to_mkldnn().mkldnn_linear(weight, Some(bias)).to_dense(Kind::Float, false);
    }
    rows.linear(weight, Some(bias))
}

/// The gradient of the input of [`linear`].
pub fn linear_input_gradient(gradient: &Tensor, weight: &Tensor) -> Tensor {
    if uses_onednn(gradient, weight) {
        let size = [gradient.size()[0], weight.size()[1]];
        let gradient = gradient.to_mkldnn();
        return Tensor::mkldnn_linear_backward_input(size, &gradient, weight).to_dense(Kind::Float, false);
    }
    gradient.mm(weight)
}

/// The gradients of the weight and bias of [`linear`].
pub fn linear_weight_gradient(gradient: &Tensor, input: &Tensor, weight: &Tensor) -> [Tensor; 2] {
    if uses_onednn(gradient, weight) {
        let (gradient, input) = (gradient.to_mkldnn(), input.to_mkldnn());
        let (weight, bias) = input.mkldnn_linear_backward_weights(&gradient, weight, true);
        return [weight, bias];
    }
    [gradient.tr().mm(input), gradient.sum_dim_intlist([0].as_slice(), false, gradient.kind())]
}
