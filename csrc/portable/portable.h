// SPDX-License-Identifier: Apache-2.0
// The portable kernels as rows of a chip's table. See docs/design/portable.md.
#pragma once

#include "runtime/device.h"

namespace torch_fl::portable {

/// Fills chip.portable where the chip has a compiler for a dialect known here. Once for each chip, before its first
/// use.
void equip(runtime::Chip& chip);

}  // namespace torch_fl::portable
