// SPDX-License-Identifier: Apache-2.0
// Random fills and dropout. The sequence is part of the ABI: see "Random numbers" in fl_plugin.h.
#include <algorithm>
#include <cmath>
#include <limits>

#include "families.h"
#include "pointwise.h"
#include "torch_fl/fl_random.h"

namespace fl_sim {
namespace {

struct Block {
  uint32_t word[4];
};

Block philox(uint64_t seed, uint64_t counter) {
  uint32_t c[4] = {static_cast<uint32_t>(counter), static_cast<uint32_t>(counter >> 32), 0, 0};
  uint32_t key[2] = {static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32)};
  for (int round = 0; round < 10; ++round) {
    const uint64_t a = uint64_t{0xD2511F53} * c[0], b = uint64_t{0xCD9E8D57} * c[2];
    const uint32_t next[4] = {static_cast<uint32_t>(b >> 32) ^ c[1] ^ key[0], static_cast<uint32_t>(b),
                              static_cast<uint32_t>(a >> 32) ^ c[3] ^ key[1], static_cast<uint32_t>(a)};
    std::copy_n(next, 4, c);
    key[0] += 0x9E3779B9, key[1] += 0xBB67AE85;
  }
  return {{c[0], c[1], c[2], c[3]}};
}

/// Draws of a chunk of elements [begin, begin + n); begin is a multiple of 4.
class Draws {
 public:
  explicit Draws(const Call& call) : seed_(call.raw.philox_seed), offset_(call.raw.philox_offset) {}
  void words(uint32_t* out, int64_t begin, int64_t n) const {
    for (int64_t i = 0; i < n; i += 4) {
      const Block block = philox(seed_, offset_ + static_cast<uint64_t>((begin + i) / 4));
      std::copy_n(block.word, std::min<int64_t>(4, n - i), out + i);
    }
  }
  void wide_words(uint64_t* out, int64_t begin, int64_t n) const {
    for (int64_t i = 0; i < n; ++i) {
      const Block block = philox(seed_, offset_ + static_cast<uint64_t>((begin + i) / 2));
      const int at = static_cast<int>((begin + i) % 2) * 2;
      out[i] = block.word[at] | static_cast<uint64_t>(block.word[at + 1]) << 32;
    }
  }
  void units(float* out, int64_t begin, int64_t n) const {
    uint32_t words_[kChunk];
    words(words_, begin, n);
    for (int64_t i = 0; i < n; ++i) out[i] = static_cast<float>(words_[i] >> 8) * 0x1p-24f;
  }
  void units(double* out, int64_t begin, int64_t n) const {
    uint64_t words_[kChunk];
    wide_words(words_, begin, n);
    for (int64_t i = 0; i < n; ++i) out[i] = static_cast<double>(words_[i] >> 11) * 0x1p-53;
  }

 private:
  uint64_t seed_, offset_;
};

// Outputs are dense: element e lies at index e.
template <class T>
void store_chunk(const View& out, int64_t begin, const T* values, int64_t n) {
  constexpr Kind kind = std::is_same_v<T, float>    ? kF32
                        : std::is_same_v<T, double> ? kF64
                        : std::is_same_v<T, bool>   ? kBool
                                                    : kI64;
  converters().store[kind][out.dtype](out.as<char>() + begin * dtype_size(out.dtype), 1, values, n);
}

// Calls transform(units, n) on chunks of draws of type T and stores what it leaves there.
template <class T, class F>
void fill_chunks(const Call& call, F&& transform) {
  const View out = call.out(0);
  const Draws draws(call);
  T values[kChunk];
  for (int64_t begin = 0; begin < out.numel; begin += kChunk) {
    const int64_t n = std::min(kChunk, out.numel - begin);
    // An odd tail of a pair needs the partner's draw as well.
    draws.units(values, begin, std::min(kChunk, (n + 3) / 4 * 4));
    transform(values, n);
    store_chunk(out, begin, values, n);
  }
}
template <class F>
void fill_floating(const Call& call, F&& transform) {
  if (call.out(0).dtype == FL_FLOAT64)
    fill_chunks<double>(call, transform);
  else
    fill_chunks<float>(call, transform);
}

void uniform_body(const Call& call) {
  const double low = call.real(1, 0), high = call.real(2, 1);
  const fl_dtype dtype = call.out(0).dtype;
  fill_floating(call, [=]<class T>(T* v, int64_t n) {
    const T from = static_cast<T>(low), to = static_cast<T>(high), range = to - from;
    for (int64_t i = 0; i < n; ++i) v[i] = from + v[i] * range;
    T stored[kChunk];  // as the output's type rounds
    constexpr Kind kind = std::is_same_v<T, float> ? kF32 : kF64;
    char bytes[kChunk * sizeof(T)];
    converters().store[kind][dtype](bytes, 1, v, n);
    converters().load[kind][dtype](stored, bytes, 1, n);
    for (int64_t i = 0; i < n; ++i) {
      if (stored[i] >= to) v[i] = from;
    }
  });
}

void normal_body(const Call& call) {
  const double mean = call.real(1, 0), deviation = call.real(2, 1);
  fill_floating(call, [=]<class T>(T* v, int64_t n) {
    for (int64_t i = 0; i < n; i += 2) {
      const T radius = std::sqrt(T(-2) * torch_fl::random::log_of_unit(T(1) - v[i]));
      const auto [cosine, sine] = torch_fl::random::cos_and_sin_of_turn(v[i + 1]);
      v[i] = static_cast<T>(mean) + static_cast<T>(deviation) * (radius * cosine);
      v[i + 1] = static_cast<T>(mean) + static_cast<T>(deviation) * (radius * sine);
    }
  });
}

void exponential_body(const Call& call) {
  const double rate = call.real(1, 1);
  fill_floating(call, [=]<class T>(T* v, int64_t n) {
    for (int64_t i = 0; i < n; ++i) v[i] = -torch_fl::random::log_of_unit(T(1) - v[i]) / static_cast<T>(rate);
  });
}

void bernoulli_body(const Call& call) {
  const float p = static_cast<float>(call.real(1, 0.5));
  fill_chunks<float>(call, [=](float* v, int64_t n) {
    for (int64_t i = 0; i < n; ++i) v[i] = v[i] < p ? 1.0f : 0.0f;
  });
}

void random_body(const Call& call) {
  const View out = call.out(0);
  const Draws draws(call);
  const int64_t from = call.integer(1);
  // No upper bound: all of 2^64, which is written 0.
  const uint64_t range = call.none(2) ? 0 : static_cast<uint64_t>(call.integer(2)) - static_cast<uint64_t>(from);
  const bool wide = range == 0 || range > (uint64_t{1} << 32);
  int64_t values[kChunk];
  for (int64_t begin = 0; begin < out.numel; begin += kChunk) {
    const int64_t n = std::min(kChunk, out.numel - begin);
    if (wide) {
      uint64_t words[kChunk];
      draws.wide_words(words, begin, n);
      for (int64_t i = 0; i < n; ++i)
        values[i] = static_cast<int64_t>(static_cast<uint64_t>(from) + (range ? words[i] % range : words[i]));
    } else {
      uint32_t words[kChunk];
      draws.words(words, begin, n);
      for (int64_t i = 0; i < n; ++i) values[i] = static_cast<int64_t>(static_cast<uint64_t>(from) + words[i] % range);
    }
    store_chunk(out, begin, values, n);
  }
}

// native_dropout(input, p, train) -> output, mask
void dropout_body(const Call& call) {
  const View in = call.tensor(0), out = call.out(0), mask = call.out(1);
  const double p = call.real(1);
  const bool train = call.boolean(2, true);
  const float threshold = static_cast<float>(p);
  const double scale = !train ? 1 : p == 1 ? 0 : 1 / (1 - p);
  const Draws draws(call);
  const bool wide = in.dtype == FL_FLOAT64;
  float units[kChunk], values[kChunk];
  double doubles[kChunk];
  bool kept[kChunk];
  for (int64_t begin = 0; begin < out.numel; begin += kChunk) {
    const int64_t n = std::min(kChunk, out.numel - begin);
    if (train) draws.units(units, begin, n);
    for (int64_t i = 0; i < n; ++i) kept[i] = !train || units[i] >= threshold;
    const char* from = in.as<char>() + begin * dtype_size(in.dtype);
    if (wide) {
      converters().load[kF64][in.dtype](doubles, from, 1, n);
      for (int64_t i = 0; i < n; ++i) doubles[i] = kept[i] ? doubles[i] * scale : doubles[i] * 0;
      store_chunk(out, begin, doubles, n);
    } else {
      converters().load[kF32][in.dtype](values, from, 1, n);
      const float factor = static_cast<float>(scale);
      for (int64_t i = 0; i < n; ++i) values[i] = kept[i] ? values[i] * factor : values[i] * 0;
      store_chunk(out, begin, values, n);
    }
    if (call.has_out(1)) store_chunk(mask, begin, kept, n);
  }
}

template <void (*body)(const Call&)>
fl_status run(const fl_call* call) {
  return launch(call, body);
}

constexpr uint32_t kFlags = FL_KERNEL_RANDOM | FL_KERNEL_CONTIGUOUS_OUTPUTS;
constexpr uint64_t kAnyNumber = kReals | kInts | kBoolBit | kWideUnsigned;
const fl_kernel kRows[] = {
    row("aten::uniform_", kFlags, run<uniform_body>, kReals),
    row("aten::normal_", kFlags, run<normal_body>, kReals),
    row("aten::exponential_", kFlags, run<exponential_body>, kReals),
    row("aten::bernoulli_.float", kFlags, run<bernoulli_body>, kAnyNumber),
    row("aten::random_.from", kFlags, run<random_body>, kAnyNumber),
    row("aten::native_dropout", kFlags | FL_KERNEL_CONTIGUOUS_INPUTS, run<dropout_body>, kReals),
};

}  // namespace

Family random_family() { return kRows; }

}  // namespace fl_sim
