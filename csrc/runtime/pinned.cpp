// SPDX-License-Identifier: Apache-2.0
// The pinned host pool of one device. Requests are rounded up to size classes, four to each doubling, and a freed block
// serves the next request of its class once the streams that used it have passed the point where it was freed.
#include <algorithm>
#include <array>
#include <bit>
#include <cstdlib>
#include <deque>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "internal.h"
#include "lock.h"
#include "timeline.h"

namespace torch_fl::runtime {
namespace {

constexpr uint64_t kMinBytes = 512;
constexpr uint64_t kMaxBytes = uint64_t{1} << 46;
constexpr size_t kHostAlignment = 64;
constexpr int kSteps = 4;  // size classes in each doubling

enum class State : uint8_t { kFree, kLive, kPending };

struct HostBlock {
  char* pointer = nullptr;
  uint64_t bytes = 0;
  size_t size_class = 0;
  uint64_t requested = 0;
  State state = State::kFree;
  uint32_t pending_events = 0;
  std::vector<StreamId> used_on;
};

struct SizeClass {
  uint64_t bytes;
  size_t index;
};
SizeClass size_class(uint64_t bytes) {
  const uint64_t n = std::max(bytes, kMinBytes);
  const int top = std::bit_width(n - 1) - 1;  // 2^top < n <= 2^(top+1)
  const uint64_t step = (uint64_t{1} << top) / kSteps;
  const uint64_t rounded = round_up(n, step);
  return {rounded, static_cast<size_t>(top) * kSteps + (rounded - (uint64_t{1} << top)) / step};
}

}  // namespace

struct PinnedPool::Impl {
  struct Pending {
    fl_event event;
    HostBlock* block;
  };

  explicit Impl(Device& device) : device(device), events(device) {}
  void* allocate(uint64_t bytes);
  void free(void* pointer) noexcept;
  void free_late() noexcept;
  void free_locked(void* pointer) noexcept;
  HostBlock* find(const void* pointer) const;
  HostBlock* add(SizeClass size);
  void* raw_alloc(uint64_t bytes);
  bool defer(HostBlock* block) noexcept;
  void make_available(HostBlock* block);
  void poll_pending(bool wait);
  void release_unused();

  Device& device;
  mutable std::mutex mutex;
  std::map<const char*, HostBlock> blocks;  // by address
  std::array<std::vector<HostBlock*>, 48 * kSteps + kSteps> idle;
  std::map<StreamId, std::deque<Pending>> pending;
  size_t n_pending = 0;
  EventPool events;
  std::vector<void*> late;
  MemoryStats stats;
};

void* PinnedPool::Impl::allocate(uint64_t bytes) {
  device.handle();  // throws where the device cannot work
  if (bytes > kMaxBytes) {
    throw Error(FL_OUT_OF_MEMORY, "out of pinned host memory. Tried to allocate " + format_bytes(bytes));
  }
  const SizeClass size = size_class(bytes);
  const Lock lock(mutex);
  free_late();
  if (n_pending != 0) poll_pending(false);
  std::vector<HostBlock*>& list = idle[size.index];
  HostBlock* block = nullptr;
  if (list.empty()) {
    block = add(size);
  } else {
    block = list.back();
    list.pop_back();
  }
  block->state = State::kLive;
  block->requested = bytes;
  increase(stats.allocated_bytes, static_cast<int64_t>(block->bytes));
  increase(stats.active_bytes, static_cast<int64_t>(block->bytes));
  increase(stats.requested_bytes, static_cast<int64_t>(bytes));
  increase(stats.allocations, 1);
  increase(stats.active_blocks, 1);
  return block->pointer;
}

HostBlock* PinnedPool::Impl::add(SizeClass size) {
  void* pointer = raw_alloc(size.bytes);
  if (pointer == nullptr) {
    ++stats.alloc_retries;
    poll_pending(true);
    release_unused();
    pointer = raw_alloc(size.bytes);
  }
  if (pointer == nullptr) {
    ++stats.ooms;
    throw Error(FL_OUT_OF_MEMORY, "out of pinned host memory of device fl:" + std::to_string(device.index) + " [chip " +
                                      device.chip.name + "]. Tried to allocate " + format_bytes(size.bytes) + " with " +
                                      format_bytes(static_cast<uint64_t>(stats.reserved_bytes.current)) + " in use");
  }
  HostBlock& block = blocks[static_cast<const char*>(pointer)];
  block.pointer = static_cast<char*>(pointer);
  block.bytes = size.bytes;
  block.size_class = size.index;
  increase(stats.reserved_bytes, static_cast<int64_t>(size.bytes));
  increase(stats.segments, 1);
  ++stats.device_allocs;
  return &block;
}

void* PinnedPool::Impl::raw_alloc(uint64_t bytes) {
  if (device.chip.memory.host_alloc == nullptr) {
    return std::aligned_alloc(kHostAlignment, round_up(bytes, kHostAlignment));
  }
  void* pointer = nullptr;
  const RuntimeCall seen(device, -1, "flHostAlloc", bytes);
  const fl_status status = device.chip.memory.host_alloc(device.handle(), bytes, &pointer);
  if (status == FL_OUT_OF_MEMORY) {
    take_message_for(status);
    return nullptr;
  }
  device.check(status, "allocating pinned host memory");
  return pointer;
}

void PinnedPool::Impl::free(void* pointer) noexcept {
  if (bad_fork.load(std::memory_order_relaxed)) return;
  if (Lock::held(mutex)) return late.push_back(pointer);
  const Lock lock(mutex);
  free_late();
  free_locked(pointer);
}

/// What the chip's own functions freed while they were called.
void PinnedPool::Impl::free_late() noexcept {
  while (!late.empty()) {
    void* pointer = late.back();
    late.pop_back();
    free_locked(pointer);
  }
}

void PinnedPool::Impl::free_locked(void* pointer) noexcept {
  HostBlock* block = find(pointer);
  if (block == nullptr || block->pointer != pointer || block->state != State::kLive) {
    log(FL_LOG_ERROR, "a pointer that is no pinned allocation was freed; ignored");
    return;
  }
  decrease(stats.allocated_bytes, static_cast<int64_t>(block->bytes));
  decrease(stats.requested_bytes, static_cast<int64_t>(block->requested));
  decrease(stats.allocations, 1);
  if (!block->used_on.empty() && defer(block)) return;
  make_available(block);
}

/// The block that contains `pointer`, whatever its state, or null.
HostBlock* PinnedPool::Impl::find(const void* pointer) const {
  const char* p = static_cast<const char*>(pointer);
  auto after = blocks.upper_bound(p);
  if (after == blocks.begin()) return nullptr;
  const HostBlock& block = std::prev(after)->second;
  return p < block.pointer + block.bytes ? const_cast<HostBlock*>(&block) : nullptr;
}

/// Records events on the streams that used the block; true if it must wait for them. Where that fails (a lost device
/// may still write to it) the block is never used again.
bool PinnedPool::Impl::defer(HostBlock* block) noexcept {
  block->state = State::kPending;
  try {
    for (const StreamId stream : block->used_on) {
      std::deque<Pending>& queue = pending[stream];
      queue.push_back({events.record(stream), block});
      ++block->pending_events;
      ++n_pending;
    }
  } catch (const std::exception&) {
    ++block->pending_events;
  }
  block->used_on.clear();
  return block->pending_events != 0;
}

void PinnedPool::Impl::make_available(HostBlock* block) {
  block->state = State::kFree;
  decrease(stats.active_bytes, static_cast<int64_t>(block->bytes));
  decrease(stats.active_blocks, 1);
  idle[block->size_class].push_back(block);
}

void PinnedPool::Impl::poll_pending(bool wait) {
  for (auto& [stream, queue] : pending) {
    while (!queue.empty()) {
      const Pending front = queue.front();
      if (wait) {
        device.event_synchronize(front.event);
      } else if (!device.event_query(front.event)) {
        break;
      }
      queue.pop_front();
      --n_pending;
      events.give(front.event);
      if (--front.block->pending_events == 0) make_available(front.block);
    }
  }
}

/// Gives idle blocks back. No work uses them: the host waited, or their events have completed.
void PinnedPool::Impl::release_unused() {
  for (std::vector<HostBlock*>& list : idle) {
    while (!list.empty()) {
      HostBlock* block = list.back();
      list.pop_back();
      const RuntimeCall seen(device, -1, "flHostFree", block->bytes);
      if (device.chip.memory.host_alloc == nullptr) {
        std::free(block->pointer);
      } else if (device.chip.memory.host_free(device.handle(), block->pointer) != FL_OK) {
        log(FL_LOG_WARNING, "freeing pinned host memory failed: " + take_plugin_message());
      }
      decrease(stats.reserved_bytes, static_cast<int64_t>(block->bytes));
      decrease(stats.segments, 1);
      ++stats.device_frees;
      blocks.erase(block->pointer);
    }
  }
}

PinnedPool::PinnedPool(Device& device) : impl_(std::make_unique<Impl>(device)) {}

PinnedPool::~PinnedPool() {
  if (!impl_->device.usable()) return;
  try {
    empty_cache();
  } catch (const std::exception& error) {
    log(FL_LOG_WARNING, error.what());
  }
  impl_->events.clear();
}

void* PinnedPool::allocate(uint64_t bytes) { return impl_->allocate(bytes); }

void PinnedPool::free(void* pointer) noexcept {
  if (pointer != nullptr) impl_->free(pointer);
}

bool PinnedPool::record(void* pointer, StreamId stream) {
  impl_->device.stream(stream);  // throws unless it exists
  const Lock lock(impl_->mutex);
  HostBlock* block = impl_->find(pointer);
  if (block == nullptr || block->state != State::kLive) return false;
  std::vector<StreamId>& used = block->used_on;
  if (std::find(used.begin(), used.end(), stream) == used.end()) used.push_back(stream);
  return true;
}

bool PinnedPool::owns(const void* pointer) const {
  const Lock lock(impl_->mutex);
  const HostBlock* block = impl_->find(pointer);
  return block != nullptr && block->state == State::kLive;
}

void PinnedPool::empty_cache() {
  if (!impl_->device.opened()) return;
  impl_->device.handle();
  const Lock lock(impl_->mutex);
  impl_->poll_pending(true);
  impl_->release_unused();
}

MemoryStats PinnedPool::stats() const {
  const Lock lock(impl_->mutex);
  return impl_->stats;
}
void PinnedPool::reset_peak() {
  const Lock lock(impl_->mutex);
  runtime::reset_peak(impl_->stats);
}
void PinnedPool::reset_accumulated() {
  const Lock lock(impl_->mutex);
  runtime::reset_accumulated(impl_->stats);
}

}  // namespace torch_fl::runtime
