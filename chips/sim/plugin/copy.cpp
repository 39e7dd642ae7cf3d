// SPDX-License-Identifier: Apache-2.0
// Copies and fills: any element type, any strides.
#include <algorithm>
#include <cstring>
#include <utility>

#include "families.h"
#include "plugin.h"
#include "pointwise.h"

namespace fl_sim {
namespace {

// ---- Moving elements unchanged: by element size only.
template <class T>
void move_strided(char* to, int64_t to_stride, const char* from, int64_t from_stride, int64_t n) {
  auto* dst = reinterpret_cast<T*>(to);
  auto* src = reinterpret_cast<const T*>(from);
  if (to_stride == 1 && from_stride == 1)
    std::memcpy(to, from, static_cast<size_t>(n) * sizeof(T));
  else if (to_stride == 1 && from_stride == 0)
    for (int64_t i = 0; i < n; ++i) dst[i] = *src;
  else
    for (int64_t i = 0; i < n; ++i) dst[i * to_stride] = src[i * from_stride];
}

struct Sixteen {
  uint64_t words[2];
};

// Rows of the innermost dimension of the destination, moved by element size; a 2-dim tile loop serves transposes.
class Mover {
 public:
  Mover(const View& dst, const View& src) : size_(dtype_size(dst.dtype)) {
    for (int32_t d = dst.ndim - 1; d >= 0; --d)
      if (dst.sizes[d] != 1) add(dst.sizes[d], dst.strides[d], src.strides[d]);
    sort();
    merge();
  }

  void run(char* to, const char* from) const {
    if (ndim_ == 0) return row(to, 1, from, 1, 1);
    int64_t index[kMaxDims] = {};
    const bool tiled = ndim_ > 1 && from_[0] != 1 && from_[1] == 1 && to_[0] == 1;
    for (;;) {
      if (tiled)
        transpose(to, from);
      else
        row(to, to_[0], from, from_[0], sizes_[0]);
      int d = tiled ? 2 : 1;
      for (; d < ndim_; ++d) {
        to += to_[d] * size_, from += from_[d] * size_;
        if (++index[d] < sizes_[d]) break;
        to -= to_[d] * sizes_[d] * size_, from -= from_[d] * sizes_[d] * size_;
        index[d] = 0;
      }
      if (d >= ndim_) return;
    }
  }

 private:
  void add(int64_t size, int64_t to, int64_t from) {
    sizes_[ndim_] = size, to_[ndim_] = to, from_[ndim_] = from;
    ++ndim_;
  }
  void sort() {
    for (int i = 1; i < ndim_; ++i)
      for (int j = i; j > 0 && to_[j] < to_[j - 1]; --j) {
        std::swap(sizes_[j], sizes_[j - 1]);
        std::swap(to_[j], to_[j - 1]);
        std::swap(from_[j], from_[j - 1]);
      }
  }
  void merge() {
    int m = 0;
    for (int d = 1; d < ndim_; ++d) {
      if (to_[d] == to_[m] * sizes_[m] && from_[d] == from_[m] * sizes_[m]) {
        sizes_[m] *= sizes_[d];
        continue;
      }
      ++m;
      sizes_[m] = sizes_[d], to_[m] = to_[d], from_[m] = from_[d];
    }
    if (ndim_) ndim_ = m + 1;
  }
  void row(char* to, int64_t to_stride, const char* from, int64_t from_stride, int64_t n) const {
    switch (size_) {
      case 1:
        return move_strided<uint8_t>(to, to_stride, from, from_stride, n);
      case 2:
        return move_strided<uint16_t>(to, to_stride, from, from_stride, n);
      case 4:
        return move_strided<uint32_t>(to, to_stride, from, from_stride, n);
      case 8:
        return move_strided<uint64_t>(to, to_stride, from, from_stride, n);
      default:
        return move_strided<Sixteen>(to, to_stride, from, from_stride, n);
    }
  }
  // Both dimensions in tiles that stay in the first-level cache.
  void transpose(char* to, const char* from) const {
    constexpr int64_t kTile = 32;
    for (int64_t j = 0; j < sizes_[1]; j += kTile)
      for (int64_t i = 0; i < sizes_[0]; i += kTile) {
        const int64_t width = std::min(kTile, sizes_[0] - i);
        for (int64_t k = j; k < std::min(j + kTile, sizes_[1]); ++k)
          row(to + (k * to_[1] + i) * size_, 1, from + (k + i * from_[0]) * size_, from_[0], width);
      }
  }

  int64_t size_;
  int ndim_ = 0;
  int64_t sizes_[kMaxDims], to_[kMaxDims], from_[kMaxDims];
};

// ---- Casts: chunks through the kind that loses nothing the cast would keep.
template <class T>
void identity(int64_t n, void* const* outs, const void* const* ins, const Params&) {
  std::memcpy(outs[0], ins[0], static_cast<size_t>(n) * sizeof(T));
}

Kind cast_kind(fl_dtype src) {
  const Kind kind = kind_of(src);
  return kind == kNoKind ? kF32 : kind;
}

constexpr LoopFn kIdentity[kKinds] = {identity<float>,
                                      identity<double>,
                                      identity<int64_t>,
                                      identity<uint64_t>,
                                      identity<bool>,
                                      identity<std::complex<float>>,
                                      identity<std::complex<double>>};

void copy_body(const Call& call) {
  const View src = call.tensor(1), dst = call.out(0);
  if (dst.numel == 0) return;
  copy_view(dst, src);
}

fl_status run_copy(const fl_call* call) { return launch(call, copy_body); }
fl_status supports_copy(const fl_call* call) {
  if (call->args[1].kind != FL_TENSOR) return unsupported("the source is not a tensor");
  const fl_dtype from = call->args[1].u.tensor->dtype, to = call->outs[0]->dtype;
  if (from != to && (from == FL_DTYPE_OTHER || to == FL_DTYPE_OTHER || from >= kDtypes || to >= kDtypes))
    return unsupported("an element type that this chip can only move");
  return FL_OK;
}

// ---- Fills
void fill_body(const Call& call) { fill_view(call.out(0), call.value(1)); }
void zero_body(const Call& call) {
  fl_value zero = {};
  zero.kind = FL_INTEGER;
  fill_view(call.out(0), zero);
}
fl_status run_fill(const fl_call* call) { return launch(call, fill_body); }
fl_status run_zero(const fl_call* call) { return launch(call, zero_body); }
fl_status supports_fill(const fl_call* call) {
  const fl_dtype dtype = call->outs[0]->dtype;
  return dtype >= 0 && dtype < kDtypes ? FL_OK : unsupported("an element type that this chip can only move");
}

const fl_kernel kRows[] = {
    row("aten::copy", FL_KERNEL_BROADCAST, run_copy, kKnown, supports_copy),
    row("aten::fill_.Scalar", 0, run_fill, kKnown, supports_fill),
    row("aten::zero_", 0, run_zero, kKnown, supports_fill),
};

}  // namespace

void copy_view(const View& dst, const View& src) {
  if (dst.dtype == src.dtype) {
    if (dst.contiguous() && src.contiguous() && dst.numel == src.numel) {
      std::memmove(dst.data, src.data, static_cast<size_t>(dst.numel * dtype_size(dst.dtype)));
      return;
    }
    Mover(dst, src).run(dst.as<char>(), src.as<const char>());
    return;
  }
  const Kind kind = cast_kind(src.dtype);
  Operand operands[2] = {operand_of(dst, kind), operand_of(src, kind)};
  walk(dst.sizes, dst.ndim, dst.numel, operands, 1, 1, kIdentity[kind], Params());
}

void fill_view(const View& dst, const fl_value& value) {
  if (dst.numel == 0) return;
  alignas(16) char number[16], element[16];
  const Kind kind = value.kind == FL_COMPLEX ? kC128 : value.kind == FL_REAL ? kF64 : kI64;
  scalar_to_kind(value, kind, FL_DTYPE_OTHER, number);
  converters().store[kind][dst.dtype](element, 1, number, 1);
  int64_t zeros[kMaxDims] = {};
  View src = dst;
  src.data = element;
  src.strides = zeros;
  src.flags = 0;
  Mover(dst, src).run(dst.as<char>(), element);
}

bool is_data_movement(const fl_kernel& kernel) noexcept {
  return kernel.run == run_copy || kernel.run == run_fill || kernel.run == run_zero;
}

Family copy_family() { return kRows; }

}  // namespace fl_sim
