// SPDX-License-Identifier: Apache-2.0
// What csrc/portable/tuning.cpp measures: tiles of some strips and panels, and nothing else.
FUNCTION void tiles_measured(GLOBAL A* out, GLOBAL const A* strips, GLOBAL const A* panels, const Params p,
                             const i64 item) {
  const i64 end = SHARE_END(p.chunk, p.total);
  for (i64 t = item * p.chunk; t < end; ++t) {
    GLOBAL const A* strip = strips + t % p.strips * p.k * ROWS;
    GLOBAL const A* at = panels + t / p.strips % p.panels * p.k * COLUMNS;
    EACH_ROW(TILE_ZERO)
    for (i64 k = 0; k < p.k; ++k) {
      TILE_STEP
      at += COLUMNS;
    }
    A lines[ROWS * COLUMNS];
    EACH_ROW(TILE_KEEP)
    for (int c = 0; c < ROWS * COLUMNS; ++c) out[t * ROWS * COLUMNS + c] = lines[c];
  }
}
