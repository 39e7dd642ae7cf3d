// SPDX-License-Identifier: Apache-2.0
// Reading and writing where index tensors point. An element of `target` comes from one of `source`; the indices lead to
// a place in the source (LEADS_TO_TARGET 0) or in the target (1). Dimensions that say where in the target an element
// goes are free: they are shared out among the work items. Those of which only an index knows where they lead are a
// sequence, walked in order by each item, so that of several elements for one place the last one stays and sums are
// formed in one order. Where there is too little that is free, items share the places that the indices lead to.
//
// The family defines T and S (elements of target and source), RANK, SEQUENCE_RANK (dimensions of either kind), RUN (1:
// the innermost free dimension is the inner loop), UNIFORM (1: indices do not change along it), INDICES (at least 1),
// INDEX_PARAMETERS, EACH_INDEX(M) (M(0) M(1) ...), WRAP (1: negative indices count from the end), TO_STEP and FROM_STEP
// (of the inner loop, in terms of w) and PUT(to, from).
typedef struct {
  i64 units, chunk, blocks, block, run, parts, range, sequence, skip;
  u64 value;
  i64 bound[INDICES], step[INDICES];
  i64 size[RANK], to[RANK], from[RANK], index[INDICES][RANK];
  i64 then_size[SEQUENCE_RANK], then_from[SEQUENCE_RANK], then_index[INDICES][SEQUENCE_RANK];
} Walk;

// Adds what index k says about column c to `place`. An index that lies outside leads nowhere.
#define RESOLVE(k)                                                          \
  {                                                                         \
    i64 j = (i64)index##k[point[k] + c * (RUN ? w.index[k][RANK - 1] : 0)]; \
    if (WRAP && j < 0) j += w.bound[k];                                     \
    inside &= j >= 0 && j < w.bound[k];                                     \
    place += j * w.step[k];                                                 \
  }
#define FIND          \
  i64 place = 0;      \
  int inside = 1;     \
  EACH_INDEX(RESOLVE) \
  inside &= place >= low && place < high && place != w.skip;
#if LEADS_TO_TARGET
#define MOVE(c) PUT(to + place + (c) * TO_STEP, start + (c) * FROM_STEP)
#define MISS(c)
#else
#define MOVE(c) PUT(to + (c) * TO_STEP, start + place + (c) * FROM_STEP)
#define MISS(c) target[to + (c) * TO_STEP] = missing
#endif

FUNCTION void move_indexed(GLOBAL T* target, GLOBAL const S* source, INDEX_PARAMETERS const Walk w, const i64 item) {
  const i64 low = item % w.parts * w.range, high = low + w.range;
  const i64 first = item / w.parts * w.chunk, last = first + w.chunk < w.units ? first + w.chunk : w.units;
#if !LEADS_TO_TARGET
  const T missing = MISSING;
#endif
  for (i64 unit = first; unit < last; ++unit) {
    const i64 begin = unit % w.blocks * w.block, end = begin + w.block < w.run ? begin + w.block : w.run;
    i64 rest = unit / w.blocks, to = 0, from = 0, at[INDICES];
    for (int k = 0; k < INDICES; ++k) at[k] = 0;
    for (int d = RANK - 1 - RUN; d >= 0; --d) {
      const i64 j = d > 0 ? rest % w.size[d] : rest;
      if (d > 0) rest /= w.size[d];
      to += j * w.to[d];
      from += j * w.from[d];
      for (int k = 0; k < INDICES; ++k) at[k] += j * w.index[k][d];
    }
    for (i64 n = 0; n < w.sequence; ++n) {
      i64 more = n, start = from, point[INDICES];
      for (int k = 0; k < INDICES; ++k) point[k] = at[k];
      for (int d = SEQUENCE_RANK - 1; d >= 0; --d) {
        const i64 j = d > 0 ? more % w.then_size[d] : more;
        if (d > 0) more /= w.then_size[d];
        start += j * w.then_from[d];
        for (int k = 0; k < INDICES; ++k) point[k] += j * w.then_index[k][d];
      }
#if UNIFORM
      i64 c = 0;
      FIND if (inside) {
        VECTOR_LOOP
        for (c = begin; c < end; ++c) MOVE(c);
      }
#if !LEADS_TO_TARGET
      if (!inside) {
        for (c = begin; c < end; ++c) MISS(c);
      }
#endif
#else
      for (i64 c = begin; c < end; ++c) {
        FIND if (inside) { MOVE(c); }
        else {
          MISS(c);
        }
      }
#endif
    }
  }
}
