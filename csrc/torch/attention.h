// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace torch_fl::glue {

/// Registers the composed fused attention for PrivateUse1 unless a chip's kernel has taken its place. Called after
/// plugins were loaded; idempotent.
void install_attention();

}  // namespace torch_fl::glue
