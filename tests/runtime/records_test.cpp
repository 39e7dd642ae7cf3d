// SPDX-License-Identifier: Apache-2.0
// Records of calls: bounded, ordered, safe while threads record, end, and recordings come and go.
#include "records.h"

#include <atomic>
#include <cstdio>
#include <fstream>
#include <sstream>
#include <thread>

#include "fake_chip.h"
#include "recorded.h"

namespace torch_fl::runtime::test {
namespace {

Record record(uint64_t id, uint32_t subject = 0) {
  Record r{};
  r.id = id;
  r.subject = subject;
  r.sequence = -1;
  return r;
}

void add(const Record& r) { Records::get().add(r, Records::get().running(), 1); }

Recorded stop(Context context = {}) { return {Records::get().stop(), std::move(context)}; }

std::vector<uint64_t> ids(const Recorded& recorded) {
  std::vector<uint64_t> all;
  for (size_t i = 0; i < recorded.size(); ++i) all.push_back(recorded[i].id);
  return all;
}

Subject subject(const std::string& op, const std::string& route = "kernel") {
  Subject s;
  s.op = op;
  s.chip = "fake";
  s.route = route;
  s.shapes = {{2, 3}, {}};
  s.dtypes = {"float32", "int64"};
  return s;
}

std::string contents(const std::string& path) {
  std::ostringstream text;
  text << std::ifstream(path).rdbuf();
  return text.str();
}

TEST(RecordsTest, NothingIsKeptUnlessSomebodyRecords) {
  EXPECT_EQ(Records::get().running(), 0u);
  EXPECT_FALSE(observing());
  add(record(1));
  EXPECT_EQ(stop().size(), 0u);
  Records::get().start(4);
  EXPECT_TRUE(observed_by(kRecords));
  EXPECT_EQ(stop().size(), 0u);
  EXPECT_FALSE(observing());
}

TEST(RecordsTest, TheOldestGoBeyondTheCapacity) {
  for (const uint64_t calls : {2, 3, 4, 7, 5000}) {
    Records::get().start(3);
    for (uint64_t i = 1; i <= calls; ++i) add(record(i));
    const Recorded recorded = stop();
    const uint64_t kept = std::min<uint64_t>(calls, 3);
    EXPECT_EQ(recorded.dropped(), calls - kept);
    ASSERT_EQ(recorded.size(), kept);
    for (uint64_t i = 0; i < kept; ++i) EXPECT_EQ(recorded[i].id, calls - kept + i + 1);
  }
}

TEST(RecordsTest, ALongRecordingIsBounded) {
  Records::get().start(10 * RecordChunk::kSize);
  for (uint64_t i = 1; i <= 100 * RecordChunk::kSize; ++i) add(record(i));
  const Records::Result result = Records::get().stop();
  EXPECT_LE(result.chunks.size(), 12u);
  EXPECT_GE(result.dropped, 88u * RecordChunk::kSize);
}

TEST(RecordsTest, WhatCallsAreAboutIsBounded) {
  constexpr uint32_t kRoom = 1024;  // what the smallest capacity has
  ASSERT_EQ(Records::room_for_subjects(1), kRoom);
  const uint32_t recording = Records::get().start(1);
  const auto intern = [&](int64_t size) {
    Subject s = subject("aten::neg");
    s.shapes = {{size}};
    s.reason = "found " + std::to_string(size);
    return Records::get().intern(recording, std::move(s));
  };
  EXPECT_EQ(intern(0), 1u);
  uint32_t last = 0;
  for (int64_t i = 0; i < 10 * kRoom; ++i) last = intern(i);
  EXPECT_EQ(last, 2 * kRoom + 1);
  EXPECT_EQ(intern(kRoom - 1), kRoom);  // those that are known stay as they are
  add(record(1, last));
  const Recorded recorded = stop();
  EXPECT_EQ(recorded.subject(recorded[0]).op, "aten::neg");
  EXPECT_TRUE(recorded.subject(recorded[0]).shapes.empty());
  EXPECT_TRUE(recorded.subject(recorded[0]).reason.empty());
  ASSERT_EQ(recorded.notes().size(), 1u);
  EXPECT_NE(recorded.notes()[0].find("more than 1024 kinds"), std::string::npos);

  Records::get().start(1);
  EXPECT_TRUE(stop().notes().empty());
}

TEST(RecordsTest, OneRecordingAtATime) {
  EXPECT_CONTAINS(error_of([&] { Records::get().start(0); }), "room for at least 1");
  Records::get().start(1);
  EXPECT_CONTAINS(error_of([&] { Records::get().start(1); }), "recorded already");
  stop();
}

TEST(RecordsTest, ACallThatEndsAfterItsRecordingIsNotOfTheNext) {
  const uint32_t first = Records::get().start(4);
  stop();
  Records::get().start(4);
  Records::get().add(record(1), first, 1);
  EXPECT_EQ(Records::get().intern(first, subject("aten::add")), 0u);
  add(record(2));
  EXPECT_EQ(ids(stop()), std::vector<uint64_t>{2});
}

TEST(RecordsTest, ThreadsRecordAtOnceAndEnd) {
  Records::get().start(100000);
  std::vector<std::thread> threads;
  for (int t = 0; t < 8; ++t) {
    threads.emplace_back([] {
      for (int i = 0; i < 3000; ++i) add(record(next_call_id()));
    });
  }
  for (auto& thread : threads) thread.join();
  const Recorded recorded = stop();
  EXPECT_EQ(recorded.size(), 24000u);
  std::set<uint64_t> numbers;
  for (size_t i = 0; i < recorded.size(); ++i) {
    numbers.insert(recorded.thread(i));
    if (i > 0) EXPECT_LT(recorded[i - 1].id, recorded[i].id);
  }
  EXPECT_EQ(numbers.size(), 8u);
}

TEST(RecordsTest, RecordingsComeAndGoWhileThreadsRecord) {
  std::atomic<bool> over{false};
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&over] {
      while (!over.load()) {
        const uint32_t recording = Records::get().running();
        const uint32_t number = Records::get().intern(recording, subject("aten::add"));
        Records::get().add(record(next_call_id(), number), recording, 1);
      }
    });
  }
  uint64_t seen = 0;
  for (int i = 0; i < 200; ++i) {
    Records::get().start(3000);
    std::this_thread::yield();
    const Recorded recorded = stop();
    seen += recorded.size();
    for (size_t k = 0; k < recorded.size(); ++k) EXPECT_EQ(recorded.subject(recorded[k]).op, "aten::add");
  }
  over.store(true);
  for (auto& thread : threads) thread.join();
  EXPECT_GT(seen, 0u);
}

TEST(RecordsTest, NothingIsInternedBetweenRecordings) {
  Records& records = Records::get();
  EXPECT_EQ(records.intern(0, subject("aten::add")), 0u);
  EXPECT_EQ(records.rerouted(0, 0, "host", "no kernel"), 0u);
  const uint32_t recording = records.start(4);
  EXPECT_EQ(records.intern(0, subject("aten::add")), 0u);
  const uint32_t add = records.intern(recording, subject("aten::add"));
  EXPECT_EQ(add, 1u);
  records.add(record(1, add), recording, 1);
  const Recorded recorded = stop();
  ASSERT_EQ(recorded.size(), 1u);
  EXPECT_EQ(recorded.subject(recorded[0]).op, "aten::add");
  EXPECT_EQ(records.intern(recording, subject("aten::add")), 0u);
}

TEST(RecordsTest, WhatCallsHaveInCommonIsKeptOnce) {
  const uint32_t recording = Records::get().start(4);
  Records& records = Records::get();
  const uint32_t add = records.intern(recording, subject("aten::add"));
  EXPECT_NE(add, 0u);
  EXPECT_EQ(records.intern(recording, subject("aten::add")), add);
  const uint32_t other = records.rerouted(recording, add, "host", "declined");
  EXPECT_EQ(records.intern(recording, subject("aten::mul")), other + 1);
  const Records::Result result = records.stop();
  EXPECT_EQ(result.subjects[other].op, "aten::add");
  EXPECT_EQ(result.subjects[other].reason, "declined");
}

TEST(RecordedTest, SelfTimesAreWithoutInnerCalls) {
  Records::get().start(10);
  for (const auto& [id, parent, ns] :
       std::vector<std::array<int64_t, 3>>{{3, 2, 10}, {2, 1, 40}, {4, 1, 5}, {1, 0, 100}}) {
    Record r = record(static_cast<uint64_t>(id));
    r.parent = parent == 0 ? 0 : static_cast<uint32_t>(id - parent);
    r.host_ns = ns;
    add(r);
  }
  const Recorded recorded = stop();
  std::vector<int64_t> self;
  for (size_t i = 0; i < recorded.size(); ++i) self.push_back(recorded.self_host_ns(i));
  EXPECT_EQ(self, (std::vector<int64_t>{55, 30, 10, 5}));
}

TEST(RecordedTest, DeviceEventsBelongToTheirCalls) {
  Records::get().start(10);
  add(record(7));
  add(record(9));
  Context context;
  const auto event = [&](uint64_t call, int64_t ns, EventKind kind) {
    context.events.push_back(
        {100 - static_cast<int64_t>(call), 100 - static_cast<int64_t>(call) + ns, call, 0, "k", 1, 0, 0, kind});
  };
  event(7, 10, EventKind::kKernel);
  event(7, 5, EventKind::kCopy);
  event(9, 3, EventKind::kFill);
  event(9, 99, EventKind::kRuntime);
  event(8, 4, EventKind::kKernel);
  const Recorded recorded = stop(std::move(context));
  EXPECT_EQ(recorded[0].device_ns, 15);
  EXPECT_EQ(recorded[1].device_ns, 3);
  EXPECT_TRUE(std::is_sorted(recorded.events().begin(), recorded.events().end(),
                             [](const auto& a, const auto& b) { return a.start_ns < b.start_ns; }));
}

TEST(RecordedTest, BackwardCallsHaveTheSiteOfTheirForwardCall) {
  Records::get().start(10);
  const auto forward = [](uint64_t id, int64_t sequence, uint32_t site) {
    Record r = record(id);
    r.sequence = sequence;
    r.site = site;
    r.layer = site;
    add(r);
  };
  forward(1, 5, 1);
  forward(2, 5, 2);  // made no node of its own
  forward(3, 7, 3);
  const auto backward = [](uint64_t id, int64_t sequence, uint32_t thread) {
    Record r = record(id);
    r.sequence = sequence;
    r.flags = Record::kBackward;
    r.forward_thread = thread;
    add(r);
  };
  backward(10, 7, 1);
  backward(11, 6, 1);  // of a view, which has no record: the next call stands for it
  backward(12, 5, 1);
  backward(13, 5, 2);   // another thread's
  backward(14, -1, 1);  // a leaf's
  backward(15, 4, 1);   // its forward call came before the recording
  Context context;
  context.start_thread = 1;
  context.start_sequence = 5;
  context.sites = context.layers = {"", "a", "b", "c"};
  const Recorded recorded = stop(std::move(context));
  std::vector<uint32_t> sites;
  for (size_t i = 3; i < recorded.size(); ++i) {
    sites.push_back(recorded[i].site);
    EXPECT_EQ(recorded[i].layer, recorded[i].site);
  }
  EXPECT_EQ(sites, (std::vector<uint32_t>{3, 3, 1, 0, 0, 0}));
}

TEST(RecordedTest, GroupsAreSums) {
  const uint32_t recording = Records::get().start(10);
  const uint32_t add_kernel = Records::get().intern(recording, subject("aten::add"));
  const uint32_t add_host = Records::get().intern(recording, subject("aten::add", "host"));
  const uint32_t mul = Records::get().intern(recording, subject("aten::mul"));
  uint64_t id = 0;
  for (const auto& [about, site] :
       std::vector<std::array<uint32_t, 2>>{{add_kernel, 1}, {add_host, 2}, {mul, 3}, {add_kernel, 3}}) {
    Record r = record(++id, about);
    r.site = site;
    r.host_ns = 10;
    r.bytes = 4;
    r.copy_in_ns = 1;
    r.copy_out_ns = 2;
    r.flags = id == 2 ? Record::kFailed : 0;
    add(r);
  }
  Context context;
  context.sites = {"", "x.py:1 (f)", "y.py:2 (g)", "x.py:1 (f)"};  // two instructions of one line
  const Recorded recorded = stop(std::move(context));
  const auto calls = [&](uint32_t by) {
    std::vector<uint64_t> all;
    for (const CallGroup& group : recorded.groups(by)) all.push_back(group.calls);
    std::sort(all.begin(), all.end());
    return all;
  };
  EXPECT_EQ(calls(0), (std::vector<uint64_t>{4}));
  EXPECT_EQ(calls(kByOp), (std::vector<uint64_t>{1, 3}));
  EXPECT_EQ(calls(kByOp | kByRoute), (std::vector<uint64_t>{1, 1, 2}));
  EXPECT_EQ(calls(kBySite), (std::vector<uint64_t>{1, 3}));
  EXPECT_EQ(calls(kByShapes), (std::vector<uint64_t>{4}));
  const CallGroup all = recorded.groups(0).at(0);
  EXPECT_EQ(all.bytes, 16u);
  EXPECT_EQ(all.failed, 1u);
  EXPECT_EQ(all.host_ns, 40);
  EXPECT_EQ(all.copy_ns, 12);
}

TEST(RecordedTest, MemoryKeepsItsPeak) {
  Records::get().start(1000);
  for (uint64_t i = 1; i <= 1000; ++i) {
    Record r = record(i);
    r.start_ns = static_cast<int64_t>(i);
    r.allocated_bytes = i == 321 ? 999 : i % 10;
    add(r);
  }
  const Recorded recorded = stop();
  EXPECT_EQ(recorded.memory(0).size(), 1000u);
  const auto samples = recorded.memory(10);
  ASSERT_LE(samples.size(), 10u);
  EXPECT_EQ(std::count_if(samples.begin(), samples.end(), [](const auto& s) { return s.allocated_bytes == 999; }), 1);
}

TEST(RecordedTest, FilesHoldOddNames) {
  const uint32_t recording = Records::get().start(4);
  Subject odd = subject("aten::\"quoted\\\"\n");
  odd.reason = "not utf-8: \xff \xc3(, and \xed\xa0\x80; but \xc3\xa9 is";
  Record r = record(1, Records::get().intern(recording, odd));
  r.start_ns = 1234567;
  r.host_ns = 1005;
  add(r);
  const Recorded recorded = stop();
  const std::string path = testing::TempDir() + "/records_test.json";
  recorded.write_json_lines(path);
  const std::string lines = contents(path);
  EXPECT_CONTAINS(lines, R"("op":"aten::\"quoted\\\"\u000a")");
  EXPECT_CONTAINS(lines, "not utf-8: \\ufffd \\ufffd(, and \\ufffd\\ufffd\\ufffd; but \xc3\xa9 is");
  EXPECT_CONTAINS(lines, R"("shapes":[[2,3],[]])");
  recorded.write_chrome_trace(path);
  EXPECT_CONTAINS(contents(path), R"("ts":1234.567,"dur":1.005)");
  std::remove(path.c_str());
  EXPECT_CONTAINS(error_of([&] { recorded.write_json_lines("/nowhere/at/all"); }), "cannot write /nowhere/at/all");
}

}  // namespace
}  // namespace torch_fl::runtime::test
