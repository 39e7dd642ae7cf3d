// SPDX-License-Identifier: Apache-2.0
// A factorisation that raises where its result tells that it failed. Kernels cannot raise, so it is composed of the one
// that says so in a tensor, and of the check of that.
#include <ATen/ATen.h>
#include <torch/library.h>

namespace torch_fl::glue {
namespace {

at::Tensor cholesky(const at::Tensor& self, bool upper) {
  if (self.numel() == 0) return at::empty_like(self, at::MemoryFormat::Contiguous);
  TORCH_CHECK(self.dim() >= 2, "cholesky: The input tensor A must have at least 2 dimensions.");
  TORCH_CHECK(self.size(-1) == self.size(-2), "cholesky: A must be batches of square matrices, but they are ",
              self.size(-2), " by ", self.size(-1), " matrices");
  auto [factor, info] = at::linalg_cholesky_ex(self, upper);
  at::_linalg_check_errors(info, "cholesky", self.dim() == 2);
  return factor;
}

// As a composite kernel: whatever backend has a kernel of its own keeps it.
TORCH_LIBRARY_IMPL(aten, CompositeExplicitAutograd, m) { m.impl("cholesky", TORCH_FN(cholesky)); }

}  // namespace
}  // namespace torch_fl::glue
