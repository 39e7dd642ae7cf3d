// SPDX-License-Identifier: Apache-2.0
// Matrix products. Operands of any strides are read in place; large products go through packed panels, small ones and
// products with a vector are summed directly.
#include <string>

#include "gemm.h"
#include "nn_families.h"
#include "nn_types.h"

namespace fl_sim::nn {
namespace {

constexpr int64_t kTinyProduct = 2048;  // multiply-adds below which packing costs more than it saves
constexpr int64_t kStrip = 256;         // columns that a direct product sums at a time

template <class T>
struct Matrix {
  T* data;
  int64_t rows, columns, row_stride, column_stride;
};

template <class T>
Matrix<T> matrix(const View& view) {
  return {view.as<T>(), view.sizes[0], view.sizes[1], view.strides[0], view.strides[1]};
}

// Lanes summed side by side, so that the compiler may use vector registers.
template <class T>
Acc<T> dot_product(const T* a, int64_t a_stride, const T* b, int64_t b_stride, int64_t count) {
  using A = Acc<T>;
  constexpr int kLanes = 16;
  A lanes[kLanes] = {};
  int64_t i = 0;
  if (a_stride == 1 && b_stride == 1) {
    for (; i + kLanes <= count; i += kLanes) {
      for (int l = 0; l < kLanes; ++l) lanes[l] += static_cast<A>(a[i + l]) * static_cast<A>(b[i + l]);
    }
  }
  A sum = A(0);
  for (; i < count; ++i) sum += static_cast<A>(a[i * a_stride]) * static_cast<A>(b[i * b_stride]);
  for (int l = 0; l < kLanes; ++l) sum += lanes[l];
  return sum;
}

// kWidth columns of one row, summed in registers.
template <int kWidth, class T>
void register_strip(const T* row, int64_t row_step, const T* columns, int64_t columns_step, int64_t depth,
                    const MatrixStore<T, Acc<T>>& store, int64_t i, int64_t j0) {
  using A = Acc<T>;
  A sums[kWidth] = {};
  for (int64_t k = 0; k < depth; ++k, row += row_step, columns += columns_step) {
    const A factor = static_cast<A>(*row);
    for (int j = 0; j < kWidth; ++j) sums[j] += factor * static_cast<A>(columns[j]);
  }
  store(sums, 0, 1, i, 1, j0, kWidth);
}

// A product too small to be worth a loop over blocks, whose second operand has dense rows.
template <class T>
void tiny_product(const Matrix<const T>& a, const Matrix<const T>& b, const MatrixStore<T, Acc<T>>& store) {
  for (int64_t i = 0; i < a.rows; ++i) {
    const T* row = a.data + i * a.row_stride;
    int64_t j = 0;
    for (; j + 8 <= b.columns; j += 8) {
      register_strip<8>(row, a.column_stride, b.data + j, b.row_stride, a.columns, store, i, j);
    }
    for (; j + 4 <= b.columns; j += 4) {
      register_strip<4>(row, a.column_stride, b.data + j, b.row_stride, a.columns, store, i, j);
    }
    for (; j < b.columns; ++j) {
      register_strip<1>(row, a.column_stride, b.data + j, b.row_stride, a.columns, store, i, j);
    }
  }
}

template <class T>
void direct_row(const Matrix<const T>& a, const Matrix<const T>& b, const MatrixStore<T, Acc<T>>& store, int64_t i) {
  using A = Acc<T>;
  const T* row = a.data + i * a.row_stride;
  A sums[kStrip];
  for (int64_t j0 = 0; j0 < b.columns; j0 += kStrip) {
    const int64_t width = std::min(kStrip, b.columns - j0);
    const T* columns = b.data + j0 * b.column_stride;
    if (b.column_stride == 1 && b.columns > 1) {
      for (int64_t j = 0; j < width; ++j) sums[j] = A(0);
      for (int64_t k = 0; k < a.columns; ++k) {
        const A factor = static_cast<A>(row[k * a.column_stride]);
        const T* from = columns + k * b.row_stride;
        for (int64_t j = 0; j < width; ++j) sums[j] += factor * static_cast<A>(from[j]);
      }
    } else {
      for (int64_t j = 0; j < width; ++j) {
        sums[j] = dot_product(row, a.column_stride, columns + j * b.column_stride, b.row_stride, a.columns);
      }
    }
    store(sums, 0, 1, i, 1, j0, width);
  }
}

template <class T>
void multiply(const Matrix<const T>& a, const Matrix<const T>& b, const MatrixStore<T, Acc<T>>& store) {
  const int64_t work = a.rows * b.columns * a.columns;
  if constexpr (!std::is_integral_v<T>) {
    if (work > kTinyProduct && a.rows > 1 && b.columns > 1) {
      using Panels = StridedPanels<T, Acc<T>>;
      const Panels rows{a.data, a.row_stride, a.column_stride}, columns{b.data, b.column_stride, b.row_stride};
      gemm<Acc<T>>(a.rows, b.columns, a.columns, rows, columns, store);
      return;
    }
  }
  if (b.columns == 0) return;
  if (work <= kTinyProduct && b.column_stride == 1) return tiny_product(a, b, store);
  if (work <= kTinyProduct) {
    for (int64_t i = 0; i < a.rows; ++i) direct_row(a, b, store, i);
  } else {
    parallel_for(a.rows, static_cast<double>(work), [&](int64_t i) { direct_row(a, b, store, i); });
  }
}

template <class A>
A scalar(const Call& call, uint32_t i) {
  if constexpr (std::is_integral_v<A>) {
    return static_cast<A>(call.integer(i, 1));
  } else {
    return static_cast<A>(call.real(i, 1));
  }
}

// Strides of `self` seen with the two sizes of the result.
template <class T>
void set_self(MatrixStore<T, Acc<T>>& store, const View& self) {
  store.self = self.as<const T>();
  const int32_t n = self.ndim;
  if (n >= 1 && self.sizes[n - 1] != 1) store.self_column_stride = self.strides[n - 1];
  if (n >= 2 && self.sizes[n - 2] != 1) store.self_row_stride = self.strides[n - 2];
}

void mm_body(const Call& call) {
  const View a = call.tensor(0), b = call.tensor(1), out = call.out(0);
  dispatch_numbers(out.dtype, [&](auto zero) {
    using T = decltype(zero);
    const MatrixStore<T, Acc<T>> store{out.as<T>(), out.strides[0], out.strides[1]};
    multiply<T>(matrix<const T>(a), matrix<const T>(b), store);
  });
}

// beta * self + alpha * product, as addmm and its relatives have them.
template <class T>
MatrixStore<T, Acc<T>> store_on_self(const Call& call) {
  const View out = call.out(0);
  MatrixStore<T, Acc<T>> store{out.as<T>(), out.strides[0], out.strides[1]};
  store.beta = scalar<Acc<T>>(call, 3);
  store.alpha = scalar<Acc<T>>(call, 4);
  set_self(store, call.tensor(0));
  return store;
}

void addmm_body(const Call& call) {
  const View a = call.tensor(1), b = call.tensor(2);
  dispatch_numbers(call.out(0).dtype, [&](auto zero) {
    using T = decltype(zero);
    multiply<T>(matrix<const T>(a), matrix<const T>(b), store_on_self<T>(call));
  });
}

// A product of depth 1 on top of self.
void addr_body(const Call& call) {
  const View a = call.tensor(1), b = call.tensor(2);
  dispatch_numbers(call.out(0).dtype, [&](auto zero) {
    using T = decltype(zero);
    const Matrix<const T> column{a.as<const T>(), a.sizes[0], 1, a.strides[0], 1};
    multiply<T>(column, {b.as<const T>(), 1, b.sizes[0], 1, b.strides[0]}, store_on_self<T>(call));
  });
}

template <class T>
Matrix<const T> batch_item(const View& v, int64_t i) {
  return {v.as<const T>() + i * v.strides[0], v.sizes[1], v.sizes[2], v.strides[1], v.strides[2]};
}

// out[i] = beta * self[i] + alpha * a[i] b[i]; self absent: the plain product.
template <class T>
void multiply_batches(const View& a, const View& b, const View& out, const View* self, Acc<T> beta, Acc<T> alpha) {
  const double work = static_cast<double>(out.numel) * static_cast<double>(a.sizes[2]);
  const bool advance = self && self->ndim == 3 && self->sizes[0] != 1;
  parallel_for(a.sizes[0], work, [&](int64_t i) {
    MatrixStore<T, Acc<T>> store{out.as<T>() + i * out.strides[0], out.strides[1], out.strides[2], alpha, beta};
    if (self) {
      set_self(store, *self);
      if (advance) store.self += i * self->strides[0];
    }
    multiply<T>(batch_item<T>(a, i), batch_item<T>(b, i), store);
  });
}

void bmm_body(const Call& call) {
  const View a = call.tensor(0), b = call.tensor(1), out = call.out(0);
  if (out.numel == 0) return;
  dispatch_numbers(out.dtype, [&](auto zero) {
    using T = decltype(zero);
    multiply_batches<T>(a, b, out, nullptr, Acc<T>(0), Acc<T>(1));
  });
}

void baddbmm_body(const Call& call) {
  const View self = call.tensor(0), a = call.tensor(1), b = call.tensor(2), out = call.out(0);
  if (out.numel == 0) return;
  dispatch_numbers(out.dtype, [&](auto zero) {
    using T = decltype(zero);
    multiply_batches<T>(a, b, out, &self, scalar<Acc<T>>(call, 3), scalar<Acc<T>>(call, 4));
  });
}

template <class T>
void multiply_vector(const View& a, const View& x, const View& out, MatrixStore<T, Acc<T>> store) {
  store.out = out.as<T>();
  store.row_stride = out.strides[0];
  store.column_stride = 0;
  const Matrix<const T> column{x.as<const T>(), x.sizes[0], 1, x.strides[0], 1};
  multiply<T>(matrix<const T>(a), column, store);
}

void mv_body(const Call& call) {
  const View a = call.tensor(0), x = call.tensor(1), out = call.out(0);
  dispatch_numbers(out.dtype, [&](auto zero) { multiply_vector<decltype(zero)>(a, x, out, {}); });
}

void addmv_body(const Call& call) {
  const View self = call.tensor(0), a = call.tensor(1), x = call.tensor(2), out = call.out(0);
  dispatch_numbers(out.dtype, [&](auto zero) {
    using T = decltype(zero);
    MatrixStore<T, Acc<T>> store{};
    store.beta = scalar<Acc<T>>(call, 3);
    store.alpha = scalar<Acc<T>>(call, 4);
    store.self = self.as<const T>();
    if (self.ndim == 1 && self.sizes[0] != 1) store.self_row_stride = self.strides[0];
    multiply_vector<T>(a, x, out, store);
  });
}

void dot_body(const Call& call) {
  const View a = call.tensor(0), b = call.tensor(1), out = call.out(0);
  dispatch_numbers(out.dtype, [&](auto zero) {
    using T = decltype(zero);
    *out.as<T>() =
        static_cast<T>(dot_product(a.as<const T>(), a.strides[0], b.as<const T>(), b.strides[0], a.sizes[0]));
  });
}

fl_status mm_run(const fl_call* call) { return launch(call, mm_body); }
fl_status addmm_run(const fl_call* call) { return launch(call, addmm_body); }
fl_status addr_run(const fl_call* call) { return launch(call, addr_body); }
fl_status bmm_run(const fl_call* call) { return launch(call, bmm_body); }
fl_status baddbmm_run(const fl_call* call) { return launch(call, baddbmm_body); }
fl_status mv_run(const fl_call* call) { return launch(call, mv_body); }
fl_status addmv_run(const fl_call* call) { return launch(call, addmv_body); }
fl_status dot_run(const fl_call* call) { return launch(call, dot_body); }

// Every operand has the element type of the result.
fl_status same_dtypes(const fl_call* call) {
  for (uint32_t i = 0; i < call->n_args; ++i) {
    if (call->args[i].kind == FL_TENSOR && call->args[i].u.tensor->dtype != call->outs[0]->dtype) {
      return unsupported("the operands and the result have different element types");
    }
  }
  return FL_OK;
}

// The simulated chip may be configured to multiply whole blocks only (SIMCHIP_MATMUL_MULTIPLE).
fl_status supports_matrices(const fl_call* call) {
  const int64_t multiple = simGetLimits()->matmul_multiple;
  const bool ask = multiple > 1 && !simGetLimits()->trusting;
  for (uint32_t i = call->n_args > 2 ? 1 : 0; ask && i < call->n_args; ++i) {
    if (call->args[i].kind != FL_TENSOR) continue;
    const fl_tensor& t = *call->args[i].u.tensor;
    if (t.sizes[t.ndim - 1] % multiple != 0 || t.sizes[t.ndim - 2] % multiple != 0) {
      return unsupported(("matrix sizes must be multiples of " + std::to_string(multiple)).c_str());
    }
  }
  return same_dtypes(call);
}

constexpr uint64_t kDtypes = kReals | kInts;
constexpr fl_kernel kRows[] = {
    row("aten::mm", 0, mm_run, kDtypes, supports_matrices),
    row("aten::addmm", 0, addmm_run, kDtypes, supports_matrices),
    row("aten::addr", 0, addr_run, kDtypes, same_dtypes),
    row("aten::bmm", 0, bmm_run, kDtypes, supports_matrices),
    row("aten::baddbmm", 0, baddbmm_run, kDtypes, supports_matrices),
    row("aten::mv", 0, mv_run, kDtypes, same_dtypes),
    row("aten::addmv", 0, addmv_run, kDtypes, same_dtypes),
    row("aten::dot", 0, dot_run, kDtypes, same_dtypes),
};

}  // namespace
}  // namespace fl_sim::nn

fl_sim::Family fl_sim::matmul_family() { return nn::kRows; }
