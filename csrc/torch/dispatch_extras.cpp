// SPDX-License-Identifier: Apache-2.0
// Small registrations that do not compute: what PyTorch's in-tree devices get from tables inside PyTorch.
#include <ATen/ATen.h>
#include <ATen/EmptyTensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/native/TensorFactories.h>
#include <torch/library.h>

#include <vector>

#include "device_allocator.h"

namespace torch_fl::glue {
namespace {

void record_stream_on(at::Tensor& tensor, c10::Stream stream) { record_stream(tensor.storage().data_ptr(), stream); }

/// PyTorch's own rule (TensorImpl::has_compatible_shallow_copy_type) lets the keys of its in-tree backends replace each
/// other, so that `module.to(device)` keeps its Parameter objects, ties between them and optimizers built earlier. fl
/// is stored as those are: an ordinary strided TensorImpl.
bool compatible_shallow_copy(const at::Tensor& self, const at::Tensor& from) {
  const auto ordinary = [](const at::Tensor& t) {
    return t.layout() == at::kStrided && !t.is_quantized() && !t.is_nested() && !t.is_meta();
  };
  if (!ordinary(self) || !ordinary(from)) return self.key_set() == from.key_set();
  const auto plain_device = [](const at::Tensor& t) { return t.is_privateuseone() || t.is_cpu() || t.is_cuda(); };
  return plain_device(self) && plain_device(from);
}

/// Where a tensor of zeros that nobody will look into gets its memory: nowhere.
at::Allocator* zero_tensor_allocator(const runtime::Device& device) {
  // Storages keep a pointer to their allocator, so these stay for ever.
  static const auto& all = *[] {
    auto* list = new std::vector<at::native::ZeroTensorAllocator>();
    for (c10::DeviceIndex i = 0; i < 64; ++i) list->emplace_back(c10::Device(c10::kPrivateUse1, i));
    return list;
  }();
  return const_cast<at::native::ZeroTensorAllocator*>(&all.at(static_cast<size_t>(device.index)));
}

/// The symbolic zero gradient of forward-mode differentiation. Its ZeroTensor key keeps kernels away from its memory.
at::Tensor efficient_zero_tensor(c10::SymIntArrayRef size, std::optional<at::ScalarType> dtype,
                                 std::optional<at::Layout> /*layout*/, std::optional<at::Device> device,
                                 std::optional<bool> /*pin_memory*/) {
  constexpr auto keys =
      c10::DispatchKeySet(c10::DispatchKey::PrivateUse1) | c10::DispatchKeySet(c10::DispatchKey::ZeroTensor);
  const runtime::Device& owner = checked_device(device.has_value() ? device->index() : -1);
  return at::detail::empty_generic(C10_AS_INTARRAYREF_SLOW(size), zero_tensor_allocator(owner), keys,
                                   c10::dtype_or_default(dtype), std::nullopt);
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("record_stream", TORCH_FN(record_stream_on));
  m.impl("_efficientzerotensor", TORCH_FN(efficient_zero_tensor));
}

/// The operator is asked with the tensor that is to be changed first; both directions matter (cpu -> fl and back), and
/// which of the two keys the dispatcher picks depends on the arguments. Torch versions whose set_data does not go
/// through the dispatcher ignore this; torch_fl/ falls back on swapping there.
TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  if (c10::Dispatcher::singleton().findSchema({"aten::_has_compatible_shallow_copy_type", ""}).has_value()) {
    m.impl("_has_compatible_shallow_copy_type", TORCH_FN(compatible_shallow_copy));
  }
}

// _copy_from resolves conjugate and negative bits itself. PyTorch's fallbacks for these keys would call clone(), which
// calls copy_, which calls _copy_from again, without end.
TORCH_LIBRARY_IMPL(aten, Conjugate, m) {
  m.impl("_copy_from", torch::CppFunction::makeFallthrough());
  m.impl("_copy_from_and_resize", torch::CppFunction::makeFallthrough());
}
TORCH_LIBRARY_IMPL(aten, Negative, m) {
  m.impl("_copy_from", torch::CppFunction::makeFallthrough());
  m.impl("_copy_from_and_resize", torch::CppFunction::makeFallthrough());
}

}  // namespace
}  // namespace torch_fl::glue
