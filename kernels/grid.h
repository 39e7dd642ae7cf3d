// SPDX-License-Identifier: Apache-2.0
// Sampling where a grid says. MODE: 0 linear, 1 nearest, 2 cubic; PADDING: 0 zeros, 1 the border, 2 reflection. Every
// mode is separable: along each dimension a sample has TAPS inputs, their weights, and how these change with the grid.
#define AT(stride, n, c, z, y, x) \
  ((n) * stride[0] + (c) * stride[1] + (z) * stride[2] + (y) * stride[3] + (x) * stride[4])
#define TILE 16
#define TAP(d, j, t) (((d) * TAPS + (j)) * TILE + (t))
#define NO_TAP (-1)

FUNCTION i64 least(i64 a, i64 b) { return a < b ? a : b; }

// From [-1, 1] to positions in the image.
FUNCTION A position_of(A x, i64 size, i64 corners) {
  return corners ? (x + 1) / 2 * (A)(size - 1) : ((x + 1) * (A)size - 1) / 2;
}
// To where the padding puts it. *slope: how that changes with x.
FUNCTION A padded(A x, i64 size, i64 corners, A* slope) {
  *slope = 1;
#if PADDING == 2
  const A low = corners ? (A)0 : (A)-0.5, span = corners ? (A)(size - 1) : (A)size;
  if (span == 0) {
    *slope = 0;
    return 0;
  }
  const A distance = fabs(x - low), extra = fmod(distance, span), flips = floor(distance / span);
  const int odd = flips != 2 * floor(flips / 2);
  *slope = (x < low) != odd ? -1 : 1;
  x = (odd ? span - extra : extra) + low;
#endif
#if PADDING != 0
  const A last = (A)(size - 1);
  if (!(x > 0)) {
    *slope = 0;
    return 0;
  }
  if (x >= last) {
    *slope = 0;
    return last;
  }
#endif
  return x;
}
// A whole number, or that there is no such input: also for what is no number or far outside.
FUNCTION i32 tap_at(A x, i64 size) { return x >= 0 && x < (A)size ? (i32)x : NO_TAP; }

FUNCTION A cubic_near(A x) { return ((A)1.25 * x - (A)2.25) * x * x + 1; }
FUNCTION A cubic_far(A x) { return (((A)-0.75 * x + (A)3.75) * x - 6) * x + 3; }
FUNCTION A cubic_near_slope(A x) { return ((A)3.75 * x - (A)4.5) * x; }
FUNCTION A cubic_far_slope(A x) { return ((A)-2.25 * x + (A)7.5) * x - 6; }

// The taps of coordinate x along a dimension, TILE apart. `change` may be the same memory as `weight` where no one
// wants it: weights are written last.
FUNCTION void make_taps(A x, i64 size, i64 corners, i32* at, A* weight, A* change) {
  const A scale = (corners ? (A)(size - 1) : (A)size) / 2;
  A slope;
#if MODE == 2
  const A position = position_of(x, size, corners), whole = floor(position), t = position - whole;
  for (int j = 0; j < 4; ++j) at[j * TILE] = tap_at(padded(whole + (A)(j - 1), size, corners, &slope), size);
  change[0] = scale * cubic_far_slope(1 + t);
  change[TILE] = scale * cubic_near_slope(t);
  change[2 * TILE] = -scale * cubic_near_slope(1 - t);
  change[3 * TILE] = -scale * cubic_far_slope(2 - t);
  weight[0] = cubic_far(1 + t);
  weight[TILE] = cubic_near(t);
  weight[2 * TILE] = cubic_near(1 - t);
  weight[3 * TILE] = cubic_far(2 - t);
#else
  const A position = padded(position_of(x, size, corners), size, corners, &slope);
#if MODE == 1
  at[0] = tap_at(rint(position), size);
  change[0] = 0;
  weight[0] = 1;
#else
  const A whole = floor(position);
  at[0] = tap_at(whole, size);
  at[TILE] = tap_at(whole + 1, size);
  change[0] = -scale * slope;
  change[TILE] = scale * slope;
  weight[0] = whole + 1 - position;
  weight[TILE] = position - whole;
#endif
#endif
}

// Of dimension 0 of a flat image there is one tap.
#define TAPS_OF(d) ((d) < 3 - DIMS ? 1 : TAPS)
#define EACH_TAP                            \
  for (int jz = 0; jz < TAPS_OF(0); ++jz)   \
    for (int jy = 0; jy < TAPS_OF(1); ++jy) \
      for (int jx = 0; jx < TAPS_OF(2); ++jx)
// Taps of `width` positions from `first` on, into at, weight and change.
#define MAKE_TILE(change)                                                                                     \
  for (i64 t = 0; t < width; ++t) {                                                                           \
    const i64 o = first + t, ox = o % p.out[2], oy = o / p.out[2] % p.out[1], oz = o / (p.out[2] * p.out[1]); \
    for (int d = 0; d < 3 - DIMS; ++d) {                                                                      \
      at[TAP(d, 0, t)] = 0;                                                                                   \
      change[TAP(d, 0, t)] = 0;                                                                               \
      weight[TAP(d, 0, t)] = 1;                                                                               \
    }                                                                                                         \
    for (int d = 3 - DIMS; d < 3; ++d) {                                                                      \
      const A x = LOAD(grid, AT(p.gs, n, 2 - d, oz, oy, ox));                                                 \
      make_taps(x, p.in[d], p.corners, at + TAP(d, 0, t), weight + TAP(d, 0, t), change + TAP(d, 0, t));      \
    }                                                                                                         \
  }
// Of the tap of the loop above, for position t of a tile.
#define Z_AT at[TAP(0, jz, t)]
#define Y_AT at[TAP(1, jy, t)]
#define X_AT at[TAP(2, jx, t)]
#define EXISTS ((Z_AT | Y_AT | X_AT) >= 0)
#define PLACE(stride, t) ((i64)Z_AT * stride[2] + (i64)Y_AT * stride[3] + (i64)X_AT * stride[4])
#define WEIGHT (weight[TAP(0, jz, t)] * weight[TAP(1, jy, t)] * weight[TAP(2, jx, t)])
