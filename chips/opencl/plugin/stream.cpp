// SPDX-License-Identifier: Apache-2.0
// Streams are in-order queues; events are markers in them.
#include <memory>
#include <utility>

#include "device.h"
#include "status.h"

namespace fl_opencl {
namespace {

/// A marker that is retained while somebody waits for it, so that a record meanwhile may move the event.
struct Event {
  std::mutex mutex;
  cl_event marker = nullptr;  ///< null: never recorded, hence done
  bool timed = false;
};

/// A reference of its own to an event's latest marker.
class Marker {
 public:
  explicit Marker(fl_event event) : Marker(*reinterpret_cast<Event*>(event)) {}
  explicit Marker(Event& event) {
    const std::lock_guard lock(event.mutex);
    marker_ = event.marker;
    if (marker_ != nullptr) cl.clRetainEvent(marker_);
  }
  ~Marker() {
    if (marker_ != nullptr) cl.clReleaseEvent(marker_);
  }
  Marker(const Marker&) = delete;
  const cl_event* get() const { return marker_ == nullptr ? nullptr : &marker_; }

 private:
  cl_event marker_;
};

/// FL_OK, FL_NOT_READY, or the failure of the command.
fl_status state_of(Device& device, cl_event event) noexcept {
  cl_int state = CL_COMPLETE;
  const cl_int code = cl.clGetEventInfo(event, CL_EVENT_COMMAND_EXECUTION_STATUS, sizeof state, &state, nullptr);
  if (code != CL_SUCCESS) return failed(code, "clGetEventInfo", device.info);
  if (state == CL_COMPLETE) return FL_OK;
  return state > 0 ? FL_NOT_READY : failed(state, "work enqueued earlier", device.info);
}

fl_status put_marker(Device& device, Stream& stream, cl_event* marker) noexcept {
  const cl_int code = cl.clEnqueueMarkerWithWaitList(stream.queue, 0, nullptr, marker);
  if (code != CL_SUCCESS) return failed(code, "clEnqueueMarkerWithWaitList", device.info);
  ++stream.enqueued;
  stream.flushed = stream.enqueued;
  // Others wait for markers, and nothing says that the queue's own thread will come back to flush it.
  return check(cl.clFlush(stream.queue), "clFlush", device.info);
}

fl_status wait_and_judge(Device& device, cl_command_queue queue, cl_event marker) noexcept {
  const cl_int code = cl.clFinish(queue);
  const fl_status status = state_of(device, marker);
  cl.clReleaseEvent(marker);
  if (code != CL_SUCCESS) return failed(code, "clFinish", device.info);
  return status == FL_NOT_READY ? FL_OK : status;
}

// ---- Streams
fl_status create(fl_device handle, int32_t, fl_stream* stream) {
  return guarded([&]() -> fl_status {
    Device& device = device_of(handle);
    auto made = std::make_unique<Stream>();
    if (const fl_status status = make_queue(device, &made->queue); status != FL_OK) return status;
    const std::lock_guard lock(device.streams_mutex);
    device.streams.push_back(made.get());
    *stream = reinterpret_cast<fl_stream>(made.release());
    return FL_OK;
  });
}

fl_status destroy(fl_device handle, fl_stream stream) {
  return guarded([&]() -> fl_status {
    Device& device = device_of(handle);
    if (stream == nullptr) return fail(FL_INVALID_ARGUMENT, "the default stream cannot be destroyed");
    auto* gone = reinterpret_cast<Stream*>(stream);
    {
      const std::lock_guard lock(device.streams_mutex);
      if (std::erase(device.streams, gone) == 0) return fail(FL_INVALID_ARGUMENT, "this device has no such stream");
    }
    const fl_status status = finish(device, *gone);
    if (gone->probe != nullptr) cl.clReleaseEvent(gone->probe);
    cl.clReleaseCommandQueue(gone->queue);
    delete gone;
    return status;
  });
}

fl_status synchronize(fl_device handle, fl_stream stream) {
  Device& device = device_of(handle);
  return finish(device, device.stream(stream));
}

fl_status query(fl_device handle, fl_stream stream) {
  Device& device = device_of(handle);
  Stream& s = device.stream(stream);
  if (s.finished == s.enqueued && !s.native_is_out) return FL_OK;
  if (s.probe == nullptr || s.probe_at != s.enqueued || s.native_is_out) {
    if (s.probe != nullptr) cl.clReleaseEvent(std::exchange(s.probe, nullptr));
    if (const fl_status status = put_marker(device, s, &s.probe); status != FL_OK) return status;
    s.probe_at = s.enqueued;
  }
  const fl_status status = state_of(device, s.probe);
  if (status != FL_NOT_READY) s.finished = s.probe_at;
  return status;
}

fl_status native_handle(fl_device handle, fl_stream stream, void** native) {
  Stream& s = device_of(handle).stream(stream);
  s.native_is_out = true;
  *native = s.queue;
  return FL_OK;
}

// ---- Events
fl_status event_create(fl_device, uint32_t flags, fl_event* event) {
  return guarded([&]() -> fl_status {
    auto* made = new Event;
    made->timed = (flags & FL_EVENT_TIMED) != 0;
    *event = reinterpret_cast<fl_event>(made);
    return FL_OK;
  });
}

fl_status event_destroy(fl_device, fl_event event) {
  auto* gone = reinterpret_cast<Event*>(event);
  if (gone->marker != nullptr) cl.clReleaseEvent(gone->marker);
  delete gone;
  return FL_OK;
}

fl_status event_record(fl_device handle, fl_event event, fl_stream stream) {
  return guarded([&]() -> fl_status {
    Device& device = device_of(handle);
    Event& e = *reinterpret_cast<Event*>(event);
    cl_event marker = nullptr;
    if (const fl_status status = put_marker(device, device.stream(stream), &marker); status != FL_OK) return status;
    {
      const std::lock_guard lock(e.mutex);
      std::swap(marker, e.marker);
    }
    if (marker != nullptr) cl.clReleaseEvent(marker);
    return FL_OK;
  });
}

fl_status event_wait(fl_device handle, fl_event event, fl_stream stream) {
  return guarded([&]() -> fl_status {
    Device& device = device_of(handle);
    Stream& s = device.stream(stream);
    const Marker marker(event);
    if (marker.get() == nullptr) return FL_OK;
    const cl_int code = cl.clEnqueueBarrierWithWaitList(s.queue, 1, marker.get(), nullptr);
    if (code != CL_SUCCESS) return failed(code, "clEnqueueBarrierWithWaitList", device.info);
    count_command(s);
    return FL_OK;
  });
}

fl_status event_synchronize(fl_device handle, fl_event event) {
  return guarded([&]() -> fl_status {
    Device& device = device_of(handle);
    const Marker marker(event);
    if (marker.get() == nullptr) return FL_OK;
    const cl_int code = cl.clWaitForEvents(1, marker.get());
    if (code == CL_EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST) return state_of(device, *marker.get());
    return check(code, "clWaitForEvents", device.info);
  });
}

fl_status event_query(fl_device handle, fl_event event) {
  return guarded([&]() -> fl_status {
    const Marker marker(event);
    return marker.get() == nullptr ? FL_OK : state_of(device_of(handle), *marker.get());
  });
}

fl_status event_elapsed(fl_device handle, fl_event start, fl_event end, int64_t* nanoseconds) {
  return guarded([&]() -> fl_status {
    const DeviceInfo& info = device_of(handle).info;
    cl_ulong times[2] = {};
    for (int i = 0; i < 2; ++i) {
      Event& event = *reinterpret_cast<Event*>(i == 0 ? start : end);
      const Marker marker(event);
      if (!event.timed || marker.get() == nullptr)
        return fail(FL_INVALID_ARGUMENT, event.timed ? "elapsed time needs events that were recorded"
                                                     : "elapsed time needs events made with FL_EVENT_TIMED");
      const cl_int code =
          cl.clGetEventProfilingInfo(*marker.get(), CL_PROFILING_COMMAND_END, sizeof times[i], &times[i], nullptr);
      if (code != CL_SUCCESS) return failed(code, "clGetEventProfilingInfo", info, "both events must be complete");
    }
    *nanoseconds = static_cast<int64_t>(times[1] - times[0]);
    return FL_OK;
  });
}

}  // namespace

fl_status make_queue(Device& device, cl_command_queue* queue) noexcept {
  cl_int code = CL_SUCCESS;
  *queue = cl.clCreateCommandQueue(device.context, device.info.id, CL_QUEUE_PROFILING_ENABLE, &code);
  return *queue != nullptr ? FL_OK : failed(code, "clCreateCommandQueue", device.info);
}

fl_status finish(Device& device, Stream& stream) noexcept {
  if (stream.finished == stream.enqueued && !stream.native_is_out) return FL_OK;
  cl_event marker = nullptr;
  if (const fl_status status = put_marker(device, stream, &marker); status != FL_OK) return status;
  const fl_status status = wait_and_judge(device, stream.queue, marker);
  stream.finished = stream.enqueued;  // reported once
  return status;
}

fl_status finish_all(Device& device) noexcept {
  return guarded([&]() -> fl_status {
    std::vector<cl_command_queue> queues;
    {
      const std::lock_guard lock(device.streams_mutex);
      for (const Stream* stream : device.streams) {
        cl.clRetainCommandQueue(stream->queue);
        queues.push_back(stream->queue);
      }
    }
    fl_status first = FL_OK;
    for (cl_command_queue queue : queues) {
      cl_event marker = nullptr;
      const cl_int code = cl.clEnqueueMarkerWithWaitList(queue, 0, nullptr, &marker);
      const fl_status status = code != CL_SUCCESS ? failed(code, "clEnqueueMarkerWithWaitList", device.info)
                                                  : wait_and_judge(device, queue, marker);
      if (first == FL_OK) first = status;
      cl.clReleaseCommandQueue(queue);
    }
    return first;
  });
}

const fl_stream_api kStreamApi = {
    sizeof(fl_stream_api), create,     destroy,           synchronize, query,         event_create,  event_destroy,
    event_record,          event_wait, event_synchronize, event_query, event_elapsed, native_handle,
};

}  // namespace fl_opencl
