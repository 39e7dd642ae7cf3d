// SPDX-License-Identifier: Apache-2.0
// Whether one kernel can serve a call, and what it then gets: types, layouts, conversions, where results go.
#pragma once

#include <string>

#include "router.h"

namespace torch_fl::glue {

struct KernelAnswer {
  bool serves;
  std::string refusal;  ///< why it does not
  bool for_cpu;         ///< the call is wrong in a way that a composition of other operators would not notice
  /// The chip cannot do what is right; otherwise PyTorch's rules keep the call from it, and the CPU knows.
  bool unable;
};

/// Fills `plan` where the kernel serves. May forbid caching of `signature`, as make_plan().
KernelAnswer plan_kernel(Call& call, Signature& signature, const Candidate& candidate, Plan& plan);

}  // namespace torch_fl::glue
