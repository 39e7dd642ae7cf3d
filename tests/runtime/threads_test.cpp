// SPDX-License-Identifier: Apache-2.0
// Everything at once from many threads; ThreadSanitizer is the judge.
#include <random>
#include <thread>

#include "fake_chip.h"

namespace torch_fl::runtime::test {
namespace {

template <typename F>
void run_threads(int n, F f) {
  std::vector<std::thread> threads;
  for (int i = 0; i < n; ++i) threads.emplace_back(f, i);
  for (std::thread& thread : threads) thread.join();
}

TEST(Threads, AllocateWriteAndFree) {
  FakeChip fake;
  Device& device = fake.device();
  run_threads(8, [&](int thread) {
    std::mt19937 random(static_cast<unsigned>(thread));
    const StreamId own = device.stream_from_pool(0), other = device.stream_from_pool(-1);
    std::vector<Block*> live;
    for (int step = 0; step < 3000; ++step) {
      if (live.size() < 50 && random() % 2 == 0) {
        Block* block = device.allocator().allocate(1 + random() % 100000, own);
        std::memset(reinterpret_cast<void*>(block->address), thread, 64);
        if (random() % 4 == 0) device.allocator().record_stream(block, other);
        live.push_back(block);
      } else if (!live.empty()) {
        EXPECT_EQ(*reinterpret_cast<char*>(live.back()->address), static_cast<char>(thread)) << "two threads shared it";
        device.allocator().free(live.back());
        live.pop_back();
      }
      if (step % 500 == 0) device.allocator().empty_cache();
      if (step % 100 == 0) device.allocator().stats();
    }
    for (Block* block : live) device.allocator().free(block);
  });
  EXPECT_EQ(device.allocator().stats().allocations.current, 0);
}

TEST(Threads, BlocksAreFreedByOtherThreads) {
  FakeChip fake;
  Allocator& allocator = fake.device().allocator();
  std::vector<Block*> blocks(1000);
  for (Block*& block : blocks) block = allocator.allocate(3000, 0);
  run_threads(4, [&](int thread) {
    for (size_t i = static_cast<size_t>(thread); i < blocks.size(); i += 4) allocator.free(blocks[i]);
  });
  allocator.empty_cache();
  EXPECT_TRUE(fake.state().live.empty());
}

TEST(Threads, StreamsEventsPinnedMemoryAndCopies) {
  FakeChip fake;
  run_threads(8, [&](int thread) {
    Device& mine = fake.device(static_cast<size_t>(thread % 2));
    Device& theirs = fake.device(static_cast<size_t>(1 - thread % 2));
    for (int step = 0; step < 200; ++step) {
      const StreamId stream = mine.stream_from_pool(step % 2 - 1);
      const fl_event event = mine.event_create(false);
      mine.event_record(event, stream);
      mine.event_wait(event, mine.new_stream(0));
      mine.event_query(event);
      mine.event_destroy(event);
      void* host = mine.pinned().allocate(1000 + static_cast<uint64_t>(step));
      std::memset(host, thread, 1000);
      Block* block = mine.allocator().allocate(1000, stream);
      mine.copy(stream, block->address, reinterpret_cast<fl_address>(host), 1000, FL_COPY_HOST_TO_DEVICE);
      mine.pinned().record(host, stream);
      mine.pinned().free(host);
      Block* there = theirs.allocator().allocate(1000, 0);
      fake.chip.memory.copy(theirs.handle(), nullptr, there->address, block->address, 1000, FL_COPY_DEVICE_TO_DEVICE);
      EXPECT_EQ(*reinterpret_cast<char*>(there->address), static_cast<char>(thread));
      theirs.allocator().free(there);
      mine.allocator().free(block);
    }
  });
  for (size_t i = 0; i < 2; ++i) EXPECT_EQ(fake.device(i).allocator().stats().allocations.current, 0);
}

TEST(Threads, OutOfMemoryRetriesWhileOthersWork) {
  FakeChip fake;
  fake.state().limit = 64 * kMiB;
  run_threads(6, [&](int thread) {
    std::mt19937 random(static_cast<unsigned>(thread));
    for (int step = 0; step < 300; ++step) {
      try {
        Block* block = fake.device().allocator().allocate((1 + random() % 30) * kMiB, 0);
        fake.device().allocator().free(block);
      } catch (const Error& error) {
        EXPECT_EQ(error.status(), FL_OUT_OF_MEMORY);
      }
    }
  });
  fake.device().allocator().empty_cache();
  EXPECT_EQ(fake.state().used, 0u);
}

TEST(Threads, OneLosesTheDeviceWhileOthersUseIt) {
  FakeChip fake;
  Device& device = fake.device();
  run_threads(6, [&](int thread) {
    try {
      for (int step = 0; step < 2000; ++step) {
        Block* block = device.allocator().allocate(2000, 0);
        if (thread == 0 && step == 1000) {
          device.allocator().free(block);
          device.fail(FL_DEVICE_LOST, "a kernel");
        }
        device.allocator().free(block);
      }
    } catch (const Error& error) {
      EXPECT_EQ(error.status(), FL_DEVICE_LOST);
    }
  });
  EXPECT_TRUE(device.lost());
}

}  // namespace
}  // namespace torch_fl::runtime::test
