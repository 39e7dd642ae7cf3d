// SPDX-License-Identifier: Apache-2.0
// Automatic mixed precision: the same policies as PyTorch's own accelerators, from PyTorch's lists.
#include <ATen/autocast_mode.h>
#include <torch/library.h>

namespace torch_fl::glue {
namespace {

// PyTorch's lists spell these without a namespace.
using at::IntArrayRef;
using at::Scalar;
using at::ScalarType;
using at::Tensor;

at::Tensor reject_binary_cross_entropy(const at::Tensor&, const at::Tensor&, const std::optional<at::Tensor>&,
                                       int64_t) {
  TORCH_CHECK(false,
              "torch.nn.functional.binary_cross_entropy and torch.nn.BCELoss are unsafe to autocast.\n"
              "Many models use a sigmoid layer right before the binary cross entropy layer. In this case, combine the "
              "two layers using torch.nn.functional.binary_cross_entropy_with_logits or torch.nn.BCEWithLogitsLoss. "
              "binary_cross_entropy_with_logits and BCEWithLogits are safe to autocast.");
}

TORCH_LIBRARY_IMPL(_, AutocastPrivateUse1, m) { m.fallback(torch::CppFunction::makeFallthrough()); }

#define TORCH_FL_LOWER_PRECISION(...) KERNEL_PRIVATEUSEONE(__VA_ARGS__, lower_precision_fp)
#define TORCH_FL_FLOAT32(...) KERNEL_PRIVATEUSEONE(__VA_ARGS__, fp32)
#define TORCH_FL_FLOAT32_OPTIONAL_DTYPE(...) KERNEL_PRIVATEUSEONE(__VA_ARGS__, fp32_set_opt_dtype)
#define TORCH_FL_PROMOTE(...) KERNEL_PRIVATEUSEONE(__VA_ARGS__, promote)

TORCH_LIBRARY_IMPL(aten, AutocastPrivateUse1, m) {
  AT_FORALL_LOWER_PRECISION_FP(TORCH_FL_LOWER_PRECISION)
  AT_FORALL_FP32(TORCH_FL_FLOAT32)
  AT_FORALL_FP32_SET_OPT_DTYPE(TORCH_FL_FLOAT32_OPTIONAL_DTYPE)
  AT_FORALL_DIFFERENT_REDISPATCH_SIGNATURE(KERNEL_DIFFERENT_REDISPATCH_SIGNATURE_PRIVATEUSEONE)
  AT_FORALL_PROMOTE(TORCH_FL_PROMOTE)
  m.impl("binary_cross_entropy", TORCH_FN(reject_binary_cross_entropy));
}

}  // namespace
}  // namespace torch_fl::glue
