// SPDX-License-Identifier: Apache-2.0
// The kernels that reduce: sums, extremes, places, logic, moments, norms.
#include <cmath>
#include <vector>

#include "families.h"
#include "isa.h"
#include "reduce_engine.h"

namespace fl_sim {
namespace {

const ReduceLoops& loops() {
  static const ReduceLoops& chosen = FL_SIM_PICK(reduce_loops);
  return chosen;
}
const Reduction& loops_of(Reduce which, Kind kind) {
  const Reduction& r = loops().reduce[static_cast<int>(which)][kind];
  if (!r.fold) throw KernelError("this element type is not in the kernel's table row");
  return r;
}

/// How a row finds its arguments.
struct Spec {
  const char* op;
  Reduce which;
  int8_t dims;       ///< schema position of the dimension(s); -1: all
  bool output_kind;  ///< computes in the kind of the output (sum with dtype), else in that of the input
  bool keeps_empty;  ///< an empty list reduces nothing
  uint64_t dtypes;
};

// The dimensions argument: absent, one integer, or a list.
std::span<const int64_t> dims_of(const Call& call, int8_t at) {
  if (at < 0 || call.none(static_cast<uint32_t>(at))) return {};
  const fl_value& v = call.value(static_cast<uint32_t>(at));
  if (v.kind == FL_INTEGER) return {&v.u.i, 1};
  return {v.u.ints, v.count};
}
Reduced geometry_of(const Call& call, int8_t at, bool keeps_empty) {
  const bool absent = at < 0 || call.none(static_cast<uint32_t>(at));
  return reduce_dims(call.tensor(0), dims_of(call, at), absent || !keeps_empty);
}

// All of a dense tensor of the kind's own type into one number.
void reduce_dense(const View& in, const View& out, const Reduction& r) {
  alignas(16) char acc[32], result[16];
  Params params;
  params.i[3] = in.numel;
  r.init(acc, 1);
  r.fold(acc, in.data, in.numel, nullptr, params);
  void* results[1] = {result};
  r.finish(results, acc, 1, nullptr, params);
  converters().store[r.out[0]][out.dtype](out.data, 1, result, 1);
}

void reduce_body(const Call& call) {
  const auto& spec = *static_cast<const Spec*>(call.raw.kernel->user_data);
  const bool logic = spec.which == Reduce::kAny || spec.which == Reduce::kAll || spec.which == Reduce::kCount;
  const View in = call.tensor(0);
  const Kind kind = logic ? kBool : kind_of(spec.output_kind ? call.out(0).dtype : in.dtype);
  const Reduction& r = loops_of(spec.which, kind);
  if (spec.dims < 0 && r.out[1] == kNoKind && in.contiguous() && in.dtype == native_dtype(kind))
    return reduce_dense(in, call.out(0), r);
  const Reduced g = geometry_of(call, spec.dims, spec.keeps_empty);
  Target targets[2];
  int n = 1;
  if (r.out[1] == kNoKind) {
    targets[0] = target_of(call.out(0), g);
  } else if (call.n_outs() == 1) {  // argmax: only the place
    targets[1] = target_of(call.out(0), g);
    n = 2;
  } else {
    for (uint32_t o = 0; o < 2; ++o)
      if (call.has_out(o)) targets[o] = target_of(call.out(o), g);
    n = 2;
  }
  reduce(g, kind, r, targets, n, nullptr, Params());
}

void aminmax_body(const Call& call) {
  const Reduced g = geometry_of(call, 1, false);
  const Kind kind = kind_of(g.in.dtype);
  for (uint32_t o = 0; o < 2; ++o) {
    if (!call.has_out(o)) continue;
    const Target target = target_of(call.out(o), g);
    reduce(g, kind, loops_of(o == 0 ? Reduce::kMin : Reduce::kMax, kind), &target, 1, nullptr, Params());
  }
}

// ---- In two passes: the mean (or maximum) first.
void shifted(const Reduced& g, Kind kind, Reduce first, Reduce second, const View& out, const View* mean,
             Params params) {
  static thread_local std::vector<double> passed;
  passed.resize(static_cast<size_t>(g.results));
  const Target shift = target_of(passed.data(), g);
  reduce(g, kind, loops_of(first, kind), &shift, 1, nullptr, params);
  const Target target = target_of(out, g);
  if (out.data) reduce(g, kind, loops_of(second, kind), &target, 1, &shift, params);
  if (!mean) return;
  Target means = target_of(*mean, g);
  reduce(g, kind, loops_of(Reduce::kMean, kind), &means, 1, nullptr, params);
}

template <bool kRoot, bool kWithMean>
void variance_body(const Call& call) {
  const Reduced g = geometry_of(call, 1, false);
  Params params;
  params.d[0] = call.real(2, 1);
  params.i[0] = kRoot;
  View mean;
  if (kWithMean && call.has_out(1)) mean = call.out(1);
  const View out = call.has_out(0) ? call.out(0) : View();
  shifted(g, kind_of(g.in.dtype), Reduce::kTotal, Reduce::kSquares, out, kWithMean && call.has_out(1) ? &mean : nullptr,
          params);
}

void logsumexp_body(const Call& call) {
  const Reduced g = geometry_of(call, 1, false);
  shifted(g, kind_of(call.out(0).dtype), Reduce::kHighest, Reduce::kSumExp, call.out(0), nullptr, Params());
}

// ---- Norms
Kind norm_kind(fl_dtype in, fl_dtype out) {
  if (!is_complex(in)) return kind_of(out);
  return out == FL_FLOAT64 ? kC128 : kC64;
}
Reduce norm_loops(double order) {
  if (order == 0) return Reduce::kNorm0;
  if (order == 1) return Reduce::kNorm1;
  if (order == 2) return Reduce::kNorm2;
  if (std::isinf(order)) return order > 0 ? Reduce::kNormMax : Reduce::kNormMin;
  return Reduce::kNormP;
}
void norm_body(const Call& call) {
  const Reduced g = geometry_of(call, 2, false);
  const Kind kind = norm_kind(g.in.dtype, call.out(0).dtype);
  Params params;
  params.d[0] = call.real(1, 2);
  const Target target = target_of(call.out(0), g);
  reduce(g, kind, loops_of(norm_loops(params.d[0]), kind), &target, 1, nullptr, params);
}

template <void (*body)(const Call&)>
fl_status run(const fl_call* call) {
  return launch(call, body);
}

// A cast from complex to real, or an accumulation that the loops do not have, is left to others.
fl_status supports_reduce(const fl_call* call) {
  const auto& spec = *static_cast<const Spec*>(call->kernel->user_data);
  if (!spec.output_kind) return FL_OK;
  const fl_dtype out = call->outs[0]->dtype;
  const Kind kind = kind_of(out);
  if (kind == kNoKind || !loops().reduce[static_cast<int>(spec.which)][kind].fold)
    return unsupported("no loop for the output's element type");
  if (is_complex(call->compute_dtype) && !is_complex(out)) return unsupported("complex numbers summed as reals");
  return FL_OK;
}

constexpr uint64_t kOrdered = kReals | kInts | kBoolBit;
constexpr uint64_t kAnything = kReals | kInts | kBoolBit | kComplexes | kWideUnsigned;
constexpr uint64_t kSummed = kReals | kInts | kBoolBit | kComplexes;

const Spec kSpecs[] = {
    {"aten::sum", Reduce::kSum, -1, true, false, kSummed},
    {"aten::sum.dim_IntList", Reduce::kSum, 1, true, false, kSummed},
    {"aten::nansum", Reduce::kNanSum, 1, true, false, kSummed},
    {"aten::mean", Reduce::kMean, -1, true, false, kSummed},
    {"aten::mean.dim", Reduce::kMean, 1, true, false, kSummed},
    {"aten::prod", Reduce::kProd, -1, true, false, kSummed},
    {"aten::prod.dim_int", Reduce::kProd, 1, true, false, kSummed},
    {"aten::amax", Reduce::kMax, 1, false, false, kOrdered},
    {"aten::amin", Reduce::kMin, 1, false, false, kOrdered},
    {"aten::max", Reduce::kMax, -1, false, false, kOrdered},
    {"aten::min", Reduce::kMin, -1, false, false, kOrdered},
    {"aten::max.dim", Reduce::kArgMax, 1, false, false, kOrdered},
    {"aten::min.dim", Reduce::kArgMin, 1, false, false, kOrdered},
    {"aten::argmax", Reduce::kArgMax, 1, false, false, kOrdered},
    {"aten::argmin", Reduce::kArgMin, 1, false, false, kOrdered},
    {"aten::any", Reduce::kAny, -1, false, false, kAnything},
    {"aten::any.dim", Reduce::kAny, 1, false, false, kAnything},
    {"aten::any.dims", Reduce::kAny, 1, false, true, kAnything},
    {"aten::all", Reduce::kAll, -1, false, false, kAnything},
    {"aten::all.dim", Reduce::kAll, 1, false, false, kAnything},
    {"aten::all.dims", Reduce::kAll, 1, false, true, kAnything},
    {"aten::count_nonzero", Reduce::kCount, 1, false, false, kAnything},
    {"aten::count_nonzero.dim_IntList", Reduce::kCount, 1, false, false, kAnything},
};

const fl_kernel kOthers[] = {
    row("aten::aminmax", 0, run<aminmax_body>, kOrdered),
    row("aten::var.correction", 0, run<variance_body<false, false>>, kReals),
    row("aten::std.correction", 0, run<variance_body<true, false>>, kReals),
    row("aten::var_mean.correction", 0, run<variance_body<false, true>>, kReals),
    row("aten::std_mean.correction", 0, run<variance_body<true, true>>, kReals),
    row("aten::logsumexp", 0, run<logsumexp_body>, kReals),
    row("aten::linalg_vector_norm", 0, run<norm_body>, kReals | kComplexes),
    row("aten::norm.ScalarOpt_dim", 0, run<norm_body>, kReals | kComplexes),
    row("aten::norm.ScalarOpt_dim_dtype", 0, run<norm_body>, kReals | kComplexes),
};

}  // namespace

Family reduce_family() {
  static const std::vector<fl_kernel> rows = [] {
    std::vector<fl_kernel> all;
    for (const Spec& spec : kSpecs)
      all.push_back(row(spec.op, 0, run<reduce_body>, spec.dtypes, supports_reduce, const_cast<Spec*>(&spec)));
    all.insert(all.end(), std::begin(kOthers), std::end(kOthers));
    return all;
  }();
  return rows;
}

}  // namespace fl_sim
