// SPDX-License-Identifier: Apache-2.0
// Many threads on all parts of the SDK at once: for ThreadSanitizer and AddressSanitizer, and for its own checks.
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <thread>
#include <vector>

#include "simchip.h"

namespace {

constexpr uint64_t kCount = 512;
std::atomic<int> failures{0};

void check(simResult result, const char* what) {
  if (result == SIM_SUCCESS) return;
  std::fprintf(stderr, "%s: %s\n", what, simGetLastErrorString());
  ++failures;
}
#define CHECK(call) check(call, #call)

struct AddOne {
  simAddress data;
  uint64_t count;
};

int32_t add_one(simDevice device, void* packet) {
  const auto* args = static_cast<const AddOne*>(packet);
  auto* values = static_cast<uint32_t*>(simTranslate(device, args->data));
  for (uint64_t i = 0; i < args->count; ++i) ++values[i];
  return 0;
}

// Counts up on one stream, hands over to another by an event, copies to the other device, reads back.
void worker(int id) {
  simDevice mine = nullptr, other = nullptr;
  CHECK(simDeviceOpen(id % 2, &mine));
  CHECK(simDeviceOpen(1 - id % 2, &other));
  for (int round = 0; round < 20; ++round) {
    simStream first = nullptr, second = nullptr;
    simEvent event = nullptr;
    simAddress here = 0, there = 0;
    CHECK(simStreamCreate(mine, 0, &first));
    CHECK(simStreamCreate(mine, 0, &second));
    CHECK(simEventCreate(mine, &event));
    CHECK(simMalloc(mine, kCount * 4, &here));
    CHECK(simMalloc(other, kCount * 4, &there));
    const uint32_t start = static_cast<uint32_t>(id * 1000 + round);
    CHECK(simMemsetAsync(mine, first, here, &start, 4, kCount));
    const AddOne packet{here, kCount};
    for (int k = 0; k < 10; ++k) CHECK(simLaunch(mine, first, "add_one", add_one, &packet, sizeof packet));
    CHECK(simEventRecord(mine, event, first));
    CHECK(simStreamWaitEvent(mine, second, event));
    CHECK(simLaunch(mine, second, "add_one", add_one, &packet, sizeof packet));
    CHECK(simMemcpyPeerAsync(other, there, mine, here, kCount * 4, second));
    CHECK(simEventRecord(mine, event, second));
    CHECK(simStreamWaitEvent(other, nullptr, event));
    std::vector<uint32_t> host(kCount);
    CHECK(simMemcpyAsync(other, nullptr, reinterpret_cast<uintptr_t>(host.data()), there, kCount * 4,
                         SIM_DEVICE_TO_HOST));
    CHECK(simStreamSynchronize(other, nullptr));
    for (const uint32_t value : host)
      if (value != start + 11) {
        std::fprintf(stderr, "expected %u, found %u\n", start + 11, value);
        ++failures;
        break;
      }
    CHECK(simEventDestroy(event));
    CHECK(simStreamDestroy(mine, first));
    CHECK(simStreamDestroy(mine, second));
    CHECK(simDeviceSynchronize(mine));
    CHECK(simFree(mine, here));
    CHECK(simFree(other, there));
  }
}

}  // namespace

int main() {
  std::vector<std::thread> threads;
  for (int id = 0; id < 8; ++id) threads.emplace_back(worker, id);
  for (auto& thread : threads) thread.join();
  // Work that nobody waits for must not hold up the process.
  simDevice device = nullptr;
  CHECK(simDeviceOpen(0, &device));
  CHECK(simInjectSlowStream(100000));
  static uint32_t zero = 0;
  simAddress left = 0;
  CHECK(simMalloc(device, 64, &left));
  for (int k = 0; k < 100; ++k) CHECK(simMemsetAsync(device, nullptr, left, &zero, 4, 16));
  std::printf("%d failures\n", failures.load());
  return failures.load() ? 1 : 0;
}
