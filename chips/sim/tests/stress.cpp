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

// A module of each thread, its copy, and one that all threads share.
constexpr char kSource[] =
    "#include <stdint.h>\n"
    "void add(void* const* args, const uint64_t* begin, const uint64_t* end) {\n"
    "  uint32_t* data = *(uint32_t* const*)args[0];\n"
    "  for (uint64_t i = begin[0]; i < end[0]; ++i) data[i] += *(const uint32_t*)args[1];\n"
    "}\n";
simModule shared_module = nullptr;

void module_worker(int id) {
  simDevice device = nullptr;
  simModule compiled = nullptr, loaded = nullptr;
  simAddress data = 0;
  uint64_t bytes = 0;
  CHECK(simDeviceOpen(id % 2, &device));
  CHECK(simModuleCompile(device, kSource, nullptr, 0, &compiled));
  CHECK(simModuleSave(compiled, nullptr, &bytes));
  std::vector<char> binary(bytes);
  CHECK(simModuleSave(compiled, binary.data(), &bytes));
  CHECK(simModuleLoad(device, binary.data(), bytes, &loaded));
  CHECK(simMalloc(device, kCount * 4, &data));
  const uint32_t zero = 0, step = static_cast<uint32_t>(id) + 1, sizes[] = {SIM_ARGUMENT_ADDRESS, sizeof step};
  const uint64_t range[] = {kCount, 1, 1};
  const void* const args[] = {&data, &step};
  simStream stream = nullptr;
  CHECK(simStreamCreate(device, 0, &stream));
  CHECK(simMemsetAsync(device, stream, data, &zero, 4, kCount));
  for (int round = 0; round < 100; ++round)
    for (simModule module : {compiled, shared_module, loaded})
      CHECK(simModuleLaunch(device, stream, module, "add", range, 2, args, sizes));
  std::vector<uint32_t> host(kCount);
  CHECK(simMemcpyAsync(device, stream, reinterpret_cast<uintptr_t>(host.data()), data, kCount * 4, SIM_DEVICE_TO_HOST));
  CHECK(simStreamDestroy(device, stream));
  for (const uint32_t value : host) failures += value != 300 * step;
  for (simModule module : {compiled, loaded}) CHECK(simModuleRelease(module));
  CHECK(simFree(device, data));
}

void stress_modules() {
  simDevice device = nullptr;
  CHECK(simDeviceOpen(0, &device));
  char identity[1024];
  if (simCompilerIdentity(identity, sizeof identity) == SIM_ERROR_NO_COMPILER) return;
  CHECK(simModuleCompile(device, kSource, nullptr, 0, &shared_module));
  std::vector<std::thread> threads;
  for (int id = 0; id < 4; ++id) threads.emplace_back(module_worker, id);
  for (auto& thread : threads) thread.join();
  CHECK(simModuleRelease(shared_module));
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
  stress_modules();
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
