// SPDX-License-Identifier: Apache-2.0
// Scratch memory of kernels, and the other services of the host.
#include "scratch.h"

#include <set>

#include "fake_chip.h"

namespace torch_fl::runtime::test {
namespace {

class ScratchTest : public ::testing::Test {
 protected:
  ScratchTest() {
    call.struct_size = sizeof call;
    call.device = device.handle();
  }
  fl_status scratch(uint64_t bytes, fl_address* address) { return host_services().scratch(&call, bytes, address); }

  FakeChip fake;
  Device& device = fake.device();
  fl_call call{};
  fl_address address = 0;
};

TEST_F(ScratchTest, IsTakenBackAtTheEndOfTheScope) {
  std::set<fl_address> seen;
  {
    const ScratchScope scope(device, 0);
    for (int i = 0; i < 20; ++i) {
      ASSERT_EQ(scratch(1000, &address), FL_OK);
      EXPECT_TRUE(seen.insert(address).second);
    }
    EXPECT_EQ(device.allocator().stats().allocations.current, 20);
  }
  EXPECT_EQ(device.allocator().stats().allocations.current, 0);
}

TEST_F(ScratchTest, BelongsToTheStreamOfTheCall) {
  const StreamId stream = device.new_stream(0);
  const ScratchScope scope(device, stream);
  ASSERT_EQ(scratch(1000, &address), FL_OK);
  EXPECT_EQ(device.allocator().find(address)->stream, stream);
}

TEST_F(ScratchTest, ScopesNest) {
  const ScratchScope outer(device, 0);
  ASSERT_EQ(scratch(1000, &address), FL_OK);
  {
    const ScratchScope inner(device, 0);
    ASSERT_EQ(scratch(1000, &address), FL_OK);
  }
  EXPECT_EQ(device.allocator().stats().allocations.current, 1);
  EXPECT_EQ(ScratchScope::current(), &outer);
}

TEST_F(ScratchTest, OutsideAKernelItIsRefused) {
  EXPECT_EQ(scratch(1000, &address), FL_INVALID_ARGUMENT);
  EXPECT_CONTAINS(take_plugin_message(), "inside a kernel's run()");
  const ScratchScope scope(device, 0);
  call.device = nullptr;
  EXPECT_EQ(scratch(1000, &address), FL_INVALID_ARGUMENT);
  EXPECT_EQ(host_services().scratch(nullptr, 1, &address), FL_INVALID_ARGUMENT);
  take_plugin_message();
}

TEST_F(ScratchTest, OutOfMemoryIsAStatusNotAnException) {
  fake.state().limit = kMiB;
  const ScratchScope scope(device, 0);
  EXPECT_EQ(scratch(2 * kMiB, &address), FL_OUT_OF_MEMORY);
  EXPECT_CONTAINS(take_plugin_message(), "Tried to allocate 2.00 MiB");
  EXPECT_EQ(scratch(0, &address), FL_OK);
  EXPECT_EQ(address, 0u);
}

TEST(HostServices, DeclareTheirVersion) {
  const fl_host& host = host_services();
  EXPECT_EQ(host.struct_size, sizeof host);
  EXPECT_EQ(host.abi_major, static_cast<uint32_t>(FL_ABI_MAJOR));
  EXPECT_EQ(host.abi_minor, static_cast<uint32_t>(FL_ABI_MINOR));
  EXPECT_NE(host.version, nullptr);
}

TEST(HostServices, LogGoesToTheSink) {
  static std::string seen;
  set_log_sink([](fl_log_level level, const char* message) { seen = std::to_string(level) + message; });
  host_services().log(FL_LOG_WARNING, "hot");
  host_services().log(FL_LOG_WARNING, nullptr);
  set_log_sink(nullptr);
  EXPECT_EQ(seen, "2hot");
}

TEST(HostServices, CurrentStreamOfAnUnknownChipIsRefused) {
  fl_stream stream = nullptr;
  EXPECT_EQ(host_services().current_stream("nobody", 0, &stream), FL_INVALID_ARGUMENT);
  EXPECT_CONTAINS(take_plugin_message(), "there is no chip named nobody");
  EXPECT_EQ(host_services().current_stream(nullptr, 0, &stream), FL_INVALID_ARGUMENT);
  take_plugin_message();
}

}  // namespace
}  // namespace torch_fl::runtime::test
