// SPDX-License-Identifier: Apache-2.0
// Device memory as PyTorch sees it: c10::DeviceAllocator over the runtime's caching allocator.
#pragma once

#include <c10/core/Allocator.h>
#include <c10/core/Storage.h>
#include <c10/core/Stream.h>

#include <cstdint>

#include "../runtime/device.h"

namespace at {
class TensorBase;
}

namespace torch_fl::glue {

/// The one allocator of all fl devices (never destroyed).
c10::Allocator* device_allocator();

/// Memory of `device`, ordered on the current stream of the calling thread; does not look at the current device.
c10::DataPtr allocate_on(runtime::Device& device, uint64_t bytes);

/// The runtime's block that holds this memory; null for none (0 bytes, or memory that is not ours).
runtime::Block* block_of(const c10::DataPtr& data);
runtime::Block* block_of(const at::TensorBase& tensor);

/// Tells the allocator that work on `stream` uses this memory too. Memory that is not ours is ignored.
void record_stream(const c10::DataPtr& data, c10::Stream stream);

/// Makes the storage `bytes` long and keeps the old contents, in the order of the current stream of its device.
void resize_storage(c10::StorageImpl& storage, size_t bytes);

/// Caps what may be allocated on a device at `fraction` (0 to 1) of its memory; 1 lifts the cap.
void set_memory_fraction(double fraction, int32_t index);

/// The device with this index; -1 means the current one. Throws PyTorch's exception if there is none.
runtime::Device& checked_device(int32_t index);

}  // namespace torch_fl::glue
