// SPDX-License-Identifier: Apache-2.0
// Where values belong in sorted lines, and whether they are among others. The family defines A (the type compared in),
// LINE(at) and VALUE(e).
#ifdef SORTED
// A place of the sorter's, kept inside the line.
FUNCTION i64 inside(const i64 place, const i64 n) { return place < 0 || place >= n ? 0 : place; }
// The first place of line `start` (`n` elements) whose element is not before `value`; RIGHT: the first one after it.
FUNCTION i64 place_of(GLOBAL const S* line, SORTER_PARAMETER const i64 start, const i64 n, const A value) {
  i64 low = 0, high = n;
  while (low < high) {
    const i64 middle = low + (high - low) / 2;
    const A there = LINE(start + middle);
    if (RIGHT ? !(there > value) : !(there >= value)) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  return low;
}
#else
FUNCTION int is_among(GLOBAL const S* line, const i64 n, const A value) {
  i64 j = 0;
  for (; j + 64 <= n; j += 64) {
    int found = 0;
    for (int k = 0; k < 64; ++k) found |= LINE(j + k) == value;
    if (found) return 1;
  }
  for (; j < n; ++j) {
    if (LINE(j) == value) return 1;
  }
  return 0;
}
#endif
