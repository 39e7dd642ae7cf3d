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

/// A device tensor becomes what the CPU made of its counterpart: sizes, strides and values.
void take_over(const at::Tensor& target, const at::Tensor& host);

/// Whether a result is a view of an argument.
bool gives_view(const c10::FunctionSchema& schema);

/// For benchmarks: run PyTorch's own at::native::cpu_fallback instead.
void set_stock_fallback(bool on);
bool stock_fallback();

}  // namespace torch_fl::glue
