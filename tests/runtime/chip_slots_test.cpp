// SPDX-License-Identifier: Apache-2.0
#include "chip_slots.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>

#include "device.h"
#include "error.h"

namespace torch_fl::runtime {
namespace {

/// Host memory, and whatever the test wants to go wrong.
class Small : public HostedChip {
 public:
  explicit Small(const std::string& chip) { name = chip, vendor = std::string("tests"), version = std::string("1"); }
  fl_status count(int32_t* n) override {
    if (throws) throw std::runtime_error("the count is a riddle");
    *n = 1;
    return FL_OK;
  }
  fl_status properties(int32_t, fl_device_properties* p) override {
    std::strcpy(p->name, "small");
    p->total_memory = 1 << 20;
    return FL_OK;
  }
  fl_status open(int32_t, fl_device* device) override {
    *device = reinterpret_cast<fl_device>(this);
    return FL_OK;
  }
  fl_status alloc(fl_device, uint64_t bytes, fl_address* address) override {
    *address = reinterpret_cast<fl_address>(std::aligned_alloc(64, bytes));
    return FL_OK;
  }
  fl_status free(fl_device, fl_address address) override {
    std::free(reinterpret_cast<void*>(address));
    return FL_OK;
  }
  fl_status copy(fl_device, fl_address dst, fl_address src, uint64_t bytes, fl_copy_kind) override {
    std::memcpy(reinterpret_cast<void*>(dst), reinterpret_cast<void*>(src), bytes);
    return FL_OK;
  }
  bool throws = false;
};

PluginReport last_report() { return Registry::get().reports().back(); }

TEST(ChipSlots, EachChipAnswersForItself) {
  Small a("a"), b("b");
  b.throws = true;
  const fl_plugin* first = take_slot(a);
  const fl_plugin* second = take_slot(b);
  int32_t n = 0;
  EXPECT_EQ(first->device->count(&n), FL_OK);
  EXPECT_EQ(n, 1);
  EXPECT_EQ(second->device->count(&n), FL_INTERNAL);
  EXPECT_EQ(take_plugin_message(), "the count is a riddle");
  EXPECT_STREQ(second->name, "b");
  leave_slot(a);
  leave_slot(b);
}

TEST(ChipSlots, EndAndAreGivenBack) {
  std::vector<std::unique_ptr<Small>> chips;
  for (size_t i = 0; i < kChipSlots; ++i) {
    chips.push_back(std::make_unique<Small>("c" + std::to_string(i)));
    take_slot(*chips.back());
  }
  Small one_more("one_more");
  EXPECT_THROW(take_slot(one_more), Error);
  leave_slot(*chips[7]);
  EXPECT_NE(take_slot(one_more), nullptr);
  leave_slot(one_more);
  for (const auto& chip : chips) leave_slot(*chip);
}

TEST(ChipSlots, ALoadedChipIsAChipLikeAnyOther) {
  Registry& registry = Registry::get();
  const int32_t before = registry.device_count();
  registry.load_hosted(std::make_unique<Small>("hosted"), {"small.py", "test"});
  ASSERT_TRUE(last_report().loaded) << last_report().reason;
  EXPECT_EQ(last_report().chip, "hosted");
  Device& device = registry.device(before);
  Block* block = device.allocator().allocate(256, 0);
  const char text[] = "there and back";
  char back[sizeof text] = {};
  device.copy(0, block->address, reinterpret_cast<fl_address>(text), sizeof text, FL_COPY_HOST_TO_DEVICE);
  device.copy(0, reinterpret_cast<fl_address>(back), block->address, sizeof text, FL_COPY_DEVICE_TO_HOST);
  EXPECT_STREQ(back, text);
  device.allocator().free(block);
}

TEST(ChipSlots, ARefusedChipIsReportedAndLeavesItsSlot) {
  Registry& registry = Registry::get();
  for (size_t i = 0; i < kChipSlots + 1; ++i) {
    auto chip = std::make_unique<Small>("refused");
    chip->throws = true;
    registry.load_hosted(std::move(chip), {"riddle.py", "test"});
    EXPECT_FALSE(last_report().loaded);
    EXPECT_NE(last_report().reason.find("the count is a riddle"), std::string::npos) << last_report().reason;
  }
}

}  // namespace
}  // namespace torch_fl::runtime
