// SPDX-License-Identifier: Apache-2.0
#include "call_log.h"

#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "error.h"

namespace torch_fl::runtime {

CallLog& CallLog::get() {
  static auto* log = new CallLog();  // threads may still record while the process exits
  return *log;
}

void CallLog::start(size_t capacity) {
  if (capacity == 0) throw Error(FL_INVALID_ARGUMENT, "a recording of calls needs room for at least 1");
  const std::lock_guard lock(mutex_);
  if (active()) throw Error(FL_INVALID_ARGUMENT, "calls are being recorded already; end that recording first");
  ring_.clear();
  capacity_ = capacity;
  added_ = 0;
  active_.store(true, std::memory_order_relaxed);
}

void CallLog::add(CallRecord record) {
  const std::lock_guard lock(mutex_);
  if (!active()) return;  // a call that ends after its recording
  if (ring_.size() < capacity_) {
    ring_.push_back(std::move(record));
  } else {
    ring_[added_ % capacity_] = std::move(record);
  }
  ++added_;
}

CallLog::Result CallLog::stop() {
  const std::lock_guard lock(mutex_);
  active_.store(false, std::memory_order_relaxed);
  Result result;
  result.dropped = added_ - ring_.size();
  const auto oldest = static_cast<std::ptrdiff_t>(ring_.size() == capacity_ && capacity_ > 0 ? added_ % capacity_ : 0);
  std::rotate(ring_.begin(), ring_.begin() + oldest, ring_.end());
  result.records = std::exchange(ring_, {});
  capacity_ = 0;
  added_ = 0;
  return result;
}

uint64_t thread_number() noexcept {
  static thread_local const auto number = static_cast<uint64_t>(::syscall(SYS_gettid));
  return number;
}

}  // namespace torch_fl::runtime
