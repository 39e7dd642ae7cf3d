// SPDX-License-Identifier: Apache-2.0
// Whether anybody watches, and which operator call the calling thread is in. See docs/design/observe.md.
#pragma once

#include <atomic>
#include <cstdint>

namespace torch_fl::runtime {

enum Observer : uint32_t {
  kRecords = 1u << 0,  ///< every call wants a record
  kTimeline = 1u << 1  ///< device events are wanted, with the id of the call that caused them
};
inline std::atomic<uint32_t> g_observers{0};

/// The only cost while nobody watches.
inline bool observing() noexcept { return g_observers.load(std::memory_order_relaxed) != 0; }
inline bool observed_by(Observer observer) noexcept {
  return (g_observers.load(std::memory_order_relaxed) & observer) != 0;
}

/// Unique in the process, from 1.
uint64_t next_call_id() noexcept;
/// Of the innermost call that the calling thread is in; 0: none.
uint64_t current_call_id() noexcept;

/// Makes a call the calling thread's innermost, for its lifetime.
class Correlation {
 public:
  explicit Correlation(uint64_t id) noexcept;
  ~Correlation();
  Correlation(const Correlation&) = delete;
  Correlation& operator=(const Correlation&) = delete;
  uint64_t parent() const noexcept { return parent_; }

 private:
  uint64_t parent_;
};

}  // namespace torch_fl::runtime
