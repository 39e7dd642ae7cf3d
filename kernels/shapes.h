// SPDX-License-Identifier: Apache-2.0
// Moving elements.

// Of cat: x is [rows, high - low] and lies behind column `low` of the band that the operands form in the output's rows.
#define CAT_PART(x, low, high)                                   \
  if (c >= (low) && c < (high) && e < end) {                     \
    const i64 run = (high) - c < end - e ? (high) - c : end - e; \
    const i64 from = row * ((high) - (low)) + c - (low);         \
    const i64 to = row * p.width + p.first + c;                  \
    VECTOR_LOOP                                                  \
    for (i64 j = 0; j < run; ++j) out[to + j] = x[from + j];     \
    e += run;                                                    \
    c += run;                                                    \
  }

// Of tril and triu: columns [first, last) are kept. An element is `wide` of T.
#define TRIANGLE                                                                       \
  const i64 end = SHARE_END(p.chunk, p.lines);                                         \
  for (i64 line = item * p.chunk; line < end; ++line) {                                \
    i64 edge = line % p.rows + p.diagonal + (p.upper ? 0 : 1);                         \
    edge = edge < 0 ? 0 : edge > p.columns ? p.columns : edge;                         \
    const i64 at = line * p.columns * p.wide, n = p.columns * p.wide;                  \
    const i64 first = p.upper ? edge * p.wide : 0, last = p.upper ? n : edge * p.wide; \
    VECTOR_LOOP                                                                        \
    for (i64 j = 0; j < first; ++j) out[at + j] = 0;                                   \
    VECTOR_LOOP                                                                        \
    for (i64 j = first; j < last; ++j) out[at + j] = x[at + j];                        \
    VECTOR_LOOP                                                                        \
    for (i64 j = last; j < n; ++j) out[at + j] = 0;                                    \
  }
