// SPDX-License-Identifier: Apache-2.0
// Random operators: one counter in the core, the same numbers on every chip.
#pragma once

#include <ATen/core/ivalue.h>

#include "entry.h"
#include "plan.h"
#include "router.h"

namespace torch_fl::glue {

/// Fills in what is special about a random operator's entry: its host implementation over the core's Philox.
void describe_random(Entry& entry);

/// Draws the counter range for a kernel call: philox_seed and philox_offset of `call`.
void reserve_philox(Call& call, const Plan& plan);

/// A CPU generator seeded from the device's: for operators whose algorithm is PyTorch's own on the CPU.
c10::IValue host_generator(const c10::IValue& generator, runtime::Device& device);

}  // namespace torch_fl::glue
