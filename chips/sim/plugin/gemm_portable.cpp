// SPDX-License-Identifier: Apache-2.0
// Register tiles for any processor (16-byte vectors), and the choice among the instruction sets.
#include "gemm_micro_tile.h"

namespace fl_sim::nn {

const MicroKernels* portable_micro_kernels() {
  static const MicroKernels kernels{make_micro_kernel<float, 16, 4, 2>(), make_micro_kernel<double, 16, 4, 2>()};
  return &kernels;
}

namespace {

const MicroKernels* choose_micro_kernels() {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_cpu_init();
  if (__builtin_cpu_supports("avx512f") && avx512_micro_kernels()) return avx512_micro_kernels();
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && avx2_micro_kernels()) {
    return avx2_micro_kernels();
  }
#endif
  return portable_micro_kernels();
}

}  // namespace

const MicroKernels& micro_kernels() {
  static const MicroKernels* const chosen = choose_micro_kernels();
  return *chosen;
}

}  // namespace fl_sim::nn
