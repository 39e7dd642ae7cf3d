// SPDX-License-Identifier: Apache-2.0
// What the plugin's own files share beyond launch.h.
#pragma once

#include "launch.h"

namespace fl_sim {

const fl_host* host() noexcept;
/// The SDK's result as a status, with the SDK's message handed to the host.
fl_status check(simResult result) noexcept;
/// SIMCHIP_DTYPES as a mask; 0 = all.
uint64_t device_dtypes() noexcept;
/// Aborts, with a message, on work that the device's limits forbid: the host should have known.
void check_limits(const fl_call& call);
/// Copies and fills move bytes or use the load/store units only: they work with every element type.
bool is_data_movement(const fl_kernel& kernel) noexcept;
/// The compiler table.
const fl_compiler_api* compiler_table() noexcept;
/// The profiler table.
const fl_profiler_api* profiler_table() noexcept;
/// The whole kernel table.
std::span<const fl_kernel* const> all_kernels();

}  // namespace fl_sim
