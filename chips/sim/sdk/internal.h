// SPDX-License-Identifier: Apache-2.0
// The inside of libsimchip: devices, streams, faults. Nothing here is ever destroyed at exit except worker threads.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdarg>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "simchip.h"

namespace simchip {

struct Device;

/// Records the text for simGetLastErrorString() and returns `result`.
simResult fail(simResult result, const char* format, ...) __attribute__((format(printf, 2, 3)));
/// Writes the message to stderr and aborts: the simulator is strict about misuse.
[[noreturn]] void die(const char* format, ...) __attribute__((format(printf, 1, 2)));

/// A moment in a stream: what an event's record refers to.
struct Marker {
  std::mutex mutex;
  std::condition_variable changed;
  bool done = false;
  int64_t time_ns = 0;
  void complete();
  void wait();
  bool query();
};

struct Command {
  virtual ~Command() = default;
  /// On the worker. `alive` is false when the device is lost or the process ends: do no work, but release who waits.
  virtual void run(Device& device, bool alive) = 0;
  /// False: nothing that a profile shows.
  virtual bool describe(simActivity&) const { return false; }
  bool profiled = false;
  uint64_t correlation = 0;
};

/// One in-order queue and, from its first command on, one worker thread.
class Stream {
 public:
  static constexpr size_t kMaxQueued = 1024;
  explicit Stream(Device& device) : device_(device) {}
  ~Stream() { stop(true); }
  void submit(std::unique_ptr<Command> command);
  void synchronize();
  bool idle();
  /// Ends the worker; with `drain` after all work, else after the current command.
  void stop(bool drain);
  /// Tells the worker to end, without waiting.
  void request_stop();

 private:
  void work();
  void run(Command& command, bool alive);
  Device& device_;
  std::mutex mutex_;
  std::condition_variable wake_, progress_;
  std::deque<std::unique_ptr<Command>> queue_;
  std::thread worker_;
  uint64_t submitted_ = 0, completed_ = 0;
  bool stopping_ = false, draining_ = false;
};

struct Allocation {
  uint64_t bytes;
  uint64_t front;  ///< red zone in front of it
  void* block;     ///< what the host's allocator gave: keeps it reachable for leak checkers, which the bias hides
};

struct Device : simDeviceHead {
  std::mutex mutex;  ///< guards all below
  bool open = false;
  std::map<simAddress, Allocation> allocations;
  uint64_t used = 0;
  uint64_t allocation_limit = 0;
  std::vector<std::shared_ptr<Stream>> streams;  ///< the default stream first
  std::string pending_error;
  simResult pending_result = SIM_SUCCESS;
  std::atomic<bool> has_error{false};
  std::atomic<bool> lost{false};
  std::atomic<int64_t> launches_until_loss{-1};  ///< -1: never

  const Stream* default_stream = nullptr;  ///< never changes
  std::shared_ptr<Stream> find(simStream stream);
  std::vector<std::shared_ptr<Stream>> all_streams();
  std::mutex activities_mutex;
  std::deque<simActivity> activities;
  uint64_t dropped = 0;

  void set_mode(uint32_t bits) { __atomic_fetch_or(&mode, bits, __ATOMIC_RELAXED); }
  void clear_mode(uint32_t bits) { __atomic_fetch_and(&mode, ~bits, __ATOMIC_RELAXED); }
  /// Of work that ran from `start` to `end` by the host's clock; forgotten when the profiler was stopped meanwhile.
  void add_activity(simActivity activity, int64_t start, int64_t end);
  void lose() {
    set_mode(SIM_MODE_ATTENTION);
    lost.store(true);
  }
  /// Failure of earlier asynchronous work, or loss; forgets the former.
  simResult check();
  void report(simResult result, const std::string& message);
};

const simLimits& limits();
bool forked();
Device* device_at(int32_t index);
inline Device& as_device(simDevice head) { return *static_cast<Device*>(head); }
/// Registers the exit handler that ends worker threads; they must not be joined by static destructors.
void end_workers_at_exit();
bool process_ending();

// ---- faults.cpp
void read_fault_environment();
void inject_from_environment(Device& device);
int64_t slow_stream_us();
bool init_fails(int32_t index);
/// Counts a launch. SIM_SUCCESS, or the fault that strikes it (with the text set).
simResult strike(Device& device, const char* kernel);
/// Runs a kernel on this thread, and longer than it takes if that is asked for.
simResult run_kernel(Device& device, const char* name, simKernel kernel, void* packet);
const char* kernel_error();
void clear_kernel_error();
int64_t environment_integer(const char* name, int64_t fallback, int64_t low, int64_t high);

int64_t now_ns();

// ---- profile.cpp
/// Of the calling thread.
uint64_t correlation();
/// Runs `work` on the calling thread, as an activity where the device's profiler is started.
template <class Work>
auto run_profiled(Device& device, simStream stream, int32_t kind, const char* name, uint64_t bytes, const Work& work) {
  if (!(simMode(&device) & SIM_MODE_PROFILING)) return work();
  const int64_t start = now_ns();
  const auto result = work();
  device.add_activity({kind, 0, name, stream, correlation(), 0, 0, bytes}, start, now_ns());
  return result;
}

// ---- stream.cpp
/// simLaunchInline() of a stream.
simResult launch_inline(Device& device, simStream stream, const char* name, simKernel kernel, void* packet);

}  // namespace simchip

// Entry check of every function that touches a device.
#define SIM_ENTER(device)                                                                                         \
  do {                                                                                                            \
    if (simchip::forked()) return simchip::fail(SIM_ERROR_FORKED, "the chip cannot be used in a forked process"); \
    if ((device) == nullptr) return simchip::fail(SIM_ERROR_INVALID_VALUE, "%s: device is null", __func__);       \
  } while (0)
