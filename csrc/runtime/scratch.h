// SPDX-License-Identifier: Apache-2.0
// Scratch memory that a kernel takes through host->scratch() while it runs.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "device.h"

namespace torch_fl::runtime {

/// Put around kernel->run(): `const ScratchScope scope(device, stream);`. What the kernel took is given back at the end
/// of the scope, to be reused by later work on the same stream. Costs two thread-local writes where nothing is taken.
class ScratchScope {
 public:
  ScratchScope(Device& device, StreamId stream) noexcept : device_(device), stream_(stream), outer_(enter(this)) {}
  ~ScratchScope() {
    leave(outer_);
    if (count_ != 0) give_back();
  }
  ScratchScope(const ScratchScope&) = delete;
  ScratchScope& operator=(const ScratchScope&) = delete;

  /// The innermost scope of the calling thread, or null.
  static ScratchScope* current() noexcept;
  Device& device() const { return device_; }
  /// bytes > 0.
  fl_address take(uint64_t bytes);

 private:
  static ScratchScope* enter(ScratchScope* scope) noexcept;
  static void leave(ScratchScope* outer) noexcept;
  void give_back() noexcept;

  Device& device_;
  const StreamId stream_;
  ScratchScope* const outer_;
  size_t count_ = 0;
  std::array<Block*, 8> first_;  // not initialised: only count_ of them count
  std::vector<Block*> more_;
};

}  // namespace torch_fl::runtime
