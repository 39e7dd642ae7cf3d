// SPDX-License-Identifier: Apache-2.0
// Reductions: loops per instruction set (loops_reduce.cpp) and the engine that feeds them (reduce.cpp).
#pragma once

#include "kinds.h"

namespace fl_sim {

/// One reduction in one kind of number. Accumulators are plain memory of acc_bytes each. `shift` is a number per output
/// that an earlier pass found (the mean, the maximum), or null.
struct Reduction {
  int64_t acc_bytes = 0;
  void (*init)(void* accs, int64_t n) = nullptr;
  /// n values into one accumulator.
  void (*fold)(void* acc, const void* values, int64_t n, const double* shift, const Params& params) = nullptr;
  /// n values into n accumulators, one each.
  void (*fold_many)(void* accs, const void* values, int64_t n, const double* shift, const Params& params) = nullptr;
  /// Results in the kinds out[]; params.i[3] is the number of values that each accumulator took.
  void (*finish)(void* const* outs, const void* accs, int64_t n, const double* shift, const Params& params) = nullptr;
  Kind out[2] = {kNoKind, kNoKind};
};

enum class Reduce : uint8_t {
  kSum,
  kNanSum,
  kMean,
  kProd,
  kMax,
  kMin,
  kArgMax,
  kArgMin,
  kAny,
  kAll,
  kCount,
  kSquares,
  kSumExp,
  kTotal,
  kHighest,
  kNorm0,
  kNorm1,
  kNorm2,
  kNormP,
  kNormMax,
  kNormMin,
  kReduces
};

/// A running value along one dimension; `acc` are doubles (or whatever the kind needs, at most 32 bytes each).
struct Scan {
  void (*init)(void* accs, int64_t n) = nullptr;
  /// n steps of one line.
  void (*line)(void* acc, void* const* outs, const void* values, int64_t n) = nullptr;
  /// One step of n lines.
  void (*step)(void* accs, void* const* outs, const void* values, int64_t n) = nullptr;
  int64_t acc_bytes = 0;
  Kind out[2] = {kNoKind, kNoKind};
};

enum class Scanned : uint8_t { kSum, kProd, kMax, kMin, kLogSumExp, kScans };

struct ReduceLoops {
  Reduction reduce[static_cast<int>(Reduce::kReduces)][kKinds];
  Scan scan[static_cast<int>(Scanned::kScans)][kKinds];
};

}  // namespace fl_sim
