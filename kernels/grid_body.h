// SPDX-License-Identifier: Apache-2.0
// Bodies of the grid samplers: FORWARD, TO_GRID (the grid's gradient), and else the image's.
const i64 positions = p.out[0] * p.out[1] * p.out[2];
const i64 last_row = SHARE_END(p.chunk, p.rows);
i32 at[3 * TAPS * TILE];
A weight[3 * TAPS * TILE];
#if defined(FORWARD) || defined(TO_GRID)
const i64 tiles = (positions + TILE - 1) / TILE;
for (i64 row = item * p.chunk; row < last_row; ++row) {
  const i64 n = row / tiles, first = row % tiles * TILE, width = least(positions - first, TILE);
  i64 place[TILE];  // of positions, in the output or its gradient
  for (i64 t = 0; t < width; ++t) {
    const i64 o = first + t;
    place[t] = AT(p.ys, n, 0, o / (p.out[2] * p.out[1]), o / p.out[2] % p.out[1], o % p.out[2]);
  }
#ifdef FORWARD
  MAKE_TILE(weight)
  for (i64 c = 0; c < p.c; ++c) {
    A sum[TILE];
    for (int t = 0; t < TILE; ++t) sum[t] = 0;
    const i64 plane = n * p.xs[0] + c * p.xs[1];
    EACH_TAP {
      for (i64 t = 0; t < width; ++t) sum[t] += EXISTS ? WEIGHT * LOAD(image, plane + PLACE(p.xs, t)) : 0;
    }
    for (i64 t = 0; t < width; ++t) STORE(to, place[t] + c * p.ys[1], sum[t]);
  }
#else
  A change[3 * TAPS * TILE], sum[3 * TILE];
  MAKE_TILE(change)
  for (int k = 0; k < 3 * TILE; ++k) sum[k] = 0;
  for (i64 c = 0; c < p.c; ++c) {
    const i64 plane = n * p.xs[0] + c * p.xs[1];
    EACH_TAP {
      for (i64 t = 0; t < width; ++t) {
        const A v = EXISTS ? LOAD(image, plane + PLACE(p.xs, t)) * LOAD(gradient, place[t] + c * p.ys[1]) : 0;
        const A wz = weight[TAP(0, jz, t)], wy = weight[TAP(1, jy, t)], wx = weight[TAP(2, jx, t)];
        sum[t] += v * change[TAP(0, jz, t)] * wy * wx;
        sum[TILE + t] += v * wz * change[TAP(1, jy, t)] * wx;
        sum[2 * TILE + t] += v * wz * wy * change[TAP(2, jx, t)];
      }
    }
  }
  for (int d = 3 - DIMS; d < 3; ++d) {
    for (i64 t = 0; t < width; ++t) {
      const i64 o = first + t;
      const i64 there = AT(p.zs, n, 2 - d, o / (p.out[2] * p.out[1]), o / p.out[2] % p.out[1], o % p.out[2]);
      STORE(to, there, sum[d * TILE + t]);
    }
  }
#endif
}
#else          // whole planes of some channels, so that nobody else writes to them
for (i64 row = item * p.chunk; row < last_row; ++row) {
  const i64 n = row / p.blocks, c0 = row % p.blocks * p.block, c1 = least(c0 + p.block, p.c);
  for (i64 c = c0; c < c1; ++c) {
    for (i64 z = 0; z < p.in[0]; ++z) {
      for (i64 y = 0; y < p.in[1]; ++y) {
        for (i64 x = 0; x < p.in[2]; ++x) sum[AT(p.ss, n, c, z, y, x)] = 0;
      }
    }
  }
  for (i64 first = 0; first < positions; first += TILE) {
    const i64 width = least(positions - first, TILE);
    MAKE_TILE(weight)
    for (i64 t = 0; t < width; ++t) {
      const i64 o = first + t;
      const i64 from = AT(p.ys, n, 0, o / (p.out[2] * p.out[1]), o / p.out[2] % p.out[1], o % p.out[2]);
      EACH_TAP {
        if (!EXISTS) continue;
        const A w = WEIGHT;
        const i64 there = n * p.ss[0] + PLACE(p.ss, t);
        for (i64 c = c0; c < c1; ++c) sum[there + c * p.ss[1]] += w * LOAD(gradient, from + c * p.ys[1]);
      }
    }
  }
#ifdef NARROW  // sums of 16-bit types are formed elsewhere
  for (i64 c = c0; c < c1; ++c) {
    for (i64 z = 0; z < p.in[0]; ++z) {
      for (i64 y = 0; y < p.in[1]; ++y) {
        for (i64 x = 0; x < p.in[2]; ++x) STORE(to, AT(p.xs, n, c, z, y, x), sum[AT(p.ss, n, c, z, y, x)]);
      }
    }
  }
#endif
}
#endif
