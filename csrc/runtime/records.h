// SPDX-License-Identifier: Apache-2.0
// One record for each operator call, while somebody records. Counters (the glue's plans) say how often; this says when.
// See docs/design/observe.md. Torch-free.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "observing.h"

namespace torch_fl::runtime {

/// What the calls of one plan have in common.
struct Subject {
  std::string op, overload;  ///< "aten::add", "Tensor"
  std::string chip;
  int32_t device = 0;
  std::string route, reason;
  std::vector<std::string> adapters;         ///< what arguments had to become
  std::vector<std::vector<int64_t>> shapes;  ///< of the tensor arguments
  std::vector<std::string> dtypes;
  bool operator==(const Subject&) const = default;
};

/// One call. A million of them are 96 MB.
struct Record {
  enum Flag : uint8_t { kFailed = 1, kBackward = 2 };

  uint64_t id;
  int64_t start_ns, host_ns;  ///< std::chrono::steady_clock; of the calling thread
  uint64_t bytes;             ///< moved
  uint64_t allocated_bytes;   ///< of the device, after the call
  int64_t sequence;           ///< autograd's number of the forward call; -1: none
  uint32_t parent;            ///< its own id less that of the call around it; 0: none
  uint32_t subject;
  uint32_t site, layer;  ///< 0: none
  float wait_ns, copy_in_ns, compute_ns, copy_out_ns, device_ns;
  uint32_t forward_thread;  ///< backward: whose sequence it is
  uint16_t stream, syncs, conversions;
  uint8_t flags;
};
static_assert(sizeof(Record) <= 96);

/// Records of one thread, in the order in which its calls ended.
struct RecordChunk {
  static constexpr uint32_t kSize = 1024;
  std::atomic<uint32_t> count;  ///< written by the owner alone; what lies below is complete
  uint64_t thread;              ///< the operating system's number
  char thread_name[16];
  uint32_t autograd_thread;  ///< autograd's number of the thread
  bool open;                 ///< its owner may still write; guarded by the lock of Records
  Record records[kSize];
};

/// The recording that runs, one at a time. Thread-safe. Nothing is kept of calls that end after theirs.
class Records {
 public:
  static Records& get();

  /// The number of the recording that runs; 0: none.
  uint32_t running() const noexcept { return running_.load(std::memory_order_acquire); }

  /// `before` gets the recording's number before any call does. Throws Error(FL_INVALID_ARGUMENT) when the capacity is
  /// 0 or a recording runs already.
  uint32_t start(size_t capacity, const std::function<void(uint32_t)>& before = {});

  /// Neither locks nor allocates, but for every 1024th record of a thread.
  void add(const Record& record, uint32_t recording, uint32_t autograd_thread) noexcept;

  /// The number of what a record is about. 0 where the recording is over. Beyond room_for_subjects() a new one is kept
  /// without shapes, dtypes and adapters, beyond twice as many also without its reason; Result::simplified tells.
  uint32_t intern(uint32_t recording, Subject subject);
  static size_t room_for_subjects(size_t capacity) noexcept;

  /// The number of the same calls by another route.
  uint32_t rerouted(uint32_t recording, uint32_t subject, const std::string& route, const std::string& reason);

  struct Chunk {
    std::shared_ptr<RecordChunk> chunk;
    uint32_t count;  ///< of complete records when the recording ended
  };
  struct Result {
    std::vector<Chunk> chunks;
    std::deque<Subject> subjects;  ///< the first: of no call
    size_t capacity = 0;           ///< the chunks may hold more
    uint64_t dropped = 0;
    bool simplified = false;  ///< not all subjects are as they were given
    int64_t start_ns = 0, end_ns = 0;
  };
  /// Ends the recording. Without one: an empty result.
  Result stop();

 private:
  struct Writer;
  struct State;
  Records();
  bool renew(Writer& writer, uint32_t recording, uint32_t autograd_thread);
  std::atomic<uint32_t> running_{0};
  std::unique_ptr<State> state_;
};

/// std::chrono::steady_clock.
int64_t now_ns() noexcept;

/// The calling thread's number, as debuggers and profilers show it.
uint64_t thread_number() noexcept;

}  // namespace torch_fl::runtime
