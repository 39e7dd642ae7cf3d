// SPDX-License-Identifier: Apache-2.0
// What the process has been told: each value is read where it matters, at every call. Torch-free.
#pragma once

#include <atomic>
#include <cstdint>

#include "torch_fl/fl_plugin.h"

namespace torch_fl::runtime {

struct Settings {
  std::atomic<bool> async_execution{true};    ///< false: who enqueues work waits for it
  std::atomic<bool> full_precision{false};    ///< what may compute in less than the plain way is passed over
  std::atomic<uint64_t> pool_bytes{0};        ///< most that the allocator of a device holds; 0: what there is
  std::atomic<int32_t> default_device{0};     ///< current device of threads that chose none
  std::atomic<uint64_t> excluded_devices{0};  ///< bit i: fl:i must not be opened
  std::atomic<fl_log_level> log_level{FL_LOG_WARNING};
};
inline Settings settings;

}  // namespace torch_fl::runtime
