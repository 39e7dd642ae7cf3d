// SPDX-License-Identifier: Apache-2.0
// Running a planned kernel.
#pragma once

#include <string>

#include "router.h"

namespace torch_fl::glue {

/// Why a kernel did not run.
struct Declined {
  std::string reason;
  bool by_pytorch = false;  ///< PyTorch's rules forbid the call; the chip's are not to blame
};

/// False: the kernel declined and nothing was done.
bool execute(Call& call, Plan& plan, at::Tensor* outs, Declined* declined);

/// Asks the chip's rules (null: it has none) and the kernel's supports(), with addresses of 0.
bool kernel_supports(Call& call, Plan& plan, const runtime::OpRules* rules, std::string* reason);

}  // namespace torch_fl::glue
