// SPDX-License-Identifier: Apache-2.0
// One hub for all listeners. What is enqueued gets a number, which the plugin hands back with each event: the ring of
// launches says what it was. Events of the host wait in a list until somebody collects.
//
// Locks, outermost first: control (who listens), a track's (calls into its plugin's table), listeners, launches. None
// of them is held while devices are awaited, or while something is logged.
#include "timeline.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cmath>
#include <cstddef>
#include <cstdlib>
#include <deque>
#include <mutex>
#include <new>
#include <set>
#include <string_view>
#include <unordered_set>
#include <utility>

#include "internal.h"
#include "records.h"

namespace torch_fl::runtime {
namespace {

constexpr uint64_t kFlushEvery = 1 << 14;  // launches: plugins' buffers are bounded, too
constexpr size_t kMostHostEvents = 1 << 18;
constexpr uint32_t kProfileEventBytes = offsetof(fl_profile_event, bytes) + sizeof(fl_profile_event::bytes);
constexpr size_t kMostNames = 1 << 14;

thread_local constinit uint64_t external_id = 0;
thread_local constinit uint64_t current_launch = 0;

/// Texts that live as long as the process.
class Names {
 public:
  const char* keep(std::string_view text) {
    const std::lock_guard lock(mutex_);
    const auto found = names_.find(text);
    if (found != names_.end()) return found->c_str();
    if (names_.size() >= kMostNames) return "(one of too many names)";
    return names_.emplace(text).first->c_str();
  }

 private:
  struct Hash {
    using is_transparent = void;
    size_t operator()(std::string_view text) const { return std::hash<std::string_view>()(text); }
  };
  std::mutex mutex_;
  std::unordered_set<std::string, Hash, std::equal_to<>> names_;
};

/// From a device's clock to the host's: linear between pairs that are so far apart that their errors do not matter.
class Clock {
 public:
  struct Pair {
    int64_t device_ns, host_ns, error_ns;
  };
  void add(Pair pair) {
    constexpr int64_t kBaseline = 1000;  // errors: durations are right to a thousandth
    constexpr size_t kMost = 512;
    if (!pairs_.empty()) {
      const Pair& last = pairs_.back();
      if (pair.host_ns - last.host_ns < kBaseline * (pair.error_ns + last.error_ns)) return;
      if (pair.device_ns <= last.device_ns) return;
    }
    if (pairs_.size() == kMost) pairs_.pop_front();
    pairs_.push_back(pair);
  }
  int64_t to_host(int64_t device_ns) const {
    if (pairs_.size() < 2) return device_ns - pairs_.front().device_ns + pairs_.front().host_ns;
    const auto later = [](int64_t time, const Pair& pair) { return time < pair.device_ns; };
    auto end = std::upper_bound(pairs_.begin() + 1, pairs_.end() - 1, device_ns, later);
    const Pair &b = *end, &a = *(end - 1);
    const double rate = static_cast<double>(b.host_ns - a.host_ns) / static_cast<double>(b.device_ns - a.device_ns);
    return a.host_ns + std::llround(static_cast<double>(device_ns - a.device_ns) * rate);
  }

 private:
  std::deque<Pair> pairs_;
};

/// Something that was enqueued.
struct Launch {
  uint64_t id;  ///< 0: none
  EventKind kind;
  bool portable;
  int32_t device, stream;
  const char* name;
  uint64_t call, external, thread, bytes;
};

/// One device's profiler table.
struct Track {
  std::mutex mutex;
  std::atomic<bool> started{false};
  std::atomic<bool> refused{false};  ///< has none, or one that does not work; until nobody listens any more
  Device* device = nullptr;          ///< while started
  Clock clock;
};

class Hub {
 public:
  static Hub& get() {
    static Hub* hub = new Hub;  // never destroyed: devices close late
    return *hub;
  }

  using Listener = std::shared_ptr<TimelineListener::State>;
  void add(const Listener& listener);
  void remove(const Listener& listener);
  /// Gives listeners what there is.
  void pump();
  void synchronize();
  void close(Device& device);

  /// Whether the plugin wants to know what is enqueued on the device; its profiler is started by then.
  bool told(Device& device) {
    const Track& track = track_of(device);
    if (track.started.load(std::memory_order_acquire)) return true;
    return !track.refused.load(std::memory_order_relaxed) && start(device);
  }
  uint64_t note(Device& device, StreamId stream, EventKind kind, const char* name, bool portable, uint64_t bytes);
  void finish(Device& device, uint64_t id, int64_t start_ns, bool cancelled);
  void note_host(const DeviceEvent& event);
  void problem(std::string text);

  std::mutex listeners_mutex;
  std::vector<Listener> listeners;
  std::set<std::string> problems;

 private:
  struct Flush;
  Track& track_of(const Device& device) { return tracks_[static_cast<size_t>(device.index)]; }
  template <class F>
  void each_started(F&& f);
  void start_opened();
  bool start(Device& device);
  bool start_table(Device& device, Track& track);
  void stop(Track& track);
  void flush(Track& track);
  void flush_locked(Track& track, std::vector<DeviceEvent>& events);
  bool take_pair(Device& device, Track& track, int tries);
  Launch find(uint64_t id);
  const char* kernel_name(const Device& device, const Launch& launch);
  void deliver(const std::vector<DeviceEvent>& events);
  template <class Function, class... Arguments>
  bool call(Device& device, const char* what, Function function, Arguments... arguments);
  void deliver_host_events();

  std::mutex control_;
  std::array<Track, kMaxDevices> tracks_;
  std::atomic<uint64_t> last_launch_{0}, flushed_at_{0};
  std::atomic<uint32_t> wanted_{0};  ///< kinds
  std::mutex launches_mutex_;
  static constexpr size_t kLaunches = 1 << 18;
  struct Free {
    void operator()(void* memory) const { std::free(memory); }
  };
  std::unique_ptr<Launch[], Free> launches_;  ///< a ring, by id
  std::vector<DeviceEvent> host_events_;
  uint64_t host_dropped_ = 0;  ///< since they were delivered
  std::set<std::string> told_;
  Names names_;

 public:
  uint64_t last_launch() const { return last_launch_.load(std::memory_order_relaxed); }
};

}  // namespace

struct TimelineListener::State {
  Options options;
  uint64_t after_launch = 0;
  int64_t start_ns = 0;
  std::atomic<bool> stopped{false};
  // Guarded by the hub's listeners_mutex.
  std::deque<DeviceEvent> events;
  uint64_t dropped = 0;

  bool wants(const DeviceEvent& event) const {
    if ((options.kinds & bit_of(event.kind)) == 0) return false;
    return event.launch != 0 ? event.launch > after_launch : event.start_ns >= start_ns;
  }
  void give(const std::vector<DeviceEvent>& batch) {
    std::vector<DeviceEvent> mine;
    std::copy_if(batch.begin(), batch.end(), std::back_inserter(mine), [this](const auto& e) { return wants(e); });
    if (mine.empty()) return;
    if (options.sink) return options.sink(mine.data(), mine.size());
    events.insert(events.end(), mine.begin(), mine.end());
    while (events.size() > options.capacity) {
      events.pop_front();
      ++dropped;
    }
  }
};

namespace {

std::string who(const Device& device) { return device.chip.name + " device fl:" + std::to_string(device.index); }

template <class F>
void Hub::each_started(F&& f) {
  for (Track& track : tracks_) {
    if (track.started.load(std::memory_order_acquire)) f(track);
  }
}

void Hub::problem(std::string text) {
  const std::lock_guard lock(listeners_mutex);
  problems.insert(std::move(text));
}

/// Whether a function of the table worked, which gets the device's handle. The device may be lost with it.
template <class Function, class... Arguments>
bool Hub::call(Device& device, const char* what, Function function, Arguments... arguments) {
  try {
    device.check(function(device.handle(), arguments...), what);
    return true;
  } catch (const Error& error) {
    problem(error.what());
    return false;
  }
}

/// The device's clock beside the host's, from the shortest of a few questions. Needs the track's lock.
bool Hub::take_pair(Device& device, Track& track, int tries) {
  Clock::Pair best{0, 0, INT64_MAX};
  for (int i = 0; i < tries; ++i) {
    int64_t device_ns = 0, host_ns = 0;
    const int64_t before = now_ns();
    if (!call(device, "reading the device's clock", device.chip.profiler.clock, &device_ns, &host_ns)) return false;
    const int64_t after = now_ns();
    // What a plugin took for the host's clock may be another one.
    if (host_ns < before || host_ns > after) host_ns = before + (after - before) / 2;
    if (after - before < best.error_ns) best = {device_ns, host_ns, std::max<int64_t>(after - before, 1)};
  }
  track.clock.add(best);
  return true;
}

/// False: the device has no times to give. Threads that come meanwhile wait: what they enqueue is to be told, too.
bool Hub::start(Device& device) {
  Track& track = track_of(device);
  const std::lock_guard lock(track.mutex);
  if (track.started.load(std::memory_order_relaxed)) return true;
  if (track.refused.load(std::memory_order_relaxed) || !observed_by(kTimeline)) return false;
  const bool tells = start_table(device, track);
  if (tells) track.device = &device;
  track.refused.store(!tells, std::memory_order_relaxed);
  track.started.store(tells, std::memory_order_release);
  return tells;
}

/// Needs the track's lock.
bool Hub::start_table(Device& device, Track& track) {
  if (!device.chip.has_profiler) {
    if (device.chip.has_streams) {
      problem("the chip " + device.chip.name +
              " tells no times of its work, only the host's calls are shown: its plugin has no profiler table");
    }
    return false;
  }
  track.clock = Clock();
  const fl_profiler_api& table = device.chip.profiler;
  if (!call(device, "starting its profiler", table.start)) return false;
  if (!take_pair(device, track, 5)) {
    if (device.usable()) call(device, "stopping its profiler", table.stop);
    return false;
  }
  return true;
}

void Hub::stop(Track& track) {
  std::vector<DeviceEvent> events;
  {
    const std::lock_guard lock(track.mutex);
    if (!track.started.load(std::memory_order_relaxed)) return;
    flush_locked(track, events);
    track.started.store(false, std::memory_order_release);
    Device& device = *track.device;
    if (device.usable()) call(device, "stopping its profiler", device.chip.profiler.stop);
  }
  deliver(events);
}

/// What a plugin's flush is given.
struct Hub::Flush {
  Hub& hub;
  Device& device;
  Track& track;
  std::vector<DeviceEvent>& events;
  uint64_t lost = 0;
  fl_stream known = nullptr;
  StreamId known_id = 0;

  StreamId stream(fl_stream handle) {
    if (handle != known) {
      known_id = device.find_stream(handle);
      known = handle;
    }
    return known_id;
  }
  const char* name(const fl_profile_event& given, const Launch& launch) {
    const std::string_view said = given.name != nullptr ? given.name : "";
    const bool ours = launch.id != 0 && static_cast<int32_t>(launch.kind) == given.kind;
    if (ours && given.kind != FL_PROFILE_KERNEL) return launch.name;
    if (ours && (launch.portable || said.empty() || said == launch.name)) return hub.kernel_name(device, launch);
    return hub.names_.keep(said.empty() ? "(unnamed)" : said);
  }
  void add(const fl_profile_event& given) {
    if (given.struct_size < kProfileEventBytes || given.kind < FL_PROFILE_KERNEL || given.kind > FL_PROFILE_RUNTIME) {
      ++lost;
      return;
    }
    const Launch launch = hub.find(given.correlation);
    DeviceEvent event;
    event.kind = static_cast<EventKind>(given.kind);
    event.device = device.index;
    event.stream = static_cast<int32_t>(stream(given.stream));
    event.name = name(given, launch);
    event.op = launch.id != 0 && launch.kind == EventKind::kKernel ? launch.name : nullptr;
    event.correlation = launch.call;
    event.launch = launch.id;
    event.external = launch.external;
    event.thread = launch.thread;
    event.start_ns = track.clock.to_host(given.start_ns);
    event.end_ns = std::max(event.start_ns, track.clock.to_host(given.end_ns));
    event.bytes = given.bytes != 0 || event.kind != launch.kind ? given.bytes : launch.bytes;
    events.push_back(event);
  }
  static void sink(void* context, const fl_profile_event* event) {
    auto& flush = *static_cast<Flush*>(context);
    try {
      if (event != nullptr) flush.add(*event);
    } catch (const std::exception&) {
      ++flush.lost;
    }
  }
};

void Hub::flush_locked(Track& track, std::vector<DeviceEvent>& events) {
  if (!track.started.load(std::memory_order_relaxed) || !track.device->usable()) return;
  Device& device = *track.device;
  if (!take_pair(device, track, 3)) return;
  Flush flush{*this, device, track, events};
  call(device, "collecting its profiler's events", device.chip.profiler.flush, &Flush::sink, &flush);
  if (flush.lost != 0) problem(who(device) + ": its profiler gave events that are none; they are left out");
}

void Hub::flush(Track& track) {
  std::vector<DeviceEvent> events;
  {
    const std::lock_guard lock(track.mutex);
    flush_locked(track, events);
  }
  deliver(events);
}

void Hub::deliver(const std::vector<DeviceEvent>& events) {
  if (events.empty()) return;
  const std::lock_guard lock(listeners_mutex);
  for (const Listener& listener : listeners) listener->give(events);
}

void Hub::deliver_host_events() {
  std::vector<DeviceEvent> events;
  uint64_t dropped = 0;
  {
    const std::lock_guard lock(launches_mutex_);
    events.swap(host_events_);
    dropped = std::exchange(host_dropped_, 0);
  }
  deliver(events);
  if (dropped == 0) return;
  const std::lock_guard lock(listeners_mutex);
  for (const Listener& listener : listeners) listener->dropped += dropped;
}

void Hub::pump() {
  flushed_at_.store(last_launch(), std::memory_order_relaxed);
  each_started([this](Track& track) { flush(track); });
  deliver_host_events();
}

void Hub::synchronize() {
  each_started([this](Track& track) {
    Device& device = *track.device;
    if (device.usable()) call(device, "synchronising the device", device.chip.device_api.synchronize);
  });
}

void Hub::start_opened() {
  Registry& registry = Registry::get();
  for (int32_t i = 0, n = registry.device_count(); i < n; ++i) {
    if (registry.at(i).usable()) start(registry.at(i));
  }
}

void Hub::add(const Listener& listener) {
  std::vector<std::string> said;
  {
    const std::lock_guard control(control_);
    {
      const std::lock_guard lock(launches_mutex_);
      // Zeros that cost nothing until they are written to.
      if (launches_ == nullptr) launches_.reset(static_cast<Launch*>(std::calloc(kLaunches, sizeof(Launch))));
      if (launches_ == nullptr) throw std::bad_alloc();
    }
    {
      const std::lock_guard lock(listeners_mutex);
      listener->after_launch = last_launch();
      listener->start_ns = now_ns();
      listeners.push_back(listener);
      wanted_.fetch_or(listener->options.kinds);
    }
    g_observers.fetch_or(kTimeline);
    start_opened();
    const std::lock_guard lock(listeners_mutex);
    for (const std::string& problem : problems) {
      if (told_.insert(problem).second) said.push_back(problem);
    }
  }
  for (const std::string& problem : said) log(FL_LOG_WARNING, problem);
}

void Hub::remove(const Listener& listener) {
  const std::lock_guard control(control_);
  bool last = false;
  {
    const std::lock_guard lock(listeners_mutex);
    last = listeners.size() == 1 && listeners.front() == listener;
  }
  if (last) {
    g_observers.fetch_and(~static_cast<uint32_t>(kTimeline));
    for (Track& track : tracks_) {
      stop(track);
      track.refused.store(false, std::memory_order_relaxed);
    }
    deliver_host_events();
    const std::lock_guard lock(launches_mutex_);
    launches_.reset();
    host_events_.shrink_to_fit();
  }
  const std::lock_guard lock(listeners_mutex);
  std::erase(listeners, listener);
  uint32_t kinds = 0;
  for (const Listener& other : listeners) kinds |= other->options.kinds;
  wanted_.store(kinds);
}

void Hub::close(Device& device) { stop(track_of(device)); }

uint64_t Hub::note(Device& device, StreamId stream, EventKind kind, const char* name, bool portable, uint64_t bytes) {
  const uint64_t id = last_launch_.fetch_add(1, std::memory_order_relaxed) + 1;
  if (id - flushed_at_.load(std::memory_order_relaxed) >= kFlushEvery) pump();
  Launch launch{};
  launch.id = id;
  launch.kind = kind;
  launch.portable = portable;
  launch.device = device.index;
  launch.stream = static_cast<int32_t>(stream);
  launch.name = name;
  launch.call = current_call_id();
  launch.external = external_id;
  launch.thread = thread_number();
  launch.bytes = bytes;
  const std::lock_guard lock(launches_mutex_);
  if (launches_ != nullptr) launches_[id % kLaunches] = launch;
  return id;
}

Launch Hub::find(uint64_t id) {
  const std::lock_guard lock(launches_mutex_);
  if (id == 0 || launches_ == nullptr || launches_[id % kLaunches].id != id) return {};
  return launches_[id % kLaunches];
}

/// Of a kernel that has no name of its own: the operator's, and whose it is. The bare one is the call's in every table.
const char* Hub::kernel_name(const Device& device, const Launch& launch) {
  return names_.keep(std::string(launch.name) + " [" + (launch.portable ? "portable" : device.chip.name) + "]");
}

void Hub::note_host(const DeviceEvent& event) {
  if ((wanted_.load(std::memory_order_relaxed) & bit_of(event.kind)) == 0) return;
  const std::lock_guard lock(launches_mutex_);
  if (host_events_.size() < kMostHostEvents) {
    host_events_.push_back(event);
  } else {
    ++host_dropped_;
  }
}

const char* launch_name(EventKind kind) {
  return kind == EventKind::kKernel ? "flLaunchKernel" : kind == EventKind::kCopy ? "flMemcpyAsync" : "flMemsetAsync";
}

/// The host's side of a launch; of a chip without streams also the device's, at the same time.
void Hub::finish(Device& device, uint64_t id, int64_t start_ns, bool cancelled) {
  if (cancelled) return;
  const Launch launch = find(id);
  if (launch.id == 0) return;
  DeviceEvent event;
  event.kind = EventKind::kLaunch;
  event.device = launch.device;
  event.stream = launch.stream;
  event.name = launch_name(launch.kind);
  event.op = launch.kind == EventKind::kKernel ? launch.name : nullptr;
  event.correlation = launch.call;
  event.launch = launch.id;
  event.external = launch.external;
  event.thread = launch.thread;
  event.start_ns = start_ns;
  event.end_ns = now_ns();
  event.bytes = launch.bytes;
  note_host(event);
  if (device.chip.has_streams || device.chip.has_profiler) return;
  event.kind = launch.kind;
  event.host_timed = true;
  event.name = launch.kind == EventKind::kKernel ? kernel_name(device, launch) : launch.name;
  note_host(event);
}

}  // namespace

// ---- Where work is enqueued
void Enqueue::begin(StreamId stream, EventKind kind, const char* name, bool portable, uint64_t bytes) noexcept {
  if (bad_fork.load(std::memory_order_relaxed)) return;
  try {
    Hub& hub = Hub::get();
    told_ = hub.told(device_);
    id_ = hub.note(device_, stream, kind, name, portable, bytes);
    outer_ = std::exchange(current_launch, id_);
    if (told_) device_.chip.profiler.set_correlation(id_);
    start_ns_ = now_ns();
  } catch (const std::exception& error) {
    Hub::get().problem(error.what());
  }
}

void Enqueue::end() noexcept {
  try {
    current_launch = outer_;
    if (told_) device_.chip.profiler.set_correlation(outer_);
    Hub::get().finish(device_, id_, start_ns_, cancelled_);
  } catch (const std::exception& error) {
    Hub::get().problem(error.what());
  }
}

void RuntimeCall::begin(StreamId stream, const char* name, uint64_t bytes) noexcept {
  if (bad_fork.load(std::memory_order_relaxed)) return;
  stream_ = stream;
  bytes_ = bytes;
  name_ = name;
  start_ns_ = now_ns();
}

void RuntimeCall::end() noexcept {
  DeviceEvent event;
  event.kind = EventKind::kRuntime;
  event.device = device_.index;
  event.stream = static_cast<int32_t>(stream_);
  event.name = name_;
  event.correlation = current_call_id();
  event.external = external_id;
  event.thread = thread_number();
  event.start_ns = start_ns_;
  event.end_ns = now_ns();
  event.bytes = bytes_;
  try {
    Hub::get().note_host(event);
  } catch (const std::exception&) {  // no memory for it
  }
}

uint64_t ExternalId::exchange(uint64_t id) noexcept { return std::exchange(external_id, id); }

void timeline_closing(Device& device) noexcept {
  if (!observed_by(kTimeline) || bad_fork.load(std::memory_order_relaxed)) return;
  try {
    Hub::get().close(device);
  } catch (const std::exception& error) {
    Hub::get().problem(error.what());
  }
}

// ---- Listeners
TimelineListener::TimelineListener(Options options) : state_(std::make_shared<State>()) {
  state_->options = std::move(options);
  if (bad_fork.load(std::memory_order_relaxed)) {
    state_->stopped = true;
    return;
  }
  Hub::get().add(state_);
}

TimelineListener::~TimelineListener() {
  if (state_->stopped || bad_fork.load(std::memory_order_relaxed)) return;
  try {
    Hub::get().remove(state_);
  } catch (const std::exception& error) {
    log(FL_LOG_WARNING, std::string("while a listener for device events ended: ") + error.what());
  }
}

namespace {

TimelineListener::Result take(std::deque<DeviceEvent>& events, uint64_t dropped,
                              const std::set<std::string>& problems) {
  TimelineListener::Result result;
  result.events.assign(events.begin(), events.end());
  events.clear();
  result.dropped = dropped;
  result.problems.assign(problems.begin(), problems.end());
  std::stable_sort(result.events.begin(), result.events.end(), [](const DeviceEvent& a, const DeviceEvent& b) {
    return std::pair(a.device, a.start_ns) < std::pair(b.device, b.start_ns);
  });
  return result;
}

}  // namespace

TimelineListener::Result TimelineListener::collect() {
  if (state_->stopped || bad_fork.load(std::memory_order_relaxed)) return {};
  Hub& hub = Hub::get();
  hub.pump();
  const std::lock_guard lock(hub.listeners_mutex);
  return take(state_->events, state_->dropped, hub.problems);
}

TimelineListener::Result TimelineListener::stop() {
  if (state_->stopped.exchange(true) || bad_fork.load(std::memory_order_relaxed)) return {};
  Hub& hub = Hub::get();
  hub.synchronize();
  hub.pump();
  hub.remove(state_);
  const std::lock_guard lock(hub.listeners_mutex);
  Result result = take(state_->events, state_->dropped, hub.problems);
  if (hub.listeners.empty()) hub.problems.clear();
  return result;
}

}  // namespace torch_fl::runtime
