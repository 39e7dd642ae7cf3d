// SPDX-License-Identifier: Apache-2.0
// The distributions of fl_plugin.h, section "Random numbers". Every operation's precision is part of the ABI.
#include "philox.h"

#include <cmath>
#include <utility>

#include "torch_fl/fl_random.h"

namespace torch_fl::runtime {
namespace {

constexpr uint32_t kMultiplier0 = 0xD2511F53, kMultiplier1 = 0xCD9E8D57;
constexpr uint32_t kWeyl0 = 0x9E3779B9, kWeyl1 = 0xBB67AE85;
constexpr int kRounds = 10;

uint64_t wide_draw(const PhiloxBlock& block, int64_t element) {
  const auto i = static_cast<size_t>(element % 2) * 2;
  return static_cast<uint64_t>(block.word[i]) | static_cast<uint64_t>(block.word[i + 1]) << 32;
}

/// How one floating-point type draws: elements in a block, and the unit interval from the block's words.
template <typename T>
struct Draw;
template <>
struct Draw<float> {
  static constexpr int64_t kPerBlock = 4;
  static float unit(const PhiloxBlock& block, int64_t i) { return static_cast<float>(block.word[i] >> 8) * 0x1p-24f; }
};
template <>
struct Draw<double> {
  static constexpr int64_t kPerBlock = 2;
  static double unit(const PhiloxBlock& block, int64_t i) {
    return static_cast<double>(wide_draw(block, i) >> 11) * 0x1p-53;
  }
};

/// Calls f(block, index in the block, element) for each element in order.
template <int64_t PerBlock, typename F>
void for_each(int64_t numel, uint64_t seed, uint64_t offset, F f) {
  for (int64_t base = 0; base < numel; base += PerBlock) {
    const PhiloxBlock block = philox(seed, offset + static_cast<uint64_t>(base / PerBlock));
    const int64_t n = numel - base < PerBlock ? numel - base : PerBlock;
    for (int64_t i = 0; i < n; ++i) f(block, i, base + i);
  }
}

template <typename T>
void uniform(T* out, int64_t numel, uint64_t seed, uint64_t offset, double from, double to) {
  const T low = static_cast<T>(from), high = static_cast<T>(to), range = high - low;
  for_each<Draw<T>::kPerBlock>(numel, seed, offset, [=](const PhiloxBlock& block, int64_t i, int64_t element) {
    const T value = low + Draw<T>::unit(block, i) * range;
    out[element] = value >= high ? low : value;
  });
}

template <typename T>
std::pair<T, T> box_muller(T unit1, T unit2) {
  const T r = std::sqrt(T(-2) * random::log_of_unit(T(1) - unit1));
  const auto [cosine, sine] = random::cos_and_sin_of_turn(unit2);
  return {r * cosine, r * sine};
}

template <typename T>
void normal(T* out, int64_t numel, uint64_t seed, uint64_t offset, double mean, double std) {
  const T center = static_cast<T>(mean), scale = static_cast<T>(std);
  for_each<Draw<T>::kPerBlock>(numel, seed, offset, [=](const PhiloxBlock& block, int64_t i, int64_t element) {
    if (i % 2 != 0) return;  // done with its partner
    const auto [even, odd] = box_muller(Draw<T>::unit(block, i), Draw<T>::unit(block, i + 1));
    out[element] = center + scale * even;
    if (element + 1 < numel) out[element + 1] = center + scale * odd;
  });
}

template <typename T>
void exponential(T* out, int64_t numel, uint64_t seed, uint64_t offset, double lambda) {
  const T rate = static_cast<T>(lambda);
  for_each<Draw<T>::kPerBlock>(numel, seed, offset, [=](const PhiloxBlock& block, int64_t i, int64_t element) {
    out[element] = -random::log_of_unit(T(1) - Draw<T>::unit(block, i)) / rate;
  });
}

}  // namespace

PhiloxBlock philox_counter(uint64_t key, uint64_t counter_low, uint64_t counter_high) noexcept {
  uint32_t key0 = static_cast<uint32_t>(key), key1 = static_cast<uint32_t>(key >> 32);
  uint32_t c0 = static_cast<uint32_t>(counter_low), c1 = static_cast<uint32_t>(counter_low >> 32);
  uint32_t c2 = static_cast<uint32_t>(counter_high), c3 = static_cast<uint32_t>(counter_high >> 32);
  for (int round = 0; round < kRounds; ++round) {
    const uint64_t product0 = static_cast<uint64_t>(kMultiplier0) * c0;
    const uint64_t product1 = static_cast<uint64_t>(kMultiplier1) * c2;
    const uint32_t next0 = static_cast<uint32_t>(product1 >> 32) ^ c1 ^ key0;
    const uint32_t next2 = static_cast<uint32_t>(product0 >> 32) ^ c3 ^ key1;
    c1 = static_cast<uint32_t>(product1);
    c3 = static_cast<uint32_t>(product0);
    c0 = next0;
    c2 = next2;
    key0 += kWeyl0;
    key1 += kWeyl1;
  }
  return {{c0, c1, c2, c3}};
}

PhiloxBlock philox(uint64_t seed, uint64_t block) noexcept { return philox_counter(seed, block, 0); }

uint64_t philox_blocks(int64_t numel, bool wide) noexcept {
  const uint64_t n = numel > 0 ? static_cast<uint64_t>(numel) : 0;
  return wide ? (n + 1) / 2 : (n + 3) / 4;
}

void philox_uniform(float* out, int64_t numel, uint64_t seed, uint64_t offset, double from, double to) {
  uniform(out, numel, seed, offset, from, to);
}
void philox_uniform(double* out, int64_t numel, uint64_t seed, uint64_t offset, double from, double to) {
  uniform(out, numel, seed, offset, from, to);
}
void philox_normal(float* out, int64_t numel, uint64_t seed, uint64_t offset, double mean, double std) {
  normal(out, numel, seed, offset, mean, std);
}
void philox_normal(double* out, int64_t numel, uint64_t seed, uint64_t offset, double mean, double std) {
  normal(out, numel, seed, offset, mean, std);
}
void philox_exponential(float* out, int64_t numel, uint64_t seed, uint64_t offset, double lambda) {
  exponential(out, numel, seed, offset, lambda);
}
void philox_exponential(double* out, int64_t numel, uint64_t seed, uint64_t offset, double lambda) {
  exponential(out, numel, seed, offset, lambda);
}

void philox_integers(int64_t* out, int64_t numel, uint64_t seed, uint64_t offset, int64_t from, uint64_t range) {
  const auto base = static_cast<uint64_t>(from);
  if (range != 0 && range <= UINT64_C(1) << 32) {
    for_each<4>(numel, seed, offset, [=](const PhiloxBlock& block, int64_t i, int64_t element) {
      out[element] = static_cast<int64_t>(base + block.word[i] % range);
    });
    return;
  }
  for_each<2>(numel, seed, offset, [=](const PhiloxBlock& block, int64_t i, int64_t element) {
    const uint64_t draw = wide_draw(block, i);
    out[element] = static_cast<int64_t>(base + (range == 0 ? draw : draw % range));
  });
}

void philox_unit32(float* out, int64_t numel, uint64_t seed, uint64_t offset) {
  for_each<4>(numel, seed, offset, [=](const PhiloxBlock& block, int64_t i, int64_t element) {
    out[element] = Draw<float>::unit(block, i);
  });
}

}  // namespace torch_fl::runtime
