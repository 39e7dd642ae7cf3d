// SPDX-License-Identifier: Apache-2.0
// CPU kernels called as C++ functions, without a stack, for the usual signatures of out= and in-place overloads.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>

#include <memory>

#include "packed.h"

namespace torch_fl::glue {

/// One argument: as the caller gave it, unless `host` is there to take its place.
struct UnboxedArgument {
  const PackedArg* packed;
  at::Tensor* host;
};

class UnboxedKernel {
 public:
  virtual ~UnboxedKernel() = default;
  /// Runs the overload's CPU kernel; `arguments` in the order of its schema. Throws what the kernel throws.
  virtual void call(const UnboxedArgument* arguments) const = 0;

  /// Null where the overload's signature is not one of those compiled in.
  static std::unique_ptr<UnboxedKernel> make(const c10::OperatorHandle& op);
};

}  // namespace torch_fl::glue
