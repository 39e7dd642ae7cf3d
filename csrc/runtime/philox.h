// SPDX-License-Identifier: Apache-2.0
// Philox-4x32-10 (Salmon et al., 2011) and the host versions of the distributions that fl_plugin.h specifies.
#pragma once

#include <cstdint>

namespace torch_fl::runtime {

struct PhiloxBlock {
  uint32_t word[4];
};
PhiloxBlock philox(uint64_t seed, uint64_t block) noexcept;
/// The bijection itself, with all 128 bits of the counter.
PhiloxBlock philox_counter(uint64_t key, uint64_t counter_low, uint64_t counter_high) noexcept;

/// Blocks of the counter that `numel` elements use: ceil(numel / 4), or ceil(numel / 2) with 64-bit draws.
uint64_t philox_blocks(int64_t numel, bool wide) noexcept;

// Each fills out[0..numel) (row-major index order) exactly as the header says. The float versions serve float32,
// float16 and bfloat16 (rounded by the caller), the double ones float64.
void philox_uniform(float* out, int64_t numel, uint64_t seed, uint64_t offset, double from, double to);
void philox_uniform(double* out, int64_t numel, uint64_t seed, uint64_t offset, double from, double to);
void philox_normal(float* out, int64_t numel, uint64_t seed, uint64_t offset, double mean, double std);
void philox_normal(double* out, int64_t numel, uint64_t seed, uint64_t offset, double mean, double std);
void philox_exponential(float* out, int64_t numel, uint64_t seed, uint64_t offset, double lambda);
void philox_exponential(double* out, int64_t numel, uint64_t seed, uint64_t offset, double lambda);
/// `range` = to - from as unsigned; 0 means the full 2^64.
void philox_integers(int64_t* out, int64_t numel, uint64_t seed, uint64_t offset, int64_t from, uint64_t range);
/// Raw unit32 draws in [0,1): bernoulli and dropout compare them with p.
void philox_unit32(float* out, int64_t numel, uint64_t seed, uint64_t offset);

}  // namespace torch_fl::runtime
