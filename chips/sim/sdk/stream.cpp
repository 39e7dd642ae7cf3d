// SPDX-License-Identifier: Apache-2.0
// Streams with their worker threads, events, and launches.
#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <new>

#include "internal.h"

// An event refers to the latest record of it; the shared marker outlives the event where a stream still needs it.
struct simEventState {
  std::mutex mutex;
  std::shared_ptr<simchip::Marker> marker;
  int64_t inline_ns = 0;  // inline mode: recorded at
};

namespace simchip {

void Marker::complete() {
  std::lock_guard<std::mutex> lock(mutex);
  time_ns = now_ns();
  done = true;
  changed.notify_all();
}

void Marker::wait() {
  std::unique_lock<std::mutex> lock(mutex);
  changed.wait(lock, [this] { return done; });
}

bool Marker::query() {
  std::lock_guard<std::mutex> lock(mutex);
  return done;
}

void Stream::submit(std::unique_ptr<Command> command) {
  command->profiled = (simMode(&device_) & SIM_MODE_PROFILING) != 0;
  if (command->profiled) command->correlation = simchip::correlation();
  {
    std::unique_lock<std::mutex> lock(mutex_);
    // A host that runs ahead of the chip waits, as on real ones; else its queue would grow without end.
    progress_.wait(lock, [this] { return queue_.size() < kMaxQueued || stopping_ || draining_ || process_ending(); });
    if (!process_ending() && !stopping_ && !draining_) {
      if (!worker_.joinable()) worker_ = std::thread([this] { work(); });
      queue_.push_back(std::move(command));
      ++submitted_;
      wake_.notify_one();
      return;
    }
  }
  run(*command, true);  // the worker is being ended
}

void Stream::run(Command& command, bool alive) {
  simActivity activity = {};
  if (!command.profiled || !alive || !command.describe(activity)) return command.run(device_, alive);
  activity.correlation = command.correlation;
  activity.stream = this == device_.default_stream ? nullptr : reinterpret_cast<simStream>(this);
  const int64_t start = now_ns();
  command.run(device_, alive);
  device_.add_activity(activity, start, now_ns());
}

void Stream::work() {
  std::unique_lock<std::mutex> lock(mutex_);
  for (;;) {
    wake_.wait(lock, [this] { return stopping_ || draining_ || !queue_.empty(); });
    if (queue_.empty()) break;
    if (const int64_t us = slow_stream_us(); us > 0 && !stopping_)
      wake_.wait_for(lock, std::chrono::microseconds(us), [this] { return stopping_; });
    std::unique_ptr<Command> command = std::move(queue_.front());
    queue_.pop_front();
    const bool alive = !stopping_ && !device_.lost.load();
    lock.unlock();
    run(*command, alive);
    command.reset();
    lock.lock();
    ++completed_;
    progress_.notify_all();
  }
  progress_.notify_all();
}

void Stream::synchronize() {
  std::unique_lock<std::mutex> lock(mutex_);
  const uint64_t target = submitted_;
  progress_.wait(lock, [&] { return completed_ >= target; });
}

bool Stream::idle() {
  std::lock_guard<std::mutex> lock(mutex_);
  return completed_ == submitted_;
}

void Stream::request_stop() {
  std::lock_guard<std::mutex> lock(mutex_);
  stopping_ = true;
  wake_.notify_all();
  progress_.notify_all();
}

void Stream::stop(bool drain) {
  std::thread worker;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    (drain ? draining_ : stopping_) = true;
    wake_.notify_all();
    progress_.notify_all();
    worker = std::move(worker_);
  }
  if (worker.joinable()) worker.join();
  std::lock_guard<std::mutex> lock(mutex_);
  stopping_ = draining_ = false;  // a later command starts another worker
}

namespace {

// A packet is one heap block: the command in front, the user's bytes behind it.
struct alignas(16) Launch final : Command {
  static void* operator new(size_t, void* place) { return place; }
  static void operator delete(void* place) { std::free(place); }
  void* packet() { return this + 1; }
  void run(Device& device, bool alive) override {
    if (!alive) return;
    if (const simResult result = strike(device, name)) {
      if (!device.lost.load()) device.report(result, simGetLastErrorString());
      return;
    }
    if (const simResult result = run_kernel(device, name, kernel, packet()))
      device.report(result, std::string("kernel ") + name + ": " + kernel_error());
  }
  bool describe(simActivity& activity) const override {
    activity.kind = SIM_ACTIVITY_KERNEL;
    activity.name = name;
    return true;
  }
  const char* name = nullptr;
  simKernel kernel = nullptr;
};

struct Record final : Command {
  explicit Record(std::shared_ptr<Marker> m) : marker(std::move(m)) {}
  void run(Device&, bool) override { marker->complete(); }
  std::shared_ptr<Marker> marker;
};

struct Wait final : Command {
  explicit Wait(std::shared_ptr<Marker> m) : marker(std::move(m)) {}
  void run(Device&, bool alive) override {
    if (alive) marker->wait();
  }
  std::shared_ptr<Marker> marker;
};

bool queued(simDevice device) { return (simMode(device) & SIM_MODE_QUEUED) != 0; }

simResult no_stream(simDevice device, simStream stream) {
  return fail(SIM_ERROR_INVALID_VALUE, "device %d has no stream %p", device->index, static_cast<void*>(stream));
}

std::shared_ptr<Marker> latest(simEvent event) {
  std::lock_guard<std::mutex> lock(event->mutex);
  return event->marker;
}

bool event_time(simEvent event, int64_t* ns) {
  std::lock_guard<std::mutex> lock(event->mutex);
  if (event->inline_ns) return *ns = event->inline_ns, true;
  if (!event->marker || !event->marker->query()) return false;
  *ns = event->marker->time_ns;
  return true;
}

}  // namespace

simResult launch_inline(Device& d, simStream stream, const char* name, simKernel kernel, void* packet) {
  if (const simResult result = d.check()) return result;
  if (const simResult result = strike(d, name)) return result;
  const simResult result =
      run_profiled(d, stream, SIM_ACTIVITY_KERNEL, name, 0, [&] { return run_kernel(d, name, kernel, packet); });
  if (result == SIM_SUCCESS) return SIM_SUCCESS;
  return fail(result, "device %d: kernel %s: %s", d.index, name, kernel_error());
}

}  // namespace simchip

using namespace simchip;

simResult simStreamCreate(simDevice device, int32_t, simStream* stream) {
  SIM_ENTER(device);
  Device& d = as_device(device);
  if (!stream) return fail(SIM_ERROR_INVALID_VALUE, "simStreamCreate: stream is null");
  if (d.lost.load()) return d.check();
  auto made = std::make_shared<Stream>(d);
  *stream = reinterpret_cast<simStream>(made.get());
  std::lock_guard<std::mutex> lock(d.mutex);
  d.streams.push_back(std::move(made));
  return SIM_SUCCESS;
}

simResult simStreamDestroy(simDevice device, simStream stream) {
  SIM_ENTER(device);
  Device& d = as_device(device);
  std::shared_ptr<Stream> victim;
  {
    std::lock_guard<std::mutex> lock(d.mutex);
    const auto found = std::find_if(d.streams.begin() + 1, d.streams.end(),
                                    [&](const auto& s) { return reinterpret_cast<simStream>(s.get()) == stream; });
    if (found == d.streams.end()) return no_stream(device, stream);
    victim = std::move(*found);
    d.streams.erase(found);
  }
  victim->stop(true);
  return SIM_SUCCESS;
}

simResult simStreamSynchronize(simDevice device, simStream stream) {
  SIM_ENTER(device);
  Device& d = as_device(device);
  if (queued(device)) {
    auto target = d.find(stream);
    if (!target) return no_stream(device, stream);
    target->synchronize();
  }
  return d.check();
}

simResult simStreamQuery(simDevice device, simStream stream) {
  SIM_ENTER(device);
  Device& d = as_device(device);
  if (d.lost.load()) return d.check();
  if (!queued(device)) return SIM_SUCCESS;
  auto target = d.find(stream);
  if (!target) return no_stream(device, stream);
  return target->idle() ? SIM_SUCCESS : fail(SIM_ERROR_NOT_READY, "the stream has work to do");
}

simResult simEventCreate(simDevice device, simEvent* event) {
  SIM_ENTER(device);
  if (!event) return fail(SIM_ERROR_INVALID_VALUE, "simEventCreate: event is null");
  *event = new simEventState();
  return SIM_SUCCESS;
}

simResult simEventDestroy(simEvent event) {
  SIM_ENTER(event);
  delete event;
  return SIM_SUCCESS;
}

simResult simEventRecord(simDevice device, simEvent event, simStream stream) {
  SIM_ENTER(device);
  SIM_ENTER(event);
  Device& d = as_device(device);
  if (d.lost.load()) return d.check();
  if (!queued(device)) {
    std::lock_guard<std::mutex> lock(event->mutex);
    event->inline_ns = now_ns();
    return SIM_SUCCESS;
  }
  auto target = d.find(stream);
  if (!target) return no_stream(device, stream);
  auto marker = std::make_shared<Marker>();
  {
    std::lock_guard<std::mutex> lock(event->mutex);
    event->marker = marker;
  }
  target->submit(std::make_unique<Record>(std::move(marker)));
  return SIM_SUCCESS;
}

simResult simStreamWaitEvent(simDevice device, simStream stream, simEvent event) {
  SIM_ENTER(device);
  SIM_ENTER(event);
  Device& d = as_device(device);
  if (d.lost.load()) return d.check();
  auto marker = latest(event);
  if (!marker || marker->query()) return SIM_SUCCESS;
  auto target = d.find(stream);
  if (!target) return no_stream(device, stream);
  target->submit(std::make_unique<Wait>(std::move(marker)));
  return SIM_SUCCESS;
}

simResult simEventSynchronize(simEvent event) {
  SIM_ENTER(event);
  if (auto marker = latest(event)) marker->wait();
  return SIM_SUCCESS;
}

simResult simEventQuery(simEvent event) {
  SIM_ENTER(event);
  auto marker = latest(event);
  return !marker || marker->query() ? SIM_SUCCESS : fail(SIM_ERROR_NOT_READY, "the event is pending");
}

simResult simEventElapsed(simEvent start, simEvent end, int64_t* nanoseconds) {
  SIM_ENTER(start);
  SIM_ENTER(end);
  int64_t from = 0, to = 0;
  if (!nanoseconds || !event_time(start, &from) || !event_time(end, &to))
    return fail(SIM_ERROR_INVALID_VALUE, "simEventElapsed: both events must be recorded and complete");
  *nanoseconds = to - from;
  return SIM_SUCCESS;
}

void* simPacketCreate(size_t bytes) {
  void* block = std::malloc(sizeof(Launch) + bytes);
  return block ? (new (block) Launch())->packet() : nullptr;
}

simResult simPacketSubmit(simDevice device, simStream stream, const char* name, simKernel kernel, void* packet) {
  if (!packet) return fail(SIM_ERROR_OUT_OF_MEMORY, "simPacketSubmit: packet is null");
  std::unique_ptr<Launch> launch(static_cast<Launch*>(packet) - 1);
  SIM_ENTER(device);
  Device& d = as_device(device);
  if (!queued(device)) return launch_inline(d, stream, name ? name : "(unnamed)", kernel, packet);
  if (const simResult result = d.check()) return result;
  auto target = d.find(stream);
  if (!target) return no_stream(device, stream);
  launch->name = name ? name : "(unnamed)";
  launch->kernel = kernel;
  target->submit(std::move(launch));
  return SIM_SUCCESS;
}

simResult simLaunch(simDevice device, simStream stream, const char* name, simKernel kernel, const void* packet,
                    size_t bytes) {
  void* copy = simPacketCreate(bytes);
  if (copy && bytes) std::memcpy(copy, packet, bytes);
  return simPacketSubmit(device, stream, name, kernel, copy);
}

simResult simLaunchInline(simDevice device, const char* name, simKernel kernel, void* packet) {
  SIM_ENTER(device);
  return launch_inline(as_device(device), nullptr, name, kernel, packet);
}
