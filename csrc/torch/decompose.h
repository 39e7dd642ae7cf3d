// SPDX-License-Identifier: Apache-2.0
// The two routes that Python serves: overrides that a descriptor names, and decompositions of PyTorch's tables
// (docs/design/descriptors.md, "Routes"; torch_fl/routing/decompositions.py and overrides.py). The interpreter's lock
// is taken on these routes only.
#pragma once

#include <optional>
#include <string>

#include "router.h"

namespace torch_fl::glue {

inline bool has_override(const runtime::OpFallback& fallback) {
  return !fallback.python.empty() || !fallback.expression.empty();
}

/// Whether the override of `plan.fallback` can serve the call; else `*refusal` says why not.
bool plan_override(Call& call, Plan& plan, std::string* refusal);

enum class Decomposition { None, Taken, Refused };
/// Whether a decomposition can serve the call. `*what`: the operators it is made of, or which the chip lacks. None:
/// there is none to speak of.
Decomposition plan_decomposition(Call& call, Plan& plan, std::string* what);

/// Serves the call; like run(). Throws what Python raises.
void run_python_route(Call& call, Plan& plan, at::Tensor* outs);

/// Why the plan must not be taken here: its route has led back to it.
std::optional<std::string> recursion(const Call& call, const Plan& plan);
/// Whether the calling thread is inside a decomposition, whose parts are not decomposed.
bool inside_decomposition();

}  // namespace torch_fl::glue
