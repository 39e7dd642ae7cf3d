// SPDX-License-Identifier: Apache-2.0
// Tensors walked together, in as few dimensions as they allow.
#pragma once

#include <array>
#include <cstdint>

#include "torch_fl/fl_plugin.h"

namespace torch_fl::portable {

constexpr int kMaxRank = 8;      ///< of what is walked, after merging
constexpr int kMaxOperands = 8;  ///< the output first

/// The index space of the output, ordered by its strides (largest first), neighbours merged where every operand allows
/// it. Strides in elements.
struct Geometry {
  int rank = 0, operands = 0;
  int64_t numel = 1;
  std::array<int64_t, kMaxRank> sizes;
  std::array<std::array<int64_t, kMaxRank>, kMaxOperands> strides;

  /// Tensors of equal sizes (0 strides where broadcast). False: more dimensions than kMaxRank are left.
  bool merge(const fl_tensor* const* tensors, int count);
};

}  // namespace torch_fl::portable
