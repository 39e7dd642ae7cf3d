// SPDX-License-Identifier: Apache-2.0
// Bodies of the resampling kernels: TABLE, FORWARD and BACKWARD. Neighbours are taken along the channels where those
// lie side by side (CHANNELS), else along the width.
#ifdef TABLE
for (int d = 0; d < 3; ++d) {
  const i64 chunk = (p.out[d] + p.tables - 1) / p.tables, end = SHARE_END(chunk, p.out[d]);
  for (i64 o = item * chunk; o < end; ++o) {
    if (p.missing[d]) {
      STARTS(d)[o] = 0;
      WEIGHTS(d)[o] = 1;
    } else {
      make_taps(STARTS(d), WEIGHTS(d), o, p.in[d], p.out[d], K(d), BITS(p.scale[d]), p.corners);
    }
  }
}
#endif

#ifdef FORWARD
const i64 last_row = SHARE_END(p.chunk, p.rows);
for (i64 row = item * p.chunk; row < last_row; ++row) {
  i64 rest = row;
#ifdef CHANNELS
  const i64 ox = rest % p.out[2], lanes = p.c;
  rest /= p.out[2];
#else
  const i64 lanes = p.out[2];
#endif
  const i64 oy = rest % p.out[1], oz = rest / p.out[1] % p.out[0];
  rest /= p.out[1] * p.out[0];
#ifdef CHANNELS
  const i64 n = rest, to_at = AT(p.ys, n, 0, oz, oy, ox);
#else
  const i64 c = rest % p.c, n = rest / p.c, to_at = AT(p.ys, n, c, oz, oy, 0);
#endif
#ifdef MOVE
  const i64 iz = STARTS(0)[oz], iy = STARTS(1)[oy];
#ifdef CHANNELS
  const i64 at = AT(p.xs, n, 0, iz, iy, STARTS(2)[ox]);
  VECTOR_LOOP
  for (i64 t = 0; t < lanes; ++t) to[to_at + t * NEXT_OUT] = from[at + t * NEXT_IN];
#else
  const i64 at = AT(p.xs, n, c, iz, iy, 0);
  VECTOR_LOOP
  for (i64 t = 0; t < lanes; ++t) to[to_at + t * NEXT_OUT] = from[at + STARTS(2)[t] * NEXT_IN];
#endif
#else
  for (i64 first = 0; first < lanes; first += TILE) {
    const i64 width = least(lanes - first, TILE);
    A sum[TILE];
    for (int t = 0; t < TILE; ++t) sum[t] = 0;
    for (i64 jz = 0; jz < K(0); ++jz) {
      const i64 z = inside(STARTS(0)[oz] + jz, p.in[0]);
      const A wz = WEIGHTS(0)[jz * p.out[0] + oz];
      for (i64 jy = 0; jy < K(1); ++jy) {
        const i64 y = inside(STARTS(1)[oy] + jy, p.in[1]);
        const A wy = wz * WEIGHTS(1)[jy * p.out[1] + oy];
        for (i64 jx = 0; jx < K(2); ++jx) {
#ifdef CHANNELS
          const A w = wy * WEIGHTS(2)[jx * p.out[2] + ox];
          const i64 at = AT(p.xs, n, first, z, y, inside(STARTS(2)[ox] + jx, p.in[2]));
          VECTOR_LOOP
          for (i64 t = 0; t < width; ++t) sum[t] += SKIP_ZERO(w, LOAD(from, at + t * NEXT_IN));
#else
          const i64 at = AT(p.xs, n, c, z, y, 0), begin = jx * p.out[2] + first;
          VECTOR_LOOP
          for (i64 t = 0; t < width; ++t) {
            const i32 x = inside_32(STARTS(2)[first + t] + (i32)jx, (i32)p.in[2]);
            sum[t] += SKIP_ZERO(wy * WEIGHTS(2)[begin + t], LOAD(from, at + x * NEXT_IN));
          }
#endif
        }
      }
    }
    VECTOR_LOOP
    for (i64 t = 0; t < width; ++t) STORE(to, to_at + (first + t) * NEXT_OUT, sum[t]);
  }
#endif
}
#endif

#ifdef BACKWARD  // `from` is the output's gradient, `to` the input's
const i64 last_row = SHARE_END(p.chunk, p.rows);
for (i64 row = item * p.chunk; row < last_row; ++row) {
  i64 rest = row;
#ifdef CHANNELS
  const i64 ix = rest % p.in[2], lanes = p.c;
  rest /= p.in[2];
#else
  const i64 lanes = p.in[2];
#endif
  const i64 iy = rest % p.in[1], iz = rest / p.in[1] % p.in[0];
  rest /= p.in[1] * p.in[0];
#ifdef CHANNELS
  const i64 n = rest, to_at = AT(p.ys, n, 0, iz, iy, ix);
#else
  const i64 c = rest % p.c, n = rest / p.c, to_at = AT(p.ys, n, c, iz, iy, 0);
#endif
  const i64 z0 = FIRST(0, iz), z1 = BEYOND(0, iz), y0 = FIRST(1, iy), y1 = BEYOND(1, iy);
  for (i64 first = 0; first < lanes; first += TILE) {
    const i64 width = least(lanes - first, TILE);
    A sum[TILE];
    for (int t = 0; t < TILE; ++t) sum[t] = 0;
#ifdef CHANNELS
    const i64 x1 = BEYOND(2, ix);
    for (i64 z = z0; z < z1; ++z) {
      const A wz = SHARE(0, z, iz);
      for (i64 y = y0; y < y1; ++y) {
        const A wy = wz * SHARE(1, y, iy);
        for (i64 x = FIRST(2, ix); x < x1; ++x) {
          const A w = wy * SHARE(2, x, ix);
          const i64 at = AT(p.xs, n, first, z, y, x);
          VECTOR_LOOP
          for (i64 t = 0; t < width; ++t) sum[t] += SKIP_ZERO(w, LOAD(from, at + t * NEXT_IN));
        }
      }
    }
#else
    // What comes to the columns of some outputs, then each column's share to the inputs that it was made of.
    const i64 x1 = BEYOND(2, first + width - 1);
    for (i64 ox = FIRST(2, first); ox < x1; ox += TILE) {
      const i64 columns = least(x1 - ox, TILE);
      A column[TILE];
      for (int t = 0; t < TILE; ++t) column[t] = 0;
      for (i64 z = z0; z < z1; ++z) {
        const A wz = SHARE(0, z, iz);
        for (i64 y = y0; y < y1; ++y) {
          const A w = wz * SHARE(1, y, iy);
          const i64 at = AT(p.xs, n, c, z, y, ox);
          VECTOR_LOOP
          for (i64 t = 0; t < columns; ++t) column[t] += SKIP_ZERO(w, LOAD(from, at + t * NEXT_IN));
        }
      }
      for (i64 t = 0; t < columns; ++t) {
        for (i64 j = 0; j < K(2); ++j) {
          const i64 x = inside(STARTS(2)[ox + t] + j, p.in[2]) - first;
          if (x >= 0 && x < width) sum[x] += SKIP_ZERO(WEIGHTS(2)[j * p.out[2] + ox + t], column[t]);
        }
      }
    }
#endif
    VECTOR_LOOP
    for (i64 t = 0; t < width; ++t) STORE(to, to_at + (first + t) * NEXT_OUT, sum[t]);
  }
}
#endif
