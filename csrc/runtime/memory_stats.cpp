// SPDX-License-Identifier: Apache-2.0
#include <cstdio>
#include <string>

#include "internal.h"

namespace torch_fl::runtime {
namespace {

template <typename F>
void each_stat(MemoryStats& s, F f) {
  for (Stat* stat : {&s.allocated_bytes, &s.reserved_bytes, &s.active_bytes, &s.requested_bytes, &s.allocations,
                     &s.segments, &s.active_blocks, &s.inactive_split_blocks, &s.inactive_split_bytes}) {
    f(*stat);
  }
}

}  // namespace

void reset_peak(MemoryStats& stats) {
  each_stat(stats, [](Stat& stat) { stat.peak = stat.current; });
}

void reset_accumulated(MemoryStats& stats) {
  each_stat(stats, [](Stat& stat) { stat.allocated = stat.freed = 0; });
  stats.alloc_retries = stats.ooms = stats.sync_all_streams = stats.device_allocs = stats.device_frees = 0;
}

std::string format_bytes(uint64_t bytes) {
  constexpr const char* kUnits[] = {"KiB", "MiB", "GiB", "TiB"};
  if (bytes < 1024) return std::to_string(bytes) + " bytes";
  double value = static_cast<double>(bytes) / 1024;
  size_t unit = 0;
  for (; value >= 1024 && unit < 3; ++unit) value /= 1024;
  char text[32];
  std::snprintf(text, sizeof text, "%.2f %s", value, kUnits[unit]);
  return text;
}

}  // namespace torch_fl::runtime
