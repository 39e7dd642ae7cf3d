// SPDX-License-Identifier: Apache-2.0
// Shape rules of what networks are made of: normalisation, pooling, padding, patches, losses.
#include <ATen/ExpandUtils.h>
#include <ATen/core/Reduction.h>
#include <ATen/native/Padding.h>
#include <ATen/native/Pool.h>
#include <ATen/native/cpu/mixed_data_type.h>
#include <ATen/native/im2col_shape_check.h>
#include <ATen/native/layer_norm.h>
#include <ATen/ops/mul_meta_dispatch.h>

#include "shape_rules.h"

namespace torch_fl::glue::rules {
namespace {

bool is_vector(const at::Tensor& t, int64_t length) { return !t.defined() || (t.dim() == 1 && t.size(0) == length); }

bool same_dtype(const at::Tensor& a, const at::Tensor& b) { return a.scalar_type() == b.scalar_type(); }

// ---- Normalisation ----------------------------------------------------------------------------------------------

/// The dtype of weights and statistics: that of the input, or float beside inputs of half the width. None: refused.
std::optional<at::ScalarType> parameter_dtype(const at::Tensor& input, std::initializer_list<const at::Tensor*> all) {
  std::optional<at::ScalarType> found;
  for (const at::Tensor* t : all) {
    if (!t->defined()) continue;
    if (found.has_value() && *found != t->scalar_type()) return std::nullopt;
    found = t->scalar_type();
  }
  const at::ScalarType dtype = found.value_or(input.scalar_type());
  const bool mixed = at::isReducedFloatingType(input.scalar_type()) && dtype == at::kFloat;
  return dtype == input.scalar_type() || mixed ? std::optional(dtype) : std::nullopt;
}

bool batch_norm_outputs(const at::Tensor& input, std::optional<at::ScalarType> dtype, bool training, Outputs& o) {
  if (!dtype.has_value() || input.numel() == 0) return false;
  const int64_t kept = training ? input.size(1) : 0;
  o.push_back(suggested(input));
  for (int i = 0; i < 2; ++i) o.push_back(dense({kept}, *dtype));
  return true;
}

bool batch_norm(const RuleArgs& a, Outputs& o) {
  const at::Tensor& input = a.tensor(0);
  if (input.dim() < 2 || !is_floating(input)) return false;
  for (uint32_t i = 1; i <= 4; ++i) {
    if (!is_vector(a.tensor(i), input.size(1))) return false;
  }
  const bool training = a.flag(5);
  if (!training && !(a.tensor(3).defined() && a.tensor(4).defined())) return false;
  const auto dtype = parameter_dtype(input, {&a.tensor(1), &a.tensor(2), &a.tensor(3), &a.tensor(4)});
  return batch_norm_outputs(input, dtype, training, o);
}

bool batch_norm_without_statistics(const RuleArgs& a, Outputs& o) {
  const at::Tensor& input = a.tensor(0);
  if (input.dim() < 2 || !is_floating(input) || !a.flag(3)) return false;
  if (!is_vector(a.tensor(1), input.size(1)) || !is_vector(a.tensor(2), input.size(1))) return false;
  return batch_norm_outputs(input, parameter_dtype(input, {&a.tensor(1), &a.tensor(2)}), true, o);
}

bool batch_norm_backward(const RuleArgs& a, Outputs& o) {
  const at::Tensor &grad = a.tensor(0), &input = a.tensor(1), &weight = a.tensor(2);
  if (input.dim() < 2 || input.numel() == 0 || grad.sizes() != input.sizes() || !same_dtype(grad, input)) return false;
  for (uint32_t i = 2; i <= 4; ++i) {
    if (!is_vector(a.tensor(i), input.size(1))) return false;
  }
  const auto dtype = parameter_dtype(input, {&weight, &a.tensor(3), &a.tensor(4)});
  if (!dtype.has_value()) return false;
  o.push_back(a.mask(9, 0) ? suggested(input) : at::Tensor());
  for (uint32_t k : {1, 2}) o.push_back(a.mask(9, k) ? dense({input.size(1)}, *dtype) : at::Tensor());
  return true;
}

bool layer_norm(const RuleArgs& a, Outputs& o) {
  const at::Tensor &input = a.tensor(0), &weight = a.tensor(2), &bias = a.tensor(3);
  const auto normalized = a.ints(1);
  at::native::_check_layer_norm_inputs(input, normalized, weight, bias);
  const auto dtype = parameter_dtype(input, {&weight, &bias});
  if (!dtype.has_value() || !is_floating(input)) return false;
  at::DimVector statistics(input.sizes());
  for (size_t i = 0; i < normalized.size(); ++i) statistics[statistics.size() - 1 - i] = 1;
  o.push_back(dense(input.sizes(), input.scalar_type()));
  for (int i = 0; i < 2; ++i) o.push_back(dense(statistics, *dtype));
  return true;
}

bool layer_norm_backward(const RuleArgs& a, Outputs& o) {
  const at::Tensor &grad = a.tensor(0), &input = a.tensor(1), &weight = a.tensor(5), &bias = a.tensor(6);
  at::native::_check_layer_norm_inputs(input, a.ints(2), weight, bias);
  if (grad.sizes() != input.sizes() || !same_dtype(grad, input) || !is_floating(input)) return false;
  if (!parameter_dtype(input, {&weight, &bias}).has_value()) return false;
  o.push_back(a.mask(7, 0) ? dense(input.sizes(), input.scalar_type()) : at::Tensor());
  for (uint32_t k : {1, 2}) {
    const at::Tensor& parameter = a.tensor(4 + k);
    if (a.mask(7, k) && !parameter.defined()) return false;
    o.push_back(a.mask(7, k) ? dense(parameter.sizes(), parameter.scalar_type()) : at::Tensor());
  }
  return true;
}

/// Arguments `first` to `first` + 3: N, C, HxW, groups.
bool groups_fit(const RuleArgs& a, uint32_t first, const at::Tensor& input) {
  const int64_t n = a.integer(first), c = a.integer(first + 1), inner = a.integer(first + 2);
  const int64_t groups = a.integer(first + 3);
  return is_floating(input) && input.numel() > 0 && groups > 0 && c % groups == 0 && input.numel() == n * c * inner &&
         input.is_contiguous(input.suggest_memory_format());
}

bool group_norm(const RuleArgs& a, Outputs& o) {
  const at::Tensor &input = a.tensor(0), &weight = a.tensor(1), &bias = a.tensor(2);
  const auto dtype = parameter_dtype(input, {&weight, &bias});
  if (!dtype.has_value() || !groups_fit(a, 3, input)) return false;
  if (!is_vector(weight, a.integer(4)) || !is_vector(bias, a.integer(4))) return false;
  o.push_back(suggested(input));
  for (int i = 0; i < 2; ++i) o.push_back(dense({a.integer(3), a.integer(6)}, *dtype));
  return true;
}

bool group_norm_backward(const RuleArgs& a, Outputs& o) {
  const at::Tensor &grad = a.tensor(0), &input = a.tensor(1), &weight = a.tensor(4);
  if (grad.sizes() != input.sizes() || !same_dtype(grad, input) || !groups_fit(a, 5, input)) return false;
  const auto dtype = parameter_dtype(input, {&weight, &a.tensor(2), &a.tensor(3)});
  if (!dtype.has_value() || !is_vector(weight, a.integer(6))) return false;
  if (a.mask(9, 1) && !weight.defined()) return false;
  o.push_back(a.mask(9, 0) ? suggested(input) : at::Tensor());
  for (uint32_t k : {1, 2}) o.push_back(a.mask(9, k) ? dense({a.integer(6)}, *dtype) : at::Tensor());
  return true;
}

// ---- Pooling ----------------------------------------------------------------------------------------------------

/// `spatial` dimensions with or without a batch before them, none of them but the batch empty.
bool is_image(const at::Tensor& t, int64_t spatial) {
  if (t.dim() != spatial + 1 && t.dim() != spatial + 2) return false;
  for (int64_t d = t.dim() == spatial + 2 ? 1 : 0; d < t.dim(); ++d) {
    if (t.size(d) == 0) return false;
  }
  return true;
}

template <int64_t spatial>
bool adaptive_pool(const RuleArgs& a, Outputs& o) {
  const at::Tensor& self = a.tensor(0);
  const auto wanted = a.ints(1);
  if (!is_image(self, spatial) || wanted.size() != spatial) return false;
  at::DimVector sizes(self.sizes());
  for (size_t i = 0; i < wanted.size(); ++i) {
    if (wanted[i] < 0) return false;
    sizes[sizes.size() - wanted.size() + i] = wanted[i];
  }
  const auto format = spatial == 2 ? self.suggest_memory_format() : at::MemoryFormat::Contiguous;
  return give(o, dense(sizes, self.scalar_type(), format));
}

template <int64_t spatial>
bool adaptive_pool_backward(const RuleArgs& a, Outputs& o) {
  const at::Tensor &grad = a.tensor(0), &self = a.tensor(1);
  if (!is_image(self, spatial) || !is_image(grad, spatial) || grad.dim() != self.dim()) return false;
  if (!same_dtype(grad, self)) return false;
  for (int64_t d = 0; d < self.dim() - spatial; ++d) {
    if (grad.size(d) != self.size(d)) return false;
  }
  return give(o, spatial == 2 ? suggested(self) : dense(self.sizes(), self.scalar_type()));
}

/// The window of a 3-d pooling from arguments `first` on: kernel, stride, padding, dilation, ceil_mode.
struct Window {
  Window(const RuleArgs& a, uint32_t first)
      : kernel(a.ints(first)),
        stride(a.ints(first + 1).empty() ? a.ints(first) : a.ints(first + 1)),
        padding(a.ints(first + 2)),
        dilation(a.ints(first + 3)),
        ceil(a.flag(first + 4)) {}
  bool complete() const {
    return kernel.size() == 3 && stride.size() == 3 && padding.size() == 3 && dilation.size() == 3;
  }
  at::IntArrayRef kernel, stride, padding, dilation;
  bool ceil;
};

/// The sizes of what comes out of max_pool3d; throws for what PyTorch refuses.
at::DimVector pooled_sizes(const at::Tensor& self, const Window& w) {
  at::DimVector sizes(self.sizes());
  const size_t first = sizes.size() - 3;
  for (size_t i = 0; i < 3; ++i) {
    sizes[first + i] = at::native::pooling_output_shape<int64_t>(sizes[first + i], w.kernel[i], w.padding[i],
                                                                 w.stride[i], w.dilation[i], w.ceil);
  }
  const auto size = [&](int64_t d) { return self.size(d); };
  const auto small = [](int64_t v) { return static_cast<int>(v); };
  at::native::pool3d_shape_check(self, size(-4), small(w.kernel[0]), small(w.kernel[1]), small(w.kernel[2]),
                                 small(w.stride[0]), small(w.stride[1]), small(w.stride[2]), small(w.padding[0]),
                                 small(w.padding[1]), small(w.padding[2]), small(w.dilation[0]), small(w.dilation[1]),
                                 small(w.dilation[2]), size(-3), size(-2), size(-1), sizes[first], sizes[first + 1],
                                 sizes[first + 2], "max_pool3d_with_indices()");
  return sizes;
}

at::MemoryFormat batch_format(const at::Tensor& self) {
  return self.dim() == 5 ? self.suggest_memory_format() : at::MemoryFormat::Contiguous;
}

bool max_pool3d(const RuleArgs& a, Outputs& o) {
  const at::Tensor& self = a.tensor(0);
  const Window window(a, 1);
  if (!is_image(self, 3) || !window.complete()) return false;
  if (self.dim() == 4 && self.suggest_memory_format() != at::MemoryFormat::Contiguous) return false;
  const auto sizes = pooled_sizes(self, window);
  o.push_back(dense(sizes, self.scalar_type(), batch_format(self)));
  o.push_back(dense(sizes, at::kLong, batch_format(self)));
  return true;
}

bool max_pool3d_backward(const RuleArgs& a, Outputs& o) {
  const at::Tensor &grad = a.tensor(0), &self = a.tensor(1), &indices = a.tensor(7);
  const Window window(a, 2);
  if (!is_image(self, 3) || !window.complete() || !same_dtype(grad, self)) return false;
  if (self.dim() == 4 && self.suggest_memory_format() != at::MemoryFormat::Contiguous) return false;
  const auto sizes = pooled_sizes(self, window);
  if (grad.sizes() != at::IntArrayRef(sizes) || indices.sizes() != at::IntArrayRef(sizes)) return false;
  return give(o, dense(self.sizes(), self.scalar_type(), batch_format(self)));
}

// ---- Padding ----------------------------------------------------------------------------------------------------

/// The padded sizes, or none where PyTorch refuses. `reflect`: padding must be smaller than what it mirrors.
template <int spatial>
std::optional<at::DimVector> padded_sizes(const at::Tensor& self, at::IntArrayRef padding, bool reflect) {
  if (padding.size() != 2 * spatial) return std::nullopt;
  at::native::padding::check_valid_input<spatial>(self, padding);
  at::DimVector sizes(self.sizes());
  for (size_t i = 0; i < spatial; ++i) {  // padding starts at the last dimension
    int64_t& size = sizes[sizes.size() - 1 - i];
    const int64_t before = padding[2 * i], after = padding[2 * i + 1];
    if (reflect && (before >= size || after >= size)) return std::nullopt;
    size += before + after;
    if (size < 1) return std::nullopt;
  }
  return sizes;
}

bool reflection_pad2d(const RuleArgs& a, Outputs& o) {
  const at::Tensor& self = a.tensor(0);
  const auto sizes = padded_sizes<2>(self, a.ints(1), true);
  return sizes.has_value() && give(o, dense(*sizes, self.scalar_type(), self.suggest_memory_format()));
}

template <int spatial, bool reflect>
bool pad_backward(const RuleArgs& a, Outputs& o) {
  const at::Tensor &grad = a.tensor(0), &self = a.tensor(1);
  const auto sizes = padded_sizes<spatial>(self, a.ints(2), reflect);
  if (!sizes.has_value() || grad.sizes() != at::IntArrayRef(*sizes) || !same_dtype(grad, self)) return false;
  return give(o, suggested(self));
}

// ---- Patches ----------------------------------------------------------------------------------------------------

bool im2col(const RuleArgs& a, Outputs& o) {
  const at::Tensor& self = a.tensor(0);
  const auto kernel = a.ints(1), dilation = a.ints(2), padding = a.ints(3), stride = a.ints(4);
  for (const auto& list : {kernel, dilation, padding, stride}) {
    if (list.size() != 2) return false;
  }
  if (self.dim() != 3 && self.dim() != 4) return false;
  at::native::im2col_shape_check(self, at::Tensor(), kernel[0], kernel[1], dilation[0], dilation[1], padding[0],
                                 padding[1], stride[0], stride[1]);
  int64_t windows = 1;
  for (size_t i = 0; i < 2; ++i) {
    windows *= at::native::sliding_window_count(self.size(static_cast<int64_t>(i) - 2), padding[i], dilation[i],
                                                kernel[i], stride[i]);
  }
  at::DimVector sizes{self.size(-3) * kernel[0] * kernel[1], windows};
  if (self.dim() == 4) sizes.insert(sizes.begin(), self.size(0));
  return give(o, dense(sizes, self.scalar_type()));
}

bool col2im(const RuleArgs& a, Outputs& o) {
  const at::Tensor& self = a.tensor(0);
  const auto out = a.ints(1), kernel = a.ints(2), dilation = a.ints(3), padding = a.ints(4), stride = a.ints(5);
  for (const auto& list : {out, kernel, dilation, padding, stride}) {
    if (list.size() != 2) return false;
  }
  at::native::col2im_shape_check(self, at::Tensor(), out[0], out[1], kernel[0], kernel[1], dilation[0], dilation[1],
                                 padding[0], padding[1], stride[0], stride[1]);
  at::DimVector sizes{self.size(-2) / (kernel[0] * kernel[1]), out[0], out[1]};
  if (self.dim() == 3) sizes.insert(sizes.begin(), self.size(0));
  return give(o, dense(sizes, self.scalar_type()));
}

// ---- Losses -----------------------------------------------------------------------------------------------------

/// Same sizes and dtype: PyTorch may broadcast losses, which is left to the general path.
bool alike(const at::Tensor& self, const at::Tensor& target) {
  return is_floating(self) && self.sizes() == target.sizes() && same_dtype(self, target);
}

/// A gradient of a loss: one value, or one for each element.
bool loss_gradient(const at::Tensor& grad, const at::Tensor& self) {
  return same_dtype(grad, self) && (grad.dim() == 0 || grad.sizes() == self.sizes());
}

bool is_weight(const at::Tensor& weight, const at::Tensor& self) {
  return !weight.defined() || (same_dtype(weight, self) && at::is_expandable_to(weight.sizes(), self.sizes()));
}

bool give_loss(Outputs& o, const at::Tensor& self, int64_t reduction) {
  return give(o, reduction == at::Reduction::None ? like(self) : dense({}, self.scalar_type()));
}

bool binary_cross_entropy(const RuleArgs& a, Outputs& o) {
  const at::Tensor& self = a.tensor(0);
  return alike(self, a.tensor(1)) && is_weight(a.tensor(2), self) && give_loss(o, self, a.integer(3));
}

bool binary_cross_entropy_backward(const RuleArgs& a, Outputs& o) {
  const at::Tensor& self = a.tensor(1);
  if (!alike(self, a.tensor(2)) || !is_weight(a.tensor(3), self) || !loss_gradient(a.tensor(0), self)) return false;
  return give(o, like(self));
}

bool huber_loss(const RuleArgs& a, Outputs& o) {
  return alike(a.tensor(0), a.tensor(1)) && a.real(3) > 0 && give_loss(o, a.tensor(0), a.integer(2));
}

bool contiguous_loss_gradient(const RuleArgs& a, Outputs& o) {
  const at::Tensor& self = a.tensor(1);
  if (!alike(self, a.tensor(2)) || !loss_gradient(a.tensor(0), self)) return false;
  return give(o, dense(self.sizes(), self.scalar_type()));
}

bool log_sigmoid(const RuleArgs& a, Outputs& o) {
  const at::Tensor& self = a.tensor(0);
  if (!is_floating(self)) return false;
  for (int i = 0; i < 2; ++i) o.push_back(dense(self.sizes(), self.scalar_type()));
  return true;
}

bool log_sigmoid_backward(const RuleArgs& a, Outputs& o) {
  return alike(a.tensor(0), a.tensor(1)) && give(o, like(a.tensor(0)));
}

bool is_pixel_loss(const at::Tensor& self, const at::Tensor& target, const at::Tensor& weight) {
  if (self.dim() != 4 || target.dim() != 3 || target.scalar_type() != at::kLong || !is_floating(self)) return false;
  const bool fits = target.size(0) == self.size(0) && target.size(1) == self.size(2) && target.size(2) == self.size(3);
  return fits && (!weight.defined() || (same_dtype(weight, self) && weight.numel() == self.size(1)));
}

bool nll_loss2d(const RuleArgs& a, Outputs& o) {
  const at::Tensor &self = a.tensor(0), &target = a.tensor(1);
  if (!is_pixel_loss(self, target, a.tensor(2))) return false;
  const bool none = a.integer(3) == at::Reduction::None;
  o.push_back(dense(none ? target.sizes() : at::IntArrayRef(), self.scalar_type()));
  o.push_back(dense({}, self.scalar_type()));
  return true;
}

bool nll_loss2d_backward(const RuleArgs& a, Outputs& o) {
  const at::Tensor &grad = a.tensor(0), &self = a.tensor(1), &target = a.tensor(2);
  if (!is_pixel_loss(self, target, a.tensor(3)) || !same_dtype(grad, self) || !self.is_contiguous()) return false;
  const bool none = a.integer(4) == at::Reduction::None;
  if (none ? grad.sizes() != target.sizes() : grad.dim() > 1 || grad.numel() != 1) return false;
  return give(o, dense(self.sizes(), self.scalar_type()));
}

// ---- Attention --------------------------------------------------------------------------------------------------

// As the CPU lays gradients out: positions before heads.
at::Tensor by_position(const at::Tensor& like) {
  return dense({like.size(0), like.size(2), like.size(1), like.size(3)}, like.scalar_type()).transpose(1, 2);
}

bool attention(const RuleArgs& a, Outputs& o) {
  const at::Tensor& query = a.tensor(0);
  if (query.dim() != 4 || !is_floating(query)) return false;
  const auto sums = at::isReducedFloatingType(query.scalar_type()) ? at::kFloat : query.scalar_type();
  o.push_back(like(query));
  o.push_back(dense({query.size(0), query.size(2), query.size(1)}, sums).transpose(1, 2));
  return true;
}

bool attention_backward(const RuleArgs& a, Outputs& o) {
  for (uint32_t i = 1; i <= 3; ++i) {
    if (a.tensor(i).dim() != 4) return false;
    o.push_back(by_position(a.tensor(i)));
  }
  return true;
}

// ---- Dropout ----------------------------------------------------------------------------------------------------

bool dropout(const RuleArgs& a, Outputs& o) {
  const at::Tensor& input = a.tensor(0);
  if (!is_floating(input)) return false;
  o.push_back(like(input));
  o.push_back(like(input, at::kBool));
  return true;
}

bool fractional_max_pool3d_backward(const RuleArgs& a, Outputs& o) {
  const at::Tensor &grad = a.tensor(0), &input = a.tensor(1), &indices = a.tensor(4);
  const auto size = a.ints(3);
  if ((input.dim() != 4 && input.dim() != 5) || grad.dim() != input.dim() || size.size() != 3) return false;
  if (grad.sizes().slice(0, input.dim() - 3) != input.sizes().slice(0, input.dim() - 3)) return false;
  if (grad.sizes().slice(input.dim() - 3) != size || indices.sizes() != grad.sizes()) return false;
  return indices.scalar_type() == at::kLong && same_dtype(grad, input) &&
         give(o, dense(input.sizes(), input.scalar_type()));
}

/// The gradient of a loss that comes before what was lost: dense, whatever that is.
bool dense_gradient(const RuleArgs& a, Outputs& o) {
  const at::Tensor& self = a.tensor(1);
  return is_floating(self) && same_dtype(a.tensor(0), self) && give(o, dense(self.sizes(), self.scalar_type()));
}

bool dropout_backward(const RuleArgs& a, Outputs& o) {
  const at::Tensor &grad = a.tensor(0), &mask = a.tensor(1);
  return is_floating(grad) && mask.scalar_type() == at::kBool && give(o, at::meta::mul(grad, mask));
}

constexpr ShapeRuleRow kRows[] = {
    {"aten::_adaptive_avg_pool2d", adaptive_pool<2>},
    {"aten::_adaptive_avg_pool2d_backward", adaptive_pool_backward<2>},
    {"aten::_adaptive_avg_pool3d", adaptive_pool<3>},
    {"aten::_adaptive_avg_pool3d_backward", adaptive_pool_backward<3>},
    {"aten::_ctc_loss_backward", dense_gradient},
    {"aten::_native_batch_norm_legit.no_stats", batch_norm_without_statistics},
    {"aten::_scaled_dot_product_flash_attention_for_cpu", attention},
    {"aten::_scaled_dot_product_flash_attention_for_cpu_backward", attention_backward},
    {"aten::binary_cross_entropy", binary_cross_entropy},
    {"aten::binary_cross_entropy_backward", binary_cross_entropy_backward},
    {"aten::col2im", col2im},
    {"aten::fractional_max_pool3d_backward", fractional_max_pool3d_backward},
    {"aten::huber_loss", huber_loss},
    {"aten::huber_loss_backward", contiguous_loss_gradient},
    {"aten::im2col", im2col},
    {"aten::log_sigmoid_backward", log_sigmoid_backward},
    {"aten::log_sigmoid_forward", log_sigmoid},
    {"aten::max_pool3d_with_indices", max_pool3d},
    {"aten::max_pool3d_with_indices_backward", max_pool3d_backward},
    {"aten::mse_loss_backward", contiguous_loss_gradient},
    {"aten::multi_margin_loss_backward", dense_gradient},
    {"aten::multilabel_margin_loss_backward", dense_gradient},
    {"aten::native_batch_norm", batch_norm},
    {"aten::native_batch_norm_backward", batch_norm_backward},
    {"aten::native_dropout", dropout},
    {"aten::native_dropout_backward", dropout_backward},
    {"aten::native_group_norm", group_norm},
    {"aten::native_group_norm_backward", group_norm_backward},
    {"aten::native_layer_norm", layer_norm},
    {"aten::native_layer_norm_backward", layer_norm_backward},
    {"aten::nll_loss2d_backward", nll_loss2d_backward},
    {"aten::nll_loss2d_forward", nll_loss2d},
    {"aten::reflection_pad2d", reflection_pad2d},
    {"aten::reflection_pad2d_backward", pad_backward<2, true>},
    {"aten::replication_pad2d_backward", pad_backward<2, false>},
    {"aten::replication_pad3d_backward", pad_backward<3, false>},
    {"aten::smooth_l1_loss_backward", contiguous_loss_gradient},
};

}  // namespace

std::vector<ShapeRuleRow> network_rules() { return {std::begin(kRows), std::end(kRows)}; }

}  // namespace torch_fl::glue::rules
