// SPDX-License-Identifier: Apache-2.0
// Pinned host memory as PyTorch sees it.
#pragma once

namespace torch_fl::glue {

/// Does this address lie in pinned memory of some fl device?
bool is_pinned(const void* data);

}  // namespace torch_fl::glue
