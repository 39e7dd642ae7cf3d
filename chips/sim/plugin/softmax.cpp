// SPDX-License-Identifier: Apache-2.0
// Softmax and log-softmax along one dimension, forward and backward. A line is gathered into dense scratch memory in
// the type that sums are formed in, so any position of the dimension costs the same.
#include <algorithm>
#include <cmath>

#include "nn_dense.h"
#include "nn_families.h"
#include "nn_types.h"
#include "parallel.h"
#include "workspace.h"

namespace fl_sim::nn {
namespace {

template <class A>
A maximum(const A* line, int64_t count) {
  A best = line[0];
  for (int64_t i = 1; i < count; ++i) best = line[i] > best ? line[i] : best;
  return best;
}

struct Softmax {
  template <class A>
  static void apply(A* line, int64_t count) {
    const A top = maximum(line, count);
    A sum(0);
    for (int64_t i = 0; i < count; ++i) sum += line[i] = std::exp(line[i] - top);
    for (int64_t i = 0; i < count; ++i) line[i] /= sum;
  }
  // The gradient from grad[] and the forward's result out[], into grad[].
  template <class A>
  static void backward(A* grad, const A* out, int64_t count) {
    A sum(0);
    for (int64_t i = 0; i < count; ++i) sum += grad[i] * out[i];
    for (int64_t i = 0; i < count; ++i) grad[i] = (grad[i] - sum) * out[i];
  }
};

struct LogSoftmax {
  template <class A>
  static void apply(A* line, int64_t count) {
    const A top = maximum(line, count);
    A sum(0);
    for (int64_t i = 0; i < count; ++i) sum += std::exp(line[i] - top);
    const A log_sum = std::log(sum);
    for (int64_t i = 0; i < count; ++i) line[i] = line[i] - top - log_sum;
  }
  template <class A>
  static void backward(A* grad, const A* out, int64_t count) {
    A sum(0);
    for (int64_t i = 0; i < count; ++i) sum += grad[i];
    for (int64_t i = 0; i < count; ++i) grad[i] -= std::exp(out[i]) * sum;
  }
};

template <class T, class A>
void load_line(const T* from, int64_t stride, int64_t count, A* line) {
  for (int64_t i = 0; i < count; ++i) line[i] = static_cast<A>(from[i * stride]);
}

template <class T, class A>
void store_line(const A* line, int64_t count, T* to, int64_t stride) {
  for (int64_t i = 0; i < count; ++i) to[i * stride] = static_cast<T>(line[i]);
}

constexpr double kExpCost = 8;

template <class Function>
void forward_body(const Call& call) {
  const View in = call.tensor(0), out = call.out(0);
  if (out.numel == 0) return;
  const DimSplit s = split_at(in, call.integer(1));
  dispatch_reals(in.dtype, [&](auto zero) {
    using T = decltype(zero);
    parallel_for(s.outer * s.inner, kExpCost * static_cast<double>(in.numel), [&](int64_t i) {
      const int64_t at = i / s.inner * s.size * s.inner + i % s.inner;
      Acc<T>* line = workspace<Acc<T>>(Slot::kKernel, s.size);
      load_line(in.as<const T>() + at, s.inner, s.size, line);
      Function::apply(line, s.size);
      store_line(line, s.size, out.as<T>() + at, s.inner);
    });
  });
}

template <class Function>
void backward_body(const Call& call) {
  const View gradient = call.tensor(0), result = call.tensor(1), out = call.out(0);
  if (out.numel == 0) return;
  const DimSplit s = split_at(result, call.integer(2));
  dispatch_reals(out.dtype, [&](auto zero) {
    using T = decltype(zero);
    parallel_for(s.outer * s.inner, kExpCost * static_cast<double>(out.numel), [&](int64_t i) {
      const int64_t at = i / s.inner * s.size * s.inner + i % s.inner;
      Acc<T>* line = workspace<Acc<T>>(Slot::kKernel, 2 * s.size);
      load_line(gradient.as<const T>() + at, s.inner, s.size, line);
      load_line(result.as<const T>() + at, s.inner, s.size, line + s.size);
      Function::backward(line, line + s.size, s.size);
      store_line(line, s.size, out.as<T>() + at, s.inner);
    });
  });
}

template <Body kBody>
fl_status run(const fl_call* call) {
  return launch(call, kBody);
}

fl_status supports(const fl_call* call) {
  for (uint32_t i = 0; i < call->n_args; ++i) {
    if (call->args[i].kind == FL_TENSOR && call->args[i].u.tensor->dtype != call->outs[0]->dtype) {
      return unsupported("input and result have different element types");
    }
  }
  return FL_OK;
}

constexpr uint32_t kFlags = FL_KERNEL_CONTIGUOUS_INPUTS | FL_KERNEL_CONTIGUOUS_OUTPUTS | FL_KERNEL_IN_PLACE_SAFE;
constexpr fl_kernel kRows[] = {
    row("aten::_softmax", kFlags, run<forward_body<Softmax>>, kReals, supports),
    row("aten::_log_softmax", kFlags, run<forward_body<LogSoftmax>>, kReals, supports),
    row("aten::_softmax_backward_data", kFlags, run<backward_body<Softmax>>, kReals, supports),
    row("aten::_log_softmax_backward_data", kFlags, run<backward_body<LogSoftmax>>, kReals, supports),
};

}  // namespace
}  // namespace fl_sim::nn

fl_sim::Family fl_sim::softmax_family() { return nn::kRows; }
