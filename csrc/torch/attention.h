// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace torch_fl::glue {

/// Registers the composed fused attention for PrivateUse1 unless some chip has a kernel of that name (the router then
/// installs its own entry, and comes here for other chips). Called after plugins were loaded; idempotent.
void install_attention();

}  // namespace torch_fl::glue
