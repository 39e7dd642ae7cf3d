// SPDX-License-Identifier: Apache-2.0
// Chips that need a lock of the program around the runtime, and chips that use the device while they allocate for it.
#include "lock.h"

#include <gtest/gtest.h>

#include <chrono>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <future>
#include <thread>
#include <vector>

#include "chip_slots.h"
#include "device.h"

namespace torch_fl::runtime {
namespace {

constexpr uint64_t kLarge = 32 << 20;  // a segment of its own

class Scripted : public HostedChip {
 public:
  explicit Scripted(const std::string& chip) { name = chip, vendor = std::string("tests"), version = std::string("1"); }
  fl_status count(int32_t* n) override { return *n = 1, FL_OK; }
  fl_status properties(int32_t, fl_device_properties* p) override {
    p->total_memory = uint64_t{1} << 32;
    return FL_OK;
  }
  fl_status open(int32_t, fl_device* device) override {
    *device = reinterpret_cast<fl_device>(this);
    return FL_OK;
  }
  fl_status alloc(fl_device, uint64_t bytes, fl_address* address) override {
    if (while_allocating) while_allocating();
    *address = reinterpret_cast<fl_address>(std::aligned_alloc(64, bytes));
    return FL_OK;
  }
  fl_status free(fl_device, fl_address address) override {
    std::free(reinterpret_cast<void*>(address));
    return FL_OK;
  }
  fl_status copy(fl_device, fl_address, fl_address, uint64_t, fl_copy_kind) override { return FL_OK; }
  std::function<void()> while_allocating;
};

/// Stands in for the interpreter's lock.
struct Outer {
  std::mutex mutex;
  static thread_local bool mine;
  static Outer& get() {
    static Outer outer;
    return outer;
  }
  void enter() {
    mutex.lock();
    mine = true;
  }
  void leave() {
    mine = false;
    mutex.unlock();
  }
};
thread_local bool Outer::mine = false;

const OuterLock kOuter{+[]() -> void* {
                         if (!Outer::mine) return nullptr;
                         Outer::get().leave();
                         return &Outer::get();
                       },
                       +[](void* left) { static_cast<Outer*>(left)->enter(); }};

struct Loaded {
  explicit Loaded(const std::string& name) {
    auto made = std::make_unique<Scripted>(name);
    chip = made.get();
    const int32_t index = Registry::get().device_count();
    Registry::get().load_hosted(std::move(made), {name, "test"});
    device = &Registry::get().device(index);
    outer_lock.store(&kOuter);
  }
  ~Loaded() { outer_lock.store(nullptr); }
  Scripted* chip;
  Device* device;
  Allocator& allocator() const { return device->allocator(); }
};

TEST(Lock, WhatIsFreedWhileTheChipAllocatesIsFreedAfterwards) {
  const Loaded loaded("frees");
  Block* small = loaded.allocator().allocate(512, 0);
  loaded.chip->while_allocating = [&] {
    loaded.allocator().free(small);
    EXPECT_EQ(loaded.allocator().stats().allocations.current, 1) << "not yet";
  };
  Block* large = loaded.allocator().allocate(kLarge, 0);
  loaded.chip->while_allocating = nullptr;
  Block* next = loaded.allocator().allocate(512, 0);
  EXPECT_EQ(next, small) << "the block that was freed";
  EXPECT_EQ(loaded.allocator().stats().allocations.current, 2);
  loaded.allocator().free(large);
  loaded.allocator().free(next);
  EXPECT_EQ(loaded.allocator().stats().allocated_bytes.current, 0);
}

TEST(Lock, AllocatingWhileTheChipAllocatesIsAnError) {
  const Loaded loaded("allocates");
  std::string text;
  loaded.chip->while_allocating = [&] {
    try {
      loaded.allocator().allocate(512, 0);
    } catch (const Error& error) {
      text = error.what();
    }
  };
  loaded.allocator().free(loaded.allocator().allocate(kLarge, 0));
  EXPECT_NE(text.find("used that device"), std::string::npos) << text;
}

TEST(Lock, AThreadThatWaitsLetsGoOfTheOuterLock) {
  const Loaded loaded("needs_outer");
  Block* block = loaded.allocator().allocate(512, 0);
  std::promise<void> allocating, holding;
  loaded.chip->while_allocating = [&] {
    allocating.set_value();
    holding.get_future().wait();
    std::this_thread::sleep_for(std::chrono::milliseconds(20));  // the other one is waiting for us by now
    Outer::get().enter();
    Outer::get().leave();
  };
  Block* large = nullptr;
  std::thread thread([&] { large = loaded.allocator().allocate(kLarge, 0); });
  allocating.get_future().wait();
  auto freeing = std::async(std::launch::async, [&] {
    Outer::get().enter();
    holding.set_value();
    loaded.allocator().free(block);
    EXPECT_TRUE(Outer::mine) << "it has it again";
    Outer::get().leave();
  });
  if (freeing.wait_for(std::chrono::seconds(30)) != std::future_status::ready) {
    std::fputs("the two threads wait for each other\n", stderr);
    std::_Exit(1);
  }
  thread.join();
  loaded.chip->while_allocating = nullptr;
  loaded.allocator().free(large);
  EXPECT_EQ(loaded.allocator().stats().allocated_bytes.current, 0);
}

}  // namespace
}  // namespace torch_fl::runtime
