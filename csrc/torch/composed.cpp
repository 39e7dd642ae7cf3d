// SPDX-License-Identifier: Apache-2.0
// Operators whose results depend on values that the host has to read, composed of others that chips have kernels for:
// equality, unique elements, histograms; and one for which PyTorch has no operator that a chip could take over: Kaiser
// windows. Where a chip lacks those, the CPU does the whole operator.
#include <ATen/Operators.h>
#include <ATen/native/Histogram.h>
#include <ATen/native/UnaryOps.h>
#include <ATen/ops/_histogramdd_bin_edges_native.h>
#include <ATen/ops/_histogramdd_from_bin_cts_native.h>
#include <ATen/ops/_histogramdd_from_bin_tensors_native.h>
#include <ATen/ops/histogram_native.h>
#include <torch/library.h>

#include <algorithm>
#include <cmath>

#include "router.h"
#include "trampoline.h"

namespace torch_fl::glue {
namespace {

using at::Tensor;

bool chip_has(const Tensor& t, std::initializer_list<const char*> ops) {
  if (t.device().type() != c10::kPrivateUse1) return false;
  const runtime::Chip& chip = runtime_device(t).chip;
  return std::all_of(ops.begin(), ops.end(), [&](const char* op) { return has_kernel(chip, op); });
}

// Of the real types that kernels compare: not the 8-bit floating-point ones, nor the wider unsigned ones.
bool is_ordered(at::ScalarType type) {
  return (at::isIntegralType(type, true) && !c10::isBarebonesUnsignedType(type)) ||
         (at::isFloatingType(type) && c10::elementSize(type) > 1);
}

// ---- Equality ---------------------------------------------------------------------------------------------------

bool equal(const Tensor& self, const Tensor& other) {
  const bool known = chip_has(self, {"aten::eq.Tensor", "aten::all"}) && self.device() == other.device() &&
                     (is_ordered(self.scalar_type()) || self.is_complex()) &&
                     (is_ordered(other.scalar_type()) || other.is_complex());
  if (!known) return Trampoline<at::_ops::equal, NoMeta>::call(self, other);
  return self.sizes() == other.sizes() && (self.numel() == 0 || at::eq(self, other).all().item<bool>());
}

// ---- Unique elements --------------------------------------------------------------------------------------------

using Three = std::tuple<Tensor, Tensor, Tensor>;

bool finds_unique(const Tensor& self) {
  return is_ordered(self.scalar_type()) &&
         chip_has(self, {"aten::sort.stable", "aten::ne.Tensor", "aten::cumsum", "aten::nonzero", "aten::scatter.src",
                         "aten::index_select", "aten::cat"});
}

// Whether each row (along dimension 0) differs from the one before it; the first does.
Tensor starts_of(const Tensor& rows) {
  const int64_t n = rows.size(0);
  Tensor differ = at::ne(rows.narrow(0, 1, n - 1), rows.narrow(0, 0, n - 1));
  return at::cat({at::ones_like(rows.narrow(0, 0, 1), rows.options().dtype(at::kBool)), differ});
}

std::tuple<Tensor, Tensor> sorted_stably(const Tensor& columns) {
  return at::sort(columns, std::optional<bool>(true), 0, /*descending=*/false);
}

struct Ranks {
  Tensor order;  ///< the sorted rows' places
  Tensor ranks;  ///< of each row among the different ones, in its own place
};

// Of each column by itself; of one line, where there is one.
Ranks ranks_of(const Tensor& columns) {
  auto [sorted, order] = sorted_stably(columns);
  const Tensor numbers = starts_of(sorted).cumsum(0).sub_(1);
  return {order, at::empty_like(numbers).scatter_(0, order, numbers)};
}

// Rows in their order: neighbouring columns become one of pairs' ranks, until one is left.
Ranks ranks_of_rows(const Tensor& rows) {
  const int64_t n = rows.size(0);
  Ranks found = ranks_of(rows);
  while (found.ranks.size(1) > 1) {
    const int64_t m = found.ranks.size(1);
    const Tensor pairs = at::constant_pad_nd(found.ranks, {0, m % 2}).view({n, (m + 1) / 2, 2});
    found = ranks_of(pairs.select(2, 0) * n + pairs.select(2, 1));
  }
  return {found.order.view({n}), found.ranks.view({n})};
}

struct Runs {
  Tensor first;   ///< where each begins, in sorted order
  Tensor counts;  ///< how long each is; undefined unless wanted
};

// Waits.
Runs runs_of(const Tensor& starts, bool wants_counts) {
  Runs runs{at::nonzero(starts).select(1, 0), {}};
  if (wants_counts)
    runs.counts = at::cat({runs.first.slice(0, 1), at::full({1}, starts.size(0), runs.first.options())}) - runs.first;
  return runs;
}

Tensor no_numbers(const Tensor& self) { return at::empty({0}, self.options().dtype(at::kLong)); }

// Of all elements, which are sorted unless only neighbours count.
Three unique_elements(const Tensor& self, bool consecutive, bool inverse, bool counts) {
  if (self.numel() == 0) {
    return {at::empty({0}, self.options()),
            inverse ? at::empty(self.sizes(), self.options().dtype(at::kLong)) : no_numbers(self), no_numbers(self)};
  }
  const Tensor line = self.reshape({-1});
  Tensor sorted = line, order;
  if (!consecutive) std::tie(sorted, order) = sorted_stably(line);
  const Tensor starts = starts_of(sorted);
  const Runs runs = runs_of(starts, counts);
  Tensor places = no_numbers(self);
  if (inverse) {
    places = starts.cumsum(0).sub_(1);
    if (!consecutive) places = at::empty_like(places).scatter_(0, order, places);
    places = places.view(self.sizes());
  }
  return {sorted.index_select(0, runs.first), places, counts ? runs.counts : no_numbers(self)};
}

// Of slices along a dimension. All three results, as on the CPU, whatever was asked for.
Three unique_slices(const Tensor& self, int64_t dim, bool consecutive) {
  const auto empty_sizes = std::count(self.sizes().begin(), self.sizes().end(), 0);
  if (self.size(dim) == 0) {
    TORCH_CHECK(empty_sizes == 1, "Number of zero sized dimensions is more than one, so unique cannot be applied ");
    return {at::empty(self.sizes(), self.options()), no_numbers(self), no_numbers(self)};
  }
  TORCH_CHECK(empty_sizes == 0, "There are 0 sized dimensions, and they aren't selected, so unique cannot be applied");
  const Tensor slices = self.moveaxis(dim, 0).contiguous();
  const Tensor rows = slices.view({slices.size(0), -1});
  Tensor starts, order, places;
  if (consecutive) {
    starts = starts_of(rows).any(1);
    places = starts.cumsum(0).sub_(1);
  } else {
    const Ranks found = ranks_of_rows(rows);
    order = found.order;
    places = found.ranks;
    starts = starts_of(places.index_select(0, order));
  }
  const Runs runs = runs_of(starts, true);
  const Tensor chosen = consecutive ? runs.first : order.index_select(0, runs.first);
  return {slices.index_select(0, chosen).moveaxis(0, dim), places, runs.counts};
}

Three unique2(const Tensor& self, bool sorted, bool inverse, bool counts) {
  if (!finds_unique(self)) return Trampoline<at::_ops::_unique2, NoMeta>::call(self, sorted, inverse, counts);
  return unique_elements(self, false, inverse, counts);
}

std::tuple<Tensor, Tensor> unique(const Tensor& self, bool sorted, bool inverse) {
  if (!finds_unique(self)) return Trampoline<at::_ops::_unique, NoMeta>::call(self, sorted, inverse);
  auto [elements, places, none] = unique_elements(self, false, inverse, false);
  return {elements, places};
}

Three unique_dim(const Tensor& self, int64_t dim, bool sorted, bool inverse, bool counts) {
  if (!finds_unique(self)) return Trampoline<at::_ops::unique_dim, NoMeta>::call(self, dim, sorted, inverse, counts);
  return unique_slices(self, dim, false);
}

Three unique_dim_consecutive(const Tensor& self, int64_t dim, bool inverse, bool counts) {
  if (!finds_unique(self)) {
    return Trampoline<at::_ops::unique_dim_consecutive, NoMeta>::call(self, dim, inverse, counts);
  }
  return unique_slices(self, dim, true);
}

Three unique_consecutive(const Tensor& self, bool inverse, bool counts, std::optional<int64_t> dim) {
  if (!finds_unique(self)) {
    return Trampoline<at::_ops::unique_consecutive, NoMeta>::call(self, inverse, counts, dim);
  }
  if (dim.has_value() && !(*dim == 0 && self.dim() == 1)) return unique_slices(self, *dim, true);
  return unique_elements(self, true, inverse, counts);
}

// ---- Histograms -------------------------------------------------------------------------------------------------
// PyTorch checks, resizes and makes the edges; what it asks of a backend is the three functions behind its stubs.

bool counts_bins(const Tensor& self) {
  return is_ordered(self.scalar_type()) && at::isFloatingType(self.scalar_type()) &&
         chip_has(self, {"aten::searchsorted.Tensor", "aten::scatter_add", "aten::amin", "aten::linspace"});
}

void outer_edges(const Tensor& points, const int64_t n, std::vector<double>& left, std::vector<double>& right) {
  const Tensor ends = at::stack({points.amin(0), points.amax(0)}).to(at::kCPU, at::kDouble);
  for (int64_t dim = 0; dim < n; ++dim) {
    left[static_cast<size_t>(dim)] = ends[0][dim].item<double>();
    right[static_cast<size_t>(dim)] = ends[1][dim].item<double>();
  }
}

void count_bins(const Tensor& self, const std::optional<Tensor>& weight, bool density, Tensor& hist,
                const at::TensorList& edges) {
  const int64_t n = self.size(-1);
  hist.zero_();
  if (n > 0 && self.numel() > 0) {
    const Tensor points = self.reshape({-1, n});
    Tensor bin, inside;  // the place of each point, and whether it has one
    for (int64_t dim = 0; dim < n; ++dim) {
      const Tensor line = edges[static_cast<size_t>(dim)].contiguous(), x = points.select(1, dim).contiguous();
      const Tensor within = x.ge(line.select(0, 0)).logical_and_(x.le(line.select(0, -1)));
      const Tensor place = at::searchsorted(line, x, false, /*right=*/true).sub_(1).clamp_(0, hist.size(dim) - 1);
      bin = bin.defined() ? bin.mul_(hist.size(dim)).add_(place) : place;
      inside = inside.defined() ? inside.logical_and_(within) : within;
    }
    const Tensor each = weight.has_value() ? weight->reshape({-1}) : at::ones({points.size(0)}, self.options());
    const Tensor counted = at::where(inside, each, at::zeros({}, self.options()));
    hist.copy_(at::zeros({hist.numel()}, hist.options()).scatter_add_(0, bin, counted).view(hist.sizes()));
  }
  if (!density) return;
  hist.div_(hist.sum());
  for (int64_t dim = 0; dim < n; ++dim) {
    const Tensor lengths = edges[static_cast<size_t>(dim)].diff();
    std::vector<int64_t> shape(static_cast<size_t>(n), 1);
    shape[static_cast<size_t>(dim)] = lengths.numel();
    hist.div_(lengths.reshape(shape));
  }
}

void count_even_bins(const Tensor& self, const std::optional<Tensor>& weight, bool density, Tensor& hist,
                     const at::TensorList& edges, bool /*exact*/) {
  count_bins(self, weight, density, hist, edges);
}

// `native` is PyTorch's own function over those three, on the tensors of the chip.
template <class Op, auto native, class Schema = typename Op::schema>
struct Histogram;
template <class Op, auto native, class R, class... A>
struct Histogram<Op, native, R(A...)> {
  static R call(A... a) {
    const Tensor& self = std::get<0>(std::tie(a...));
    return counts_bins(self) ? native(a...) : Trampoline<Op, NoMeta>::call(a...);
  }
};

// An empty range stands for that of the elements, which the kernel is told.
std::optional<std::pair<double, double>> range_of(const Tensor& self, const at::Scalar& min, const at::Scalar& max) {
  const bool wanted = is_ordered(self.scalar_type()) && at::isFloatingType(self.scalar_type()) && self.numel() > 0 &&
                      !min.isComplex() && !max.isComplex() && min.toDouble() == max.toDouble();
  if (!wanted || !chip_has(self, {"aten::histc", "aten::aminmax"})) return std::nullopt;
  auto [low, high] = at::aminmax(self);
  const Tensor ends = at::stack({low, high}).to(at::kCPU, at::kDouble);
  std::pair<double, double> range{ends[0].item<double>(), ends[1].item<double>()};
  if (!std::isfinite(range.first) || !std::isfinite(range.second)) return std::nullopt;  // the CPU raises
  if (range.first == range.second) return std::pair{range.first - 1, range.second + 1};
  return range;
}

Tensor histc(const Tensor& self, int64_t bins, const at::Scalar& min, const at::Scalar& max) {
  const auto range = range_of(self, min, max);
  return Trampoline<at::_ops::histc, NoMeta>::call(self, bins, range ? at::Scalar(range->first) : min,
                                                   range ? at::Scalar(range->second) : max);
}

Tensor& histc_out(const Tensor& self, int64_t bins, const at::Scalar& min, const at::Scalar& max, Tensor& out) {
  const auto range = range_of(self, min, max);
  return Trampoline<at::_ops::histc_out, NoMeta>::call(self, bins, range ? at::Scalar(range->first) : min,
                                                       range ? at::Scalar(range->second) : max, out);
}

// ---- Windows ----------------------------------------------------------------------------------------------------

// I0(beta sqrt(1 - t^2)) / I0(beta) for t from -1 to 1 (J. F. Kaiser, 1966); what is given are 0, 1, ...
void kaiser_window(at::TensorIteratorBase& iterator, int64_t length, double beta) {
  const Tensor& window = iterator.output(0);
  const bool narrow = c10::elementSize(window.scalar_type()) < sizeof(float);
  const Tensor places = iterator.input(0).to(narrow ? at::kFloat : window.scalar_type());
  const Tensor t = places * (2.0 / static_cast<double>(length - 1)) - 1.0;
  const double highest = at::i0(at::scalar_tensor(beta, at::kDouble)).item<double>();
  window.copy_(at::i0((1.0 - t * t).clamp_min(0.0).sqrt() * beta) / highest);
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  namespace ops = at::_ops;
  namespace native = at::native;
  m.impl("equal", TORCH_FN(equal));
  m.impl("_unique", TORCH_FN(unique));
  m.impl("_unique2", TORCH_FN(unique2));
  m.impl("unique_dim", TORCH_FN(unique_dim));
  m.impl("unique_dim_consecutive", TORCH_FN(unique_dim_consecutive));
  m.impl("unique_consecutive", TORCH_FN(unique_consecutive));
  m.impl("histc", TORCH_FN(histc));
  m.impl("histc.out", TORCH_FN(histc_out));
#define FL_HISTOGRAM(name, op, function) \
  m.impl(name, TORCH_FN((Histogram<ops::op, static_cast<ops::op::schema*>(&native::function)>::call)))
  FL_HISTOGRAM("histogram.bin_ct", histogram_bin_ct, histogram);
  FL_HISTOGRAM("histogram.bin_ct_out", histogram_bin_ct_out, histogram_out);
  FL_HISTOGRAM("histogram.bins_tensor", histogram_bins_tensor, histogram);
  FL_HISTOGRAM("histogram.bins_tensor_out", histogram_bins_tensor_out, histogram_out);
  FL_HISTOGRAM("_histogramdd_bin_edges", _histogramdd_bin_edges, histogramdd_bin_edges);
  FL_HISTOGRAM("_histogramdd_from_bin_cts", _histogramdd_from_bin_cts, _histogramdd);
  FL_HISTOGRAM("_histogramdd_from_bin_tensors", _histogramdd_from_bin_tensors, _histogramdd);
#undef FL_HISTOGRAM
}

}  // namespace
}  // namespace torch_fl::glue

namespace at::native {
REGISTER_PRIVATEUSE1_DISPATCH(histogramdd_stub, &torch_fl::glue::count_bins)
REGISTER_PRIVATEUSE1_DISPATCH(histogramdd_linear_stub, &torch_fl::glue::count_even_bins)
REGISTER_PRIVATEUSE1_DISPATCH(histogram_select_outer_bin_edges_stub, &torch_fl::glue::outer_edges)
REGISTER_PRIVATEUSE1_DISPATCH(kaiser_window_stub, &torch_fl::glue::kaiser_window)
}  // namespace at::native
