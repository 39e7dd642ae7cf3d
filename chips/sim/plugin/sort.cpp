// SPDX-License-Identifier: Apache-2.0
// Sorting and selecting the largest or smallest along one dimension. NaN counts as the greatest value.
#include <algorithm>
#include <utility>
#include <vector>

#include "nn_dense.h"
#include "nn_families.h"
#include "parallel.h"

namespace fl_sim::nn {
namespace {

template <class T>
using Item = std::pair<T, int64_t>;  // value and index

template <class T>
bool less(T a, T b) {
  if (is_nan(a)) return false;
  return is_nan(b) || a < b;
}

// Comparable values: the 16-bit types compare as float.
template <class T>
using Key = std::conditional_t<std::is_arithmetic_v<T>, T, float>;

template <class T>
void load_items(const T* from, int64_t stride, std::vector<Item<Key<T>>>& items) {
  for (size_t i = 0; i < items.size(); ++i) {
    items[i] = {static_cast<Key<T>>(from[static_cast<int64_t>(i) * stride]), static_cast<int64_t>(i)};
  }
}

template <class T>
void store_items(const std::vector<Item<Key<T>>>& items, int64_t count, T* values, int64_t* indices, int64_t stride) {
  for (int64_t i = 0; i < count; ++i) {
    values[i * stride] = static_cast<T>(items[static_cast<size_t>(i)].first);
    indices[i * stride] = items[static_cast<size_t>(i)].second;
  }
}

// Calls arrange(items) for each line along the dimension and stores the first `count` of them.
template <class T, class Arrange>
void for_each_line(const View& self, const View& values, const View& indices, const DimSplit& s, int64_t count,
                   const Arrange& arrange) {
  parallel_for(s.outer, 16.0 * static_cast<double>(self.numel), [&](int64_t o) {
    std::vector<Item<Key<T>>> items(static_cast<size_t>(s.size));
    for (int64_t i = 0; i < s.inner; ++i) {
      load_items(self.as<const T>() + o * s.size * s.inner + i, s.inner, items);
      arrange(items);
      const int64_t at = o * count * s.inner + i;
      store_items(items, count, values.as<T>() + at, indices.as<int64_t>() + at, s.inner);
    }
  });
}

fl_dtype storage_dtype(fl_dtype dtype) { return dtype == FL_BOOL ? FL_UINT8 : dtype; }

void sort_body(const Call& call) {
  const View self = call.tensor(0), values = call.out(0), indices = call.out(1);
  if (self.numel == 0) return;
  const DimSplit s = split_at(self, call.integer(2, -1));
  const bool descending = call.boolean(3);
  dispatch_numbers(storage_dtype(self.dtype), [&](auto zero) {
    using T = decltype(zero);
    for_each_line<T>(self, values, indices, s, s.size, [&](auto& items) {
      std::stable_sort(items.begin(), items.end(), [&](const auto& a, const auto& b) {
        return descending ? less(b.first, a.first) : less(a.first, b.first);
      });
    });
  });
}

// The same choice of algorithms as the CPU makes, so that the order of equal values agrees too.
template <class Items, class Before>
void select(Items& items, int64_t k, bool sorted, const Before& before) {
  const int64_t n = static_cast<int64_t>(items.size());
  if (k == 0) return;
  if (k * 64 <= n) {
    std::partial_sort(items.begin(), items.begin() + k, items.end(), before);
    return;
  }
  std::nth_element(items.begin(), items.begin() + k - 1, items.end(), before);
  if (sorted) std::sort(items.begin(), items.begin() + k - 1, before);
}

void topk_body(const Call& call) {
  const View self = call.tensor(0), values = call.out(0), indices = call.out(1);
  if (values.numel == 0) return;
  const DimSplit s = split_at(self, call.integer(2, -1));
  const int64_t k = call.integer(1);
  const bool largest = call.boolean(3, true), sorted = call.boolean(4, true);
  dispatch_numbers(self.dtype, [&](auto zero) {
    using T = decltype(zero);
    for_each_line<T>(self, values, indices, s, k, [&](auto& items) {
      if (largest) {
        select(items, k, sorted, [](const auto& a, const auto& b) { return less(b.first, a.first); });
      } else {
        select(items, k, sorted, [](const auto& a, const auto& b) { return less(a.first, b.first); });
      }
    });
  });
}

fl_status sort_run(const fl_call* call) { return launch(call, sort_body); }
fl_status topk_run(const fl_call* call) { return launch(call, topk_body); }

fl_status topk_supports(const fl_call* call) {
  const fl_tensor& self = *call->args[0].u.tensor;
  const int64_t k = call->args[1].u.i;
  const int64_t size = self.ndim == 0 ? 1 : self.sizes[wrap_dim(call->args[2].u.i, self.ndim)];
  return k >= 0 && k <= size ? FL_OK : unsupported("k is larger than the dimension");
}

constexpr uint32_t kDense = FL_KERNEL_CONTIGUOUS_INPUTS | FL_KERNEL_CONTIGUOUS_OUTPUTS;
constexpr fl_kernel kRows[] = {
    row("aten::sort.stable", kDense, sort_run, kReals | kInts | kBoolBit),
    row("aten::topk", kDense, topk_run, kReals | kInts, topk_supports),
};

}  // namespace
}  // namespace fl_sim::nn

fl_sim::Family fl_sim::sort_family() { return nn::kRows; }
