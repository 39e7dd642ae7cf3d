// SPDX-License-Identifier: Apache-2.0
// The host route: any operator on the CPU, with the chip's memory staged, or relabelled where the host can address it.
#pragma once

#include "router.h"

namespace torch_fl::glue {

struct HostCall {
  Call& call;
  Stack& stack;  ///< arguments in, results out
  runtime::Device& device;
  Plan& plan;  ///< where bytes and syncs are counted
};

/// Runs the call's operator on the CPU (or its own host implementation). Throws what the CPU kernel throws.
void host_route(HostCall& host);

/// For benchmarks: run PyTorch's own at::native::cpu_fallback instead.
void set_stock_fallback(bool on);

}  // namespace torch_fl::glue
