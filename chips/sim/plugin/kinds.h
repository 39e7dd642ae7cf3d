// SPDX-License-Identifier: Apache-2.0
// Kernels compute in a few kinds of number; element types are converted to a kind on the way in and back on the way
// out, a chunk at a time. So one loop per (operator, kind) serves every element type and every stride.
#pragma once

#include <complex>
#include <cstdint>
#include <type_traits>

#include "view.h"

namespace fl_sim {

enum Kind : uint8_t { kF32, kF64, kI64, kU64, kBool, kC64, kC128, kKinds };
constexpr Kind kNoKind = kKinds;
constexpr int kDtypes = 21;
constexpr int64_t kChunk = 512;  ///< elements converted at a time

template <Kind K>
struct KindTypeOf;
template <>
struct KindTypeOf<kF32> {
  using type = float;
};
template <>
struct KindTypeOf<kF64> {
  using type = double;
};
template <>
struct KindTypeOf<kI64> {
  using type = int64_t;
};
template <>
struct KindTypeOf<kU64> {
  using type = uint64_t;
};
template <>
struct KindTypeOf<kBool> {
  using type = bool;
};
template <>
struct KindTypeOf<kC64> {
  using type = std::complex<float>;
};
template <>
struct KindTypeOf<kC128> {
  using type = std::complex<double>;
};
template <Kind K>
using KindType = typename KindTypeOf<K>::type;

/// The kind in which PyTorch's CPU kernels compute with an element type. float8 types only move.
constexpr Kind kind_of(fl_dtype dtype) {
  switch (dtype) {
    case FL_FLOAT16:
    case FL_BFLOAT16:
    case FL_FLOAT32:
      return kF32;
    case FL_FLOAT64:
      return kF64;
    case FL_UINT8:
    case FL_INT8:
    case FL_INT16:
    case FL_INT32:
    case FL_INT64:
    case FL_UINT16:
    case FL_UINT32:
      return kI64;
    case FL_UINT64:
      return kU64;
    case FL_BOOL:
      return kBool;
    case FL_COMPLEX32:
    case FL_COMPLEX64:
      return kC64;
    case FL_COMPLEX128:
      return kC128;
    default:
      return kNoKind;
  }
}

constexpr int64_t kind_size(Kind kind) {
  constexpr int64_t sizes[kKinds] = {4, 8, 8, 8, 1, 8, 16};
  return sizes[kind];
}

/// The element type that is stored exactly as the kind computes.
constexpr fl_dtype native_dtype(Kind kind) {
  constexpr fl_dtype native[kKinds] = {FL_FLOAT32, FL_FLOAT64,   FL_INT64,     FL_UINT64,
                                       FL_BOOL,    FL_COMPLEX64, FL_COMPLEX128};
  return native[kind];
}

/// Strides in elements; the buffer of the kind is dense.
using LoadFn = void (*)(void* buffer, const void* memory, int64_t stride, int64_t n);
using StoreFn = void (*)(void* memory, int64_t stride, const void* buffer, int64_t n);

struct Converters {
  LoadFn load[kKinds][kDtypes];
  StoreFn store[kKinds][kDtypes];
};
/// Of the instruction set in use.
const Converters& converters();

/// Scalar argument -> one number of the kind. `via` other than FL_DTYPE_OTHER rounds it to that element type first.
void scalar_to_kind(const fl_value& value, Kind kind, fl_dtype via, void* number);

/// Parameters of a loop: its scalar arguments, prepared once per call.
struct Params {
  double d[4] = {};
  int64_t i[4] = {};
  std::complex<double> c;
  fl_dtype dtype = FL_FLOAT32;  ///< that is computed with: widths of shifts, rounding
  double* sum = nullptr;        ///< loops without outputs add up here
};

/// The inner loop of a pointwise operator over dense buffers. An output may be exactly an input.
using LoopFn = void (*)(int64_t n, void* const* outs, const void* const* ins, const Params& params);

/// What kind an output has, given the kind computed in.
enum class Out : uint8_t { kSame, kBool, kReal };

struct Pointwise;
class Call;
using PrepareFn = void (*)(const Call& call, Params& params);

/// One pointwise operator: everything its row in the kernel table needs.
struct Pointwise {
  const char* op;
  uint8_t n_in;
  uint8_t n_out;
  int8_t args[4];  ///< schema position of each input
  Kind fixed[4];   ///< kNoKind, or the kind this input always has (a mask: kBool)
  Out out;
  bool round_scalars;   ///< scalars in a tensor's place are rounded to the element type (comparisons)
  bool keeps_dtype;     ///< computes in its first tensor's element type: no promotion
  PrepareFn prepare;    ///< may be null
  LoopFn loop[kKinds];  ///< null: not in this kind
  fl_supports_fn supports;
};

struct PointwiseTable {
  const Pointwise* rows;
  uint64_t count;
};

}  // namespace fl_sim
