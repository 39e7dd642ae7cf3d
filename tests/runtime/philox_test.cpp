// SPDX-License-Identifier: Apache-2.0
// Philox-4x32-10 against published vectors, and each distribution against what fl_plugin.h says, spelt out anew.
#include "philox.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <numbers>
#include <vector>

namespace torch_fl::runtime {
namespace {

constexpr uint64_t kSeed = 0x123456789abcdef0, kOffset = (uint64_t{1} << 32) - 3;  // the block number carries

void expect_words(const PhiloxBlock& block, const std::vector<uint32_t>& words) {
  for (size_t i = 0; i < 4; ++i) EXPECT_EQ(block.word[i], words[i]) << i;
}

/// The draws of element e, straight from the header's words.
uint32_t draw32(int64_t e) { return philox(kSeed, kOffset + static_cast<uint64_t>(e) / 4).word[e % 4]; }
uint64_t draw64(int64_t e) {
  const PhiloxBlock block = philox(kSeed, kOffset + static_cast<uint64_t>(e) / 2);
  return block.word[2 * (e % 2)] + (uint64_t{block.word[2 * (e % 2) + 1]} << 32);
}
float unit32(int64_t e) { return static_cast<float>(std::ldexp(draw32(e) >> 8, -24)); }
double unit64(int64_t e) { return std::ldexp(static_cast<double>(draw64(e) >> 11), -53); }

template <typename T>
struct Is64 {
  static T unit(int64_t e) { return unit32(e); }
};
template <>
struct Is64<double> {
  static double unit(int64_t e) { return unit64(e); }
};

TEST(Philox, PublishedVectors) {
  expect_words(philox_counter(0, 0, 0), {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8});
  expect_words(philox_counter(~uint64_t{0}, ~uint64_t{0}, ~uint64_t{0}),
               {0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd});
  expect_words(philox_counter(0x299f31d0a4093822, 0x85a308d3243f6a88, 0x0370734413198a2e),
               {0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1});
}

TEST(Philox, KeyAndCounterComeFromSeedAndBlock) {
  const PhiloxBlock block = philox(kSeed, kOffset);
  const PhiloxBlock counter = philox_counter(kSeed, kOffset, 0);
  for (size_t i = 0; i < 4; ++i) EXPECT_EQ(block.word[i], counter.word[i]);
}

TEST(Philox, BlocksUsed) {
  EXPECT_EQ(philox_blocks(0, false), 0u);
  EXPECT_EQ(philox_blocks(1, false), 1u);
  EXPECT_EQ(philox_blocks(4, false), 1u);
  EXPECT_EQ(philox_blocks(5, false), 2u);
  EXPECT_EQ(philox_blocks(1, true), 1u);
  EXPECT_EQ(philox_blocks(2, true), 1u);
  EXPECT_EQ(philox_blocks(3, true), 2u);
}

template <typename T>
class Distribution : public ::testing::Test {
 protected:
  static constexpr int64_t kN = 1003;
  std::vector<T> out = std::vector<T>(kN + 1, T(-7));
  void expect_end_untouched() { EXPECT_EQ(out[kN], T(-7)); }
};
using FloatTypes = ::testing::Types<float, double>;
TYPED_TEST_SUITE(Distribution, FloatTypes);

TYPED_TEST(Distribution, Uniform) {
  using T = TypeParam;
  philox_uniform(this->out.data(), this->kN, kSeed, kOffset, -2.5, 3.25);
  for (int64_t e = 0; e < this->kN; ++e) {
    EXPECT_EQ(this->out[static_cast<size_t>(e)], T(-2.5) + Is64<T>::unit(e) * T(5.75)) << e;
  }
  this->expect_end_untouched();
}

TYPED_TEST(Distribution, UniformNeverReachesItsEnd) {
  using T = TypeParam;
  const T from = T(1), to = std::nextafter(from, T(2));
  philox_uniform(this->out.data(), this->kN, kSeed, kOffset, from, to);
  for (int64_t e = 0; e < this->kN; ++e) EXPECT_EQ(this->out[static_cast<size_t>(e)], from);
}

// The prescribed operations round several times, and are no farther from the truth than a library's.
template <class T>
void expect_accurate(T value, long double expected) {
  EXPECT_LE(std::abs(value - expected), 4 * std::numeric_limits<T>::epsilon() * std::abs(expected)) << expected;
}

TYPED_TEST(Distribution, NormalIsBoxMullerOnPairs) {
  using T = TypeParam;
  for (const int64_t n : {this->kN, int64_t{1}, int64_t{2}, int64_t{4}}) {
    std::vector<T> values(static_cast<size_t>(n) + 1, T(-7));
    philox_normal(values.data(), n, kSeed, kOffset, 0.0, 2.0);
    for (int64_t e = 0; e < n; ++e) {
      const long double u1 = 1 - Is64<T>::unit(e / 2 * 2), u2 = Is64<T>::unit(e / 2 * 2 + 1);
      const long double r = 2 * std::sqrt(-2 * std::log(u1)), angle = 2 * std::numbers::pi_v<long double> * u2;
      expect_accurate(values[static_cast<size_t>(e)], e % 2 == 0 ? r * std::cos(angle) : r * std::sin(angle));
    }
    EXPECT_EQ(values[static_cast<size_t>(n)], T(-7));
  }
}

TYPED_TEST(Distribution, NormalHasItsMoments) {
  using T = TypeParam;
  std::vector<T> values(200000);
  philox_normal(values.data(), static_cast<int64_t>(values.size()), kSeed, 0, 3.0, 2.0);
  double sum = 0, squares = 0;
  for (T value : values) sum += value;
  const double mean = sum / static_cast<double>(values.size());
  for (T value : values) squares += (value - mean) * (value - mean);
  EXPECT_NEAR(mean, 3.0, 0.02);
  EXPECT_NEAR(std::sqrt(squares / static_cast<double>(values.size())), 2.0, 0.02);
}

TYPED_TEST(Distribution, Exponential) {
  using T = TypeParam;
  philox_exponential(this->out.data(), this->kN, kSeed, kOffset, 1.5);
  for (int64_t e = 0; e < this->kN; ++e) {
    const T value = this->out[static_cast<size_t>(e)];
    expect_accurate(value, -std::log(1 - static_cast<long double>(Is64<T>::unit(e))) / 1.5L);
    EXPECT_TRUE(std::isfinite(value) && value >= 0);
  }
  this->expect_end_untouched();
}

TEST(Philox, Integers) {
  constexpr int64_t kN = 1003;
  std::vector<int64_t> out(kN + 1, -7);
  const auto at = [&](int64_t e) { return out[static_cast<size_t>(e)]; };
  philox_integers(out.data(), kN, kSeed, kOffset, -5, 17);
  for (int64_t e = 0; e < kN; ++e) EXPECT_EQ(at(e), -5 + static_cast<int64_t>(draw32(e) % 17));
  const uint64_t full32 = uint64_t{1} << 32;
  philox_integers(out.data(), kN, kSeed, kOffset, 0, full32);
  for (int64_t e = 0; e < kN; ++e) EXPECT_EQ(at(e), static_cast<int64_t>(draw32(e)));
  philox_integers(out.data(), kN, kSeed, kOffset, INT64_MIN, full32 + 1);
  for (int64_t e = 0; e < kN; ++e) {
    EXPECT_EQ(at(e), INT64_MIN + static_cast<int64_t>(draw64(e) % (full32 + 1)));
  }
  philox_integers(out.data(), kN, kSeed, kOffset, INT64_MIN, 0);
  for (int64_t e = 0; e < kN; ++e) {
    EXPECT_EQ(static_cast<uint64_t>(at(e)), draw64(e) + (uint64_t{1} << 63));
  }
  EXPECT_EQ(at(kN), -7);
}

TEST(Philox, Unit32) {
  std::vector<float> out(1004, -7);
  philox_unit32(out.data(), 1003, kSeed, kOffset);
  for (int64_t e = 0; e < 1003; ++e) {
    EXPECT_EQ(out[static_cast<size_t>(e)], unit32(e));
    EXPECT_LT(out[static_cast<size_t>(e)], 1.0f);
  }
  EXPECT_EQ(out[1003], -7);
}

TEST(Philox, APartContinuesWhereTheOffsetSays) {
  std::vector<float> whole(800), part(400);
  philox_uniform(whole.data(), 800, kSeed, 0, 0, 1);
  philox_uniform(part.data(), 400, kSeed, philox_blocks(400, false), 0, 1);
  EXPECT_TRUE(std::equal(part.begin(), part.end(), whole.begin() + 400));
}

}  // namespace
}  // namespace torch_fl::runtime
