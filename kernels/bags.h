// SPDX-License-Identifier: Apache-2.0
// Reductions over stretches of rows: bags of an embedding, segments; and rows brought to a norm. A: the type computed
// in; LOAD and STORE: of the element type T. Columns are taken WIDTH at a time, in an array that compilers keep in
// registers. MODE of bags: 0 sum, 1 mean, 2 maximum; KIND of segments: these, 3 minimum, 4 product.
#define WIDTH 64
typedef struct {
  i64 units, chunk, rows, width, count, stretches, padding, sizes, places, extrema;
  u64 first, second;
} Rows;

FUNCTION i64 between(const i64 x, const i64 low, const i64 high) { return x < low ? low : x > high ? high : x; }

#ifdef BAGS
FUNCTION void sum_bags(GLOBAL T* out, GLOBAL INDEX* bag_of, GLOBAL INDEX* bag_size, GLOBAL INDEX* extrema,
                       GLOBAL const T* weight, GLOBAL const INDEX* index, GLOBAL const OFFSET* offsets,
                       GLOBAL const T* factors, const Rows w, const i64 item) {
  const i64 last = SHARE_END(w.chunk, w.units);
  for (i64 bag = item * w.chunk; bag < last; ++bag) {
    const i64 begin = between(offsets[bag], 0, w.count);
    const i64 end = bag + 1 < w.stretches ? between(offsets[bag + 1], begin, w.count) : w.count;
    i64 used = 0;
    for (i64 i = begin; i < end; ++i) {
      used += index[i] >= 0 && index[i] < w.rows && index[i] != w.padding;
      if (i < w.places) bag_of[i] = (INDEX)bag;
    }
    if (bag < w.sizes) bag_size[bag] = (INDEX)used;
    for (i64 b = w.units; bag == w.units - 1 && b < w.sizes; ++b) bag_size[b] = 0;
    for (i64 c0 = 0; c0 < w.width; c0 += WIDTH) {
      const i64 there = w.width - c0 < WIDTH ? w.width - c0 : WIDTH;
      A total[WIDTH];
      INDEX where[WIDTH];
      for (int c = 0; c < WIDTH; ++c) {
        total[c] = 0;
        where[c] = -1;
      }
      for (i64 i = begin; i < end; ++i) {
        const i64 row = index[i];
        if (row == w.padding) continue;
        if (row < 0 || row >= w.rows) {  // no number comes of it
          for (int c = 0; c < WIDTH; ++c) {
            total[c] = NAN_F;
            where[c] = 0;
          }
          continue;
        }
        const i64 at = row * w.width + c0;
#if MODE == 2
        for (i64 c = 0; c < there; ++c) {
          const A x = LOAD(weight, at + c);
          if (where[c] < 0 || x > total[c]) {
            total[c] = x;
            where[c] = (INDEX)row;
          }
        }
#else
        const A factor = WEIGHTED ? LOAD(factors, i) : 1;
        if (there == WIDTH) {
          for (int c = 0; c < WIDTH; ++c) total[c] += LOAD(weight, at + c) * factor;
        } else {
          for (i64 c = 0; c < there; ++c) total[c] += LOAD(weight, at + c) * factor;
        }
#endif
      }
      for (i64 c = 0; c < there; ++c) {
        const A mean = MODE == 1 && used > 0 ? total[c] / (A)used : total[c];
        STORE(out, bag * w.width + c0 + c, mean);
        if (MODE == 2 && bag * w.width + c0 + c < w.extrema)
          extrema[bag * w.width + c0 + c] = where[c] < 0 ? 0 : where[c];
      }
    }
  }
}
#endif

#ifdef BAGS_BACKWARD
// Each item adds up the gradients of its own rows; `sums` starts as zeros.
FUNCTION void spread_bags(GLOBAL SUMS* sums, GLOBAL const T* gradient, GLOBAL const INDEX* index,
                          GLOBAL const INDEX* bag_of, GLOBAL const INDEX* bag_size, GLOBAL const INDEX* extrema,
                          GLOBAL const T* factors, const Rows w, const i64 item) {
  const i64 low = item * w.chunk, high = low + w.chunk < w.rows ? low + w.chunk : w.rows;
#if MODE == 2
  for (i64 e = 0; e < w.stretches * w.width; ++e) {
    const i64 row = extrema[e];
    if (row < low || row >= high || row == w.padding || bag_size[e / w.width] == 0) continue;
    const i64 to = row * w.width + e % w.width;
    STORE_SUM(sums, to, LOAD_SUM(sums, to) + LOAD(gradient, e));
  }
#else
  for (i64 i = 0; i < w.count; ++i) {
    const i64 row = index[i], bag = bag_of[i];
    if (row < low || row >= high || row == w.padding || bag < 0 || bag >= w.stretches) continue;
    A factor = WEIGHTED ? LOAD(factors, i) : 1;
    if (MODE == 1) factor /= (A)(bag_size[bag] > 0 ? bag_size[bag] : 1);
    const i64 to = row * w.width, from = bag * w.width;
    VECTOR_LOOP
    for (i64 c = 0; c < w.width; ++c) {
      STORE_SUM(sums, to + c, LOAD_SUM(sums, to + c) + LOAD(gradient, from + c) * factor);
    }
  }
#endif
}
#endif

#ifdef BAGS_FACTORS
// The gradient of each index's factor.
FUNCTION void factors_of_bags(GLOBAL T* out, GLOBAL const T* gradient, GLOBAL const T* weight,
                              GLOBAL const INDEX* index, GLOBAL const INDEX* bag_of, const Rows w, const i64 item) {
  const i64 last = SHARE_END(w.chunk, w.units);
  for (i64 i = item * w.chunk; i < last; ++i) {
    const i64 row = index[i], bag = bag_of[i];
    A lane[16], sum = 0;
    for (int k = 0; k < 16; ++k) lane[k] = 0;
    if (row >= 0 && row < w.rows && row != w.padding && bag >= 0 && bag < w.stretches) {
      const i64 g = bag * w.width, x = row * w.width;
      i64 c = 0;
      for (; c + 16 <= w.width; c += 16) {
        for (int k = 0; k < 16; ++k) lane[k] += LOAD(gradient, g + c + k) * LOAD(weight, x + c + k);
      }
      for (; c < w.width; ++c) sum += LOAD(gradient, g + c) * LOAD(weight, x + c);
    }
    for (int k = 0; k < 16; ++k) sum += lane[k];
    STORE(out, i, sum);
  }
}
#endif

#ifdef RENORM
// Rows that an index names, once each however often it does; each item has its own. ORDER: 0 is the maximum.
FUNCTION void shorten_rows(GLOBAL T* rows, GLOBAL const INDEX* index, GLOBAL u8* named, const Rows w, const i64 item) {
  const i64 low = item * w.chunk, high = low + w.chunk < w.rows ? low + w.chunk : w.rows;
  for (i64 row = low; row < high; ++row) named[row] = 0;
  for (i64 i = 0; i < w.count; ++i) {
    if (index[i] >= low && index[i] < high) named[index[i]] = 1;
  }
  const A longest = BITS_A(w.first), order = BITS_A(w.second);
  for (i64 row = low; row < high; ++row) {
    if (!named[row]) continue;
    A lane[16], norm = 0;
    for (int k = 0; k < 16; ++k) lane[k] = 0;
    for (i64 c = 0; c < w.width; c += 16) {
      for (int k = 0; k < 16 && c + k < w.width; ++k) {
        const A x = fabs((A)LOAD(rows, row * w.width + c + k));
        lane[k] = ORDER == 0 ? (x > lane[k] || x != x ? x : lane[k])
                             : lane[k] + (ORDER == 1   ? x
                                          : ORDER == 2 ? x * x
                                                       : pow(x, order));
      }
    }
    for (int k = 0; k < 16; ++k) norm = ORDER == 0 ? (lane[k] > norm ? lane[k] : norm) : norm + lane[k];
    if (ORDER == 2) norm = sqrt(norm);
    if (ORDER == 3) norm = pow(norm, 1 / order);
    if (!(norm > longest)) continue;
    const A factor = longest / (norm + (A)1e-7f);
    for (i64 c = 0; c < w.width; ++c) STORE(rows, row * w.width + c, LOAD(rows, row * w.width + c) * factor);
  }
}
#endif

#ifdef SEGMENTS
// Where the segments of one line begin: from the lengths of those before, or as the offsets say. Kept inside the line.
typedef struct {
  i64 begin, end;
} Stretch;
FUNCTION Stretch stretch_of(GLOBAL const INDEX* where, const i64 unit, const i64 begin, const Rows w) {
  Stretch s;
#if BY_OFFSETS
  const i64 at = unit / w.stretches * (w.stretches + 1) + unit % w.stretches;
  s.begin = between(where[at], 0, w.rows);
  s.end = between(where[at + 1], s.begin, w.rows);
#else
  s.begin = begin;
  s.end = begin + between(where[unit], 0, w.rows - begin);
#endif
  return s;
}
// Where segment `unit` begins, by lengths.
FUNCTION i64 begin_of(GLOBAL const INDEX* where, const i64 unit, const Rows w) {
  i64 begin = 0;
  for (i64 u = unit / w.stretches * w.stretches; !BY_OFFSETS && u < unit; ++u) {
    begin += between(where[u], 0, w.rows - begin);
  }
  return begin;
}
#define EACH_SEGMENT                              \
  const i64 last = SHARE_END(w.chunk, w.units);   \
  i64 begin = begin_of(where, item * w.chunk, w); \
  for (i64 unit = item * w.chunk; unit < last; ++unit)
#define THIS_SEGMENT                                      \
  if (unit % w.stretches == 0) begin = 0;                 \
  const Stretch s = stretch_of(where, unit, begin, w);    \
  begin = s.end;                                          \
  const i64 base = unit / w.stretches * w.rows * w.width; \
  const i64 length = s.end - s.begin;

#if KIND == 2
#define FOLD(t, x) ((t) != (t) || (t) > (x) ? (t) : (x))
#elif KIND == 3
#define FOLD(t, x) ((t) != (t) || (t) < (x) ? (t) : (x))
#elif KIND == 4
#define FOLD(t, x) ((t) * (x))
#else
#define FOLD(t, x) ((t) + (x))
#endif

FUNCTION void reduce_segments(GLOBAL T* out, GLOBAL const T* data, GLOBAL const INDEX* where, const Rows w,
                              const i64 item) {
  EACH_SEGMENT {
    THIS_SEGMENT
    for (i64 c0 = 0; c0 < w.width; c0 += WIDTH) {
      const i64 there = w.width - c0 < WIDTH ? w.width - c0 : WIDTH;
      A total[WIDTH];
      for (int c = 0; c < WIDTH; ++c) total[c] = BITS_A(w.first);
      for (i64 i = s.begin; i < s.end; ++i) {
        for (i64 c = 0; c < there; ++c) total[c] = FOLD(total[c], (A)LOAD(data, base + i * w.width + c0 + c));
      }
      for (i64 c = 0; c < there; ++c) {
        A result = total[c];
        if (KIND == 1 && length > 0) result /= (A)length;
        if (KIND == 1 && length == 0 && !HAS_INITIAL) result = NAN_F;
        STORE(out, unit * w.width + c0 + c, result);
      }
    }
  }
}

FUNCTION void spread_segments(GLOBAL T* out, GLOBAL const T* data, GLOBAL const INDEX* where, GLOBAL const T* gradient,
                              GLOBAL const T* result, const Rows w, const i64 item) {
  EACH_SEGMENT {
    THIS_SEGMENT
    for (i64 c = 0; c < w.width; ++c) {
      const A g = LOAD(gradient, unit * w.width + c), r = LOAD(result, unit * w.width + c);
      i64 ties = 0;
      for (i64 i = s.begin; i < s.end; ++i) {
        const i64 at = base + i * w.width + c;
        const A x = LOAD(data, at);
#if KIND == 2 || KIND == 3
        if (x != x || x == r) {
          STORE(out, at, g);
          ++ties;
        }
#elif KIND == 4
        A others = BITS_A(w.first);
        if (x != x || x == 0) {
          for (i64 k = s.begin; k < s.end; ++k) others *= k != i ? (A)LOAD(data, base + k * w.width + c) : 1;
        } else {
          others = r / x;
        }
        STORE(out, at, g * others);
#else
        STORE(out, at, KIND == 1 ? g / (A)length : g);
#endif
      }
      // As the CPU does it, only positive gradients are shared out.
      for (i64 i = s.begin; ties > 1 && i < s.end; ++i) {
        const i64 at = base + i * w.width + c;
        const A shared = LOAD(out, at);
        if (shared > 0) STORE(out, at, shared / (A)ties);
      }
    }
  }
}
#endif
