// The one operation of libtorch that training needs and tch does not bind. It is compiled against libtorch's own declaration.

#include <ATen/core/Tensor.h>
#include <ATen/ops/convolution_backward.h>

#include <array>
#include <cstdint>
#include <cstring>
#include <exception>
#include <tuple>

// Gradients of a convolution without padding. Returns new tensors in `input_gradient`, if `wants_input`, or else in
// `weight_gradient` and `bias_gradient`. On an error returns false and writes its text to `error`.
extern "C" bool quiver_convolution_backward(const at::Tensor *gradient, const at::Tensor *input, const at::Tensor *weight,
                                            int64_t stride, bool wants_input, at::Tensor **input_gradient,
                                            at::Tensor **weight_gradient, at::Tensor **bias_gradient, char *error,
                                            size_t error_size) {
    try {
        const int64_t biases[] = {weight->size(0)};
        const int64_t strides[] = {stride, stride}, zero[] = {0, 0}, one[] = {1, 1};
        const std::array<bool, 3> wanted = {wants_input, !wants_input, !wants_input};
        auto gradients = at::convolution_backward(*gradient, *input, *weight, at::IntArrayRef(biases, 1),
                                                  at::IntArrayRef(strides, 2), at::IntArrayRef(zero, 2),
                                                  at::IntArrayRef(one, 2), false, at::IntArrayRef(zero, 2), 1, wanted);
        if (wants_input) {
            *input_gradient = new at::Tensor(std::get<0>(gradients));
        } else {
            *weight_gradient = new at::Tensor(std::get<1>(gradients));
            *bias_gradient = new at::Tensor(std::get<2>(gradients));
        }
        return true;
    } catch (const std::exception &exception) {
        std::strncpy(error, exception.what(), error_size - 1);
        return false;
    }
}
