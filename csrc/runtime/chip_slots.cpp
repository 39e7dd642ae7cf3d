// SPDX-License-Identifier: Apache-2.0
#include "chip_slots.h"

#include <array>
#include <atomic>
#include <exception>
#include <mutex>
#include <utility>

#include "error.h"

namespace torch_fl::runtime {
namespace {

std::array<std::atomic<HostedChip*>, kChipSlots> slots;
std::mutex slots_mutex;

template <typename Function>
fl_status guarded(Function&& function) noexcept {
  try {
    return function();
  } catch (const Error& error) {
    set_plugin_message(error.status(), error.what());
    return error.status();
  } catch (const std::exception& error) {
    set_plugin_message(FL_INTERNAL, error.what());
  } catch (...) {
    set_plugin_message(FL_INTERNAL, "an exception of an unknown type");
  }
  return FL_INTERNAL;
}

/// The functions of one slot.
template <size_t I>
struct Slot {
  static HostedChip& chip() { return *slots[I].load(std::memory_order_acquire); }

  static fl_status count(int32_t* n) {
    return guarded([&] { return chip().count(n); });
  }
  static fl_status properties(int32_t index, fl_device_properties* p) {
    return guarded([&] { return chip().properties(index, p); });
  }
  static fl_status open(int32_t index, fl_device* device) {
    return guarded([&] { return chip().open(index, device); });
  }
  static void close(fl_device device) {
    guarded([&] {
      chip().close(device);
      return fl_status{FL_OK};
    });
  }
  static fl_status synchronize(fl_device device) {
    return guarded([&] { return chip().synchronize(device); });
  }
  static fl_status alloc(fl_device device, uint64_t bytes, fl_address* address) {
    return guarded([&] { return chip().alloc(device, bytes, address); });
  }
  static fl_status free(fl_device device, fl_address address) {
    return guarded([&] { return chip().free(device, address); });
  }
  static fl_status copy(fl_device device, fl_stream, fl_address dst, fl_address src, uint64_t bytes,
                        fl_copy_kind kind) {
    return guarded([&] { return chip().copy(device, dst, src, bytes, kind); });
  }
  static fl_status fill(fl_device device, fl_stream, fl_address dst, const void* pattern, uint32_t pattern_bytes,
                        uint64_t count) {
    return guarded([&] { return chip().fill(device, dst, pattern, pattern_bytes, count); });
  }
  static fl_status info(fl_device device, uint64_t* free_bytes, uint64_t* total_bytes) {
    return guarded([&] { return chip().info(device, free_bytes, total_bytes); });
  }
  static fl_status host_alloc(fl_device device, uint64_t bytes, void** pointer) {
    return guarded([&] { return chip().host_alloc(device, bytes, pointer); });
  }
  static fl_status host_free(fl_device device, void* pointer) {
    return guarded([&] { return chip().host_free(device, pointer); });
  }

  static void fill_tables(const HostedChip& chip, fl_device_api& device, fl_memory_api& memory) {
    device.struct_size = sizeof device;
    device.count = &count;
    device.properties = &properties;
    device.open = &open;
    device.close = &close;
    device.synchronize = &synchronize;
    memory.struct_size = sizeof memory;
    memory.alloc = &alloc;
    memory.free = &free;
    memory.copy = &copy;
    memory.fill = chip.has_fill ? &fill : nullptr;
    memory.info = chip.has_info ? &info : nullptr;
    memory.host_alloc = chip.has_pinned ? &host_alloc : nullptr;
    memory.host_free = chip.has_pinned ? &host_free : nullptr;
  }
};

using FillTables = void (*)(const HostedChip&, fl_device_api&, fl_memory_api&);

template <size_t... I>
constexpr std::array<FillTables, sizeof...(I)> all_fillers(std::index_sequence<I...>) {
  return {&Slot<I>::fill_tables...};
}
constexpr auto kFillers = all_fillers(std::make_index_sequence<kChipSlots>{});

size_t free_slot() {
  for (size_t i = 0; i < kChipSlots; ++i) {
    if (slots[i].load(std::memory_order_relaxed) == nullptr) return i;
  }
  throw Error(FL_INTERNAL, "at most " + std::to_string(kChipSlots) +
                               " chips can be plain libraries or Python classes, and as many are loaded already");
}

}  // namespace

const fl_plugin* take_slot(HostedChip& chip) {
  const std::lock_guard lock(slots_mutex);
  const size_t slot = free_slot();
  kFillers[slot](chip, chip.device_api_, chip.memory_api_);
  chip.rows_.clear();
  for (fl_kernel& kernel : chip.kernels) {
    kernel.struct_size = sizeof kernel;
    chip.rows_.push_back(&kernel);
  }
  fl_plugin& plugin = chip.plugin_;
  plugin = {};
  plugin.struct_size = sizeof plugin;
  plugin.abi_major = FL_ABI_MAJOR;
  plugin.abi_minor = FL_ABI_MINOR;
  plugin.name = chip.name.c_str();
  plugin.vendor = chip.vendor.c_str();
  plugin.version = chip.version.c_str();
  plugin.device = &chip.device_api_;
  plugin.memory = &chip.memory_api_;
  plugin.n_kernels = static_cast<uint32_t>(chip.rows_.size());
  plugin.kernels = chip.rows_.empty() ? nullptr : chip.rows_.data();
  slots[slot].store(&chip, std::memory_order_release);
  return &plugin;
}

void leave_slot(const HostedChip& chip) noexcept {
  const std::lock_guard lock(slots_mutex);
  for (auto& slot : slots) {
    if (slot.load(std::memory_order_relaxed) == &chip) slot.store(nullptr, std::memory_order_release);
  }
}

}  // namespace torch_fl::runtime
