// SPDX-License-Identifier: Apache-2.0
// From the runtime's errors to PyTorch's exceptions.
#pragma once

#include <utility>

#include "../runtime/error.h"

namespace torch_fl::glue {

/// FL_OUT_OF_MEMORY -> c10::OutOfMemoryError, FL_UNSUPPORTED -> c10::NotImplementedError, FL_INVALID_ARGUMENT ->
/// c10::Error (RuntimeError in Python), FL_OUT_OF_RANGE -> c10::IndexError, FL_DEVICE_LOST, FL_INTERNAL and the rest
/// -> c10::AcceleratorError (torch.AcceleratorError, a RuntimeError, with the status as error_code).
[[noreturn]] void throw_torch(const runtime::Error& error);

/// Calls `body`; a runtime::Error leaves as PyTorch's exception. Costs nothing when nothing is thrown.
template <typename Body>
inline decltype(auto) guarded(Body&& body) {
  try {
    return std::forward<Body>(body)();
  } catch (const runtime::Error& error) {
    throw_torch(error);
  }
}

}  // namespace torch_fl::glue
