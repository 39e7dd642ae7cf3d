// SPDX-License-Identifier: Apache-2.0
// Tensors walked together, in as few dimensions as they allow.
#pragma once

#include <array>
#include <cstdint>
#include <string>

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
  /// The same of any index space; strides but the output's may be negative.
  bool merge(int ndim, const int64_t* sizes, const int64_t* const* strides, int count);
};

// A kernel that walks a geometry: the items share its elements; row by row, `statement` handles each.
std::string walk(const Geometry& g, const std::string& statement);
/// "out, at0 + j": pointer and index of an operand's element, as LOAD_ and STORE_ take them.
std::string element(const Geometry& g, int operand);
std::string operand_name(int operand);  ///< "out", "x1", ...
/// What walk() sees in `p`; add_walk_members() gives it.
std::string walk_members(const Geometry& g);
uint32_t step_class(int64_t stride);

template <class M>
void add_walk_members(M& members, const Geometry& g, int64_t chunk) {
  members.add(g.numel);
  members.add(chunk);
  for (int d = 0; g.rank > 1 && d < g.rank; ++d) members.add(g.sizes[static_cast<size_t>(d)]);
  for (int k = 0; k < g.operands; ++k) {
    for (int d = 0; d < g.rank; ++d) members.add(g.strides[static_cast<size_t>(k)][static_cast<size_t>(d)]);
  }
}
template <class K>
void add_walk_key(K& key, const Geometry& g) {
  key.add(static_cast<uint32_t>(g.rank));
  for (int k = 0; k < g.operands; ++k)
    key.add(step_class(g.strides[static_cast<size_t>(k)][static_cast<size_t>(g.rank - 1)]));
}

}  // namespace torch_fl::portable
