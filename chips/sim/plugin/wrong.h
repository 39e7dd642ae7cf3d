// SPDX-License-Identifier: Apache-2.0
// Kernels that compute wrongly, on demand (SIMCHIP_WRONG): what a tool that looks for wrong kernels is tried on.
#pragma once

#include "launch.h"

namespace fl_sim {

/// Does an operator's work wrongly; `right` is the kernel as it should be.
using WrongBody = void (*)(const Call&, Body right);

/// The wrong body in force for a call; null: compute rightly.
WrongBody wrong_body(const fl_call& call);

}  // namespace fl_sim
