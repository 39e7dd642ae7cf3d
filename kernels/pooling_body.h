// SPDX-License-Identifier: Apache-2.0
// Bodies of the pooling kernels: FORWARD, SPREAD (the gradient of an average), SCATTER (that of a maximum, by its
// index). Neighbours are taken along the channels where those lie side by side (CHANNELS), else along the width.
#ifdef CHANNELS
#define FIRST_CHANNEL first
#else
#define FIRST_CHANNEL c
#endif

#ifdef FORWARD
const i64 last_row = SHARE_END(p.chunk, p.rows);
for (i64 row = item * p.chunk; row < last_row; ++row) {
  i64 rest = row;
#ifdef CHANNELS
  const i64 ox = rest % p.out[2], lanes = p.c;
  rest /= p.out[2];
#define X_OUT ox
#else
  const i64 lanes = p.out[2];
#define X_OUT first
#endif
  const i64 oy = rest % p.out[1], oz = rest / p.out[1] % p.out[0];
  rest /= p.out[1] * p.out[0];
#ifdef CHANNELS
  const i64 n = rest;
#else
  const i64 c = rest % p.c, n = rest / p.c;
#endif
#ifdef FRACTIONAL
  A shift[3] = {0, 0, 0};
  for (int d = 0; d < 3; ++d) {
    if (p.sample_of[d] >= 0) shift[d] = LOAD(samples, n * p.ss[0] + c * p.ss[1] + p.sample_of[d] * p.ss[2]);
  }
#endif
  const i64 z0 = START(0, oz), z1 = END(0, oz), y0 = START(1, oy), y1 = END(1, oy);
  for (i64 first = 0; first < lanes; first += TILE) {
    const i64 width = least(lanes - first, TILE);
    A best[TILE];
#ifdef MAXIMUM
    POSITION where[TILE];
    for (i64 t = 0; t < width; ++t) {
      best[t] = LOWEST;
      where[t] = (POSITION)((z0 * p.in[1] + y0) * p.in[2] + START(2, X_LANE));
    }
#else
    for (i64 t = 0; t < width; ++t) best[t] = 0;
#ifdef LONG_ROWS
    A lane[LANES];
    for (int k = 0; k < LANES; ++k) lane[k] = 0;
#endif
#endif
    for (i64 z = z0; z < z1; z += STEP(0)) {
      for (i64 y = y0; y < y1; y += STEP(1)) {
        const i64 line = (z * p.in[1] + y) * p.in[2];
#ifdef ONE_WINDOW  // for the whole tile
        const i64 x1 = END(2, X_OUT);
        i64 x = START(2, X_OUT);
#ifdef LONG_ROWS
        const i64 row_at = AT(p.xs, n, c, z, y, 0);
        for (; x + LANES <= x1; x += LANES) {
          for (int k = 0; k < LANES; ++k) lane[k] += LOAD(from, row_at + (x + k) * NEXT);
        }
#endif
        for (; x < x1; x += STEP(2)) {
          const i64 at = AT(p.xs, n, FIRST_CHANNEL, z, y, x);
          if (width == TILE) {
            VECTOR_LOOP
            for (int t = 0; t < TILE; ++t) TAKE(t, LOAD(from, at + t * NEXT), line + x)
          } else {
            for (i64 t = 0; t < width; ++t) TAKE(t, LOAD(from, at + t * NEXT), line + x)
          }
        }
#else
        for (i64 k = 0; k < p.window[2]; ++k) {
          const i64 x = first * p.stride[2] - p.pad[2] + k * p.dilation[2];
          const i64 at = AT(p.xs, n, c, z, y, x), begin = quotient_up(-x, p.stride[2]);
          const i64 end = least(quotient_up(p.in[2] - x, p.stride[2]), width);
          VECTOR_LOOP
          for (i64 t = begin; t < end; ++t) TAKE(t, LOAD(from, at + t * NEXT), line + x + t * p.stride[2])
        }
#endif
      }
    }
#ifdef LONG_ROWS
    for (int k = 0; k < LANES; ++k) best[0] += lane[k];
#endif
#ifdef MAXIMUM
    const i64 index_at = AT(p.zs, n, FIRST_CHANNEL, oz, oy, X_OUT);
    for (i64 t = 0; t < width; ++t) indices[index_at + t * p.zs[LANE_DIM]] = where[t];
#else
    const i64 plane = EXTENT(0, oz) * EXTENT(1, oy);
    for (i64 t = 0; t < width && p.full; ++t) best[t] /= (A)p.divisor;
    for (i64 t = 0; t < width && !p.full; ++t) {
      // A window without any input gives 0, whatever it is divided by.
      const i64 inside = (z1 > z0) & (y1 > y0) & (END(2, X_LANE) > START(2, X_LANE));
      const i64 count = p.divisor != 0 ? p.divisor : plane * EXTENT(2, X_LANE);
      best[t] = inside ? best[t] / (A)count : 0;
    }
#endif
    const i64 to_at = AT(p.ys, n, FIRST_CHANNEL, oz, oy, X_OUT);
    for (i64 t = 0; t < width; ++t) STORE(to, to_at + t * p.ys[LANE_DIM], best[t]);
  }
}
#endif

#ifdef SPREAD  // `from` is the output's gradient, `to` the input's
const i64 last_row = SHARE_END(p.chunk, p.rows);
for (i64 row = item * p.chunk; row < last_row; ++row) {
  i64 rest = row;
#ifdef CHANNELS
  const i64 ix = rest % p.in[2], lanes = p.c;
  rest /= p.in[2];
#define X_IN ix
#else
  const i64 lanes = p.in[2];
#define X_IN first
#endif
  const i64 iy = rest % p.in[1], iz = rest / p.in[1] % p.in[0];
  rest /= p.in[1] * p.in[0];
#ifdef CHANNELS
  const i64 n = rest;
#else
  const i64 c = rest % p.c, n = rest / p.c;
#endif
  const i64 z0 = FIRST_OVER(0, iz), z1 = LAST_OVER(0, iz), y0 = FIRST_OVER(1, iy), y1 = LAST_OVER(1, iy);
  for (i64 first = 0; first < lanes; first += TILE) {
    const i64 width = least(lanes - first, TILE);
    A sum[TILE];
    for (int t = 0; t < TILE; ++t) sum[t] = 0;
#ifdef CHANNELS
    const i64 x1 = LAST_OVER(2, ix);
    for (i64 z = z0; z <= z1; ++z) {
      for (i64 y = y0; y <= y1; ++y) {
        for (i64 x = FIRST_OVER(2, ix); x <= x1; ++x) {
          const i64 count = p.divisor != 0 ? p.divisor : EXTENT(0, z) * EXTENT(1, y) * EXTENT(2, x);
          const i64 at = AT(p.xs, n, first, z, y, x);
          VECTOR_LOOP
          for (i64 t = 0; t < width; ++t) sum[t] += LOAD(from, at + t * NEXT) / (A)count;
        }
      }
    }
#else
    // What comes to the columns of some outputs, then each column's share to the inputs under it.
    const i64 x1 = LAST_OVER(2, first + width - 1);
    for (i64 ox = FIRST_OVER(2, first); ox <= x1; ox += TILE) {
      const i64 columns = least(x1 + 1 - ox, TILE);
      A column[TILE];
      for (int t = 0; t < TILE; ++t) column[t] = 0;
      for (i64 z = z0; z <= z1; ++z) {
        for (i64 y = y0; y <= y1; ++y) {
          const i64 at = AT(p.xs, n, c, z, y, ox);
          const A scale = 1 / (A)(p.divisor != 0 ? p.divisor : EXTENT(0, z) * EXTENT(1, y));
          VECTOR_LOOP
          for (i64 t = 0; t < columns; ++t) column[t] += LOAD(from, at + t * NEXT) * scale;
        }
      }
      for (i64 t = 0; t < columns; ++t) {
        const A share = p.divisor != 0 ? column[t] : column[t] / (A)EXTENT(2, ox + t);
        const i64 end = least(END(2, ox + t) - first, width);
        for (i64 x = most(START(2, ox + t) - first, 0); x < end; ++x) sum[x] += share;
      }
    }
#endif
    const i64 to_at = AT(p.ys, n, FIRST_CHANNEL, iz, iy, X_IN);
    for (i64 t = 0; t < width; ++t) STORE(to, to_at + t * p.ys[LANE_DIM], sum[t]);
  }
}
#endif

#ifdef SCATTER  // whole planes, so that nobody else writes to them; an index from outside is passed over
const i64 size = p.in[0] * p.in[1] * p.in[2], count = p.out[0] * p.out[1] * p.out[2];
const i64 last_unit = SHARE_END(p.chunk, p.rows);
for (i64 unit = item * p.chunk; unit < last_unit; ++unit) {
  const i64 n = unit / p.blocks, c0 = unit % p.blocks * p.block, c1 = least(c0 + p.block, p.c);
  const i64 from_at = n * p.xs[0], index_at = n * p.zs[0], to_at = n * p.ys[0];
#define TO(i, c) to_at + (c) * p.ys[1] + PLACE_OF(i)
#ifdef NARROW  // sums of 16-bit types are formed elsewhere
  const i64 sum_at = (n * p.c + c0) * size;
#define SUM(i, c) sum[sum_at + (i) * (c1 - c0) + (c) - c0]
#else
#define SUM(i, c) to[TO(i, c)]
#endif
  for (i64 i = 0; i < size; ++i) {
    for (i64 c = c0; c < c1; ++c) SUM(i, c) = 0;
  }
  for (i64 o = 0; o < count; ++o) {
    for (i64 c = c0; c < c1; ++c) {
      const i64 index = indices[index_at + c * p.zs[1] + o * p.zs[4]];
      if (index < 0 || index >= size) continue;
      SUM(index, c) += LOAD(from, from_at + c * p.xs[1] + o * p.xs[4]);
    }
  }
#ifdef NARROW
  for (i64 i = 0; i < size; ++i) {
    for (i64 c = c0; c < c1; ++c) STORE(to, TO(i, c), SUM(i, c));
  }
#endif
}
#endif
