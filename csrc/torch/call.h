// SPDX-License-Identifier: Apache-2.0
// One operator call on its way, and the door to the router. All that the generated trampolines see: kept small, because
// a change here compiles them all again.
#pragma once

#include <ATen/ATen.h>
#include <ATen/core/stack.h>

#include <vector>

#include "packed.h"

namespace torch_fl::runtime {
class Device;
}

namespace torch_fl::glue {

struct Entry;

/// The entry of an overload (entry.h); made on first use, lives for ever. Thread-safe.
Entry& entry_for(const char* name, const char* overload);

using Stack = torch::jit::Stack;

/// One call on its way. Lives on the stack of the trampoline (or of the boxed fallback).
struct Call {
  Entry& entry;
  PackedArg* args;
  uint32_t n_args;
  LazyStore& store;
  // The typed arguments, for what only they can do. Null in the boxed fallback, which has the stack.
  const void* typed = nullptr;
  void (*box)(const void* typed, Stack& stack) = nullptr;
  /// at::meta::<op> of this overload; null where there is none. Appends the outputs' metadata.
  void (*meta)(const void* typed, std::vector<at::Tensor>& outputs) = nullptr;
  Stack* stack = nullptr;  ///< holds the boxed arguments before, the results after
  Stack storage{};         ///< what `stack` points to for typed calls
  bool results_on_stack = false;

  // Filled on the way.
  runtime::Device* device = nullptr;
  uint64_t philox_seed = 0, philox_offset = 0;
};

/// Runs the call. Functional tensor results go to outs[0..n_returns) unless `call.results_on_stack` is set on return,
/// in which case all results are on *call.stack.
void run(Call& call, at::Tensor* outs);

}  // namespace torch_fl::glue
