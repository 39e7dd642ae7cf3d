// SPDX-License-Identifier: Apache-2.0
// Arguments as a kernel wants them: another type, layout or alignment. What is converted again and again, and not
// written meanwhile (weights), is kept.
#pragma once

#include <ATen/ATen.h>

#include <atomic>

#include "runtime/device.h"

namespace torch_fl::glue {

/// What a converted tensor looks like.
struct Adaptation {
  at::ScalarType dtype = at::kFloat;
  at::MemoryFormat format = at::MemoryFormat::Contiguous;  ///< Preserve: bit by bit, with the strides it has
  uint64_t alignment = 0;                                  ///< of its address, in bytes; 0: any
};

/// A copy of `src` on `device`, kept or fresh; `*fresh` tells. Kept from the second conversion on.
at::Tensor adapted(runtime::Device& device, const at::Tensor& src, const Adaptation& wanted, bool* fresh);

/// A dense tensor of device memory whose address is a multiple of `alignment`; contents undefined.
at::Tensor allocate_aligned(runtime::Device& device, at::ScalarType dtype, at::IntArrayRef sizes,
                            at::IntArrayRef strides, uint64_t alignment);

extern std::atomic<uint64_t> g_kept;  ///< tensors that are kept

void drop_kept(const runtime::Device& device, fl_address begin, uint64_t bytes);
/// To be called after memory was written, by whatever route, and when it is freed.
inline void memory_changed(const runtime::Device& device, fl_address begin, uint64_t bytes) {
  if (C10_UNLIKELY(g_kept.load(std::memory_order_relaxed) != 0)) drop_kept(device, begin, bytes);
}
/// The same for a tensor of any device.
void tensor_changed(const at::Tensor& t);

/// Lets go of all that is kept. False: there was nothing.
bool drop_all_kept();
void set_adapter_cache_bytes(uint64_t bytes);

struct AdapterStats {
  uint64_t conversions, reuses, kept, kept_bytes, limit_bytes;
};
AdapterStats adapter_stats();

}  // namespace torch_fl::glue
