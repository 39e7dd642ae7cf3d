// SPDX-License-Identifier: Apache-2.0
// What PyTorch asks of an accelerator as a whole.
#include <ATen/core/CachingHostAllocator.h>
#include <ATen/detail/PrivateUse1HooksInterface.h>

#include "../runtime/device.h"
#include "device_allocator.h"
#include "errors.h"
#include "generator.h"
#include "pinned.h"

namespace torch_fl::glue {
namespace {

/// The device whose allocator owns `address`, or -1. The current device is asked first: addresses are the chip's own,
/// so two chips may hand out the same one.
int32_t owner_of(fl_address address) {
  auto& registry = runtime::Registry::get();
  const int32_t count = registry.device_count();
  const int32_t current = runtime::current_device();
  const auto owns = [&](int32_t i) { return registry.at(i).opened() && registry.at(i).allocator().find(address); };
  if (current < count && owns(current)) return current;
  for (int32_t i = 0; i < count; ++i) {
    if (owns(i)) return i;
  }
  return -1;
}

class Hooks final : public at::PrivateUse1HooksInterface {
 public:
  bool isBuilt() const override { return true; }
  bool isAvailable() const override { return deviceCount() > 0; }
  bool hasPrimaryContext(c10::DeviceIndex index) const override { return checked_device(index).opened(); }
  void init() const override {}  // devices open themselves on first use

  c10::DeviceIndex deviceCount() const override {
    return static_cast<c10::DeviceIndex>(runtime::Registry::get().device_count());
  }
  c10::DeviceIndex getCurrentDevice() const override {
    return static_cast<c10::DeviceIndex>(runtime::current_device());
  }
  void setCurrentDevice(c10::DeviceIndex index) const override {
    TORCH_CHECK(index >= 0, "the device index must not be negative, got ", static_cast<int>(index));
    runtime::set_current_device(checked_device(index).index);
  }
  c10::DeviceIndex exchangeDevice(c10::DeviceIndex index) const override {
    const c10::DeviceIndex old = getCurrentDevice();
    if (index >= 0) setCurrentDevice(index);
    return old;
  }
  /// Like exchangeDevice, but allowed to leave an unused device unopened: opening is lazy here anyway.
  c10::DeviceIndex maybeExchangeDevice(c10::DeviceIndex index) const override { return exchangeDevice(index); }

  const at::Generator& getDefaultGenerator(c10::DeviceIndex index) const override { return default_generator(index); }
  at::Generator getNewGenerator(c10::DeviceIndex index) const override { return new_generator(index); }

  at::Device getDeviceFromPtr(void* data) const override {
    const int32_t index = owner_of(static_cast<fl_address>(reinterpret_cast<uintptr_t>(data)));
    TORCH_CHECK(index >= 0, "no fl device has allocated the memory at ", data);
    return {c10::kPrivateUse1, static_cast<c10::DeviceIndex>(index)};
  }
  bool isPinnedPtr(const void* data) const override { return is_pinned(data); }
  at::Allocator* getPinnedMemoryAllocator() const override { return at::getHostAllocator(c10::kPrivateUse1); }

  void resizePrivateUse1Bytes(const c10::Storage& storage, size_t bytes) const override {
    resize_storage(*storage.unsafeGetStorageImpl(), bytes);
  }
};

const bool g_registered = [] {
  at::RegisterPrivateUse1HooksInterface(new Hooks());  // PyTorch keeps it for the life of the process
  return true;
}();

}  // namespace
}  // namespace torch_fl::glue
