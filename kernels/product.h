// SPDX-License-Identifier: Apache-2.0
// Products of matrices: out[b, i, j] = alpha * sum over k of left[b, i, k] * right[b, k, j] + beta * addend[b, i, j].
// See csrc/portable/matmul.cpp for which of these serves what.

// Of real numbers; complex ones define their own, and are summed by singles() only.
#ifndef TIMES
#define ZERO 0
#define TIMES(a, b) ((a) * (b))
#define LEFT(i) LOAD(left, i)
#define ALPHA BITS(p.alpha)
#define BETA BITS(p.beta)
#define HAS_BETA (BETA != 0)
#endif

#ifdef ADDEND
#define ADDEND_POINTER , GLOBAL const T* addend
// PyTorch: with beta 0 the addend is not read.
#define FINISH(b, i, j, value)                                                                                  \
  {                                                                                                             \
    A finished = TIMES(ALPHA, value);                                                                           \
    if (HAS_BETA) {                                                                                             \
      finished += TIMES(BETA, LOAD(addend, (b) * p.addend_batch + (i) * p.addend_row + (j) * p.addend_column)); \
    }                                                                                                           \
    STORE(out, (b) * p.out_batch + (i) * p.out_row + (j) * p.out_column, finished);                             \
  }
#else
#define ADDEND_POINTER
#define FINISH(b, i, j, value) STORE(out, (b) * p.out_batch + (i) * p.out_row + (j) * p.out_column, value);
#endif

#ifdef PACK
// to[b][group][k][GROUP]: GROUP rows of the left factor, or columns of the right one, side by side for each step; 0
// beyond the last.
#define DEPTH 64
FUNCTION void pack(GLOBAL A* to, GLOBAL const T* from, const Params p, const i64 item) {
  const i64 groups = (p.pack_count + GROUP - 1) / GROUP, deep = (p.k + DEPTH - 1) / DEPTH,
            end = SHARE_END(p.chunk, p.total);
  for (i64 t = item * p.chunk; t < end; ++t) {
    const i64 k0 = t % deep * DEPTH, group = t / deep % groups, b = t / deep / groups;
    const i64 k1 = k0 + DEPTH < p.k ? k0 + DEPTH : p.k;
    const i64 there = p.pack_count - group * GROUP < GROUP ? p.pack_count - group * GROUP : GROUP;
    const i64 base = b * p.pack_batch + group * GROUP * p.pack_outer;
    GLOBAL A* line = to + (b * groups + group) * p.k * GROUP;
    if (there == GROUP && p.pack_outer == 1) {
      for (i64 k = k0; k < k1; ++k) {
        for (int c = 0; c < GROUP; ++c) line[k * GROUP + c] = LOAD(from, base + k * p.pack_inner + c);
      }
    } else if (there == GROUP && p.pack_inner == 1) {
      for (i64 k = k0; k < k1; ++k) {
        for (int c = 0; c < GROUP; ++c) line[k * GROUP + c] = LOAD(from, base + k + c * p.pack_outer);
      }
    } else {
      for (i64 k = k0; k < k1; ++k) {
        for (i64 c = 0; c < GROUP; ++c) {
          line[k * GROUP + c] = c < there ? LOAD(from, base + k * p.pack_inner + c * p.pack_outer) : 0;
        }
      }
    }
  }
}
#endif

#ifdef TILES
// Tiles of ROWS x COLUMNS results, of packed strips of the left factor and panels of the right one, packed or its own.
// `deep` tiles take the same panel before the next one comes, and are few enough to stay in a core's cache.
FUNCTION void tiles(GLOBAL T* out, GLOBAL const A* strips, GLOBAL const A* panels ADDEND_POINTER, const Params p,
                    const i64 item) {
  const i64 down = (p.m + ROWS - 1) / ROWS, across = (p.n + COLUMNS - 1) / COLUMNS, end = SHARE_END(p.chunk, p.total);
  for (i64 t = item * p.chunk; t < end; ++t) {
    const i64 b = t / down / across, in_batch = t % (down * across), block = in_batch / (p.deep * across);
    const i64 in_block = in_batch - block * p.deep * across;
    const i64 high = down - block * p.deep < p.deep ? down - block * p.deep : p.deep;
    const i64 tile = block * p.deep + in_block % high, panel = in_block / high;
    const i64 i0 = tile * ROWS, j0 = panel * COLUMNS;
    // The factor's own columns end where they end: the last panel begins earlier.
    const i64 back = p.own && p.n - j0 < COLUMNS ? COLUMNS - (p.n - j0) : 0;
    GLOBAL const A* at = panels + b * p.panel_batch + panel * p.panel_next - back;
    GLOBAL const A* strip = strips + (b * down + tile) * p.k * ROWS;
    EACH_ROW(TILE_ZERO)
    for (i64 k = 0; k < p.k; ++k) {
      TILE_STEP
      at += p.panel_step;
    }
    A lines[ROWS * COLUMNS];
    EACH_ROW(TILE_KEEP)
    const i64 rows = p.m - i0 < ROWS ? p.m - i0 : ROWS, columns = p.n - j0 < COLUMNS ? p.n - j0 : COLUMNS;
    for (i64 r = 0; r < rows; ++r) {
      const A* line = lines + r * COLUMNS + back;
      if (p.out_column == 1 && columns == COLUMNS) {
        for (int c = 0; c < COLUMNS; ++c) FINISH(b, i0 + r, j0 + c, line[c])
      } else {
        for (i64 c = 0; c < columns; ++c) FINISH(b, i0 + r, j0 + c, line[c])
      }
    }
  }
}
#endif

#ifdef STRETCHES
// ROWS rows, all there are: the right factor, whose rows are dense, is read once where it lies, some rows at a time.
#define STRETCH 128
#define STRETCH_FACTOR(r)                                                           \
  const i64 x##r = b * p.left_batch + r * p.left_row + k * p.left_column;           \
  const A f##r##_0 = LOAD(left, x##r), f##r##_1 = LOAD(left, x##r + p.left_column), \
          f##r##_2 = LOAD(left, x##r + 2 * p.left_column), f##r##_3 = LOAD(left, x##r + 3 * p.left_column);
#define STRETCH_ADD(r) \
  sum[r * STRETCH + c] = sum[r * STRETCH + c] + f##r##_0 * b0 + f##r##_1 * b1 + f##r##_2 * b2 + f##r##_3 * b3;
#define STRETCH_FOUR(there)                                                                                         \
  for (i64 c = 0; c < there; ++c) {                                                                                 \
    const A b0 = LOAD(right, y0 + c), b1 = LOAD(right, y1 + c), b2 = LOAD(right, y2 + c), b3 = LOAD(right, y3 + c); \
    EACH_ROW(STRETCH_ADD)                                                                                           \
  }
FUNCTION void stretches(GLOBAL T* out, GLOBAL const T* left, GLOBAL const T* right ADDEND_POINTER, const Params p,
                        const i64 item) {
  const i64 across = (p.n + STRETCH - 1) / STRETCH, end = SHARE_END(p.chunk, p.total);
  for (i64 t = item * p.chunk; t < end; ++t) {
    const i64 b = t / across, j0 = t % across * STRETCH, there = p.n - j0 < STRETCH ? p.n - j0 : STRETCH;
    A sum[ROWS * STRETCH];
    for (int c = 0; c < ROWS * STRETCH; ++c) sum[c] = 0;
    i64 k = 0;
    for (; k + 4 <= p.k; k += 4) {
      const i64 y0 = b * p.right_batch + k * p.right_row + j0, y1 = y0 + p.right_row, y2 = y1 + p.right_row,
                y3 = y2 + p.right_row;
      EACH_ROW(STRETCH_FACTOR)
      if (there == STRETCH) {
        STRETCH_FOUR(STRETCH)
      } else {
        STRETCH_FOUR(there)
      }
    }
    for (; k < p.k; ++k) {
      for (i64 r = 0; r < ROWS; ++r) {
        const A a = LOAD(left, b * p.left_batch + r * p.left_row + k * p.left_column);
        for (i64 c = 0; c < there; ++c) {
          sum[r * STRETCH + c] += a * LOAD(right, b * p.right_batch + k * p.right_row + j0 + c);
        }
      }
    }
    for (i64 r = 0; r < ROWS; ++r) {
      for (i64 c = 0; c < there; ++c) FINISH(b, r, j0 + c, sum[r * STRETCH + c])
    }
  }
}
#endif

#ifdef DOTS
// Both factors are dense along k: ROWS rows by VECTORS columns, each a sum in WIDTH lanes.
#define DOT_COLUMN(r, v) const i64 o##v = b * p.right_batch + (j0 + v < p.n ? j0 + v : p.n - 1) * p.right_column;
#define DOT_ROW(r) const i64 s##r = b * p.left_batch + (i0 + r < p.m ? i0 + r : p.m - 1) * p.left_row;
#define DOT_LOAD(r, v) const VEC b##v = VEC_LOAD(right + o##v + k);
#define DOT_ADD(r)                           \
  {                                          \
    const VEC a = VEC_LOAD(left + s##r + k); \
    EACH_VECTOR(TILE_ADD_ONE, r)             \
  }
FUNCTION void dots(GLOBAL T* out, GLOBAL const T* left, GLOBAL const T* right ADDEND_POINTER, const Params p,
                   const i64 item) {
  const i64 down = (p.m + ROWS - 1) / ROWS, across = (p.n + VECTORS - 1) / VECTORS, end = SHARE_END(p.chunk, p.total);
  for (i64 t = item * p.chunk; t < end; ++t) {
    const i64 i0 = t % down * ROWS, j0 = t / down % across * VECTORS, b = t / down / across;
    EACH_VECTOR(DOT_COLUMN, 0)
    EACH_ROW(DOT_ROW)
    EACH_ROW(TILE_ZERO)
    i64 k = 0;
    for (; k + WIDTH <= p.k; k += WIDTH) {
      EACH_VECTOR(DOT_LOAD, 0)
      EACH_ROW(DOT_ADD)
    }
    A lines[ROWS * COLUMNS];
    EACH_ROW(TILE_KEEP)
    for (int r = 0; r < ROWS && i0 + r < p.m; ++r) {
      for (int v = 0; v < VECTORS && j0 + v < p.n; ++v) {
        A* line = lines + (r * VECTORS + v) * WIDTH;
        const i64 x = b * p.left_batch + (i0 + r) * p.left_row, y = b * p.right_batch + (j0 + v) * p.right_column;
        for (i64 rest = k; rest < p.k; ++rest) line[rest - k] += left[x + rest] * right[y + rest];
        for (int part = WIDTH / 2; part > 0; part /= 2) {
          for (int l = 0; l < part; ++l) line[l] += line[l + part];
        }
        FINISH(b, i0 + r, j0 + v, line[0])
      }
    }
  }
}
#endif

#ifdef SINGLES
// Each result by itself, whatever the strides.
#define LANES 16
FUNCTION void singles(GLOBAL T* out, GLOBAL const T* left, GLOBAL const T* right ADDEND_POINTER, const Params p,
                      const i64 item) {
  const i64 end = SHARE_END(p.chunk, p.total);
  for (i64 t = item * p.chunk; t < end; ++t) {
    const i64 j = t % p.n, i = t / p.n % p.m, b = t / p.n / p.m;
    const i64 x = b * p.left_batch + i * p.left_row, y = b * p.right_batch + j * p.right_column;
    A lane[LANES];
    for (int l = 0; l < LANES; ++l) lane[l] = ZERO;
    i64 k = 0;
    if (p.left_column == 1 && p.right_row == 1) {
      for (; k + LANES <= p.k; k += LANES) {
        for (int l = 0; l < LANES; ++l) lane[l] += TIMES(LEFT(x + k + l), LOAD(right, y + k + l));
      }
    } else {
      for (; k + LANES <= p.k; k += LANES) {
        for (int l = 0; l < LANES; ++l) {
          lane[l] += TIMES(LEFT(x + (k + l) * p.left_column), LOAD(right, y + (k + l) * p.right_row));
        }
      }
    }
    for (; k < p.k; ++k) lane[k % LANES] += TIMES(LEFT(x + k * p.left_column), LOAD(right, y + k * p.right_row));
    for (int part = LANES / 2; part > 0; part /= 2) {
      for (int l = 0; l < part; ++l) lane[l] += lane[l + part];
    }
    FINISH(b, i, j, lane[0])
  }
}
#endif
