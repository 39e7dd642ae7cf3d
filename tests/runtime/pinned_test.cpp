// SPDX-License-Identifier: Apache-2.0
// The pinned host pool.
#include <set>

#include "fake_chip.h"

namespace torch_fl::runtime::test {
namespace {

class PinnedTest : public ::testing::Test {
 protected:
  FakeChip fake;
  Device& device = fake.device();
  FakeDevice& state = fake.state();
  PinnedPool& pool = device.pinned();
};

TEST_F(PinnedTest, AFreedBlockIsReused) {
  void* a = pool.allocate(5000);
  std::memset(a, 1, 5000);
  pool.free(a);
  EXPECT_EQ(pool.allocate(4900), a);
  EXPECT_EQ(state.host_allocs, 1);
  pool.free(a);
}

TEST_F(PinnedTest, EverySizeHoldsWhatWasAskedForWithLittleWaste) {
  std::set<void*> live;
  for (uint64_t bytes = 0; bytes < 70000; bytes += 511) {
    void* pointer = pool.allocate(bytes);
    std::memset(pointer, 0x55, bytes);
    EXPECT_TRUE(live.insert(pointer).second);
  }
  const MemoryStats stats = pool.stats();
  EXPECT_LT(stats.reserved_bytes.current, stats.requested_bytes.current * 5 / 4);
  for (void* pointer : live) pool.free(pointer);
  EXPECT_EQ(pool.stats().allocated_bytes.current, 0);
}

TEST_F(PinnedTest, ABlockInUseByAStreamWaitsForIt) {
  const StreamId stream = device.new_stream(0);
  char* a = static_cast<char*>(pool.allocate(5000));
  EXPECT_TRUE(pool.record(a + 123, stream));
  state.held.insert(device.stream(stream));
  pool.free(a);
  void* b = pool.allocate(5000);
  EXPECT_NE(a, b) << "given out while the stream may still read it";
  state.held.clear();
  EXPECT_EQ(pool.allocate(5000), a);
  pool.free(a);
  pool.free(b);
}

TEST_F(PinnedTest, KnowsItsOwnMemory) {
  char* a = static_cast<char*>(pool.allocate(1024));
  EXPECT_TRUE(pool.owns(a));
  EXPECT_TRUE(pool.owns(a + 1023));
  EXPECT_FALSE(pool.owns(a + 1024));
  EXPECT_FALSE(pool.owns(a - 1));
  int other = 0;
  EXPECT_FALSE(pool.owns(&other));
  EXPECT_FALSE(pool.record(&other, 0));
  pool.free(a);
  EXPECT_FALSE(pool.owns(a));
  EXPECT_FALSE(pool.record(a, 0));
}

TEST_F(PinnedTest, EmptyCacheWaitsAndGivesBack) {
  const StreamId stream = device.new_stream(0);
  void* kept = pool.allocate(1000);
  void* freed = pool.allocate(9000);
  pool.record(freed, stream);
  state.held.insert(device.stream(stream));
  pool.free(freed);
  pool.empty_cache();
  EXPECT_TRUE(state.held.empty());
  EXPECT_EQ(state.host_frees, 1);
  pool.free(kept);
  pool.empty_cache();
  EXPECT_EQ(state.host_frees, 2);
  EXPECT_EQ(pool.stats().reserved_bytes.current, 0);
}

TEST_F(PinnedTest, WorksWithoutPinnedMemoryOfTheChip) {
  fake.chip.memory.host_alloc = nullptr;
  fake.chip.memory.host_free = nullptr;
  void* a = pool.allocate(100);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(a) % 64, 0u);
  std::memset(a, 1, 100);
  pool.free(a);
  pool.empty_cache();
}

TEST_F(PinnedTest, AbsurdSizesAreOutOfMemory) {
  fl_status status = FL_OK;
  error_of([&] { pool.allocate(UINT64_MAX); }, &status);
  EXPECT_EQ(status, FL_OUT_OF_MEMORY);
}

TEST_F(PinnedTest, ALostDeviceMayStillWriteToWhatItUsed) {
  void* used = pool.allocate(1000);
  void* unused = pool.allocate(1000);
  pool.record(used, 0);
  state.sync_status = FL_DEVICE_LOST;
  error_of([&] { device.synchronize(); });
  pool.free(used);
  pool.free(unused);
  EXPECT_EQ(pool.stats().active_blocks.current, 1) << "only the one that no stream used may be reused";
  error_of([&] { pool.allocate(1000); });
  // The pool leaks what a lost device holds; here its memory is ordinary.
  FakeApi::host_free(reinterpret_cast<fl_device>(&state), used);
  FakeApi::host_free(reinterpret_cast<fl_device>(&state), unused);
}

}  // namespace
}  // namespace torch_fl::runtime::test
