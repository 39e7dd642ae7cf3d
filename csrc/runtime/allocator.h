// SPDX-License-Identifier: Apache-2.0
// Stream-aware caching allocator of one device, and the pinned host pool of one chip.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "torch_fl/fl_plugin.h"

namespace torch_fl::runtime {

class Device;
using StreamId = int64_t;  // 0 = the device's default stream

/// One allocation handed to a user. Stable address; valid until Allocator::free.
struct Block {
  fl_address address = 0;
  uint64_t size = 0;       ///< bytes usable (rounded)
  uint64_t requested = 0;  ///< bytes asked for
  StreamId stream = 0;     ///< the stream it was allocated on
  Device* device = nullptr;
  // The rest belongs to the allocator.
  struct Internal;
  Internal* internal = nullptr;
};

/// All in bytes or counts; `current`, `peak` since the last reset_peak, `allocated`/`freed` accumulated.
struct Stat {
  int64_t current = 0, peak = 0, allocated = 0, freed = 0;
};
struct MemoryStats {
  Stat allocated_bytes, reserved_bytes, active_bytes, requested_bytes;
  Stat allocations, segments, active_blocks, inactive_split_blocks, inactive_split_bytes;
  int64_t alloc_retries = 0, ooms = 0, sync_all_streams = 0, device_allocs = 0, device_frees = 0;
};

class Allocator {
 public:
  explicit Allocator(Device& device);
  ~Allocator();

  /// bytes > 0. Reuses a cached block of the same stream where there is one (the fast path: under 0.3 us, no plugin
  /// call), splits large ones, otherwise asks the plugin; on FL_OUT_OF_MEMORY empties the cache and retries once, then
  /// throws Error(FL_OUT_OF_MEMORY) with the figures (tried, total, free, allocated, reserved, device, chip).
  Block* allocate(uint64_t bytes, StreamId stream);
  /// Returns the block to the cache. If other streams used it (record_stream), it becomes reusable only after events
  /// recorded now on them have completed. Never throws; safe on a lost device and at process exit.
  void free(Block* block) noexcept;
  /// The block is also used on `stream`.
  void record_stream(Block* block, StreamId stream);
  /// Gives every wholly unused segment back to the chip (after synchronising what is pending).
  void empty_cache();
  MemoryStats stats() const;
  void reset_peak();
  void reset_accumulated();
  /// Blocks pointing into live allocations: the block containing `address`, or null.
  Block* find(fl_address address) const;
  /// At most this share (0 to 1) of the device's total memory is asked of the chip; beyond it is out of memory.
  void set_memory_fraction(double fraction);
  double memory_fraction() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

/// Pinned host memory, cached, of one device. A freed block is reused once the events recorded on it have completed.
class PinnedPool {
 public:
  explicit PinnedPool(Device& device);
  ~PinnedPool();
  /// Falls back to ordinary aligned host memory (64 bytes) where the chip has no host_alloc.
  void* allocate(uint64_t bytes);
  void free(void* pointer) noexcept;
  /// `pointer` (anywhere inside a block) is used by work on `stream` enqueued so far. False: not ours.
  bool record(void* pointer, StreamId stream);
  bool owns(const void* pointer) const;
  void empty_cache();
  MemoryStats stats() const;
  void reset_peak();
  void reset_accumulated();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace torch_fl::runtime
