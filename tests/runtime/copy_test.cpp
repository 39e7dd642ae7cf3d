// SPDX-License-Identifier: Apache-2.0
// Copies between devices: the data and the order of what surrounds them.
#include <numeric>
#include <vector>

#include "fake_chip.h"

namespace torch_fl::runtime::test {
namespace {

struct Buffers {
  explicit Buffers(size_t n) : from(n), to(n + 1, 0) { std::iota(from.begin(), from.end(), uint8_t{1}); }
  fl_address src() const { return reinterpret_cast<fl_address>(from.data()); }
  fl_address dst() { return reinterpret_cast<fl_address>(to.data()); }
  void expect_copied() const {
    EXPECT_TRUE(std::equal(from.begin(), from.end(), to.begin()));
    EXPECT_EQ(to.back(), 0) << "copied beyond the end";
  }
  std::vector<uint8_t> from, to;
};

using Log = std::vector<std::string>;

TEST(CopyBetween, OneDeviceOneStream) {
  FakeChip fake;
  Buffers data(1000);
  copy_between(fake.device(), 0, data.dst(), fake.device(), 0, data.src(), 1000);
  data.expect_copied();
  EXPECT_EQ(fake.state().log, Log{"copy"});
}

TEST(CopyBetween, OneDeviceTwoStreamsAreOrderedBothWays) {
  FakeChip fake;
  Buffers data(1000);
  const StreamId a = fake.device().new_stream(0), b = fake.device().new_stream(0);
  copy_between(fake.device(), a, data.dst(), fake.device(), b, data.src(), 1000);
  data.expect_copied();
  EXPECT_EQ(fake.state().log, (Log{"record on 1", "stream 2 waits", "copy", "record on 2", "stream 1 waits"}));
  EXPECT_EQ(fake.state().events_made, fake.state().events_destroyed);
}

TEST(CopyBetween, PeersOfOneChip) {
  FakeChip fake;
  Buffers data(1000);
  const StreamId from = fake.device(0).new_stream(0), to = fake.device(1).new_stream(0);
  copy_between(fake.device(1), to, data.dst(), fake.device(0), from, data.src(), 1000);
  data.expect_copied();
  EXPECT_EQ(fake.state(1).log, Log{"sync stream 1"}) << "work on the destination was not awaited";
  EXPECT_EQ(fake.state(0).log, (Log{"copy_peer", "sync stream 1"}));
}

TEST(CopyBetween, WithoutPeerCopyItGoesThroughTheHost) {
  FakeChip fake;
  fake.chip.memory.copy_peer = nullptr;
  Buffers data(1000);
  copy_between(fake.device(1), 0, data.dst(), fake.device(0), 0, data.src(), 1000);
  data.expect_copied();
  EXPECT_EQ(fake.state(0).log, (Log{"copy", "sync stream 0"}));
  EXPECT_EQ(fake.state(1).log, (Log{"copy", "sync stream 0"}));
  EXPECT_EQ(fake.device(0).pinned().stats().allocated_bytes.current, 0);
}

TEST(CopyBetween, DifferentChipsInPieces) {
  FakeChip a;
  a.device().handle();
  FakeChip b(FakeChip::default_properties(), 1, 2);
  b.device().handle();
  Buffers data(70 * kMiB + 3);
  copy_between(b.device(), 0, data.dst(), a.device(), 0, data.src(), data.from.size());
  data.expect_copied();
  EXPECT_EQ(a.state().copies, 3);
  EXPECT_EQ(b.state().copies, 3);
}

TEST(CopyBetween, NothingToCopyTouchesNothing) {
  FakeChip fake;
  copy_between(fake.device(1), 0, 0, fake.device(0), 0, 0, 0);
  EXPECT_EQ(fake.state(0).opens + fake.state(1).opens, 0);
}

TEST(CopyBetween, AFailureGivesTheStagingBack) {
  FakeChip fake;
  fake.chip.memory.copy_peer = nullptr;
  fake.state(1).copy_status = FL_INTERNAL;
  Buffers data(1000);
  EXPECT_CONTAINS(error_of([&] { copy_between(fake.device(1), 0, data.dst(), fake.device(0), 0, data.src(), 1000); }),
                  "fake device fl:1: copying memory failed");
  EXPECT_EQ(fake.device(0).pinned().stats().allocated_bytes.current, 0);
}

}  // namespace
}  // namespace torch_fl::runtime::test
