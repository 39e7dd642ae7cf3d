// SPDX-License-Identifier: Apache-2.0
// Shape rules of linear algebra that has no shape inference in PyTorch, not even in Python.
#include "shape_rules.h"

namespace torch_fl::glue::rules {
namespace {

bool is_lapack(const at::Tensor& t) { return is_floating(t) && t.element_size() >= 4; }

/// Matrices stored by columns. `tall`: rows that memory has, where more than are shown.
at::Tensor by_columns(at::IntArrayRef batch, int64_t rows, int64_t columns, int64_t tall, at::ScalarType dtype) {
  std::vector<int64_t> sizes = batch.vec(), strides(batch.size());
  int64_t stride = std::max<int64_t>(tall, 1) * std::max<int64_t>(columns, 1);
  for (size_t d = batch.size(); d-- > 0;) {
    strides[d] = stride;
    stride *= std::max<int64_t>(batch[d], 1);
  }
  for (const int64_t size : {rows, columns}) sizes.push_back(size);
  for (const int64_t step : {int64_t{1}, std::max<int64_t>(tall, 1)}) strides.push_back(step);
  return strided(sizes, strides, dtype);
}

bool geqrf(const RuleArgs& a, Outputs& o) {
  const at::Tensor& self = a.tensor(0);
  if (self.dim() < 2 || !is_lapack(self)) return false;
  const int64_t m = self.size(-2), n = self.size(-1);
  const at::IntArrayRef batch = self.sizes().slice(0, static_cast<size_t>(self.dim() - 2));
  std::vector<int64_t> tau = batch.vec();
  tau.push_back(std::min(m, n));
  give(o, by_columns(batch, m, n, m, self.scalar_type()));
  return give(o, dense(tau, self.scalar_type()));
}

bool eigenvalues(const RuleArgs& a, Outputs& o) {
  const at::Tensor& self = a.tensor(0);
  if (self.dim() < 2 || !is_lapack(self) || self.size(-1) != self.size(-2)) return false;
  return give(
      o, dense(self.sizes().slice(0, static_cast<size_t>(self.dim() - 1)), c10::toComplexType(self.scalar_type())));
}

bool eig(const RuleArgs& a, Outputs& o) {
  if (!eigenvalues(a, o)) return false;
  const at::Tensor& self = a.tensor(0);
  const int64_t n = self.size(-1);
  const at::IntArrayRef batch = self.sizes().slice(0, static_cast<size_t>(self.dim() - 2));
  return give(o, by_columns(batch, n, n, n, c10::toComplexType(self.scalar_type())));
}

// With these two drivers there are no residuals where a matrix has not full rank: the values decide.
bool depends_on_rank(std::string_view driver) { return driver == "gelss" || driver == "gelsd"; }

bool lstsq(const RuleArgs& a, Outputs& o) {
  const at::Tensor &self = a.tensor(0), &b = a.tensor(1);
  const std::string_view driver = a.text(3, "gelsy");
  if (self.dim() < 2 || !is_lapack(self) || b.scalar_type() != self.scalar_type()) return false;
  const int64_t m = self.size(-2), n = self.size(-1), tall = std::max(m, n);
  const auto rank = static_cast<size_t>(self.dim() - 2);
  const at::IntArrayRef batch = self.sizes().slice(0, rank);
  const bool vector = b.sizes() == self.sizes().slice(0, rank + 1);
  if (!vector && (b.dim() != self.dim() || b.sizes().slice(0, rank + 1) != self.sizes().slice(0, rank + 1)))
    return false;
  const bool full = driver == "gels";
  if (!full && driver != "gelsy" && !depends_on_rank(driver)) return false;
  if (m > n && depends_on_rank(driver)) return false;
  const int64_t columns = vector ? 1 : b.size(-1);
  const at::Tensor solution = by_columns(batch, n, columns, tall, self.scalar_type());
  give(o, vector ? solution.squeeze(-1) : solution);
  std::vector<int64_t> residuals = batch.vec(), sizes = residuals;
  residuals.push_back(columns);
  sizes.push_back(std::min(m, n));
  give(o, full && m > n ? dense(residuals, self.scalar_type()) : dense({0}, self.scalar_type()));
  give(o, full ? dense({0}, at::kLong) : dense(batch, at::kLong));
  return give(o, depends_on_rank(driver) ? dense(sizes, self.scalar_type()) : dense({0}, self.scalar_type()));
}

}  // namespace

std::vector<ShapeRuleRow> linalg_rules() {
  return {
      {"aten::geqrf", geqrf},
      {"aten::linalg_eig", eig},
      {"aten::_linalg_eigvals", eigenvalues},
      {"aten::linalg_lstsq", lstsq},
  };
}

}  // namespace torch_fl::glue::rules
