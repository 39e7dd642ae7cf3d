// SPDX-License-Identifier: Apache-2.0
// How long a cached allocation takes: allocate and free, nanoseconds of processor time a pair, median of 9 rounds.
#include <time.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <vector>

#include "device.h"

namespace {

using namespace torch_fl::runtime;

fl_status open_device(int32_t, fl_device* device) {
  *device = reinterpret_cast<fl_device>(1);
  return FL_OK;
}
fl_status synchronize(fl_device) { return FL_OK; }
fl_status allocate(fl_device, uint64_t bytes, fl_address* address) {
  *address = reinterpret_cast<fl_address>(std::aligned_alloc(4096, bytes));
  return FL_OK;
}
fl_status release(fl_device, fl_address address) {
  std::free(reinterpret_cast<void*>(address));
  return FL_OK;
}

/// Of this thread: a machine that is shared with others takes as much of it as an idle one.
double processor_ns() {
  timespec now{};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) * 1e9 + static_cast<double>(now.tv_nsec);
}

double nanoseconds_per_pair(Allocator& allocator, uint64_t bytes) {
  constexpr int kPairs = 200000, kRounds = 9;
  std::vector<double> rounds;
  for (int round = 0; round < kRounds; ++round) {
    const double start = processor_ns();
    for (int i = 0; i < kPairs; ++i) allocator.free(allocator.allocate(bytes, 0));
    rounds.push_back((processor_ns() - start) / kPairs);
  }
  std::sort(rounds.begin(), rounds.end());
  return rounds[kRounds / 2];
}

}  // namespace

int main() {
  constexpr double kBound = 300;
  Chip chip;
  chip.device_api.open = &open_device;
  chip.device_api.synchronize = &synchronize;
  chip.memory.alloc = &allocate;
  chip.memory.free = &release;
  fl_device_properties properties{};
  properties.total_memory = uint64_t{1} << 32;
  Device device(chip, 0, 0, properties);
  // Live neighbours of many sizes, so that the free lists are not trivial.
  std::vector<Block*> live;
  for (uint64_t i = 0; i < 2000; ++i) live.push_back(device.allocator().allocate(512 + (i * 7919) % 200000, 0));
  for (size_t i = 0; i < live.size(); i += 2) device.allocator().free(live[i]);
  bool met = true;
  for (const uint64_t bytes : {uint64_t{4}, uint64_t{1024}, uint64_t{100000}, uint64_t{3} << 20, uint64_t{50} << 20}) {
    const double ns = nanoseconds_per_pair(device.allocator(), bytes);
    met = met && ns < kBound;
    std::printf("cached allocate + free of %9llu bytes: %6.1f ns (bound %.0f)\n",
                static_cast<unsigned long long>(bytes), ns, kBound);
  }
  for (size_t i = 1; i < live.size(); i += 2) device.allocator().free(live[i]);
  return met ? 0 : 1;
}
