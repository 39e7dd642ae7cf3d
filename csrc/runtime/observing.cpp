// SPDX-License-Identifier: Apache-2.0
#include "observing.h"

namespace torch_fl::runtime {
namespace {
std::atomic<uint64_t> last_id{0};
thread_local constinit uint64_t current = 0;
}  // namespace

uint64_t next_call_id() noexcept { return last_id.fetch_add(1, std::memory_order_relaxed) + 1; }
uint64_t current_call_id() noexcept { return current; }

Correlation::Correlation(uint64_t id) noexcept : parent_(current) { current = id; }
Correlation::~Correlation() { current = parent_; }

}  // namespace torch_fl::runtime
