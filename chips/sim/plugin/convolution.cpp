// SPDX-License-Identifier: Apache-2.0
// aten::convolution and aten::convolution_backward in one, two and three dimensions, grouped, dilated and transposed.
#include "conv_core.h"
#include "nn_families.h"
#include "nn_types.h"

namespace fl_sim::nn {
namespace {

// Parameters of fewer than three dimensions go to the last ones; a list of one value holds for all.
void set_trailing(Triple& triple, std::span<const int64_t> values, int dims) {
  if (values.empty()) return;
  for (int d = 0; d < dims; ++d) {
    triple[3 - dims + d] = values[std::min<size_t>(static_cast<size_t>(d), values.size() - 1)];
  }
}

std::span<const int64_t> spatial(const View& view) { return {view.sizes + 2, static_cast<size_t>(view.ndim - 2)}; }

struct ConvArguments {
  View input, output, weight;  // output: the result, or its gradient
  std::span<const int64_t> stride, padding, dilation;
  bool transposed;
  int64_t groups;
};

ConvGeometry geometry(const ConvArguments& a) {
  const View& small = a.transposed ? a.input : a.output;
  const View& large = a.transposed ? a.output : a.input;
  const int dims = a.input.ndim - 2;
  ConvGeometry g;
  g.images = a.input.sizes[0];
  g.groups = a.groups;
  g.small_channels = small.sizes[1];
  g.large_channels = large.sizes[1];
  set_trailing(g.small, spatial(small), dims);
  set_trailing(g.large, spatial(large), dims);
  set_trailing(g.filter, spatial(a.weight), dims);
  set_trailing(g.stride, a.stride, dims);
  set_trailing(g.padding, a.padding, dims);
  set_trailing(g.dilation, a.dilation, dims);
  return g;
}

void forward_body(const Call& call) {
  const ConvArguments a{call.tensor(0), call.out(0),  call.tensor(1),  call.ints(3),
                        call.ints(4),   call.ints(5), call.boolean(6), call.integer(8, 1)};
  if (a.output.numel == 0) return;
  const ConvGeometry g = geometry(a);
  dispatch_reals(a.output.dtype, [&](auto zero) {
    using T = decltype(zero);
    const T* bias = call.none(2) ? nullptr : call.tensor(2).as<const T>();
    const T* input = a.input.as<const T>();
    const T* weight = a.weight.as<const T>();
    if (a.transposed) {
      conv_to_large<T, Acc<T>>(g, input, weight, bias, a.output.as<T>());
    } else {
      conv_to_small<T, Acc<T>>(g, input, weight, bias, a.output.as<T>());
    }
  });
}

template <class T>
void input_gradient(const ConvArguments& a, const ConvGeometry& g, T* out) {
  const T* gradient = a.output.as<const T>();
  const T* weight = a.weight.as<const T>();
  if (a.transposed) {
    conv_to_small<T, Acc<T>>(g, gradient, weight, static_cast<const T*>(nullptr), out);
  } else {
    conv_to_large<T, Acc<T>>(g, gradient, weight, static_cast<const T*>(nullptr), out);
  }
}

void backward_body(const Call& call) {
  const ConvArguments a{call.tensor(1), call.tensor(0), call.tensor(2),  call.ints(4),
                        call.ints(5),   call.ints(6),   call.boolean(7), call.integer(9, 1)};
  const ConvGeometry g = geometry(a);
  dispatch_reals(a.input.dtype, [&](auto zero) {
    using T = decltype(zero);
    if (call.has_out(0) && a.input.numel != 0) input_gradient(a, g, call.out(0).as<T>());
    if (call.has_out(1) && a.weight.numel != 0) {
      const View& small = a.transposed ? a.input : a.output;
      const View& large = a.transposed ? a.output : a.input;
      conv_filter_gradient<T, Acc<T>>(g, small.as<const T>(), large.as<const T>(), call.out(1).as<T>());
    }
    if (call.has_out(2)) {
      int64_t points = 1;
      for (const int64_t size : spatial(a.output)) points *= size;
      conv_bias_gradient(g.images, a.output.sizes[1], points, a.output.as<const T>(), call.out(2).as<T>());
    }
  });
}

// The first tensors (input, weight and so on) are batched images of one to three dimensions and of one element type.
fl_status supports_images(const fl_call* call, uint32_t tensors) {
  const fl_tensor& first = *call->args[0].u.tensor;
  for (uint32_t i = 0; i < tensors; ++i) {
    if (call->args[i].kind != FL_TENSOR) continue;
    const fl_tensor& t = *call->args[i].u.tensor;
    if (t.dtype != first.dtype) return unsupported("input, weight and bias have different element types");
    if (i < 2 && (t.ndim < 3 || t.ndim > 5)) return unsupported("not a batch of images of one to three dimensions");
  }
  return FL_OK;
}

fl_status forward_run(const fl_call* call) { return launch(call, forward_body); }
fl_status backward_run(const fl_call* call) { return launch(call, backward_body); }
fl_status forward_supports(const fl_call* call) { return supports_images(call, 3); }
fl_status backward_supports(const fl_call* call) { return supports_images(call, 3); }

constexpr uint32_t kDense = FL_KERNEL_CONTIGUOUS_INPUTS | FL_KERNEL_CONTIGUOUS_OUTPUTS;
constexpr fl_kernel kRows[] = {
    row("aten::convolution", kDense, forward_run, kReals, forward_supports),
    row("aten::convolution_backward", kDense, backward_run, kReals, backward_supports),
};

}  // namespace
}  // namespace fl_sim::nn

fl_sim::Family fl_sim::convolution_family() { return nn::kRows; }
