// SPDX-License-Identifier: Apache-2.0
// aten::convolution and aten::convolution_backward in one, two and three dimensions, grouped, dilated and transposed.
//
// The arithmetic works on row-major tensors. Where the chip is configured to take channels-last images only
// (SIMCHIP_CONV_CHANNELS_LAST), the kernels insist on that layout and reorder inside.
#include <array>
#include <vector>

#include "conv_core.h"
#include "nn_dense.h"
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

// A tensor in row-major order: itself, or a copy that is written back at the end where it is an output.
class RowMajor {
 public:
  enum Use { kRead, kWrite };
  RowMajor(const View& original, Use use) : original_(original), dense_(original), use_(use) {
    if (original.contiguous() || original.ndim < 4) return;
    int64_t stride = 1;
    strides_.resize(static_cast<size_t>(original.ndim));
    for (int32_t d = original.ndim - 1; d >= 0; stride *= original.sizes[d--])
      strides_[static_cast<size_t>(d)] = stride;
    copy_.resize(static_cast<size_t>(original.numel * dtype_size(original.dtype)));
    dense_.data = copy_.data();
    dense_.strides = strides_.data();
    dense_.flags = FL_TENSOR_CONTIGUOUS;
    if (use == kRead) copy_strided(original_, dense_);
  }
  void write_back() const {
    if (use_ == kWrite && !copy_.empty()) copy_strided(dense_, original_);
  }
  const View& view() const { return dense_; }

 private:
  View original_, dense_;
  Use use_;
  std::vector<int64_t> strides_;
  std::vector<char> copy_;
};

// A trusting driver leaves that to the host; then check_limits() looks at what comes.
bool channels_last_only() { return simGetLimits()->conv_channels_last != 0 && !simGetLimits()->trusting; }

View checked_layout(const View& view) {
  if (view.ndim >= 4 && view.numel != 0 && channels_last_only() && !view.channels_last()) {
    throw KernelError("convolution: this chip takes channels-last images only, but a tensor has another layout");
  }
  return view;
}

RowMajor input_image(const Call& call, uint32_t i) { return {checked_layout(call.tensor(i)), RowMajor::kRead}; }
RowMajor output_image(const Call& call, uint32_t i) { return {checked_layout(call.out(i)), RowMajor::kWrite}; }

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
  const RowMajor input = input_image(call, 0), weight = input_image(call, 1), output = output_image(call, 0);
  const ConvArguments a{input.view(), output.view(), weight.view(),   call.ints(3),
                        call.ints(4), call.ints(5),  call.boolean(6), call.integer(8, 1)};
  if (a.output.numel == 0) return;
  const ConvGeometry g = geometry(a);
  dispatch_reals(a.output.dtype, [&](auto zero) {
    using T = decltype(zero);
    const T* bias = call.none(2) ? nullptr : call.tensor(2).as<const T>();
    if (a.transposed) {
      conv_to_large<T, Acc<T>>(g, a.input.as<const T>(), a.weight.as<const T>(), bias, a.output.as<T>());
    } else {
      conv_to_small<T, Acc<T>>(g, a.input.as<const T>(), a.weight.as<const T>(), bias, a.output.as<T>());
    }
  });
  output.write_back();
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

template <class T>
void filter_gradient(const ConvArguments& a, const ConvGeometry& g, T* out) {
  const View& small = a.transposed ? a.input : a.output;
  const View& large = a.transposed ? a.output : a.input;
  conv_filter_gradient<T, Acc<T>>(g, small.as<const T>(), large.as<const T>(), out);
}

template <class T>
void bias_gradient(const ConvArguments& a, T* out) {
  int64_t points = 1;
  for (const int64_t size : spatial(a.output)) points *= size;
  conv_bias_gradient(a.output.sizes[0], a.output.sizes[1], points, a.output.as<const T>(), out);
}

// Runs compute(row-major view) for one output, where the caller asked for it.
template <class Compute>
void for_output(const Call& call, uint32_t i, const Compute& compute) {
  if (!call.has_out(i) || call.out(i).numel == 0) return;
  const RowMajor out = output_image(call, i);
  compute(out.view());
  out.write_back();
}

void backward_body(const Call& call) {
  const RowMajor gradient = input_image(call, 0), input = input_image(call, 1), weight = input_image(call, 2);
  const ConvArguments a{input.view(), gradient.view(), weight.view(),   call.ints(4),
                        call.ints(5), call.ints(6),    call.boolean(7), call.integer(9, 1)};
  const ConvGeometry g = geometry(a);
  dispatch_reals(a.input.dtype, [&](auto zero) {
    using T = decltype(zero);
    for_output(call, 0, [&](const View& out) { input_gradient(a, g, out.as<T>()); });
    for_output(call, 1, [&](const View& out) { filter_gradient(a, g, out.as<T>()); });
    for_output(call, 2, [&](const View& out) { bias_gradient(a, out.as<T>()); });
  });
}

// The first tensors (input, weight and so on) are batched images of one to three dimensions and of one element type.
fl_status supports_images(const fl_call* call, uint32_t tensors) {
  const fl_tensor& first = *call->args[0].u.tensor;
  for (uint32_t i = 0; i < tensors; ++i) {
    if (call->args[i].kind != FL_TENSOR) continue;
    const fl_tensor& t = *call->args[i].u.tensor;
    if (t.dtype != first.dtype) return unsupported("input, weight and bias have different element types");
    if (i < 2 && channels_last_only() && t.ndim < 4) return unsupported("this chip takes channels-last images only");
    if (i < 2 && (t.ndim < 3 || t.ndim > 5)) return unsupported("not a batch of images of one to three dimensions");
  }
  return FL_OK;
}

fl_status forward_run(const fl_call* call) { return launch(call, forward_body); }
fl_status backward_run(const fl_call* call) { return launch(call, backward_body); }
fl_status forward_supports(const fl_call* call) { return supports_images(call, 3); }
fl_status backward_supports(const fl_call* call) { return supports_images(call, 3); }

std::array<fl_kernel, 2> make_rows() {
  const uint32_t layout = channels_last_only()       ? FL_KERNEL_CHANNELS_LAST_ONLY
                          : simGetLimits()->trusting ? 0
                                                     : FL_KERNEL_CONTIGUOUS_INPUTS | FL_KERNEL_CONTIGUOUS_OUTPUTS;
  return {row("aten::convolution", layout, forward_run, kReals, forward_supports),
          row("aten::convolution_backward", layout, backward_run, kReals, backward_supports)};
}

}  // namespace
}  // namespace fl_sim::nn

fl_sim::Family fl_sim::convolution_family() {
  static const std::array<fl_kernel, 2> rows = nn::make_rows();
  return rows;
}
