// SPDX-License-Identifier: Apache-2.0
// Streams, events, and which of them the calling thread uses. A chip without a stream table is synchronous: its streams
// are names only, and its events are complete as soon as they are recorded.
#include "streams.h"
#include "settings.h"

#include <chrono>
#include <string>

#include "internal.h"
#include "timeline.h"

namespace torch_fl::runtime {
namespace {

thread_local constinit int32_t thread_device = -1;  // none chosen
thread_local constinit std::array<StreamId, kMaxDevices> thread_streams{};

/// An event of a synchronous chip: the moment of its record.
struct HostEvent {
  bool timed;
  std::chrono::steady_clock::time_point recorded;
};
HostEvent& host_event(fl_event event) { return *reinterpret_cast<HostEvent*>(event); }

/// Untimed ones carry nothing, so there is one for all.
fl_event shared_host_event() {
  static char dummy;
  return reinterpret_cast<fl_event>(&dummy);
}

}  // namespace

StreamId Device::Streams::append(Entry entry) {
  const StreamId id = count.load(std::memory_order_relaxed);
  const size_t position = static_cast<size_t>(id) + kFirstChunk;
  const size_t chunk = static_cast<size_t>(std::bit_width(position) - std::bit_width(kFirstChunk));
  if (chunk >= kChunks) throw Error(FL_INTERNAL, "too many streams: " + std::to_string(id) + " exist on this device");
  if (chunks[chunk].load(std::memory_order_relaxed) == nullptr) {
    chunks[chunk].store(new Entry[kFirstChunk << chunk], std::memory_order_release);
  }
  at(id) = entry;
  count.store(id + 1, std::memory_order_release);
  return id;
}

StreamId Device::Streams::find(fl_stream handle) {
  for (StreamId id = 0, end = count.load(std::memory_order_acquire); id < end; ++id) {
    if (at(id).handle == handle) return id;
  }
  return -1;
}

fl_stream Device::stream(StreamId id) {
  if (id == 0) return nullptr;
  if (id < 0 || id >= streams_->count.load(std::memory_order_acquire)) {
    throw Error(FL_INVALID_ARGUMENT, "there is no stream " + std::to_string(id) +
                                         " on device fl:" + std::to_string(index) + ": ids 0 to " +
                                         std::to_string(stream_count() - 1) + " exist");
  }
  return streams_->at(id).handle;
}

StreamId Device::find_stream(fl_stream wanted) { return wanted == nullptr ? 0 : streams_->find(wanted); }

StreamId Device::new_stream(int32_t priority) {
  Streams::Entry entry{nullptr, priority};
  const fl_device device = handle();
  if (chip.has_streams) check(chip.stream.create(device, priority, &entry.handle), "creating a stream");
  const std::lock_guard lock(streams_->mutex);
  return streams_->append(entry);
}

StreamId Device::stream_from_pool(int32_t priority) {
  const size_t high = priority < 0 ? 1 : 0;
  std::unique_lock lock(streams_->mutex);
  const size_t slot = streams_->next[high]++ % Streams::kPoolSize;
  if (streams_->pool[high][slot] != 0) return streams_->pool[high][slot];
  lock.unlock();
  const StreamId made = new_stream(priority);
  lock.lock();
  // Another thread may have come round to the same slot meanwhile; then the spare stream stays unused.
  if (streams_->pool[high][slot] == 0) streams_->pool[high][slot] = made;
  return streams_->pool[high][slot];
}

StreamId Device::external_stream(fl_stream external) {
  const std::lock_guard lock(streams_->mutex);
  const StreamId known = external == nullptr ? 0 : streams_->find(external);
  return known >= 0 ? known : streams_->append({external, 0});
}

int32_t Device::stream_priority(StreamId id) {
  stream(id);
  return streams_->at(id).priority;
}

int32_t Device::stream_count() const { return static_cast<int32_t>(streams_->count.load(std::memory_order_acquire)); }

void Device::synchronize_stream(StreamId id) {
  const fl_stream target = stream(id);
  if (!opened()) return;
  const fl_device device = handle();
  if (!chip.has_streams) return;
  const RuntimeCall seen(*this, id, "flStreamSynchronize");
  check(chip.stream.synchronize(device, target), "synchronising a stream");
}

bool Device::query_stream(StreamId id) {
  const fl_stream target = stream(id);
  if (!opened()) return true;
  const fl_device device = handle();
  if (!chip.has_streams) return true;
  const fl_status status = chip.stream.query(device, target);
  if (status != FL_NOT_READY) check(status, "querying a stream");
  return status == FL_OK;
}

fl_event Device::event_create(bool timed) {
  const fl_device device = handle();
  if (!chip.has_streams) {
    return timed ? reinterpret_cast<fl_event>(new HostEvent{true, {}}) : shared_host_event();
  }
  fl_event event = nullptr;
  const bool can_time = chip.stream.event_elapsed != nullptr;
  check(chip.stream.event_create(device, timed && can_time ? FL_EVENT_TIMED : 0, &event), "creating an event");
  return event;
}

void Device::event_destroy(fl_event event) noexcept {
  if (!chip.has_streams) {
    if (event != shared_host_event()) delete &host_event(event);
    return;
  }
  if (!usable()) return;
  if (chip.stream.event_destroy(handle_, event) != FL_OK) take_plugin_message();
}

void Device::event_record(fl_event event, StreamId id) {
  const fl_device device = handle();
  if (chip.has_streams) return check(chip.stream.event_record(device, event, stream(id)), "recording an event");
  if (event != shared_host_event()) host_event(event).recorded = std::chrono::steady_clock::now();
}

void Device::event_wait(fl_event event, StreamId id) {
  const fl_device device = handle();
  if (chip.has_streams) check(chip.stream.event_wait(device, event, stream(id)), "making a stream wait for an event");
}

void Device::event_synchronize(fl_event event) {
  const fl_device device = handle();
  if (!chip.has_streams) return;
  const RuntimeCall seen(*this, -1, "flEventSynchronize");
  check(chip.stream.event_synchronize(device, event), "waiting for an event");
}

bool Device::event_query(fl_event event) {
  const fl_device device = handle();
  if (!chip.has_streams) return true;
  const fl_status status = chip.stream.event_query(device, event);
  if (status != FL_NOT_READY) check(status, "querying an event");
  return status == FL_OK;
}

int64_t Device::event_elapsed_ns(fl_event start, fl_event end) {
  const fl_device device = handle();
  if (!chip.has_streams) {
    if (start == shared_host_event() || end == shared_host_event()) {
      throw Error(FL_INVALID_ARGUMENT, "elapsed time needs events made with enable_timing=True");
    }
    return std::chrono::nanoseconds(host_event(end).recorded - host_event(start).recorded).count();
  }
  if (chip.stream.event_elapsed == nullptr) {
    throw Error(FL_UNSUPPORTED, "the chip " + chip.name + " does not time events: its plugin has no event_elapsed");
  }
  int64_t nanoseconds = 0;
  check(chip.stream.event_elapsed(device, start, end, &nanoseconds), "measuring the time between two events");
  return nanoseconds;
}

int32_t current_device() noexcept {
  return thread_device >= 0 ? thread_device : settings.default_device.load(std::memory_order_relaxed);
}
void set_current_device(int32_t index) noexcept { thread_device = index; }

StreamId current_stream(int32_t device) noexcept {
  const auto i = static_cast<uint32_t>(device);
  return i < kMaxDevices ? thread_streams[i] : 0;
}
void set_current_stream(int32_t device, StreamId stream) noexcept {
  const auto i = static_cast<uint32_t>(device);
  if (i < kMaxDevices) thread_streams[i] = stream;
}

}  // namespace torch_fl::runtime
