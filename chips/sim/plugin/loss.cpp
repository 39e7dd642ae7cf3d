// SPDX-License-Identifier: Apache-2.0
// Negative log likelihood of classes, for rows and for images: an input is images x classes x points.
#include <algorithm>
#include <string>

#include "nn_families.h"
#include "nn_types.h"

namespace fl_sim::nn {
namespace {

enum Reduction : int64_t { kNone = 0, kMean = 1, kSum = 2 };

struct Classes {
  int64_t images = 1, classes, points = 1;
  bool single;  // one row without a batch dimension: never reduced by "none"
  explicit Classes(const View& in) : single(in.ndim == 1) {
    images = single ? 1 : in.sizes[0];
    classes = in.sizes[single ? 0 : 1];
    for (int32_t d = 2; d < in.ndim; ++d) points *= in.sizes[d];
  }
  int64_t targets() const { return images * points; }
  // Of the element of target i's class.
  int64_t offset(int64_t i, int64_t target) const { return (i / points * classes + target) * points + i % points; }
};

int64_t target_at(const View& target, int64_t i) {
  return target.dtype == FL_UINT8 ? target.as<const uint8_t>()[i] : target.as<const int64_t>()[i];
}

int64_t checked_target(const View& target, int64_t i, int64_t classes) {
  const int64_t value = target_at(target, i);
  if (value < 0 || value >= classes) throw OutOfRange("Target " + std::to_string(value) + " is out of bounds.");
  return value;
}

// Calls visit(i, target) for each target that counts.
template <class Visit>
void for_each_target(const Classes& s, const View& target, int64_t ignored, const Visit& visit) {
  for (int64_t i = 0; i < s.targets(); ++i) {
    if (target_at(target, i) != ignored) visit(i, checked_target(target, i, s.classes));
  }
}

template <class T>
const T* class_weights(const Call& call, uint32_t arg) {
  return call.none(arg) ? nullptr : call.tensor(arg).as<const T>();
}

template <class T>
void forward(const Call& call) {
  const View in = call.tensor(0), target = call.tensor(1), out = call.out(0), total_weight = call.out(1);
  const Classes s(in);
  const T* x = in.as<const T>();
  const T* weight = class_weights<T>(call, 2);
  const int64_t reduction = call.integer(3), ignored = call.integer(4);
  auto weight_of = [&](int64_t t) { return weight ? static_cast<double>(weight[t]) : 1.0; };
  if (reduction == kNone && !s.single) {
    std::fill_n(out.as<T>(), out.numel, T(0));
    *total_weight.as<T>() = T(0);
    for_each_target(s, target, ignored, [&](int64_t i, int64_t t) {
      out.as<T>()[i] = static_cast<T>(-weight_of(t) * static_cast<double>(x[s.offset(i, t)]));
    });
    return;
  }
  double sum = 0, total = 0;
  for_each_target(s, target, ignored, [&](int64_t i, int64_t t) {
    sum -= weight_of(t) * static_cast<double>(x[s.offset(i, t)]);
    total += weight_of(t);
  });
  *out.as<T>() = static_cast<T>(reduction == kMean ? sum / total : sum);
  *total_weight.as<T>() = static_cast<T>(total);
}

template <class T>
void backward(const Call& call) {
  const View gradient = call.tensor(0), target = call.tensor(2), out = call.out(0);
  const Classes s(out);
  const T* g = gradient.as<const T>();
  const T* weight = class_weights<T>(call, 3);
  const int64_t reduction = call.integer(4), ignored = call.integer(5);
  const bool each = reduction == kNone && !s.single;
  const double divisor = reduction == kMean ? static_cast<double>(*call.tensor(6).as<const T>()) : 1.0;
  std::fill_n(out.as<T>(), out.numel, T(0));
  for_each_target(s, target, ignored, [&](int64_t i, int64_t t) {
    const double factor = -(weight ? static_cast<double>(weight[t]) : 1.0) / divisor;
    out.as<T>()[s.offset(i, t)] = static_cast<T>(factor * static_cast<double>(g[each ? i : 0]));
  });
}

void forward_body(const Call& call) {
  dispatch_reals(call.tensor(0).dtype, [&](auto zero) { forward<decltype(zero)>(call); });
}

void backward_body(const Call& call) {
  dispatch_reals(call.out(0).dtype, [&](auto zero) { backward<decltype(zero)>(call); });
}

fl_status forward_run(const fl_call* call) { return launch(call, forward_body); }
fl_status backward_run(const fl_call* call) { return launch(call, backward_body); }

// All floating-point tensors have one type; the target (argument `target`) holds int64 or uint8.
fl_status supports_target(const fl_call* call, uint32_t target) {
  const fl_dtype dtype = call->args[0].u.tensor->dtype;
  for (uint32_t i = 0; i < call->n_args; ++i) {
    if (call->args[i].kind != FL_TENSOR) continue;
    const fl_dtype found = call->args[i].u.tensor->dtype;
    if (i == target ? found != FL_INT64 && found != FL_UINT8 : found != dtype) {
      return unsupported("element types of input, target and weight do not fit");
    }
  }
  return FL_OK;
}

fl_status forward_supports(const fl_call* call) { return supports_target(call, 1); }
fl_status backward_supports(const fl_call* call) { return supports_target(call, 2); }

constexpr uint32_t kDense = FL_KERNEL_CONTIGUOUS_INPUTS | FL_KERNEL_CONTIGUOUS_OUTPUTS;
constexpr fl_kernel kRows[] = {
    row("aten::nll_loss_forward", kDense, forward_run, kReals, forward_supports),
    row("aten::nll_loss2d_forward", kDense, forward_run, kReals, forward_supports),
    row("aten::nll_loss_backward", kDense, backward_run, kReals, backward_supports),
    row("aten::nll_loss2d_backward", kDense, backward_run, kReals, backward_supports),
};

}  // namespace
}  // namespace fl_sim::nn

fl_sim::Family fl_sim::loss_family() { return nn::kRows; }
