// SPDX-License-Identifier: Apache-2.0
// A chip made of plain functions in the test program, whose memory limit, streams and faults the test controls.
#pragma once

#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "device.h"

namespace torch_fl::runtime::test {

inline constexpr uint64_t kKiB = 1 << 10, kMiB = 1 << 20, kGiB = 1 << 30;

/// What one fake device did, and what it shall do. All under `mutex`.
struct FakeDevice {
  ~FakeDevice() {  // what nobody gave back, as from a lost device
    for (const auto& [address, bytes] : live) std::free(reinterpret_cast<void*>(address));
  }
  std::mutex mutex;
  uint64_t limit = UINT64_MAX, used = 0;
  std::map<fl_address, uint64_t> live;
  int allocs = 0, frees = 0, copies = 0, peer_copies = 0, fills = 0, syncs = 0, stream_syncs = 0, event_waits = 0;
  int opens = 0, closes = 0, events_made = 0, events_destroyed = 0, host_allocs = 0, host_frees = 0, streams_made = 0;
  std::set<fl_stream> held;  ///< events recorded on these do not complete until somebody waits for them
  fl_status open_status = FL_OK, copy_status = FL_OK, sync_status = FL_OK, alloc_status = FL_OK;
  fl_address next_address = 0;  ///< what the next alloc returns in place of its own
  uint64_t alignment = 512;
  std::vector<std::string> log;  ///< of copies and of what orders them
};

struct FakeEvent {
  fl_stream stream = nullptr;
  bool recorded = false;
};

class FakeApi {
 public:
  static inline FakeDevice* devices = nullptr;  ///< of the chip now under test

  static FakeDevice& of(fl_device device) { return *reinterpret_cast<FakeDevice*>(device); }
  static fl_status say(fl_status status, const char* message) {
    host_services().set_error(status, message);
    return status;
  }

  static fl_status open(int32_t index, fl_device* device) {
    FakeDevice& d = devices[index];
    const std::lock_guard lock(d.mutex);
    if (d.open_status != FL_OK) return say(d.open_status, "the power is off");
    ++d.opens;
    *device = reinterpret_cast<fl_device>(&d);
    return FL_OK;
  }
  static void close(fl_device device) { ++of(device).closes; }
  static fl_status synchronize(fl_device device) {
    FakeDevice& d = of(device);
    const std::lock_guard lock(d.mutex);
    ++d.syncs;
    if (d.sync_status != FL_OK) return say(d.sync_status, "a kernel failed earlier");
    d.held.clear();
    return FL_OK;
  }
  static fl_status alloc(fl_device device, uint64_t bytes, fl_address* address) {
    FakeDevice& d = of(device);
    const std::lock_guard lock(d.mutex);
    if (d.alloc_status != FL_OK) return say(d.alloc_status, "the allocator is broken");
    if (d.used + bytes > d.limit) return say(FL_OUT_OF_MEMORY, "the fake chip is full");
    if (d.next_address != 0) {
      *address = d.next_address;
      return FL_OK;
    }
    void* pointer = nullptr;
    if (posix_memalign(&pointer, d.alignment, bytes) != 0) return FL_OUT_OF_MEMORY;
    *address = reinterpret_cast<fl_address>(pointer);
    d.live[*address] = bytes;
    d.used += bytes;
    ++d.allocs;
    return FL_OK;
  }
  static fl_status free(fl_device device, fl_address address) {
    FakeDevice& d = of(device);
    const std::lock_guard lock(d.mutex);
    auto found = d.live.find(address);
    if (found == d.live.end()) return say(FL_INVALID_ARGUMENT, "no such allocation");
    d.used -= found->second;
    d.live.erase(found);
    ++d.frees;
    std::free(reinterpret_cast<void*>(address));
    return FL_OK;
  }
  static fl_status copy(fl_device device, fl_stream, fl_address dst, fl_address src, uint64_t bytes, fl_copy_kind) {
    FakeDevice& d = of(device);
    const std::lock_guard lock(d.mutex);
    if (d.copy_status != FL_OK) return say(d.copy_status, "the bus caught fire");
    ++d.copies;
    d.log.push_back("copy");
    std::memmove(reinterpret_cast<void*>(dst), reinterpret_cast<const void*>(src), bytes);
    return FL_OK;
  }
  static fl_status copy_peer(fl_device dst_device, fl_address dst, fl_device src_device, fl_address src, uint64_t bytes,
                             fl_stream) {
    ++of(src_device).peer_copies;
    of(src_device).log.push_back("copy_peer");
    (void)dst_device;
    std::memmove(reinterpret_cast<void*>(dst), reinterpret_cast<const void*>(src), bytes);
    return FL_OK;
  }
  static fl_status fill(fl_device device, fl_stream, fl_address dst, const void* pattern, uint32_t pattern_bytes,
                        uint64_t count) {
    ++of(device).fills;
    for (uint64_t i = 0; i < count; ++i) {
      std::memcpy(reinterpret_cast<char*>(dst) + i * pattern_bytes, pattern, pattern_bytes);
    }
    return FL_OK;
  }
  static fl_status host_alloc(fl_device device, uint64_t bytes, void** pointer) {
    FakeDevice& d = of(device);
    const std::lock_guard lock(d.mutex);
    ++d.host_allocs;
    *pointer = std::aligned_alloc(4096, (bytes + 4095) / 4096 * 4096);
    return FL_OK;
  }
  static fl_status host_free(fl_device device, void* pointer) {
    FakeDevice& d = of(device);
    const std::lock_guard lock(d.mutex);
    ++d.host_frees;
    std::free(pointer);
    return FL_OK;
  }

  static fl_status stream_create(fl_device device, int32_t, fl_stream* stream) {
    FakeDevice& d = of(device);
    const std::lock_guard lock(d.mutex);
    *stream = reinterpret_cast<fl_stream>(static_cast<uintptr_t>(++d.streams_made));
    return FL_OK;
  }
  static fl_status stream_destroy(fl_device, fl_stream) { return FL_OK; }
  static fl_status stream_synchronize(fl_device device, fl_stream stream) {
    FakeDevice& d = of(device);
    const std::lock_guard lock(d.mutex);
    ++d.stream_syncs;
    d.log.push_back("sync stream " + std::to_string(reinterpret_cast<uintptr_t>(stream)));
    d.held.erase(stream);
    return FL_OK;
  }
  static fl_status stream_query(fl_device device, fl_stream stream) {
    FakeDevice& d = of(device);
    const std::lock_guard lock(d.mutex);
    return d.held.count(stream) != 0 ? FL_NOT_READY : FL_OK;
  }
  static FakeEvent& event(fl_event event) { return *reinterpret_cast<FakeEvent*>(event); }
  static fl_status event_create(fl_device device, uint32_t, fl_event* made) {
    FakeDevice& d = of(device);
    const std::lock_guard lock(d.mutex);
    ++d.events_made;
    *made = reinterpret_cast<fl_event>(new FakeEvent);
    return FL_OK;
  }
  static fl_status event_destroy(fl_device device, fl_event dead) {
    FakeDevice& d = of(device);
    const std::lock_guard lock(d.mutex);
    ++d.events_destroyed;
    delete &event(dead);
    return FL_OK;
  }
  static fl_status event_record(fl_device device, fl_event recorded, fl_stream stream) {
    FakeDevice& d = of(device);
    const std::lock_guard lock(d.mutex);
    event(recorded) = {stream, true};
    d.log.push_back("record on " + std::to_string(reinterpret_cast<uintptr_t>(stream)));
    return FL_OK;
  }
  static fl_status event_wait(fl_device device, fl_event, fl_stream stream) {
    FakeDevice& d = of(device);
    const std::lock_guard lock(d.mutex);
    ++d.event_waits;
    d.log.push_back("stream " + std::to_string(reinterpret_cast<uintptr_t>(stream)) + " waits");
    return FL_OK;
  }
  static fl_status event_synchronize(fl_device device, fl_event awaited) {
    FakeDevice& d = of(device);
    const std::lock_guard lock(d.mutex);
    d.held.erase(event(awaited).stream);
    return FL_OK;
  }
  static fl_status event_query(fl_device device, fl_event asked) {
    FakeDevice& d = of(device);
    const std::lock_guard lock(d.mutex);
    return event(asked).recorded && d.held.count(event(asked).stream) != 0 ? FL_NOT_READY : FL_OK;
  }
  static fl_status event_elapsed(fl_device, fl_event, fl_event, int64_t* nanoseconds) {
    *nanoseconds = 1234;
    return FL_OK;
  }
};

/// A chip of two devices with everything; tests remove what they want to be absent before the first use.
class FakeChip {
 public:
  explicit FakeChip(fl_device_properties properties = default_properties(), int32_t n_devices = 2, int32_t first = 0)
      : states_(std::make_unique<FakeDevice[]>(static_cast<size_t>(n_devices))) {
    FakeApi::devices = states_.get();
    chip.name = "fake";
    chip.device_api = {sizeof(fl_device_api), nullptr, nullptr, &FakeApi::open, &FakeApi::close, &FakeApi::synchronize};
    chip.memory.alloc = &FakeApi::alloc;
    chip.memory.free = &FakeApi::free;
    chip.memory.copy = &FakeApi::copy;
    chip.memory.copy_peer = &FakeApi::copy_peer;
    chip.memory.fill = &FakeApi::fill;
    chip.memory.host_alloc = &FakeApi::host_alloc;
    chip.memory.host_free = &FakeApi::host_free;
    fill_streams();
    for (int32_t i = 0; i < n_devices; ++i) {
      states_[static_cast<size_t>(i)].alignment = properties.alignment > 512 ? properties.alignment : 512;
      chip.devices.push_back(std::make_unique<Device>(chip, i, first + i, properties));
    }
  }

  static fl_device_properties default_properties() {
    fl_device_properties p{};
    p.struct_size = sizeof p;
    std::strcpy(p.name, "Fake");
    p.total_memory = 4 * kGiB;
    p.capabilities = FL_CAP_PEER_COPY;
    return p;
  }

  void without_streams() {
    chip.stream = {};
    chip.has_streams = false;
  }
  Device& device(size_t i = 0) { return *chip.devices[i]; }
  FakeDevice& state(size_t i = 0) { return states_[i]; }

 private:
  void fill_streams() {
    chip.has_streams = true;
    chip.stream = {sizeof(fl_stream_api),
                   &FakeApi::stream_create,
                   &FakeApi::stream_destroy,
                   &FakeApi::stream_synchronize,
                   &FakeApi::stream_query,
                   &FakeApi::event_create,
                   &FakeApi::event_destroy,
                   &FakeApi::event_record,
                   &FakeApi::event_wait,
                   &FakeApi::event_synchronize,
                   &FakeApi::event_query,
                   &FakeApi::event_elapsed,
                   nullptr};
  }

 private:
  std::unique_ptr<FakeDevice[]> states_;  // outlives the devices
 public:
  Chip chip;
};

/// The message of the Error that `f` throws; its status goes to *status.
template <typename F>
std::string error_of(F f, fl_status* status = nullptr) {
  try {
    f();
  } catch (const Error& error) {
    if (status != nullptr) *status = error.status();
    return error.what();
  }
  ADD_FAILURE() << "expected an Error";
  return "";
}

#define EXPECT_CONTAINS(text, part) \
  EXPECT_NE(std::string(text).find(part), std::string::npos) << "expected \"" << (part) << "\" in: " << (text)

}  // namespace torch_fl::runtime::test
