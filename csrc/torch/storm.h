// SPDX-License-Identifier: Apache-2.0
// The warning that much of a program leaves the chip: looked for on the host route alone, now and then.
#pragma once

#include <atomic>
#include <cstdint>

namespace torch_fl::glue {

extern std::atomic<uint64_t> g_host_calls;
extern std::atomic<uint64_t> g_next_look;  ///< number of host calls at which to look; 0: never

/// Compares the counters with the thresholds; warns once a process. May raise what Python makes of warnings.
void look_for_storm();

/// After a call on the host route.
inline void host_call_over() {
  const uint64_t calls = g_host_calls.fetch_add(1, std::memory_order_relaxed) + 1;
  const uint64_t next = g_next_look.load(std::memory_order_relaxed);
  if (next != 0 && calls >= next) look_for_storm();
}

}  // namespace torch_fl::glue
