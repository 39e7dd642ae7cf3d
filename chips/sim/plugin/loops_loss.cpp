// SPDX-License-Identifier: Apache-2.0
// Element-wise losses and their backward formulas.
#include <iterator>

#include "loops.h"
#include "loss_loops.h"
#include "vmath.h"

namespace fl_sim::FL_SIM_ISA {
namespace {

// a = input, b = target, c = weight
FL_SIM_FN3(Mse, { return (a - b) * (a - b); });
FL_SIM_FN3(SmoothL1, {
  const T z = std::fabs(a - b), beta = T(p.d[0]);
  return z < beta ? T(0.5) * z * z / beta : z - T(0.5) * beta;
});
FL_SIM_FN3(Huber, {
  const T z = std::fabs(a - b), delta = T(p.d[0]);
  return z <= delta ? T(0.5) * z * z : delta * (z - T(0.5) * delta);
});
template <class T>
inline T at_least(T x, T low) {  // NaN stays
  return x < low ? low : x;
}
FL_SIM_FN3(Bce, {
  const T off = at_least(log1p_(-a), T(-100)), on = at_least(log_(a), T(-100));
  return ((b - 1) * off - b * on) * c;
});

FL_SIM_FN3(NoProbability, { return T(a >= 0 && a <= 1 ? 0 : 1); });

template <class T, class F>
void add_up(int64_t n, void* const*, const void* const* ins, const Params& params) {
  constexpr int64_t kLanes = 8;
  const Params p = params;
  auto* a = static_cast<const T*>(ins[0]);
  auto* b = static_cast<const T*>(ins[1]);
  auto* c = static_cast<const T*>(ins[2]);
  double lanes[kLanes] = {};
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes)
    for (int64_t k = 0; k < kLanes; ++k) lanes[k] += static_cast<double>(F::f(a[i + k], b[i + k], c[i + k], p));
  for (; i < n; ++i) lanes[0] += static_cast<double>(F::f(a[i], b[i], c[i], p));
  for (const double lane : lanes) *params.sum += lane;
}

void prepare_threshold(const Call& call, Params& p) { p.d[0] = call.real(3, 1); }

#define LOSS(op, weight, reduction, prepare, F, ...) \
  {"aten::" op,                                      \
   weight,                                           \
   reduction,                                        \
   prepare,                                          \
   {map3<float, F>, map3<double, F>},                \
   {add_up<float, F>, add_up<double, F>} __VA_OPT__(, ) __VA_ARGS__}
const ElementLoss kLosses[] = {
    LOSS("mse_loss", -1, 2, nullptr, Mse),
    LOSS("smooth_l1_loss", -1, 2, prepare_threshold, SmoothL1),
    LOSS("huber_loss", -1, 2, prepare_threshold, Huber),
    LOSS("binary_cross_entropy", 2, 3, nullptr, Bce, {add_up<float, NoProbability>, add_up<double, NoProbability>},
         "all elements of input should be between 0 and 1"),
};

// ---- Backward: a = gradient, b = input, c = target; d[0] = 1 or 1 / count, d[1] the loss's own parameter
FL_SIM_FN3(MseBackward, { return T(2 * p.d[0]) * (b - c) * a; });
FL_SIM_FN3(SmoothL1Backward, {
  const T x = b - c, beta = T(p.d[1]), scaled = T(p.d[0]) * a;
  return x <= -beta ? -scaled : x >= beta ? scaled : T(p.d[0]) * x * a / beta;
});
FL_SIM_FN3(HuberBackward, {
  const T x = b - c, delta = T(p.d[1]), scaled = T(p.d[0]) * a;
  return x <= -delta ? -scaled * delta : x >= delta ? scaled * delta : T(p.d[0]) * x * a;
});
FL_SIM_FN3(BceBackward, { return T(p.d[0]) * a * (b - c) / at_least((1 - b) * b, T(1e-12)); });

constexpr int64_t kMean = 1;
double share(const Call& call, uint32_t reduction) {
  return call.integer(reduction, kMean) == kMean ? 1.0 / static_cast<double>(call.out(0).numel) : 1.0;
}
void prepare_backward(const Call& call, Params& p) {
  p.d[0] = share(call, 3);
  p.d[1] = call.real(4, 1);
}
void prepare_bce_backward(const Call& call, Params& p) { p.d[0] = share(call, 4); }
fl_status supports_unweighted(const fl_call* call) {
  return call->args[3].kind == FL_NONE ? FL_OK : unsupported("a weighted loss");
}

constexpr Kind N = kNoKind;
#define BACKWARD(op, prepare, F, supports) \
  {"aten::" op, 3, 1, {0, 1, 2}, {N, N, N, N}, Out::kSame, false, false, prepare, FL_SIM_FLOATS(map3, F), supports}
const Pointwise kBackward[] = {
    BACKWARD("mse_loss_backward", prepare_backward, MseBackward, nullptr),
    BACKWARD("smooth_l1_loss_backward", prepare_backward, SmoothL1Backward, nullptr),
    BACKWARD("huber_loss_backward", prepare_backward, HuberBackward, nullptr),
    BACKWARD("binary_cross_entropy_backward", prepare_bce_backward, BceBackward, supports_unweighted),
};

}  // namespace

ElementLossTable element_loss_table() { return {kLosses, std::size(kLosses)}; }
PointwiseTable loss_backward_table() { return {kBackward, std::size(kBackward)}; }

}  // namespace fl_sim::FL_SIM_ISA
