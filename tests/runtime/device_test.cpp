// SPDX-License-Identifier: Apache-2.0
// Opening, errors, loss, fill.
#include <numeric>
#include <thread>
#include <vector>

#include "fake_chip.h"

namespace torch_fl::runtime::test {
namespace {

TEST(Device, IsOpenedOnceOnFirstUseByAnyNumberOfThreads) {
  FakeChip fake;
  EXPECT_FALSE(fake.device().opened());
  std::vector<std::thread> threads;
  for (int i = 0; i < 8; ++i) threads.emplace_back([&] { fake.device().handle(); });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(fake.state().opens, 1);
  EXPECT_TRUE(fake.device().usable());
  EXPECT_EQ(fake.state(1).opens, 0) << "the other device was touched";
}

TEST(Device, AFailedOpenIsReportedAndTriedAgain) {
  FakeChip fake;
  fake.state().open_status = FL_INTERNAL;
  EXPECT_EQ(error_of([&] { fake.device().handle(); }),
            "fake device fl:0: opening the device failed: internal error: the power is off");
  fake.state().open_status = FL_OK;
  fake.device().handle();
  EXPECT_EQ(fake.state().opens, 1);
}

TEST(Device, ErrorsSayWhichDeviceWhatAndWhy) {
  FakeChip fake;
  char data[8] = {};
  fake.state(1).copy_status = FL_INTERNAL;
  const auto at = reinterpret_cast<fl_address>(data);
  fl_status status = FL_OK;
  EXPECT_EQ(error_of([&] { fake.device(1).copy(0, at, at, 8, FL_COPY_DEVICE_TO_DEVICE); }, &status),
            "fake device fl:1: copying memory failed: internal error: the bus caught fire");
  EXPECT_EQ(status, FL_INTERNAL);
  fake.state(1).copy_status = 77;
  EXPECT_CONTAINS(error_of([&] { fake.device(1).copy(0, at, at, 8, FL_COPY_DEVICE_TO_DEVICE); }), "unknown status 77");
}

TEST(Device, AMessageAboutADeclinedCallDoesNotTurnUpLater) {
  FakeChip fake;
  fake.device().handle();
  host_services().set_error(FL_UNSUPPORTED, "float64 is not for me");
  EXPECT_EQ(error_of([&] { fake.device().fail(FL_INTERNAL, "a kernel"); }),
            "fake device fl:0: a kernel failed: internal error");
  EXPECT_EQ(take_plugin_message(), "");
}

TEST(Device, MessagesArePerThreadAndCutAtFourKiB) {
  host_services().set_error(FL_INTERNAL, "mine");
  std::thread([] { EXPECT_EQ(take_plugin_message(), ""); }).join();
  EXPECT_EQ(take_plugin_message(), "mine");
  std::string umlauts(1, 'x');
  while (umlauts.size() < 6000) umlauts += "\xc3\xa4";
  host_services().set_error(FL_INTERNAL, umlauts.c_str());
  const std::string cut = take_plugin_message();
  EXPECT_EQ(cut, umlauts.substr(0, 4095)) << "cut in the middle of a character";
  host_services().set_error(FL_INTERNAL, nullptr);
  EXPECT_EQ(take_plugin_message(), "");
}

TEST(Device, ALostDeviceIsRefusedFromThenOnAndTheOtherGoesOn) {
  FakeChip fake;
  Device& lost = fake.device(0);
  Device& other = fake.device(1);
  lost.handle();
  fake.state().sync_status = FL_DEVICE_LOST;
  fl_status status = FL_OK;
  EXPECT_CONTAINS(error_of([&] { lost.synchronize(); }, &status), "synchronising the device failed: device lost");
  EXPECT_EQ(status, FL_DEVICE_LOST);
  fake.state().sync_status = FL_OK;
  EXPECT_TRUE(lost.lost());
  EXPECT_FALSE(lost.usable());
  for (int i = 0; i < 2; ++i) {
    const std::string message = error_of([&] { lost.handle(); }, &status);
    EXPECT_EQ(status, FL_DEVICE_LOST);
    EXPECT_CONTAINS(message, "fake device fl:0 is lost and can no longer be used");
    EXPECT_CONTAINS(message, "a kernel failed earlier");
  }
  EXPECT_CONTAINS(error_of([&] { lost.event_create(false); }), "is lost");
  EXPECT_CONTAINS(error_of([&] { lost.synchronize(); }), "is lost");
  other.allocator().free(other.allocator().allocate(100, 0));
  other.synchronize();
}

TEST(Device, DefaultsOfProperties) {
  fl_device_properties p = FakeChip::default_properties();
  FakeChip fake(p);
  EXPECT_EQ(fake.device().properties.alignment, 64u);
  EXPECT_EQ(fake.device().properties.size_granularity, 64u);
  EXPECT_EQ(fake.device().properties.max_allocation, p.total_memory);
}

TEST(Device, FillUsesTheChipsOwn) {
  FakeChip fake;
  std::vector<uint16_t> data(1000, 1);
  const uint16_t pattern = 0xabcd;
  fake.device().fill(0, reinterpret_cast<fl_address>(data.data()), &pattern, 2, data.size());
  EXPECT_EQ(data, std::vector<uint16_t>(1000, 0xabcd));
  EXPECT_EQ(fake.state().fills, 1);
  fake.device().fill(0, reinterpret_cast<fl_address>(data.data()), &pattern, 2, 0);
  EXPECT_EQ(fake.state().fills, 1);
}

TEST(Device, FillWorksWithoutOne) {
  FakeChip fake;
  fake.chip.memory.fill = nullptr;
  EXPECT_FALSE(fake.device().can_fill());
  for (const size_t count : {size_t{1}, size_t{3}, size_t{65536}, size_t{200001}}) {
    std::vector<std::array<char, 16>> data(count + 1);
    std::array<char, 16> pattern;
    std::iota(pattern.begin(), pattern.end(), 'a');
    fake.device().fill(0, reinterpret_cast<fl_address>(data.data()), pattern.data(), 16, count);
    for (size_t i = 0; i < count; ++i) ASSERT_EQ(data[i], pattern) << i;
    EXPECT_EQ(data[count][0], 0) << "filled beyond the end";
  }
}

TEST(Device, MemoryInfoWithoutTheChipsOwnCountsWhatIsReserved) {
  FakeChip fake;
  Block* block = fake.device().allocator().allocate(kGiB, 0);
  uint64_t free_bytes = 0, total = 0;
  fake.device().memory_info(&free_bytes, &total);
  EXPECT_EQ(total, 4 * kGiB);
  EXPECT_EQ(free_bytes, 3 * kGiB);
  fake.device().allocator().free(block);
}

TEST(Registry, AnInvalidIndexSaysWhatThereIs) {
  fl_status status = FL_OK;
  EXPECT_EQ(error_of([] { Registry::get().device(7); }, &status),
            "invalid device index 7: there are no fl devices, because no chip's plugin was loaded (python -m torch_fl "
            "shows why)");
  EXPECT_EQ(status, FL_INVALID_ARGUMENT);
  error_of([] { Registry::get().device(-1); });
}

}  // namespace
}  // namespace torch_fl::runtime::test
