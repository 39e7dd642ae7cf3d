// SPDX-License-Identifier: Apache-2.0
// Singular values and vectors by Jacobi's method on one side: rotations of pairs of rows until all are orthogonal.

// w (r x c, r <= c, no gaps) becomes rows s[i] v_i, ordered by s; j (r x r, where `turns`) becomes the rows u_i of
// w = sum of u_i s_i v_i'. Rows that are nothing but zeros, to rounding, become vectors too where `complete`; `rows`
// (at most c) says how many rows w then has, those beyond r being new.
FUNCTION void la_svd(GLOBAL T* w, GLOBAL T* j, GLOBAL T* s, const i64 r, const i64 c, const i64 rows, const int turns,
                     const int complete) {
  const T largest = la_largest(w, r * c, 1);
  const int finite = largest == largest && largest < INF_F;
  for (i64 i = 0; i < r * c && largest > 0; ++i) w[i] /= largest;
  if (turns) la_fill(j, r, 1, r, r, 0, 1);
  const T tolerance = EPS * sqrt((T)c), least = EPS * EPS;
  int turned = finite && largest > 0;
  for (int sweep = 0; turned && sweep < 60; ++sweep) {
    turned = 0;
    for (i64 p = 0; p + 1 < r; ++p) {
      for (i64 q = p + 1; q < r; ++q) {
        GLOBAL T *x = w + p * c, *y = w + q * c;
        const T a = la_dot(x, x, c), b = la_dot(y, y, c), d = la_dot(x, y, c), na = sqrt(a), nb = sqrt(b);
        if (!(fabs(d) > tolerance * na * nb) || !(fmin(na, nb) > least * fmax(na, nb))) continue;
        const T z = (b - a) / (2 * d);
        const T t = copysign((T)1, z) / (fabs(z) + (fabs(z) < 1 / EPS ? sqrt(1 + z * z) : fabs(z)));
        const T cosine = 1 / sqrt(1 + t * t), sine = cosine * t;
        la_rotate(x, y, cosine, sine, c);
        if (turns) la_rotate(j + p * r, j + q * r, cosine, sine, r);
        turned = 1;
      }
    }
  }
  for (i64 i = 0; i < r; ++i) s[i] = finite ? sqrt(la_dot(w + i * c, w + i * c, c)) : (T)NAN_F;
  for (i64 i = 0; i < r; ++i) {
    i64 top = i;
    for (i64 k = i + 1; k < r; ++k) top = s[k] > s[top] ? k : top;
    if (top == i) continue;
    la_swap(s + i, s + top, 1, 1);
    la_swap(w + i * c, w + top * c, c, 1);
    if (turns) la_swap(j + i * r, j + top * r, r, 1);
  }
  if (complete) {
    i64 unit = 0;
    for (i64 i = 0; i < rows; ++i) {
      GLOBAL T* row = w + i * c;
      if (i < r && s[i] > least * s[0]) {
        for (i64 k = 0; k < c; ++k) row[k] /= s[i];
        continue;
      }
      // Unit vectors, orthogonalised twice, until one is not near those that are there: the i before it leave at
      // least (c - i) / c of the square of some unit vector.
      for (i64 tries = 0; tries < c && finite; ++tries) {
        for (i64 k = 0; k < c; ++k) row[k] = k == unit;
        unit = unit + 1 == c ? 0 : unit + 1;
        for (int pass = 0; pass < 2; ++pass) {
          for (i64 k = 0; k < i; ++k) la_add(row, w + k * c, -la_dot(row, w + k * c, c), c);
        }
        const T rest = la_dot(row, row, c);
        if (rest * 2 * (T)c < (T)(c - i)) continue;
        la_scale(row, 1 / sqrt(rest), c);
        break;
      }
      for (i64 k = 0; k < c && !finite; ++k) row[k] = (T)NAN_F;
    }
  }
  for (i64 i = 0; i < r; ++i) s[i] *= largest;
}
