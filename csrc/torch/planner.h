// SPDX-License-Identifier: Apache-2.0
// A plan for a call that has none yet: constraints, routing order, shape rule.
#pragma once

#include <memory>

#include "router.h"

namespace torch_fl::glue {

/// May forbid caching of `signature`, when planning changed what the signature describes (an out= tensor was resized).
std::unique_ptr<Plan> make_plan(Call& call, Signature& signature);

}  // namespace torch_fl::glue
