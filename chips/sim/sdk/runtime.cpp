// SPDX-License-Identifier: Apache-2.0
// Configuration, devices, error text, process exit and fork.
#include <pthread.h>
#include <time.h>

#include <cerrno>
#include <climits>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "internal.h"

namespace simchip {
namespace {

thread_local char error_text[4096] = "";  // a compiler has much to say
std::atomic<bool> is_forked{false};
std::atomic<bool> is_ending{false};
simLimits the_limits;
Device* devices[SIM_MAX_DEVICES] = {};
std::once_flag init_once, exit_once;

bool environment_flag(const char* name) {
  const char* text = std::getenv(name);
  return text && *text && std::strcmp(text, "0") != 0;
}

// A process that has opened no device has no workers and holds no locks: its children may start afresh.
void after_fork_in_child() {
  for (Device* device : devices) {
    if (device && device->open) is_forked.store(true);
  }
}

// Leaves the queues' rest undone: the process has no more use for it. Must not run in a forked child, where the workers
// do not exist and locks may be held for ever.
void end_workers() {
  if (forked()) return;
  is_ending.store(true);
  for (Device* device : devices) {
    if (!device) continue;
    for (auto& stream : device->all_streams()) stream->request_stop();
  }
  for (Device* device : devices) {
    if (!device) continue;
    for (auto& stream : device->all_streams()) stream->stop(false);
  }
}

void read_limits() {
  simLimits& l = the_limits;
  l.devices = static_cast<int32_t>(environment_integer("SIMCHIP_DEVICES", 2, 0, SIM_MAX_DEVICES));
  l.run_inline = environment_flag("SIMCHIP_INLINE");
  l.host_coherent = environment_flag("SIMCHIP_HOST_COHERENT");
  l.checked = environment_flag("SIMCHIP_CHECK");
  l.hide_kernels = environment_flag("SIMCHIP_HIDE_KERNELS");
  const bool kernels_alone = l.hide_kernels && std::strcmp(std::getenv("SIMCHIP_HIDE_KERNELS"), "2") == 0;
  l.hide_profiler = environment_flag("SIMCHIP_HIDE_PROFILER");
  l.hide_compiler = environment_flag("SIMCHIP_HIDE_COMPILER") || (l.hide_kernels && !kernels_alone);
  l.conv_channels_last = environment_flag("SIMCHIP_CONV_CHANNELS_LAST");
  l.matmul_multiple = static_cast<int32_t>(environment_integer("SIMCHIP_MATMUL_MULTIPLE", 0, 0, 1 << 16));
  l.memory_bytes = static_cast<uint64_t>(environment_integer("SIMCHIP_MEMORY_MB", 4096, 1, 1 << 24)) << 20;
  l.alignment = static_cast<uint64_t>(environment_integer("SIMCHIP_ALIGNMENT", 64, 1, 1 << 30));
  if ((l.alignment & (l.alignment - 1)) != 0) {
    std::fprintf(stderr, "simchip: SIMCHIP_ALIGNMENT=%llu is not a power of two; using 64\n",
                 static_cast<unsigned long long>(l.alignment));
    l.alignment = 64;
  }
  if (const char* text = std::getenv("SIMCHIP_DTYPES")) std::snprintf(l.dtypes, sizeof l.dtypes, "%s", text);
  l.trusting = environment_flag("SIMCHIP_TRUSTING");
  if (const char* text = std::getenv("SIMCHIP_CONV_STRIDES"))
    std::snprintf(l.conv_strides, sizeof l.conv_strides, "%s", text);
}

void initialise() {
  read_limits();
  read_fault_environment();
  const simLimits& l = the_limits;
  // Limits on kernels are checked by whoever launches: it looks only when there is something to look for.
  const bool attention =
      l.checked || l.dtypes[0] || l.matmul_multiple || l.conv_channels_last || l.conv_strides[0] || l.trusting;
  for (int32_t i = 0; i < l.devices; ++i) {
    auto* device = new Device();  // lives as long as the process
    device->bias = l.host_coherent ? 0 : static_cast<uint64_t>(i + 1) << 56;
    device->checked = static_cast<uint32_t>(l.checked);
    device->index = i;
    if (!l.run_inline) device->set_mode(SIM_MODE_QUEUED);
    if (attention) device->set_mode(SIM_MODE_ATTENTION);
    device->allocation_limit = l.memory_bytes;
    device->streams.push_back(std::make_shared<Stream>(*device));
    device->default_stream = device->streams.front().get();
    devices[i] = device;
    inject_from_environment(*device);
  }
  pthread_atfork(nullptr, nullptr, after_fork_in_child);
}

}  // namespace

simResult fail(simResult result, const char* format, ...) {
  va_list args;
  va_start(args, format);
  std::vsnprintf(error_text, sizeof error_text, format, args);
  va_end(args);
  return result;
}

void die(const char* format, ...) {
  char text[1024];
  va_list args;
  va_start(args, format);
  std::vsnprintf(text, sizeof text, format, args);
  va_end(args);
  std::fprintf(stderr, "simchip: %s\n", text);
  std::abort();
}

int64_t environment_integer(const char* name, int64_t fallback, int64_t low, int64_t high) {
  const char* text = std::getenv(name);
  if (!text || !*text) return fallback;
  char* end = nullptr;
  errno = 0;
  const long long value = std::strtoll(text, &end, 10);
  if (errno || *end || value < low || value > high) {
    std::fprintf(stderr, "simchip: %s=%s is not an integer from %lld to %lld; using %lld\n", name, text,
                 static_cast<long long>(low), static_cast<long long>(high), static_cast<long long>(fallback));
    return fallback;
  }
  return value;
}

int64_t now_ns() {
  timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return static_cast<int64_t>(t.tv_sec) * 1000000000 + t.tv_nsec;
}

const simLimits& limits() {
  std::call_once(init_once, initialise);
  return the_limits;
}

bool forked() { return is_forked.load(std::memory_order_relaxed); }
bool process_ending() { return is_ending.load(); }

void end_workers_at_exit() {
  std::call_once(exit_once, [] { std::atexit(end_workers); });
}

Device* device_at(int32_t index) { return index >= 0 && index < limits().devices ? devices[index] : nullptr; }

std::shared_ptr<Stream> Device::find(simStream stream) {
  std::lock_guard<std::mutex> lock(mutex);
  if (!stream) return streams.front();
  for (auto& s : streams)
    if (reinterpret_cast<simStream>(s.get()) == stream) return s;
  return nullptr;
}

std::vector<std::shared_ptr<Stream>> Device::all_streams() {
  std::lock_guard<std::mutex> lock(mutex);
  return streams;
}

simResult Device::check() {
  if (lost.load()) return fail(SIM_ERROR_DEVICE_LOST, "device %d was lost and does not answer", index);
  if (!has_error.load(std::memory_order_acquire)) return SIM_SUCCESS;
  std::lock_guard<std::mutex> lock(mutex);
  if (!has_error.exchange(false)) return SIM_SUCCESS;
  const simResult result = fail(pending_result, "device %d: %s", index, pending_error.c_str());
  pending_error.clear();
  return result;
}

void Device::report(simResult result, const std::string& message) {
  std::lock_guard<std::mutex> lock(mutex);
  if (has_error.load()) return;  // the first failure is the one to tell
  pending_error = message;
  pending_result = result;
  has_error.store(true, std::memory_order_release);
}

}  // namespace simchip

using namespace simchip;

const char* simGetLastErrorString(void) { return error_text; }

simResult simInit(void) {
  if (forked()) return fail(SIM_ERROR_FORKED, "the chip cannot be used in a forked process");
  limits();
  return SIM_SUCCESS;
}

const simLimits* simGetLimits(void) { return &limits(); }

simResult simDeviceCount(int32_t* count) {
  if (!count) return fail(SIM_ERROR_INVALID_VALUE, "simDeviceCount: count is null");
  *count = limits().devices;
  return SIM_SUCCESS;
}

simResult simDeviceOpen(int32_t index, simDevice* device) {
  if (!device) return fail(SIM_ERROR_INVALID_VALUE, "simDeviceOpen: device is null");
  if (const simResult result = simInit()) return result;
  Device* found = device_at(index);
  if (!found)
    return fail(SIM_ERROR_INVALID_VALUE, "simDeviceOpen: there is no device %d; expected 0 to %d", index,
                limits().devices - 1);
  if (init_fails(index)) return fail(SIM_ERROR_INIT_FAILED, "device %d does not start (injected fault)", index);
  if (found->lost.load()) return found->check();
  {
    std::lock_guard<std::mutex> lock(found->mutex);
    found->open = true;
  }
  end_workers_at_exit();
  *device = found;
  return SIM_SUCCESS;
}

simResult simDeviceClose(simDevice device) {
  SIM_ENTER(device);
  Device& d = as_device(device);
  for (auto& stream : d.all_streams()) stream->stop(true);
  std::lock_guard<std::mutex> lock(d.mutex);
  d.open = false;
  return SIM_SUCCESS;
}

simResult simDeviceSynchronize(simDevice device) {
  SIM_ENTER(device);
  Device& d = as_device(device);
  if (!(simMode(device) & SIM_MODE_QUEUED)) return d.check();
  for (auto& stream : d.all_streams()) stream->synchronize();
  return d.check();
}
