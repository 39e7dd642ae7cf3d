// SPDX-License-Identifier: Apache-2.0
// What the parts of the router share.
#pragma once

#include <ATen/ATen.h>
#include <ATen/core/stack.h>

#include <vector>

#include "call.h"
#include "entry.h"
#include "plan.h"

namespace torch_fl::glue {

/// The kernel of this name in the chip's table, or null.
const fl_kernel* find_kernel(const runtime::Chip& chip, const std::string& name);
/// The same among the portable kernels.
const fl_kernel* find_portable(const runtime::Chip& chip, const std::string& name);
inline bool has_kernel(const runtime::Chip& chip, const std::string& name) {
  return find_kernel(chip, name) != nullptr || find_portable(chip, name) != nullptr;
}
/// Whether the chip has memory functions alone.
inline bool is_bare(const runtime::Chip& chip) { return chip.kernels.empty() && chip.portable.empty(); }

/// What the chip's descriptor says of calls of this row; null: nothing.
const runtime::OpRules* find_rules(const runtime::Chip& chip, const fl_kernel& kernel);

struct Candidate {
  const fl_kernel* kernel;
  Route route;
};
/// What may serve an overload, the first choice first: rows of its own name, else of its functional sibling's.
c10::SmallVector<Candidate, 2> candidates(const runtime::Chip& chip, const Entry& entry);

/// Boxed fallback of the PrivateUse1 key.
void boxed_fallback(const c10::OperatorHandle& op, Stack* stack);

/// A dense tensor of device memory; contents undefined.
at::Tensor allocate_tensor(runtime::Device& device, at::ScalarType dtype, at::IntArrayRef sizes,
                           at::IntArrayRef strides);

/// Metadata of the outputs (and of mutated arguments after the call) through the dispatcher's Meta key. Slow; may enter
/// Python. Throws what the meta kernel throws.
std::vector<at::Tensor> dispatcher_meta(Call& call);
/// Of an out= or in-place call: what its functional sibling would return; empty if it has none. As slow.
std::vector<at::Tensor> functional_meta(Call& call);
uint64_t python_meta_calls();

runtime::Device& runtime_device(const at::Tensor& tensor);
runtime::Device& device_at(int32_t index);

/// Copies the arguments into *call.stack (typed calls), so that boxed code can run.
Stack& boxed(Call& call);

[[noreturn]] void throw_unsupported(const Call& call, const std::string& reason);

}  // namespace torch_fl::glue
