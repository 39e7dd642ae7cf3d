// SPDX-License-Identifier: Apache-2.0
// The slow but general shape rule: the operator itself, on meta tensors, through the dispatcher.
#include <ATen/core/dispatch/Dispatcher.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

#include <atomic>

#include "router.h"

namespace torch_fl::glue {
namespace {

std::atomic<uint64_t> g_meta_calls{0};

at::Tensor to_meta(const at::Tensor& t) {
  if (!t.defined()) return t;
  if (t.device().is_cpu() && t.unsafeGetTensorImpl()->is_wrapped_number()) return t;  // Python reads its value
  auto meta = at::empty_strided(t.sizes(), t.strides(), t.options().device(c10::kMeta).pinned_memory(false));
  if (t.unsafeGetTensorImpl()->is_wrapped_number()) meta.unsafeGetTensorImpl()->set_wrapped_number(true);
  return meta;
}

c10::IValue to_meta(const c10::IValue& v) {
  if (v.isTensor()) return to_meta(v.toTensor());
  if (v.isTensorList()) {
    c10::List<at::Tensor> list;
    for (const at::Tensor& t : v.toTensorList()) list.push_back(to_meta(t));
    return list;
  }
  if (v.isOptionalTensorList()) {
    c10::List<std::optional<at::Tensor>> list;
    for (const std::optional<at::Tensor>& t : v.toOptionalTensorList()) {
      list.push_back(t.has_value() && t->defined() ? std::optional(to_meta(*t)) : std::nullopt);
    }
    return list;
  }
  if (v.isDevice()) return c10::Device(c10::kMeta);
  if (v.isGenerator()) return c10::IValue();
  return v;
}

void collect(const c10::IValue& v, std::vector<at::Tensor>& out) {
  if (v.isTensor()) {
    out.push_back(v.toTensor());
  } else if (v.isTensorList()) {
    for (const at::Tensor& t : v.toTensorList()) out.push_back(t);
  }
}

std::vector<at::Tensor> run_meta(const c10::OperatorHandle& op, Stack& stack) {
  g_meta_calls.fetch_add(1, std::memory_order_relaxed);
  op.redispatchBoxed(c10::DispatchKeySet(c10::DispatchKey::Meta), &stack);
  std::vector<at::Tensor> outputs;
  for (const auto& v : stack) collect(v, outputs);
  return outputs;
}

}  // namespace

uint64_t python_meta_calls() { return g_meta_calls.load(); }

std::vector<at::Tensor> dispatcher_meta(Call& call) {
  Stack stack;
  for (const auto& v : boxed(call)) stack.push_back(to_meta(v));
  std::vector<at::Tensor> mutated;
  if (call.entry.form == Form::Out) {  // empty, so that resizing them does not warn here
    for (uint32_t m : call.entry.mutated) {
      if (stack[m].isTensor()) stack[m] = at::empty({0}, stack[m].toTensor().options());
    }
  }
  for (uint32_t m : call.entry.mutated) collect(stack[m], mutated);
  auto outputs = run_meta(call.entry.op, stack);
  return call.entry.form == Form::Functional ? outputs : mutated;
}

std::vector<at::Tensor> functional_meta(Call& call) {
  const Entry& entry = call.entry;
  if (entry.kernel_name == entry.name) return {};
  Stack stack;
  for (size_t i = 0; i + entry.n_out_args < entry.args.size(); ++i) stack.push_back(to_meta(boxed(call)[i]));
  stack.resize(entry.kernel_args);  // the functional form's tensor options: none
  return run_meta(find_overload(entry.kernel_name).value(), stack);
}

}  // namespace torch_fl::glue
