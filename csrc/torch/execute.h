// SPDX-License-Identifier: Apache-2.0
// Running a planned kernel.
#pragma once

#include <string>

#include "router.h"

namespace torch_fl::glue {

/// False: the kernel declined (`*declined` says why) and nothing was done.
bool execute(Call& call, Plan& plan, at::Tensor* outs, std::string* declined);

/// Asks the chip's rules (null: it has none) and the kernel's supports(), with addresses of 0.
bool kernel_supports(Call& call, Plan& plan, const runtime::OpRules* rules, std::string* reason);

}  // namespace torch_fl::glue
