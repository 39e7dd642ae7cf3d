// SPDX-License-Identifier: Apache-2.0
// The log of calls: bounded, ordered, and safe while threads record.
#include "call_log.h"

#include <thread>

#include "fake_chip.h"

namespace torch_fl::runtime::test {
namespace {

CallRecord record(int64_t start) {
  CallRecord r;
  r.op = "aten::add.Tensor";
  r.start_ns = start;
  return r;
}

std::vector<int64_t> starts(const CallLog::Result& result) {
  std::vector<int64_t> all;
  for (const CallRecord& r : result.records) all.push_back(r.start_ns);
  return all;
}

TEST(CallLogTest, NothingIsKeptUnlessSomebodyRecords) {
  auto& log = CallLog::get();
  EXPECT_FALSE(CallLog::active());
  log.add(record(1));
  EXPECT_TRUE(log.stop().records.empty());
  log.start(4);
  EXPECT_TRUE(CallLog::active());
  EXPECT_TRUE(log.stop().records.empty());
}

TEST(CallLogTest, TheOldestGoWhenItIsFull) {
  auto& log = CallLog::get();
  for (const int64_t calls : {2, 3, 4, 7}) {
    log.start(3);
    for (int64_t i = 0; i < calls; ++i) log.add(record(i));
    const auto result = log.stop();
    const int64_t kept = std::min<int64_t>(calls, 3);
    EXPECT_EQ(result.dropped, static_cast<uint64_t>(calls - kept));
    ASSERT_EQ(static_cast<int64_t>(result.records.size()), kept);
    for (int64_t i = 0; i < kept; ++i) EXPECT_EQ(starts(result)[static_cast<size_t>(i)], calls - kept + i);
  }
}

TEST(CallLogTest, OneRecordingAtATime) {
  auto& log = CallLog::get();
  EXPECT_CONTAINS(error_of([&] { log.start(0); }), "room for at least 1");
  log.start(1);
  EXPECT_CONTAINS(error_of([&] { log.start(1); }), "recorded already");
  log.stop();
}

TEST(CallLogTest, ThreadsRecordAtOnce) {
  auto& log = CallLog::get();
  log.start(10000);
  std::vector<std::thread> threads;
  for (int t = 0; t < 8; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < 1000; ++i) log.add(record(static_cast<int64_t>(thread_number())));
    });
  }
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(log.stop().records.size(), 8000u);
}

}  // namespace
}  // namespace torch_fl::runtime::test
