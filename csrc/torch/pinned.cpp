// SPDX-License-Identifier: Apache-2.0
#include "pinned.h"

#include <ATen/core/CachingHostAllocator.h>

#include <memory>

#include "../runtime/device.h"
#include "device_allocator.h"
#include "errors.h"

namespace torch_fl::glue {
namespace {

/// What the deleter needs: the pool is not to be searched for while freeing.
struct PinnedBlock {
  runtime::PinnedPool* pool;
  void* pointer;
};

void free_pinned(void* context) {
  auto* block = static_cast<PinnedBlock*>(context);
  if (block == nullptr) return;
  block->pool->free(block->pointer);
  delete block;
}

template <typename Body>
bool any_pool(Body body) {
  auto& registry = runtime::Registry::get();
  for (int32_t i = 0, n = registry.device_count(); i < n; ++i) {
    if (registry.at(i).opened() && body(registry.at(i).pinned())) return true;
  }
  return false;
}

void add_stat(c10::CachingAllocator::Stat& to, const runtime::Stat& from) {
  to.current += from.current;
  to.peak += from.peak;
  to.allocated += from.allocated;
  to.freed += from.freed;
}

/// Pinned memory belongs to the device that is current when it is asked for; it may be copied to any device.
class HostAllocator final : public at::HostAllocator {
 public:
  c10::DataPtr allocate(size_t bytes) override {
    if (bytes == 0) return {nullptr, nullptr, &free_pinned, c10::Device(c10::kCPU)};
    return guarded([&]() -> c10::DataPtr {
      runtime::Device& device = checked_device(-1);
      device.handle();
      auto block = std::make_unique<PinnedBlock>(PinnedBlock{&device.pinned(), nullptr});
      block->pointer = block->pool->allocate(bytes);
      void* pointer = block->pointer;
      return {pointer, block.release(), &free_pinned, c10::Device(c10::kCPU)};
    });
  }
  c10::DeleterFnPtr raw_deleter() const override { return nullptr; }
  void copy_data(void* to, const void* from, std::size_t bytes) const override { default_copy_data(to, from, bytes); }

  bool record_event(void* pointer, void* /*context*/, c10::Stream stream) override {
    if (stream.device_type() != c10::kPrivateUse1) return false;
    return guarded([&] {
      runtime::Device& device = checked_device(stream.device_index());
      if (device.pinned().record(pointer, stream.id())) return true;
      if (!is_pinned(pointer)) return false;
      device.synchronize_stream(stream.id());  // the pool of another device cannot wait for this stream's events
      return true;
    });
  }
  void empty_cache() override {
    guarded([&] { any_pool([](runtime::PinnedPool& pool) { return pool.empty_cache(), false; }); });
  }
  at::HostStats get_stats() override;
  void reset_accumulated_stats() override {
    any_pool([](runtime::PinnedPool& pool) { return pool.reset_accumulated(), false; });
  }
  void reset_peak_stats() override {
    any_pool([](runtime::PinnedPool& pool) { return pool.reset_peak(), false; });
  }
};

at::HostStats HostAllocator::get_stats() {
  at::HostStats total;
  any_pool([&](runtime::PinnedPool& pool) {
    const runtime::MemoryStats stats = pool.stats();
    add_stat(total.active_requests, stats.allocations);
    add_stat(total.active_bytes, stats.allocated_bytes);
    add_stat(total.allocations, stats.segments);
    add_stat(total.allocated_bytes, stats.reserved_bytes);
    total.num_host_alloc += stats.device_allocs;
    total.num_host_free += stats.device_frees;
    return false;
  });
  return total;
}

const bool g_registered = [] {
  at::setHostAllocator(c10::kPrivateUse1, new HostAllocator());  // kept for the life of the process
  return true;
}();

}  // namespace

bool is_pinned(const void* data) {
  return data != nullptr && any_pool([&](runtime::PinnedPool& pool) { return pool.owns(data); });
}

}  // namespace torch_fl::glue
