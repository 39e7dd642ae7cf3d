// SPDX-License-Identifier: Apache-2.0
// Convolution. PyTorch hands every out-of-tree device to convolution_overrideable, whose kernel only throws; both lead
// to the router under the name every chip knows, aten::convolution.
#include <ATen/Operators.h>
#include <ATen/native/ConvUtils.h>
#include <torch/library.h>

#include "router.h"
#include "trampoline.h"

namespace torch_fl::glue {
namespace {

at::Tensor meta_like(const at::Tensor& t, at::IntArrayRef sizes, at::MemoryFormat format) {
  return at::detail::empty_meta(sizes, t.scalar_type(), at::kStrided, at::Device(c10::kMeta), false, format);
}

at::MemoryFormat conv_format(const at::Tensor& input, const at::Tensor& weight) {
  const auto format = input.dim() == 5 ? at::MemoryFormat::ChannelsLast3d : at::MemoryFormat::ChannelsLast;
  if (input.dim() != 4 && input.dim() != 5) return at::MemoryFormat::Contiguous;
  const auto suggests = [&](const at::Tensor& t) { return t.suggest_memory_format() == format; };
  return suggests(input) || suggests(weight) ? format : at::MemoryFormat::Contiguous;
}

// Output size: floor((in + 2 pad - dilation (kernel - 1) - 1) / stride) + 1, and its inverse for transposed ones.
at::Tensor convolution_meta(const at::Tensor& input, const at::Tensor& weight, const std::optional<at::Tensor>&,
                            c10::SymIntArrayRef stride_, c10::SymIntArrayRef padding_, c10::SymIntArrayRef dilation_,
                            bool transposed, c10::SymIntArrayRef output_padding_, c10::SymInt groups) {
  const auto stride = C10_AS_INTARRAYREF_SLOW(stride_), padding = C10_AS_INTARRAYREF_SLOW(padding_);
  const auto dilation = C10_AS_INTARRAYREF_SLOW(dilation_), output_padding = C10_AS_INTARRAYREF_SLOW(output_padding_);
  const std::vector<int64_t> sizes =
      transposed ? at::native::conv_input_size(input.sizes(), weight.sizes(), padding, output_padding, stride, dilation,
                                               groups.guard_int(__FILE__, __LINE__))
                 : at::native::conv_output_size(input.sizes(), weight.sizes(), padding, stride, dilation);
  for (size_t d = 2; d < sizes.size(); ++d) TORCH_CHECK(sizes[d] > 0, "the output has no points");  // the CPU has words
  return meta_like(input, sizes, conv_format(input, weight));
}

std::tuple<at::Tensor, at::Tensor, at::Tensor> convolution_backward_meta(
    const at::Tensor& grad, const at::Tensor& input, const at::Tensor& weight, at::OptionalSymIntArrayRef bias_sizes,
    c10::SymIntArrayRef, c10::SymIntArrayRef, c10::SymIntArrayRef, bool transposed, c10::SymIntArrayRef,
    c10::SymInt groups, std::array<bool, 3> mask) {
  const auto format = conv_format(input, weight);
  at::Tensor gi, gw, gb;
  if (mask[0]) gi = meta_like(grad, input.sizes(), format);
  if (mask[1]) gw = meta_like(grad, weight.sizes(), format);
  const int64_t channels = transposed ? weight.size(1) * groups.guard_int(__FILE__, __LINE__) : weight.size(0);
  if (mask[2]) gb = meta_like(grad, {channels}, at::MemoryFormat::Contiguous);
  return {gi, gw, gb};
}

using Forward = Trampoline<at::_ops::convolution, Meta<&convolution_meta>>;
using Backward = Trampoline<at::_ops::convolution_backward, Meta<&convolution_backward_meta>>;

at::Tensor convolution_overrideable(const at::Tensor& input, const at::Tensor& weight,
                                    const std::optional<at::Tensor>& bias, c10::SymIntArrayRef stride,
                                    c10::SymIntArrayRef padding, c10::SymIntArrayRef dilation, bool transposed,
                                    c10::SymIntArrayRef output_padding, c10::SymInt groups) {
  return Forward::call(input, weight, bias, stride, padding, dilation, transposed, output_padding, std::move(groups));
}

std::tuple<at::Tensor, at::Tensor, at::Tensor> convolution_backward_overrideable(
    const at::Tensor& grad, const at::Tensor& input, const at::Tensor& weight, c10::SymIntArrayRef stride,
    c10::SymIntArrayRef padding, c10::SymIntArrayRef dilation, bool transposed, c10::SymIntArrayRef output_padding,
    c10::SymInt groups, std::array<bool, 3> mask) {
  const c10::SymInt channels = transposed ? weight.sym_size(1) * groups : weight.sym_size(0);
  const std::array<c10::SymInt, 1> bias_sizes{channels};
  return Backward::call(grad, input, weight, c10::SymIntArrayRef(bias_sizes), stride, padding, dilation, transposed,
                        output_padding, std::move(groups), mask);
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("convolution_overrideable", TORCH_FN(convolution_overrideable));
  m.impl("convolution_backward_overrideable", TORCH_FN(convolution_backward_overrideable));
}

}  // namespace
}  // namespace torch_fl::glue
