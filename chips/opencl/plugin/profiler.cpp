// SPDX-License-Identifier: Apache-2.0
// The profiler table: commands' own times, and the device's clock beside the host's.
#include <algorithm>
#include <chrono>
#include <string>

#include "device.h"
#include "status.h"

namespace fl_opencl {
namespace {

thread_local uint64_t thread_correlation = 0;

int64_t now_ns() {
  const auto now = std::chrono::steady_clock::now().time_since_epoch();
  return std::chrono::duration_cast<std::chrono::nanoseconds>(now).count();
}

fl_status start(fl_device handle) {
  return guarded([&]() -> fl_status {
    Device& device = device_of(handle);
    const std::lock_guard lock(device.clock_mutex);
    if (device.clock_queue == nullptr)
      if (const fl_status status = make_queue(device, &device.clock_queue); status != FL_OK) return status;
    device.profile.start();
    return FL_OK;
  });
}

fl_status stop(fl_device handle) {
  return guarded([&]() -> fl_status {
    device_of(handle).profile.stop();
    return FL_OK;
  });
}

void set_correlation(uint64_t id) { thread_correlation = id; }

fl_status flush(fl_device handle, void (*sink)(void* context, const fl_profile_event* event), void* context) {
  return guarded([&]() -> fl_status {
    Device& device = device_of(handle);
    device.profile.take(device.index, [&](const fl_profile_event& event) { sink(context, &event); });
    if (const uint64_t dropped = device.profile.take_dropped(); dropped != 0)
      warn(device.info.label + ": " + std::to_string(dropped) +
           " commands are missing from the profile: they failed, or too many were kept");
    return FL_OK;
  });
}

struct ClockPair {
  int64_t device_ns = 0, host_ns = 0, error_ns = 0;
};

/// A command's end, between two looks at the host's clock. Of a queue without other work.
fl_status pair_by_marker(Device& device, ClockPair* pair) noexcept {
  cl_event marker = nullptr;
  const int64_t before = now_ns();
  cl_int code = cl.clEnqueueMarkerWithWaitList(device.clock_queue, 0, nullptr, &marker);
  if (code != CL_SUCCESS) return failed(code, "clEnqueueMarkerWithWaitList", device.info);
  code = cl.clFinish(device.clock_queue);
  const int64_t after = now_ns();
  cl_ulong end = 0;
  if (code == CL_SUCCESS)
    code = cl.clGetEventProfilingInfo(marker, CL_PROFILING_COMMAND_END, sizeof end, &end, nullptr);
  cl.clReleaseEvent(marker);
  if (code != CL_SUCCESS) return failed(code, "timing a marker", device.info);
  *pair = {static_cast<int64_t>(end), before + (after - before) / 2, after - before};
  return FL_OK;
}

/// OpenCL 2.1's function. False: the runtime has none, or one that does not work.
bool pair_by_timer(Device& device, ClockPair* pair) noexcept {
  if (cl.clGetDeviceAndHostTimer == nullptr || !device.info.has_timer) return false;
  cl_ulong device_time = 0, host_time = 0;
  const int64_t before = now_ns();
  if (cl.clGetDeviceAndHostTimer(device.info.id, &device_time, &host_time) != CL_SUCCESS) return false;
  const int64_t after = now_ns();
  *pair = {static_cast<int64_t>(device_time), before + (after - before) / 2, after - before};
  return true;
}

/// Whether the timer is the clock that commands are timed with: that is not so everywhere.
bool timer_is_right(Device& device) noexcept {
  constexpr int64_t kTolerance = 100'000;
  ClockPair timer, marker;
  if (!pair_by_timer(device, &timer) || pair_by_marker(device, &marker) != FL_OK) return false;
  const int64_t difference = (timer.device_ns - timer.host_ns) - (marker.device_ns - marker.host_ns);
  return std::abs(difference) <= marker.error_ns + timer.error_ns + kTolerance;
}

fl_status clock(fl_device handle, int64_t* device_ns, int64_t* host_ns) {
  return guarded([&]() -> fl_status {
    Device& device = device_of(handle);
    const std::lock_guard lock(device.clock_mutex);
    if (device.clock_queue == nullptr) return fail(FL_INVALID_ARGUMENT, "the profiler was not started");
    if (!device.timer_tried) {
      device.timer_tried = true;
      device.timer_works = timer_is_right(device);
    }
    ClockPair pair;
    if (!device.timer_works || !pair_by_timer(device, &pair))
      if (const fl_status status = pair_by_marker(device, &pair); status != FL_OK) return status;
    *device_ns = pair.device_ns;
    *host_ns = pair.host_ns;
    return FL_OK;
  });
}

}  // namespace

void Profile::start() {
  stop();
  started_.store(true, std::memory_order_relaxed);
}

void Profile::stop() {
  started_.store(false, std::memory_order_relaxed);
  const std::lock_guard lock(mutex_);
  for (const Command& command : commands_) cl.clReleaseEvent(command.event);
  commands_.clear();
  dropped_ = 0;
}

void Profile::keep(const Stream* stream, cl_event event, fl_profile_kind kind, const std::string& name,
                   uint64_t bytes) noexcept {
  try {
    const std::lock_guard lock(mutex_);
    if (!started()) return;
    if (commands_.size() >= kMost) {
      ++dropped_;
      return;
    }
    commands_.push_back({event, kind, &*names_.insert(name).first, stream, thread_correlation, bytes});
    cl.clRetainEvent(event);
  } catch (...) {
    ++dropped_;
  }
}

bool Profile::read(const Command& command, bool* ended, int64_t* start_ns, int64_t* end_ns) {
  cl_int state = CL_COMPLETE;
  const cl_int code =
      cl.clGetEventInfo(command.event, CL_EVENT_COMMAND_EXECUTION_STATUS, sizeof state, &state, nullptr);
  *ended = code != CL_SUCCESS || state <= CL_COMPLETE;
  if (code != CL_SUCCESS || state != CL_COMPLETE) return false;
  cl_ulong start = 0, end = 0;
  if (cl.clGetEventProfilingInfo(command.event, CL_PROFILING_COMMAND_START, sizeof start, &start, nullptr) !=
          CL_SUCCESS ||
      cl.clGetEventProfilingInfo(command.event, CL_PROFILING_COMMAND_END, sizeof end, &end, nullptr) != CL_SUCCESS)
    return false;
  *start_ns = static_cast<int64_t>(start);
  *end_ns = static_cast<int64_t>(end);
  return true;
}

const fl_profiler_api kProfilerApi = {sizeof(fl_profiler_api), start, stop, set_correlation, flush, clock};

}  // namespace fl_opencl
