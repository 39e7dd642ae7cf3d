// SPDX-License-Identifier: Apache-2.0
// Settings that decide routes. See docs/configuration.md.
#pragma once

#include <string>

#include "plan.h"

namespace torch_fl::glue {

/// The route that the setting route.<operator> names, for one overload or all: earlier ones are not taken. Kernel:
/// none.
Route first_route(const Entry& entry);
inline bool forced_to_host(const Entry& entry) { return first_route(entry) == Route::Host && entry.cpu_kernel; }

/// Full precision is wanted: the portable kernels, whose arithmetic is known, come before the chip's own.
bool portable_first();

/// Why rows of `chip` are passed over by a setting; empty: none is.
std::string forced_reason(const runtime::Chip& chip, const Entry& entry);

}  // namespace torch_fl::glue
