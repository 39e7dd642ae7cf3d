// SPDX-License-Identifier: Apache-2.0
// Copies between tensors of any two devices, dtypes and geometries.
#pragma once

#include <ATen/ATen.h>

#include "runtime/device.h"

namespace torch_fl::glue {

/// dst.copy_(src): casts, broadcasts, any strides, conj and neg bits, overlapping memory. At least one side is on fl.
/// `may_overlap`: dst may be an expanded tensor, whose elements then get one of their values.
void copy_into(const at::Tensor& dst, const at::Tensor& src, bool non_blocking, bool may_overlap = false);

/// A dense copy of `src` (device or CPU) on `device`, with this dtype and format.
at::Tensor converted(runtime::Device& device, const at::Tensor& src, at::ScalarType dtype, at::MemoryFormat format);

/// A host tensor with the values, dtype, sizes and strides of a device tensor. Waits.
at::Tensor to_host(const at::Tensor& src);

/// A device tensor with the values, dtype, sizes and (where dense) strides of a CPU tensor.
at::Tensor to_device(runtime::Device& device, const at::Tensor& src);

/// Bytes that the elements of a tensor span, from its first element (strides are never negative).
uint64_t extent_bytes(const at::Tensor& t);

/// Copies `bytes` from ordinary host memory; it may be reused on return.
void upload(runtime::Device& device, fl_address dst, const void* src, uint64_t bytes);
/// Copies `bytes` to host memory, without waiting.
void download(runtime::Device& device, void* dst, fl_address src, uint64_t bytes);
/// The same, and waits.
void download_now(runtime::Device& device, void* dst, fl_address src, uint64_t bytes);

/// Of the first element; 0 where the tensor has no memory.
inline fl_address device_address(const at::Tensor& t) {
  const auto* impl = t.unsafeGetTensorImpl();
  const auto base = reinterpret_cast<fl_address>(impl->unsafe_storage().unsafeGetStorageImpl()->data());
  return base == 0 ? 0 : base + static_cast<fl_address>(impl->storage_offset()) * impl->dtype().itemsize();
}

}  // namespace torch_fl::glue
