// SPDX-License-Identifier: Apache-2.0
// Register tiles for AVX-512: 14 x 32 floats use 28 of the 32 registers. Compiled with -mavx512f.
#include "gemm_micro_tile.h"

namespace fl_sim::nn {

const MicroKernels* avx512_micro_kernels() {
#if defined(__AVX512F__)
  static const MicroKernels kernels{make_micro_kernel<float, 64, 14, 2>(), make_micro_kernel<double, 64, 14, 2>()};
  return &kernels;
#else
  return nullptr;
#endif
}

}  // namespace fl_sim::nn
