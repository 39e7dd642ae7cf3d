// SPDX-License-Identifier: Apache-2.0
// Walks a tensor of any strides and hands dense runs to the loops of a reduction.
#pragma once

#include "launch.h"
#include "pointwise.h"
#include "reduce.h"

namespace fl_sim {

/// A result of a reduction, with a stride for each dimension that is kept.
struct Target {
  char* data = nullptr;  ///< null: not wanted
  fl_dtype dtype = FL_FLOAT32;
  int64_t strides[kMaxDims];
};

/// Which dimensions of an input go and which stay.
struct Reduced {
  View in;
  int n_kept = 0, n_gone = 0;
  int kept[kMaxDims], gone[kMaxDims];  ///< dimensions, ascending
  int64_t count = 1;                   ///< values per result
  int64_t results = 1;
  int64_t size(int dim) const { return in.sizes[dim]; }
};

/// `all_when_empty`: an empty list of dimensions means all of them.
Reduced reduce_dims(const View& in, std::span<const int64_t> dims, bool all_when_empty);
/// The output view of a reduction whose dimensions were kept as 1 or dropped.
Target target_of(const View& out, const Reduced& geometry);
/// A dense buffer of doubles, one per result.
Target target_of(double* buffer, const Reduced& geometry);

/// Runs it. `shift`, when its data is set, holds doubles as an earlier pass left them.
void reduce(const Reduced& geometry, Kind kind, const Reduction& loops, const Target* targets, int n_targets,
            const Target* shift, Params params);

}  // namespace fl_sim
