// SPDX-License-Identifier: Apache-2.0
// Element-wise gather and scatter along one dimension, and index_add, index_copy and index_fill. Functional operators:
// the result starts as a copy of self, then the indexed elements change. Tensors have any strides.
#include <algorithm>
#include <string_view>
#include <vector>

#include "nn_dense.h"
#include "nn_families.h"
#include "workspace.h"

namespace fl_sim::nn {
namespace {

int64_t stride_at(const View& view, int64_t dim) { return view.ndim == 0 ? 0 : view.strides[dim]; }

// Walks the index tensor; visit(offset in `target`, offset in `other`) for each of its elements, where `target` is
// addressed by the index along `dim` and `other` (may be null) has the index's shape.
template <class Visit>
void for_each_indexed(const View& index, int64_t dim, const View& target, const View* other, const Visit& visit) {
  Walk<3> walk;
  for (int d = 0; d < index.ndim; ++d) {
    const int64_t target_step = d == dim || target.ndim == 0 ? 0 : target.strides[d];
    walk.add_dim(index.sizes[d], {index.strides[d], target_step, other && other->ndim > 0 ? other->strides[d] : 0});
  }
  const int64_t size = size_at(target, dim), dim_step = stride_at(target, dim);
  walk.rows([&](const auto& at, int64_t length, const auto& step) {
    for (int64_t i = 0; i < length; ++i) {
      const int64_t value = checked_index<InvalidArgument>(index_at(index, at[0] + i * step[0]), dim, size);
      visit(at[1] + i * step[1] + value * dim_step, at[2] + i * step[2]);
    }
  });
}

void gather_body(const Call& call) {
  const View self = call.tensor(0), index = call.tensor(2), out = call.out(0);
  const int64_t dim = wrap_dim(call.integer(1), self.ndim);
  dispatch_bytes(dtype_size(self.dtype), [&](auto zero) {
    using T = decltype(zero);
    const T* from = self.as<const T>();
    T* to = out.as<T>();
    for_each_indexed(index, dim, self, &out, [&](int64_t s, int64_t o) { to[o] = from[s]; });
  });
}

// ---- What happens where an index points ----------------------------------------------------------------------------

struct Add {
  template <class T>
  static T apply(T a, T b) {
    if constexpr (std::is_integral_v<T>) {
      return static_cast<T>(static_cast<uint64_t>(a) + static_cast<uint64_t>(b));
    } else {
      return static_cast<T>(static_cast<Acc<T>>(a) + static_cast<Acc<T>>(b));
    }
  }
  template <class T>
  static T identity() {
    return T(0);
  }
};

struct Multiply {
  template <class T>
  static T apply(T a, T b) {
    if constexpr (std::is_integral_v<T>) {
      return static_cast<T>(static_cast<uint64_t>(a) * static_cast<uint64_t>(b));
    } else {
      return static_cast<T>(static_cast<Acc<T>>(a) * static_cast<Acc<T>>(b));
    }
  }
  template <class T>
  static T identity() {
    return T(1);
  }
};

template <class T>
T extreme(bool highest) {
  if constexpr (std::is_integral_v<T>) {
    return highest ? std::numeric_limits<T>::max() : std::numeric_limits<T>::min();
  } else {
    const Acc<T> infinity = std::numeric_limits<Acc<T>>::infinity();
    return static_cast<T>(highest ? infinity : -infinity);
  }
}

struct Maximum {
  template <class T>
  static T apply(T a, T b) {
    return is_nan(a) || (!is_nan(b) && a > b) ? a : b;
  }
  template <class T>
  static T identity() {
    return extreme<T>(false);
  }
};

struct Minimum {
  template <class T>
  static T apply(T a, T b) {
    return is_nan(a) || (!is_nan(b) && a < b) ? a : b;
  }
  template <class T>
  static T identity() {
    return extreme<T>(true);
  }
};

// Calls body(Operation{}) for the reduction's name.
template <class Body>
void with_operation(std::string_view name, const Body& body) {
  if (name == "add" || name == "sum" || name == "mean") return body(Add{});
  if (name == "multiply" || name == "prod") return body(Multiply{});
  if (name == "amax") return body(Maximum{});
  if (name == "amin") return body(Minimum{});
  throw KernelError("scatter: unknown reduction '" + std::string(name) + "'");
}

// ---- Scatter -------------------------------------------------------------------------------------------------------

// Arguments: self, dim, index, src or a Scalar.
struct ScatterArguments {
  View self, index, out, src;
  bool has_src;
  int64_t dim;
  explicit ScatterArguments(const Call& call)
      : self(call.tensor(0)), index(call.tensor(2)), out(call.out(0)), has_src(call.is_tensor(3)) {
    dim = wrap_dim(call.integer(1), self.ndim);
    if (has_src) src = call.tensor(3);
    copy_strided(self, out);
  }
  const View* source() const { return has_src ? &src : nullptr; }
};

template <class T>
T scalar_argument(const Call& call, uint32_t i) {
  if constexpr (std::is_integral_v<T>) {
    return static_cast<T>(call.integer(i));
  } else {
    return static_cast<T>(static_cast<Acc<T>>(call.real(i)));
  }
}

void scatter_src_body(const Call& call) {
  const ScatterArguments a(call);
  dispatch_bytes(dtype_size(a.out.dtype), [&](auto zero) {
    using T = decltype(zero);
    T* to = a.out.as<T>();
    const T* from = a.src.as<const T>();
    for_each_indexed(a.index, a.dim, a.out, a.source(), [&](int64_t o, int64_t s) { to[o] = from[s]; });
  });
}

fl_dtype storage_dtype(fl_dtype dtype) { return dtype == FL_BOOL ? FL_UINT8 : dtype; }

template <class T>
T fill_value(const Call& call, uint32_t i, fl_dtype dtype) {
  return dtype == FL_BOOL ? static_cast<T>(call.boolean(i) ? 1.0f : 0.0f) : scalar_argument<T>(call, i);
}

void scatter_value_body(const Call& call) {
  const ScatterArguments a(call);
  dispatch_numbers(storage_dtype(a.out.dtype), [&](auto zero) {
    using T = decltype(zero);
    T* to = a.out.as<T>();
    const T value = fill_value<T>(call, 3, a.out.dtype);
    for_each_indexed(a.index, a.dim, a.out, nullptr, [&](int64_t o, int64_t) { to[o] = value; });
  });
}

// out[index] = operation(out[index], src or the Scalar)
void scatter_apply(const Call& call, std::string_view operation) {
  const ScatterArguments a(call);
  dispatch_numbers(a.out.dtype, [&](auto zero) {
    using T = decltype(zero);
    T* to = a.out.as<T>();
    const T* from = a.src.as<const T>();
    const T value = a.has_src ? T(0) : scalar_argument<T>(call, 3);
    with_operation(operation, [&](auto op) {
      for_each_indexed(a.index, a.dim, a.out, a.source(),
                       [&](int64_t o, int64_t s) { to[o] = op.template apply<T>(to[o], from ? from[s] : value); });
    });
  });
}

void scatter_add_body(const Call& call) { scatter_apply(call, "add"); }
void scatter_reduce_body(const Call& call) { scatter_apply(call, call.string(4)); }

// Division by the number of contributions; integers round down, as the CPU does.
template <class T>
T mean_of(T sum, int64_t count) {
  if constexpr (std::is_integral_v<T>) {
    const int64_t value = static_cast<int64_t>(sum);
    return static_cast<T>(value / count - (value % count != 0 && value < 0 ? 1 : 0));
  } else {
    return static_cast<T>(static_cast<Acc<T>>(sum) / static_cast<Acc<T>>(count));
  }
}

// aten::scatter_reduce.two: the out tensor is dense, so offsets address a table of counts.
template <class T, class Operation>
void scatter_reduce_two(const ScatterArguments& a, bool include_self, bool mean, const Operation&) {
  T* to = a.out.as<T>();
  const T* from = a.src.as<const T>();
  if (!include_self) {
    for_each_indexed(a.index, a.dim, a.out, nullptr,
                     [&](int64_t o, int64_t) { to[o] = Operation::template identity<T>(); });
  }
  std::vector<int64_t> counts(mean ? static_cast<size_t>(a.out.numel) : 0, include_self ? 1 : 0);
  for_each_indexed(a.index, a.dim, a.out, a.source(), [&](int64_t o, int64_t s) {
    to[o] = Operation::template apply<T>(to[o], from[s]);
    if (mean) ++counts[static_cast<size_t>(o)];
  });
  for (size_t i = 0; i < counts.size(); ++i) {
    if (counts[i] > 1) to[i] = mean_of(to[i], counts[i]);
  }
}

void scatter_reduce_two_body(const Call& call) {
  const ScatterArguments a(call);
  const std::string_view name = call.string(4);
  dispatch_numbers(a.out.dtype, [&](auto zero) {
    with_operation(name,
                   [&](auto op) { scatter_reduce_two<decltype(zero)>(a, call.boolean(5, true), name == "mean", op); });
  });
}

// ---- Whole slices by a one-dimensional index -----------------------------------------------------------------------

// Arguments: self, dim, index, and source (a tensor of self's shape except along dim) or a Scalar.
// visit(offset in out, offset in source, length, steps) for each row of each indexed slice.
template <class Error, class Visit>
void for_each_slice(const Call& call, const View& out, const View* source, bool wrap, const Visit& visit) {
  const View self = call.tensor(0), index = call.tensor(2);
  const int64_t dim = wrap_dim(call.integer(1), self.ndim), size = size_at(self, dim);
  copy_strided(self, out);
  const int64_t index_step = index.ndim == 0 ? 0 : index.strides[0], out_step = stride_at(out, dim);
  Walk<2> walk;
  for (int d = 0; d < out.ndim; ++d) {
    if (d != dim) walk.add_dim(out.sizes[d], {out.strides[d], source && source->ndim > 0 ? source->strides[d] : 0});
  }
  const int64_t source_step = source ? stride_at(*source, dim) : 0;
  for (int64_t i = 0; i < index.numel; ++i) {
    const int64_t found = index_at(index, i * index_step);
    const int64_t at = wrap ? wrapped_index<Error>(found, dim, size) : checked_index<Error>(found, dim, size);
    walk.rows([&](const auto& offset, int64_t length, const auto& step) {
      visit(offset[0] + at * out_step, offset[1] + i * source_step, length, step);
    });
  }
}

template <class Error>
void index_add(const Call& call) {
  const View out = call.out(0), source = call.tensor(3);
  dispatch_numbers(out.dtype, [&](auto zero) {
    using T = decltype(zero);
    const T alpha = call.none(4) ? T(1) : scalar_argument<T>(call, 4);
    T* to = out.as<T>();
    const T* from = source.as<const T>();
    for_each_slice<Error>(call, out, &source, false, [&](int64_t o, int64_t s, int64_t length, const auto& step) {
      for (int64_t k = 0; k < length; ++k) {
        T& target = to[o + k * step[0]];
        target = Add::apply<T>(target, Multiply::apply<T>(from[s + k * step[1]], alpha));
      }
    });
  });
}

// Along an outer dimension the CPU computes this as scatter_add, whose errors have another type.
void index_add_body(const Call& call) {
  const View self = call.tensor(0);
  const int64_t dim = wrap_dim(call.integer(1), self.ndim);
  const bool as_scatter = self.ndim > 1 && (dim == 0 || dim == self.ndim - 1) && call.real(4, 1) == 1;
  return as_scatter ? index_add<InvalidArgument>(call) : index_add<OutOfRange>(call);
}

void index_copy_body(const Call& call) {
  const View out = call.out(0), source = call.tensor(3);
  dispatch_bytes(dtype_size(out.dtype), [&](auto zero) {
    using T = decltype(zero);
    T* to = out.as<T>();
    const T* from = source.as<const T>();
    for_each_slice<OutOfRange>(call, out, &source, false, [&](int64_t o, int64_t s, int64_t length, const auto& step) {
      for (int64_t k = 0; k < length; ++k) to[o + k * step[0]] = from[s + k * step[1]];
    });
  });
}

void index_fill_body(const Call& call) {
  const View out = call.out(0);
  dispatch_numbers(storage_dtype(out.dtype), [&](auto zero) {
    using T = decltype(zero);
    const T value = fill_value<T>(call, 3, out.dtype);
    T* to = out.as<T>();
    for_each_slice<OutOfRange>(call, out, nullptr, true, [&](int64_t o, int64_t, int64_t length, const auto& step) {
      for (int64_t k = 0; k < length; ++k) to[o + k * step[0]] = value;
    });
  });
}

// ---- The table -----------------------------------------------------------------------------------------------------

template <Body kBody>
fl_status run(const fl_call* call) {
  return launch(call, kBody);
}

// self, dim, index, and perhaps a source: what the shapes must be so that no offset leaves its tensor.
fl_status supports_indexed(const fl_call* call) {
  const fl_tensor &self = *call->args[0].u.tensor, &index = *call->args[2].u.tensor;
  if (!is_index_dtype(index.dtype)) return unsupported("the index is not int64 or int32");
  if (index.numel != 0 && index.ndim != self.ndim && (index.ndim > 1 || self.ndim > 1)) {
    return unsupported("index and self have different numbers of dimensions");
  }
  const int64_t dim = wrap_dim(call->args[1].u.i, self.ndim);
  for (int d = 0; d < index.ndim && index.numel != 0 && self.ndim == index.ndim; ++d) {
    if (d != dim && index.sizes[d] > self.sizes[d]) return unsupported("the index is larger than self");
  }
  if (call->args[3].kind != FL_TENSOR) return FL_OK;
  const fl_tensor& source = *call->args[3].u.tensor;
  if (source.dtype != self.dtype) return unsupported("self and source have different element types");
  if (index.numel != 0 && source.ndim != index.ndim && (source.ndim > 1 || index.ndim > 1)) {
    return unsupported("source and index have different numbers of dimensions");
  }
  for (int d = 0; d < index.ndim && source.ndim == index.ndim; ++d) {
    if (index.sizes[d] > source.sizes[d]) return unsupported("the index is larger than the source");
  }
  return FL_OK;
}

fl_status supports_slices(const fl_call* call) {
  const fl_tensor &self = *call->args[0].u.tensor, &index = *call->args[2].u.tensor;
  if (!is_index_dtype(index.dtype) || index.ndim > 1) return unsupported("the index is not a vector of int64 or int32");
  if (call->args[3].kind != FL_TENSOR) return FL_OK;
  const fl_tensor& source = *call->args[3].u.tensor;
  if (source.dtype != self.dtype) return unsupported("self and source have different element types");
  if (source.ndim != self.ndim) return unsupported("self and source have different numbers of dimensions");
  const int64_t dim = wrap_dim(call->args[1].u.i, self.ndim);
  for (int d = 0; d < self.ndim; ++d) {
    const int64_t expected = d == dim ? index.numel : self.sizes[d];
    if (source.sizes[d] != expected) return unsupported("the source's shape does not fit");
  }
  return self.ndim > 0 || index.numel == 1 ? FL_OK : unsupported("an index of several elements into a scalar");
}

constexpr uint64_t kNumbers = kReals | kInts;
constexpr fl_kernel kRows[] = {
    row("aten::gather", 0, run<gather_body>, kMovable, supports_indexed),
    row("aten::scatter.src", 0, run<scatter_src_body>, kMovable, supports_indexed),
    row("aten::scatter.value", 0, run<scatter_value_body>, kNumbers | kBoolBit, supports_indexed),
    row("aten::scatter.reduce", 0, run<scatter_reduce_body>, kNumbers, supports_indexed),
    row("aten::scatter.value_reduce", 0, run<scatter_reduce_body>, kNumbers, supports_indexed),
    row("aten::scatter_add", 0, run<scatter_add_body>, kNumbers, supports_indexed),
    row("aten::scatter_reduce.two", FL_KERNEL_CONTIGUOUS_OUTPUTS, run<scatter_reduce_two_body>, kNumbers,
        supports_indexed),
    row("aten::index_add", 0, run<index_add_body>, kNumbers, supports_slices),
    row("aten::index_copy", 0, run<index_copy_body>, kMovable, supports_slices),
    row("aten::index_fill.int_Scalar", 0, run<index_fill_body>, kNumbers | kBoolBit, supports_slices),
};

}  // namespace
}  // namespace fl_sim::nn

fl_sim::Family fl_sim::scatter_family() { return nn::kRows; }
