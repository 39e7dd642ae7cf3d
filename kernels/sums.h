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

// Terms of elements that lie side by side are macros of V and a place: TERM(V, i) is LANES terms as a vector, TERM(, i)
// one. Both are spelled once: V##LOAD_X(p, i) loads a vector or an element, V##OF(p, i) and V##PUT(p, i, v) are of
// numbers in the type computed in.
#define OF(p, i) ((p)[i])
#define VOF(p, i) VLOAD_f32x16((p) + (i))
#define PUT(p, i, v) ((p)[i] = (v))
#define VPUT(p, i, v) VSTORE_f32x16(v, (p) + (i))

#ifdef FL_F32
// total += the sum of TERM(, 0) to TERM(, n - 1)
#define SUM_OF(total, n, TERM)                                        \
  for (i64 from_ = 0; from_ < (n); from_ += BLOCK) {                  \
    const i64 to_ = from_ + BLOCK < (n) ? from_ + BLOCK : (n);        \
    f32x16 v0_ = VECTOR_SPLAT(0.0f), v1_ = v0_, v2_ = v0_, v3_ = v0_; \
    i64 i_ = from_;                                                   \
    for (; i_ + 4 * LANES <= to_; i_ += 4 * LANES) {                  \
      v0_ += TERM(V, i_);                                             \
      v1_ += TERM(V, i_ + LANES);                                     \
      v2_ += TERM(V, i_ + 2 * LANES);                                 \
      v3_ += TERM(V, i_ + 3 * LANES);                                 \
    }                                                                 \
    for (; i_ + LANES <= to_; i_ += LANES) v0_ += TERM(V, i_);        \
    A sum_ = v_sum((v0_ + v1_) + (v2_ + v3_));                        \
    for (; i_ < to_; ++i_) sum_ += TERM(, i_);                        \
    total += sum_;                                                    \
  }

// two sums in one pass
#define SUM_TWO_OF(first, second, n, TERM1, TERM2)                    \
  for (i64 from_ = 0; from_ < (n); from_ += BLOCK) {                  \
    const i64 to_ = from_ + BLOCK < (n) ? from_ + BLOCK : (n);        \
    f32x16 v0_ = VECTOR_SPLAT(0.0f), v1_ = v0_, w0_ = v0_, w1_ = v0_; \
    i64 i_ = from_;                                                   \
    for (; i_ + 2 * LANES <= to_; i_ += 2 * LANES) {                  \
      v0_ += TERM1(V, i_);                                            \
      w0_ += TERM2(V, i_);                                            \
      v1_ += TERM1(V, i_ + LANES);                                    \
      w1_ += TERM2(V, i_ + LANES);                                    \
    }                                                                 \
    A one_ = v_sum(v0_ + v1_), two_ = v_sum(w0_ + w1_);               \
    for (; i_ < to_; ++i_) {                                          \
      one_ += TERM1(, i_);                                            \
      two_ += TERM2(, i_);                                            \
    }                                                                 \
    first += one_;                                                    \
    second += two_;                                                   \
  }

// DO(, 0); to DO(, n - 1);
#define FOR_ALL(n, DO)                                \
  {                                                   \
    i64 i_ = 0;                                       \
    for (; i_ + LANES <= (n); i_ += LANES) DO(V, i_); \
    for (; i_ < (n); ++i_) DO(, i_);                  \
  }
#else
#define SUM_OF(total, n, TERM) SUM_OVER(total, n, j_, TERM(, j_))
#define SUM_TWO_OF(first, second, n, TERM1, TERM2) SUM_TWO_OVER(first, second, n, j_, TERM1(, j_), TERM2(, j_))
#define FOR_ALL(n, DO) VECTOR_LOOP for (i64 i_ = 0; i_ < (n); ++i_) DO(, i_);
#endif

// block_[c] = the sum of TERM(, r, c), for r in from_ .. to_-1, for all columns c of a tile
#ifdef FL_F32
#define TILE_SUMS(TERM)                                               \
  {                                                                   \
    f32x16 v0_ = VECTOR_SPLAT(0.0f), v1_ = v0_, v2_ = v0_, v3_ = v0_; \
    for (i64 r_ = from_; r_ < to_; ++r_) {                            \
      v0_ += TERM(V, r_, 0);                                          \
      v1_ += TERM(V, r_, LANES);                                      \
      v2_ += TERM(V, r_, 2 * LANES);                                  \
      v3_ += TERM(V, r_, 3 * LANES);                                  \
    }                                                                 \
    VSTORE_f32x16(v0_, block_);                                       \
    VSTORE_f32x16(v1_, block_ + LANES);                               \
    VSTORE_f32x16(v2_, block_ + 2 * LANES);                           \
    VSTORE_f32x16(v3_, block_ + 3 * LANES);                           \
  }
#else
#define TILE_SUMS(TERM)                                             \
  for (i64 r_ = from_; r_ < to_; ++r_) {                            \
    for (int c_ = 0; c_ < TILE; ++c_) block_[c_] += TERM(, r_, c_); \
  }
#endif

// total[c] = the sum of TERM(, r, c), for r in 0 .. rows-1, for `there` columns c of a tile
#define COLUMN_SUMS(total, there, rows, TERM)                                     \
  {                                                                               \
    for (int c_ = 0; c_ < TILE; ++c_) total[c_] = 0;                              \
    for (i64 from_ = 0; from_ < (rows); from_ += 256) {                           \
      const i64 to_ = from_ + 256 < (rows) ? from_ + 256 : (rows);                \
      A block_[TILE];                                                             \
      for (int c_ = 0; c_ < TILE; ++c_) block_[c_] = 0;                           \
      if ((there) == TILE) {                                                      \
        TILE_SUMS(TERM)                                                           \
      } else {                                                                    \
        for (i64 r_ = from_; r_ < to_; ++r_) {                                    \
          for (int c_ = 0; c_ < (int)(there); ++c_) block_[c_] += TERM(, r_, c_); \
        }                                                                         \
      }                                                                           \
      for (int c_ = 0; c_ < TILE; ++c_) total[c_] += block_[c_];                  \
    }                                                                             \
  }
