// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace torch_fl::portable {

/// The text of a file in kernels/, or null.
const char* text_of(const char* name);

}  // namespace torch_fl::portable
