// SPDX-License-Identifier: Apache-2.0
// aten::cat: tensors of any strides, and of mixed element types, which are cast to the result's.
#include "nn_dense.h"
#include "nn_families.h"

namespace fl_sim::nn {
namespace {

// An empty tensor of one dimension is skipped whatever the others look like (an old habit that programs rely on).
bool skipped(const fl_tensor& t) { return t.ndim == 1 && t.sizes[0] == 0; }

template <class To, class From>
To cast(From value) {
  if constexpr (std::is_arithmetic_v<From> && std::is_arithmetic_v<To>) {
    return static_cast<To>(value);
  } else {
    return static_cast<To>(static_cast<float>(value));
  }
}

// `to`: the part of the result that belongs to `from`.
template <class From, class To>
void copy_cast(const View& from, const View& to, To* target) {
  Walk<2> walk;
  for (int d = 0; d < from.ndim; ++d) walk.add_dim(from.sizes[d], {from.strides[d], to.strides[d]});
  walk.rows([&](const auto& offset, int64_t length, const auto& step) {
    const From* source = from.as<const From>() + offset[0];
    To* out = target + offset[1];
    if constexpr (std::is_same_v<From, To>) {
      if (step[0] == 1 && step[1] == 1) {
        std::copy_n(source, length, out);
        return;
      }
    }
    for (int64_t i = 0; i < length; ++i) {
      if constexpr (std::is_same_v<From, To>) {
        out[i * step[1]] = source[i * step[0]];
      } else {
        out[i * step[1]] = cast<To>(source[i * step[0]]);
      }
    }
  });
}

// Bool counts as a byte of 0 or 1.
fl_dtype storage_dtype(fl_dtype dtype) { return dtype == FL_BOOL ? FL_UINT8 : dtype; }

void place(const View& from, const View& out, int64_t offset) {
  if (from.dtype == out.dtype) {
    dispatch_bytes(dtype_size(out.dtype), [&](auto zero) {
      using T = decltype(zero);
      copy_cast<T, T>(from, out, out.as<T>() + offset);
    });
    return;
  }
  dispatch_numbers(storage_dtype(from.dtype), [&](auto source) {
    dispatch_numbers(out.dtype, [&](auto target) {
      copy_cast<decltype(source), decltype(target)>(from, out, out.as<decltype(target)>() + offset);
    });
  });
}

void cat_body(const Call& call) {
  const View out = call.out(0);
  if (out.numel == 0) return;
  const int64_t dim = wrap_dim(call.integer(1), out.ndim);
  int64_t at = 0;
  for (uint32_t j = 0; j < call.list_size(0); ++j) {
    const View from = call.list_tensor(0, j);
    if (from.numel == 0) continue;
    place(from, out, at * out.strides[dim]);
    at += from.sizes[dim];
  }
}

fl_status cat_run(const fl_call* call) { return launch(call, cat_body); }

fl_status cat_supports(const fl_call* call) {
  const fl_tensor& out = *call->outs[0];
  const fl_value& list = call->args[0];
  for (uint32_t j = 0; j < list.count; ++j) {
    const fl_tensor* t = list.u.tensors[j];
    if (!t) return unsupported("a tensor of the list is absent");
    if (skipped(*t)) continue;
    if (t->ndim != out.ndim) return unsupported("tensors of different numbers of dimensions");
    if (t->dtype == out.dtype) continue;
    const uint64_t both = FL_DTYPE_BIT(storage_dtype(t->dtype)) | FL_DTYPE_BIT(out.dtype);
    if (both & ~(kReals | kInts)) return unsupported("a cast between these element types");
  }
  return FL_DTYPE_BIT(out.dtype) & kMovable ? FL_OK : unsupported("the result's element type");
}

constexpr fl_kernel kRows[] = {
    row("aten::cat", 0, cat_run, 0, cat_supports),
};

}  // namespace
}  // namespace fl_sim::nn

fl_sim::Family fl_sim::cat_family() { return nn::kRows; }
