// SPDX-License-Identifier: Apache-2.0
// The caching allocator: reuse, splitting and joining, streams, statistics.
#include "allocator.h"

#include <random>
#include <vector>

#include "fake_chip.h"

namespace torch_fl::runtime::test {
namespace {

class AllocatorTest : public ::testing::Test {
 protected:
  FakeChip fake;
  Device& device = fake.device();
  FakeDevice& state = fake.state();
  Allocator& allocator = device.allocator();
};

TEST_F(AllocatorTest, NothingIsAskedOfTheChipBeforeTheFirstAllocation) {
  EXPECT_EQ(state.opens, 0);
  allocator.empty_cache();
  EXPECT_EQ(state.opens, 0);
  allocator.free(allocator.allocate(1, 0));
  EXPECT_EQ(state.opens, 1);
}

TEST_F(AllocatorTest, RoundsUpAndRemembersWhatWasAskedFor) {
  Block* block = allocator.allocate(513, 0);
  EXPECT_EQ(block->size, 1024u);
  EXPECT_EQ(block->requested, 513u);
  EXPECT_EQ(block->stream, 0);
  EXPECT_EQ(block->device, &device);
  EXPECT_NE(block->address, 0u);
  allocator.free(block);
}

TEST_F(AllocatorTest, AFreedBlockIsReusedWithoutTheChip) {
  Block* first = allocator.allocate(1000, 0);
  const fl_address address = first->address;
  allocator.free(first);
  Block* second = allocator.allocate(900, 0);
  EXPECT_EQ(second->address, address);
  EXPECT_EQ(state.allocs, 1);
  EXPECT_EQ(state.frees, 0);
  allocator.free(second);
}

TEST_F(AllocatorTest, SmallBlocksShareASegmentWithoutOverlap) {
  Block* a = allocator.allocate(512, 0);
  Block* b = allocator.allocate(512, 0);
  Block* c = allocator.allocate(4096, 0);
  EXPECT_EQ(state.allocs, 1);
  EXPECT_GE(b->address, a->address + a->size);
  EXPECT_GE(c->address, b->address + b->size);
  for (Block* block : {a, b, c}) allocator.free(block);
}

TEST_F(AllocatorTest, FreedNeighboursAreJoinedInEveryOrder) {
  for (const std::vector<size_t>& order :
       std::vector<std::vector<size_t>>{{0, 1, 2}, {2, 1, 0}, {0, 2, 1}, {1, 0, 2}}) {
    std::vector<Block*> blocks;
    for (int i = 0; i < 3; ++i) blocks.push_back(allocator.allocate(512 * kKiB, 0));
    const fl_address start = blocks[0]->address;
    for (size_t i : order) allocator.free(blocks[i]);
    EXPECT_EQ(allocator.stats().inactive_split_blocks.current, 0);
    Block* whole = allocator.allocate(kMiB, 0);
    EXPECT_EQ(whole->address, start);
    allocator.free(whole);
  }
  EXPECT_EQ(state.allocs, 1);
}

TEST_F(AllocatorTest, LargeBlocksAreSplitOnlyWhereTheRestIsWorthIt) {
  Block* a = allocator.allocate(2 * kMiB, 0);  // from a shared segment of 20 MiB
  EXPECT_EQ(a->size, 2 * kMiB);
  EXPECT_EQ(allocator.stats().reserved_bytes.current, static_cast<int64_t>(20 * kMiB));
  Block* rest = allocator.allocate(17 * kMiB + 512, 0);  // leaves less than 1 MiB: taken whole
  EXPECT_EQ(rest->size, 18 * kMiB);
  EXPECT_EQ(rest->requested, 17 * kMiB + 512);
  EXPECT_EQ(state.allocs, 1);
  allocator.free(a);
  allocator.free(rest);
}

TEST_F(AllocatorTest, VeryLargeRequestsGetTheirOwnSegment) {
  Block* block = allocator.allocate(33 * kMiB, 0);
  EXPECT_EQ(allocator.stats().reserved_bytes.current, static_cast<int64_t>(34 * kMiB));
  allocator.free(block);
}

TEST_F(AllocatorTest, BlocksOfOneStreamAreNotGivenToAnother) {
  const StreamId other = device.new_stream(0);
  Block* a = allocator.allocate(1000, 0);
  const fl_address address = a->address;
  allocator.free(a);
  Block* b = allocator.allocate(1000, other);
  EXPECT_NE(b->address, address);
  EXPECT_EQ(b->stream, other);
  EXPECT_EQ(state.allocs, 2);
  allocator.free(b);
}

TEST_F(AllocatorTest, AnUnknownStreamIsRefused) {
  EXPECT_CONTAINS(error_of([&] { allocator.allocate(1, 17); }), "there is no stream 17");
  EXPECT_CONTAINS(error_of([&] { allocator.allocate(1, -2); }), "there is no stream -2");
  Block* block = allocator.allocate(1, 0);
  EXPECT_CONTAINS(error_of([&] { allocator.record_stream(block, 17); }), "there is no stream 17");
  allocator.free(block);
}

TEST_F(AllocatorTest, ABlockThatAnotherStreamUsesWaitsForIt) {
  const StreamId other = device.new_stream(0);
  Block* a = allocator.allocate(1000, 0);
  const fl_address address = a->address;
  allocator.record_stream(a, other);
  allocator.record_stream(a, other);
  state.held.insert(device.stream(other));
  allocator.free(a);
  EXPECT_EQ(state.events_made, 1);
  EXPECT_EQ(allocator.stats().allocations.current, 0);
  EXPECT_EQ(allocator.stats().active_blocks.current, 1) << "the chip may still be using it";
  Block* b = allocator.allocate(1000, 0);
  EXPECT_NE(b->address, address) << "given out while another stream may still use it";
  state.held.clear();
  Block* c = allocator.allocate(1000, 0);
  EXPECT_EQ(c->address, address);
  allocator.free(b);
  allocator.free(c);
  EXPECT_EQ(allocator.stats().active_blocks.current, 0);
}

TEST_F(AllocatorTest, UseOnItsOwnStreamNeedsNoEvent) {
  Block* block = allocator.allocate(1000, 0);
  allocator.record_stream(block, 0);
  allocator.free(block);
  EXPECT_EQ(state.events_made, 0);
}

TEST_F(AllocatorTest, EventsAreRecycled) {
  const StreamId other = device.new_stream(0);
  for (int i = 0; i < 10; ++i) {
    Block* block = allocator.allocate(1000, 0);
    allocator.record_stream(block, other);
    allocator.free(block);
  }
  EXPECT_EQ(state.events_made, 1);
}

TEST_F(AllocatorTest, RecordedStreamsDoNotOutliveTheAllocation) {
  const StreamId other = device.new_stream(0);
  Block* block = allocator.allocate(1000, 0);
  allocator.record_stream(block, other);
  allocator.free(block);
  block = allocator.allocate(1000, 0);
  state.held.insert(device.stream(other));
  const fl_address address = block->address;
  allocator.free(block);
  block = allocator.allocate(1000, 0);
  EXPECT_EQ(block->address, address);
  allocator.free(block);
}

TEST_F(AllocatorTest, EmptyCacheGivesBackWhollyFreeSegmentsAfterWaiting) {
  Block* kept = allocator.allocate(1000, 0);
  Block* large = allocator.allocate(5 * kMiB, 0);
  allocator.free(large);
  allocator.empty_cache();
  EXPECT_EQ(state.syncs, 1) << "the chip was not awaited before its memory was freed";
  EXPECT_EQ(state.frees, 1);
  EXPECT_EQ(state.live.size(), 1u);
  allocator.free(kept);
  allocator.empty_cache();
  EXPECT_EQ(state.live.size(), 0u);
  const MemoryStats stats = allocator.stats();
  EXPECT_EQ(stats.reserved_bytes.current, 0);
  EXPECT_EQ(stats.segments.current, 0);
  EXPECT_EQ(stats.device_allocs, 2);
  EXPECT_EQ(stats.device_frees, 2);
}

TEST_F(AllocatorTest, StatisticsAddUp) {
  Block* a = allocator.allocate(100, 0);
  Block* b = allocator.allocate(600, 0);
  MemoryStats stats = allocator.stats();
  EXPECT_EQ(stats.allocated_bytes.current, 512 + 1024);
  EXPECT_EQ(stats.requested_bytes.current, 700);
  EXPECT_EQ(stats.allocations.current, 2);
  EXPECT_EQ(stats.inactive_split_blocks.current, 1);
  EXPECT_EQ(stats.inactive_split_bytes.current, static_cast<int64_t>(2 * kMiB) - 1536);
  allocator.free(b);
  stats = allocator.stats();
  EXPECT_EQ(stats.allocated_bytes.current, 512);
  EXPECT_EQ(stats.allocated_bytes.peak, 1536);
  EXPECT_EQ(stats.allocated_bytes.allocated, 1536);
  EXPECT_EQ(stats.allocated_bytes.freed, 1024);
  allocator.reset_peak();
  allocator.reset_accumulated();
  stats = allocator.stats();
  EXPECT_EQ(stats.allocated_bytes.peak, 512);
  EXPECT_EQ(stats.allocated_bytes.allocated, 0);
  allocator.free(a);
}

TEST_F(AllocatorTest, FindsTheBlockAroundAnAddress) {
  Block* a = allocator.allocate(1024, 0);
  Block* b = allocator.allocate(1024, 0);
  EXPECT_EQ(allocator.find(a->address), a);
  EXPECT_EQ(allocator.find(a->address + 1023), a);
  EXPECT_EQ(allocator.find(b->address), b);
  EXPECT_EQ(allocator.find(b->address + b->size), nullptr) << "free memory is no allocation";
  EXPECT_EQ(allocator.find(1), nullptr);
  EXPECT_EQ(allocator.find(~fl_address{0}), nullptr);
  allocator.free(a);
  EXPECT_EQ(allocator.find(a->address), nullptr);
  allocator.free(b);
}

TEST_F(AllocatorTest, AMillionRandomStepsKeepEveryInvariant) {
  std::mt19937 random(7);
  const StreamId streams[] = {0, device.new_stream(0)};
  std::vector<Block*> live;
  uint64_t allocated = 0;
  for (int step = 0; step < 200000; ++step) {
    if (live.size() < 200 && random() % 2 == 0) {
      const uint64_t bytes = random() % 3 != 0 ? 1 + random() % 20000 : 1 + random() % (3 * kMiB);
      Block* block = allocator.allocate(bytes, streams[random() % 2]);
      ASSERT_GE(block->size, bytes);
      ASSERT_EQ(block->address % 512, 0u);
      std::memcpy(reinterpret_cast<void*>(block->address), &step, sizeof step);
      block->requested = static_cast<uint64_t>(step) << 32 | bytes;  // what lies in it, for the check below
      allocated += block->size;
      live.push_back(block);
    } else if (!live.empty()) {
      const size_t i = random() % live.size();
      Block* block = live[i];
      int found = 0;
      std::memcpy(&found, reinterpret_cast<void*>(block->address), sizeof found);
      ASSERT_EQ(static_cast<uint64_t>(found), block->requested >> 32) << "two blocks overlapped";
      block->requested &= 0xffffffff;
      allocated -= block->size;
      allocator.free(block);
      live[i] = live.back();
      live.pop_back();
    }
    ASSERT_EQ(allocator.stats().allocated_bytes.current, static_cast<int64_t>(allocated));
  }
  for (Block* block : live) {
    block->requested &= 0xffffffff;
    allocator.free(block);
  }
  allocator.empty_cache();
  const MemoryStats stats = allocator.stats();
  for (const Stat& stat : {stats.allocated_bytes, stats.active_bytes, stats.reserved_bytes, stats.requested_bytes,
                           stats.inactive_split_blocks, stats.inactive_split_bytes, stats.segments}) {
    EXPECT_EQ(stat.current, 0);
    EXPECT_EQ(stat.allocated, stat.freed);
  }
  EXPECT_TRUE(state.live.empty());
}

TEST(AllocatorLimits, HonoursAlignmentGranularityAndPadding) {
  fl_device_properties p = FakeChip::default_properties();
  p.alignment = 64 * kKiB;
  p.size_granularity = 96 * kKiB;
  p.padding = 100;
  FakeChip fake(p);
  Allocator& allocator = fake.device().allocator();
  Block* a = allocator.allocate(1, 0);
  Block* b = allocator.allocate(70 * kKiB, 0);
  Block* c = allocator.allocate(40 * kMiB, 0);
  for (Block* block : {a, b, c}) EXPECT_EQ(block->address % (64 * kKiB), 0u);
  EXPECT_EQ(a->size, 64 * kKiB);
  EXPECT_EQ(b->size, 128 * kKiB);
  for (const auto& [address, bytes] : fake.state().live) {
    EXPECT_EQ(bytes % (96 * kKiB), 0u);
    for (Block* block : {a, b, c}) {
      if (block->address < address || block->address >= address + bytes) continue;
      EXPECT_LE(block->address + block->size + 100, address + bytes) << "no padding behind the last block";
    }
  }
  for (Block* block : {a, b, c}) allocator.free(block);
}

TEST(AllocatorWithoutCaching, GivesEachBlockAnAllocationOfItsOwnAndSize) {
  setenv("TORCH_FL_MEMORY_CACHING", "0", 1);
  fl_device_properties p = FakeChip::default_properties();
  p.size_granularity = 4;
  FakeChip fake(p);
  Allocator& allocator = fake.device().allocator();
  unsetenv("TORCH_FL_MEMORY_CACHING");
  Block* a = allocator.allocate(5, 0);
  Block* b = allocator.allocate(3 * kMiB + 1, 0);
  EXPECT_EQ(fake.state().live, (std::map<fl_address, uint64_t>{{a->address, 8}, {b->address, 3 * kMiB + 4}}));
  allocator.free(a);
  EXPECT_EQ(fake.state().live.size(), 1u);
  const StreamId other = fake.device().new_stream(0);
  allocator.record_stream(b, other);
  allocator.free(b);  // once the other stream is done
  allocator.free(allocator.allocate(5, 0));
  EXPECT_TRUE(fake.state().live.empty());
  EXPECT_EQ(allocator.stats().reserved_bytes.current, 0);
}

TEST(AllocatorLimits, RespectsTheLargestSingleAllocation) {
  fl_device_properties p = FakeChip::default_properties();
  p.max_allocation = 3 * kMiB;
  FakeChip fake(p);
  Allocator& allocator = fake.device().allocator();
  Block* block = allocator.allocate(2 * kMiB + 1, 0);  // a shared segment of 20 MiB is out of the question
  EXPECT_EQ(fake.state().used, 2 * kMiB + 512);
  fl_status status = FL_OK;
  const std::string message = error_of([&] { allocator.allocate(4 * kMiB, 0); }, &status);
  EXPECT_EQ(status, FL_OUT_OF_MEMORY);
  EXPECT_CONTAINS(message, "largest single allocation of this device is 3.00 MiB");
  EXPECT_EQ(fake.state().allocs, 1);
  allocator.free(block);
}

}  // namespace
}  // namespace torch_fl::runtime::test
