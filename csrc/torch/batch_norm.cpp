// SPDX-License-Identifier: Apache-2.0
// The younger forms of batch normalisation, by the one that chips have a kernel for. They mutate their running
// statistics and return fresh tensors besides, which no kernel row can.
#include <ATen/ATen.h>
#include <torch/library.h>

namespace torch_fl::glue {
namespace {

using at::Tensor;
using OptionalTensor = std::optional<Tensor>;

std::tuple<Tensor, Tensor, Tensor> legit(const Tensor& input, const OptionalTensor& weight, const OptionalTensor& bias,
                                         Tensor& running_mean, Tensor& running_var, bool training, double momentum,
                                         double eps) {
  return at::native_batch_norm(input, weight, bias, running_mean, running_var, training, momentum, eps);
}

std::tuple<Tensor, Tensor, Tensor, Tensor> with_update(const Tensor& input, const OptionalTensor& weight,
                                                       const OptionalTensor& bias, Tensor& running_mean,
                                                       Tensor& running_var, double momentum, double eps) {
  auto [output, mean, spread] =
      at::native_batch_norm(input, weight, bias, running_mean, running_var, true, momentum, eps);
  return {output, mean, spread, at::empty({0}, input.options().dtype(at::kByte))};
}

std::tuple<Tensor, Tensor, Tensor> backward(const Tensor& grad_out, const Tensor& input, const Tensor& weight,
                                            const OptionalTensor& running_mean, const OptionalTensor& running_var,
                                            const OptionalTensor& save_mean, const OptionalTensor& save_var,
                                            bool update, double eps, std::array<bool, 3> mask,
                                            const Tensor& /*reserve*/) {
  return at::native_batch_norm_backward(grad_out, input, weight, running_mean, running_var, save_mean, save_var, update,
                                        eps, mask);
}

// What the router re-dispatches to.
TORCH_LIBRARY_IMPL(aten, PrivateUse2, m) {
  m.impl("_native_batch_norm_legit", TORCH_FN(legit));
  m.impl("_batch_norm_with_update", TORCH_FN(with_update));
  m.impl("batch_norm_backward", TORCH_FN(backward));
}

}  // namespace
}  // namespace torch_fl::glue
