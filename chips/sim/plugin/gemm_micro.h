// SPDX-License-Identifier: Apache-2.0
// The register-tile kernels of the matrix product, one set per instruction set, chosen once at run time.
#pragma once

#include <cstdint>

namespace fl_sim::nn {

// Computes the tile c[mr][nr] (+)= sum over k of a[k][mr] * b[k][nr]. The panels a, b and the tile c are dense and
// aligned to 64 bytes; `accumulate` false overwrites the tile.
template <class T>
struct MicroKernel {
  int mr = 0;
  int nr = 0;
  void (*run)(int64_t k, const T* a, const T* b, T* c, bool accumulate) = nullptr;
};

struct MicroKernels {
  MicroKernel<float> f32;
  MicroKernel<double> f64;
};

// One function per file: each file is compiled for its instruction set. Null when the compiler did not offer it.
const MicroKernels* portable_micro_kernels();
const MicroKernels* avx2_micro_kernels();
const MicroKernels* avx512_micro_kernels();

// The best set that this processor runs.
const MicroKernels& micro_kernels();

template <class T>
const MicroKernel<T>& micro_kernel();
template <>
inline const MicroKernel<float>& micro_kernel<float>() {
  return micro_kernels().f32;
}
template <>
inline const MicroKernel<double>& micro_kernel<double>() {
  return micro_kernels().f64;
}

}  // namespace fl_sim::nn
