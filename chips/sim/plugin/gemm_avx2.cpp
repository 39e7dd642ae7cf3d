// SPDX-License-Identifier: Apache-2.0
// Register tiles for AVX2 with FMA: 6 x 16 floats use 12 of the 16 registers. Compiled with -mavx2 -mfma.
#include "gemm_micro_tile.h"

namespace fl_sim::nn {

const MicroKernels* avx2_micro_kernels() {
#if defined(__AVX2__) && defined(__FMA__)
  static const MicroKernels kernels{make_micro_kernel<float, 32, 6, 2>(), make_micro_kernel<double, 32, 6, 2>()};
  return &kernels;
#else
  return nullptr;
#endif
}

}  // namespace fl_sim::nn
