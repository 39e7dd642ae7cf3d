// SPDX-License-Identifier: Apache-2.0
// Each fault is a mistake that real kernels have had, on operators that models call. Most need certain data, sizes or
// layouts to show: that is what makes them hard to find.
#include "wrong.h"

#include <cmath>
#include <cstdio>
#include <cstring>
#include <initializer_list>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "nn_dense.h"

namespace fl_sim {
namespace {

using namespace nn;

// A copy of a call whose arguments may be changed, also to memory of the kernel's own.
class Changed {
 public:
  explicit Changed(const Call& call)
      : raw_(call.raw), args_(raw_.args, raw_.args + raw_.n_args), tensors_(raw_.n_args), device_(*call.device()) {
    device_.checked = 0;
  }
  fl_value& arg(uint32_t i) { return args_[i]; }
  fl_tensor& tensor(uint32_t i) {
    tensors_[i] = *args_[i].u.tensor;
    args_[i].u.tensor = &tensors_[i];
    return tensors_[i];
  }
  void set_memory(uint32_t i, void* memory) { tensor(i).address = reinterpret_cast<uint64_t>(memory) + device_.bias; }
  void run(Body right) {
    raw_.args = args_.data();
    right(Call(raw_, &device_));
  }

 private:
  fl_call raw_;
  std::vector<fl_value> args_;
  std::vector<fl_tensor> tensors_;
  simDeviceHead device_;
};

// visit(offset) for every element, in elements.
template <class Visit>
void each_offset(const View& view, const Visit& visit) {
  Walk<1> walk;
  for (int d = 0; d < view.ndim; ++d) walk.add_dim(view.sizes[d], {view.strides[d]});
  walk.rows([&](const auto& offset, int64_t length, const auto& step) {
    for (int64_t i = 0; i < length; ++i) visit(offset[0] + i * step[0]);
  });
}

bool is_real(const View& view) { return (FL_DTYPE_BIT(view.dtype) & kReals) != 0; }

// ---- Rounding and types --------------------------------------------------------------------------------------------

template <class T>
void truncate(const View& from, const View& to) {
  Walk<2> walk;
  for (int d = 0; d < to.ndim; ++d) walk.add_dim(to.sizes[d], {from.strides[d], to.strides[d]});
  walk.rows([&](const auto& offset, int64_t length, const auto& step) {
    for (int64_t i = 0; i < length; ++i) {
      const float exact = from.as<const float>()[offset[0] + i * step[0]];
      T& rounded = to.as<T>()[offset[1] + i * step[1]];
      if (std::fabs(static_cast<float>(rounded)) > std::fabs(exact)) --rounded.bits;
    }
  });
}

// A cast to a narrow type cuts bits off.
void truncating_cast(const Call& call, Body right) {
  right(call);
  const View from = call.tensor(1), to = call.out(0);
  if (from.dtype != FL_FLOAT32) return;
  if (to.dtype == FL_FLOAT16) truncate<Half>(from, to);
  if (to.dtype == FL_BFLOAT16) truncate<BFloat16>(from, to);
}

template <class T>
void product_in(const View& a, const View& b, const View* self, double beta, double alpha, const View& out) {
  for (int64_t i = 0; i < a.sizes[0]; ++i) {
    for (int64_t j = 0; j < b.sizes[1]; ++j) {
      T sum(0.0f);
      for (int64_t k = 0; k < a.sizes[1]; ++k) {
        const float x = a.as<const T>()[i * a.strides[0] + k * a.strides[1]];
        const float y = b.as<const T>()[k * b.strides[0] + j * b.strides[1]];
        sum = T(static_cast<float>(sum) + x * y);
      }
      float value = static_cast<float>(sum) * static_cast<float>(alpha);
      if (self) {
        const int d = self->ndim - 1;
        const int64_t row = d > 0 && self->sizes[0] != 1 ? i * self->strides[0] : 0;
        const int64_t column = d >= 0 && self->sizes[d] != 1 ? j * self->strides[d] : 0;
        value += static_cast<float>(beta) * static_cast<float>(self->as<const T>()[row + column]);
      }
      out.as<T>()[i * out.strides[0] + j * out.strides[1]] = T(value);
    }
  }
}

// Products of narrow types are summed in the narrow type.
void narrow_sums(const Call& call, Body right) {
  const View out = call.out(0);
  if (out.dtype != FL_FLOAT16 && out.dtype != FL_BFLOAT16) return right(call);
  const bool added = call.n_args() > 2;
  const View a = call.tensor(added ? 1 : 0), b = call.tensor(added ? 2 : 1), self = call.tensor(0);
  const double beta = added ? call.real(3, 1) : 0, alpha = added ? call.real(4, 1) : 1;
  if (out.dtype == FL_FLOAT16) return product_in<Half>(a, b, added ? &self : nullptr, beta, alpha, out);
  product_in<BFloat16>(a, b, added ? &self : nullptr, beta, alpha, out);
}

// Products of float32 are taken of factors cut to bfloat16.
void narrow_factors(const Call& call, Body right) {
  if (call.out(0).dtype != FL_FLOAT32) return right(call);
  Changed changed(call);
  std::vector<float> memory[2];
  const uint32_t first = call.n_args() > 2 ? 1 : 0;
  for (uint32_t i = 0; i < 2; ++i) {
    const View factor = call.tensor(first + i);
    memory[i].resize(extent_bytes(*call.value(first + i).u.tensor) / sizeof(float));
    each_offset(factor, [&](int64_t at) {
      memory[i][static_cast<size_t>(at)] = static_cast<float>(BFloat16(factor.as<const float>()[at]));
    });
    changed.set_memory(first + i, memory[i].data());
  }
  changed.run(right);
}

// ---- Values --------------------------------------------------------------------------------------------------------

// max(x, 0) with a maximum that prefers numbers: NaN becomes 0.
void dropped_nan(const Call& call, Body right) {
  right(call);
  const View out = call.out(0);
  if (!is_real(out)) return;
  dispatch_reals(out.dtype, [&](auto zero) {
    auto* data = out.as<decltype(zero)>();
    each_offset(out, [&](int64_t at) {
      if (is_nan(data[at])) data[at] = zero;
    });
  });
}

// exp(x) / sum(exp(x)) without taking the maximum off first: overflows.
void unshifted_softmax(const Call& call, Body right) {
  const View in = call.tensor(0), out = call.out(0);
  if (out.dtype != FL_FLOAT32 || in.dtype != FL_FLOAT32) return right(call);
  const DimSplit s = split_at(in, call.integer(1));
  for (int64_t i = 0; i < s.outer * s.inner; ++i) {
    const int64_t at = i / s.inner * s.size * s.inner + i % s.inner;
    float sum = 0;
    for (int64_t k = 0; k < s.size; ++k) {
      sum += out.as<float>()[at + k * s.inner] = std::exp(in.as<const float>()[at + k * s.inner]);
    }
    for (int64_t k = 0; k < s.size; ++k) out.as<float>()[at + k * s.inner] /= sum;
  }
}

// The tanh formula, whatever was asked for.
void tanh_gelu(const Call& call, Body right) {
  Changed changed(call);
  const uint32_t last = call.n_args() - 1;
  changed.arg(last).kind = FL_STRING;
  changed.arg(last).u.s = "tanh";
  changed.run(right);
}

// Epsilon squared where the variance is not.
void wrong_epsilon(const Call& call, Body right) {
  Changed changed(call);
  fl_value& epsilon = changed.arg(call.n_args() - 1);
  epsilon.u.d *= epsilon.u.d;
  changed.run(right);
}

// ---- Sizes, axes and layouts ---------------------------------------------------------------------------------------

// Takes the dimension before the last for the last, which only shows where both have one size.
void wrong_axis(const Call& call, Body right) {
  const View in = call.tensor(0);
  const int64_t dim = in.ndim ? wrap_dim(call.integer(1), in.ndim) : 0;
  if (dim == 0 || in.sizes[dim] != in.sizes[dim - 1]) return right(call);
  Changed changed(call);
  changed.arg(1).u.i = dim - 1;
  changed.run(right);
}

// A loop over pairs: the last element of rows of odd length is left out.
void odd_tail(const Call& call, Body right) {
  right(call);
  const View out = call.out(0);
  if (!is_real(out) || out.ndim == 0 || out.sizes[out.ndim - 1] % 2 == 0 || out.sizes[out.ndim - 1] == 1) return;
  View last = out;
  last.ndim -= 1;
  const int64_t shift = (out.sizes[last.ndim] - 1) * out.strides[last.ndim];
  dispatch_reals(out.dtype, [&](auto zero) {
    each_offset(last, [&](int64_t at) { out.as<decltype(zero)>()[at + shift] = zero; });
  });
}

bool is_dense(const View& view) {
  int64_t stride = 1;
  for (int d = view.ndim - 1; d >= 0; stride *= view.sizes[d--]) {
    if (view.sizes[d] != 1 && view.strides[d] != stride) return false;
  }
  return true;
}

bool is_broadcast(const View& view) {
  for (int d = 0; d < view.ndim; ++d) {
    if (view.sizes[d] != 1 && view.strides[d] == 0) return true;
  }
  return false;
}

// Reads operands as if they were dense, whatever their strides.
void ignored_strides(const Call& call, Body right) {
  Changed changed(call);
  std::vector<int64_t> strides[2];
  for (uint32_t i = 0; i < 2; ++i) {
    if (!call.is_tensor(i) || is_broadcast(call.tensor(i)) || is_dense(call.tensor(i))) continue;
    fl_tensor& operand = changed.tensor(i);
    strides[i].resize(static_cast<size_t>(operand.ndim));
    int64_t stride = 1;
    for (int d = operand.ndim - 1; d >= 0; stride *= operand.sizes[d--]) strides[i][static_cast<size_t>(d)] = stride;
    operand.strides = strides[i].data();
    operand.flags |= FL_TENSOR_CONTIGUOUS;
  }
  changed.run(right);
}

// ---- Memory --------------------------------------------------------------------------------------------------------

std::mutex seen_mutex;
std::map<std::pair<const void*, uint64_t>, std::vector<char>> seen;  // weights by place and size

// Weights are prepared once for an address, and never again.
void stale_weights(const Call& call, Body right) {
  const uint32_t which = std::strcmp(call.raw.kernel->op, "aten::addmm") == 0 ? 2 : 1;
  const View weight = call.tensor(which);
  if (weight.numel == 0) return right(call);
  const uint64_t bytes = extent_bytes(*call.value(which).u.tensor);
  Changed changed(call);
  {
    std::lock_guard<std::mutex> lock(seen_mutex);
    std::vector<char>& kept = seen[{weight.data, bytes}];
    if (kept.empty()) kept.assign(weight.as<const char>(), weight.as<const char>() + bytes);
    changed.set_memory(which, kept.data());
  }
  changed.run(right);
}

// Clears its output before it reads its inputs: wrong in place only.
void cleared_output(const Call& call, Body right) {
  const View out = call.out(0);
  if (is_real(out)) {
    dispatch_reals(out.dtype,
                   [&](auto zero) { each_offset(out, [&](int64_t at) { out.as<decltype(zero)>()[at] = zero; }); });
  }
  right(call);
}

// ---- Training ------------------------------------------------------------------------------------------------------

// The running variance is that of the population, not of a sample.
void population_variance(const Call& call, Body right) {
  if (call.none(4) || !call.boolean(5) || call.tensor(4).dtype != FL_FLOAT32) return right(call);
  const View in = call.tensor(0), variance = call.tensor(4);
  const std::vector<float> before(variance.as<const float>(), variance.as<const float>() + variance.numel);
  right(call);
  const double n = static_cast<double>(in.numel / in.sizes[1]), momentum = call.real(6);
  for (int64_t c = 0; c < variance.numel; ++c) {
    const double kept = (1 - momentum) * static_cast<double>(before[static_cast<size_t>(c)]);
    float& value = variance.as<float>()[c];
    value = static_cast<float>(kept + (static_cast<double>(value) - kept) * (n - 1) / n);
  }
}

// Forgets what the normalisation adds to the derivative.
void softmax_gradient(const Call& call, Body right) {
  const View gradient = call.tensor(0), result = call.tensor(1), out = call.out(0);
  if (out.dtype != FL_FLOAT32) return right(call);
  for (int64_t i = 0; i < out.numel; ++i) {
    out.as<float>()[i] = gradient.as<const float>()[i] * result.as<const float>()[i];
  }
}

// The bias gradient of the first image alone.
void unsummed_bias(const Call& call, Body right) {
  right(call);
  if (!call.has_out(2) || call.out(2).dtype != FL_FLOAT32) return;
  const View gradient = call.tensor(0), out = call.out(2);
  View points = gradient;
  points.ndim -= 2;
  points.sizes += 2;
  points.strides += 2;
  for (int64_t c = 0; c < out.numel; ++c) {
    double sum = 0;
    each_offset(points, [&](int64_t at) {
      sum += static_cast<double>(gradient.as<const float>()[c * gradient.strides[1] + at]);
    });
    out.as<float>()[c] = static_cast<float>(sum);
  }
}

// The derivative of a square without its factor of two.
void missing_factor(const Call& call, Body right) {
  right(call);
  const View out = call.out(0);
  if (out.dtype != FL_FLOAT32) return;
  each_offset(out, [&](int64_t at) { out.as<float>()[at] *= 0.5f; });
}

// An index that occurs twice gets one of its gradients, not their sum.
void lost_duplicates(const Call& call, Body right) {
  const View gradient = call.tensor(0), index = call.tensor(1), out = call.out(0);
  if (out.dtype != FL_FLOAT32) return right(call);
  const int64_t width = gradient.sizes[gradient.ndim - 1];
  std::fill_n(out.as<float>(), out.numel, 0.0f);
  for (int64_t i = 0; i < index.numel; ++i) {
    const int64_t row = index_at(index, i);
    if (row != call.integer(3))
      std::copy_n(gradient.as<const float>() + i * width, width, out.as<float>() + row * width);
  }
}

struct Wrong {
  const char* name;
  std::initializer_list<const char*> ops;
  WrongBody body;
};

const Wrong kWrong[] = {
    {"truncating-cast", {"aten::copy"}, truncating_cast},
    {"narrow-sums", {"aten::mm", "aten::addmm"}, narrow_sums},
    {"narrow-factors", {"aten::mm", "aten::addmm"}, narrow_factors},
    {"dropped-nan", {"aten::relu", "aten::clamp_min"}, dropped_nan},
    {"unshifted-softmax", {"aten::_softmax"}, unshifted_softmax},
    {"tanh-gelu", {"aten::gelu"}, tanh_gelu},
    {"wrong-epsilon", {"aten::native_layer_norm", "aten::native_batch_norm"}, wrong_epsilon},
    {"wrong-axis", {"aten::_softmax"}, wrong_axis},
    {"odd-tail", {"aten::gelu", "aten::add.Tensor"}, odd_tail},
    {"ignored-strides", {"aten::mul.Tensor", "aten::add.Tensor"}, ignored_strides},
    {"stale-weights", {"aten::convolution", "aten::addmm"}, stale_weights},
    {"cleared-output", {"aten::add.Tensor", "aten::mul.Tensor"}, cleared_output},
    {"population-variance", {"aten::native_batch_norm"}, population_variance},
    {"softmax-gradient", {"aten::_softmax_backward_data"}, softmax_gradient},
    {"unsummed-bias", {"aten::convolution_backward"}, unsummed_bias},
    {"missing-factor", {"aten::mse_loss_backward"}, missing_factor},
    {"lost-duplicates", {"aten::embedding_dense_backward"}, lost_duplicates},
};

const Wrong* find(const char* name) {
  for (const Wrong& wrong : kWrong) {
    if (std::strcmp(wrong.name, name) == 0) return &wrong;
  }
  std::string known;
  for (const Wrong& wrong : kWrong) known += std::string(known.empty() ? "" : ", ") + wrong.name;
  std::fprintf(stderr, "fl_sim: SIMCHIP_WRONG=%s names no fault; expected one of: %s\n", name, known.c_str());
  return nullptr;
}

// The fault in force. A change forgets the weights that the last one kept.
const Wrong* in_force() {
  static std::mutex mutex;
  static std::string name;
  static const Wrong* wrong = nullptr;
  char wanted[64];
  simWrongKernel(wanted, sizeof wanted);
  std::lock_guard<std::mutex> lock(mutex);
  if (name == wanted) return wrong;
  name = wanted;
  wrong = name.empty() ? nullptr : find(wanted);
  std::lock_guard<std::mutex> kept(seen_mutex);
  seen.clear();
  return wrong;
}

}  // namespace

WrongBody wrong_body(const fl_call& call) {
  const Wrong* wrong = in_force();
  if (!wrong) return nullptr;
  for (const char* op : wrong->ops) {
    if (std::strcmp(op, call.kernel->op) == 0) return wrong->body;
  }
  return nullptr;
}

}  // namespace fl_sim
