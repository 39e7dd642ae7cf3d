// SPDX-License-Identifier: Apache-2.0
// Device events: from a plugin's table to listeners, with the call that caused them.
#include "timeline.h"

#include <atomic>
#include <chrono>
#include <functional>
#include <set>
#include <thread>

#include "fake_chip.h"

namespace torch_fl::runtime::test {
namespace {

constexpr int64_t kMs = 1'000'000;

int64_t now_ns() {
  const auto now = std::chrono::steady_clock::now().time_since_epoch();
  return std::chrono::duration_cast<std::chrono::nanoseconds>(now).count();
}

/// A profiler table whose clock and events the test controls. Its clock runs `rate` times as fast as the host's, from
/// another epoch.
struct FakeProfiler {
  static inline thread_local uint64_t correlation = 0;
  static inline std::mutex mutex;
  static inline std::atomic<int> starts{0}, stops{0}, flushes{0}, correlations{0};
  static inline std::function<void()> while_starting = [] {};
  static inline double rate = 1.0;
  static inline int64_t epoch = 5'000'000'000;
  static inline fl_status start_status = FL_OK, flush_status = FL_OK, clock_status = FL_OK;
  struct Done {
    fl_profile_event event;
    std::string name;
  };
  static inline std::vector<Done> done;

  static void reset() {
    for (auto* count : {&starts, &stops, &flushes, &correlations}) *count = 0;
    while_starting = [] {};
    rate = 1.0;
    start_status = flush_status = clock_status = FL_OK;
    done.clear();
  }
  static int64_t device_time(int64_t host_ns) {
    return static_cast<int64_t>(static_cast<double>(host_ns - epoch) * rate);
  }
  static fl_status start(fl_device) {
    ++starts;
    while_starting();
    return start_status;
  }
  static fl_status stop(fl_device) {
    ++stops;
    return FL_OK;
  }
  static void set_correlation(uint64_t id) {
    ++correlations;
    correlation = id;
  }
  static fl_status flush(fl_device, void (*sink)(void*, const fl_profile_event*), void* context) {
    const std::lock_guard lock(mutex);
    ++flushes;
    if (flush_status != FL_OK) return FakeApi::say(flush_status, "the buffer is gone");
    for (Done& one : done) {
      one.event.name = one.name.c_str();
      sink(context, &one.event);
      one.name.assign(one.name.size(), 'x');  // it was valid during the callback only
    }
    done.clear();
    return FL_OK;
  }
  static fl_status clock(fl_device, int64_t* device_ns, int64_t* host_ns) {
    *host_ns = now_ns();
    *device_ns = device_time(*host_ns);
    return clock_status;
  }
  /// Work of the calling thread's correlation, which ran from `start` to `end` by the host's clock.
  static void ran(int32_t kind, const char* name, int64_t start, int64_t end, uint64_t bytes = 0) {
    fl_profile_event event{};
    event.struct_size = sizeof event;
    event.kind = kind;
    event.correlation = correlation;
    event.start_ns = device_time(start);
    event.end_ns = device_time(end);
    event.bytes = bytes;
    const std::lock_guard lock(mutex);
    done.push_back({event, name});
  }
};

constexpr fl_profiler_api kTable = {sizeof(fl_profiler_api),        &FakeProfiler::start, &FakeProfiler::stop,
                                    &FakeProfiler::set_correlation, &FakeProfiler::flush, &FakeProfiler::clock};

class TimelineTest : public ::testing::Test {
 protected:
  TimelineTest() {
    FakeProfiler::reset();
    fake.chip.profiler = kTable;
    fake.chip.has_profiler = true;
    fake.chip.memory.copy = [](fl_device, fl_stream, fl_address, fl_address, uint64_t bytes,
                               fl_copy_kind) -> fl_status {
      const int64_t start = now_ns();
      FakeProfiler::ran(FL_PROFILE_COPY, "dma", start, start + kMs, bytes);
      return FL_OK;
    };
  }
  ~TimelineTest() override { EXPECT_FALSE(observed_by(kTimeline)) << "a test left a listener behind"; }

  void copy(uint64_t bytes = 64) { fake.device().copy(0, 64, 128, bytes, FL_COPY_HOST_TO_DEVICE); }
  static TimelineListener::Options kinds(uint32_t kinds) {
    TimelineListener::Options options;
    options.kinds = kinds;
    return options;
  }

  FakeChip fake;
};

TEST_F(TimelineTest, NothingIsToldWhileNobodyListens) {
  copy();
  EXPECT_EQ(FakeProfiler::starts, 0);
  EXPECT_EQ(FakeProfiler::correlations, 0);
}

TEST_F(TimelineTest, ACopyCarriesItsCallAndTimes) {
  TimelineListener listener(kinds(kAllEvents));
  const int64_t before = now_ns();
  {
    const Correlation call(77);
    const ExternalId external(99);
    copy(4096);
  }
  const auto result = listener.stop();
  ASSERT_EQ(result.events.size(), 2u);
  const bool first_is_copy = result.events[0].kind == EventKind::kCopy;
  const DeviceEvent& work = result.events[first_is_copy ? 0 : 1];
  const DeviceEvent& launch = result.events[first_is_copy ? 1 : 0];
  EXPECT_STREQ(work.name, "Memcpy HtoD");
  EXPECT_EQ(work.bytes, 4096u);
  EXPECT_EQ(work.correlation, 77u);
  EXPECT_EQ(work.external, 99u);
  EXPECT_NE(work.launch, 0u);
  EXPECT_NEAR(static_cast<double>(work.end_ns - work.start_ns), kMs, kMs / 1000.0);
  EXPECT_GE(work.start_ns, before - kMs);
  EXPECT_LE(work.start_ns, now_ns());
  EXPECT_FALSE(work.host_timed);
  EXPECT_EQ(launch.kind, EventKind::kLaunch);
  EXPECT_STREQ(launch.name, "flMemcpyAsync");
  EXPECT_EQ(launch.launch, work.launch);
  EXPECT_GE(launch.start_ns, before);
  EXPECT_TRUE(result.problems.empty());
  EXPECT_EQ(FakeProfiler::stops, 1);
  EXPECT_EQ(FakeProfiler::correlation, 0u) << "the number of an enqueue that is over";
}

TEST_F(TimelineTest, KernelsAreNamedByThePluginUnlessPortable) {
  TimelineListener listener;
  const auto run = [&](const char* op, bool portable, const char* said) {
    auto seen = Enqueue::kernel(fake.device(), 0, op, portable);
    FakeProfiler::ran(FL_PROFILE_KERNEL, said, now_ns(), now_ns());
  };
  run("aten::mm", false, "gemm_64x64");
  run("aten::add.Tensor", true, "module:run");
  run("aten::relu", false, "");
  const auto result = listener.stop();
  ASSERT_EQ(result.events.size(), 3u);
  EXPECT_STREQ(result.events[0].name, "gemm_64x64");
  EXPECT_STREQ(result.events[0].op, "aten::mm");
  EXPECT_STREQ(result.events[1].name, "aten::add.Tensor [portable]");
  EXPECT_STREQ(result.events[2].name, "aten::relu [fake]");
}

TEST_F(TimelineTest, ADeclinedKernelWasNoLaunch) {
  TimelineListener listener(kinds(kAllEvents));
  {
    auto seen = Enqueue::kernel(fake.device(), 0, "aten::mm", false);
    seen.cancel();
  }
  EXPECT_TRUE(listener.stop().events.empty());
}

TEST_F(TimelineTest, AnEnqueueWithinAnotherHasItsOwnNumber) {
  TimelineListener listener(kinds(kDeviceWork));
  {
    const auto seen = Enqueue::kernel(fake.device(), 0, "aten::outer", true);
    const uint64_t outer = FakeProfiler::correlation;
    copy();
    EXPECT_EQ(FakeProfiler::correlation, outer);
    FakeProfiler::ran(FL_PROFILE_KERNEL, "k", now_ns(), now_ns());
  }
  const auto result = listener.stop();
  ASSERT_EQ(result.events.size(), 2u);
  EXPECT_NE(result.events[0].launch, result.events[1].launch);
}

TEST_F(TimelineTest, TheDevicesClockIsConverted) {
  FakeProfiler::rate = 1.25;  // no crystal is that bad, so a wrong line shows
  TimelineListener listener(kinds(bit_of(EventKind::kCopy)));
  copy();
  std::this_thread::sleep_for(std::chrono::milliseconds(60));
  EXPECT_EQ(listener.collect().events.size(), 1u);  // before there is a second pair: its rate is a guess
  const int64_t start = now_ns();
  FakeProfiler::ran(FL_PROFILE_COPY, "dma", start, start + 20 * kMs);
  std::this_thread::sleep_for(std::chrono::milliseconds(60));
  const auto result = listener.stop();
  ASSERT_EQ(result.events.size(), 1u);
  EXPECT_NEAR(static_cast<double>(result.events[0].start_ns), static_cast<double>(start), 0.1 * kMs);
  EXPECT_NEAR(static_cast<double>(result.events[0].end_ns - result.events[0].start_ns), 20.0 * kMs, 0.1 * kMs);
}

TEST_F(TimelineTest, AChipWithoutStreamsIsTimedByTheHost) {
  fake.chip.has_profiler = false;
  fake.without_streams();
  TimelineListener listener;
  {
    const Correlation call(5);
    const auto seen = Enqueue::kernel(fake.device(), 0, "aten::mm", false);
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  const auto result = listener.stop();
  ASSERT_EQ(result.events.size(), 1u);
  EXPECT_EQ(result.events[0].kind, EventKind::kKernel);
  EXPECT_TRUE(result.events[0].host_timed);
  EXPECT_STREQ(result.events[0].name, "aten::mm [fake]");
  EXPECT_EQ(result.events[0].correlation, 5u);
  EXPECT_GE(result.events[0].end_ns - result.events[0].start_ns, 2 * kMs);
  EXPECT_TRUE(result.problems.empty());
}

TEST_F(TimelineTest, AChipWithStreamsAndNoTableSaysSo) {
  fake.chip.has_profiler = false;
  TimelineListener listener(kinds(kAllEvents));
  copy();
  const auto result = listener.stop();
  ASSERT_EQ(result.events.size(), 1u);
  EXPECT_EQ(result.events[0].kind, EventKind::kLaunch);
  ASSERT_EQ(result.problems.size(), 1u);
  EXPECT_CONTAINS(result.problems[0], "tells no times");
}

TEST_F(TimelineTest, CallsOfTheRuntimeAreEvents) {
  TimelineListener listener(kinds(bit_of(EventKind::kRuntime)));
  fake.device().handle();
  fake.device().synchronize();
  fake.device().synchronize_stream(0);
  Block* block = fake.device().allocator().allocate(1 << 20, 0);
  fake.device().allocator().free(block);
  fake.device().allocator().empty_cache();
  fake.device().pinned().free(fake.device().pinned().allocate(4096));
  std::set<std::string> names;
  for (const DeviceEvent& event : listener.stop().events) {
    EXPECT_LE(event.start_ns, event.end_ns);
    names.insert(event.name);
  }
  for (const char* name : {"flDeviceSynchronize", "flStreamSynchronize", "flMalloc", "flFree", "flHostAlloc"}) {
    EXPECT_EQ(names.count(name), 1u) << name;
  }
}

TEST_F(TimelineTest, ListenersGetWhatHappenedWhileTheyListened) {
  TimelineListener first(kinds(bit_of(EventKind::kCopy)));
  copy(1);
  {
    TimelineListener second(kinds(bit_of(EventKind::kCopy)));
    copy(2);
    const auto result = second.stop();
    ASSERT_EQ(result.events.size(), 1u);
    EXPECT_EQ(result.events[0].bytes, 2u);
    EXPECT_TRUE(second.stop().events.empty());
  }
  EXPECT_EQ(FakeProfiler::stops, 0) << "somebody still listens";
  copy(3);
  const auto result = first.stop();
  ASSERT_EQ(result.events.size(), 3u);
  EXPECT_EQ(FakeProfiler::starts, 1);
  TimelineListener again(kinds(bit_of(EventKind::kCopy)));
  copy(4);
  EXPECT_EQ(again.stop().events.size(), 1u);
  EXPECT_EQ(FakeProfiler::starts, 2);
}

TEST_F(TimelineTest, ABufferIsBoundedAndCounts) {
  auto options = kinds(bit_of(EventKind::kCopy));
  options.capacity = 10;
  TimelineListener listener(std::move(options));
  for (uint64_t i = 1; i <= 25; ++i) copy(i);
  const auto result = listener.stop();
  ASSERT_EQ(result.events.size(), 10u);
  EXPECT_EQ(result.dropped, 15u);
  EXPECT_EQ(result.events.back().bytes, 25u);
}

TEST_F(TimelineTest, PluginsAreFlushedWhileNobodyCollects) {
  uint64_t seen = 0;
  auto options = kinds(bit_of(EventKind::kCopy));
  options.sink = [&seen](const DeviceEvent*, size_t count) { seen += count; };
  TimelineListener listener(std::move(options));
  for (int i = 0; i < 40'000; ++i) copy();
  EXPECT_GE(FakeProfiler::flushes, 2);
  EXPECT_TRUE(listener.stop().events.empty());
  EXPECT_EQ(seen, 40'000u);
}

TEST_F(TimelineTest, ATableThatFailsIsAProblemAndNoMore) {
  FakeProfiler::start_status = FL_INTERNAL;
  TimelineListener listener;
  copy();
  auto result = listener.stop();
  EXPECT_TRUE(result.events.empty());
  ASSERT_EQ(result.problems.size(), 1u);
  EXPECT_CONTAINS(result.problems[0], "starting its profiler failed");

  FakeProfiler::reset();
  TimelineListener other;
  copy();
  FakeProfiler::flush_status = FL_INTERNAL;
  result = other.stop();
  ASSERT_EQ(result.problems.size(), 1u);
  EXPECT_CONTAINS(result.problems[0], "the buffer is gone");
}

TEST_F(TimelineTest, ALostDeviceEndsItsEventsAlone) {
  TimelineListener listener(kinds(kDeviceWork));
  copy();
  fake.device(1).copy(0, 64, 128, 64, FL_COPY_HOST_TO_DEVICE);
  EXPECT_EQ(listener.collect().events.size(), 2u);
  EXPECT_THROW(fake.device(0).fail(FL_DEVICE_LOST, "a test"), Error);
  fake.device(1).copy(0, 64, 128, 64, FL_COPY_HOST_TO_DEVICE);
  EXPECT_EQ(listener.stop().events.size(), 1u);
}

TEST_F(TimelineTest, EventsThatAreNoneAreLeftOut) {
  TimelineListener listener;
  copy();
  FakeProfiler::ran(17, "what", 0, 1);
  FakeProfiler::ran(FL_PROFILE_KERNEL, "backwards", now_ns() + kMs, now_ns());
  const auto result = listener.stop();
  ASSERT_EQ(result.events.size(), 2u);
  EXPECT_EQ(result.problems.size(), 1u);
  for (const DeviceEvent& event : result.events) EXPECT_LE(event.start_ns, event.end_ns);
}

TEST_F(TimelineTest, WhoComesWhileTheProfilerStartsIsToldOf) {
  TimelineListener listener(kinds(bit_of(EventKind::kCopy)));
  const auto copy_of = [this](uint64_t id) {
    const Correlation call(id);
    fake.device(1).copy(0, 64, 128, 64, FL_COPY_HOST_TO_DEVICE);
  };
  std::thread other;
  FakeProfiler::while_starting = [&] {
    other = std::thread(copy_of, 2);
    std::this_thread::sleep_for(std::chrono::milliseconds(50));  // enough for it to pass by, if it can
  };
  copy_of(1);
  ASSERT_TRUE(other.joinable()) << "the device was in use before";
  other.join();
  std::set<uint64_t> calls;
  for (const DeviceEvent& event : listener.stop().events) calls.insert(event.correlation);
  EXPECT_EQ(calls, (std::set<uint64_t>{1, 2}));
}

TEST_F(TimelineTest, ManyThreadsAndListeners) {
  TimelineListener all(kinds(bit_of(EventKind::kCopy)));
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([this, t] {
      for (int i = 0; i < 2000; ++i) {
        const Correlation call(static_cast<uint64_t>(t * 10'000 + i + 1));
        fake.device(t % 2).copy(0, 64, 128, 64, FL_COPY_HOST_TO_DEVICE);
      }
    });
  }
  for (int i = 0; i < 50; ++i) {
    TimelineListener brief;
    (void)brief.collect();
  }
  for (std::thread& thread : threads) thread.join();
  const auto result = all.stop();
  ASSERT_EQ(result.events.size(), 8000u);
  std::set<uint64_t> calls;
  for (const DeviceEvent& event : result.events) calls.insert(event.correlation);
  EXPECT_EQ(calls.size(), 8000u) << "each copy carries the call of its own thread";
}

}  // namespace
}  // namespace torch_fl::runtime::test
