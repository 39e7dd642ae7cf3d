// SPDX-License-Identifier: Apache-2.0
// A plan for a call that has none yet: constraints, routing order, shape rule.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "router.h"

namespace torch_fl::glue {

/// What a plan is made for.
struct PlanRequest {
  std::optional<Route> after;  ///< only routes that come after this one, which declined the call
  std::string reason;          ///< why it did
  bool by_pytorch = false;     ///< ... for a reason that is PyTorch's: the CPU has the last word
  bool kernels_only = false;   ///< neither overrides nor decompositions: the call is made inside one
  bool probe = false;          ///< nobody is going to run it
  std::vector<std::pair<Route, std::string>>* refusals = nullptr;  ///< receives why routes were not taken
};

/// May forbid caching of `signature`, when planning changed what the signature describes (an out= tensor was resized).
std::unique_ptr<Plan> make_plan(Call& call, Signature& signature, const PlanRequest& request = {});

}  // namespace torch_fl::glue
