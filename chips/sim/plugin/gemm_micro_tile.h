// SPDX-License-Identifier: Apache-2.0
// The register tile, written once with the compiler's vector extension. Included only by the gemm_<isa>.cpp files,
// which are compiled with different instruction sets: everything here is static so that the linker cannot mix them.
#pragma once

#include <cstdint>

#include "gemm_micro.h"

namespace fl_sim::nn {
namespace {

template <class T, int kBytes>
struct VectorOf {
  typedef T type __attribute__((vector_size(kBytes), may_alias));
};

// A tile of kRows x (kVectors vectors of kBytes): all of it stays in registers over the whole of k.
template <class T, int kBytes, int kRows, int kVectors>
void micro_tile(int64_t k, const T* a, const T* b, T* c, bool accumulate) {
  using Vector = typename VectorOf<T, kBytes>::type;
  constexpr int kLanes = kBytes / sizeof(T);
  Vector acc[kRows][kVectors];
  Vector* tile = reinterpret_cast<Vector*>(c);
#pragma GCC unroll 16
  for (int i = 0; i < kRows; ++i) {
#pragma GCC unroll 4
    for (int j = 0; j < kVectors; ++j) acc[i][j] = Vector{};
  }
  for (int64_t p = 0; p < k; ++p) {
    const Vector* row = reinterpret_cast<const Vector*>(b);
    Vector bv[kVectors];
#pragma GCC unroll 4
    for (int j = 0; j < kVectors; ++j) bv[j] = row[j];
#pragma GCC unroll 16
    for (int i = 0; i < kRows; ++i) {
      const T scalar = a[i];
#pragma GCC unroll 4
      for (int j = 0; j < kVectors; ++j) acc[i][j] += bv[j] * scalar;
    }
    a += kRows;
    b += kVectors * kLanes;
  }
#pragma GCC unroll 16
  for (int i = 0; i < kRows; ++i) {
#pragma GCC unroll 4
    for (int j = 0; j < kVectors; ++j) {
      Vector& out = tile[i * kVectors + j];
      out = accumulate ? out + acc[i][j] : acc[i][j];
    }
  }
}

template <class T, int kBytes, int kRows, int kVectors>
constexpr MicroKernel<T> make_micro_kernel() {
  return {kRows, kVectors * kBytes / static_cast<int>(sizeof(T)), &micro_tile<T, kBytes, kRows, kVectors>};
}

}  // namespace
}  // namespace fl_sim::nn
