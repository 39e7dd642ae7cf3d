// SPDX-License-Identifier: Apache-2.0
// Activities: what ran on a device, and when. The device's clock is the host's with an epoch (and a drift) of its own.
#include <algorithm>

#include "internal.h"

namespace simchip {
namespace {

constexpr size_t kMostActivities = 1 << 16;
thread_local uint64_t thread_correlation = 0;

int64_t epoch() {
  static const int64_t once = now_ns() - 1000000;
  return once;
}

double rate() {
  static const double once =
      1.0 + static_cast<double>(environment_integer("SIMCHIP_CLOCK_DRIFT_PPM", 0, -100000, 100000)) * 1e-6;
  return once;
}

int64_t device_time(int64_t host_ns) {
  const int64_t since = host_ns - epoch();
  return rate() == 1.0 ? since : static_cast<int64_t>(static_cast<double>(since) * rate());
}

}  // namespace

uint64_t correlation() { return thread_correlation; }

void Device::add_activity(simActivity activity, int64_t start, int64_t end) {
  activity.start_ns = device_time(start);
  activity.end_ns = device_time(end);
  std::lock_guard<std::mutex> lock(activities_mutex);
  if (!(simMode(this) & SIM_MODE_PROFILING)) return;
  if (activities.size() < kMostActivities)
    activities.push_back(activity);
  else
    ++dropped;
}

}  // namespace simchip

using namespace simchip;

simResult simProfilerStart(simDevice device) {
  SIM_ENTER(device);
  Device& d = as_device(device);
  if (d.lost.load()) return d.check();
  std::lock_guard<std::mutex> lock(d.activities_mutex);
  d.activities.clear();
  d.dropped = 0;
  d.set_mode(SIM_MODE_PROFILING);
  return SIM_SUCCESS;
}

simResult simProfilerStop(simDevice device) {
  SIM_ENTER(device);
  Device& d = as_device(device);
  std::lock_guard<std::mutex> lock(d.activities_mutex);
  d.clear_mode(SIM_MODE_PROFILING);
  d.activities.clear();
  return SIM_SUCCESS;
}

void simProfilerSetCorrelation(uint64_t id) { thread_correlation = id; }

simResult simProfilerRead(simDevice device, simActivity* activities, uint64_t* count, uint64_t* dropped) {
  SIM_ENTER(device);
  if (!activities || !count) return fail(SIM_ERROR_INVALID_VALUE, "simProfilerRead: activities or count is null");
  Device& d = as_device(device);
  std::lock_guard<std::mutex> lock(d.activities_mutex);
  *count = std::min<uint64_t>(*count, d.activities.size());
  const auto end = d.activities.begin() + static_cast<int64_t>(*count);
  std::copy(d.activities.begin(), end, activities);
  d.activities.erase(d.activities.begin(), end);
  if (dropped) {
    *dropped = d.dropped;
    d.dropped = 0;
  }
  return SIM_SUCCESS;
}

simResult simDeviceClock(simDevice device, int64_t* device_ns, int64_t* host_ns) {
  SIM_ENTER(device);
  if (!device_ns || !host_ns) return fail(SIM_ERROR_INVALID_VALUE, "simDeviceClock: device_ns or host_ns is null");
  *host_ns = now_ns();
  *device_ns = device_time(*host_ns);
  return SIM_SUCCESS;
}
