// SPDX-License-Identifier: Apache-2.0
// What a record says of a call. See docs/design/observe.md.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "plan.h"
#include "router.h"
#include "runtime/records.h"

namespace torch_fl::glue {

/// What a call does that its plan does not count.
struct Measured {
  int64_t wait_ns = 0, copy_in_ns = 0, compute_ns = 0, copy_out_ns = 0;
  uint64_t bytes = 0, syncs = 0, conversions = 0;
};
/// Of the calling thread's innermost call; null where it is not recorded.
Measured* measured() noexcept;

/// Adds its lifetime to a part of the call that is being recorded, if one is.
class Measure {
 public:
  explicit Measure(int64_t Measured::* part) noexcept
      : call_(measured()), part_(part), start_ns_(call_ != nullptr ? runtime::now_ns() : 0) {}
  ~Measure() {
    if (call_ != nullptr) call_->*part_ += runtime::now_ns() - start_ns_;
  }
  Measure(const Measure&) = delete;
  Measure& operator=(const Measure&) = delete;

 private:
  Measured* call_;
  int64_t Measured::* part_;
  int64_t start_ns_;
};

/// The call that is being recorded, if one is, waited for the device.
inline void note_sync() noexcept {
  if (Measured* call = measured()) ++call->syncs;
}

/// Where the call is recorded: waits for the stream, so that what follows is the time of what follows.
void wait_for_earlier_work(runtime::Device& device, runtime::StreamId stream);

/// One call, from here to its end, while somebody observes: what it enqueues has its number, and where records are
/// wanted it gets one. Not told its end, it has failed.
class ObservedCall {
 public:
  explicit ObservedCall(runtime::Device& device);
  ~ObservedCall();
  ObservedCall(const ObservedCall&) = delete;
  ObservedCall& operator=(const ObservedCall&) = delete;

  bool recorded() const noexcept { return recording_ != 0; }
  void about(const Call& call, Plan& plan);
  void about(runtime::Subject subject);
  /// `plan` served the call.
  void served_by(const Plan& plan);
  void succeed() noexcept { failed_ = false; }
  Measured& measured() noexcept { return measured_; }

 private:
  uint64_t counted(const std::atomic<uint64_t>& counter, uint64_t before) const;
  runtime::Device& device_;
  const uint64_t id_;
  const runtime::Correlation correlation_;
  const uint32_t recording_;
  Measured* outer_ = nullptr;
  Measured measured_, before_;
  const Plan* plan_ = nullptr;
  uint32_t subject_ = 0, site_ = 0;
  int64_t start_ns_ = 0;
  bool failed_ = true;
};

/// A copy, or a fill, which passes no router, while somebody observes; otherwise nothing.
class ObservedCopy {
 public:
  /// `reason`: "host to device" and the like. `source` undefined: a fill.
  ObservedCopy(const char* op, const at::Tensor& source, const at::Tensor& target, const char* reason = nullptr) {
    if (C10_UNLIKELY(runtime::observing())) begin(op, source, target, reason);
  }
  void succeed() noexcept {
    if (C10_UNLIKELY(call_.has_value())) call_->succeed();
  }

 private:
  void begin(const char* op, const at::Tensor& source, const at::Tensor& target, const char* reason);
  std::optional<ObservedCall> call_;
};

}  // namespace torch_fl::glue
