// SPDX-License-Identifier: Apache-2.0
// Addresses for devices whose memory has handles instead of pointers.
#pragma once

#include <array>
#include <atomic>
#include <deque>
#include <memory>
#include <mutex>

#include "cl_api.h"
#include "torch_fl/fl_plugin.h"

namespace fl_opencl {

/// Each buffer has a range of 2^40 addresses of its own: number of its slot + 1, then the offset. So an address says
/// by itself which slot it means, arithmetic works, and zero is no address. find() takes no lock: slots never move.
class BufferTable {
 public:
  static constexpr uint64_t kRange = UINT64_C(1) << 40;

  struct Place {
    cl_mem buffer;
    uint64_t offset;
    uint64_t room;  ///< bytes from there to the buffer's end
  };

  BufferTable() = default;
  ~BufferTable() {
    for (auto& chunk : chunks_) delete[] chunk.load();
  }
  BufferTable(const BufferTable&) = delete;

  /// Zero when no range is left.
  fl_address add(cl_mem buffer, uint64_t bytes) {
    const std::lock_guard lock(mutex_);
    uint32_t number = next_;
    // The slot that was freed first comes first, so that a stale address means nothing for as long as possible.
    if (free_.size() > kChunk || next_ == kChunk * kChunks) {
      if (free_.empty()) return 0;
      number = free_.front();
      free_.pop_front();
    } else {
      if (number % kChunk == 0) chunks_[number / kChunk].store(new Slot[kChunk], std::memory_order_release);
      ++next_;
    }
    Slot& slot = chunks_[number / kChunk].load(std::memory_order_relaxed)[number % kChunk];
    slot.bytes.store(bytes, std::memory_order_relaxed);
    slot.buffer.store(buffer, std::memory_order_release);
    return (uint64_t{number} + 1) * kRange;
  }

  /// False when the address is of no buffer.
  bool find(fl_address address, Place& place) const {
    const Slot* slot = slot_of(address);
    if (slot == nullptr) return false;
    place.buffer = slot->buffer.load(std::memory_order_acquire);
    const uint64_t bytes = slot->bytes.load(std::memory_order_relaxed);
    place.offset = address % kRange;
    if (place.buffer == nullptr || place.offset > bytes) return false;
    place.room = bytes - place.offset;
    return true;
  }

  /// Null when no buffer begins there.
  cl_mem remove(fl_address address) {
    const std::lock_guard lock(mutex_);
    Slot* slot = slot_of(address);
    if (slot == nullptr || address % kRange != 0) return nullptr;
    cl_mem buffer = slot->buffer.exchange(nullptr);
    if (buffer != nullptr) free_.push_back(static_cast<uint32_t>(address / kRange - 1));
    return buffer;
  }

 private:
  struct Slot {
    std::atomic<cl_mem> buffer{nullptr};
    std::atomic<uint64_t> bytes{0};
  };
  static constexpr uint32_t kChunk = 1024, kChunks = 4096;

  Slot* slot_of(fl_address address) const {
    const uint64_t number = address / kRange - 1;  // of address 0: huge
    if (number >= uint64_t{kChunk} * kChunks) return nullptr;
    Slot* chunk = chunks_[number / kChunk].load(std::memory_order_acquire);
    return chunk == nullptr ? nullptr : &chunk[number % kChunk];
  }

  std::array<std::atomic<Slot*>, kChunks> chunks_{};
  std::mutex mutex_;
  std::deque<uint32_t> free_;
  uint32_t next_ = 0;
};

}  // namespace fl_opencl
