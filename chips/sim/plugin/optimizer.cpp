// SPDX-License-Identifier: Apache-2.0
// Fused optimizer steps over lists of parameters: Adam, AdamW, SGD and Adagrad. They mutate their list arguments.
#include <algorithm>
#include <cmath>

#include "nn_dense.h"
#include "nn_families.h"
#include "parallel.h"

namespace fl_sim::nn {
namespace {

// Gradient scaling of automatic mixed precision: gradients are divided by *scale; nothing happens after an overflow.
struct Scaling {
  bool skip = false, scaled = false;
  double scale = 1;
  Scaling(const Call& call, uint32_t arg) {
    if (!call.none(arg + 1)) skip = *call.tensor(arg + 1).as<const float>() == 1.0f;
    if (!call.none(arg)) {
      scaled = true;
      scale = static_cast<double>(*call.tensor(arg).as<const float>());
    }
  }
};

// The gradient of one element, unscaled in place where asked, with the sign of the search direction.
template <class T>
Acc<T> take_gradient(T* gradient, int64_t i, const Scaling& scaling, bool maximize) {
  Acc<T> g = static_cast<Acc<T>>(gradient[i]);
  if (scaling.scaled) {
    g /= static_cast<Acc<T>>(scaling.scale);
    gradient[i] = static_cast<T>(g);
  }
  return maximize ? -g : g;
}

double step_at(const Call& call, uint32_t list, uint32_t i) {
  return static_cast<double>(*call.list_tensor(list, i).as<const float>());
}

// ---- Adam ----------------------------------------------------------------------------------------------------------

// Arguments 6 to 12: lr, beta1, beta2, weight_decay, eps, amsgrad, maximize.
template <class T, bool kDecoupled>
struct AdamStep {
  using A = Acc<T>;
  T *parameter, *gradient, *average, *square, *largest;
  A lr, beta1, beta2, decay, eps, step_size, correction;
  bool maximize;
  Scaling scaling;

  AdamStep(const Call& call, uint32_t i, const Scaling& s)
      : parameter(call.list_tensor(0, i).as<T>()),
        gradient(call.list_tensor(1, i).as<T>()),
        average(call.list_tensor(2, i).as<T>()),
        square(call.list_tensor(3, i).as<T>()),
        largest(call.boolean(11) ? call.list_tensor(4, i).as<T>() : nullptr),
        maximize(call.boolean(12)),
        scaling(s) {
    const double step = step_at(call, 5, i);
    lr = static_cast<A>(call.real(6));
    beta1 = static_cast<A>(call.real(7));
    beta2 = static_cast<A>(call.real(8));
    decay = static_cast<A>(call.real(9));
    eps = static_cast<A>(call.real(10));
    step_size = static_cast<A>(call.real(6) / (1 - std::pow(call.real(7), step)));
    correction = static_cast<A>(std::sqrt(1 - std::pow(call.real(8), step)));
  }

  void element(int64_t i) const {
    A p = static_cast<A>(parameter[i]);
    A g = take_gradient(gradient, i, scaling, maximize);
    if (kDecoupled) {
      p -= lr * decay * p;
    } else {
      g += decay * p;
    }
    const A old = static_cast<A>(average[i]), weight = A(1) - beta1;
    const A mean = weight < A(0.5) ? old + weight * (g - old) : g - (g - old) * (A(1) - weight);
    const A variance = static_cast<A>(square[i]) * beta2 + (A(1) - beta2) * g * g;
    average[i] = static_cast<T>(mean);
    square[i] = static_cast<T>(variance);
    A top = variance;
    if (largest) {
      top = std::max(static_cast<A>(largest[i]), variance);
      largest[i] = static_cast<T>(top);
    }
    parameter[i] = static_cast<T>(p - step_size * mean / (std::sqrt(top) / correction + eps));
  }
};

// ---- SGD -----------------------------------------------------------------------------------------------------------

// Arguments 3 to 9: weight_decay, momentum, lr, dampening, nesterov, maximize, is_first_step.
template <class T>
struct SgdStep {
  using A = Acc<T>;
  T *parameter, *gradient, *buffer;
  A decay, momentum, lr, dampening;
  bool nesterov, maximize, first;
  Scaling scaling;

  SgdStep(const Call& call, uint32_t i, const Scaling& s)
      : parameter(call.list_tensor(0, i).as<T>()),
        gradient(call.list_tensor(1, i).as<T>()),
        buffer(call.real(4) != 0 ? call.list_tensor(2, i).as<T>() : nullptr),
        decay(static_cast<A>(call.real(3))),
        momentum(static_cast<A>(call.real(4))),
        lr(static_cast<A>(call.real(5))),
        dampening(static_cast<A>(call.real(6))),
        nesterov(call.boolean(7)),
        maximize(call.boolean(8)),
        first(call.boolean(9)),
        scaling(s) {}

  void element(int64_t i) const {
    const A p = static_cast<A>(parameter[i]);
    A g = take_gradient(gradient, i, scaling, maximize);
    if (decay != A(0)) g += p * decay;
    if (buffer) {
      const A velocity = first ? g : momentum * static_cast<A>(buffer[i]) + (A(1) - dampening) * g;
      buffer[i] = static_cast<T>(velocity);
      g = nesterov ? g + momentum * velocity : velocity;
    }
    parameter[i] = static_cast<T>(p - lr * g);
  }
};

// ---- Adagrad -------------------------------------------------------------------------------------------------------

// Arguments 4 to 8: lr, lr_decay, weight_decay, eps, maximize.
template <class T>
struct AdagradStep {
  using A = Acc<T>;
  T *parameter, *gradient, *sum;
  A rate, decay, eps;
  bool maximize;
  Scaling scaling;

  AdagradStep(const Call& call, uint32_t i, const Scaling& s)
      : parameter(call.list_tensor(0, i).as<T>()),
        gradient(call.list_tensor(1, i).as<T>()),
        sum(call.list_tensor(2, i).as<T>()),
        rate(static_cast<A>(call.real(4) / (1 + (step_at(call, 3, i) - 1) * call.real(5)))),
        decay(static_cast<A>(call.real(6))),
        eps(static_cast<A>(call.real(7))),
        maximize(call.boolean(8)),
        scaling(s) {}

  void element(int64_t i) const {
    const A p = static_cast<A>(parameter[i]);
    const A g = take_gradient(gradient, i, scaling, maximize) + decay * p;
    const A total = static_cast<A>(sum[i]) + g * g;
    sum[i] = static_cast<T>(total);
    parameter[i] = static_cast<T>(p - rate * g / (std::sqrt(total) + eps));
  }
};

// ---- All of them ---------------------------------------------------------------------------------------------------

constexpr int64_t kChunk = 16384;

template <template <class> class Step, uint32_t kScaling>
void step_body(const Call& call) {
  const Scaling scaling(call, kScaling);
  if (scaling.skip) return;
  for (uint32_t i = 0; i < call.list_size(0); ++i) {
    const View parameter = call.list_tensor(0, i);
    dispatch_reals(parameter.dtype, [&](auto zero) {
      const Step<decltype(zero)> step(call, i, scaling);
      const int64_t n = parameter.numel;
      parallel_for((n + kChunk - 1) / kChunk, 8.0 * static_cast<double>(n), [&](int64_t chunk) {
        const int64_t end = std::min(n, (chunk + 1) * kChunk);
        const auto local = step;  // so that stores to the parameters cannot change its fields
        for (int64_t k = chunk * kChunk; k < end; ++k) local.element(k);
      });
    });
  }
}

template <class T>
using Adam = AdamStep<T, false>;
template <class T>
using AdamW = AdamStep<T, true>;

template <Body kBody>
fl_status run(const fl_call* call) {
  return launch(call, kBody);
}

bool same_dense_layout(const fl_tensor& a, const fl_tensor& b) {
  if (a.dtype != b.dtype || a.ndim != b.ndim) return false;
  if (!((a.flags & b.flags) & (FL_TENSOR_CONTIGUOUS | FL_TENSOR_CHANNELS_LAST))) return false;
  for (int32_t d = 0; d < a.ndim; ++d) {
    if (a.sizes[d] != b.sizes[d]) return false;
  }
  return true;
}

bool float_scalar(const fl_value& v) {
  return v.kind != FL_TENSOR || (v.u.tensor->dtype == FL_FLOAT32 && v.u.tensor->numel == 1);
}

// The first kStates lists (those that are not empty) run along the parameters; list kSteps holds float32 scalars.
template <uint32_t kStates, int kSteps, uint32_t kScaling>
fl_status supports_step(const fl_call* call) {
  const fl_value& parameters = call->args[0];
  for (uint32_t l = 0; l < kStates; ++l) {
    const fl_value& list = call->args[l];
    if (list.count == 0) continue;
    if (list.kind != FL_TENSORS || list.count != parameters.count) return unsupported("lists of different lengths");
    for (uint32_t i = 0; i < list.count; ++i) {
      const fl_tensor* state = list.u.tensors[i];
      if (!state || !(FL_DTYPE_BIT(state->dtype) & kReals)) return unsupported("a state that is not floating-point");
      if (!same_dense_layout(*parameters.u.tensors[i], *state)) {
        return unsupported("parameter, gradient and state differ in type, shape or layout");
      }
    }
  }
  if (!float_scalar(call->args[kScaling]) || !float_scalar(call->args[kScaling + 1])) {
    return unsupported("grad_scale or found_inf is not one float32");
  }
  if (kSteps < 0) return FL_OK;
  const fl_value& steps = call->args[kSteps];
  if (steps.count != parameters.count) return unsupported("one step count for each parameter is needed");
  for (uint32_t i = 0; i < steps.count; ++i) {
    const fl_tensor* step = steps.u.tensors[i];
    if (!step || step->dtype != FL_FLOAT32 || step->numel != 1) return unsupported("a step count is not one float32");
  }
  return FL_OK;
}

constexpr fl_kernel kRows[] = {
    row("aten::_fused_adam_", 0, run<step_body<Adam, 13>>, kReals, supports_step<5, 5, 13>),
    row("aten::_fused_adamw_", 0, run<step_body<AdamW, 13>>, kReals, supports_step<5, 5, 13>),
    row("aten::_fused_sgd_", 0, run<step_body<SgdStep, 10>>, kReals, supports_step<3, -1, 10>),
    row("aten::_fused_adagrad_", 0, run<step_body<AdagradStep, 9>>, kReals, supports_step<3, 3, 9>),
};

}  // namespace
}  // namespace fl_sim::nn

fl_sim::Family fl_sim::optimizer_family() { return nn::kRows; }
