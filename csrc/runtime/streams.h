// SPDX-License-Identifier: Apache-2.0
// The table of one device's streams. Private to the runtime.
#pragma once

#include <array>
#include <atomic>
#include <bit>
#include <mutex>

#include "device.h"

namespace torch_fl::runtime {

/// Ids index a table that only grows. It grows in chunks that double and never move, so readers take no lock.
struct Device::Streams {
  struct Entry {
    fl_stream handle = nullptr;
    int32_t priority = 0;
  };
  static constexpr size_t kFirstChunk = 64, kChunks = 24;
  static constexpr size_t kPoolSize = 32;

  Streams() : count(1) { chunks[0].store(new Entry[kFirstChunk], std::memory_order_relaxed); }
  ~Streams() {
    for (auto& chunk : chunks) delete[] chunk.load(std::memory_order_relaxed);
  }

  /// `id` must be below count.
  Entry& at(StreamId id) {
    const size_t position = static_cast<size_t>(id) + kFirstChunk;
    const size_t chunk = static_cast<size_t>(std::bit_width(position) - std::bit_width(kFirstChunk));
    return chunks[chunk].load(std::memory_order_acquire)[position - (kFirstChunk << chunk)];
  }

  StreamId append(Entry entry);  ///< needs the mutex
  StreamId find(fl_stream handle);

  std::atomic<StreamId> count;  ///< id 0 is the default stream
  std::array<std::atomic<Entry*>, kChunks> chunks{};
  std::mutex mutex;
  std::array<std::array<StreamId, kPoolSize>, 2> pool{};  ///< [high priority][slot]; 0 = not made yet
  std::array<size_t, 2> next{};
};

}  // namespace torch_fl::runtime
