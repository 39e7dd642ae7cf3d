// SPDX-License-Identifier: Apache-2.0
// Faults on demand, from the environment or from the functions.
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "internal.h"

namespace simchip {
namespace {

std::mutex faults_mutex;
std::string failing_kernel;  // guarded by faults_mutex
int64_t failing_in = 0;
std::string wrong_kernel;  // guarded by faults_mutex
std::atomic<bool> kernel_faults{false};
std::atomic<bool> wrong_kernels{false};
std::string slowed_kernel;  // set once, by the environment
int64_t slowed_percent = -1;
std::atomic<int64_t> slow_us{0};
std::atomic<int32_t> failing_init{-1};
int32_t environment_loss_device = -1;
int64_t environment_loss_after = 0;
uint64_t environment_oom_bytes = 0;
thread_local char kernel_text[896] = "";

void for_each_device(void (*apply)(Device&)) {
  for (int32_t i = 0; Device* device = device_at(i); ++i) apply(*device);
}

// "text[:n]": returns n (1 where absent) and cuts it off. The name itself may hold "::".
int64_t split_count(std::string& text) {
  const size_t colon = text.rfind(':');
  if (colon == std::string::npos || colon + 1 == text.size() || (colon > 0 && text[colon - 1] == ':')) return 1;
  char* end = nullptr;
  const long long n = std::strtoll(text.c_str() + colon + 1, &end, 10);
  if (*end || n < 0) return 1;
  text.resize(colon);
  return n;
}

}  // namespace

void read_fault_environment() {
  slow_us.store(environment_integer("SIMCHIP_SLOW_STREAM_US", 0, 0, 60000000));
  failing_init.store(static_cast<int32_t>(environment_integer("SIMCHIP_FAIL_INIT", -1, -1, SIM_MAX_DEVICES)));
  environment_oom_bytes = static_cast<uint64_t>(environment_integer("SIMCHIP_OOM_AFTER_MB", 0, 0, 1 << 24)) << 20;
  if (const char* text = std::getenv("SIMCHIP_FAIL_KERNEL"); text && *text) {
    failing_kernel = text;
    failing_in = split_count(failing_kernel);
    kernel_faults.store(true);
  }
  if (const char* text = std::getenv("SIMCHIP_WRONG"); text && *text) {
    wrong_kernel = text;
    wrong_kernels.store(true);
  }
  if (const char* text = std::getenv("SIMCHIP_SLOW_KERNEL"); text && *text) {
    slowed_kernel = text;
    slowed_percent = split_count(slowed_kernel);
  }
  if (const char* text = std::getenv("SIMCHIP_LOSE_DEVICE"); text && *text) {
    std::string device = text;
    environment_loss_after = split_count(device);
    environment_loss_device = std::atoi(device.c_str());
  }
}

void inject_from_environment(Device& device) {
  if (environment_oom_bytes && environment_oom_bytes < device.allocation_limit)
    device.allocation_limit = environment_oom_bytes;
  if (kernel_faults.load() || wrong_kernels.load() || slowed_percent >= 0) device.set_mode(SIM_MODE_ATTENTION);
  if (device.index == environment_loss_device) {
    device.launches_until_loss.store(environment_loss_after);
    device.set_mode(SIM_MODE_ATTENTION);
  }
}

int64_t slow_stream_us() { return slow_us.load(std::memory_order_relaxed); }
bool init_fails(int32_t index) { return failing_init.load() == index; }
const char* kernel_error() { return kernel_text[0] ? kernel_text : "failed without a message"; }
void clear_kernel_error() { kernel_text[0] = 0; }

simResult strike(Device& device, const char* kernel) {
  if (!(simMode(&device) & SIM_MODE_ATTENTION)) return SIM_SUCCESS;
  if (device.launches_until_loss.load() >= 0 && device.launches_until_loss.fetch_sub(1) <= 1) {
    device.lose();
    return device.check();
  }
  if (!kernel_faults.load()) return SIM_SUCCESS;
  std::lock_guard<std::mutex> lock(faults_mutex);
  if (failing_kernel != kernel || failing_in <= 0 || --failing_in != 0) return SIM_SUCCESS;
  return fail(SIM_ERROR_KERNEL_FAILED, "kernel %s failed on device %d (injected fault)", kernel, device.index);
}

simResult run_kernel(Device& device, const char* name, simKernel kernel, void* packet) {
  clear_kernel_error();
  if (slowed_percent <= 0 || slowed_kernel != name) return kernel(&device, packet);
  const int64_t start = now_ns();
  const simResult result = kernel(&device, packet);
  const int64_t end = now_ns(), until = end + (end - start) * slowed_percent / 100;
  while (now_ns() < until) {
  }
  return result;
}

}  // namespace simchip

using namespace simchip;

void simKernelError(const char* message) {
  std::snprintf(kernel_text, sizeof kernel_text, "%s", message ? message : "");
}

simResult simInjectKernelFailure(const char* name, int64_t n) {
  if (name && n < 1)
    return fail(SIM_ERROR_INVALID_VALUE, "simInjectKernelFailure: n is %lld, expected 1 or more",
                static_cast<long long>(n));
  limits();
  {
    std::lock_guard<std::mutex> lock(faults_mutex);
    failing_kernel = name ? name : "";
    failing_in = name ? n : 0;
    kernel_faults.store(name != nullptr);
  }
  if (name) for_each_device([](Device& d) { d.set_mode(SIM_MODE_ATTENTION); });
  return SIM_SUCCESS;
}

simResult simInjectDeviceLoss(int32_t index, int64_t n) {
  Device* device = device_at(index);
  if (!device || n < 0)
    return fail(SIM_ERROR_INVALID_VALUE, "simInjectDeviceLoss(%d, %lld): no such device, or n below 0", index,
                static_cast<long long>(n));
  if (n == 0) {
    device->lose();
  } else {
    device->launches_until_loss.store(n);
    device->set_mode(SIM_MODE_ATTENTION);
  }
  return SIM_SUCCESS;
}

simResult simInjectOutOfMemory(int32_t index, uint64_t bytes) {
  Device* device = device_at(index);
  if (!device) return fail(SIM_ERROR_INVALID_VALUE, "simInjectOutOfMemory: there is no device %d", index);
  std::lock_guard<std::mutex> lock(device->mutex);
  device->allocation_limit = bytes ? bytes : limits().memory_bytes;
  return SIM_SUCCESS;
}

simResult simInjectSlowStream(int64_t microseconds) {
  if (microseconds < 0) return fail(SIM_ERROR_INVALID_VALUE, "simInjectSlowStream: the delay is negative");
  limits();
  slow_us.store(microseconds);
  return SIM_SUCCESS;
}

simResult simInjectInitFailure(int32_t index) {
  limits();
  failing_init.store(index);
  return SIM_SUCCESS;
}

simResult simInjectWrongKernel(const char* name) {
  limits();
  {
    std::lock_guard<std::mutex> lock(faults_mutex);
    wrong_kernel = name ? name : "";
    wrong_kernels.store(!wrong_kernel.empty());
  }
  for_each_device([](Device& d) { d.set_mode(SIM_MODE_ATTENTION); });
  return SIM_SUCCESS;
}

void simWrongKernel(char* name, size_t capacity) {
  if (capacity == 0) return;
  name[0] = 0;
  if (!wrong_kernels.load(std::memory_order_relaxed)) return;
  std::lock_guard<std::mutex> lock(faults_mutex);
  std::snprintf(name, capacity, "%s", wrong_kernel.c_str());
}
