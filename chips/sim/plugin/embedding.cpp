// SPDX-License-Identifier: Apache-2.0
// Selecting whole rows by one index tensor: embedding, its gradient, index_select.
#include <algorithm>
#include <cstring>
#include <vector>

#include "nn_dense.h"
#include "nn_families.h"
#include "workspace.h"

namespace fl_sim::nn {
namespace {

// The messages of these operators name no dimension: they are those of the CPU.
int64_t row_index(const View& index, int64_t offset, int64_t size) {
  const int64_t value = index_at(index, offset);
  if (value < 0 || value >= size) {
    throw OutOfRange("index out of range in self: index " + std::to_string(value) + " for a size of " +
                     std::to_string(size));
  }
  return value;
}

// Selecting columns, the CPU has another loop with another error.
int64_t column_index(const View& index, int64_t offset, int64_t size) {
  const int64_t value = index_at(index, offset);
  if (value < 0 || value >= size) {
    throw InvalidArgument("INDICES element is out of DATA bounds, id=" + std::to_string(value) +
                          " axis_dim=" + std::to_string(size));
  }
  return value;
}

// out[o][i] = self[o][index[i]], in stretches of `inner` elements. Indices are checked before anything moves.
void select_rows(const View& self, const DimSplit& split, const View& index, int64_t index_step, int64_t count,
                 const View& out, int64_t (*checked)(const View&, int64_t, int64_t)) {
  const int64_t bytes = split.inner * dtype_size(self.dtype);
  int64_t* rows = workspace<int64_t>(Slot::kKernel, std::max<int64_t>(count, 1));
  for (int64_t i = 0; i < count; ++i) rows[i] = checked(index, i * index_step, split.size);
  if (bytes == 0) return;
  const char* from = self.as<const char>();
  char* to = out.as<char>();
  for (int64_t o = 0; o < split.outer; ++o, from += split.size * bytes) {
    for (int64_t i = 0; i < count; ++i, to += bytes)
      std::memcpy(to, from + rows[i] * bytes, static_cast<size_t>(bytes));
  }
}

void embedding_body(const Call& call) {
  const View weight = call.tensor(0), index = call.tensor(1);
  select_rows(weight, split_at(weight, 0), index, 1, index.numel, call.out(0), row_index);
}

void index_select_body(const Call& call) {
  const View self = call.tensor(0), index = call.tensor(2);
  const int64_t dim = wrap_dim(call.integer(1), self.ndim);
  select_rows(self, split_at(self, dim), index, 1, index.numel, call.out(0), dim == 1 ? column_index : row_index);
}

template <class T>
void embedding_gradient(const Call& call, int64_t rows, int64_t width) {
  const View gradient = call.tensor(0), index = call.tensor(1), out = call.out(0);
  const int64_t padding = call.integer(3);
  std::vector<int64_t> uses(call.boolean(4) ? static_cast<size_t>(rows) : 0);
  for (int64_t i = 0; i < index.numel; ++i) {
    const int64_t r = row_index(index, i, rows);
    if (!uses.empty()) ++uses[static_cast<size_t>(r)];
  }
  Acc<T>* sums = std::is_same_v<T, Acc<T>> ? reinterpret_cast<Acc<T>*>(out.data)
                                           : workspace<Acc<T>>(Slot::kKernel, std::max<int64_t>(rows * width, 1));
  std::fill_n(sums, rows * width, Acc<T>(0));
  for (int64_t i = 0; i < index.numel; ++i) {
    const int64_t r = index_at(index, i);
    if (r == padding) continue;
    const Acc<T> scale = uses.empty() ? Acc<T>(1) : Acc<T>(1) / static_cast<Acc<T>>(uses[static_cast<size_t>(r)]);
    const T* from = gradient.as<const T>() + i * width;
    Acc<T>* to = sums + r * width;
    for (int64_t k = 0; k < width; ++k) to[k] += static_cast<Acc<T>>(from[k]) * scale;
  }
  if constexpr (!std::is_same_v<T, Acc<T>>) {
    for (int64_t k = 0; k < rows * width; ++k) out.as<T>()[k] = static_cast<T>(sums[k]);
  }
}

void embedding_gradient_body(const Call& call) {
  const View gradient = call.tensor(0);
  const int64_t rows = call.integer(2), width = gradient.sizes[gradient.ndim - 1];
  dispatch_reals(call.out(0).dtype, [&](auto zero) { embedding_gradient<decltype(zero)>(call, rows, width); });
}

template <Body kBody>
fl_status run(const fl_call* call) {
  return launch(call, kBody);
}

template <uint32_t kIndex>
fl_status supports_index(const fl_call* call) {
  return is_index_dtype(call->args[kIndex].u.tensor->dtype) ? FL_OK : unsupported("the index is not int64 or int32");
}

constexpr uint32_t kDense = FL_KERNEL_CONTIGUOUS_INPUTS | FL_KERNEL_CONTIGUOUS_OUTPUTS;
constexpr fl_kernel kRows[] = {
    row("aten::embedding", kDense, run<embedding_body>, kMovable, supports_index<1>),
    row("aten::embedding_dense_backward", kDense, run<embedding_gradient_body>, kReals, supports_index<1>),
    row("aten::index_select", kDense, run<index_select_body>, kMovable, supports_index<2>),
};

}  // namespace
}  // namespace fl_sim::nn

fl_sim::Family fl_sim::embedding_family() { return nn::kRows; }
