// SPDX-License-Identifier: Apache-2.0
// Operators whose output is as long as there are elements that count: nonzero, masked_select. The caller has counted.
#include <algorithm>
#include <limits>

#include "nn_dense.h"
#include "nn_families.h"

namespace fl_sim::nn {
namespace {

// Whether a value of this width differs from zero. A floating-point one has two zeros, which differ in the top bit.
template <class T>
struct NotZero {
  T mask;
  explicit NotZero(bool has_sign) : mask(static_cast<T>(std::numeric_limits<T>::max() >> (has_sign ? 1 : 0))) {}
  bool operator()(T value) const { return (value & mask) != 0; }
};

template <class F>
void dispatch_unsigned(int64_t bytes, const F& f) {
  switch (bytes) {
    case 1:
      return f(uint8_t{});
    case 2:
      return f(uint16_t{});
    case 4:
      return f(uint32_t{});
    default:
      return f(uint64_t{});
  }
}

// found(position in row-major order) for each element of `self` that is not zero. A complex number is two real ones.
template <class Found>
void each_nonzero(const View& self, const Found& found) {
  const bool pair = is_complex(self.dtype);
  Walk<1> walk;
  for (int d = 0; d < self.ndim; ++d) walk.add_dim(self.sizes[d], {self.strides[d]});
  dispatch_unsigned(dtype_size(self.dtype) / (pair ? 2 : 1), [&](auto zero) {
    using T = decltype(zero);
    const NotZero<T> not_zero(pair || is_real_float(self.dtype));
    const int parts = pair ? 2 : 1;
    int64_t position = 0;
    walk.rows([&](const auto& at, int64_t length, const auto& step) {
      const T* from = self.as<const T>() + at[0] * parts;
      for (int64_t i = 0; i < length; ++i, ++position) {
        const T* element = from + i * step[0] * parts;
        if (not_zero(element[0]) || (pair && not_zero(element[1]))) found(position);
      }
    });
  });
}

// What other work writes to the input between the counting and this must not lead outside the output, nor leave rows
// of it as they were found.
void nonzero_body(const Call& call) {
  const View self = call.tensor(0), out = call.out(0);
  if (self.numel == 0 || out.numel == 0) return;
  int64_t row = 0;
  const auto at = [&](int64_t d) -> int64_t& { return out.as<int64_t>()[row * out.strides[0] + d * out.strides[1]]; };
  each_nonzero(self, [&](int64_t position) {
    if (row == out.sizes[0]) return;
    for (int d = self.ndim - 1; d >= 0; --d) {
      at(d) = position % self.sizes[d];
      position /= self.sizes[d];
    }
    ++row;
  });
  for (; row < out.sizes[0]; ++row) {
    for (int d = 0; d < self.ndim; ++d) at(d) = 0;
  }
}

// Along dimension d of a space of `ndim` dimensions into which the view is broadcast: its size (1 where it has none)
// and its stride.
int64_t size_in(const View& view, int d, int ndim) {
  const int own = d - (ndim - view.ndim);
  return own < 0 ? 1 : view.sizes[own];
}
int64_t stride_in(const View& view, int d, int ndim) {
  const int own = d - (ndim - view.ndim);
  return own < 0 || view.sizes[own] == 1 ? 0 : view.strides[own];
}

void masked_select_body(const Call& call) {
  const View self = call.tensor(0), mask = call.tensor(1), out = call.out(0);
  if (out.numel == 0) return;
  const int ndim = std::max(self.ndim, mask.ndim);
  Walk<2> walk;
  for (int d = 0; d < ndim; ++d) {
    const int64_t a = size_in(self, d, ndim), b = size_in(mask, d, ndim);
    walk.add_dim(a == 1 ? b : a, {stride_in(self, d, ndim), stride_in(mask, d, ndim)});
  }
  dispatch_bytes(dtype_size(self.dtype), [&](auto zero) {
    using T = decltype(zero);
    T* to = out.as<T>();
    T* const end = to + out.numel;
    walk.rows([&](const auto& at, int64_t length, const auto& step) {
      const T* from = self.as<const T>() + at[0];
      const bool* chosen = mask.as<const bool>() + at[1];
      for (int64_t i = 0; i < length; ++i) {
        if (chosen[i * step[1]] && to != end) *to++ = from[i * step[0]];
      }
    });
    std::fill(to, end, T{});
  });
}

template <Body kBody>
fl_status run(const fl_call* call) {
  return launch(call, kBody);
}

fl_status supports_mask(const fl_call* call) {
  return call->args[1].u.tensor->dtype == FL_BOOL ? FL_OK : unsupported("the mask is not bool");
}

constexpr uint64_t kCounted =
    kReals | kInts | kWideUnsigned | kBoolBit | kComplexes | FL_DTYPE_BIT(FL_COMPLEX32);  // float8 has odd zeros
constexpr fl_kernel kRows[] = {
    row("aten::nonzero", 0, run<nonzero_body>, kCounted),
    row("aten::masked_select", FL_KERNEL_CONTIGUOUS_OUTPUTS, run<masked_select_body>, kMovable, supports_mask),
};

}  // namespace
}  // namespace fl_sim::nn

fl_sim::Family fl_sim::select_family() { return nn::kRows; }
