// SPDX-License-Identifier: Apache-2.0
// Devices: what the loader shows, and one that is open.
#pragma once

#include <algorithm>
#include <atomic>
#include <mutex>
#include <string>
#include <unordered_map>
#include <vector>

#include "buffers.h"
#include "cl_api.h"
#include "profile.h"
#include "torch_fl/fl_plugin.h"

namespace fl_opencl {

enum class Memory {
  kSvm,    ///< shared virtual memory: an address is a pointer
  kUsm,    ///< Intel's unified shared memory: an address is a pointer
  kBuffer  ///< cl_mem handles: an address is a number of BufferTable
};

/// What is known without opening it.
struct DeviceInfo {
  cl_platform_id platform = nullptr;
  cl_device_id id = nullptr;
  std::string label;     ///< "<device> (<platform>)"
  std::string identity;  ///< everything a compiled program depends on
  fl_device_properties properties{};
  Memory memory = Memory::kBuffer;
  bool cpu = false;
  bool fine_svm = false;    ///< allocations are fine grained
  bool has_timer = false;   ///< OpenCL 2.1 or later
  bool shared_usm = false;  ///< allocations are shared with the host, else the device's
  std::string refusal;      ///< why it cannot be opened; empty when it can
  UsmFunctions usm;

  bool coherent() const { return (properties.capabilities & FL_CAP_HOST_COHERENT) != 0; }
};

/// An in-order queue. The event of its last command stands for everything before it: waits, queries and untimed events
/// need no marker, and there is nothing to wait for when it is null. Threads may share a stream, so the mutex is held
/// from the enqueue until its event is in place; waiting is done without it.
struct Stream {
  cl_command_queue queue = nullptr;
  std::mutex mutex;
  cl_event last = nullptr;
  uint32_t unflushed = 0;                  ///< commands since the last flush
  std::atomic<bool> native_is_out{false};  ///< someone has the queue's handle and may enqueue unseen
};

/// One enqueue: holds the stream from the making of it to its end. `note()` after success.
class Enqueuing {
 public:
  explicit Enqueuing(Stream& stream) : stream_(stream), lock_(stream.mutex) {}
  cl_event* event() { return &event_; }
  void note() {
    // Drivers may keep commands back until a flush: a long row that nobody waits for is handed over now and then.
    constexpr uint32_t kFlushEvery = 16;
    if (stream_.last != nullptr) cl.clReleaseEvent(stream_.last);
    stream_.last = event_;
    if (++stream_.unflushed < kFlushEvery) return;
    stream_.unflushed = 0;
    cl.clFlush(stream_.queue);
  }

 private:
  Stream& stream_;
  std::lock_guard<std::mutex> lock_;
  cl_event event_ = nullptr;
};

/// What this process has of a device's memory. Runtimes on CPUs do not count.
class Usage {
 public:
  bool claim(uint64_t bytes, uint64_t total) {
    const std::lock_guard lock(mutex_);
    if (bytes > total - std::min(total, bytes_)) return false;
    bytes_ += bytes;
    return true;
  }
  /// Of what was claimed: the address it got, or 0 if none.
  void settle(fl_address address, uint64_t bytes) {
    const std::lock_guard lock(mutex_);
    if (address != 0) {
      sizes_.emplace(address, bytes);
    } else {
      bytes_ -= bytes;
    }
  }
  void release(fl_address address) {
    const std::lock_guard lock(mutex_);
    const auto found = sizes_.find(address);
    if (found == sizes_.end()) return;
    bytes_ -= found->second;
    sizes_.erase(found);
  }
  uint64_t bytes() const {
    const std::lock_guard lock(mutex_);
    return bytes_;
  }

 private:
  mutable std::mutex mutex_;
  uint64_t bytes_ = 0;
  std::unordered_map<fl_address, uint64_t> sizes_;
};

struct Device {
  Device(const DeviceInfo& info, int32_t index) : info(info), index(index) {}
  ~Device();
  Device(const Device&) = delete;

  const DeviceInfo& info;
  const int32_t index;
  cl_context context = nullptr;
  Stream default_stream;
  std::mutex streams_mutex;
  std::vector<Stream*> streams;  ///< all of them, the default one first
  BufferTable buffers;
  Usage usage;
  std::atomic<uint64_t> frees{0};  ///< counts frees: what a kernel remembers of addresses is stale after one
  std::once_flag copier_once;
  fl_module copier = nullptr;  ///< null: the runtime's own copies are used
  std::mutex pinned_mutex;
  std::unordered_map<void*, cl_mem> pinned;
  Profile profile;
  std::mutex clock_mutex;  ///< guards the rest
  cl_command_queue clock_queue = nullptr;
  bool timer_tried = false, timer_works = false;

  Stream& stream(fl_stream handle) { return handle == nullptr ? default_stream : *reinterpret_cast<Stream*>(handle); }
};

/// note(), and the command's times are wanted where a profile runs.
inline void note_profiled(Device& device, Stream& stream, Enqueuing& command, fl_profile_kind kind,
                          const std::string& name, uint64_t bytes) {
  if (device.profile.started())
    device.profile.keep(&stream == &device.default_stream ? nullptr : &stream, *command.event(), kind, name, bytes);
  command.note();
}

inline Device& device_of(fl_device device) { return *reinterpret_cast<Device*>(device); }

fl_status make_queue(Device& device, cl_command_queue* queue) noexcept;
/// Waits for the stream and reports what failed on it.
fl_status finish(Device& device, Stream& stream) noexcept;
/// Waits for all streams.
fl_status finish_all(Device& device) noexcept;

extern const fl_device_api kDeviceApi;
extern const fl_memory_api kMemoryApi;
extern const fl_stream_api kStreamApi;
extern const fl_compiler_api kCompilerApi;
extern const fl_profiler_api kProfilerApi;

}  // namespace fl_opencl
