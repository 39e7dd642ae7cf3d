// SPDX-License-Identifier: Apache-2.0
// The profiler table over the SDK's activities.
#include <string>

#include "plugin.h"

namespace fl_sim {
namespace {

static_assert(int{FL_PROFILE_KERNEL} == int{SIM_ACTIVITY_KERNEL} && int{FL_PROFILE_COPY} == int{SIM_ACTIVITY_MEMCPY} &&
                  int{FL_PROFILE_FILL} == int{SIM_ACTIVITY_MEMSET},
              "kinds are handed on as they are");

simDevice device_of(fl_device device) { return reinterpret_cast<simDevice>(device); }

fl_status start(fl_device device) { return check(simProfilerStart(device_of(device))); }
fl_status stop(fl_device device) { return check(simProfilerStop(device_of(device))); }

fl_profile_event event_of(simDevice device, const simActivity& activity) {
  fl_profile_event event = {};
  event.struct_size = sizeof event;
  event.kind = activity.kind;
  event.name = activity.name;
  event.device_index = device->index;
  event.stream = reinterpret_cast<fl_stream>(activity.stream);
  event.correlation = activity.correlation;
  event.start_ns = activity.start_ns;
  event.end_ns = activity.end_ns;
  event.bytes = activity.bytes;
  return event;
}

void tell_dropped(simDevice device, uint64_t dropped) {
  if (!dropped || !host()) return;
  const std::string text = "sim device " + std::to_string(device->index) + ": its activity buffer was full, " +
                           std::to_string(dropped) + " activities are missing from the profile";
  host()->log(FL_LOG_WARNING, text.c_str());
}

fl_status flush(fl_device handle, void (*sink)(void* context, const fl_profile_event* event), void* context) {
  const simDevice device = device_of(handle);
  for (;;) {
    simActivity activities[128];
    uint64_t count = 128, dropped = 0;
    if (const fl_status status = check(simProfilerRead(device, activities, &count, &dropped))) return status;
    tell_dropped(device, dropped);
    if (!count) return FL_OK;
    for (uint64_t i = 0; i < count; ++i) {
      const fl_profile_event event = event_of(device, activities[i]);
      sink(context, &event);
    }
  }
}

fl_status clock(fl_device device, int64_t* device_ns, int64_t* host_ns) {
  return check(simDeviceClock(device_of(device), device_ns, host_ns));
}

constexpr fl_profiler_api kProfiler = {.struct_size = sizeof(fl_profiler_api),
                                       .start = start,
                                       .stop = stop,
                                       .set_correlation = simProfilerSetCorrelation,
                                       .flush = flush,
                                       .clock = clock};

}  // namespace

const fl_profiler_api* profiler_table() noexcept { return &kProfiler; }

}  // namespace fl_sim
