// SPDX-License-Identifier: Apache-2.0
// Inner loops of reductions and scans. Floating-point sums are formed in double, whatever the element type.
#include "loops.h"
#include "reduce.h"
#include "vmath.h"

namespace fl_sim::FL_SIM_ISA {
namespace {

template <class T>
struct WideOf {
  using type = T;
};
template <>
struct WideOf<float> {
  using type = double;
};
template <>
struct WideOf<C64> {
  using type = C128;
};
template <>
struct WideOf<bool> {
  using type = int64_t;
};
template <class T>
using Wide = typename WideOf<T>::type;

template <class T>
constexpr bool is_nan(T x) {
  return x != x;
}

// Each operator: accumulator, start, one step, joining two accumulators, result.
struct SumOp {
  static constexpr int kLanes = 16;
  template <class T>
  using Acc = Wide<T>;
  template <class T>
  static Acc<T> start() {
    return Acc<T>(0);
  }
  template <class T>
  static void add(Acc<T>& a, T x, double, const Params&) {
    a = plus(a, Acc<T>(x));
  }
  template <class T>
  static void join(Acc<T>& a, const Acc<T>& b) {
    a = plus(a, b);
  }
  template <class T>
  static T result(const Acc<T>& a, double, const Params&) {
    return static_cast<T>(a);
  }
};
// As SumOp, its result a double: for passes whose result another pass reads.
struct TotalOp : SumOp {
  template <class T>
  static double result(const SumOp::Acc<T>& a, double, const Params& p) {
    return static_cast<double>(a) / static_cast<double>(p.i[3]);
  }
};
struct NanSumOp : SumOp {
  template <class T>
  static void add(Acc<T>& a, T x, double, const Params&) {
    a = plus(a, is_nan(x) ? Acc<T>(0) : Acc<T>(x));
  }
};
struct MeanOp : SumOp {
  template <class T>
  static T result(const Acc<T>& a, double, const Params& p) {
    return static_cast<T>(a / Wide<T>(static_cast<double>(p.i[3])));
  }
};
struct ProdOp : SumOp {
  template <class T>
  static Acc<T> start() {
    return Acc<T>(1);
  }
  template <class T>
  static void add(Acc<T>& a, T x, double, const Params&) {
    a = times(a, Acc<T>(x));
  }
  template <class T>
  static void join(Acc<T>& a, const Acc<T>& b) {
    a = times(a, b);
  }
};

template <class T>
constexpr T lowest() {
  if constexpr (kFloating<T>)
    return -std::numeric_limits<T>::infinity();
  else
    return std::numeric_limits<T>::lowest();
}
template <class T>
constexpr T highest() {
  if constexpr (kFloating<T>)
    return std::numeric_limits<T>::infinity();
  else
    return std::numeric_limits<T>::max();
}
struct MaxOp {
  static constexpr int kLanes = 16;
  template <class T>
  using Acc = T;
  template <class T>
  static T start() {
    return lowest<T>();
  }
  template <class T>
  static void add(T& a, T x, double, const Params&) {
    a = is_nan(a) || a > x ? a : x;
  }
  template <class T>
  static void join(T& a, const T& b) {
    a = is_nan(a) || a > b ? a : b;
  }
  template <class T>
  static T result(const T& a, double, const Params&) {
    return a;
  }
};
struct MinOp : MaxOp {
  template <class T>
  static T start() {
    return highest<T>();
  }
  template <class T>
  static void add(T& a, T x, double, const Params&) {
    a = is_nan(a) || a < x ? a : x;
  }
  template <class T>
  static void join(T& a, const T& b) {
    a = is_nan(a) || a < b ? a : b;
  }
};
// The maximum as a double that can be subtracted: infinities become 0.
struct HighestOp : MaxOp {
  template <class T>
  static double result(const T& a, double, const Params&) {
    return std::isinf(static_cast<double>(a)) ? 0.0 : static_cast<double>(a);
  }
};

template <class T>
struct Place {
  T value;
  int64_t index;
  int64_t next;
};
template <bool kMaximum>
struct ArgOp {
  static constexpr int kLanes = 1;
  template <class T>
  using Acc = Place<T>;
  template <class T>
  static Acc<T> start() {
    return {kMaximum ? lowest<T>() : highest<T>(), 0, 0};
  }
  template <class T>
  static void add(Acc<T>& a, T x, double, const Params&) {
    const bool better = kMaximum ? x > a.value : x < a.value;
    if (better || (is_nan(x) && !is_nan(a.value)) || a.next == 0) a.value = x, a.index = a.next;
    ++a.next;
  }
};

struct AnyOp {
  static constexpr int kLanes = 1;
  template <class T>
  using Acc = uint8_t;
  template <class T>
  static uint8_t start() {
    return 0;
  }
  template <class T>
  static void add(uint8_t& a, T x, double, const Params&) {
    a |= x != 0;
  }
  template <class T>
  static void join(uint8_t& a, const uint8_t& b) {
    a |= b;
  }
  template <class T>
  static bool result(const uint8_t& a, double, const Params&) {
    return a != 0;
  }
};
struct AllOp : AnyOp {
  template <class T>
  static uint8_t start() {
    return 1;
  }
  template <class T>
  static void add(uint8_t& a, T x, double, const Params&) {
    a &= x != 0;
  }
};
struct CountOp : SumOp {
  template <class T>
  using Acc = int64_t;
  template <class T>
  static int64_t start() {
    return 0;
  }
  template <class T>
  static void add(int64_t& a, T x, double, const Params&) {
    a += x != T(0);
  }
  template <class T>
  static void join(int64_t& a, const int64_t& b) {
    a += b;
  }
  template <class T>
  static int64_t result(const int64_t& a, double, const Params&) {
    return a;
  }
};

// Real accumulators of possibly complex values.
template <class T>
double magnitude(T x) {
  if constexpr (kComplex<T>)
    return std::abs(C128(x));
  else
    return std::fabs(static_cast<double>(x));
}
template <class T>
using RealOf = decltype(std::abs(T()));
struct RealSum {
  static constexpr int kLanes = 8;
  template <class T>
  using Acc = double;
  template <class T>
  static double start() {
    return 0;
  }
  template <class T>
  static void join(double& a, const double& b) {
    a += b;
  }
  template <class T>
  static RealOf<T> result(const double& a, double, const Params&) {
    return static_cast<RealOf<T>>(a);
  }
};
// Squared distances from the mean; d[0] is the correction, i[0] asks for the root.
struct SquaresOp : RealSum {
  template <class T>
  static void add(double& a, T x, double shift, const Params&) {
    const double d = static_cast<double>(x) - shift;
    a += d * d;
  }
  template <class T>
  static T result(const double& a, double, const Params& p) {
    const double freedom = static_cast<double>(p.i[3]) - p.d[0];
    const double variance = a / (freedom > 0 ? freedom : 0);
    return static_cast<T>(p.i[0] ? std::sqrt(variance) : variance);
  }
};
struct SumExpOp : RealSum {
  template <class T>
  static void add(double& a, T x, double shift, const Params&) {
    a += static_cast<double>(exp_(static_cast<T>(x - static_cast<T>(shift))));
  }
  template <class T>
  static T result(const double& a, double shift, const Params&) {
    return static_cast<T>(std::log(a) + shift);
  }
};
struct Norm0Op : RealSum {
  template <class T>
  static void add(double& a, T x, double, const Params&) {
    a += x != T(0);
  }
};
struct Norm1Op : RealSum {
  template <class T>
  static void add(double& a, T x, double, const Params&) {
    a += magnitude(x);
  }
};
struct Norm2Op : RealSum {
  template <class T>
  static void add(double& a, T x, double, const Params&) {
    if constexpr (kComplex<T>) {
      const C128 z(x);
      a += z.real() * z.real() + z.imag() * z.imag();
    } else {
      a += static_cast<double>(x) * static_cast<double>(x);
    }
  }
  template <class T>
  static RealOf<T> result(const double& a, double, const Params&) {
    return static_cast<RealOf<T>>(std::sqrt(a));
  }
};
struct NormPOp : RealSum {
  template <class T>
  static void add(double& a, T x, double, const Params& p) {
    a += std::pow(magnitude(x), p.d[0]);
  }
  template <class T>
  static RealOf<T> result(const double& a, double, const Params& p) {
    return static_cast<RealOf<T>>(std::pow(a, 1 / p.d[0]));
  }
};
struct NormMaxOp : RealSum {
  template <class T>
  static void add(double& a, T x, double, const Params&) {
    MaxOp::add(a, magnitude(x), 0, Params());
  }
  template <class T>
  static void join(double& a, const double& b) {
    MaxOp::join<double>(a, b);
  }
};
struct NormMinOp : RealSum {
  template <class T>
  static double start() {
    return std::numeric_limits<double>::infinity();
  }
  template <class T>
  static void add(double& a, T x, double, const Params&) {
    MinOp::add(a, magnitude(x), 0, Params());
  }
  template <class T>
  static void join(double& a, const double& b) {
    MinOp::join<double>(a, b);
  }
};

// ---- The loops
template <class T, class Op>
using AccOf = typename Op::template Acc<T>;

template <class T, class Op>
void init(void* accs, int64_t n) {
  auto* a = static_cast<AccOf<T, Op>*>(accs);
  for (int64_t i = 0; i < n; ++i) a[i] = Op::template start<T>();
}

template <class T, class Op>
void fold(void* acc, const void* values, int64_t n, const double* shifts, const Params& params) {
  using A = AccOf<T, Op>;
  const Params p = params;
  auto* x = static_cast<const T*>(values);
  const double shift = shifts ? *shifts : 0;
  A total = *static_cast<A*>(acc);
  int64_t i = 0;
  if constexpr (Op::kLanes > 1) {
    constexpr int64_t kLanes = Op::kLanes;
    if (n >= 2 * kLanes) {
      A lanes[kLanes];
      for (int64_t k = 0; k < kLanes; ++k) lanes[k] = Op::template start<T>();
      for (; i + kLanes <= n; i += kLanes)
        for (int64_t k = 0; k < kLanes; ++k) Op::template add<T>(lanes[k], x[i + k], shift, p);
      for (int64_t k = 0; k < kLanes; ++k) Op::template join<T>(total, lanes[k]);
    }
  }
  for (; i < n; ++i) Op::template add<T>(total, x[i], shift, p);
  *static_cast<A*>(acc) = total;
}

template <class T, class Op>
void fold_many(void* accs, const void* values, int64_t n, const double* shifts, const Params& params) {
  const Params p = params;
  auto* a = static_cast<AccOf<T, Op>*>(accs);
  auto* x = static_cast<const T*>(values);
  if (shifts) {
#pragma GCC ivdep
    for (int64_t i = 0; i < n; ++i) Op::template add<T>(a[i], x[i], shifts[i], p);
  } else {
#pragma GCC ivdep
    for (int64_t i = 0; i < n; ++i) Op::template add<T>(a[i], x[i], 0, p);
  }
}

template <class T, class Op>
void finish(void* const* outs, const void* accs, int64_t n, const double* shifts, const Params& p) {
  auto* a = static_cast<const AccOf<T, Op>*>(accs);
  using R = decltype(Op::template result<T>(*a, 0, p));
  auto* out = static_cast<R*>(outs[0]);
  for (int64_t i = 0; i < n; ++i) out[i] = Op::template result<T>(a[i], shifts ? shifts[i] : 0, p);
}

template <class T, class Op>
void finish_place(void* const* outs, const void* accs, int64_t n, const double*, const Params&) {
  auto* a = static_cast<const Place<T>*>(accs);
  auto* value = static_cast<T*>(outs[0]);
  auto* index = static_cast<int64_t*>(outs[1]);
  for (int64_t i = 0; i < n; ++i) {
    if (value) value[i] = a[i].value;
    if (index) index[i] = a[i].index;
  }
}

template <class T>
constexpr Kind kind_for() {
  if constexpr (std::is_same_v<T, float>)
    return kF32;
  else if constexpr (std::is_same_v<T, double>)
    return kF64;
  else if constexpr (std::is_same_v<T, int64_t>)
    return kI64;
  else if constexpr (std::is_same_v<T, bool>)
    return kBool;
  else if constexpr (std::is_same_v<T, C64>)
    return kC64;
  else
    return kC128;
}

template <class T, class Op>
void add_reduction(ReduceLoops& loops, Reduce which) {
  Reduction& r = loops.reduce[static_cast<int>(which)][kind_for<T>()];
  r.acc_bytes = sizeof(AccOf<T, Op>);
  r.init = init<T, Op>;
  r.fold = fold<T, Op>;
  r.fold_many = fold_many<T, Op>;
  if constexpr (requires(AccOf<T, Op> a, Params p) { Op::template result<T>(a, 0.0, p); }) {
    r.finish = finish<T, Op>;
    r.out[0] = kind_for<decltype(Op::template result<T>(AccOf<T, Op>(), 0.0, Params()))>();
  } else {
    r.finish = finish_place<T, Op>;
    r.out[0] = kind_for<T>();
    r.out[1] = kI64;
  }
}
template <class Op, class... T>
void add_reductions(ReduceLoops& loops, Reduce which) {
  (add_reduction<T, Op>(loops, which), ...);
}

// ---- Scans
template <class T, class Op>
struct FoldScan {  // cumulative sum and product
  using Acc = Wide<T>;
  static Acc start() { return Op::template start<T>(); }
  static void next(Acc& a, T x, void* const* outs, int64_t i) {
    Op::template add<T>(a, x, 0, Params());
    static_cast<T*>(outs[0])[i] = static_cast<T>(a);
  }
};
template <class T, bool kMaximum>
struct PlaceScan {  // cummax, cummin: of equals the last counts; a NaN stays
  using Acc = Place<T>;
  static Acc start() { return {kMaximum ? lowest<T>() : highest<T>(), 0, 0}; }
  static void next(Acc& a, T x, void* const* outs, int64_t i) {
    const bool better = kMaximum ? x >= a.value : x <= a.value;
    if (a.next == 0 || is_nan(x) || (!is_nan(a.value) && better)) a.value = x, a.index = a.next;
    ++a.next;
    static_cast<T*>(outs[0])[i] = a.value;
    static_cast<int64_t*>(outs[1])[i] = a.index;
  }
};
template <class T>
struct LogSumExpScan {
  using Acc = double;
  static Acc start() { return -std::numeric_limits<double>::infinity(); }
  static void next(Acc& a, T value, void* const* outs, int64_t i) {
    const double x = static_cast<double>(value), low = is_nan(a) || a < x ? a : x, high = is_nan(a) || a > x ? a : x;
    if (!(std::isinf(low) && low == high)) a = high + std::log1p(std::exp(low - high));
    if (is_nan(x)) a = x;
    static_cast<T*>(outs[0])[i] = static_cast<T>(a);
  }
};

template <class T, class S>
void scan_line(void* acc, void* const* outs, const void* values, int64_t n) {
  auto* x = static_cast<const T*>(values);
  auto& a = *static_cast<typename S::Acc*>(acc);
  for (int64_t i = 0; i < n; ++i) S::next(a, x[i], outs, i);
}
template <class T, class S>
void scan_step(void* accs, void* const* outs, const void* values, int64_t n) {
  auto* x = static_cast<const T*>(values);
  auto* a = static_cast<typename S::Acc*>(accs);
  for (int64_t i = 0; i < n; ++i) S::next(a[i], x[i], outs, i);
}
template <class S>
void scan_init(void* accs, int64_t n) {
  auto* a = static_cast<typename S::Acc*>(accs);
  for (int64_t i = 0; i < n; ++i) a[i] = S::start();
}
template <class T, class S>
void add_scan(ReduceLoops& loops, Scanned which, bool places) {
  loops.scan[static_cast<int>(which)][kind_for<T>()] = {scan_init<S>,
                                                        scan_line<T, S>,
                                                        scan_step<T, S>,
                                                        sizeof(typename S::Acc),
                                                        {kind_for<T>(), places ? kI64 : kNoKind}};
}
template <class... T>
void add_place_scans(ReduceLoops& loops) {
  (add_scan<T, PlaceScan<T, true>>(loops, Scanned::kMax, true), ...);
  (add_scan<T, PlaceScan<T, false>>(loops, Scanned::kMin, true), ...);
}
template <class... T>
void add_fold_scans(ReduceLoops& loops) {
  (add_scan<T, FoldScan<T, SumOp>>(loops, Scanned::kSum, false), ...);
  (add_scan<T, FoldScan<T, ProdOp>>(loops, Scanned::kProd, false), ...);
}

ReduceLoops make() {
  ReduceLoops l;
  add_reductions<SumOp, float, double, int64_t, C64, C128>(l, Reduce::kSum);
  add_reductions<NanSumOp, float, double, int64_t, C64, C128>(l, Reduce::kNanSum);
  add_reductions<MeanOp, float, double, C64, C128>(l, Reduce::kMean);
  add_reductions<ProdOp, float, double, int64_t, C64, C128>(l, Reduce::kProd);
  add_reductions<MaxOp, float, double, int64_t, bool>(l, Reduce::kMax);
  add_reductions<MinOp, float, double, int64_t, bool>(l, Reduce::kMin);
  add_reductions<ArgOp<true>, float, double, int64_t, bool>(l, Reduce::kArgMax);
  add_reductions<ArgOp<false>, float, double, int64_t, bool>(l, Reduce::kArgMin);
  add_reductions<AnyOp, bool>(l, Reduce::kAny);
  add_reductions<AllOp, bool>(l, Reduce::kAll);
  add_reductions<CountOp, bool>(l, Reduce::kCount);
  add_reductions<SquaresOp, float, double>(l, Reduce::kSquares);
  add_reductions<TotalOp, float, double>(l, Reduce::kTotal);
  add_reductions<HighestOp, float, double>(l, Reduce::kHighest);
  add_reductions<SumExpOp, float, double>(l, Reduce::kSumExp);
  add_reductions<Norm0Op, float, double, C64, C128>(l, Reduce::kNorm0);
  add_reductions<Norm1Op, float, double, C64, C128>(l, Reduce::kNorm1);
  add_reductions<Norm2Op, float, double, C64, C128>(l, Reduce::kNorm2);
  add_reductions<NormPOp, float, double, C64, C128>(l, Reduce::kNormP);
  add_reductions<NormMaxOp, float, double, C64, C128>(l, Reduce::kNormMax);
  add_reductions<NormMinOp, float, double, C64, C128>(l, Reduce::kNormMin);
  add_fold_scans<float, double, int64_t, C64, C128>(l);
  add_place_scans<float, double, int64_t, bool>(l);
  add_scan<float, LogSumExpScan<float>>(l, Scanned::kLogSumExp, false);
  add_scan<double, LogSumExpScan<double>>(l, Scanned::kLogSumExp, false);
  return l;
}

}  // namespace

const ReduceLoops& reduce_loops() {
  static const ReduceLoops loops = make();
  return loops;
}

}  // namespace fl_sim::FL_SIM_ISA
