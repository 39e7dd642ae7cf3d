// SPDX-License-Identifier: Apache-2.0
// A debugging mode: each allocation lies between guard bytes that no kernel may touch.
#pragma once

#include <c10/core/Allocator.h>

#include <atomic>
#include <cstdint>
#include <vector>

#include "../runtime/device.h"

namespace torch_fl::glue {

inline std::atomic<uint64_t> g_guard_bytes{0};  ///< before and after each allocation; 0: off

/// New allocations get at least `bytes` guard bytes on each side; 0 turns guarding off. Those made before stay as they
/// are.
void set_guard_bytes(uint64_t bytes);

/// Memory of `device` between guards. bytes > 0.
c10::DataPtr allocate_between_guards(runtime::Device& device, uint64_t bytes);

/// True for what `allocate_between_guards` gave.
bool has_guards(const c10::DataPtr& data);

/// A guard that was written to.
struct DamagedGuard {
  int32_t device = 0;      ///< fl:<device>
  uint64_t address = 0;    ///< of the allocation that it guards
  uint64_t bytes = 0;      ///< of the allocation
  int64_t first = 0;       ///< offset of the first changed byte from `address`: negative, or `bytes` and more
  uint64_t n_changed = 0;  ///< bytes
  bool freed = false;      ///< the allocation is over
};

/// Waits for all devices, then looks at the guards of every live allocation and of those freed since the last check.
/// Each damage is told once.
std::vector<DamagedGuard> check_guards();

}  // namespace torch_fl::glue
