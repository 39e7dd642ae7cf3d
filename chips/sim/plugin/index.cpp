// SPDX-License-Identifier: Apache-2.0
// Indexing with tensors: aten::index.Tensor, aten::_index_put_impl_ and aten::take.
//
// The index tensors broadcast against each other; where the indexed dimensions are neighbours their place is taken by
// the broadcast dimensions, else these come first. Every index is resolved to an offset in self before anything moves.
#include <algorithm>
#include <array>
#include <complex>

#include "nn_dense.h"
#include "nn_families.h"
#include "workspace.h"

namespace fl_sim::nn {
namespace {

// The index space of a result, with three operands: self (dimensions not indexed), the table of resolved offsets, and
// the other tensor (result or values).
struct IndexPlan {
  Walk<3> walk;
  const int64_t* offsets = nullptr;
  int64_t selected = 1;  ///< elements in all
};

struct BroadcastShape {
  int ndim = 0;
  std::array<int64_t, kMaxDims> sizes{};
  int64_t numel() const {
    int64_t n = 1;
    for (int d = 0; d < ndim; ++d) n *= sizes[d];
    return n;
  }
};

// Merges a shape that is aligned at its last dimension. False where the two do not broadcast.
bool merge_shape(BroadcastShape& shape, const int64_t* sizes, int ndim) {
  const int grown = std::max(shape.ndim, ndim);
  for (int d = 0; d < grown; ++d) {  // counted from the last
    const int64_t a = d < shape.ndim ? shape.sizes[shape.ndim - 1 - d] : 1;
    const int64_t b = d < ndim ? sizes[ndim - 1 - d] : 1;
    if (a != b && a != 1 && b != 1) return false;
  }
  BroadcastShape merged;
  merged.ndim = grown;
  for (int d = 0; d < grown; ++d) {
    const int64_t a = d < shape.ndim ? shape.sizes[shape.ndim - 1 - d] : 1;
    const int64_t b = d < ndim ? sizes[ndim - 1 - d] : 1;
    merged.sizes[grown - 1 - d] = a == 1 ? b : a;
  }
  shape = merged;
  return true;
}

// Stride of a tensor along dimension d of a space of `ndim` dimensions into which it is broadcast.
int64_t broadcast_stride(const View& view, int d, int ndim) {
  const int own = d - (ndim - view.ndim);
  return own < 0 || view.sizes[own] == 1 ? 0 : view.strides[own];
}

// Adds index * stride of one index tensor to each offset.
void add_offsets(const View& self, int64_t dim, const View& index, const BroadcastShape& shape, int64_t* offsets) {
  Walk<1> walk;
  for (int d = 0; d < shape.ndim; ++d) walk.add_dim(shape.sizes[d], {broadcast_stride(index, d, shape.ndim)});
  int64_t* out = offsets;
  walk.rows([&](const auto& at, int64_t length, const auto& step) {
    for (int64_t i = 0; i < length; ++i) {
      *out++ +=
          wrapped_index<OutOfRange>(index_at(index, at[0] + i * step[0]), dim, self.sizes[dim]) * self.strides[dim];
    }
  });
}

// `other` is the result, or the values broadcast to its shape.
IndexPlan make_plan(const Call& call, uint32_t indices, const View& self, const View& other) {
  BroadcastShape shape;
  std::array<bool, kMaxDims> indexed{};
  int first = -1, last = -1, count = 0;
  for (uint32_t j = 0; j < call.list_size(indices); ++j) {
    if (!call.list_has(indices, j)) continue;
    const View index = call.list_tensor(indices, j);
    if (!merge_shape(shape, index.sizes, index.ndim)) throw KernelError("the index tensors do not broadcast");
    indexed[j] = true;
    first = first < 0 ? static_cast<int>(j) : first;
    last = static_cast<int>(j);
    ++count;
  }
  IndexPlan plan;
  plan.selected = shape.numel();
  for (int d = 0; d < self.ndim; ++d) plan.selected *= indexed[d] ? 1 : self.sizes[d];
  if (plan.selected == 0) return plan;  // then PyTorch looks at no index
  int64_t* offsets = workspace<int64_t>(Slot::kKernel, std::max<int64_t>(shape.numel(), 1));
  std::fill_n(offsets, shape.numel(), int64_t{0});
  for (uint32_t j = 0; j < call.list_size(indices); ++j) {
    if (indexed[j]) add_offsets(self, j, call.list_tensor(indices, j), shape, offsets);
  }
  plan.offsets = offsets;
  const bool adjacent = last - first + 1 == count;
  const int place = adjacent ? first : 0, total = self.ndim - count + shape.ndim;
  int result_dim = 0;
  auto add = [&](int64_t size, int64_t self_step, int64_t table_step) {
    plan.walk.add_dim(size, {self_step, table_step, broadcast_stride(other, result_dim++, total)});
  };
  auto add_table = [&] {
    for (int b = 0; b < shape.ndim; ++b) {
      int64_t step = 1;
      for (int d = b + 1; d < shape.ndim; ++d) step *= shape.sizes[d];
      add(shape.sizes[b], 0, step);
    }
  };
  if (!adjacent) add_table();
  for (int d = 0; d < self.ndim; ++d) {
    if (adjacent && d == place) add_table();
    if (!indexed[d]) add(self.sizes[d], self.strides[d], 0);
  }
  return plan;
}

// Calls move(element of self, element of the other tensor) for each element of the result.
template <class T, class Move>
void run_plan(const IndexPlan& plan, T* self, T* other, const Move& move) {
  if (plan.selected == 0) return;
  plan.walk.rows([&](const auto& at, int64_t length, const auto& step) {
    const int64_t* table = plan.offsets + at[1];
    T* s = self + at[0];
    T* o = other + at[2];
    for (int64_t i = 0; i < length; ++i) move(s[i * step[0] + table[i * step[1]]], o[i * step[2]]);
  });
}

void index_body(const Call& call) {
  const View self = call.tensor(0), out = call.out(0);
  const IndexPlan plan = make_plan(call, 1, self, out);
  if (plan.selected != out.numel) throw KernelError("the result has another size than what the indices select");
  dispatch_bytes(dtype_size(self.dtype), [&](auto zero) {
    using T = decltype(zero);
    run_plan(plan, self.as<T>(), out.as<T>(), [](const T& from, T& to) { to = from; });
  });
}

template <class T>
void add_to(T& target, const T& value) {
  if constexpr (std::is_integral_v<T>) {
    target = static_cast<T>(static_cast<uint64_t>(target) + static_cast<uint64_t>(value));
  } else {
    target = static_cast<T>(static_cast<Acc<T>>(target) + static_cast<Acc<T>>(value));
  }
}

void index_put_body(const Call& call) {
  const View self = call.out(0), values = call.tensor(2);
  const IndexPlan plan = make_plan(call, 1, self, values);
  if (!call.boolean(3)) {
    dispatch_bytes(dtype_size(self.dtype), [&](auto zero) {
      using T = decltype(zero);
      run_plan(plan, self.as<T>(), values.as<T>(), [](T& to, const T& from) { to = from; });
    });
    return;
  }
  dispatch_numbers(self.dtype, [&](auto zero) {
    using T = decltype(zero);
    run_plan(plan, self.as<T>(), values.as<T>(), [](T& to, const T& from) { add_to(to, from); });
  });
}

void take_body(const Call& call) {
  const View self = call.tensor(0), index = call.tensor(1), out = call.out(0);
  for (int64_t i = 0; i < index.numel; ++i) {
    const int64_t at = index_at(index, i);
    if (at < -self.numel || at >= self.numel) {
      throw OutOfRange("out of range: tried to access index " + std::to_string(at) + " on a tensor of " +
                       std::to_string(self.numel) + " elements.");
    }
  }
  dispatch_bytes(dtype_size(self.dtype), [&](auto zero) {
    using T = decltype(zero);
    for (int64_t i = 0; i < index.numel; ++i) {
      const int64_t at = index_at(index, i);
      out.as<T>()[i] = self.as<const T>()[at < 0 ? at + self.numel : at];
    }
  });
}

template <Body kBody>
fl_status run(const fl_call* call) {
  return launch(call, kBody);
}

// Indices are int64 or int32 (masks become indices on the host) and lead to at most kMaxDims dimensions.
// `result`: null, or where to put the shape of what they select.
fl_status supports_indices(const fl_call* call, BroadcastShape* result) {
  const fl_value& list = call->args[1];
  BroadcastShape shape;
  int count = 0, first = -1, last = -1;
  if (list.kind != FL_TENSORS) return unsupported("the indices are not a list of tensors");
  for (uint32_t j = 0; j < list.count; ++j) {
    const fl_tensor* index = list.u.tensors[j];
    if (!index) continue;
    if (!is_index_dtype(index->dtype)) return unsupported("an index is not int64 or int32 (a mask?)");
    if (!merge_shape(shape, index->sizes, index->ndim)) return unsupported("the index tensors do not broadcast");
    first = first < 0 ? static_cast<int>(j) : first;
    last = static_cast<int>(j);
    ++count;
  }
  const fl_tensor& self = *call->args[0].u.tensor;
  const int32_t ndim = self.ndim;
  if (count == 0) return unsupported("no dimension is indexed");
  if (list.count > static_cast<uint32_t>(ndim)) return unsupported("more indices than dimensions");
  if (ndim - count + shape.ndim > kMaxDims) return unsupported("more than 64 dimensions");
  if (result == nullptr) return FL_OK;
  const int place = last - first + 1 == count ? first : 0;
  auto add_shape = [&] {
    for (int d = 0; d < shape.ndim; ++d) result->sizes[result->ndim++] = shape.sizes[d];
  };
  for (int d = 0; d < ndim; ++d) {
    if (d == place) add_shape();
    const bool indexed = static_cast<uint32_t>(d) < list.count && list.u.tensors[d] != nullptr;
    if (!indexed) result->sizes[result->ndim++] = self.sizes[d];
  }
  return FL_OK;
}

fl_status supports_index(const fl_call* call) { return supports_indices(call, nullptr); }

fl_status supports_index_put(const fl_call* call) {
  const fl_dtype dtype = call->args[0].u.tensor->dtype;
  const fl_tensor& values = *call->args[2].u.tensor;
  if (values.dtype != dtype) return unsupported("self and values have different element types");
  if (call->args[3].u.i != 0 && !(FL_DTYPE_BIT(dtype) & (kReals | kInts))) {
    return unsupported("accumulating into this element type");
  }
  BroadcastShape selected;
  if (const fl_status status = supports_indices(call, &selected); status != FL_OK) return status;
  for (int d = 0; d < values.ndim; ++d) {  // counted from the last
    const int64_t size = values.sizes[values.ndim - 1 - d];
    const bool fits = size == 1 || (d < selected.ndim && size == selected.sizes[selected.ndim - 1 - d]);
    if (!fits) return unsupported("the values do not broadcast to what the indices select");
  }
  return values.ndim <= selected.ndim ? FL_OK : unsupported("the values have more dimensions than the indices select");
}

fl_status supports_take(const fl_call* call) {
  return is_index_dtype(call->args[1].u.tensor->dtype) ? FL_OK : unsupported("the index is not int64 or int32");
}

constexpr uint32_t kDense = FL_KERNEL_CONTIGUOUS_INPUTS | FL_KERNEL_CONTIGUOUS_OUTPUTS;
constexpr fl_kernel kRows[] = {
    row("aten::index.Tensor", 0, run<index_body>, kMovable, supports_index),
    row("aten::_index_put_impl_", 0, run<index_put_body>, kMovable, supports_index_put),
    row("aten::take", kDense, run<take_body>, kMovable, supports_take),
};

}  // namespace
}  // namespace fl_sim::nn

fl_sim::Family fl_sim::index_family() { return nn::kRows; }
