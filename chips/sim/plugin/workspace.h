// SPDX-License-Identifier: Apache-2.0
// Scratch memory of a worker thread: grows to the largest request and is reused, so that hot kernels do not allocate.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <new>

namespace fl_sim::nn {

class AlignedBuffer {
 public:
  AlignedBuffer() = default;
  AlignedBuffer(const AlignedBuffer&) = delete;
  AlignedBuffer& operator=(const AlignedBuffer&) = delete;
  ~AlignedBuffer() { std::free(data_); }

  // At least `bytes` bytes, aligned to 64; earlier contents are lost.
  void* get(int64_t bytes) {
    if (bytes > capacity_) grow(bytes);
    return data_;
  }

 private:
  void grow(int64_t bytes) {
    std::free(data_);
    capacity_ = 0;
    const size_t rounded = (static_cast<size_t>(bytes) + 4095) / 4096 * 4096;
    data_ = std::aligned_alloc(64, rounded);
    if (!data_) throw std::bad_alloc();
    capacity_ = static_cast<int64_t>(rounded);
  }
  void* data_ = nullptr;
  int64_t capacity_ = 0;
};

// The slots that may be in use at the same time on one thread.
enum class Slot { kPanelsA, kPanelsB, kTiles, kKernel, kKernel2, kKernel3, kKernel4, kCount };

template <class T>
T* workspace(Slot slot, int64_t count) {
  thread_local AlignedBuffer buffers[static_cast<int>(Slot::kCount)];
  return static_cast<T*>(buffers[static_cast<int>(slot)].get(count * static_cast<int64_t>(sizeof(T))));
}

}  // namespace fl_sim::nn
