// SPDX-License-Identifier: Apache-2.0
// One record for each operator call, while somebody records. Counters (the glue's plans) say how often; this says when.
#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

namespace torch_fl::runtime {

struct CallRecord {
  std::string_view op;     ///< "aten::add.Tensor"; lives as long as the process
  std::string_view route;  ///< likewise
  std::string reason;
  int32_t device = 0;
  bool failed = false;      ///< the call raised
  int64_t start_ns = 0;     ///< monotonic clock
  int64_t nanoseconds = 0;  ///< of the calling thread: for work on a stream, until it was enqueued
  uint64_t bytes = 0;       ///< moved between chip and host
  uint64_t thread = 0;      ///< the operating system's number
};

/// A bounded log; when it is full the oldest records go. Thread-safe.
class CallLog {
 public:
  static CallLog& get();
  /// The only cost while nobody records.
  static bool active() noexcept { return active_.load(std::memory_order_relaxed); }

  /// Forgets what was recorded. Throws Error(FL_INVALID_ARGUMENT) when the capacity is 0 or a recording runs already.
  void start(size_t capacity);
  void add(CallRecord record);
  struct Result {
    std::vector<CallRecord> records;  ///< in the order in which the calls ended
    uint64_t dropped = 0;
  };
  /// Ends the recording. Without one: an empty result.
  Result stop();

 private:
  static inline std::atomic<bool> active_{false};
  std::mutex mutex_;
  std::vector<CallRecord> ring_;
  size_t capacity_ = 0;
  uint64_t added_ = 0;
};

/// The calling thread's number, as debuggers and profilers show it.
uint64_t thread_number() noexcept;

}  // namespace torch_fl::runtime
