// SPDX-License-Identifier: Apache-2.0
// Sorting along lines of p.size elements, p.inner apart, by keys: unsigned numbers (of type K, BITS wide) in the order
// of the elements. Elements (of type T) are moved as they are. NaN comes last, -0 equals 0; p.flip is all ones where
// the order is descending. An element's place in its line goes with its key, and equal keys keep their order.
#define ALL ((K)(((K)1 << (BITS - 1)) * 2 - 1))
#define SIGN ((K)((K)1 << (BITS - 1)))
#if defined(KEY_FLOAT)  // what of NaN lies above is above the infinity's bits
FUNCTION K key_of(const T element) {
  const K bits = (K)element & ALL, magnitude = bits & (SIGN - 1);
  return magnitude > KEY_FLOAT ? ALL : magnitude == 0 ? SIGN : bits & SIGN ? ~bits & ALL : bits | SIGN;
}
#elif defined(KEY_SIGNED)
FUNCTION K key_of(const T element) { return ((K)element & ALL) ^ SIGN; }
#else
FUNCTION K key_of(const T element) { return (K)element & ALL; }
#endif
#define KEY(at) (key_of(x[at]) ^ ((K)p.flip & ALL))
#define DIGIT(key, shift) ((u32)((key) >> (shift)) & 255)

// Returns 1 where the result is in the second pair of arrays.
FUNCTION int sort_line(GLOBAL K* keys, GLOBAL u32* order, GLOBAL K* keys2, GLOBAL u32* order2, const i64 n) {
  if (n <= 48) {
    for (i64 i = 1; i < n; ++i) {
      const K key = keys[i];
      const u32 place = order[i];
      i64 j = i;
      for (; j > 0 && keys[j - 1] > key; --j) {
        keys[j] = keys[j - 1];
        order[j] = order[j - 1];
      }
      keys[j] = key;
      order[j] = place;
    }
    return 0;
  }
  int second = 0;
  for (int shift = 0; shift < BITS; shift += 8) {
    u32 count[256];
    for (int d = 0; d < 256; ++d) count[d] = 0;
    for (i64 i = 0; i < n; ++i) ++count[DIGIT(keys[i], shift)];
    if (count[DIGIT(keys[0], shift)] == n) continue;  // all the same
    u32 before = 0;
    for (int d = 0; d < 256; ++d) {
      const u32 here = count[d];
      count[d] = before;
      before += here;
    }
    for (i64 i = 0; i < n; ++i) {
      const u32 to = count[DIGIT(keys[i], shift)]++;
      keys2[to] = keys[i];
      order2[to] = order[i];
    }
    GLOBAL K* const k = keys;
    keys = keys2;
    keys2 = k;
    GLOBAL u32* const o = order;
    order = order2;
    order2 = o;
    second ^= 1;
  }
  return second;
}

// Where in the sorted line the results begin. KIND: 0 sort and topk, 1 kthvalue, 2 median, 3 nanmedian, 4 mode.
#if KIND == 0
#define first_result(keys, n, k) 0
#else
FUNCTION i64 first_result(GLOBAL const K* keys, const i64 n, const i64 k) {
#if KIND == 1
  return k - 1;
#elif KIND == 2 || KIND == 3
  i64 numbers = n;
#ifdef KEY_FLOAT
  while (numbers > 0 && keys[numbers - 1] == ALL) --numbers;
#endif
  return KIND == 2 && numbers < n ? numbers : numbers > 0 ? (numbers - 1) / 2 : 0;
#else
  i64 best = 0, most = 0, run = 0;
  for (i64 i = 0; i < n; ++i) {
    ++run;
    int ends = i == n - 1 || keys[i] != keys[i + 1];
#ifdef KEY_FLOAT
    ends = ends || keys[i] == ALL;  // a NaN equals nothing
#endif
    if (!ends) continue;
    if (run > most) {
      most = run;
      best = i;
    }
    run = 0;
  }
  return best;
#endif
}
#endif

// Results [begin, end) of the p.count of a line.
#define STORE_RESULTS(keys, order, begin, end)                          \
  if ((begin) < (end)) {                                                \
    const i64 first = first_result(keys, p.size, p.k);                  \
    const i64 at = line / p.inner * p.size * p.inner + line % p.inner;  \
    const i64 to = line / p.inner * p.count * p.inner + line % p.inner; \
    for (i64 r = begin; r < (end); ++r) {                               \
      const i64 from_place = (order)[first + r];                        \
      out[to + r * p.inner] = x[at + from_place * p.inner];             \
      if (p.places) where[to + r * p.inner] = from_place;               \
    }                                                                   \
  }

// An item sorts lines one after the other.
#define SORT_LINES                                                                         \
  const i64 end = SHARE_END(p.each, p.lines);                                              \
  GLOBAL K* const keys = key + item * 2 * p.size;                                          \
  GLOBAL u32* const order = rank + item * 2 * p.size;                                      \
  for (i64 line = item * p.each; line < end; ++line) {                                     \
    const i64 from = line / p.inner * p.size * p.inner + line % p.inner;                   \
    for (i64 i = 0; i < p.size; ++i) {                                                     \
      keys[i] = KEY(from + i * p.inner);                                                   \
      order[i] = (u32)i;                                                                   \
    }                                                                                      \
    const i64 in = sort_line(keys, order, keys + p.size, order + p.size, p.size) * p.size; \
    STORE_RESULTS(keys + in, order + in, 0, p.count)                                       \
  }

// The same of long lines, by many items: every line falls into p.blocks blocks of p.chunk elements.
#define EACH_BLOCK                                                                                            \
  const i64 end = SHARE_END(p.each, p.lines * p.blocks);                                                      \
  for (i64 unit = item * p.each; unit < end; ++unit) {                                                        \
    const i64 line = unit / p.blocks, block = unit % p.blocks, begin = block * p.chunk, base = line * p.size; \
    const i64 stop = begin + p.chunk < p.size ? begin + p.chunk : p.size;
#define BLOCK_KEYS                                                     \
  EACH_BLOCK                                                           \
  const i64 from = line / p.inner * p.size * p.inner + line % p.inner; \
  for (i64 i = begin; i < stop; ++i) {                                 \
    key[base + i] = KEY(from + i * p.inner);                           \
    rank[base + i] = (u32)i;                                           \
  }                                                                    \
  }
#define BLOCK_COUNT                                                                     \
  EACH_BLOCK                                                                            \
  u32 count[256];                                                                       \
  for (int d = 0; d < 256; ++d) count[d] = 0;                                           \
  for (i64 i = begin; i < stop; ++i) ++count[DIGIT(key[base + i], p.shift)];            \
  for (int d = 0; d < 256; ++d) counts[(line * 256 + d) * p.blocks + block] = count[d]; \
  }
// Where each block's elements of each digit go. An item is a line.
#define BLOCK_PREFIX                                                          \
  u32 before = 0;                                                             \
  for (i64 i = item * 256 * p.blocks; i < (item + 1) * 256 * p.blocks; ++i) { \
    const u32 here = counts[i];                                               \
    counts[i] = before;                                                       \
    before += here;                                                           \
  }
#define BLOCK_SCATTER                                                                   \
  EACH_BLOCK                                                                            \
  u32 count[256];                                                                       \
  for (int d = 0; d < 256; ++d) count[d] = counts[(line * 256 + d) * p.blocks + block]; \
  for (i64 i = begin; i < stop; ++i) {                                                  \
    const i64 to = base + count[DIGIT(key[base + i], p.shift)]++;                       \
    key2[to] = key[base + i];                                                           \
    rank2[to] = rank[base + i];                                                         \
  }                                                                                     \
  }
#define BLOCK_RESULTS                                                              \
  EACH_BLOCK                                                                       \
  STORE_RESULTS(key + base, rank + base, begin, (stop < p.count ? stop : p.count)) \
  }

// The p.k (at most MOST) first of each block of a line, by insertion into a short list.
#define MOST 64
FUNCTION void insert(K* best, u32* place, const i64 n, const K key, const u32 at) {
  i64 j = n - 1;
  for (; j > 0 && best[j - 1] > key; --j) {
    best[j] = best[j - 1];
    place[j] = place[j - 1];
  }
  best[j] = key;
  place[j] = at;
}
#define BLOCK_BEST                                                               \
  EACH_BLOCK                                                                     \
  K best[MOST];                                                                  \
  u32 place[MOST];                                                               \
  const i64 from = line / p.inner * p.size * p.inner + line % p.inner;           \
  i64 have = 0, i = begin;                                                       \
  for (; i < stop && have < p.k; ++i) {                                          \
    ++have;                                                                      \
    insert(best, place, have, KEY(from + i * p.inner), (u32)i);                  \
  }                                                                              \
  while (i < stop) {                                                             \
    const K worst = best[p.k - 1];                                               \
    const i64 n = stop - i < 16 ? stop - i : 16;                                 \
    int any = 0;                                                                 \
    if (n == 16) {                                                               \
      for (int c = 0; c < 16; ++c) any |= KEY(from + (i + c) * p.inner) < worst; \
    } else {                                                                     \
      any = 1;                                                                   \
    }                                                                            \
    for (i64 c = 0; any && c < n; ++c) {                                         \
      const K mine = KEY(from + (i + c) * p.inner);                              \
      if (mine < best[p.k - 1]) insert(best, place, p.k, mine, (u32)(i + c));    \
    }                                                                            \
    i += n;                                                                      \
  }                                                                              \
  for (i64 r = 0; r < have; ++r) {                                               \
    key[unit * p.k + r] = best[r];                                               \
    rank[unit * p.k + r] = place[r];                                             \
  }                                                                              \
  }
// The first of the blocks' lists, which stand in order. An item is p.each lines.
#define LINE_BEST                                                                      \
  const i64 end = SHARE_END(p.each, p.lines);                                          \
  for (i64 line = item * p.each; line < end; ++line) {                                 \
    K best[MOST];                                                                      \
    u32 place[MOST];                                                                   \
    i64 have = 0;                                                                      \
    for (i64 block = 0; block < p.blocks; ++block) {                                   \
      const i64 left = p.size - block * p.chunk, of = left < p.chunk ? left : p.chunk; \
      const i64 list = (line * p.blocks + block) * p.k, n = of < p.k ? of : p.k;       \
      for (i64 r = 0; r < n; ++r) {                                                    \
        const K mine = key[list + r];                                                  \
        if (have < p.k) {                                                              \
          ++have;                                                                      \
          insert(best, place, have, mine, rank[list + r]);                             \
        } else if (mine < best[p.k - 1]) {                                             \
          insert(best, place, p.k, mine, rank[list + r]);                              \
        }                                                                              \
      }                                                                                \
    }                                                                                  \
    STORE_RESULTS(best, place, 0, p.count)                                             \
  }
