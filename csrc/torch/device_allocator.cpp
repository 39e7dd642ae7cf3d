// SPDX-License-Identifier: Apache-2.0
#include "device_allocator.h"

#include <ATen/core/TensorBase.h>
#include <c10/core/CachingDeviceAllocator.h>

#include <algorithm>

#include "adapt.h"
#include "errors.h"
#include "guards.h"

namespace torch_fl::glue {
namespace {

c10::Device torch_device(const runtime::Device& device) {
  return {c10::kPrivateUse1, static_cast<c10::DeviceIndex>(device.index)};
}

void* as_pointer(fl_address address) { return reinterpret_cast<void*>(static_cast<uintptr_t>(address)); }
fl_address as_address(const void* pointer) { return static_cast<fl_address>(reinterpret_cast<uintptr_t>(pointer)); }

void report(runtime::Device& device, fl_address address, int64_t bytes) {
  const runtime::MemoryStats stats = device.allocator().stats();
  c10::reportMemoryUsageToProfiler(as_pointer(address), bytes, static_cast<size_t>(stats.allocated_bytes.current),
                                   static_cast<size_t>(stats.reserved_bytes.current), torch_device(device));
}

void free_block(void* context) {
  if (context == nullptr) return;
  auto* block = static_cast<runtime::Block*>(context);
  runtime::Device& device = *block->device;
  const fl_address address = block->address;
  const auto bytes = static_cast<int64_t>(block->size);
  memory_changed(device, address, block->size);
  device.allocator().free(block);
  if (C10_UNLIKELY(c10::memoryProfilingEnabled())) report(device, address, -bytes);
}

c10::DataPtr allocate_guarded(runtime::Device& device, uint64_t bytes) {
  device.handle();  // a lost device or a forked child must fail even where the cache could serve
  if (C10_UNLIKELY(bytes == 0)) return {nullptr, nullptr, &free_block, torch_device(device)};
  if (C10_UNLIKELY(g_guard_bytes.load(std::memory_order_relaxed) != 0)) return allocate_between_guards(device, bytes);
  runtime::Block* block = device.allocator().allocate(bytes, runtime::current_stream(device.index));
  if (C10_UNLIKELY(c10::memoryProfilingEnabled())) {
    report(device, block->address, static_cast<int64_t>(block->size));
  }
  return {as_pointer(block->address), block, &free_block, torch_device(device)};
}

/// Tells a running profiler about the failure, then throws PyTorch's exception.
[[noreturn]] C10_NOINLINE void allocation_failed(runtime::Device& device, uint64_t bytes, const runtime::Error& error) {
  if (error.status() == FL_OUT_OF_MEMORY && c10::memoryProfilingEnabled()) {
    const runtime::MemoryStats stats = device.allocator().stats();
    c10::reportOutOfMemoryToProfiler(static_cast<int64_t>(bytes), static_cast<size_t>(stats.allocated_bytes.current),
                                     static_cast<size_t>(stats.reserved_bytes.current), torch_device(device));
  }
  throw_torch(error);
}

void fill_stat(c10::CachingAllocator::StatArray& to, const runtime::Stat& from) {
  auto& total = to[static_cast<size_t>(c10::CachingAllocator::StatType::AGGREGATE)];
  total.current = from.current;
  total.peak = from.peak;
  total.allocated = from.allocated;
  total.freed = from.freed;
}

c10::CachingDeviceAllocator::DeviceStats to_torch(const runtime::MemoryStats& from) {
  c10::CachingDeviceAllocator::DeviceStats to;
  fill_stat(to.allocation, from.allocations);
  fill_stat(to.segment, from.segments);
  fill_stat(to.active, from.active_blocks);
  fill_stat(to.inactive_split, from.inactive_split_blocks);
  fill_stat(to.allocated_bytes, from.allocated_bytes);
  fill_stat(to.reserved_bytes, from.reserved_bytes);
  fill_stat(to.active_bytes, from.active_bytes);
  fill_stat(to.inactive_split_bytes, from.inactive_split_bytes);
  fill_stat(to.requested_bytes, from.requested_bytes);
  to.num_alloc_retries = from.alloc_retries;
  to.num_ooms = from.ooms;
  to.num_sync_all_streams = from.sync_all_streams;
  to.num_device_alloc = from.device_allocs;
  to.num_device_free = from.device_frees;
  return to;
}

template <typename Body>
void for_each_opened(Body body) {
  auto& registry = runtime::Registry::get();
  for (int32_t i = 0, n = registry.device_count(); i < n; ++i) {
    if (registry.at(i).opened()) body(registry.at(i));
  }
}

/// Enqueues a copy inside one device on its current stream.
void copy_within(runtime::Device& device, void* to, const void* from, uint64_t bytes) {
  guarded([&] {
    device.copy(runtime::current_stream(device.index), as_address(to), as_address(from), bytes,
                FL_COPY_DEVICE_TO_DEVICE);
  });
}

class DeviceAllocator final : public c10::DeviceAllocator {
 public:
  c10::DataPtr allocate(size_t bytes) override { return allocate_on(checked_device(-1), bytes); }

  bool is_simple_data_ptr(const c10::DataPtr& data) const override {
    return data.get_deleter() == &free_block || has_guards(data);
  }

  /// Used by copy-on-write storages, with the storage's device current.
  void copy_data(void* to, const void* from, std::size_t bytes) const override {
    copy_within(checked_device(-1), to, from, bytes);
  }

  bool initialized() override {
    bool any = false;
    for_each_opened([&](runtime::Device&) { any = true; });
    return any;
  }

  void emptyCache(c10::MempoolId_t) override {
    drop_all_kept();
    guarded([&] { for_each_opened([](runtime::Device& device) { device.allocator().empty_cache(); }); });
  }

  void recordStream(const c10::DataPtr& data, c10::Stream stream) override { record_stream(data, stream); }

  c10::CachingDeviceAllocator::DeviceStats getDeviceStats(c10::DeviceIndex index) override {
    return to_torch(checked_device(index).allocator().stats());
  }
  void resetAccumulatedStats(c10::DeviceIndex index) override { checked_device(index).allocator().reset_accumulated(); }
  void resetPeakStats(c10::DeviceIndex index) override { checked_device(index).allocator().reset_peak(); }

  std::pair<size_t, size_t> getMemoryInfo(c10::DeviceIndex index) override {
    uint64_t free_bytes = 0, total_bytes = 0;
    guarded([&] { checked_device(index).memory_info(&free_bytes, &total_bytes); });
    return {free_bytes, total_bytes};
  }
};

const bool g_registered = [] {
  c10::SetAllocator(c10::kPrivateUse1, device_allocator());
  return true;
}();

}  // namespace

c10::Allocator* device_allocator() {
  static auto* allocator = new DeviceAllocator();
  return allocator;
}

runtime::Device& checked_device(int32_t index) {
  auto& registry = runtime::Registry::get();
  if (index < 0) index = runtime::current_device();
  if (C10_LIKELY(index < registry.device_count())) return registry.at(index);
  return guarded([&]() -> runtime::Device& { return registry.device(index); });
}

c10::DataPtr allocate_on(runtime::Device& device, uint64_t bytes) {
  try {
    return allocate_guarded(device, bytes);
  } catch (const runtime::Error& error) {
    if (error.status() == FL_OUT_OF_MEMORY && drop_all_kept()) return allocate_on(device, bytes);
    allocation_failed(device, bytes, error);
  }
}

runtime::Block* block_of(const c10::DataPtr& data) {
  if (!data.device().is_privateuseone() || data.get() == nullptr) return nullptr;
  if (C10_LIKELY(data.get_deleter() == &free_block)) return static_cast<runtime::Block*>(data.get_context());
  return checked_device(data.device().index()).allocator().find(as_address(data.get()));
}

runtime::Block* block_of(const at::TensorBase& tensor) {
  if (!tensor.defined() || !tensor.has_storage()) return nullptr;
  return block_of(tensor.storage().data_ptr());
}

void record_stream(const c10::DataPtr& data, c10::Stream stream) {
  runtime::Block* block = block_of(data);
  if (block == nullptr || stream.device_type() != c10::kPrivateUse1) return;
  TORCH_CHECK(block->device->index == stream.device_index(),
              "record_stream: the memory is on fl:", block->device->index, " but the stream belongs to ",
              stream.device());
  guarded([&] { block->device->allocator().record_stream(block, stream.id()); });
}

void resize_storage(c10::StorageImpl& storage, size_t bytes) {
  TORCH_CHECK(storage.resizable(), "Trying to resize storage that is not resizable");
  const size_t kept = std::min(storage.nbytes(), bytes);
  runtime::Device& device = checked_device(storage.device().index());
  c10::DataPtr data = allocate_on(device, bytes);
  if (kept > 0) {
    copy_within(device, data.get(), storage.data(), kept);
    // The old memory may belong to another stream; it must outlive the copy that was just enqueued.
    record_stream(storage.data_ptr(),
                  c10::Stream(c10::Stream::UNSAFE, storage.device(), runtime::current_stream(device.index)));
  }
  storage.set_data_ptr_noswap(std::move(data));
  storage.set_nbytes(bytes);
}

void set_memory_fraction(double fraction, int32_t index) {
  TORCH_CHECK_VALUE(fraction >= 0.0 && fraction <= 1.0, "the memory fraction must lie between 0 and 1, got ", fraction);
  guarded([&] { checked_device(index).allocator().set_memory_fraction(fraction); });
}

}  // namespace torch_fl::glue
