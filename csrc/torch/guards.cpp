// SPDX-License-Identifier: Apache-2.0
#include "guards.h"

#include <algorithm>
#include <array>
#include <mutex>
#include <unordered_set>

#include "errors.h"

namespace torch_fl::glue {
namespace {

constexpr uint8_t kPattern = 0xA5;
constexpr uint64_t kLeastAlignment = 512;        // what the allocator gives without guards
constexpr uint64_t kMostKeptBytes = 256u << 20;  // of freed allocations, until the next check
constexpr uint64_t kPatternBytes = 4096;

struct Guarded {
  runtime::Block* block;
  uint64_t guard, bytes;
  fl_address address() const { return block->address + guard; }
};

/// Never destroyed: tensors may outlive static objects.
struct Table {
  std::mutex mutex;
  std::unordered_set<Guarded*> live;
  std::vector<Guarded*> freed;  // their memory is not given back before it was looked at
  uint64_t freed_bytes = 0;
  std::vector<DamagedGuard> damaged;
};
Table& table() {
  static auto* table = new Table();
  return *table;
}

void paint(runtime::Device& device, fl_address address, uint64_t bytes) {
  const runtime::StreamId stream = runtime::current_stream(device.index);
  if (device.can_fill()) return device.fill(stream, address, &kPattern, 1, bytes);
  static const auto* pattern = [] {  // lives as long as any copy from it
    auto* text = new std::array<uint8_t, kPatternBytes>();
    text->fill(kPattern);
    return text;
  }();
  for (uint64_t done = 0; done < bytes; done += kPatternBytes) {
    const auto* source = static_cast<const void*>(pattern->data());
    device.copy(stream, address + done, static_cast<fl_address>(reinterpret_cast<uintptr_t>(source)),
                std::min(kPatternBytes, bytes - done), FL_COPY_HOST_TO_DEVICE);
  }
}

/// Looks at one guard of an idle device, repairs it, and notes what was wrong.
void inspect(const Guarded& guarded, int64_t offset, bool freed) {
  runtime::Device& device = *guarded.block->device;
  std::vector<uint8_t> found(guarded.guard);
  const fl_address at = guarded.address() + static_cast<uint64_t>(offset);
  device.copy(0, static_cast<fl_address>(reinterpret_cast<uintptr_t>(found.data())), at, guarded.guard,
              FL_COPY_DEVICE_TO_HOST);
  device.synchronize_stream(0);
  const auto changed = [](uint8_t byte) { return byte != kPattern; };
  const auto n = static_cast<uint64_t>(std::count_if(found.begin(), found.end(), changed));
  if (n == 0) return;
  const int64_t first = std::find_if(found.begin(), found.end(), changed) - found.begin();
  table().damaged.push_back({device.index, guarded.address(), guarded.bytes, offset + first, n, freed});
  if (!freed) paint(device, at, guarded.guard);
}

void inspect(const Guarded& guarded, bool freed) {
  if (!guarded.block->device->usable()) return;
  inspect(guarded, -static_cast<int64_t>(guarded.guard), freed);
  inspect(guarded, static_cast<int64_t>(guarded.bytes), freed);
}

void synchronize_all() {
  auto& registry = runtime::Registry::get();
  for (int32_t i = 0, n = registry.device_count(); i < n; ++i) {
    if (registry.at(i).usable()) registry.at(i).synchronize();
  }
}

/// Looks at the freed allocations of idle devices and gives their memory back.
void release_freed() {
  Table& all = table();
  for (Guarded* guarded : all.freed) {
    inspect(*guarded, true);
    guarded->block->device->allocator().free(guarded->block);
    delete guarded;
  }
  all.freed.clear();
  all.freed_bytes = 0;
}

void free_guarded(void* context) {
  auto* guarded = static_cast<Guarded*>(context);
  Table& all = table();
  const std::lock_guard lock(all.mutex);
  all.live.erase(guarded);
  all.freed.push_back(guarded);
  all.freed_bytes += guarded->block->size;
  if (all.freed_bytes < kMostKeptBytes) return;
  try {
    synchronize_all();
    release_freed();
  } catch (const std::exception&) {  // of a lost device; a check would say so, a release may not
  }
}

}  // namespace

void set_guard_bytes(uint64_t bytes) { g_guard_bytes.store(bytes, std::memory_order_relaxed); }

c10::DataPtr allocate_between_guards(runtime::Device& device, uint64_t bytes) {
  const uint64_t step = std::max(kLeastAlignment, device.properties.alignment);
  const uint64_t guard = (g_guard_bytes.load(std::memory_order_relaxed) + step - 1) / step * step;
  runtime::Block* block = device.allocator().allocate(bytes + 2 * guard, runtime::current_stream(device.index));
  auto* guarded = new Guarded{block, guard, bytes};
  paint(device, block->address, guard);
  paint(device, guarded->address() + bytes, guard);
  const std::lock_guard lock(table().mutex);
  table().live.insert(guarded);
  return {reinterpret_cast<void*>(static_cast<uintptr_t>(guarded->address())),
          guarded,
          &free_guarded,
          {c10::kPrivateUse1, static_cast<c10::DeviceIndex>(device.index)}};
}

bool has_guards(const c10::DataPtr& data) { return data.get_deleter() == &free_guarded; }

std::vector<DamagedGuard> check_guards() {
  Table& all = table();
  return guarded([&] {
    synchronize_all();
    const std::lock_guard lock(all.mutex);
    for (const Guarded* guarded : all.live) inspect(*guarded, false);
    release_freed();
    return std::exchange(all.damaged, {});
  });
}

}  // namespace torch_fl::glue
