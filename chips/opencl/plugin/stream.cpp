// SPDX-License-Identifier: Apache-2.0
// Streams are in-order queues; an event is a command of one.
#include <memory>
#include <utility>

#include "device.h"
#include "status.h"

namespace fl_opencl {
namespace {

/// The last command of the stream at the record.
struct Event {
  std::mutex mutex;
  cl_event command = nullptr;  ///< null: never recorded, or behind nothing; hence done
  bool timed = false;
};

/// A reference of its own to an event's command, so that a record meanwhile may move the event.
class Command {
 public:
  explicit Command(fl_event event) : Command(*reinterpret_cast<Event*>(event)) {}
  explicit Command(Event& event) {
    const std::lock_guard lock(event.mutex);
    command_ = event.command;
    if (command_ != nullptr) cl.clRetainEvent(command_);
  }
  ~Command() {
    if (command_ != nullptr) cl.clReleaseEvent(command_);
  }
  Command(const Command&) = delete;
  const cl_event* get() const { return command_ == nullptr ? nullptr : &command_; }

 private:
  cl_event command_;
};

/// FL_OK, FL_NOT_READY, or the failure of the command.
fl_status state_of(Device& device, cl_event event) noexcept {
  cl_int state = CL_COMPLETE;
  const cl_int code = cl.clGetEventInfo(event, CL_EVENT_COMMAND_EXECUTION_STATUS, sizeof state, &state, nullptr);
  if (code != CL_SUCCESS) return failed(code, "clGetEventInfo", device.info);
  if (state == CL_COMPLETE) return FL_OK;
  return state > 0 ? FL_NOT_READY : failed_later(state, "work enqueued earlier", device.info);
}

fl_status put_marker(Device& device, Stream& stream) noexcept {
  Enqueuing command(stream);
  const cl_int code = cl.clEnqueueMarkerWithWaitList(stream.queue, 0, nullptr, command.event());
  if (code != CL_SUCCESS) return failed(code, "clEnqueueMarkerWithWaitList", device.info);
  command.note();
  return FL_OK;
}

/// A reference to the stream's last command, or to a marker of its own; null when there is nothing pending.
fl_status last_command(Device& device, Stream& stream, bool marker, cl_event* last) noexcept {
  if (marker || stream.native_is_out)
    if (const fl_status status = put_marker(device, stream); status != FL_OK) return status;
  const std::lock_guard lock(stream.mutex);
  *last = stream.last;
  if (*last != nullptr) cl.clRetainEvent(*last);
  return FL_OK;
}

/// For whoever asks or waits elsewhere: nothing says that the stream's own thread will come back to do it.
fl_status flush(Device& device, Stream& stream) noexcept {
  const std::lock_guard lock(stream.mutex);
  if (stream.unflushed == 0) return FL_OK;
  stream.unflushed = 0;
  return check(cl.clFlush(stream.queue), "clFlush", device.info);
}

/// Gives back a reference; the stream forgets the command when it is complete, or has failed and that was told.
void done_with(Stream& stream, cl_event command, bool complete) noexcept {
  if (command == nullptr) return;
  if (complete) {
    const std::lock_guard lock(stream.mutex);
    if (stream.last == command) cl.clReleaseEvent(std::exchange(stream.last, nullptr));
  }
  cl.clReleaseEvent(command);
}

/// Waits for the queue whose last command (null: none known) this is.
fl_status wait_for(Device& device, cl_command_queue queue, cl_event last) noexcept {
  const cl_int code = cl.clFinish(queue);
  const fl_status status = last == nullptr ? FL_OK : state_of(device, last);
  if (code != CL_SUCCESS) return failed_later(code, "clFinish", device.info);
  return status == FL_NOT_READY ? FL_OK : status;
}

/// Waits for a queue of which no command is known.
fl_status finish_queue(Device& device, cl_command_queue queue) noexcept {
  cl_event marker = nullptr;
  const cl_int code = cl.clEnqueueMarkerWithWaitList(queue, 0, nullptr, &marker);
  if (code != CL_SUCCESS) return failed(code, "clEnqueueMarkerWithWaitList", device.info);
  const fl_status status = wait_for(device, queue, marker);
  cl.clReleaseEvent(marker);
  return status;
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
  cl_event last = nullptr;
  fl_status status = last_command(device, s, false, &last);
  if (status == FL_OK) status = flush(device, s);
  if (status == FL_OK && last != nullptr) status = state_of(device, last);
  done_with(s, last, status != FL_NOT_READY);
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
  if (gone->command != nullptr) cl.clReleaseEvent(gone->command);
  delete gone;
  return FL_OK;
}

fl_status event_record(fl_device handle, fl_event event, fl_stream stream) {
  return guarded([&]() -> fl_status {
    Device& device = device_of(handle);
    Stream& s = device.stream(stream);
    Event& e = *reinterpret_cast<Event*>(event);
    cl_event command = nullptr;
    // A time needs a command of its own: the last one may be long past.
    fl_status status = last_command(device, s, e.timed, &command);
    if (status == FL_OK) status = flush(device, s);
    if (status != FL_OK) {
      done_with(s, command, false);
      return status;
    }
    {
      const std::lock_guard lock(e.mutex);
      std::swap(command, e.command);
    }
    if (command != nullptr) cl.clReleaseEvent(command);
    return FL_OK;
  });
}

fl_status event_wait(fl_device handle, fl_event event, fl_stream stream) {
  return guarded([&]() -> fl_status {
    Device& device = device_of(handle);
    Stream& s = device.stream(stream);
    const Command command(event);
    if (command.get() == nullptr) return FL_OK;
    Enqueuing barrier(s);
    const cl_int code = cl.clEnqueueBarrierWithWaitList(s.queue, 1, command.get(), barrier.event());
    if (code != CL_SUCCESS) return failed(code, "clEnqueueBarrierWithWaitList", device.info);
    barrier.note();
    return FL_OK;
  });
}

fl_status event_synchronize(fl_device handle, fl_event event) {
  return guarded([&]() -> fl_status {
    Device& device = device_of(handle);
    const Command command(event);
    if (command.get() == nullptr) return FL_OK;
    const cl_int code = cl.clWaitForEvents(1, command.get());
    if (code == CL_EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST) return state_of(device, *command.get());
    return code == CL_SUCCESS ? FL_OK : failed_later(code, "clWaitForEvents", device.info);
  });
}

fl_status event_query(fl_device handle, fl_event event) {
  return guarded([&]() -> fl_status {
    const Command command(event);
    return command.get() == nullptr ? FL_OK : state_of(device_of(handle), *command.get());
  });
}

fl_status event_elapsed(fl_device handle, fl_event start, fl_event end, int64_t* nanoseconds) {
  return guarded([&]() -> fl_status {
    const DeviceInfo& info = device_of(handle).info;
    cl_ulong times[2] = {};
    for (int i = 0; i < 2; ++i) {
      Event& event = *reinterpret_cast<Event*>(i == 0 ? start : end);
      const Command command(event);
      if (!event.timed || command.get() == nullptr)
        return fail(FL_INVALID_ARGUMENT, event.timed ? "elapsed time needs events that were recorded"
                                                     : "elapsed time needs events made with FL_EVENT_TIMED");
      const cl_int code =
          cl.clGetEventProfilingInfo(*command.get(), CL_PROFILING_COMMAND_END, sizeof times[i], &times[i], nullptr);
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
  cl_event last = nullptr;
  fl_status status = last_command(device, stream, false, &last);
  if (status == FL_OK && last != nullptr) status = wait_for(device, stream.queue, last);
  done_with(stream, last, true);
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
      if (first == FL_OK)
        first = finish_queue(device, queue);
      else
        cl.clFinish(queue);  // its failure would hide the first one's text
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
