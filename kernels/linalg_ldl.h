// SPDX-License-Identifier: Apache-2.0
// L D L' of symmetric matrices with the pivots of Bunch and Kaufman: D has blocks of one and of two. Pivots are
// LAPACK's: they count from 1, and are negative, twice over, where a block of two begins.

FUNCTION i32 la_ldl(OUT(a), GLOBAL i32* pivots, const i64 step, const i64 n) {
  const T alpha = (T)0.6403882032022076;  // (1 + sqrt(17)) / 8
  i32 info = 0;
  i64 k = 0;
  while (k < n) {
    i64 size = 1, chosen = k, below = k;
    const T diagonal = fabs(AT(a, k, k));
    T column = 0;
    for (i64 i = k + 1; i < n; ++i) {
      const T v = fabs(AT(a, i, k));
      if (v > column) {
        column = v;
        below = i;
      }
    }
    if (!(diagonal > 0) && !(column > 0)) {
      if (info == 0) info = (i32)(k + 1);
      pivots[k * step] = (i32)(k + 1);
      ++k;
      continue;
    }
    if (diagonal < alpha * column) {
      T row = 0;
      for (i64 j = k; j < n; ++j) {
        const T v = j == below ? (T)0 : fabs(j < below ? AT(a, below, j) : AT(a, j, below));
        row = v > row ? v : row;
      }
      if (diagonal < alpha * column * (column / row)) {
        chosen = below;
        size = fabs(AT(a, below, below)) >= alpha * row ? 1 : 2;
      }
    }
    const i64 last = k + size - 1;
    if (chosen != last) {
      for (i64 i = chosen + 1; i < n; ++i) la_swap(&AT(a, i, last), &AT(a, i, chosen), 1, 1);
      for (i64 i = last + 1; i < chosen; ++i) la_swap(&AT(a, i, last), &AT(a, chosen, i), 1, 1);
      la_swap(&AT(a, last, last), &AT(a, chosen, chosen), 1, 1);
      if (size == 2) la_swap(&AT(a, k + 1, k), &AT(a, chosen, k), 1, 1);
    }
    if (size == 1) {
      const T pivot = AT(a, k, k);
      for (i64 i = k + 1; i < n; ++i) {
        const T f = AT(a, i, k) / pivot;
        for (i64 j = k + 1; j < i; ++j) AT(a, i, j) -= f * AT(a, j, k) * pivot;
        AT(a, i, i) -= f * AT(a, i, k);
        AT(a, i, k) = f;
      }
      pivots[k * step] = (i32)(chosen + 1);
    } else {
      const T off = AT(a, k + 1, k), d11 = AT(a, k + 1, k + 1) / off, d22 = AT(a, k, k) / off;
      const T scale = 1 / (d11 * d22 - 1) / off;
      for (i64 j = k + 2; j < n; ++j) {
        const T w0 = scale * (d11 * AT(a, j, k) - AT(a, j, k + 1));
        const T w1 = scale * (d22 * AT(a, j, k + 1) - AT(a, j, k));
        for (i64 i = j; i < n; ++i) AT(a, i, j) -= AT(a, i, k) * w0 + AT(a, i, k + 1) * w1;
        AT(a, j, k) = w0;
        AT(a, j, k + 1) = w1;
      }
      pivots[k * step] = pivots[(k + 1) * step] = -(i32)(chosen + 1);
    }
    k += size;
  }
  return info;
}

// x takes the place of b (n x c).
FUNCTION void la_ldl_solve(IN(a), GLOBAL const i32* pivots, const i64 step, OUT(b), const i64 n, const i64 c) {
  for (i64 k = 0; k < n;) {
    const i32 named = pivots[k * step];
    const i64 size = named < 0 && k + 1 < n ? 2 : 1, last = k + size - 1, other = (named < 0 ? -(i64)named : named) - 1;
    if (other >= 0 && other < n && other != last) la_swap(b + last * b_r, b + other * b_r, c, b_c);
    for (i64 i = last + 1; i < n; ++i) {
      for (i64 s = k; s <= last; ++s) {
        const T f = AT(a, i, s);
        for (i64 j = 0; j < c; ++j) AT(b, i, j) -= f * AT(b, s, j);
      }
    }
    if (size == 1) {
      const T pivot = AT(a, k, k);
      for (i64 j = 0; j < c; ++j) AT(b, k, j) /= pivot;
    } else {
      const T off = AT(a, k + 1, k), d0 = AT(a, k, k) / off, d1 = AT(a, k + 1, k + 1) / off, scale = d0 * d1 - 1;
      for (i64 j = 0; j < c; ++j) {
        const T b0 = AT(b, k, j) / off, b1 = AT(b, k + 1, j) / off;
        AT(b, k, j) = (d1 * b0 - b1) / scale;
        AT(b, k + 1, j) = (d0 * b1 - b0) / scale;
      }
    }
    k += size;
  }
  for (i64 k = n - 1; k >= 0;) {
    const i32 named = pivots[k * step];
    const i64 first = named < 0 && k > 0 ? k - 1 : k, other = (named < 0 ? -(i64)named : named) - 1;
    for (i64 s = first; s <= k; ++s) {
      for (i64 i = k + 1; i < n; ++i) {
        const T f = AT(a, i, s);
        for (i64 j = 0; j < c; ++j) AT(b, s, j) -= f * AT(b, i, j);
      }
    }
    if (other >= 0 && other < n && other != k) la_swap(b + k * b_r, b + other * b_r, c, b_c);
    k = first - 1;
  }
}
