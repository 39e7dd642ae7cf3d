// SPDX-License-Identifier: Apache-2.0
// What the devices did, and when: kernels, copies, fills, and the host's calls into the runtime, for whoever listens.
// See docs/design/observe.md. Torch-free.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "allocator.h"
#include "observing.h"

namespace torch_fl::runtime {

class Device;

enum class EventKind : uint8_t {
  kKernel,   ///< on the device
  kCopy,     ///< on the device
  kFill,     ///< on the device
  kRuntime,  ///< on the host: a synchronisation, raw memory taken or given back, staging
  kLaunch    ///< on the host: enqueuing one of the first three
};
constexpr uint32_t bit_of(EventKind kind) { return 1u << static_cast<uint32_t>(kind); }
constexpr uint32_t kDeviceWork = bit_of(EventKind::kKernel) | bit_of(EventKind::kCopy) | bit_of(EventKind::kFill);
constexpr uint32_t kAllEvents = kDeviceWork | bit_of(EventKind::kRuntime) | bit_of(EventKind::kLaunch);

struct DeviceEvent {
  EventKind kind = EventKind::kKernel;
  bool host_timed = false;   ///< device work of a chip without streams: the time that the call took
  int32_t device = 0;        ///< fl:<device>
  int32_t stream = 0;        ///< 0: the default stream, -1: one that the host does not know
  const char* name = "";     ///< lives as long as the process, as does the next
  const char* op = nullptr;  ///< the operator whose kernel this is, as in its row; null: none
  uint64_t correlation = 0;  ///< the call that caused it (observing.h); 0: none
  uint64_t launch = 0;       ///< one for each kLaunch, shared by the work that it enqueued; 0: unknown
  uint64_t external = 0;     ///< what ExternalId said on the enqueuing thread; 0: nothing
  uint64_t thread = 0;       ///< that enqueued it, or made the call: the operating system's number
  int64_t start_ns = 0;      ///< std::chrono::steady_clock
  int64_t end_ns = 0;
  uint64_t bytes = 0;
};

/// One who wants device events, from its construction until stop(). Any number at once; thread-safe.
class TimelineListener {
 public:
  struct Options {
    uint32_t kinds = kDeviceWork | bit_of(EventKind::kRuntime);  ///< bit_of() each
    size_t capacity = 1 << 20;                                   ///< events kept; beyond it the oldest go
    /// Gets the events instead of their being kept, from whichever thread collects them, one batch at a time. Must not
    /// use devices or listeners.
    std::function<void(const DeviceEvent* events, size_t count)> sink;
  };
  TimelineListener() : TimelineListener(Options{}) {}
  explicit TimelineListener(Options options);
  ~TimelineListener();  ///< stops, and forgets
  TimelineListener(const TimelineListener&) = delete;
  TimelineListener& operator=(const TimelineListener&) = delete;

  struct Result {
    std::vector<DeviceEvent> events;    ///< of work enqueued while listening, and finished; by start, for each device
    uint64_t dropped = 0;               ///< so far: beyond the capacity, or lost by a plugin
    std::vector<std::string> problems;  ///< so far: chips that tell no times, devices that failed; for people
  };
  /// What has finished since the last time. Asks every open device; does not wait for work.
  Result collect();
  /// The last of it: waits for the devices first. Failures of devices are among the problems. Later calls are empty.
  Result stop();

  struct State;  ///< the hub's

 private:
  std::shared_ptr<State> state_;
};

/// The calling thread's id in a foreign profiler, for the lifetime of the object.
class ExternalId {
 public:
  explicit ExternalId(uint64_t id) noexcept : outer_(exchange(id)) {}
  ~ExternalId() { exchange(outer_); }
  ExternalId(const ExternalId&) = delete;
  ExternalId& operator=(const ExternalId&) = delete;
  /// The same without an object; returns what was.
  static uint64_t exchange(uint64_t id) noexcept;

 private:
  uint64_t outer_;
};

// ---- For the core: where work is enqueued -----------------------------------------------------------------------
/// Around what enqueues device work: its id goes to the plugin, and with it the work is named and attributed. While
/// nobody listens: one load.
class Enqueue {
 public:
  /// A kernel of this row's operator. `op` lives as long as the process. `portable`: the plugin's name for it says
  /// nothing, as all portable kernels have the same.
  static Enqueue kernel(Device& device, StreamId stream, const char* op, bool portable) {
    return {device, stream, EventKind::kKernel, op, portable, 0};
  }
  /// `name` is a literal: what such a copy is called.
  static Enqueue copy(Device& device, StreamId stream, const char* name, uint64_t bytes) {
    return {device, stream, EventKind::kCopy, name, false, bytes};
  }
  static Enqueue fill(Device& device, StreamId stream, uint64_t bytes) {
    return {device, stream, EventKind::kFill, "Memset", false, bytes};
  }
  ~Enqueue() {
    if (id_ != 0) end();
  }
  Enqueue(const Enqueue&) = delete;
  Enqueue& operator=(const Enqueue&) = delete;
  /// Nothing was enqueued after all.
  void cancel() noexcept { cancelled_ = true; }

 private:
  Enqueue(Device& device, StreamId stream, EventKind kind, const char* name, bool portable, uint64_t bytes)
      : device_(device) {
    if (observed_by(kTimeline)) begin(stream, kind, name, portable, bytes);
  }
  void begin(StreamId stream, EventKind kind, const char* name, bool portable, uint64_t bytes) noexcept;
  void end() noexcept;
  Device& device_;
  uint64_t id_ = 0;  ///< 0: nobody listens
  uint64_t outer_ = 0;
  int64_t start_ns_ = 0;
  bool told_ = false;  ///< the plugin
  bool cancelled_ = false;
};

/// Around a call of the host that is an event by itself. `name` is a literal. While nobody listens: one load.
class RuntimeCall {
 public:
  RuntimeCall(Device& device, StreamId stream, const char* name, uint64_t bytes = 0) : device_(device) {
    if (observed_by(kTimeline)) begin(stream, name, bytes);
  }
  ~RuntimeCall() {
    if (name_ != nullptr) end();
  }
  RuntimeCall(const RuntimeCall&) = delete;
  RuntimeCall& operator=(const RuntimeCall&) = delete;

 private:
  void begin(StreamId stream, const char* name, uint64_t bytes) noexcept;
  void end() noexcept;
  Device& device_;
  const char* name_ = nullptr;
  StreamId stream_ = 0;
  uint64_t bytes_ = 0;
  int64_t start_ns_ = 0;
};

/// The device is about to be closed: its last events.
void timeline_closing(Device& device) noexcept;

}  // namespace torch_fl::runtime
