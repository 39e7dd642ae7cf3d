// SPDX-License-Identifier: Apache-2.0
#include "shape_rules.h"

#include <ATen/Context.h>
#include <ATen/ExpandUtils.h>
#include <ATen/WrapDimUtils.h>
#include <ATen/native/RangeUtils.h>
#include <ATen/native/ReduceOpsUtils.h>
#include <ATen/native/TypeProperties.h>
#include <ATen/ops/addcmul_meta_dispatch.h>
#include <ATen/ops/cat_meta_dispatch.h>
#include <ATen/ops/eq_meta_dispatch.h>
#include <ATen/ops/mean_meta_dispatch.h>
#include <ATen/ops/mul_meta_dispatch.h>
#include <ATen/ops/sgn_meta_dispatch.h>
#include <ATen/ops/sigmoid_meta_dispatch.h>
#include <ATen/ops/sum_meta_dispatch.h>

#include <algorithm>
#include <unordered_map>

namespace torch_fl::glue {
namespace rules {

at::Tensor dense(at::IntArrayRef sizes, at::ScalarType dtype, at::MemoryFormat format) {
  return at::detail::empty_meta(sizes, dtype, at::kStrided, at::Device(c10::kMeta), false, format);
}

at::Tensor strided(at::IntArrayRef sizes, at::IntArrayRef strides, at::ScalarType dtype) {
  return at::detail::empty_strided_meta(sizes, strides, dtype, at::kStrided, at::Device(c10::kMeta), false);
}

at::Tensor like(const at::Tensor& t, at::ScalarType dtype) {
  if (t.is_non_overlapping_and_dense()) return strided(t.sizes(), t.strides(), dtype);
  return strided(t.sizes(), at::infer_dense_strides(t.sizes(), t.strides()), dtype);
}

at::Tensor suggested(const at::Tensor& t) { return dense(t.sizes(), t.scalar_type(), t.suggest_memory_format()); }

namespace {

at::Tensor retyped(const at::Tensor& meta, at::ScalarType dtype) {
  return strided(meta.sizes(), meta.strides(), dtype);
}

bool is_index(const at::Tensor& t) { return t.scalar_type() == at::kLong || t.scalar_type() == at::kInt; }

// ---- Element by element: a structured operator with the same TensorIterator stands in ---------------------------

at::Tensor unary(const at::Tensor& self) { return at::meta::sgn(self); }

bool activation(const RuleArgs& a, Outputs& o) { return is_floating(a.tensor(0)) && give(o, unary(a.tensor(0))); }

bool like_self(const RuleArgs& a, Outputs& o) { return give(o, like(a.tensor(0))); }

bool floating_like_self(const RuleArgs& a, Outputs& o) { return is_floating(a.tensor(0)) && like_self(a, o); }

bool to_bool(const RuleArgs& a, Outputs& o) { return give(o, retyped(unary(a.tensor(0)), at::kBool)); }

bool absolute(const RuleArgs& a, Outputs& o) {
  return give(o, retyped(unary(a.tensor(0)), c10::toRealValueType(a.tensor(0).scalar_type())));
}

bool logit(const RuleArgs& a, Outputs& o) {
  return !at::isComplexType(a.tensor(0).scalar_type()) && give(o, at::meta::sigmoid(a.tensor(0)));
}

bool relu(const RuleArgs& a, Outputs& o) {
  const auto dtype = a.tensor(0).scalar_type();
  return dtype != at::kBool && !at::isComplexType(dtype) && give(o, unary(a.tensor(0)));
}

bool binary(const RuleArgs& a, Outputs& o) {
  at::Tensor meta = at::meta::mul(a.tensor(0), a.tensor(1));
  return meta.scalar_type() != at::kBool && !at::isComplexType(meta.scalar_type()) && give(o, std::move(meta));
}

bool floating_binary(const RuleArgs& a, Outputs& o) {
  return is_floating(a.tensor(0)) && is_floating(a.tensor(1)) && binary(a, o);
}

bool logical(const RuleArgs& a, Outputs& o) { return give(o, at::meta::eq(a.tensor(0), a.tensor(1))); }

bool complex(const RuleArgs& a, Outputs& o) {
  const auto dtype = a.tensor(0).scalar_type();
  if (!is_floating(a.tensor(0)) || dtype == at::kBFloat16 || dtype != a.tensor(1).scalar_type()) return false;
  return give(o, retyped(at::meta::mul(a.tensor(0), a.tensor(1)), c10::toComplexType(dtype)));
}

bool where(const RuleArgs& a, Outputs& o) {
  if (a.tensor(0).scalar_type() != at::kBool) return false;
  at::native::ResultTypeState state{};
  for (uint32_t i : {1, 2}) state = at::native::update_result_type_state(a.tensor(i), state);
  const auto geometry = [&](uint32_t i) { return retyped(a.tensor(i), at::kFloat); };
  return give(o, retyped(at::meta::addcmul(geometry(0), geometry(1), geometry(2), 1), at::native::result_type(state)));
}

bool masked(const RuleArgs& a, Outputs& o, bool complex_value) {
  const at::Tensor &self = a.tensor(0), &mask = a.tensor(1);
  if (mask.scalar_type() != at::kBool || (complex_value && !at::isComplexType(self.scalar_type()))) return false;
  return give(o, dense(at::infer_size_dimvector(self.sizes(), mask.sizes()), self.scalar_type()));
}

bool masked_fill_scalar(const RuleArgs& a, Outputs& o) { return masked(a, o, a.scalar(2).isComplex()); }

bool masked_fill_tensor(const RuleArgs& a, Outputs& o) {
  return a.tensor(2).dim() == 0 && masked(a, o, a.tensor(2).is_complex());
}

// ---- Reductions -------------------------------------------------------------------------------------------------

at::Tensor reduced(const at::Tensor& self, at::OptionalIntArrayRef dims, bool keepdim, at::ScalarType dtype) {
  const auto mask = at::native::make_dim_mask(dims, self.dim());
  return dense(at::native::shape_from_dim_mask(self, mask, keepdim), dtype);
}

bool sum(const RuleArgs& a, Outputs& o) {
  return give(o, at::meta::sum(a.tensor(0), at::OptionalIntArrayRef(at::IntArrayRef()), false, a.dtype(1)));
}

bool mean(const RuleArgs& a, Outputs& o) {
  return give(o, at::meta::mean(a.tensor(0), at::OptionalIntArrayRef(at::IntArrayRef()), false, a.dtype(1)));
}

bool prod(const RuleArgs& a, Outputs& o) {
  return give(o, dense({}, at::native::get_dtype_from_self(a.tensor(0), a.dtype(1), true)));
}

bool extremum(const RuleArgs& a, Outputs& o) {
  const at::Tensor& self = a.tensor(0);
  return self.numel() > 0 && !self.is_complex() && give(o, dense({}, self.scalar_type()));
}

bool nansum(const RuleArgs& a, Outputs& o) {
  const at::Tensor& self = a.tensor(0);
  if (self.is_complex()) return false;
  const auto dtype = at::native::get_dtype_from_self(self, a.dtype(3), true);
  return give(o, reduced(self, a.optional_ints(1), a.flag(2), dtype));
}

// `together` is the form that returns the mean as well.
bool spread(const RuleArgs& a, Outputs& o, bool together) {
  const at::Tensor& self = a.tensor(0);
  if (!is_floating(self) && !self.is_complex()) return false;
  const auto dims = a.optional_ints(1);
  o.push_back(reduced(self, dims, a.flag(3), c10::toRealValueType(self.scalar_type())));
  if (together) o.push_back(reduced(self, dims, a.flag(3), self.scalar_type()));
  return true;
}

bool variance(const RuleArgs& a, Outputs& o) { return spread(a, o, false); }
bool variance_and_mean(const RuleArgs& a, Outputs& o) { return spread(a, o, true); }

bool logsumexp(const RuleArgs& a, Outputs& o) {
  const at::Tensor& self = a.tensor(0);
  return is_floating(self) && give(o, reduced(self, a.ints(1), a.flag(2), self.scalar_type()));
}

bool count_nonzero(const RuleArgs& a, Outputs& o) {
  const auto dim = a.optional_integer(1);
  const auto dims = dim.has_value() ? at::OptionalIntArrayRef(*dim) : std::nullopt;
  return give(o, reduced(a.tensor(0), dims, false, at::kLong));
}

bool count_nonzero_dims(const RuleArgs& a, Outputs& o) {
  return give(o, reduced(a.tensor(0), a.ints(1), false, at::kLong));
}

// A value of each line along a dimension, and its place.
bool chosen(const RuleArgs& a, Outputs& o, uint32_t dim_argument) {
  const at::Tensor& self = a.tensor(0);
  const at::ScalarType type = self.scalar_type();
  if (self.is_complex() || type == at::kBool || c10::isBarebonesUnsignedType(type) || self.numel() == 0) return false;
  const int64_t dim = at::maybe_wrap_dim(a.integer(dim_argument), self.dim());
  o.push_back(reduced(self, at::OptionalIntArrayRef(dim), a.flag(dim_argument + 1), type));
  o.push_back(reduced(self, at::OptionalIntArrayRef(dim), a.flag(dim_argument + 1), at::kLong));
  return true;
}

bool median(const RuleArgs& a, Outputs& o) { return chosen(a, o, 1); }
bool kth_value(const RuleArgs& a, Outputs& o) {
  const at::Tensor& self = a.tensor(0);
  const int64_t size = self.dim() == 0 ? 1 : self.size(at::maybe_wrap_dim(a.integer(2), self.dim()));
  return a.integer(1) >= 1 && a.integer(1) <= size && chosen(a, o, 2);
}

bool running_extremum(const RuleArgs& a, Outputs& o) {
  const at::Tensor& self = a.tensor(0);
  if (self.is_complex()) return false;
  at::maybe_wrap_dim(a.integer(1), self.dim());
  o.push_back(dense(self.sizes(), self.scalar_type()));
  o.push_back(dense(self.sizes(), at::kLong));
  return true;
}

bool logcumsumexp(const RuleArgs& a, Outputs& o) {
  at::maybe_wrap_dim(a.integer(1), a.tensor(0).dim());
  return is_floating(a.tensor(0)) && give(o, dense(a.tensor(0).sizes(), a.tensor(0).scalar_type()));
}

// ---- Products ---------------------------------------------------------------------------------------------------

bool dot(const RuleArgs& a, Outputs& o) {
  const at::Tensor &x = a.tensor(0), &y = a.tensor(1);
  const bool fits = x.dim() == 1 && x.sizes() == y.sizes() && x.scalar_type() == y.scalar_type();
  return fits && give(o, dense({}, x.scalar_type()));
}

bool matrix_vector(const RuleArgs& a, Outputs& o) {
  const at::Tensor &m = a.tensor(0), &v = a.tensor(1);
  const bool fits = m.dim() == 2 && v.dim() == 1 && m.size(1) == v.size(0) && m.scalar_type() == v.scalar_type();
  return fits && give(o, dense({m.size(0)}, v.scalar_type()));
}

bool outer_product(const RuleArgs& a, Outputs& o) {
  const at::Tensor &self = a.tensor(0), &rows = a.tensor(1), &columns = a.tensor(2);
  if (rows.dim() != 1 || columns.dim() != 1 || !is_floating(self)) return false;
  if (rows.scalar_type() != self.scalar_type() || columns.scalar_type() != self.scalar_type()) return false;
  const std::array<int64_t, 2> sizes{rows.size(0), columns.size(0)};
  if (!at::is_expandable_to(self.sizes(), sizes) || a.scalar(3).isComplex() || a.scalar(4).isComplex()) return false;
  const auto described = [&](const at::Tensor& t) { return retyped(t, self.scalar_type()); };
  const at::Tensor column = strided({rows.size(0), 1}, {rows.stride(0), 1}, self.scalar_type());
  return give(o, at::meta::addcmul(described(self), column, described(columns), 1));
}

// ---- Indexing and moving ----------------------------------------------------------------------------------------

bool index_select(const RuleArgs& a, Outputs& o) {
  const at::Tensor &self = a.tensor(0), &index = a.tensor(2);
  const int64_t dim = at::maybe_wrap_dim(a.integer(1), self.dim());
  if (index.dim() > 1 || !is_index(index) || (self.dim() == 0 && index.numel() != 1)) return false;
  at::DimVector sizes(self.sizes());
  if (self.dim() > 0) sizes[static_cast<size_t>(dim)] = index.numel();
  return give(o, dense(sizes, self.scalar_type()));
}

bool index_fill(const RuleArgs& a, Outputs& o) {
  const at::Tensor &self = a.tensor(0), &index = a.tensor(2);
  at::maybe_wrap_dim(a.integer(1), self.dim());
  if (index.dim() > 1 || index.scalar_type() != at::kLong) return false;
  return !(a.scalar(3).isComplex() && !self.is_complex()) && give(o, like(self));
}

// PyTorch's own C++ rule compares slices of a meta tensor with those of the arguments, which live elsewhere.
bool index_add(const RuleArgs& a, Outputs& o) {
  const at::Tensor &self = a.tensor(0), &index = a.tensor(2), &source = a.tensor(3);
  const int64_t dim = at::maybe_wrap_dim(a.integer(1), self.dim());
  if (index.dim() > 1 || !is_index(index) || source.scalar_type() != self.scalar_type()) return false;
  if (source.dim() != self.dim() || self.dim() == 0) return false;
  for (int64_t d = 0; d < self.dim(); ++d) {
    if (source.size(d) != (d == dim ? index.numel() : self.size(d))) return false;
  }
  return give(o, dense(self.sizes(), self.scalar_type()));
}
bool index_add_scaled(const RuleArgs& a, Outputs& o) {
  const at::ScalarType type = a.tensor(0).scalar_type();
  return at::canCast(a.scalar(4).type(), type) && (!a.scalar(4).isBoolean() || type == at::kBool) && index_add(a, o);
}

bool unpool_2d(const RuleArgs& a, Outputs& o) {
  const at::Tensor &self = a.tensor(0), &indices = a.tensor(1);
  const auto planes = a.ints(2);
  if ((self.dim() != 3 && self.dim() != 4) || planes.size() != 2 || self.numel() == 0) return false;
  if (indices.scalar_type() != at::kLong || indices.sizes() != self.sizes() || planes[0] < 1 || planes[1] < 1)
    return false;
  at::DimVector sizes(self.sizes().slice(0, static_cast<size_t>(self.dim()) - 2));
  sizes.append(planes.begin(), planes.end());
  return give(o, dense(sizes, self.scalar_type(), self.suggest_memory_format()));
}

bool embedding(const RuleArgs& a, Outputs& o) {
  const at::Tensor &weight = a.tensor(0), &indices = a.tensor(1);
  if (weight.dim() != 2 || !is_index(indices)) return false;
  at::DimVector sizes(indices.sizes());
  sizes.push_back(weight.size(1));
  return give(o, dense(sizes, weight.scalar_type()));
}

bool embedding_backward(const RuleArgs& a, Outputs& o) {
  const at::Tensor &grad = a.tensor(0), &indices = a.tensor(1);
  if (grad.dim() < 1 || !is_index(indices)) return false;
  return give(o, dense({a.integer(2), grad.size(-1)}, grad.scalar_type()));
}

bool take(const RuleArgs& a, Outputs& o) {
  const at::Tensor &self = a.tensor(0), &index = a.tensor(1);
  if (index.scalar_type() != at::kLong || (self.numel() == 0 && index.numel() != 0)) return false;
  return give(o, dense(index.sizes(), self.scalar_type()));
}

bool flip(const RuleArgs& a, Outputs& o) {
  at::dim_list_to_bitset(a.ints(1), a.tensor(0).dim());  // refuses what is out of range or twice there
  return like_self(a, o);
}

// PyTorch joins two slices. Which layout that gives depends on theirs, so the slices are described and joined.
at::Tensor rolled(const at::Tensor& self, int64_t shift, int64_t dim) {
  dim = at::maybe_wrap_dim(dim, self.dim());
  const int64_t size = self.size(dim);
  const int64_t start = ((size - shift) % size + size) % size;
  const auto slice = [&](int64_t length) {
    at::DimVector sizes(self.sizes());
    sizes[static_cast<size_t>(dim)] = length;
    return strided(sizes, self.strides(), self.scalar_type());
  };
  return at::meta::cat(std::vector<at::Tensor>{slice(size - start), slice(start)}, dim);
}

bool roll(const RuleArgs& a, Outputs& o) {
  const at::Tensor& self = a.tensor(0);
  const auto shifts = a.ints(1), dims = a.ints(2);
  if (dims.size() != shifts.size() || dims.empty()) {
    return dims.empty() && shifts.size() == 1 && self.numel() > 0 && give(o, dense(self.sizes(), self.scalar_type()));
  }
  if (self.numel() == 0) return false;
  at::Tensor meta = self;
  for (size_t i = 0; i < dims.size(); ++i) meta = rolled(meta, shifts[i], dims[i]);
  return give(o, std::move(meta));
}

bool repeat(const RuleArgs& a, Outputs& o) {
  const at::Tensor& self = a.tensor(0);
  const auto repeats = a.ints(1);
  const auto dim = static_cast<size_t>(self.dim());
  if (repeats.size() < dim) return false;
  at::DimVector sizes(repeats);
  for (size_t i = 0; i < dim; ++i) sizes[repeats.size() - dim + i] *= self.size(static_cast<int64_t>(i));
  return give(o, dense(sizes, self.scalar_type()));
}

// PyTorch's own rule lays the places out by columns, as another backend's kernel does.
bool nonzero_static(const RuleArgs& a, Outputs& o) {
  const int64_t size = a.integer(1);
  return size >= 0 && give(o, dense({size, a.tensor(0).dim()}, at::kLong));
}

// ---- Fourier transforms ------------------------------------------------------------------------------------------

// With MKL the transformed dimensions come out innermost, in order; around them what stays, by the input's strides.
at::Tensor transformed(const at::Tensor& self, const at::DimVector& dims, at::IntArrayRef sizes, at::ScalarType dtype) {
  if (!at::hasMKL()) return dense(sizes, dtype);
  at::DimVector order;
  for (int64_t d = 0; d < self.dim(); ++d) {
    if (std::find(dims.begin(), dims.end(), d) == dims.end()) order.push_back(d);
  }
  std::stable_sort(order.begin(), order.end(), [&](int64_t a, int64_t b) { return self.stride(a) > self.stride(b); });
  order.append(dims.begin(), dims.end());
  at::DimVector strides(sizes.size());
  int64_t next = 1;
  for (size_t i = order.size(); i-- > 0;) {
    strides[static_cast<size_t>(order[i])] = next;
    next *= std::max<int64_t>(sizes[static_cast<size_t>(order[i])], 1);
  }
  return strided(sizes, strides, dtype);
}

at::DimVector wrapped_dims(const at::Tensor& self, at::IntArrayRef dims) {
  at::DimVector result;
  for (int64_t d : dims) result.push_back(at::maybe_wrap_dim(d, self.dim()));
  return result;
}

void sort_by_stride(const at::Tensor& self, at::DimVector& dims, int64_t most) {
  std::stable_sort(dims.begin(), dims.begin() + most,
                   [&](int64_t a, int64_t b) { return self.stride(a) > self.stride(b); });
}

at::Tensor complex_transformed(const at::Tensor& self, at::DimVector dims) {
  sort_by_stride(self, dims, static_cast<int64_t>(dims.size()));
  return transformed(self, dims, self.sizes(), self.scalar_type());
}

bool fft_c2c(const RuleArgs& a, Outputs& o) {
  const at::Tensor& self = a.tensor(0);
  if (!self.is_complex() || a.ints(1).empty()) return false;
  return give(o, complex_transformed(self, wrapped_dims(self, a.ints(1))));
}

bool fft_r2c(const RuleArgs& a, Outputs& o) {
  const at::Tensor& self = a.tensor(0);
  if (!is_floating(self) || a.ints(1).empty()) return false;
  at::DimVector dims = wrapped_dims(self, a.ints(1)), sizes(self.sizes());
  if (a.flag(3)) sizes[static_cast<size_t>(dims.back())] = sizes[static_cast<size_t>(dims.back())] / 2 + 1;
  sort_by_stride(self, dims, static_cast<int64_t>(dims.size()) - 1);
  return give(o, transformed(self, dims, sizes, c10::toComplexType(self.scalar_type())));
}

bool fft_c2r(const RuleArgs& a, Outputs& o) {
  const at::Tensor& self = a.tensor(0);
  if (!self.is_complex() || a.ints(1).empty()) return false;
  at::DimVector dims = wrapped_dims(self, a.ints(1)), sizes(self.sizes());
  const int64_t last = dims.back();
  dims.pop_back();
  const at::Tensor before = dims.empty() ? self : complex_transformed(self, dims);
  sizes[static_cast<size_t>(last)] = a.integer(3);
  return give(o, transformed(before, {last}, sizes, c10::toRealValueType(self.scalar_type())));
}

// ---- Factories: reached through their out= forms, which have no dtype argument ----------------------------------

bool sequence(const RuleArgs& a, Outputs& o, int64_t length) {
  return length >= 0 && a.last().defined() && give(o, dense({length}, a.last().scalar_type()));
}

bool arange(const RuleArgs& a, Outputs& o) {
  if (!a.last().defined()) return false;
  const bool exact = a.last().scalar_type() == at::kLong;
  const auto length = exact ? &at::native::compute_arange_size<int64_t> : &at::native::compute_arange_size<double>;
  return sequence(a, o, length(a.scalar(0), a.scalar(1), a.scalar(2)));
}

bool linspace(const RuleArgs& a, Outputs& o) { return sequence(a, o, a.integer(2)); }

bool identity(const RuleArgs& a, Outputs& o, int64_t rows, int64_t columns) {
  if (rows < 0 || columns < 0 || !a.last().defined()) return false;
  return give(o, dense({rows, columns}, a.last().scalar_type()));
}

bool eye(const RuleArgs& a, Outputs& o) { return identity(a, o, a.integer(0), a.integer(0)); }
bool eye_rectangular(const RuleArgs& a, Outputs& o) { return identity(a, o, a.integer(0), a.integer(1)); }

/// PyTorch's own meta function says {0}; its CPU kernel gives what a number is in: one answer.
bool number_in_tensor(const RuleArgs&, Outputs& o) { return give(o, dense({}, at::kBool)); }

constexpr ShapeRuleRow kRows[] = {
    // element by element
    {"aten::__lshift__.Tensor", binary},
    {"aten::__rshift__.Tensor", binary},
    {"aten::abs", absolute},
    {"aten::complex", complex},
    {"aten::floor_divide", binary},
    {"aten::hardswish", activation},
    {"aten::hardswish_backward", floating_binary},
    {"aten::hardtanh", floating_like_self},
    {"aten::hardtanh_backward", floating_binary},
    {"aten::isinf", to_bool},
    {"aten::isnan", to_bool},
    {"aten::logical_and", logical},
    {"aten::logical_not", to_bool},
    {"aten::logical_or", logical},
    {"aten::logical_xor", logical},
    {"aten::logit", logit},
    {"aten::masked_fill.Scalar", masked_fill_scalar},
    {"aten::masked_fill.Tensor", masked_fill_tensor},
    {"aten::nan_to_num", like_self},
    {"aten::relu", relu},
    {"aten::where.self", where},
    // reductions and scans
    {"aten::count_nonzero", count_nonzero},
    {"aten::count_nonzero.dim_IntList", count_nonzero_dims},
    {"aten::cummax", running_extremum},
    {"aten::cummin", running_extremum},
    {"aten::kthvalue", kth_value},
    {"aten::logcumsumexp", logcumsumexp},
    {"aten::logsumexp", logsumexp},
    {"aten::max", extremum},
    {"aten::mean", mean},
    {"aten::median.dim", median},
    {"aten::min", extremum},
    {"aten::nanmedian.dim", median},
    {"aten::nansum", nansum},
    {"aten::prod", prod},
    {"aten::std.correction", variance},
    {"aten::std_mean.correction", variance_and_mean},
    {"aten::sum", sum},
    {"aten::var.correction", variance},
    {"aten::var_mean.correction", variance_and_mean},
    // products
    {"aten::addr", outer_product},
    {"aten::dot", dot},
    {"aten::mv", matrix_vector},
    // Fourier transforms
    {"aten::_fft_c2c", fft_c2c},
    {"aten::_fft_c2r", fft_c2r},
    {"aten::_fft_r2c", fft_r2c},
    // indexing and moving
    {"aten::embedding", embedding},
    {"aten::embedding_dense_backward", embedding_backward},
    {"aten::flip", flip},
    {"aten::index_add", index_add_scaled},
    {"aten::index_fill.int_Scalar", index_fill},
    {"aten::index_reduce", index_add},
    {"aten::index_select", index_select},
    {"aten::isin.Scalar_Tensor", number_in_tensor},
    {"aten::max_unpool2d", unpool_2d},
    {"aten::nonzero_static", nonzero_static},
    {"aten::repeat", repeat},
    {"aten::roll", roll},
    {"aten::take", take},
    // factories
    {"aten::arange.start_step", arange},
    {"aten::eye", eye},
    {"aten::eye.m", eye_rectangular},
    {"aten::linspace", linspace},
};

}  // namespace
}  // namespace rules

namespace {

const std::unordered_map<std::string, ShapeRule>& table() {
  static const auto& map = *[] {
    auto* made = new std::unordered_map<std::string, ShapeRule>();
    for (const auto& row : rules::kRows) made->emplace(row.op, row.rule);
    for (const auto& row : rules::network_rules()) made->emplace(row.op, row.rule);
    for (const auto& row : rules::linalg_rules()) made->emplace(row.op, row.rule);
    return made;
  }();
  return map;
}

}  // namespace

ShapeRule find_shape_rule(const std::string& op) {
  const auto found = table().find(op);
  return found == table().end() ? nullptr : found->second;
}

std::vector<std::string> shape_rule_names() {
  std::vector<std::string> names;
  for (const auto& [op, rule] : table()) names.push_back(op);
  return names;
}

}  // namespace torch_fl::glue
