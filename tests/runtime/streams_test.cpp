// SPDX-License-Identifier: Apache-2.0
// Streams, events, and the calling thread's choice of them.
#include <set>
#include <thread>

#include "fake_chip.h"

namespace torch_fl::runtime::test {
namespace {

TEST(Streams, IdsIndexAGrowingTable) {
  FakeChip fake;
  Device& device = fake.device();
  EXPECT_EQ(device.stream_count(), 1);
  EXPECT_EQ(device.stream(0), nullptr);
  std::set<fl_stream> handles;
  for (int i = 1; i <= 1000; ++i) {
    EXPECT_EQ(device.new_stream(i), i);
    handles.insert(device.stream(i));
  }
  EXPECT_EQ(handles.size(), 1000u);
  for (int i = 1; i <= 1000; ++i) EXPECT_EQ(device.stream_priority(i), i);
  EXPECT_EQ(device.stream_count(), 1001);
  EXPECT_CONTAINS(error_of([&] { device.stream(1001); }),
                  "there is no stream 1001 on device fl:0: ids 0 to 1000 exist");
}

TEST(Streams, ThePoolGoesRoundAndKeepsPrioritiesApart) {
  FakeChip fake;
  Device& device = fake.device();
  std::set<StreamId> normal, high;
  for (int i = 0; i < 96; ++i) {
    normal.insert(device.stream_from_pool(0));
    high.insert(device.stream_from_pool(-1));
  }
  EXPECT_EQ(normal.size(), 32u);
  EXPECT_EQ(high.size(), 32u);
  for (StreamId id : high) {
    EXPECT_EQ(normal.count(id), 0u);
    EXPECT_EQ(device.stream_priority(id), -1);
  }
  EXPECT_EQ(normal.count(0), 0u) << "the default stream is not in the pool";
}

TEST(Streams, ExternalHandlesAreRecognised) {
  FakeChip fake;
  Device& device = fake.device();
  const StreamId own = device.new_stream(0);
  EXPECT_EQ(device.external_stream(nullptr), 0);
  EXPECT_EQ(device.external_stream(device.stream(own)), own);
  const auto foreign = reinterpret_cast<fl_stream>(uintptr_t{0x1234});
  const StreamId id = device.external_stream(foreign);
  EXPECT_EQ(device.stream(id), foreign);
  EXPECT_EQ(device.external_stream(foreign), id);
}

TEST(Streams, QueryAndSynchronize) {
  FakeChip fake;
  Device& device = fake.device();
  const StreamId id = device.new_stream(0);
  EXPECT_TRUE(device.query_stream(id));
  fake.state().held.insert(device.stream(id));
  EXPECT_FALSE(device.query_stream(id));
  device.synchronize_stream(id);
  EXPECT_TRUE(device.query_stream(id));
}

TEST(Streams, AnUnopenedDeviceHasNothingToWaitFor) {
  FakeChip fake;
  fake.device().synchronize();
  fake.device().synchronize_stream(0);
  EXPECT_TRUE(fake.device().query_stream(0));
  EXPECT_EQ(fake.state().opens, 0);
}

TEST(Streams, Events) {
  FakeChip fake;
  Device& device = fake.device();
  const StreamId id = device.new_stream(0);
  const fl_event event = device.event_create(false);
  EXPECT_TRUE(device.event_query(event)) << "never recorded is done";
  fake.state().held.insert(device.stream(id));
  device.event_record(event, id);
  EXPECT_FALSE(device.event_query(event));
  device.event_wait(event, 0);
  EXPECT_EQ(fake.state().event_waits, 1);
  device.event_synchronize(event);
  EXPECT_TRUE(device.event_query(event));
  EXPECT_EQ(device.event_elapsed_ns(event, event), 1234);
  device.event_destroy(event);
  EXPECT_EQ(fake.state().events_destroyed, 1);
}

TEST(Streams, AChipThatCannotTimeSaysSo) {
  FakeChip fake;
  fake.chip.stream.event_elapsed = nullptr;
  const fl_event event = fake.device().event_create(true);
  fl_status status = FL_OK;
  EXPECT_CONTAINS(error_of([&] { fake.device().event_elapsed_ns(event, event); }, &status), "does not time events");
  EXPECT_EQ(status, FL_UNSUPPORTED);
  fake.device().event_destroy(event);
}

TEST(Streams, ASynchronousChipHasTrivialOnes) {
  FakeChip fake;
  fake.without_streams();
  Device& device = fake.device();
  const StreamId a = device.stream_from_pool(0), b = device.new_stream(-1);
  EXPECT_NE(a, b);
  EXPECT_EQ(device.stream(a), nullptr);
  device.synchronize_stream(a);
  EXPECT_TRUE(device.query_stream(b));
  const fl_event event = device.event_create(false);
  EXPECT_NE(event, nullptr);
  device.event_record(event, a);
  device.event_wait(event, b);
  device.event_synchronize(event);
  EXPECT_TRUE(device.event_query(event));
  EXPECT_CONTAINS(error_of([&] { device.event_elapsed_ns(event, event); }), "enable_timing");
  device.event_destroy(event);
  EXPECT_EQ(fake.state().events_made, 0);
}

TEST(Streams, ASynchronousChipIsTimedByTheHost) {
  FakeChip fake;
  fake.without_streams();
  Device& device = fake.device();
  const fl_event start = device.event_create(true), end = device.event_create(true);
  device.event_record(start, 0);
  std::this_thread::sleep_for(std::chrono::milliseconds(5));
  device.event_record(end, 0);
  EXPECT_GE(device.event_elapsed_ns(start, end), 5000000);
  EXPECT_LT(device.event_elapsed_ns(start, end), 5000000000);
  device.event_destroy(start);
  device.event_destroy(end);
}

TEST(ThreadState, EachThreadHasItsOwnDeviceAndStreams) {
  set_current_device(1);
  set_current_stream(1, 5);
  set_current_stream(63, 7);
  std::thread([] {
    EXPECT_EQ(current_device(), 0);
    EXPECT_EQ(current_stream(1), 0);
    set_current_stream(1, 9);
  }).join();
  EXPECT_EQ(current_device(), 1);
  EXPECT_EQ(current_stream(1), 5);
  EXPECT_EQ(current_stream(63), 7);
  EXPECT_EQ(current_stream(0), 0);
  set_current_stream(64, 1);
  set_current_stream(-1, 1);
  EXPECT_EQ(current_stream(64), 0);
  EXPECT_EQ(current_stream(-1), 0);
  set_current_device(0);
  set_current_stream(1, 0);
}

}  // namespace
}  // namespace torch_fl::runtime::test
