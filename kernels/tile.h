// SPDX-License-Identifier: Apache-2.0
// A tile of ROWS rows, each of VECTORS vectors of WIDTH results that are summed in registers. EACH_ROW(F) is F(0) F(1)
// and so on; EACH_VECTOR(F, r) is F(r, 0) F(r, 1) and so on. By name: private arrays of vectors would have to be taken
// apart by the compiler first, which not all do.
#define COLUMNS (VECTORS * WIDTH)
#define TILE_ZERO_ONE(r, v) VEC c##r##_##v = VEC_ZERO;
#define TILE_ZERO(r) EACH_VECTOR(TILE_ZERO_ONE, r)
// `at` points to the vectors that a step takes, `strip` to its ROWS factors.
#define TILE_LOAD(r, v) const VEC b##v = VEC_LOAD(at + v * WIDTH);
#define TILE_ADD_ONE(r, v) c##r##_##v += a * b##v;
#define TILE_ADD(r)              \
  {                              \
    const A a = strip[r];        \
    EACH_VECTOR(TILE_ADD_ONE, r) \
  }
#define TILE_STEP             \
  {                           \
    EACH_VECTOR(TILE_LOAD, 0) \
    EACH_ROW(TILE_ADD)        \
    strip += ROWS;            \
  }
// `lines` has room for ROWS * COLUMNS values.
#define TILE_KEEP_ONE(r, v) VEC_STORE(c##r##_##v, lines + (r * VECTORS + v) * WIDTH);
#define TILE_KEEP(r) EACH_VECTOR(TILE_KEEP_ONE, r)
