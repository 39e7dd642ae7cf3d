// SPDX-License-Identifier: Apache-2.0
// Chips without a plugin's entry point: plain C libraries and Python classes. Some functions of the ABI have no
// argument that says which chip is meant, so each such chip takes one of a fixed number of slots, whose functions know
// theirs.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "torch_fl/fl_plugin.h"

namespace torch_fl::runtime {

constexpr size_t kChipSlots = 32;

/// What a chip in a slot does; each function as in fl_plugin.h. A failure's message is set with set_plugin_message();
/// an exception becomes FL_INTERNAL with its text. Synchronous: there is no stream table.
class HostedChip {
 public:
  virtual ~HostedChip() = default;

  virtual fl_status count(int32_t* count) = 0;
  virtual fl_status properties(int32_t index, fl_device_properties* properties) = 0;
  virtual fl_status open(int32_t index, fl_device* device) = 0;
  virtual void close(fl_device) {}
  virtual fl_status synchronize(fl_device) { return FL_OK; }

  virtual fl_status alloc(fl_device device, uint64_t bytes, fl_address* address) = 0;
  virtual fl_status free(fl_device device, fl_address address) = 0;
  virtual fl_status copy(fl_device device, fl_address dst, fl_address src, uint64_t bytes, fl_copy_kind kind) = 0;
  /// Called only where the member says so.
  virtual fl_status fill(fl_device, fl_address, const void*, uint32_t, uint64_t) { return FL_UNSUPPORTED; }
  virtual fl_status info(fl_device, uint64_t*, uint64_t*) { return FL_UNSUPPORTED; }
  /// Pinned host memory: both or none.
  virtual fl_status host_alloc(fl_device, uint64_t, void**) { return FL_UNSUPPORTED; }
  virtual fl_status host_free(fl_device, void*) { return FL_UNSUPPORTED; }
  bool has_fill = false, has_info = false, has_pinned = false;

  std::string name, vendor, version;
  /// Rows as in fl_plugin.h. Calls reach `run` with call->kernel->user_data; texts live as long as the chip.
  std::vector<fl_kernel> kernels;

 private:
  friend const fl_plugin* take_slot(HostedChip& chip);
  std::vector<const fl_kernel*> rows_;
  fl_device_api device_api_{};
  fl_memory_api memory_api_{};
  fl_plugin plugin_{};
};

/// The tables of `chip`, which must be complete by now and must not move or end before leave_slot(). Throws Error where
/// every slot is taken. Thread-safe.
const fl_plugin* take_slot(HostedChip& chip);
/// For a chip that was not loaded after all.
void leave_slot(const HostedChip& chip) noexcept;

}  // namespace torch_fl::runtime
