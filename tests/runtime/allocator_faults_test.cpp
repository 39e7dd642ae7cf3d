// SPDX-License-Identifier: Apache-2.0
// The caching allocator when memory runs out, the chip misbehaves, or the device is lost.
#include "allocator.h"
#include "fake_chip.h"

namespace torch_fl::runtime::test {
namespace {

class AllocatorFaultsTest : public ::testing::Test {
 protected:
  FakeChip fake;
  Device& device = fake.device();
  FakeDevice& state = fake.state();
  Allocator& allocator = device.allocator();
};

TEST_F(AllocatorFaultsTest, EmptiesTheCacheAndRetries) {
  state.limit = 40 * kMiB;
  Block* a = allocator.allocate(30 * kMiB, 0);
  allocator.free(a);
  Block* b = allocator.allocate(36 * kMiB, 0);  // fits only without the cached 30 MiB
  EXPECT_EQ(state.frees, 1);
  EXPECT_EQ(allocator.stats().alloc_retries, 1);
  EXPECT_EQ(allocator.stats().ooms, 0);
  allocator.free(b);
}

TEST_F(AllocatorFaultsTest, UsesWhatOtherStreamsStillHeldBeforeItEmptiesTheCache) {
  const StreamId other = device.new_stream(0);
  state.limit = 30 * kMiB;
  Block* a = allocator.allocate(30 * kMiB, 0);
  allocator.record_stream(a, other);
  state.held.insert(device.stream(other));
  allocator.free(a);
  Block* b = allocator.allocate(30 * kMiB, 0);
  EXPECT_EQ(state.frees, 0);
  EXPECT_TRUE(state.held.empty()) << "reused without waiting for the other stream";
  allocator.free(b);
}

TEST_F(AllocatorFaultsTest, ASegmentThatDoesNotFitIsTriedInItsBareSize) {
  state.limit = 3 * kMiB;
  Block* block = allocator.allocate(2 * kMiB, 0);
  EXPECT_EQ(state.used, 2 * kMiB);
  allocator.free(block);
}

TEST_F(AllocatorFaultsTest, OutOfMemorySaysTheFigures) {
  state.limit = 100 * kMiB;
  Block* kept = allocator.allocate(60 * kMiB, 0);
  fl_status status = FL_OK;
  const std::string message = error_of([&] { allocator.allocate(2 * kGiB, 0); }, &status);
  EXPECT_EQ(status, FL_OUT_OF_MEMORY);
  EXPECT_CONTAINS(message, "fl out of memory. Tried to allocate 2.00 GiB. fl:0 has a total capacity of 4.00 GiB");
  EXPECT_CONTAINS(message, "of which 3.94 GiB is free");
  EXPECT_CONTAINS(message, "60.00 MiB is allocated by PyTorch, and 0 bytes is reserved by PyTorch but unallocated.");
  EXPECT_CONTAINS(message, "the fake chip is full");
  EXPECT_CONTAINS(message, "chip fake");
  EXPECT_EQ(allocator.stats().ooms, 1);
  allocator.free(kept);
  allocator.free(allocator.allocate(80 * kMiB, 0));  // and it goes on working
}

TEST_F(AllocatorFaultsTest, AbsurdSizesAreOutOfMemoryToo) {
  for (const uint64_t bytes : {UINT64_MAX, UINT64_MAX - 511, uint64_t{1} << 63, 4 * kGiB + 1}) {
    fl_status status = FL_OK;
    error_of([&] { allocator.allocate(bytes, 0); }, &status);
    EXPECT_EQ(status, FL_OUT_OF_MEMORY) << bytes;
  }
  EXPECT_EQ(state.allocs, 0);
  fl_status status = FL_OK;
  error_of([&] { allocator.allocate(0, 0); }, &status);
  EXPECT_EQ(status, FL_INVALID_ARGUMENT);
}

TEST_F(AllocatorFaultsTest, TheProcessMayBeLimited) {
  allocator.set_memory_fraction(0.01);  // of 4 GiB
  Block* block = allocator.allocate(30 * kMiB, 0);
  EXPECT_CONTAINS(error_of([&] { allocator.allocate(30 * kMiB, 0); }), "this process may use 40.96 MiB of it");
  allocator.free(block);
  allocator.set_memory_fraction(1.0);
  for (const double bad : {-0.1, 1.1, 0.0 / 0.0}) {
    EXPECT_CONTAINS(error_of([&] { allocator.set_memory_fraction(bad); }), "must be from 0 to 1");
  }
}

TEST_F(AllocatorFaultsTest, AnotherFailureOfTheChipIsItsOwnError) {
  state.alloc_status = FL_INTERNAL;
  EXPECT_EQ(error_of([&] { allocator.allocate(1, 0); }),
            "fake device fl:0: allocating memory failed: internal error: the allocator is broken");
}

TEST_F(AllocatorFaultsTest, AMisalignedAddressIsRefused) {
  state.next_address = 0x1001;
  EXPECT_CONTAINS(error_of([&] { allocator.allocate(1, 0); }), "alloc returned the address 0x1001");
}

TEST_F(AllocatorFaultsTest, BlocksOfALostDeviceAreDroppedQuietly) {
  const StreamId other = device.new_stream(0);
  Block* a = allocator.allocate(1000, 0);
  Block* b = allocator.allocate(1000, 0);
  allocator.record_stream(b, other);
  state.sync_status = FL_DEVICE_LOST;
  error_of([&] { device.synchronize(); });
  state.sync_status = FL_OK;
  const int events = state.events_made;
  allocator.free(a);
  allocator.free(b);
  EXPECT_EQ(state.events_made, events) << "a lost device was asked to do something";
  EXPECT_EQ(allocator.stats().allocations.current, 0);
  fl_status status = FL_OK;
  error_of([&] { allocator.allocate(1000, 0); }, &status);
  EXPECT_EQ(status, FL_DEVICE_LOST);
  error_of([&] { allocator.empty_cache(); }, &status);
  EXPECT_EQ(status, FL_DEVICE_LOST);
}

TEST_F(AllocatorFaultsTest, ADoubleFreeIsReportedAndIgnored) {
  Block* block = allocator.allocate(1000, 0);
  allocator.free(block);
  static int errors;
  errors = 0;
  set_log_sink([](fl_log_level level, const char*) { errors += level == FL_LOG_ERROR; });
  allocator.free(block);
  set_log_sink(nullptr);
  EXPECT_EQ(errors, 1);
  EXPECT_EQ(allocator.stats().allocations.current, 0);
  allocator.free(nullptr);
}

}  // namespace
}  // namespace torch_fl::runtime::test
