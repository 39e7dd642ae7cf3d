// SPDX-License-Identifier: Apache-2.0
// What functions with inner loops over contiguous elements share. A: the type computed in.
#define SQUARE(x) ((x) * (x))
// A sum is formed in LANES accumulators side by side, which compilers keep in vector registers, and in blocks, so that
// its error grows with the number of blocks only.
#define LANES 16
#define BLOCK 4096
#define TILE 64

// This item's share of 0 .. n-1: `chunk` of them.
#define EACH(i, n) for (i64 i = item * chunk, end_##i = i + chunk < (n) ? i + chunk : (n); i < end_##i; ++i)

FUNCTION A fold(A* lane) {
  for (int width = LANES / 2; width > 0; width /= 2) {
    for (int k = 0; k < width; ++k) lane[k] += lane[k + width];
  }
  return lane[0];
}

// total += the sum of term, an expression in j, for j in 0 .. n-1
#define SUM_OVER(total, n, j, term)                            \
  for (i64 from_ = 0; from_ < (n); from_ += BLOCK) {           \
    const i64 to_ = from_ + BLOCK < (n) ? from_ + BLOCK : (n); \
    A lane_[LANES];                                            \
    for (int k_ = 0; k_ < LANES; ++k_) lane_[k_] = 0;          \
    i64 i_ = from_;                                            \
    for (; i_ + LANES <= to_; i_ += LANES) {                   \
      for (int k_ = 0; k_ < LANES; ++k_) {                     \
        const i64 j = i_ + k_;                                 \
        lane_[k_] += (term);                                   \
      }                                                        \
    }                                                          \
    for (; i_ < to_; ++i_) {                                   \
      const i64 j = i_;                                        \
      lane_[0] += (term);                                      \
    }                                                          \
    total += fold(lane_);                                      \
  }

// two sums in one pass
#define SUM_TWO_OVER(first, second, n, j, term1, term2)         \
  for (i64 from_ = 0; from_ < (n); from_ += BLOCK) {            \
    const i64 to_ = from_ + BLOCK < (n) ? from_ + BLOCK : (n);  \
    A one_[LANES], two_[LANES];                                 \
    for (int k_ = 0; k_ < LANES; ++k_) one_[k_] = two_[k_] = 0; \
    i64 i_ = from_;                                             \
    for (; i_ + LANES <= to_; i_ += LANES) {                    \
      for (int k_ = 0; k_ < LANES; ++k_) {                      \
        const i64 j = i_ + k_;                                  \
        one_[k_] += (term1);                                    \
        two_[k_] += (term2);                                    \
      }                                                         \
    }                                                           \
    for (; i_ < to_; ++i_) {                                    \
      const i64 j = i_;                                         \
      one_[0] += (term1);                                       \
      two_[0] += (term2);                                       \
    }                                                           \
    first += fold(one_);                                        \
    second += fold(two_);                                       \
  }

// total[c] = the sum of term, an expression in r and c, for r in 0 .. rows-1, for `there` columns c of a tile
#define COLUMN_SUMS(total, there, rows, r, c, term)                          \
  {                                                                          \
    A block_[TILE];                                                          \
    for (int c = 0; c < TILE; ++c) total[c] = block_[c] = 0;                 \
    for (i64 r = 0; r < (rows); ++r) {                                       \
      if (r % 256 == 255) {                                                  \
        for (int c = 0; c < TILE; ++c) total[c] += block_[c], block_[c] = 0; \
      }                                                                      \
      if ((there) == TILE) {                                                 \
        for (int c = 0; c < TILE; ++c) block_[c] += (term);                  \
      } else {                                                               \
        for (int c = 0; c < (int)(there); ++c) block_[c] += (term);          \
      }                                                                      \
    }                                                                        \
    for (int c = 0; c < TILE; ++c) total[c] += block_[c];                    \
  }
