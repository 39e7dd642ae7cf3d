// SPDX-License-Identifier: Apache-2.0
// Times the device allocator itself, without Python or the dispatcher in between.
#include <c10/core/Allocator.h>
#include <c10/core/DeviceType.h>
#include <torch/extension.h>

#include <chrono>
#include <vector>

namespace {

// Nanoseconds of one allocation with its release; every block but the first comes from the cache.
double cached_allocation(int64_t count, int64_t bytes, int64_t held) {
  c10::Allocator* allocator = c10::GetAllocator(c10::kPrivateUse1);
  std::vector<c10::DataPtr> live;
  for (int64_t i = 0; i < held; ++i) live.push_back(allocator->allocate(static_cast<size_t>(bytes)));
  {
    auto warm = allocator->allocate(static_cast<size_t>(bytes));
  }
  const auto start = std::chrono::steady_clock::now();
  for (int64_t i = 0; i < count; ++i) {
    auto block = allocator->allocate(static_cast<size_t>(bytes));
    asm volatile("" : : "r"(block.get()) : "memory");
  }
  const std::chrono::duration<double, std::nano> taken = std::chrono::steady_clock::now() - start;
  return taken.count() / static_cast<double>(count);
}

}  // namespace

PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) { m.def("cached_allocation", &cached_allocation); }
