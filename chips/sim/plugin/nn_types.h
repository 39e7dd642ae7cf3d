// SPDX-License-Identifier: Apache-2.0
// Element types of the neural-network kernels: how each is stored and in which type its sums are formed.
#pragma once

#include <bit>
#include <cstdint>
#include <limits>
#include <type_traits>

#include "launch.h"

namespace fl_sim::nn {

struct BFloat16 {
  uint16_t bits = 0;
  BFloat16() = default;
  explicit BFloat16(float value) {
    const uint32_t word = std::bit_cast<uint32_t>(value);
    const uint32_t rounded = (word + 0x7fff + ((word >> 16) & 1)) >> 16;
    bits = static_cast<uint16_t>(value != value ? 0x7fc0 : rounded);
  }
  operator float() const { return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16); }
};

// IEEE binary16; both conversions are branch-free so that loops over them vectorise.
struct Half {
  uint16_t bits = 0;
  Half() = default;
  explicit Half(float value) : bits(from_float(value)) {}
  operator float() const { return to_float(bits); }

 private:
  // Subnormals and the exponent's bias are handled by scaling with a power of two; infinity and NaN by a second one.
  static float to_float(uint16_t bits) {
    const uint32_t magnitude = static_cast<uint32_t>(bits & 0x7fff) << 13;
    const float scaled = std::bit_cast<float>(magnitude) * 0x1p112f;
    const uint32_t special = magnitude >= (0x7c00u << 13) ? 0x7f800000u | magnitude : std::bit_cast<uint32_t>(scaled);
    return std::bit_cast<float>(special | static_cast<uint32_t>(bits & 0x8000) << 16);
  }
  static uint16_t from_float(float value) {
    const uint32_t word = std::bit_cast<uint32_t>(value);
    const uint32_t magnitude = word & 0x7fffffffu;
    const uint32_t normal = (magnitude - 0x38000000u + 0xfff + ((magnitude >> 13) & 1)) >> 13;
    // Adding 0.5 aligns the last bit of a subnormal result with that of the sum, which rounds to nearest even.
    const uint32_t subnormal =
        std::bit_cast<uint32_t>(std::bit_cast<float>(magnitude) + 0.5f) - std::bit_cast<uint32_t>(0.5f);
    uint32_t result = magnitude < 0x38800000u ? subnormal : normal;
    result = magnitude >= 0x47800000u ? 0x7c00u : result;  // 65536 and above
    result = magnitude > 0x7f800000u ? 0x7e00u : result;
    return static_cast<uint16_t>(result | (word >> 16 & 0x8000u));
  }
};

// Sums of T are formed in Acc<T>: float for the 16-bit types, the element type for the others; integers wrap.
template <class T>
struct AccOf {
  using type = std::conditional_t<std::is_integral_v<T>, uint64_t, T>;
};
template <>
struct AccOf<Half> {
  using type = float;
};
template <>
struct AccOf<BFloat16> {
  using type = float;
};
template <class T>
using Acc = typename AccOf<T>::type;

template <class T>
bool is_nan(T value) {
  if constexpr (std::is_integral_v<T>) {
    return false;
  } else if constexpr (std::is_same_v<T, double>) {
    return value != value;
  } else {
    return static_cast<float>(value) != static_cast<float>(value);
  }
}

[[noreturn]] inline void bad_dtype(fl_dtype dtype) {
  throw KernelError("element type " + std::to_string(dtype) + " reached a kernel that does not list it");
}

// Calls body(T{}) with the C++ type of a floating-point element type.
template <class Body>
void dispatch_reals(fl_dtype dtype, const Body& body) {
  switch (dtype) {
    case FL_FLOAT32:
      return body(float{});
    case FL_FLOAT64:
      return body(double{});
    case FL_FLOAT16:
      return body(Half{});
    case FL_BFLOAT16:
      return body(BFloat16{});
    default:
      bad_dtype(dtype);
  }
}

template <class Body>
void dispatch_numbers(fl_dtype dtype, const Body& body) {
  switch (dtype) {
    case FL_UINT8:
      return body(uint8_t{});
    case FL_INT8:
      return body(int8_t{});
    case FL_INT16:
      return body(int16_t{});
    case FL_INT32:
      return body(int32_t{});
    case FL_INT64:
      return body(int64_t{});
    default:
      return dispatch_reals(dtype, body);
  }
}

// Kernels that only move elements work on unsigned words of the element's size.
struct Word16 {
  uint64_t words[2];
};
template <class Body>
void dispatch_bytes(int64_t element_size, const Body& body) {
  switch (element_size) {
    case 1:
      return body(uint8_t{});
    case 2:
      return body(uint16_t{});
    case 4:
      return body(uint32_t{});
    case 8:
      return body(uint64_t{});
    default:
      return body(Word16{});
  }
}

}  // namespace fl_sim::nn
