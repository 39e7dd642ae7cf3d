// SPDX-License-Identifier: Apache-2.0
// Running sums and the like, along lines of p.size elements, p.inner apart. Lines that lie side by side go TILE at
// once. A: the type carried along. The family defines FIRST, STEP(s, w, v, j), which takes value v at place j into the
// state (s, and for extrema the place w), and SHOW(at, s, w), which stores what is reached.
#define IS_NAN(x) ((x) != (x))
#define STEP_SUM(s, w, v, j) s += v
#define STEP_PRODUCT(s, w, v, j) s *= v
#define STEP_MAXIMUM(s, w, v, j)                             \
  if ((j) == 0 || IS_NAN(v) || (!IS_NAN(s) && (v) >= (s))) { \
    s = v;                                                   \
    w = j;                                                   \
  }
#define STEP_MINIMUM(s, w, v, j)                             \
  if ((j) == 0 || IS_NAN(v) || (!IS_NAN(s) && (v) <= (s))) { \
    s = v;                                                   \
    w = j;                                                   \
  }
#define STEP_LOG_SUM(s, w, v, j) s = log_sum(s, v)

#ifdef LOG_SUM
FUNCTION A log_sum(const A a, const A b) {
  if (IS_NAN(a) || IS_NAN(b)) return a + b;
  const A high = a > b ? a : b, low = a > b ? b : a;
  return high == low && isinf(high) ? high : high + m_log1p(m_exp(low - high));
}
#endif

// A unit of work: a tile of lines, and one of the p.blocks parts that its lines are cut into.
#define EACH_UNIT(text)                                                                  \
  const i64 end = SHARE_END(p.chunk, p.units);                                           \
  const i64 tiles = (p.inner + TILE - 1) / TILE;                                         \
  for (i64 unit = item * p.chunk; unit < end; ++unit) {                                  \
    const i64 block = unit % p.blocks, tile = unit / p.blocks, c0 = tile % tiles * TILE; \
    const i64 there = p.inner - c0 < TILE ? p.inner - c0 : TILE;                         \
    const i64 at = tile / tiles * p.size * p.inner + c0;                                 \
    const i64 first = block * p.length;                                                  \
    const i64 last = first + p.length < p.size ? first + p.length : p.size;              \
    A s[TILE];                                                                           \
    i64 w[TILE];                                                                         \
    for (int c = 0; c < TILE; ++c) {                                                     \
      s[c] = FIRST;                                                                      \
      w[c] = 0;                                                                          \
    }                                                                                    \
    text                                                                                 \
  }

// What each part comes to by itself.
#define TOTALS                                   \
  for (i64 j = first; j < last; ++j) {           \
    for (i64 c = 0; c < there; ++c) {            \
      const A v = LOAD(x, at + j * p.inner + c); \
      if (j == first) {                          \
        s[c] = v;                                \
        w[c] = j;                                \
      } else {                                   \
        STEP(s[c], w[c], v, j);                  \
      }                                          \
    }                                            \
  }                                              \
  for (i64 c = 0; c < there; ++c) {              \
    total[unit * TILE + c] = s[c];               \
    place[unit * TILE + c] = w[c];               \
  }

// The parts before, then the elements.
#define SCAN                                  \
  for (i64 b = unit - block; b < unit; ++b) { \
    for (i64 c = 0; c < there; ++c) {         \
      const A v = total[b * TILE + c];        \
      const i64 j = place[b * TILE + c];      \
      if (b == unit - block) {                \
        s[c] = v;                             \
        w[c] = j;                             \
      } else {                                \
        STEP(s[c], w[c], v, j);               \
      }                                       \
    }                                         \
  }                                           \
  for (i64 j = first; j < last; ++j) {        \
    const i64 row = at + j * p.inner;         \
    VECTOR_LOOP                               \
    for (i64 c = 0; c < there; ++c) {         \
      const A v = LOAD(x, row + c);           \
      STEP(s[c], w[c], v, j);                 \
      SHOW(row + c, s[c], w[c]);              \
    }                                         \
  }
