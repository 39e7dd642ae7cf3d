// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

namespace torch_fl::glue {

/// Installs trampolines in front of PyTorch's composite kernels for the operators that some loaded chip has a kernel
/// for. Called after loading plugins; idempotent.
void enable_chip_kernels();

/// For benchmarks: sends an overload ("add.Tensor") that has a trampoline through the boxed fallback instead.
void route_boxed(const std::string& name);

}  // namespace torch_fl::glue
