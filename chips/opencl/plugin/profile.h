// SPDX-License-Identifier: Apache-2.0
// The commands of a device whose times somebody wants. Queues time their commands anyway; what is kept here while a
// profile runs are their events, until the times have been read.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <mutex>
#include <set>
#include <string>

#include "cl_api.h"
#include "torch_fl/fl_plugin.h"

namespace fl_opencl {

struct Stream;

class Profile {
 public:
  ~Profile() { stop(); }
  bool started() const { return started_.load(std::memory_order_relaxed); }
  void start();
  /// Forgets what was kept.
  void stop();
  /// A command that was just enqueued; `stream` null: the default one. Throws nothing: without memory it is dropped.
  void keep(const Stream* stream, cl_event event, fl_profile_kind kind, const std::string& name,
            uint64_t bytes) noexcept;
  /// Gives the commands that have ended, the oldest first, to deliver(const fl_profile_event&).
  template <class Deliver>
  void take(int32_t device, const Deliver& deliver);
  uint64_t take_dropped() { return dropped_.exchange(0); }

 private:
  struct Command {
    cl_event event;
    fl_profile_kind kind;
    const std::string* name;
    const Stream* stream;
    uint64_t correlation, bytes;
  };
  static bool read(const Command& command, bool* ended, int64_t* start_ns, int64_t* end_ns);

  static constexpr size_t kMost = 1 << 16;
  std::atomic<bool> started_{false};
  std::atomic<uint64_t> dropped_{0};
  std::mutex mutex_;
  std::set<std::string, std::less<>> names_;
  std::deque<Command> commands_;
};

template <class Deliver>
void Profile::take(int32_t device, const Deliver& deliver) {
  std::deque<Command> commands;
  {
    const std::lock_guard lock(mutex_);
    commands.swap(commands_);
  }
  std::deque<Command> pending;
  for (const Command& command : commands) {
    fl_profile_event event{};
    bool ended = false;
    const bool known = read(command, &ended, &event.start_ns, &event.end_ns);
    if (!ended) {
      pending.push_back(command);
      continue;
    }
    cl.clReleaseEvent(command.event);
    if (!known) {
      ++dropped_;
      continue;
    }
    event.struct_size = sizeof event;
    event.kind = command.kind;
    event.name = command.name->c_str();
    event.device_index = device;
    event.stream = reinterpret_cast<fl_stream>(const_cast<Stream*>(command.stream));
    event.correlation = command.correlation;
    event.bytes = command.bytes;
    deliver(event);
  }
  const std::lock_guard lock(mutex_);
  commands_.insert(commands_.begin(), pending.begin(), pending.end());
}

}  // namespace fl_opencl
