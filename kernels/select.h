// SPDX-License-Identifier: Apache-2.0
// Operators whose output lists what counts, in order. Two launches: each work item weighs its stretch of the elements
// (EMITS 0), then knows from what came before it where its own go (EMITS 1). The number of outputs was settled earlier;
// nothing is written beyond it, and what is left of it is filled.
//
// The family defines S (what is tested), T (outputs), U (what is chosen from), RANK, SHAPE_RANK, WEIGHT (how often
// element `at` of `tested` counts), and for EMITS: EMIT (of element number l, `of` in its own tensor, as output n) and
// FILL (of output n).
typedef struct {
  i64 numel, chunk, limit, items, to0, to1, fill;
  i64 size[RANK], at[RANK], of[RANK], shape[SHAPE_RANK];
} Scan;

// Coordinates of element number l.
#define EMIT_POSITION                                           \
  {                                                             \
    i64 rest = l;                                               \
    for (int d = SHAPE_RANK - 1; d >= 0; --d) {                 \
      STORE_OUT(out, n * w.to0 + d * w.to1, rest % w.shape[d]); \
      rest /= w.shape[d];                                       \
    }                                                           \
  }
#define FILL_POSITION \
  for (int d = 0; d < SHAPE_RANK; ++d) STORE_OUT(out, n* w.to0 + d * w.to1, w.fill)

FUNCTION void scan(GLOBAL const S* tested, GLOBAL i64* partial, GLOBAL T* out, GLOBAL const U* in, const Scan w,
                   const i64 item) {
  const i64 run = w.size[RANK - 1], last = SHARE_END(w.chunk, w.numel);
  i64 n = 0;
#if EMITS
  for (i64 i = 0; i < item; ++i) n += partial[i];
#endif
  for (i64 l = item * w.chunk; l < last;) {
    i64 rest = l / run, c = l % run, row = 0, other = 0;
    for (int d = RANK - 2; d >= 0; --d) {
      const i64 j = d > 0 ? rest % w.size[d] : rest;
      if (d > 0) rest /= w.size[d];
      row += j * w.at[d];
      other += j * w.of[d];
    }
    const i64 stop = run - c < last - l ? run : c + last - l;
    for (; c < stop; ++c, ++l) {
      const i64 at = row + c * w.at[RANK - 1];
      i64 weight = WEIGHT;
#if EMITS
      const i64 of = other + c * w.of[RANK - 1];
      for (; weight > 0 && n < w.limit; --weight, ++n) EMIT;
#else
      n += weight;
#endif
    }
  }
#if EMITS
  if (item == w.items - 1) {
    for (; n < w.limit; ++n) FILL;
  }
#else
  partial[item] = n;
#endif
}
