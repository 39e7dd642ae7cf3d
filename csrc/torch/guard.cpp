// SPDX-License-Identifier: Apache-2.0
// The device guard: current device, streams and events. torch.Stream, torch.Event and torch.accelerator stand on it,
// and so does autograd.
#include <c10/core/impl/DeviceGuardImplInterface.h>

#include "../runtime/device.h"
#include "autograd_threads.h"
#include "device_allocator.h"
#include "dtypes.h"
#include "errors.h"

namespace torch_fl::glue {
namespace {

/// What PyTorch's opaque event pointer points to.
struct Event {
  runtime::Device* device;
  fl_event event;
};

const Event& event_at(const void* event) { return *static_cast<const Event*>(event); }

c10::Device fl_device_at(int32_t index) { return {c10::kPrivateUse1, static_cast<c10::DeviceIndex>(index)}; }

c10::Stream stream_of(int32_t index, runtime::StreamId id) {
  return c10::Stream(c10::Stream::UNSAFE, fl_device_at(index), id);
}

runtime::Device& device_of(const c10::Stream& stream) { return checked_device(stream.device_index()); }

runtime::StreamId checked_id(runtime::Device& device, const c10::Stream& stream) {
  TORCH_CHECK(stream.id() >= 0 && stream.id() < device.stream_count(), "fl:", device.index, " has no stream with id ",
              stream.id(), ": it has ", device.stream_count(), " streams (ids from 0)");
  return stream.id();
}

class GuardImpl final : public c10::impl::DeviceGuardImplInterface {
 public:
  c10::DeviceType type() const override { return c10::kPrivateUse1; }

  c10::Device exchangeDevice(c10::Device device) const override {
    const int32_t old = runtime::current_device();
    setDevice(device);
    return fl_device_at(old);
  }
  c10::Device getDevice() const override { return fl_device_at(runtime::current_device()); }
  void setDevice(c10::Device device) const override {
    TORCH_CHECK(device.is_privateuseone(), "expected an fl device, got ", device);
    if (device.has_index()) runtime::set_current_device(checked_device(device.index()).index);
  }
  void uncheckedSetDevice(c10::Device device) const noexcept override {
    if (device.has_index()) runtime::set_current_device(device.index());
  }
  c10::DeviceIndex deviceCount() const noexcept override {
    const int32_t count = runtime::Registry::get().device_count();
    if (count == 0) told_no_devices.store(true, std::memory_order_relaxed);
    return static_cast<c10::DeviceIndex>(count);
  }
  c10::DeviceCapability getDeviceCapability(c10::Device device) const override;

  c10::Stream getStream(c10::Device device) const override {
    const int32_t index = checked_device(device.index()).index;
    return stream_of(index, runtime::current_stream(index));
  }
  c10::Stream getDefaultStream(c10::Device device) const override {
    return stream_of(checked_device(device.index()).index, 0);
  }
  c10::Stream getStreamFromGlobalPool(c10::Device device, bool high_priority) const override {
    return getNewStream(device, high_priority ? -1 : 0);
  }
  c10::Stream getNewStream(c10::Device device, int priority) const override {
    runtime::Device& owner = checked_device(device.index());
    return stream_of(owner.index, guarded([&] { return owner.stream_from_pool(priority); }));
  }
  c10::Stream exchangeStream(c10::Stream stream) const override {
    runtime::Device& device = device_of(stream);
    const c10::Stream old = stream_of(device.index, runtime::current_stream(device.index));
    runtime::set_current_stream(device.index, checked_id(device, stream));
    return old;
  }
  void* getStreamNativeHandle(const c10::Stream stream) const override;

  bool queryStream(const c10::Stream& stream) const override {
    runtime::Device& device = device_of(stream);
    return guarded([&] { return device.query_stream(checked_id(device, stream)); });
  }
  void synchronizeStream(const c10::Stream& stream) const override {
    runtime::Device& device = device_of(stream);
    guarded([&] { device.synchronize_stream(checked_id(device, stream)); });
  }
  void synchronizeDevice(const c10::DeviceIndex index) const override {
    guarded([&] { checked_device(index).synchronize(); });
  }

  void record(void** event, const c10::Stream& stream, const c10::DeviceIndex index,
              const c10::EventFlag flag) const override;
  void block(void* event, const c10::Stream& stream) const override;
  bool queryEvent(void* event) const override {
    return event == nullptr || guarded([&] { return event_at(event).device->event_query(event_at(event).event); });
  }
  void synchronizeEvent(void* event) const override {
    if (event == nullptr) return;
    guarded([&] { event_at(event).device->event_synchronize(event_at(event).event); });
  }
  double elapsedTime(void* start, void* end, const c10::DeviceIndex index) const override;
  void destroyEvent(void* event, const c10::DeviceIndex /*index*/) const noexcept override {
    if (event == nullptr) return;
    event_at(event).device->event_destroy(event_at(event).event);
    delete static_cast<Event*>(event);
  }

  void recordDataPtrOnStream(const c10::DataPtr& data, const c10::Stream& stream) const override {
    record_stream(data, stream);
  }
};

c10::DeviceCapability GuardImpl::getDeviceCapability(c10::Device device) const {
  c10::DeviceCapability capability;  // everything, as the host route takes what the chip has no kernel for
  const uint64_t dtypes = checked_device(device.index()).properties.dtypes;
  if (dtypes == 0) return capability;
  for (const DtypeRow& row : kDtypes) {
    const uint64_t bit = uint64_t{1} << static_cast<unsigned>(row.torch);
    if ((dtypes & FL_DTYPE_BIT(row.fl)) == 0) capability.capability_data.capability_bits &= ~bit;
  }
  return capability;
}

void* GuardImpl::getStreamNativeHandle(const c10::Stream stream) const {
  runtime::Device& device = device_of(stream);
  return guarded([&]() -> void* {
    const fl_device handle = device.handle();
    const fl_stream own = device.stream(checked_id(device, stream));
    if (!device.chip.has_streams || device.chip.stream.native_handle == nullptr) return own;
    void* native = nullptr;
    device.check(device.chip.stream.native_handle(handle, own, &native), "getting a stream's native handle");
    return native;
  });
}

void GuardImpl::record(void** event, const c10::Stream& stream, const c10::DeviceIndex index,
                       const c10::EventFlag flag) const {
  TORCH_CHECK(index == -1 || index == stream.device_index(), "Event device index ", static_cast<int>(index),
              " does not match recording stream's device index ", static_cast<int>(stream.device_index()), ".");
  runtime::Device& device = device_of(stream);
  guarded([&] {
    const runtime::StreamId id = checked_id(device, stream);
    if (*event == nullptr) {
      *event = new Event{&device, device.event_create(flag == c10::EventFlag::BACKEND_DEFAULT)};
    }
    device.event_record(event_at(*event).event, id);
  });
}

void GuardImpl::block(void* event, const c10::Stream& stream) const {
  if (event == nullptr) return;
  const Event& awaited = event_at(event);
  runtime::Device& device = device_of(stream);
  guarded([&] {
    // The ABI orders streams of one device; between two devices the host waits.
    if (awaited.device != &device) return awaited.device->event_synchronize(awaited.event);
    device.event_wait(awaited.event, checked_id(device, stream));
  });
}

double GuardImpl::elapsedTime(void* start, void* end, const c10::DeviceIndex /*index*/) const {
  TORCH_CHECK(start != nullptr && end != nullptr, "Both events must be recorded before calculating elapsed time.");
  const Event& first = event_at(start);
  const Event& last = event_at(end);
  TORCH_CHECK(first.device == last.device, "the elapsed time between events of two devices (fl:", first.device->index,
              " and fl:", last.device->index, ") is not defined");
  constexpr double kNanosecondsPerMillisecond = 1e6;
  const auto elapsed = guarded([&] { return first.device->event_elapsed_ns(first.event, last.event); });
  return static_cast<double>(elapsed) / kNanosecondsPerMillisecond;
}

C10_REGISTER_GUARD_IMPL(PrivateUse1, GuardImpl);

}  // namespace
}  // namespace torch_fl::glue
