// SPDX-License-Identifier: Apache-2.0
#include "geometry.h"

#include <algorithm>

namespace torch_fl::portable {

bool Geometry::merge(const fl_tensor* const* tensors, int count) {
  const fl_tensor& out = *tensors[0];
  operands = count;
  numel = out.numel;
  rank = 0;
  std::array<int, 64> order;
  int dims = 0;
  for (int d = 0; d < out.ndim; ++d) {
    if (out.sizes[d] != 1) order[static_cast<size_t>(dims++)] = d;
  }
  std::stable_sort(order.begin(), order.begin() + dims, [&](int a, int b) { return out.strides[a] > out.strides[b]; });
  for (int k = 0; k < dims; ++k) {
    const int d = order[static_cast<size_t>(k)];
    const int64_t size = out.sizes[d];
    bool merges = rank > 0;
    for (int o = 0; merges && o < count; ++o) {
      merges = strides[static_cast<size_t>(o)][static_cast<size_t>(rank - 1)] == tensors[o]->strides[d] * size;
    }
    if (!merges && rank == kMaxRank) return false;
    if (!merges) sizes[static_cast<size_t>(rank++)] = 1;
    sizes[static_cast<size_t>(rank - 1)] *= size;
    for (int o = 0; o < count; ++o)
      strides[static_cast<size_t>(o)][static_cast<size_t>(rank - 1)] = tensors[o]->strides[d];
  }
  if (rank == 0) {  // a single element
    rank = 1;
    sizes[0] = 1;
    for (int o = 0; o < count; ++o) strides[static_cast<size_t>(o)][0] = 0;
    strides[0][0] = 1;
  }
  return true;
}

}  // namespace torch_fl::portable
