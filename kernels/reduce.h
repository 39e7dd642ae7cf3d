// SPDX-License-Identifier: Apache-2.0
// Reductions. A: the type accumulated in. The family defines FIRST (the accumulator before anything), MAP(x) (of an
// element), JOIN(a, b) (of two accumulators) and LAST(a) (the result). Sums are formed side by side: in vectors where
// VECTORS says so (V_MAP and V_JOIN are then the same for f32x16), else in LANES accumulators, which some compilers
// keep in vector registers.
#define LANES 16
#define BLOCK 4096

#if VECTORS
FUNCTION A join_lanes(f32x16 v) {
  v = V_JOIN(v, VECTOR_SWAP_8(v));
  v = V_JOIN(v, VECTOR_SWAP_4(v));
  v = V_JOIN(v, VECTOR_SWAP_2(v));
  v = V_JOIN(v, VECTOR_SWAP_1(v));
  return VECTOR_FIRST(v);
}
#endif

// n elements `step` apart. Long stretches in blocks, so that a sum's error grows with the number of blocks only.
FUNCTION A reduce_run(GLOBAL const IN* x, const i64 at, const i64 n, const i64 step) {
  A total = FIRST;
  for (i64 begin = 0; begin < n; begin += BLOCK) {
    const i64 end = begin + BLOCK < n ? begin + BLOCK : n;
    i64 j = begin;
#if VECTORS && STEP == 1
    f32x16 v0 = SPLAT(FIRST), v1 = v0, v2 = v0, v3 = v0;
    for (; j + 4 * LANES <= end; j += 4 * LANES) {
      v0 = V_JOIN(v0, V_MAP(V_LOAD(x, at + j)));
      v1 = V_JOIN(v1, V_MAP(V_LOAD(x, at + j + LANES)));
      v2 = V_JOIN(v2, V_MAP(V_LOAD(x, at + j + 2 * LANES)));
      v3 = V_JOIN(v3, V_MAP(V_LOAD(x, at + j + 3 * LANES)));
    }
    for (; j + LANES <= end; j += LANES) v0 = V_JOIN(v0, V_MAP(V_LOAD(x, at + j)));
    A joined = join_lanes(V_JOIN(V_JOIN(v0, v1), V_JOIN(v2, v3)));
    for (; j < end; ++j) joined = JOIN(joined, MAP(LOAD(x, at + j)));
    total = JOIN(total, joined);
#else
    A lane[LANES];
    for (int k = 0; k < LANES; ++k) lane[k] = FIRST;
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
#endif
  }
  return total;
}
