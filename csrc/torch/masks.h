// SPDX-License-Identifier: Apache-2.0
// Masks among the indices of aten::index and its relatives.
#pragma once

#include "router.h"

namespace torch_fl::glue {

/// Replaces the masks in the packed indices of `call` by the positions they select, where the chip has kernels for
/// both; else, or where a mask does not fit, leaves the call as it is (the CPU raises its own error). Waits.
void expand_masks(Call& call);

}  // namespace torch_fl::glue
