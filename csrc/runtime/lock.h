// SPDX-License-Identifier: Apache-2.0
// Locks under which a chip is called. A chip may be Python code, which needs the interpreter's lock, and a thread that
// has that one may come here to free a tensor: it lets go of it before it waits.
#pragma once

#include <atomic>
#include <mutex>
#include <utility>

#include "error.h"

namespace torch_fl::runtime {

/// A lock of the program around the runtime that chips may need.
struct OuterLock {
  void* (*leave)();  ///< lets go of it; null: the calling thread did not have it
  void (*enter)(void* left);
};
/// Set once, by the glue, with the first chip that needs it; null: a Lock is a mutex's, and no more.
inline std::atomic<const OuterLock*> outer_lock{nullptr};

class Lock {
 public:
  /// Throws where the thread has it already: the chip used, in one of its functions, the device that had called that.
  explicit Lock(std::mutex& mutex) : mutex_(mutex), outer_(outer_lock.load(std::memory_order_acquire)) {
    if (outer_ == nullptr) {
      mutex.lock();
      return;
    }
    if (held(mutex)) {
      throw Error(FL_INTERNAL,
                  "a function of a chip that opens a device, or allocates or frees its memory, used that device");
    }
    if (!mutex.try_lock()) {
      left_ = outer_->leave();
      mutex.lock();
    }
    around_ = std::exchange(innermost_, this);
  }
  ~Lock() {
    if (outer_ != nullptr) innermost_ = around_;
    mutex_.unlock();
    if (left_ != nullptr) outer_->enter(left_);
  }
  Lock(const Lock&) = delete;

  /// Whether the calling thread has it.
  static bool held(const std::mutex& mutex) noexcept {
    if (outer_lock.load(std::memory_order_relaxed) == nullptr) return false;
    for (const Lock* lock = innermost_; lock != nullptr; lock = lock->around_) {
      if (&lock->mutex_ == &mutex) return true;
    }
    return false;
  }

 private:
  std::mutex& mutex_;
  const OuterLock* const outer_;
  const Lock* around_ = nullptr;
  void* left_ = nullptr;
  static inline thread_local constinit const Lock* innermost_ = nullptr;
};

}  // namespace torch_fl::runtime
