// SPDX-License-Identifier: Apache-2.0
// Device events for torch.profiler. Kineto asks for a session, tells each operator's id while the session runs, and
// collects at its end; between sessions nothing is armed. See docs/design/observe.md.
#ifndef TORCH_FL_KINETO
#define TORCH_FL_KINETO 0
#endif

#if TORCH_FL_KINETO

#include <libkineto.h>
#include <output_base.h>
#include <torch/csrc/profiler/standalone/privateuse1_profiler.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <ctime>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "runtime/device.h"
#include "runtime/timeline.h"

namespace torch_fl::glue {
namespace {

using libkineto::ActivityType;
using runtime::DeviceEvent;
using runtime::EventKind;

/// From the runtime's clock to the one that PyTorch's traces are in. They drift apart, so both ends are looked at.
class TraceClock {
 public:
  void begin() { begin_ = pair(); }
  void end() { end_ = pair(); }
  int64_t operator()(int64_t steady_ns) const {
    const int64_t offset = begin_.wall - begin_.steady, length = end_.steady - begin_.steady;
    if (length <= 0) return steady_ns + offset;
    const auto share = static_cast<double>(steady_ns - begin_.steady) / static_cast<double>(length);
    const auto drift = static_cast<double>(end_.wall - end_.steady - offset);
    return steady_ns + offset + static_cast<int64_t>(share * drift);
  }

 private:
  struct Pair {
    int64_t steady = 0, wall = 0;
  };
  static int64_t read(clockid_t clock) {
    timespec t{};
    clock_gettime(clock, &t);
    return static_cast<int64_t>(t.tv_sec) * 1000000000 + t.tv_nsec;
  }
  static Pair pair() {
    Pair best;
    int64_t shortest = INT64_MAX;
    for (int i = 0; i < 5; ++i) {
      const int64_t before = read(CLOCK_MONOTONIC), wall = read(CLOCK_REALTIME), after = read(CLOCK_MONOTONIC);
      if (after - before >= shortest) continue;
      shortest = after - before;
      best = {before + shortest / 2, wall};
    }
    return best;
  }
  Pair begin_, end_;
};

/// The ids of the operators that the calling thread is in, innermost last. Those of an earlier session, whose ends were
/// not told, are forgotten.
class OperatorIds {
 public:
  static void push(uint64_t session, uint64_t id) {
    OperatorIds& mine = of_thread(session);
    mine.outer_.push_back(runtime::ExternalId::exchange(id));
  }
  static void pop(uint64_t session) {
    OperatorIds& mine = of_thread(session);
    if (mine.outer_.empty()) return;
    runtime::ExternalId::exchange(mine.outer_.back());
    mine.outer_.pop_back();
  }

 private:
  static OperatorIds& of_thread(uint64_t session) {
    static thread_local OperatorIds ids;
    if (ids.session_ != session) {
      ids.session_ = session;
      ids.outer_.clear();
      runtime::ExternalId::exchange(0);
    }
    return ids;
  }
  uint64_t session_ = 0;
  std::vector<uint64_t> outer_;
};

constexpr std::pair<EventKind, ActivityType> kTypes[] = {{EventKind::kKernel, ActivityType::CONCURRENT_KERNEL},
                                                         {EventKind::kCopy, ActivityType::GPU_MEMCPY},
                                                         {EventKind::kFill, ActivityType::GPU_MEMSET},
                                                         {EventKind::kRuntime, ActivityType::PRIVATEUSE1_RUNTIME},
                                                         {EventKind::kLaunch, ActivityType::PRIVATEUSE1_RUNTIME}};

ActivityType type_of(EventKind kind) { return kTypes[static_cast<size_t>(kind)].second; }

uint32_t kinds_of(const std::set<ActivityType>& types) {
  uint32_t kinds = 0;
  for (const auto& [kind, type] : kTypes) {
    if (types.count(type) != 0) kinds |= runtime::bit_of(kind);
  }
  return kinds;
}

bool on_host(const DeviceEvent& event) { return event.kind == EventKind::kRuntime || event.kind == EventKind::kLaunch; }

/// Kineto's ids have 31 bits.
int32_t narrow(uint64_t id) { return static_cast<int32_t>(id & INT32_MAX); }

/// What a viewer shows when it is clicked.
void describe(libkineto::GenericTraceActivity& activity, const DeviceEvent& event) {
  const runtime::Device& device = runtime::Registry::get().at(event.device);
  activity.addMetadataQuoted("chip", device.chip.name);
  activity.addMetadata("device", event.device);
  if (event.stream >= 0) activity.addMetadata("stream", event.stream);
  if (event.launch != 0) activity.addMetadata("correlation", event.launch);
  if (event.external != 0) activity.addMetadata("External id", event.external);
  if (event.op != nullptr) activity.addMetadataQuoted("op", event.op);
  if (event.host_timed) activity.addMetadataQuoted("timed by", "the host: the chip is synchronous");
  if (event.bytes == 0) return;
  activity.addMetadata("bytes", event.bytes);
  const int64_t ns = event.end_ns - event.start_ns;
  if (ns > 0 && !on_host(event)) {
    activity.addMetadata("memory bandwidth (GB/s)", static_cast<double>(event.bytes) / static_cast<double>(ns));
  }
}

const libkineto::TraceSpan& span() {
  static const auto* span = new libkineto::TraceSpan(0, 0, "fl");
  return *span;
}

class Session final : public libkineto::IActivityProfilerSession {
 public:
  Session(uint32_t kinds, uint64_t number) : kinds_(kinds), number_(number) {}

  void start() override {
    runtime::TimelineListener::Options options;
    options.kinds = kinds_;
    options.capacity = size_t{1} << 21;
    clock_.begin();
    listener_ = std::make_unique<runtime::TimelineListener>(std::move(options));
    status_ = libkineto::TraceStatus::RECORDING;
  }

  void stop() override {
    if (listener_ == nullptr) return;
    result_ = listener_->stop();
    clock_.end();
    listener_.reset();
    status_ = libkineto::TraceStatus::PROCESSING;
  }

  std::vector<std::string> errors() override {
    std::vector<std::string> errors = result_.problems;
    if (result_.dropped != 0) errors.push_back(std::to_string(result_.dropped) + " device events were dropped");
    return errors;
  }

  void processTrace(libkineto::ActivityLogger& logger) override {
    processTrace(logger, [](int32_t) -> const libkineto::ITraceActivity* { return nullptr; }, 0, 0);
  }

  void processTrace(libkineto::ActivityLogger& logger, libkineto::getLinkedActivityCallback linked, int64_t,
                    int64_t) override {
    show_rows(logger);
    for (const DeviceEvent& event : result_.events) give(logger, event, linked);
    result_.events.clear();
  }

  /// Of one device: the others are told to the logger. Without this one Kineto calls all of them GPUs.
  std::unique_ptr<libkineto::DeviceInfo> getDeviceInfo() override {
    if (shown_ < 0) return nullptr;
    return std::make_unique<libkineto::DeviceInfo>(info_of(shown_));
  }
  std::vector<libkineto::ResourceInfo> getResourceInfos() override { return {}; }
  std::unique_ptr<libkineto::CpuTraceBuffer> getTraceBuffer() override { return nullptr; }

  void pushCorrelationId(uint64_t id) override { OperatorIds::push(number_, id); }
  void popCorrelationId() override { OperatorIds::pop(number_); }
  void pushUserCorrelationId(uint64_t id) override { OperatorIds::push(number_, id); }
  void popUserCorrelationId() override { OperatorIds::pop(number_); }

 private:
  void give(libkineto::ActivityLogger& logger, const DeviceEvent& event,
            const libkineto::getLinkedActivityCallback& linked) {
    libkineto::GenericTraceActivity activity(span(), type_of(event.kind), event.name);
    activity.startTime = clock_(event.start_ns);
    activity.endTime = clock_(event.end_ns);
    activity.id = narrow(event.launch);
    activity.device = on_host(event) ? static_cast<int32_t>(getpid()) : event.device;
    activity.resource = on_host(event) ? static_cast<int32_t>(event.thread) : event.stream;
    activity.threadId = static_cast<int32_t>(event.thread);
    if (event.launch != 0) {
      activity.flow.id = static_cast<uint32_t>(narrow(event.launch));
      activity.flow.type = libkineto::kLinkAsyncCpuGpu;
      activity.flow.start = event.kind == EventKind::kLaunch ? 1 : 0;
    }
    if (event.external != 0) activity.linked = linked(narrow(event.external));
    describe(activity, event);
    logger.handleGenericActivity(activity);
  }

  static libkineto::DeviceInfo info_of(int32_t index) {
    const runtime::Device& device = runtime::Registry::get().at(index);
    return {index, libkineto::kExceedMaxPid + index, device.chip.name,
            "fl:" + std::to_string(index) + " " + device.properties.name};
  }

  /// A process for each device and a thread for each stream that did something.
  void show_rows(libkineto::ActivityLogger& logger) {
    std::set<std::pair<int32_t, int32_t>> rows;
    for (const DeviceEvent& event : result_.events) {
      if (!on_host(event)) rows.emplace(event.device, event.stream);
    }
    for (const auto& [index, stream] : rows) {
      const int64_t time = clock_(result_.events.front().start_ns);
      if (std::exchange(shown_, index) != index) logger.handleDeviceInfo(info_of(index), time);
      const std::string name = stream < 0    ? "another stream"
                               : stream == 0 ? "stream 0 (default)"
                                             : "stream " + std::to_string(stream);
      logger.handleResourceInfo({stream, stream, index, name}, time);
    }
  }

  const uint32_t kinds_;
  const uint64_t number_;
  TraceClock clock_;
  std::unique_ptr<runtime::TimelineListener> listener_;
  runtime::TimelineListener::Result result_;
  int32_t shown_ = -1;  ///< the last device that has rows
};

class FlProfiler final : public libkineto::IActivityProfiler {
 public:
  const std::string& name() const override { return name_; }
  const std::set<ActivityType>& availableActivities() const override { return available_; }

  std::unique_ptr<libkineto::IActivityProfilerSession> configure(const std::set<ActivityType>& types,
                                                                 const libkineto::Config&) override {
    static std::atomic<uint64_t> sessions{0};
    const uint32_t kinds = kinds_of(types);
    // A profile of the host alone asks for the calls of all devices' runtimes, too: nothing is armed for it.
    if ((kinds & runtime::kDeviceWork) == 0) return nullptr;
    return std::make_unique<Session>(kinds, ++sessions);
  }
  std::unique_ptr<libkineto::IActivityProfilerSession> configure(int64_t, int64_t, const std::set<ActivityType>& types,
                                                                 const libkineto::Config& config) override {
    return configure(types, config);
  }

 private:
  const std::string name_ = "fl";
  const std::set<ActivityType> available_ = {ActivityType::CONCURRENT_KERNEL, ActivityType::GPU_MEMCPY,
                                             ActivityType::GPU_MEMSET, ActivityType::PRIVATEUSE1_RUNTIME};
};

REGISTER_PRIVATEUSE1_PROFILER(FlProfiler);

}  // namespace
}  // namespace torch_fl::glue

#endif  // TORCH_FL_KINETO
