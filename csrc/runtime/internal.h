// SPDX-License-Identifier: Apache-2.0
// What the runtime's own files share. Not for the glue.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>
#include <vector>

#include "device.h"

namespace torch_fl::runtime {

/// The plugin's message for a call that returned `status`, taken; empty if it said nothing about this one.
std::string take_message_for(fl_status status);

/// True in a child of fork() whose parent had opened a device: nothing of the parent's devices may be touched, and its
/// locks may be held for ever.
inline std::atomic<bool> bad_fork{false};

/// "1.50 GiB", "512.00 KiB", "17 bytes": as PyTorch's own messages do.
std::string format_bytes(uint64_t bytes);

constexpr uint64_t round_up(uint64_t value, uint64_t multiple) { return (value + multiple - 1) / multiple * multiple; }

constexpr int32_t kMaxDevices = 64;

inline void increase(Stat& stat, int64_t amount) {
  stat.current += amount;
  stat.allocated += amount;
  if (stat.current > stat.peak) stat.peak = stat.current;
}
inline void decrease(Stat& stat, int64_t amount) {
  stat.current -= amount;
  stat.freed += amount;
}
void reset_peak(MemoryStats& stats);
void reset_accumulated(MemoryStats& stats);

/// Untimed events of one device, recycled. Not thread-safe: its owner's lock guards it.
class EventPool {
 public:
  explicit EventPool(Device& device) : device_(device) {}
  fl_event record(StreamId stream) {
    const fl_event event = idle_.empty() ? device_.event_create(false) : take();
    try {
      device_.event_record(event, stream);
    } catch (...) {
      give(event);
      throw;
    }
    return event;
  }
  void give(fl_event event) { idle_.push_back(event); }
  void clear() noexcept {
    for (fl_event event : idle_) device_.event_destroy(event);
    idle_.clear();
  }

 private:
  fl_event take() {
    const fl_event event = idle_.back();
    idle_.pop_back();
    return event;
  }
  Device& device_;
  std::vector<fl_event> idle_;
};

}  // namespace torch_fl::runtime
