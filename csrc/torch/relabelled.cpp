// SPDX-License-Identifier: Apache-2.0
#include "relabelled.h"

#include <c10/core/CPUAllocator.h>
#include <c10/core/InferenceMode.h>
#include <c10/util/ScopeExit.h>

#include "copy.h"
#include "host_route.h"
#include "recorder.h"

namespace torch_fl::glue {
namespace {

bool on_fl(const at::Tensor& t) { return t.device().type() == c10::kPrivateUse1; }

at::Tensor make_shell(at::ScalarType dtype, at::IntArrayRef sizes, at::IntArrayRef strides) {
  c10::Storage storage(c10::Storage::use_byte_size_t(), 0, c10::DataPtr(nullptr, c10::kCPU), c10::GetCPUAllocator(),
                       true);
  at::Tensor shell = at::detail::make_tensor<c10::TensorImpl>(
      std::move(storage), c10::DispatchKeySet(c10::DispatchKey::CPU), c10::scalarTypeToTypeMeta(dtype));
  shell.unsafeGetTensorImpl()->set_sizes_and_strides(sizes, strides);
  return shell;
}

// Whoever kept the tensor or its memory after the last call keeps them; this call gets new ones.
void renew_if_shared(at::Tensor& shell) {
  const bool ours = shell.use_count() == 1 && shell.storage().use_count() == 1;
  if (C10_LIKELY(ours && shell.is_inference() == c10::InferenceMode::is_enabled())) return;
  const bool wrapped = shell.unsafeGetTensorImpl()->is_wrapped_number();
  shell = make_shell(shell.scalar_type(), shell.sizes(), shell.strides());
  if (wrapped) shell.unsafeGetTensorImpl()->set_wrapped_number(true);
}

void point_at(at::Tensor& shell, const at::Tensor& device) {
  renew_if_shared(shell);
  auto* storage = shell.unsafeGetTensorImpl()->unsafe_storage().unsafeGetStorageImpl();
  const auto offset = static_cast<size_t>(device.storage_offset()) * device.dtype().itemsize();
  storage->set_data_ptr_noswap(c10::DataPtr(reinterpret_cast<void*>(device_address(device)), c10::kCPU));
  storage->set_nbytes(device.storage().nbytes() - offset);
}

}  // namespace

std::shared_ptr<Relabelled> Relabelled::make(const Call& call) {
  const Entry& entry = call.entry;
  if (!call.device->host_coherent || entry.host != nullptr || entry.random || !entry.tensor_returns) return nullptr;
  const bool functional = entry.form == Form::Functional;
  const auto op = functional ? out_form(entry.op) : std::optional(entry.op);
  if (!op.has_value() || !op->hasKernelForDispatchKey(c10::DispatchKey::CPU)) return nullptr;
  if (gives_view(entry.op.schema())) return nullptr;
  std::shared_ptr<Relabelled> made(new Relabelled(*op));
  if (!made->add_arguments(call) || (functional && !made->add_outputs(call))) return nullptr;
  made->arguments_.resize(call.n_args + made->outputs_.size(), {nullptr, nullptr});
  for (Shell& shell : made->shells_) made->arguments_[shell.argument].host = &shell.host;
  for (size_t k = 0; k < made->outputs_.size(); ++k) made->arguments_[call.n_args + k].host = &made->outputs_[k].host;
  return made;
}

bool Relabelled::add_arguments(const Call& call) {
  if (call.stack != nullptr) {
    fixed_ = *call.stack;
  } else {
    call.box(call.typed, fixed_);
  }
  for (uint32_t i = 0; i < call.n_args; ++i) {
    if (!add_argument(call.args[i], call.entry.args[i], i)) return false;
  }
  for (const Shell& target : shells_) {  // the operator must see that they share memory
    for (const Shell& other : shells_) {
      if (!target.mutated || &other == &target) continue;
      if (call.args[other.argument].u.tensor->is_alias_of(*call.args[target.argument].u.tensor)) return false;
    }
  }
  return true;
}

bool Relabelled::add_argument(const PackedArg& a, const ArgInfo& info, uint32_t i) {
  switch (a.kind) {
    case Kind::TensorList:
    case Kind::Generator:
    case Kind::RealList:  // the signature has their kinds, not their values
    case Kind::ScalarList:
      return false;
    case Kind::Scalar:
    case Kind::Real:
      varying_.push_back(i);
      fixed_[i] = c10::IValue();
      return true;
    case Kind::Tensor:
      fixed_[i] = c10::IValue();
      return add_tensor(*a.u.tensor, info, i);
    default:
      return info.name != "generator";
  }
}

bool Relabelled::add_tensor(const at::Tensor& t, const ArgInfo& info, uint32_t i) {
  if (t.layout() != at::kStrided || t.is_conj() || t.is_neg() || (info.written && !info.mutated)) return false;
  if (!on_fl(t)) {
    varying_.push_back(i);
    return true;
  }
  at::Tensor shell = make_shell(t.scalar_type(), t.sizes(), t.strides());
  if (t.unsafeGetTensorImpl()->is_wrapped_number()) shell.unsafeGetTensorImpl()->set_wrapped_number(true);
  shells_.push_back({i, info.mutated, std::move(shell)});
  return true;
}

// Of structured operators, whose out= form is the functional one after its allocation. Others' may differ: PyTorch's
// native_batch_norm.out is wrong for inputs that are not contiguous.
bool Relabelled::add_outputs(const Call& call) {
  if (call.meta == nullptr) return false;
  std::vector<at::Tensor> metas;
  try {
    call.meta(call.typed, metas);
  } catch (const std::exception&) {
    return false;  // the CPU will say what is wrong
  }
  for (const at::Tensor& meta : metas) {
    if (!meta.defined() || !meta.is_non_overlapping_and_dense()) return false;
    at::Tensor shell = make_shell(meta.scalar_type(), meta.sizes(), meta.strides());
    outputs_.push_back({meta.scalar_type(), at::DimVector(meta.sizes()), at::DimVector(meta.strides()), shell});
  }
  return outputs_.size() == call.entry.n_returns;
}

void Relabelled::point_shells(Call& call, at::Tensor* outs) {
  for (Shell& shell : shells_) point_at(shell.host, *call.args[shell.argument].u.tensor);
  for (size_t k = 0; k < outputs_.size(); ++k) {
    Output& output = outputs_[k];
    outs[k] = allocate_tensor(*call.device, output.dtype, output.sizes, output.strides);
    point_at(output.host, outs[k]);
  }
}

void Relabelled::call_unboxed(const Call& call) {
  for (uint32_t i = 0; i < call.n_args; ++i) arguments_[i].packed = &call.args[i];
  unboxed_->call(arguments_.data());
}

void Relabelled::call_boxed(const Call& call) {
  const auto done = c10::make_scope_exit([this] { stack_.clear(); });
  stack_ = fixed_;
  for (const uint32_t i : varying_) {
    const PackedArg& a = call.args[i];
    stack_[i] = a.kind == Kind::Scalar   ? c10::IValue(*a.u.scalar)
                : a.kind == Kind::Tensor ? c10::IValue(*a.u.tensor)
                                         : c10::IValue(a.u.d);
  }
  for (const Shell& shell : shells_) stack_[shell.argument] = shell.host;
  for (const Output& output : outputs_) stack_.emplace_back(output.host);
  op_.redispatchBoxed(c10::DispatchKeySet(c10::DispatchKey::CPU), &stack_);
}

void Relabelled::run(Call& call, at::Tensor* outs) {
  running_ = true;
  const auto done = c10::make_scope_exit([this] { running_ = false; });
  point_shells(call, outs);
  // After allocating: a block that has just been freed may still be in use by work that was enqueued before.
  {
    const Measure waited(&Measured::wait_ns);
    call.device->synchronize_stream(runtime::current_stream(call.device->index));
  }
  const Measure computed(&Measured::compute_ns);
  unboxed_ != nullptr ? call_unboxed(call) : call_boxed(call);
  for (Shell& shell : shells_) {
    if (shell.mutated) settle(shell, *call.args[shell.argument].u.tensor);
  }
}

// Rarely, the operator has moved what it wrote to memory of its own: an out= argument of another size.
void Relabelled::settle(Shell& shell, const at::Tensor& target) {
  const auto* memory = reinterpret_cast<const void*>(device_address(target));
  const bool stayed = shell.host.numel() == 0 || shell.host.const_data_ptr() == memory;
  if (C10_LIKELY(stayed && shell.host.sizes() == target.sizes() && shell.host.strides() == target.strides())) return;
  const at::Tensor result =
      std::exchange(shell.host, make_shell(target.scalar_type(), target.sizes(), target.strides()));
  take_over(target, result);
}

}  // namespace torch_fl::glue
