// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>

namespace torch_fl::glue {

/// Somebody, who may have been autograd, has asked how many devices there are and was told none.
inline std::atomic<bool> told_no_devices{false};

/// Autograd has one thread for each device index, started by the first backward pass. Gives a device that came later
/// its own.
void ensure_autograd_thread(int32_t device_index);

}  // namespace torch_fl::glue
