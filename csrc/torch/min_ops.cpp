// SPDX-License-Identifier: Apache-2.0
// The operators without which a tensor cannot exist: factories, views, resizing, copies, reading one element.
#include <ATen/EmptyTensor.h>
#include <ATen/InferSize.h>
#include <ATen/MemoryOverlap.h>
#include <ATen/Operators.h>
#include <ATen/native/Resize.h>
#include <ATen/native/TensorFactories.h>
#include <ATen/ops/_reshape_alias_native.h>
#include <ATen/ops/addbmm_native.h>
#include <ATen/ops/as_strided_native.h>
#include <ATen/ops/resize_native.h>
#include <ATen/ops/set_native.h>
#include <ATen/ops/unfold_native.h>
#include <ATen/ops/view_as_complex_native.h>
#include <ATen/ops/view_as_real_native.h>
#include <ATen/ops/view_native.h>
#include <c10/core/DeviceGuard.h>
#include <torch/library.h>

#include <cstring>

#include "adapt.h"
#include "copy.h"
#include "device_allocator.h"
#include "errors.h"
#include "host_route.h"
#include "recorder.h"
#include "router.h"
#include "trampoline.h"

namespace torch_fl::glue {
namespace {

using std::optional;

c10::Device device_or_current(optional<at::Device> device) {
  c10::Device d = device.value_or(c10::Device(c10::kPrivateUse1));
  TORCH_CHECK(d.type() == c10::kPrivateUse1, "expected an fl device, found ", d);
  if (d.has_index()) return d;
  return c10::Device(c10::kPrivateUse1, static_cast<c10::DeviceIndex>(runtime::current_device()));
}

void fill_if_deterministic(at::Tensor& t) {
  if (C10_UNLIKELY(at::globalContext().deterministicAlgorithms() &&
                   at::globalContext().deterministicFillUninitializedMemory())) {
    at::native::fill_empty_deterministic_(t);
  }
}

constexpr c10::DispatchKeySet kKeys(c10::DispatchKey::PrivateUse1);

void check_factory(optional<at::Layout> layout, optional<bool> pin_memory) {
  TORCH_CHECK(!pin_memory.value_or(false), "Only dense CPU tensors can be pinned");
  TORCH_CHECK_NOT_IMPLEMENTED(layout.value_or(at::kStrided) == at::kStrided,
                              "fl devices hold strided tensors, found layout ", *layout);
}

at::Tensor empty_memory_format(c10::SymIntArrayRef size, optional<at::ScalarType> dtype, optional<at::Layout> layout,
                               optional<at::Device> device, optional<bool> pin_memory,
                               optional<at::MemoryFormat> format) {
  return guarded([&] {
    check_factory(layout, pin_memory);
    const c10::DeviceGuard guard(device_or_current(device));
    device_at(guard.current_device().index()).handle();
    at::Tensor t = at::detail::empty_generic(C10_AS_INTARRAYREF_SLOW(size), device_allocator(), kKeys,
                                             c10::dtype_or_default(dtype), format);
    fill_if_deterministic(t);
    return t;
  });
}

at::Tensor empty_strided(c10::SymIntArrayRef size, c10::SymIntArrayRef stride, optional<at::ScalarType> dtype,
                         optional<at::Layout> layout, optional<at::Device> device, optional<bool> pin_memory) {
  return guarded([&] {
    check_factory(layout, pin_memory);
    const c10::DeviceGuard guard(device_or_current(device));
    device_at(guard.current_device().index()).handle();
    at::Tensor t = at::detail::empty_strided_generic(C10_AS_INTARRAYREF_SLOW(size), C10_AS_INTARRAYREF_SLOW(stride),
                                                     device_allocator(), kKeys, c10::dtype_or_default(dtype));
    fill_if_deterministic(t);
    return t;
  });
}

at::Tensor as_strided(const at::Tensor& self, c10::SymIntArrayRef size, c10::SymIntArrayRef stride,
                      optional<c10::SymInt> offset) {
  optional<int64_t> at_offset;
  if (offset.has_value()) at_offset = offset->guard_int(__FILE__, __LINE__);
  return at::native::as_strided_tensorimpl(self, C10_AS_INTARRAYREF_SLOW(size), C10_AS_INTARRAYREF_SLOW(stride),
                                           at_offset);
}
at::Tensor view(const at::Tensor& self, c10::SymIntArrayRef size) {
  return at::native::view(self, C10_AS_INTARRAYREF_SLOW(size));
}
at::Tensor reshape_alias(const at::Tensor& self, c10::SymIntArrayRef size, c10::SymIntArrayRef stride) {
  return at::native::_reshape_alias(self, C10_AS_INTARRAYREF_SLOW(size), C10_AS_INTARRAYREF_SLOW(stride));
}
at::Tensor unfold(const at::Tensor& self, int64_t dim, int64_t size, int64_t step) {
  return at::native::unfold(self, dim, size, step);
}
at::Tensor view_as_real(const at::Tensor& self) { return at::native::view_as_real(self); }
at::Tensor view_as_complex(const at::Tensor& self) { return at::native::view_as_complex(self); }

// Storage grows in stream order and keeps its contents (hooks: resizePrivateUse1Bytes).
void grow_storage(const at::Tensor& self, int64_t bytes) {
  auto* storage = self.unsafeGetTensorImpl()->unsafe_storage().unsafeGetStorageImpl();
  if (static_cast<uint64_t>(bytes) > storage->nbytes()) resize_storage(*storage, static_cast<size_t>(bytes));
}

const at::Tensor& resize_(const at::Tensor& self, c10::SymIntArrayRef size, optional<at::MemoryFormat> format) {
  return guarded([&]() -> const at::Tensor& {
    const auto sizes = C10_AS_INTARRAYREF_SLOW(size);
    auto* impl = self.unsafeGetTensorImpl();
    const auto old_bytes = static_cast<int64_t>(self.storage().nbytes());
    if (self.sizes() != sizes) {
      impl->set_sizes_contiguous(sizes);
      const int64_t needed =
          self.numel() == 0 ? 0
                            : (self.numel() + self.storage_offset()) * static_cast<int64_t>(self.dtype().itemsize());
      TORCH_CHECK(needed <= old_bytes || self.storage().resizable(), "Trying to resize storage that is not resizable");
      grow_storage(self, needed);
    }
    if (format.has_value()) {
      TORCH_CHECK(*format != at::MemoryFormat::Preserve, "Unsupported memory format", *format);
      impl->empty_tensor_restride(*format);
    }
    if (C10_UNLIKELY(at::globalContext().deterministicAlgorithms() &&
                     at::globalContext().deterministicFillUninitializedMemory())) {
      at::native::fill_resize_deterministic_(self, old_bytes);
    }
    return self;
  });
}

at::Tensor copy_from(const at::Tensor& self, const at::Tensor& dst, bool non_blocking) {
  at::assert_no_partial_overlap(dst, self);
  ObservedCopy observed("aten::_copy_from", self, dst);
  guarded([&] { copy_into(dst, self, non_blocking); });
  observed.succeed();
  return dst;
}

at::Tensor copy_from_and_resize(const at::Tensor& self, const at::Tensor& dst) {
  if (self.sizes() != dst.sizes()) dst.resize_(self.sizes());
  return copy_from(self, dst, false);
}

at::Scalar local_scalar_dense(const at::Tensor& self) {
  return guarded([&] {
    TORCH_CHECK(self.numel() > 0, "Tensor with no elements cannot be read as a scalar");
    runtime::Device& device = runtime_device(self);
    at::Tensor host = at::detail::empty_cpu({}, self.scalar_type());
    ObservedCopy observed("aten::_local_scalar_dense", self, host, "device to host");
    download_now(device, host.mutable_data_ptr(), device_address(self), self.dtype().itemsize());
    observed.succeed();
    if (self.is_conj()) host = host.conj().resolve_conj();
    if (self.is_neg()) host = host.neg();
    return at::_local_scalar_dense(host);
  });
}

at::Tensor& set_storage_offset(at::Tensor& self, at::Storage source, c10::SymInt offset, c10::SymIntArrayRef size,
                               c10::SymIntArrayRef stride) {
  TORCH_CHECK(source.device() == self.device(), "Attempted to set the storage of a tensor on device \"", self.device(),
              "\" to a storage on different device \"", source.device(), "\"");
  const int64_t at_offset = offset.guard_int(__FILE__, __LINE__);
  at::native::checkSetStorage(self, std::move(source), at_offset, C10_AS_INTARRAYREF_SLOW(size),
                              C10_AS_INTARRAYREF_SLOW(stride));
  auto* impl = self.unsafeGetTensorImpl();
  impl->set_storage_offset(at_offset);
  at::OptionalIntArrayRef strides;
  if (stride.data() != nullptr) strides = C10_AS_INTARRAYREF_SLOW(stride);
  const auto sizes = C10_AS_INTARRAYREF_SLOW(size);
  if (strides.has_value()) {
    impl->set_sizes_and_strides(sizes, *strides);
  } else {
    impl->set_sizes_contiguous(sizes);
  }
  grow_storage(self,
               static_cast<int64_t>(extent_bytes(self)) + at_offset * static_cast<int64_t>(self.dtype().itemsize()));
  return self;
}

at::Tensor& set_storage(at::Tensor& self, at::Storage source) {
  const auto count = static_cast<int64_t>(source.nbytes() / self.dtype().itemsize());
  return set_storage_offset(self, std::move(source), 0, {count}, {});
}

at::Tensor& set_tensor(at::Tensor& self, const at::Tensor& source) {
  if (self.is_same(source)) return self;
  return set_storage_offset(self, source.storage(), source.sym_storage_offset(), source.sym_sizes(),
                            source.sym_strides());
}

at::Tensor& set_empty(at::Tensor& self) {
  at::Storage empty(c10::Storage::use_byte_size_t(), 0, allocate_on(runtime_device(self), 0), device_allocator(), true);
  return set_storage_offset(self, empty, 0, {0}, {});
}

bool is_set_to(const at::Tensor& self, const at::Tensor& other) {
  return self.storage().unsafeGetStorageImpl() == other.storage().unsafeGetStorageImpl() &&
         self.storage_offset() == other.storage_offset() && self.sizes() == other.sizes() &&
         self.strides() == other.strides();
}

// ---- zero_: the chip's kernel, else its fill, else the host -------------------------------------------------------
bool fill_dense(const at::Tensor& self, const void* pattern, uint32_t bytes) {
  runtime::Device& device = runtime_device(self);
  if (!device.can_fill() || !self.is_non_overlapping_and_dense()) return false;
  ObservedCopy observed("aten::zero_", {}, self, "fill");
  device.fill(runtime::current_stream(device.index), device_address(self), pattern, bytes,
              static_cast<uint64_t>(self.numel()));
  observed.succeed();
  tensor_changed(self);
  return true;
}

at::Tensor& zero_(at::Tensor& self) {
  if (self.numel() == 0) return self;
  static constexpr char kZeros[16] = {};
  const bool filled = guarded(
      [&] { return fill_dense(self, kZeros, static_cast<uint32_t>(std::min<size_t>(16, self.dtype().itemsize()))); });
  return filled ? self : Trampoline<at::_ops::zero_, NoMeta>::call(self);
}

// A composition by nature, which PyTorch registers for the devices that it knows.
TORCH_LIBRARY_IMPL(aten, PrivateUse2, m) {
  m.impl("addbmm", TORCH_FN(at::native::addbmm));
  m.impl("addbmm_", TORCH_FN(at::native::addbmm_));
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("empty.memory_format", TORCH_FN(empty_memory_format));
  m.impl("empty_strided", TORCH_FN(empty_strided));
  m.impl("as_strided", TORCH_FN(as_strided));
  m.impl("view", TORCH_FN(view));
  m.impl("_reshape_alias", TORCH_FN(reshape_alias));
  m.impl("unfold", TORCH_FN(unfold));
  m.impl("view_as_real", TORCH_FN(view_as_real));
  m.impl("view_as_complex", TORCH_FN(view_as_complex));
  m.impl("resize_", TORCH_FN(resize_));
  m.impl("_copy_from", TORCH_FN(copy_from));
  m.impl("_copy_from_and_resize", TORCH_FN(copy_from_and_resize));
  m.impl("_local_scalar_dense", TORCH_FN(local_scalar_dense));
  m.impl("set_.source_Tensor", TORCH_FN(set_tensor));
  m.impl("set_.source_Storage", TORCH_FN(set_storage));
  m.impl("set_.source_Storage_storage_offset", TORCH_FN(set_storage_offset));
  m.impl("set_", TORCH_FN(set_empty));
  m.impl("is_set_to", TORCH_FN(is_set_to));
  m.impl("zero_", TORCH_FN(zero_));
  m.impl("mode.values",
         TORCH_FN((Trampoline<at::_ops::mode_values, NoMeta>::call)));  // the composite names its devices
}

}  // namespace
}  // namespace torch_fl::glue
