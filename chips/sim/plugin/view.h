// SPDX-License-Identifier: Apache-2.0
// What kernels see of a tensor: a borrowed view with a real pointer, and the element types' host side.
#pragma once

#include <cstddef>
#include <cstdint>

#include "torch_fl/fl_plugin.h"

namespace fl_sim {

/// Borrowed; valid while the body runs. `data` points at element [0,...,0]; null when the tensor is empty.
struct View {
  void* data = nullptr;
  fl_dtype dtype = FL_FLOAT32;
  int32_t ndim = 0;
  const int64_t* sizes = nullptr;
  const int64_t* strides = nullptr;  ///< in elements, >= 0; 0 where broadcast
  int64_t numel = 0;
  uint32_t flags = 0;  ///< FL_TENSOR_*

  bool contiguous() const { return (flags & FL_TENSOR_CONTIGUOUS) != 0; }
  bool channels_last() const { return (flags & FL_TENSOR_CHANNELS_LAST) != 0; }
  template <class T>
  T* as() const {
    return static_cast<T*>(data);
  }
};

constexpr int64_t dtype_size(fl_dtype dtype) {
  switch (dtype) {
    case FL_INT16:
    case FL_UINT16:
    case FL_FLOAT16:
    case FL_BFLOAT16:
      return 2;
    case FL_INT32:
    case FL_UINT32:
    case FL_FLOAT32:
    case FL_COMPLEX32:
      return 4;
    case FL_INT64:
    case FL_UINT64:
    case FL_FLOAT64:
    case FL_COMPLEX64:
      return 8;
    case FL_COMPLEX128:
      return 16;
    default:
      return 1;
  }
}

constexpr bool is_complex(fl_dtype d) { return d == FL_COMPLEX32 || d == FL_COMPLEX64 || d == FL_COMPLEX128; }
constexpr bool is_float8(fl_dtype d) { return d >= FL_FLOAT8_E5M2 && d <= FL_FLOAT8_E8M0FNU; }
constexpr bool is_real_float(fl_dtype d) {
  return d == FL_FLOAT16 || d == FL_FLOAT32 || d == FL_FLOAT64 || d == FL_BFLOAT16 || is_float8(d);
}
constexpr bool is_integer(fl_dtype d) {  // without bool
  return d <= FL_INT64 || d == FL_UINT16 || d == FL_UINT32 || d == FL_UINT64;
}

/// Masks for fl_kernel::dtypes.
constexpr uint64_t kReals =
    FL_DTYPE_BIT(FL_FLOAT32) | FL_DTYPE_BIT(FL_FLOAT64) | FL_DTYPE_BIT(FL_FLOAT16) | FL_DTYPE_BIT(FL_BFLOAT16);
constexpr uint64_t kInts = FL_DTYPE_BIT(FL_UINT8) | FL_DTYPE_BIT(FL_INT8) | FL_DTYPE_BIT(FL_INT16) |
                           FL_DTYPE_BIT(FL_INT32) | FL_DTYPE_BIT(FL_INT64);
constexpr uint64_t kWideUnsigned = FL_DTYPE_BIT(FL_UINT16) | FL_DTYPE_BIT(FL_UINT32) | FL_DTYPE_BIT(FL_UINT64);
constexpr uint64_t kBoolBit = FL_DTYPE_BIT(FL_BOOL);
constexpr uint64_t kComplexes = FL_DTYPE_BIT(FL_COMPLEX64) | FL_DTYPE_BIT(FL_COMPLEX128);

/// Bytes from the view's first to one past its last element, in memory.
inline uint64_t extent_bytes(const fl_tensor& t) {
  if (t.numel == 0) return 0;
  int64_t last = 0;
  for (int32_t d = 0; d < t.ndim; ++d) last += (t.sizes[d] - 1) * t.strides[d];
  return static_cast<uint64_t>((last + 1) * dtype_size(t.dtype));
}

}  // namespace fl_sim
