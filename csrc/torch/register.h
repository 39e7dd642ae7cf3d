// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace torch_fl::glue {

/// Installs trampolines in front of PyTorch's composite kernels for the operators that some loaded chip has a kernel for.
/// Called after loading plugins; idempotent.
void enable_chip_kernels();

}  // namespace torch_fl::glue
