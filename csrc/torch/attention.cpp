// SPDX-License-Identifier: Apache-2.0
// scaled_dot_product_attention: the chip's fused kernel where it has one, PyTorch's composition otherwise.
#include "attention.h"

#include <ATen/ATen.h>
#include <ATen/Context.h>
#include <ATen/ExpandUtils.h>
#include <ATen/native/transformers/attention.h>
#include <ATen/native/transformers/sdp_utils_cpp.h>
#include <torch/library.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <string_view>

#include "device_allocator.h"
#include "router.h"

namespace torch_fl::glue {
namespace {

using at::Tensor;
using OptionalTensor = std::optional<Tensor>;

constexpr const char* kFused = "aten::_scaled_dot_product_fused_attention_overrideable";
constexpr const char* kFusedBackward = "aten::_scaled_dot_product_fused_attention_overrideable_backward";

// The operator that returns tensors alone, so that a kernel row can serve it; PyTorch's own kernels for it are the
// CPU's.
constexpr const char* kStreaming = "aten::_scaled_dot_product_flash_attention_for_cpu";

bool mask_fits(const OptionalTensor& mask, const Tensor& query, const Tensor& key) {
  if (!mask.has_value() || !mask->defined()) return true;
  const bool floating = mask->scalar_type() == query.scalar_type() || mask->scalar_type() == at::kBool;
  if (!floating || mask->requires_grad() || mask->is_nested() || (mask->dim() != 2 && mask->dim() != 4)) return false;
  const std::array<int64_t, 4> sizes{query.size(0), query.size(1), query.size(2), key.size(2)};
  return at::is_expandable_to(mask->sizes(), sizes);
}

/// Whether the CPU would take that operator for this call. What it does not do is the same on every device.
bool can_stream(const Tensor& query, const Tensor& key, const Tensor& value, const OptionalTensor& mask,
                double dropout_p, bool is_causal, bool enable_gqa) {
  constexpr int64_t kMostDepth = 256;
  for (const Tensor* t : {&query, &key, &value}) {
    if (t->dim() != 4 || t->is_nested() || t->size(0) != query.size(0) || t->size(3) != query.size(3)) return false;
    if (t->scalar_type() != query.scalar_type() || t->numel() == 0 || t->stride(3) != 1) return false;
  }
  if (key.size(1) != value.size(1) || key.size(2) != value.size(2)) return false;
  if (enable_gqa ? query.size(1) % key.size(1) != 0 : query.size(1) != key.size(1)) return false;
  const bool masked = mask.has_value() && mask->defined();
  return dropout_p == 0.0 && !(masked && is_causal) && at::isFloatingType(query.scalar_type()) &&
         query.size(3) <= kMostDepth && mask_fits(mask, query, key) && at::globalContext().userEnabledFlashSDP() &&
         has_kernel(checked_device(query.device().index()).chip, kStreaming);
}

int64_t choose(const Tensor& query, const Tensor& key, const Tensor& value, const OptionalTensor& mask,
               double dropout_p, bool is_causal, std::optional<double> /*scale*/, bool enable_gqa) {
  constexpr auto math = static_cast<int64_t>(sdp::SDPBackend::math);
  if (can_stream(query, key, value, mask, dropout_p, is_causal, enable_gqa)) {
    return static_cast<int64_t>(sdp::SDPBackend::flash_attention);
  }
  const bool plain = query.dim() == 4 && key.dim() == 4 && value.dim() == 4 && !query.is_nested() && !enable_gqa;
  if (!plain || !at::globalContext().userEnabledOverrideableSDP()) return math;
  const bool fused = has_kernel(checked_device(query.device().index()).chip, kFused);
  return fused ? static_cast<int64_t>(sdp::SDPBackend::overrideable) : math;
}

// ---- The composition, for calls that a chip's fused kernel does not take -----------------------------------------

struct Scores {
  Tensor query, key, value;  ///< in the type to compute in
  Tensor masked;             ///< scaled query x key^T, plus bias
  Tensor weights;            ///< softmax of it
  double scale;
};

Scores compute_scores(const Tensor& query, const Tensor& key, const Tensor& value, const Tensor& bias, bool is_causal,
                      std::optional<double> scale) {
  TORCH_CHECK(!(is_causal && bias.defined()), "scaled dot product attention: is_causal and a bias exclude each other");
  const auto dtype = query.scalar_type();
  const bool reduced = dtype == at::kHalf || dtype == at::kBFloat16;
  const auto widen = [&](const Tensor& t) { return reduced ? t.to(at::kFloat) : t; };
  Scores s{widen(query), widen(key), widen(value), {}, {}, 0.0};
  s.scale = scale.value_or(1.0 / std::sqrt(static_cast<double>(query.size(-1))));
  s.masked = at::matmul(s.query, s.key.transpose(-2, -1)) * s.scale;
  if (bias.defined()) s.masked = s.masked + bias;
  if (is_causal) {
    const Tensor hidden =
        at::ones({query.size(-2), key.size(-2)}, query.options().dtype(at::kBool)).tril().logical_not();
    s.masked = s.masked.masked_fill(hidden, -std::numeric_limits<double>::infinity());
  }
  s.weights = at::_safe_softmax(s.masked, -1);
  return s;
}

/// Applies a dropout mask (undefined: none) and its scale.
Tensor dropped(const Tensor& tensor, const Tensor& keep, double p) {
  return keep.defined() ? tensor * keep * (p < 1.0 ? 1.0 / (1.0 - p) : 0.0) : tensor;
}

using FusedResult = std::tuple<Tensor, Tensor, Tensor, Tensor, c10::SymInt, c10::SymInt, Tensor, Tensor, Tensor>;

/// The dropout mask travels to the backward pass in the place of the seed of a fused kernel's random numbers.
FusedResult fused_forward(const Tensor& query, const Tensor& key, const Tensor& value, const OptionalTensor& bias,
                          double dropout_p, bool is_causal, bool return_debug_mask, std::optional<double> scale) {
  const Scores s = compute_scores(query, key, value, bias.value_or(Tensor()), is_causal, scale);
  Tensor keep;
  if (dropout_p > 0.0) keep = at::empty_like(s.weights, at::kBool).bernoulli_(1.0 - dropout_p);
  const Tensor weights = dropped(s.weights, keep, dropout_p);
  Tensor output = at::matmul(weights, s.value).to(query.scalar_type());
  return {std::move(output),
          s.masked.logsumexp(-1),
          Tensor(),
          Tensor(),
          query.sym_size(-2),
          key.sym_size(-2),
          keep,
          Tensor(),
          return_debug_mask ? weights : Tensor()};
}

std::tuple<Tensor, Tensor, Tensor, Tensor> fused_backward(
    const Tensor& grad_out, const Tensor& query, const Tensor& key, const Tensor& value, const Tensor& bias,
    std::array<bool, 4> wanted, const Tensor& /*out*/, const Tensor& /*logsumexp*/, const Tensor& /*cum_seq_q*/,
    const Tensor& /*cum_seq_k*/, c10::SymInt /*max_q*/, c10::SymInt /*max_k*/, double dropout_p, bool is_causal,
    const Tensor& keep, const Tensor& /*philox_offset*/, std::optional<double> scale) {
  if (!grad_out.defined()) return {};
  const Scores s = compute_scores(query, key, value, bias, is_causal, scale);
  const Tensor grad = grad_out.to(s.value.scalar_type());
  const auto dtype = query.scalar_type();
  Tensor grad_query, grad_key, grad_value, grad_bias;
  if (wanted[2]) {
    grad_value = at::matmul(dropped(s.weights, keep, dropout_p).transpose(-2, -1), grad).to(dtype);
  }
  const Tensor grad_weights = dropped(at::matmul(grad, s.value.transpose(-2, -1)), keep, dropout_p);
  const Tensor grad_scores = at::_softmax_backward_data(grad_weights, s.weights, -1, s.weights.scalar_type());
  if (wanted[0]) grad_query = (at::matmul(grad_scores, s.key) * s.scale).to(dtype);
  if (wanted[1]) grad_key = (at::matmul(grad_scores.transpose(-2, -1), s.query) * s.scale).to(dtype);
  if (wanted[3] && bias.defined()) grad_bias = at::sum_to(grad_scores, bias.sizes()).to(bias.scalar_type());
  return {grad_query, grad_key, grad_value, grad_bias};
}

// The same in the form that returns tensors alone. One head of keys serves several of queries.
Tensor repeated(const Tensor& tensor, const Tensor& query) {
  return tensor.size(1) == query.size(1) ? tensor : tensor.repeat_interleave(query.size(1) / tensor.size(1), 1);
}

std::tuple<Tensor, Tensor> streaming_forward(const Tensor& query, const Tensor& key, const Tensor& value,
                                             double dropout_p, bool is_causal, const OptionalTensor& mask,
                                             std::optional<double> scale) {
  const auto all =
      fused_forward(query, repeated(key, query), repeated(value, query), mask, dropout_p, is_causal, false, scale);
  const Tensor& sums = std::get<1>(all);
  const Tensor unseen = sums == -std::numeric_limits<double>::infinity();  // no key at all: the CPU has 0 there
  return {std::get<0>(all), sums.masked_fill(unseen, 0.0)};
}

std::tuple<Tensor, Tensor, Tensor> streaming_backward(const Tensor& grad_out, const Tensor& query, const Tensor& key,
                                                      const Tensor& value, const Tensor& out, const Tensor& logsumexp,
                                                      double dropout_p, bool is_causal, const OptionalTensor& mask,
                                                      std::optional<double> scale) {
  TORCH_CHECK(dropout_p == 0.0, "scaled dot product attention: this gradient knows no dropout");
  auto [grad_query, grad_key, grad_value, none] =
      fused_backward(grad_out, query, repeated(key, query), repeated(value, query), mask.value_or(Tensor()),
                     {true, true, true, false}, out, logsumexp, {}, {}, 0, 0, 0.0, is_causal, {}, {}, scale);
  const auto gathered = [](const Tensor& grad, const Tensor& of) {
    const int64_t group = grad.size(1) / of.size(1);
    return group == 1 ? grad : grad.unflatten(1, {of.size(1), group}).sum(2);
  };
  return {grad_query, gathered(grad_key, key), gathered(grad_value, value)};
}

// What the router re-dispatches to when the chip of a call has no fused kernel.
TORCH_LIBRARY_IMPL(aten, PrivateUse2, m) {
  m.impl("_scaled_dot_product_flash_attention_for_cpu", TORCH_FN(streaming_forward));
  m.impl("_scaled_dot_product_flash_attention_for_cpu_backward", TORCH_FN(streaming_backward));
  m.impl("_scaled_dot_product_fused_attention_overrideable", TORCH_FN(fused_forward));
  m.impl("_scaled_dot_product_fused_attention_overrideable_backward", TORCH_FN(fused_backward));
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) { m.impl("_fused_sdp_choice", TORCH_FN(choose)); }

bool any_chip_has(const std::string& name) {
  const auto& chips = runtime::Registry::get().chips();
  return std::any_of(chips.begin(), chips.end(), [&](const auto& chip) { return has_kernel(*chip, name); });
}

/// Once per operator; the library is kept, as destroying it would undo the registration.
template <typename Function>
void install_unless_any_chip_has(const char* name, Function function) {
  static bool installed = false;
  if (installed || any_chip_has(name)) return;
  static auto* library = new torch::Library(torch::Library::IMPL, "aten", c10::DispatchKey::PrivateUse1, __FILE__,
                                            static_cast<uint32_t>(__LINE__));
  library->impl(name, function);
  installed = true;
}

}  // namespace

void install_attention() {
  install_unless_any_chip_has(kFused, TORCH_FN(fused_forward));
  install_unless_any_chip_has(kFusedBackward, TORCH_FN(fused_backward));
}

}  // namespace torch_fl::glue

namespace at::native {
REGISTER_PRIVATEUSE1_DISPATCH(_fused_sdp_choice_stub, &torch_fl::glue::choose)
}  // namespace at::native
