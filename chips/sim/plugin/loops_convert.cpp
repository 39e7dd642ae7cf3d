// SPDX-License-Identifier: Apache-2.0
// Element types <-> kinds. Compiled once per instruction set (FL_SIM_ISA).
#include <array>
#include <cstring>

#include "half.h"
#include "isa.h"
#include "kinds.h"

namespace fl_sim::FL_SIM_ISA {
namespace {

template <int D>
struct Element;
template <>
struct Element<FL_UINT8> {
  using type = uint8_t;
};
template <>
struct Element<FL_INT8> {
  using type = int8_t;
};
template <>
struct Element<FL_INT16> {
  using type = int16_t;
};
template <>
struct Element<FL_INT32> {
  using type = int32_t;
};
template <>
struct Element<FL_INT64> {
  using type = int64_t;
};
template <>
struct Element<FL_FLOAT16> {
  using type = Half;
};
template <>
struct Element<FL_FLOAT32> {
  using type = float;
};
template <>
struct Element<FL_FLOAT64> {
  using type = double;
};
template <>
struct Element<FL_COMPLEX32> {
  using type = ComplexHalf;
};
template <>
struct Element<FL_COMPLEX64> {
  using type = std::complex<float>;
};
template <>
struct Element<FL_COMPLEX128> {
  using type = std::complex<double>;
};
template <>
struct Element<FL_BOOL> {
  using type = Bool;
};
template <>
struct Element<FL_BFLOAT16> {
  using type = BFloat16;
};
template <>
struct Element<FL_UINT16> {
  using type = uint16_t;
};
template <>
struct Element<FL_UINT32> {
  using type = uint32_t;
};
template <>
struct Element<FL_UINT64> {
  using type = uint64_t;
};
template <>
struct Element<FL_FLOAT8_E5M2> {
  using type = Float8<5, 2, false>;
};
template <>
struct Element<FL_FLOAT8_E4M3FN> {
  using type = Float8<4, 3, false>;
};
template <>
struct Element<FL_FLOAT8_E5M2FNUZ> {
  using type = Float8<5, 2, true>;
};
template <>
struct Element<FL_FLOAT8_E4M3FNUZ> {
  using type = Float8<4, 3, true>;
};
template <>
struct Element<FL_FLOAT8_E8M0FNU> {
  using type = Float8E8M0;
};

// Numbers of memory as plain C++ numbers.
template <class E>
inline auto unpack(E e) {
  if constexpr (requires { e.unpack(); })
    return e.unpack();
  else
    return e;
}

template <class T>
constexpr bool kIsComplex = false;
template <class T>
constexpr bool kIsComplex<std::complex<T>> = true;

// As the CPU casts: complex -> real drops the imaginary part, floating -> integer truncates by way of int64.
template <class To, class From>
inline To number_cast(From x) {
  if constexpr (std::is_same_v<To, From>) {
    return x;
  } else if constexpr (kIsComplex<From>) {
    if constexpr (kIsComplex<To>)
      return To(static_cast<typename To::value_type>(x.real()), static_cast<typename To::value_type>(x.imag()));
    else if constexpr (std::is_same_v<To, bool>)
      return x.real() != 0 || x.imag() != 0;
    else
      return number_cast<To>(x.real());
  } else if constexpr (kIsComplex<To>) {
    return To(static_cast<typename To::value_type>(x), 0);
  } else if constexpr (std::is_same_v<To, bool>) {
    return x != 0;
  } else if constexpr (std::is_floating_point_v<From> && std::is_integral_v<To> && sizeof(To) < 8) {
    return static_cast<To>(static_cast<int64_t>(x));
  } else {
    return static_cast<To>(x);
  }
}

template <class E, class From>
inline E pack(From x) {
  if constexpr (requires { E::pack(1.0f); })
    return E::pack(number_cast<float>(x));
  else if constexpr (std::is_same_v<E, ComplexHalf>)
    return ComplexHalf::from(number_cast<std::complex<float>>(x));
  else if constexpr (std::is_same_v<E, Bool>)
    return Bool{static_cast<uint8_t>(number_cast<bool>(x))};
  else
    return number_cast<E>(x);
}

template <class K, class E>
void load(void* buffer, const void* memory, int64_t stride, int64_t n) {
  auto* to = static_cast<K*>(buffer);
  auto* from = static_cast<const E*>(memory);
  if (stride == 1) {
    if constexpr (std::is_same_v<K, E>) {
      std::memcpy(buffer, memory, static_cast<size_t>(n) * sizeof(K));
    } else {
      int64_t i = 0;
      if constexpr (std::is_same_v<K, float> && std::is_same_v<E, Half>) i = load_half_vectors(to, from, n);
#pragma GCC ivdep
      for (; i < n; ++i) to[i] = number_cast<K>(unpack(from[i]));
    }
  } else if (stride == 0) {
    const K x = number_cast<K>(unpack(*from));
    for (int64_t i = 0; i < n; ++i) to[i] = x;
  } else {
    for (int64_t i = 0; i < n; ++i) to[i] = number_cast<K>(unpack(from[i * stride]));
  }
}

template <class K, class E>
void store(void* memory, int64_t stride, const void* buffer, int64_t n) {
  auto* to = static_cast<E*>(memory);
  auto* from = static_cast<const K*>(buffer);
  if (stride == 1) {
    if constexpr (std::is_same_v<K, E>) {
      std::memcpy(memory, buffer, static_cast<size_t>(n) * sizeof(K));
    } else {
      int64_t i = 0;
      if constexpr (std::is_same_v<K, float> && std::is_same_v<E, Half>) i = store_half_vectors(to, from, n);
#pragma GCC ivdep
      for (; i < n; ++i) to[i] = pack<E>(from[i]);
    }
  } else {
    for (int64_t i = 0; i < n; ++i) to[i * stride] = pack<E>(from[i]);
  }
}

template <int K, int D>
void add_pair(Converters& table) {
  using Number = KindType<static_cast<Kind>(K)>;
  using E = typename Element<D>::type;
  table.load[K][D] = load<Number, E>;
  table.store[K][D] = store<Number, E>;
}

template <int K, int... D>
void add_kind(Converters& table, std::integer_sequence<int, D...>) {
  (add_pair<K, D>(table), ...);
}

template <int... K>
Converters make(std::integer_sequence<int, K...>) {
  Converters table;
  (add_kind<K>(table, std::make_integer_sequence<int, kDtypes>()), ...);
  return table;
}

}  // namespace

const Converters& converter_table() {
  static const Converters table = make(std::make_integer_sequence<int, kKinds>());
  return table;
}

}  // namespace fl_sim::FL_SIM_ISA
