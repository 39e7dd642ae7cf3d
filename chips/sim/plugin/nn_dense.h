// SPDX-License-Identifier: Apache-2.0
// Helpers that indexing kernels share: splitting a dense tensor at a dimension, reading indices, walking strides.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <string>

#include "nn_types.h"

namespace fl_sim::nn {

constexpr int kMaxDims = 64;  // the most that PyTorch allows

// Element types that a kernel may move as bytes.
constexpr uint64_t kMovable = kReals | kInts | kWideUnsigned | kBoolBit | kComplexes | FL_DTYPE_BIT(FL_COMPLEX32) |
                              FL_DTYPE_BIT(FL_FLOAT8_E5M2) | FL_DTYPE_BIT(FL_FLOAT8_E4M3FN) |
                              FL_DTYPE_BIT(FL_FLOAT8_E5M2FNUZ) | FL_DTYPE_BIT(FL_FLOAT8_E4M3FNUZ) |
                              FL_DTYPE_BIT(FL_FLOAT8_E8M0FNU);

// A dense tensor seen as outer x size x inner around a dimension. A 0-dim tensor is 1 x 1 x 1.
struct DimSplit {
  int64_t outer = 1, size = 1, inner = 1;
};

inline int64_t wrap_dim(int64_t dim, int32_t ndim) { return dim < 0 ? dim + std::max(ndim, 1) : dim; }

inline DimSplit split_at(const View& view, int64_t dim) {
  DimSplit split;
  dim = wrap_dim(dim, view.ndim);
  for (int32_t d = 0; d < view.ndim; ++d) {
    (d < dim ? split.outer : d == dim ? split.size : split.inner) *= view.sizes[d];
  }
  return split;
}

inline int64_t size_at(const View& view, int64_t dim) {
  return view.ndim == 0 ? 1 : view.sizes[wrap_dim(dim, view.ndim)];
}

// Indices of either width, at an offset in elements.
inline int64_t index_at(const View& index, int64_t offset) {
  return index.dtype == FL_INT32 ? index.as<const int32_t>()[offset] : index.as<const int64_t>()[offset];
}
inline bool is_index_dtype(fl_dtype dtype) { return dtype == FL_INT64 || dtype == FL_INT32; }

// Error: OutOfRange where PyTorch raises an IndexError, InvalidArgument where it raises a RuntimeError.
template <class Error>
[[noreturn]] void index_error(int64_t index, int64_t dim, int64_t size) {
  throw Error("index " + std::to_string(index) + " is out of bounds for dimension " + std::to_string(dim) +
              " with size " + std::to_string(size));
}

// Operators that do not let negative indices count from the end.
template <class Error>
int64_t checked_index(int64_t index, int64_t dim, int64_t size) {
  if (index < 0 || index >= size) index_error<Error>(index, dim, size);
  return index;
}

// Operators that do.
template <class Error>
int64_t wrapped_index(int64_t index, int64_t dim, int64_t size) {
  if (index < -size || index >= size) index_error<Error>(index, dim, size);
  return index < 0 ? index + size : index;
}

// Several operands walked together in the order of an index space; the last dimension is left to the visitor.
template <int kOperands>
struct Walk {
  int ndim = 0;
  std::array<int64_t, kMaxDims> sizes;
  std::array<std::array<int64_t, kMaxDims>, kOperands> strides;

  // Outermost first. Neighbours that every operand walks as if they were one dimension become one.
  void add_dim(int64_t size, const std::array<int64_t, kOperands>& step) {
    if (size == 1) return;
    if (!merges(size, step))
      sizes[ndim++] = size;
    else
      sizes[ndim - 1] *= size;
    for (int o = 0; o < kOperands; ++o) strides[o][ndim - 1] = step[o];
  }

  // visit(offsets of the operands, length of the last dimension, steps of the operands along it)
  template <class Visit>
  void rows(const Visit& visit) const {
    std::array<int64_t, kOperands> offsets{}, steps{};
    const int last = ndim - 1;
    for (int d = 0; d < ndim; ++d) {
      if (sizes[d] == 0) return;
    }
    for (int o = 0; o < kOperands && ndim > 0; ++o) steps[o] = strides[o][last];
    std::array<int64_t, kMaxDims> at{};
    while (true) {
      visit(offsets, ndim > 0 ? sizes[last] : int64_t{1}, steps);
      int d = last - 1;
      for (; d >= 0; --d) {
        for (int o = 0; o < kOperands; ++o) offsets[o] += strides[o][d];
        if (++at[d] < sizes[d]) break;
        for (int o = 0; o < kOperands; ++o) offsets[o] -= strides[o][d] * sizes[d];
        at[d] = 0;
      }
      if (d < 0) return;
    }
  }

 private:
  bool merges(int64_t size, const std::array<int64_t, kOperands>& step) const {
    if (ndim == 0 || size == 0 || sizes[ndim - 1] == 0) return false;
    for (int o = 0; o < kOperands; ++o) {
      if (strides[o][ndim - 1] != step[o] * size) return false;
    }
    return true;
  }
};

// Copies a view of any strides into another of the same sizes and element type.
inline void copy_strided(const View& from, const View& to) {
  Walk<2> walk;
  for (int d = 0; d < to.ndim; ++d) walk.add_dim(to.sizes[d], {from.strides[d], to.strides[d]});
  dispatch_bytes(dtype_size(to.dtype), [&](auto zero) {
    using T = decltype(zero);
    if (from.contiguous() && to.contiguous()) {
      std::copy_n(from.as<const T>(), to.numel, to.as<T>());
      return;
    }
    walk.rows([&](const auto& offset, int64_t length, const auto& step) {
      const T* source = from.as<const T>() + offset[0];
      T* target = to.as<T>() + offset[1];
      if (step[0] == 1 && step[1] == 1) {
        std::copy_n(source, length, target);
        return;
      }
      for (int64_t i = 0; i < length; ++i) target[i * step[1]] = source[i * step[0]];
    });
  });
}

}  // namespace fl_sim::nn
