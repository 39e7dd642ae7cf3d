// SPDX-License-Identifier: Apache-2.0
// Narrow floating-point types in memory, and their exact conversions (to nearest, ties to even).
// Included only by files compiled per instruction set: everything sits in their namespace.
#pragma once

#include <bit>
#include <cmath>
#include <complex>
#include <cstdint>

#if defined(__F16C__)
#include <immintrin.h>
#endif

namespace fl_sim::FL_SIM_ISA {

struct Bool {
  uint8_t bits;
  bool unpack() const { return bits != 0; }
};

inline float half_to_float(uint16_t h) {
  const uint32_t sign = static_cast<uint32_t>(h & 0x8000) << 16, rest = h & 0x7FFF;
  if (rest >= 0x7C00)
    return std::bit_cast<float>(sign | 0x7F800000u | (rest & 0x3FF) << 13 | (rest > 0x7C00 ? 0x400000u : 0u));
  if (rest < 0x400) return std::bit_cast<float>(std::bit_cast<uint32_t>(static_cast<float>(rest) * 0x1p-24f) | sign);
  return std::bit_cast<float>(sign | ((rest << 13) + 0x38000000u));
}

inline uint16_t float_to_half(float x) {
  const uint32_t bits = std::bit_cast<uint32_t>(x);
  const uint16_t sign = static_cast<uint16_t>(bits >> 16 & 0x8000);
  const uint32_t rest = bits & 0x7FFFFFFF;
  if (rest > 0x7F800000) return static_cast<uint16_t>(sign | 0x7E00);
  if (rest >= 0x477FF000) return static_cast<uint16_t>(sign | 0x7C00);  // rounds beyond 65504
  if (rest < 0x38800000) {  // subnormal or zero: the addition rounds to a multiple of 2^-24
    const float shifted = std::bit_cast<float>(rest) + 0.5f;
    return static_cast<uint16_t>(sign | (std::bit_cast<uint32_t>(shifted) - 0x3F000000u));
  }
  return static_cast<uint16_t>(sign | ((rest - 0x38000000u + 0xFFF + (rest >> 13 & 1)) >> 13));
}

struct Half {
  uint16_t bits;
  float unpack() const { return half_to_float(bits); }
  static Half pack(float x) { return {float_to_half(x)}; }
};

struct BFloat16 {
  uint16_t bits;
  float unpack() const { return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16); }
  static BFloat16 pack(float x) {
    const uint32_t b = std::bit_cast<uint32_t>(x);
    const uint32_t rounded = (b + 0x7FFF + (b >> 16 & 1)) >> 16;
    return {static_cast<uint16_t>((b & 0x7FFFFFFF) > 0x7F800000 ? 0x7FC0 : rounded)};
  }
};

struct ComplexHalf {
  uint16_t re, im;
  std::complex<float> unpack() const { return {half_to_float(re), half_to_float(im)}; }
  static ComplexHalf from(std::complex<float> z) { return {float_to_half(z.real()), float_to_half(z.imag())}; }
};

/// Overflow gives infinity where there is one, the largest number in E4M3FN, NaN in the FNUZ formats: as PyTorch casts.
/// OCP and "FNUZ" (no infinity, no negative zero, bias one higher) eight-bit formats.
template <int E, int M, bool Fnuz>
struct Float8 {
  uint8_t bits;
  static constexpr int kBias = (1 << (E - 1)) - (Fnuz ? 0 : 1);
  static constexpr bool kHasInfinity = E == 5 && !Fnuz;
  static constexpr uint8_t kNan = Fnuz ? 0x80 : 0x7F;
  // The largest finite magnitude as bits.
  static constexpr uint8_t kMax = kHasInfinity ? 0x7B : (Fnuz ? 0x7F : 0x7E);

  float unpack() const {
    const int rest = bits & 0x7F;
    if (Fnuz ? bits == kNan : (kHasInfinity ? rest > 0x7C : rest == 0x7F)) return NAN;
    float magnitude;
    if (kHasInfinity && rest == 0x7C)
      magnitude = INFINITY;
    else if (rest < (1 << M))
      magnitude = std::ldexp(static_cast<float>(rest), 1 - kBias - M);
    else
      magnitude = std::ldexp(static_cast<float>((rest & ((1 << M) - 1)) | 1 << M), (rest >> M) - kBias - M);
    return bits & 0x80 ? -magnitude : magnitude;
  }
  static Float8 pack(float x) {
    const uint8_t sign = std::signbit(x) ? 0x80 : 0;
    if (std::isnan(x)) return {static_cast<uint8_t>(Fnuz ? kNan : kNan | sign)};
    const float magnitude = std::fabs(x);
    const int low = 1 - kBias;
    int exponent = low;
    if (magnitude != 0 && !std::isinf(x)) std::frexp(magnitude, &exponent);
    const int quantum = (exponent - 1 < low ? low : exponent - 1) - M;  // spacing of the format around x
    const float steps = std::isinf(x) ? 1e9f : std::nearbyint(std::ldexp(magnitude, -quantum));
    // Steps of the quantum -> bits; a carry into the next binade falls out right.
    const int64_t coded = static_cast<int64_t>(steps) + (static_cast<int64_t>(quantum - (low - M)) << M);
    if (std::isinf(x) || coded > kMax) return {static_cast<uint8_t>(Fnuz ? kNan : (kHasInfinity ? 0x7C : kMax) | sign)};
    if (Fnuz && coded == 0) return {0};
    return {static_cast<uint8_t>(coded | sign)};
  }
};

/// A power of two and nothing else.
struct Float8E8M0 {
  uint8_t bits;
  float unpack() const { return bits == 0xFF ? NAN : std::ldexp(1.0f, bits - 127); }
  static Float8E8M0 pack(float x) {
    const uint32_t b = std::bit_cast<uint32_t>(x);
    uint32_t exponent = b >> 23 & 0xFF;
    if (exponent == 0xFF) return {0xFF};
    const bool guard = b & 0x400000, round = b & 0x200000, sticky = b & 0x1FFFFF, lsb = exponent > 0;
    if (guard && (lsb || round || sticky)) ++exponent;
    return {static_cast<uint8_t>(exponent)};
  }
};

/// Whole vectors of half numbers; how many elements were done.
inline int64_t load_half_vectors([[maybe_unused]] float* to, [[maybe_unused]] const Half* from,
                                 [[maybe_unused]] int64_t n) {
  int64_t i = 0;
#if defined(__F16C__)
  for (; i + 8 <= n; i += 8)
    _mm256_storeu_ps(to + i, _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from + i))));
#endif
  return i;
}
inline int64_t store_half_vectors([[maybe_unused]] Half* to, [[maybe_unused]] const float* from,
                                  [[maybe_unused]] int64_t n) {
  int64_t i = 0;
#if defined(__F16C__)
  for (; i + 8 <= n; i += 8)
    _mm_storeu_si128(reinterpret_cast<__m128i*>(to + i),
                     _mm256_cvtps_ph(_mm256_loadu_ps(from + i), _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
#endif
  return i;
}

}  // namespace fl_sim::FL_SIM_ISA
