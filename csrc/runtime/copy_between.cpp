// SPDX-License-Identifier: Apache-2.0
// Copies between two devices, of one chip or of different ones.
#include <algorithm>

#include "internal.h"
#include "timeline.h"

namespace torch_fl::runtime {
namespace {

constexpr uint64_t kMaxStaging = 32 << 20;

/// An untimed event for one use.
class Event {
 public:
  Event(Device& device, StreamId stream) : device_(device), event_(device.event_create(false)) {
    try {
      device_.event_record(event_, stream);
    } catch (...) {
      device_.event_destroy(event_);
      throw;
    }
  }
  ~Event() { device_.event_destroy(event_); }
  Event(const Event&) = delete;
  void wait_on(StreamId stream) { device_.event_wait(event_, stream); }

 private:
  Device& device_;
  fl_event event_;
};

void copy_on_one_device(Device& device, StreamId dst_stream, fl_address dst, StreamId src_stream, fl_address src,
                        uint64_t bytes) {
  if (dst_stream == src_stream) return device.copy(src_stream, dst, src, bytes, FL_COPY_DEVICE_TO_DEVICE);
  Event(device, dst_stream).wait_on(src_stream);
  device.copy(src_stream, dst, src, bytes, FL_COPY_DEVICE_TO_DEVICE);
  Event(device, src_stream).wait_on(dst_stream);
}

/// The ABI promises events only within one device, so the host keeps the order between the two streams.
void copy_peer(Device& dst_device, StreamId dst_stream, fl_address dst, Device& src_device, StreamId src_stream,
               fl_address src, uint64_t bytes) {
  const fl_device to = dst_device.handle(), from = src_device.handle();
  dst_device.synchronize_stream(dst_stream);
  {
    const auto seen = Enqueue::copy(src_device, src_stream, "Memcpy PtoP", bytes);
    src_device.check(src_device.chip.memory.copy_peer(to, dst, from, src, bytes, src_device.stream(src_stream)),
                     "copying between two devices");
  }
  src_device.synchronize_stream(src_stream);
}

bool have_peer_copy(const Device& a, const Device& b) {
  return &a.chip == &b.chip && a.chip.memory.copy_peer != nullptr &&
         (a.properties.capabilities & b.properties.capabilities & FL_CAP_PEER_COPY) != 0;
}

/// Pinned memory of the source device, given back at the end.
class Staging {
 public:
  Staging(Device& device, uint64_t bytes) : pool_(device.pinned()), pointer_(pool_.allocate(bytes)) {}
  ~Staging() { pool_.free(pointer_); }
  Staging(const Staging&) = delete;
  fl_address address() const { return reinterpret_cast<fl_address>(pointer_); }

 private:
  PinnedPool& pool_;
  void* pointer_;
};

void copy_through_host(Device& dst_device, StreamId dst_stream, fl_address dst, Device& src_device, StreamId src_stream,
                       fl_address src, uint64_t bytes) {
  const uint64_t piece = std::min(bytes, kMaxStaging);
  const Staging staging(src_device, piece);
  for (uint64_t done = 0; done < bytes; done += piece) {
    const uint64_t n = std::min(piece, bytes - done);
    src_device.copy(src_stream, staging.address(), src + done, n, FL_COPY_DEVICE_TO_HOST);
    src_device.synchronize_stream(src_stream);
    dst_device.copy(dst_stream, dst + done, staging.address(), n, FL_COPY_HOST_TO_DEVICE);
    dst_device.synchronize_stream(dst_stream);
  }
}

}  // namespace

void copy_between(Device& dst_device, StreamId dst_stream, fl_address dst, Device& src_device, StreamId src_stream,
                  fl_address src, uint64_t bytes) {
  if (bytes == 0) return;
  if (&dst_device == &src_device) {
    copy_on_one_device(dst_device, dst_stream, dst, src_stream, src, bytes);
  } else if (have_peer_copy(dst_device, src_device)) {
    copy_peer(dst_device, dst_stream, dst, src_device, src_stream, src, bytes);
  } else {
    copy_through_host(dst_device, dst_stream, dst, src_device, src_stream, src, bytes);
  }
}

}  // namespace torch_fl::runtime
