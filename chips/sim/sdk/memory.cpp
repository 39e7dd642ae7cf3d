// SPDX-License-Identifier: Apache-2.0
// Allocations with bookkeeping, red zones in checked mode, and copies.
#include <cstdlib>
#include <cstring>

#include "internal.h"

namespace simchip {
namespace {

constexpr uint64_t kRedZone = 64;
constexpr unsigned char kRedByte = 0xFD, kFreshByte = 0xCB;

uint64_t round_up(uint64_t value, uint64_t multiple) { return (value + multiple - 1) / multiple * multiple; }

void check_red_zones(const Device& device, simAddress address, const Allocation& a) {
  if (!device.checked) return;
  const auto* begin = static_cast<const unsigned char*>(simTranslate(&device, address));
  for (uint64_t i = 1; i <= a.front; ++i)
    if (begin[-static_cast<int64_t>(i)] != kRedByte)
      die("device %d: memory %llu bytes in front of the allocation at %#llx was overwritten", device.index,
          static_cast<unsigned long long>(i), static_cast<unsigned long long>(address));
  for (uint64_t i = 0; i < kRedZone; ++i)
    if (begin[a.bytes + i] != kRedByte)
      die("device %d: memory %llu bytes past the end of the allocation of %llu bytes at %#llx was overwritten",
          device.index, static_cast<unsigned long long>(i), static_cast<unsigned long long>(a.bytes),
          static_cast<unsigned long long>(address));
}

struct Copy final : Command {
  Copy(void* d, const void* s, uint64_t n) : dst(d), src(s), bytes(n) {}
  void run(Device&, bool alive) override {
    if (alive) std::memmove(dst, src, bytes);
  }
  bool describe(simActivity& activity) const override {
    activity.kind = SIM_ACTIVITY_MEMCPY;
    activity.name = "memcpy";
    activity.bytes = bytes;
    return true;
  }
  void* dst;
  const void* src;
  uint64_t bytes;
};

void fill_memory(void* dst, const unsigned char* pattern, uint32_t pattern_bytes, uint64_t count) {
  if (pattern_bytes == 1) {
    std::memset(dst, pattern[0], count);
    return;
  }
  auto* out = static_cast<unsigned char*>(dst);
  const uint64_t bytes = count * pattern_bytes;
  uint64_t done = bytes < pattern_bytes ? bytes : pattern_bytes;
  std::memcpy(out, pattern, done);
  while (done < bytes) {  // double what is there; blocks that stay in the cache
    uint64_t step = done < bytes - done ? done : bytes - done;
    if (step > 4096) step = 4096;
    std::memcpy(out + done, out, step);
    done += step;
  }
}

struct Fill final : Command {
  Fill(void* d, const void* p, uint32_t n, uint64_t c) : dst(d), pattern_bytes(n), count(c) {
    std::memcpy(pattern, p, n);
  }
  void run(Device&, bool alive) override {
    if (alive) fill_memory(dst, pattern, pattern_bytes, count);
  }
  bool describe(simActivity& activity) const override {
    activity.kind = SIM_ACTIVITY_MEMSET;
    activity.name = "memset";
    activity.bytes = count * pattern_bytes;
    return true;
  }
  void* dst;
  unsigned char pattern[16];
  uint32_t pattern_bytes;
  uint64_t count;
};

simResult enqueue(Device& device, simStream stream, std::unique_ptr<Command> command) {
  if (const simResult result = device.check()) return result;
  auto target = device.find(stream);
  if (!target)
    return fail(SIM_ERROR_INVALID_VALUE, "device %d has no stream %p", device.index, static_cast<void*>(stream));
  target->submit(std::move(command));
  return SIM_SUCCESS;
}

simResult copy(Device& device, simStream stream, void* dst, const void* src, uint64_t bytes) {
  if (bytes == 0) return SIM_SUCCESS;
  if (!(simMode(&device) & SIM_MODE_QUEUED)) {
    if (simMode(&device))
      if (const simResult result = device.check()) return result;
    return run_profiled(device, stream, SIM_ACTIVITY_MEMCPY, "memcpy", bytes, [&] {
      std::memmove(dst, src, bytes);
      return SIM_SUCCESS;
    });
  }
  return enqueue(device, stream, std::make_unique<Copy>(dst, src, bytes));
}

}  // namespace
}  // namespace simchip

using namespace simchip;

simResult simMalloc(simDevice device, uint64_t bytes, simAddress* address) {
  SIM_ENTER(device);
  Device& d = as_device(device);
  if (!address || bytes == 0)
    return fail(SIM_ERROR_INVALID_VALUE, "simMalloc: %s", address ? "0 bytes asked for" : "address is null");
  if (d.lost.load()) return d.check();
  const uint64_t alignment = limits().alignment < 64 ? 64 : limits().alignment;
  const uint64_t front = d.checked ? round_up(kRedZone, alignment) : 0, back = d.checked ? kRedZone : 0;
  std::lock_guard<std::mutex> lock(d.mutex);
  if (bytes > d.allocation_limit || d.used > d.allocation_limit - bytes)
    return fail(SIM_ERROR_OUT_OF_MEMORY, "device %d: %llu bytes asked for, %llu of %llu in use", d.index,
                static_cast<unsigned long long>(bytes), static_cast<unsigned long long>(d.used),
                static_cast<unsigned long long>(d.allocation_limit));
  void* raw = nullptr;
  if (posix_memalign(&raw, alignment, front + bytes + back) != 0)
    return fail(SIM_ERROR_OUT_OF_MEMORY, "device %d: the host has no %llu bytes for it", d.index,
                static_cast<unsigned long long>(bytes));
  auto* begin = static_cast<unsigned char*>(raw) + front;
  if (d.checked) {
    std::memset(raw, kRedByte, front);
    std::memset(begin, kFreshByte, bytes);
    std::memset(begin + bytes, kRedByte, back);
  }
  *address = reinterpret_cast<uintptr_t>(begin) + d.bias;
  d.allocations.emplace(*address, Allocation{bytes, front, raw});
  d.used += bytes;
  return SIM_SUCCESS;
}

simResult simFree(simDevice device, simAddress address) {
  SIM_ENTER(device);
  Device& d = as_device(device);
  Allocation a;
  {
    std::lock_guard<std::mutex> lock(d.mutex);
    const auto found = d.allocations.find(address);
    if (found == d.allocations.end())
      return fail(SIM_ERROR_INVALID_VALUE, "device %d: simFree(%#llx): not the address of a live allocation", d.index,
                  static_cast<unsigned long long>(address));
    a = found->second;
    d.allocations.erase(found);
    d.used -= a.bytes;
  }
  check_red_zones(d, address, a);
  std::free(a.block);
  return SIM_SUCCESS;
}

simResult simHostAlloc(simDevice device, uint64_t bytes, void** pointer) {
  SIM_ENTER(device);
  if (!pointer || bytes == 0)
    return fail(SIM_ERROR_INVALID_VALUE, "simHostAlloc: %s", pointer ? "0 bytes asked for" : "pointer is null");
  if (posix_memalign(pointer, 64, bytes) != 0)
    return fail(SIM_ERROR_OUT_OF_MEMORY, "the host has no %llu bytes", static_cast<unsigned long long>(bytes));
  return SIM_SUCCESS;
}

simResult simHostFree(simDevice device, void* pointer) {
  SIM_ENTER(device);
  std::free(pointer);
  return SIM_SUCCESS;
}

simResult simMemoryInfo(simDevice device, uint64_t* free_bytes, uint64_t* total_bytes) {
  SIM_ENTER(device);
  Device& d = as_device(device);
  std::lock_guard<std::mutex> lock(d.mutex);
  if (total_bytes) *total_bytes = limits().memory_bytes;
  if (free_bytes) *free_bytes = limits().memory_bytes > d.used ? limits().memory_bytes - d.used : 0;
  return SIM_SUCCESS;
}

simResult simMemcpyAsync(simDevice device, simStream stream, uint64_t dst, uint64_t src, uint64_t bytes, int32_t kind) {
  SIM_ENTER(device);
  if (kind < SIM_HOST_TO_DEVICE || kind > SIM_DEVICE_TO_DEVICE)
    return fail(SIM_ERROR_INVALID_VALUE, "simMemcpyAsync: kind %d is not one of 0, 1, 2", kind);
  const bool device_dst = kind != SIM_DEVICE_TO_HOST, device_src = kind != SIM_HOST_TO_DEVICE;
  if (device->checked) {
    if (device_dst) simCheckRange(device, dst, bytes, "destination of a copy");
    if (device_src) simCheckRange(device, src, bytes, "source of a copy");
  }
  void* to = device_dst ? simTranslate(device, dst) : reinterpret_cast<void*>(static_cast<uintptr_t>(dst));
  const void* from = device_src ? simTranslate(device, src) : reinterpret_cast<void*>(static_cast<uintptr_t>(src));
  return copy(as_device(device), stream, to, from, bytes);
}

simResult simMemcpyPeerAsync(simDevice dst_device, simAddress dst, simDevice src_device, simAddress src, uint64_t bytes,
                             simStream src_stream) {
  SIM_ENTER(src_device);
  SIM_ENTER(dst_device);
  if (as_device(dst_device).lost.load()) return as_device(dst_device).check();
  if (src_device->checked) {
    simCheckRange(dst_device, dst, bytes, "destination of a copy between devices");
    simCheckRange(src_device, src, bytes, "source of a copy between devices");
  }
  return copy(as_device(src_device), src_stream, simTranslate(dst_device, dst), simTranslate(src_device, src), bytes);
}

simResult simMemsetAsync(simDevice device, simStream stream, simAddress dst, const void* pattern,
                         uint32_t pattern_bytes, uint64_t count) {
  SIM_ENTER(device);
  if (!pattern || pattern_bytes == 0 || pattern_bytes > 16 || (pattern_bytes & (pattern_bytes - 1)) != 0)
    return fail(SIM_ERROR_INVALID_VALUE, "simMemsetAsync: a pattern has 1, 2, 4, 8 or 16 bytes, not %u", pattern_bytes);
  if (count == 0) return SIM_SUCCESS;
  Device& d = as_device(device);
  if (device->checked) simCheckRange(device, dst, pattern_bytes * count, "destination of a fill");
  void* to = simTranslate(device, dst);
  if (simMode(device) & SIM_MODE_QUEUED)
    return enqueue(d, stream, std::make_unique<Fill>(to, pattern, pattern_bytes, count));
  if (simMode(device))
    if (const simResult result = d.check()) return result;
  return run_profiled(d, stream, SIM_ACTIVITY_MEMSET, "memset", pattern_bytes * count, [&] {
    fill_memory(to, static_cast<const unsigned char*>(pattern), pattern_bytes, count);
    return SIM_SUCCESS;
  });
}

void simCheckRange(const simDeviceHead* device, simAddress address, uint64_t bytes, const char* what) {
  if (bytes == 0) return;
  Device& d = as_device(const_cast<simDeviceHead*>(device));
  std::lock_guard<std::mutex> lock(d.mutex);
  auto next = d.allocations.upper_bound(address);
  if (next != d.allocations.begin()) {
    const auto& [start, a] = *std::prev(next);
    if (address - start <= a.bytes && bytes <= a.bytes - (address - start)) return;
    die("device %d: %s: %llu bytes at %#llx leave their allocation of %llu bytes at %#llx", d.index, what,
        static_cast<unsigned long long>(bytes), static_cast<unsigned long long>(address),
        static_cast<unsigned long long>(a.bytes), static_cast<unsigned long long>(start));
  }
  die("device %d: %s: %llu bytes at %#llx are in no allocation of this device", d.index, what,
      static_cast<unsigned long long>(bytes), static_cast<unsigned long long>(address));
}
