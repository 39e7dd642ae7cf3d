// SPDX-License-Identifier: Apache-2.0
// Reductions. A: the type accumulated in. The family defines FIRST (the accumulator before anything), MAP(x) (of an
// element), JOIN(a, b) (of two accumulators) and LAST(a) (the result). Sums are formed in LANES accumulators side by
// side, which compilers keep in vector registers.
#define LANES 16
#define BLOCK 4096

// n elements `step` apart. Long stretches in blocks, so that a sum's error grows with the number of blocks only.
FUNCTION A reduce_run(GLOBAL const IN* x, const i64 at, const i64 n, const i64 step) {
  A total = FIRST;
  for (i64 begin = 0; begin < n; begin += BLOCK) {
    const i64 end = begin + BLOCK < n ? begin + BLOCK : n;
    A lane[LANES];
    for (int k = 0; k < LANES; ++k) lane[k] = FIRST;
    i64 j = begin;
#if STEP == 1
    for (; j + LANES <= end; j += LANES) {
      for (int k = 0; k < LANES; ++k) lane[k] = JOIN(lane[k], MAP(LOAD(x, at + j + k)));
    }
#endif
    for (; j < end; ++j) lane[0] = JOIN(lane[0], MAP(LOAD(x, at + j * step)));
    for (int width = LANES / 2; width > 0; width /= 2) {
      for (int k = 0; k < width; ++k) lane[k] = JOIN(lane[k], lane[k + width]);
    }
    total = JOIN(total, lane[0]);
  }
  return total;
}
