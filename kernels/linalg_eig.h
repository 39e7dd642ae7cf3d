// SPDX-License-Identifier: Apache-2.0
// Eigenvalues and eigenvectors of real matrices that need not be symmetric: scaling, Householder's reduction to
// Hessenberg form, Francis' double steps to a quasi-triangular matrix (EISPACK's hqr2), and back substitution.

// Powers of two make the sums of rows and of columns alike: a becomes D^-1 a D.
FUNCTION void la_balance(GLOBAL T* a, const i64 n, GLOBAL T* d) {
  for (i64 i = 0; i < n; ++i) d[i] = 1;
  for (int round = 0, changed = 1; changed && round < 50; ++round) {
    changed = 0;
    for (i64 i = 0; i < n; ++i) {
      T column = 0, row = 0, f = 1;
      for (i64 j = 0; j < n; ++j) {
        if (j == i) continue;
        column += fabs(a[j * n + i]);
        row += fabs(a[i * n + j]);
      }
      if (!(column > 0 && row > 0)) continue;
      const T both = column + row;
      for (int k = 0; k < 60 && column < row / 2; ++k, f *= 2) column *= 4;
      for (int k = 0; k < 60 && column > row * 2; ++k, f /= 2) column /= 4;
      if (!((column + row) / f < (T)0.95 * both)) continue;
      changed = 1;
      d[i] *= f;
      for (i64 j = 0; j < n; ++j) a[j * n + i] *= f;
      for (i64 j = 0; j < n; ++j) a[i * n + j] /= f;
    }
  }
}
// h becomes Q' h Q with nothing below its first subdiagonal; the rows of z (where `wanted`) those of Q'. v, w: room.
FUNCTION void la_hessenberg(GLOBAL T* h, GLOBAL T* z, const i64 n, const int wanted, GLOBAL T* v, GLOBAL T* w) {
  if (wanted) la_fill(z, n, 1, n, n, 0, 1);
  for (i64 k = 0; k + 2 < n; ++k) {
    const i64 m = n - k - 1;
    for (i64 i = 0; i < m; ++i) v[i] = h[(k + 1 + i) * n + k];
    const T tau = la_reflector(v, v + 1, m - 1, 1);
    h[(k + 1) * n + k] = v[0];
    for (i64 i = 1; i < m; ++i) h[(k + 1 + i) * n + k] = 0;
    if (tau == 0) continue;
    v[0] = 1;
    la_reflect(v, 1, tau, h + (k + 1) * n + k + 1, n, m, m, w);
    for (i64 i = 0; i < n; ++i) {
      GLOBAL T* row = h + i * n + k + 1;
      la_add(row, v, -tau * la_dot(row, v, m), m);
    }
    if (wanted) la_reflect(v, 1, tau, z + (k + 1) * n, n, m, n, w);
  }
}
// (x, y) becomes (c x + s y, c y - s x), columns `step` apart.
FUNCTION void la_turn(GLOBAL T* x, GLOBAL T* y, const i64 step, const T c, const T s, const i64 n) {
  for (i64 j = 0; j < n; ++j) {
    const T a = x[j * step], b = y[j * step];
    x[j * step] = c * a + s * b;
    y[j * step] = c * b - s * a;
  }
}
// The last two rows of what is left, n - 1 and n, split off: a pair, or two real ones that a rotation takes apart.
FUNCTION void la_split_two(GLOBAL T* h, GLOBAL T* z, const i64 order, const i64 n, GLOBAL T* re, GLOBAL T* im,
                           const int wanted) {
  GLOBAL T *upper = h + (n - 1) * order, *lower = h + n * order;
  const T product = lower[n - 1] * upper[n], middle = (upper[n - 1] - lower[n]) / 2, square = middle * middle + product;
  const T size = sqrt(fabs(square));
  if (square < 0) {
    re[n - 1] = re[n] = lower[n] + middle;
    im[n - 1] = size;
    im[n] = -size;
    return;
  }
  const T sum = middle >= 0 ? middle + size : middle - size, last = lower[n];
  re[n - 1] = last + sum;
  re[n] = sum != 0 ? last - product / sum : re[n - 1];
  im[n - 1] = im[n] = 0;
  const T below = lower[n - 1], length = hypot(below, sum), s = length == 0 ? (T)0 : below / length,
          c = length == 0 ? (T)1 : sum / length;
  la_turn(upper + n - 1, lower + n - 1, 1, c, s, order - n + 1);
  la_turn(h + n - 1, h + n, order, c, s, n + 1);
  if (wanted) la_turn(z + (n - 1) * order, z + n * order, 1, c, s, order);
}
// One double step on rows l to n, with the shifts whose sum and product come from x, y and w.
FUNCTION void la_double_step(GLOBAL T* h, GLOBAL T* z, const i64 order, const i64 l, const i64 n, const T x, const T y,
                             const T w, const int wanted) {
  T p = 0, q = 0, r = 0;
  i64 m = n - 2;
  for (; m >= l; --m) {
    GLOBAL const T* row = h + m * order + m;
    const T here = row[0], to_x = x - here, to_y = y - here;
    p = (to_x * to_y - w) / row[order] + row[1];
    q = row[order + 1] - here - to_x - to_y;
    r = row[2 * order + 1];
    const T sum = fabs(p) + fabs(q) + fabs(r);
    p /= sum;
    q /= sum;
    r /= sum;
    if (m == l) break;
    const T around = fabs(row[-order - 1]) + fabs(here) + fabs(row[order + 1]);
    if (fabs(row[-1]) * (fabs(q) + fabs(r)) < EPS * (fabs(p) * around)) break;
  }
  for (i64 i = m + 2; i <= n; ++i) {
    h[i * order + i - 2] = 0;
    if (i > m + 2) h[i * order + i - 3] = 0;
  }
  for (i64 k = m; k < n; ++k) {
    const int three = k + 1 < n;
    GLOBAL T* row = h + k * order;
    T scale = 1;
    if (k > m) {
      p = row[k - 1];
      q = row[order + k - 1];
      r = three ? row[2 * order + k - 1] : (T)0;
      scale = fabs(p) + fabs(q) + fabs(r);
      if (scale == 0) continue;
      p /= scale;
      q /= scale;
      r /= scale;
    }
    const T s = copysign(sqrt(p * p + q * q + r * r), p);
    if (s == 0) continue;
    if (k > m) {
      row[k - 1] = -s * scale;
    } else if (l < m) {
      row[k - 1] = -row[k - 1];
    }
    p += s;
    const T a = p / s, b = q / s, c = r / s, d = q / p, e = r / p;
    for (i64 j = k; j < order; ++j) {
      const T part = row[j] + d * row[order + j] + (three ? e * row[2 * order + j] : (T)0);
      row[j] -= part * a;
      row[order + j] -= part * b;
      if (three) row[2 * order + j] -= part * c;
    }
    const i64 end = n < k + 3 ? n : k + 3;
    for (i64 i = 0; i <= end; ++i) {
      GLOBAL T* at = h + i * order + k;
      const T part = a * at[0] + b * at[1] + (three ? c * at[2] : (T)0);
      at[0] -= part;
      at[1] -= part * d;
      if (three) at[2] -= part * e;
    }
    for (i64 i = 0; wanted && i < order; ++i) {
      GLOBAL T* at = z + k * order + i;
      const T part = a * at[0] + b * at[order] + (three ? c * at[2 * order] : (T)0);
      at[0] -= part;
      at[order] -= part * d;
      if (three) at[2 * order] -= part * e;
    }
  }
}
// h becomes quasi-triangular, re and im its eigenvalues; the rows of z are turned along. Returns 1 where it does not
// converge.
FUNCTION i32 la_francis(GLOBAL T* h, GLOBAL T* z, const i64 order, GLOBAL T* re, GLOBAL T* im, const int wanted) {
  T norm = 0, shift = 0;
  for (i64 i = 0; i < order; ++i) {
    for (i64 j = i > 0 ? i - 1 : 0; j < order; ++j) norm += fabs(h[i * order + j]);
  }
  int round = 0;
  for (i64 n = order - 1; n >= 0;) {
    i64 l = n;
    for (; l > 0; --l) {
      T around = fabs(h[(l - 1) * order + l - 1]) + fabs(h[l * order + l]);
      if (around == 0) around = norm;
      if (fabs(h[l * order + l - 1]) <= EPS * around) break;
    }
    GLOBAL T* last = h + n * order;
    if (l == n) {
      last[n] += shift;
      re[n] = last[n];
      im[n--] = 0;
      round = 0;
      continue;
    }
    if (l == n - 1) {
      last[n] += shift;
      last[-order + n - 1] += shift;
      la_split_two(h, z, order, n, re, im, wanted);
      n -= 2;
      round = 0;
      continue;
    }
    if (round == 90) return 1;
    T x = last[n], y = last[-order + n - 1], w = last[n - 1] * last[-order + n];
    const T mean = (x + y) / 2, off = (y - x) / 2, square = off * off + w;
    // Of two real shifts the nearer one, twice, as LAPACK does it: the order of values comes from it.
    if (square >= 0) {
      const T root = sqrt(square);
      x = y = mean + (fabs(off + root) <= fabs(off - root) ? root : -root);
      w = 0;
    }
    if (round % 20 == 10) {  // shifts of another kind, should these turn in a circle
      const T here = last[n];
      shift += here;
      for (i64 i = 0; i <= n; ++i) h[i * order + i] -= here;
      const T s = fabs(last[n - 1]) + fabs(last[-order + n - 2]);
      x = y = (T)0.75 * s;
      w = (T)-0.4375 * s * s;
    }
    ++round;
    la_double_step(h, z, order, l, n, x, y, w, wanted);
  }
  return 0;
}
// (re, im) becomes itself divided by (c, d)
FUNCTION void la_divide(GLOBAL T* re, GLOBAL T* im, const T c, const T d) {
  const int first = fabs(c) >= fabs(d);
  const T ratio = first ? d / c : c / d, whole = first ? c + d * ratio : c * ratio + d, a = *re, b = *im;
  *re = (first ? a + b * ratio : a * ratio + b) / whole;
  *im = (first ? b - a * ratio : b * ratio - a) / whole;
}
// x (xr, xi) becomes the eigenvector of the quasi-triangular h to its eigenvalue k, which is a pair's first or real.
FUNCTION void la_triangular_vector(GLOBAL const T* h, const i64 n, GLOBAL const T* re, GLOBAL const T* im, const i64 k,
                                   const T least, GLOBAL T* xr, GLOBAL T* xi) {
  const T value = re[k], turn = im[k];
  const i64 top = turn == 0 ? k : k + 1;
  for (i64 i = 0; i < n; ++i) xr[i] = xi[i] = 0;
  xr[top] = 1;
  if (turn != 0) {
    GLOBAL const T* row = h + top * n;
    xr[k] = (value - row[top]) / row[k];
    xi[k] = turn / row[k];
  }
  for (i64 i = k - 1; i >= 0; --i) {
    const i64 first = im[i] < 0 ? i - 1 : i;  // of a block of two rows, or of one
    T largest = 0;
    for (i64 j = first; j <= i; ++j) {
      GLOBAL const T* row = h + j * n;
      xr[j] = -la_dot(row + i + 1, xr + i + 1, top - i);
      xi[j] = -la_dot(row + i + 1, xi + i + 1, top - i);
    }
    if (first == i) {
      T c = h[i * n + i] - value;
      if (fabs(c) + fabs(turn) < least) c = least;
      la_divide(xr + i, xi + i, c, -turn);
    } else {
      // By Cramer's rule: the determinant is complex, for the diagonal is.
      const T a = h[first * n + first] - value, b = h[first * n + i], c = h[i * n + first], d = h[i * n + i] - value;
      T det = a * d - turn * turn - b * c, det_im = -turn * (a + d);
      if (fabs(det) + fabs(det_im) < least * least) det = least * least;
      const T ur = xr[first], ui = xi[first], vr = xr[i], vi = xi[i];
      xr[first] = ur * d + ui * turn - b * vr;
      xi[first] = ui * d - ur * turn - b * vi;
      xr[i] = vr * a + vi * turn - c * ur;
      xi[i] = vi * a - vr * turn - c * ui;
      la_divide(xr + first, xi + first, det, det_im);
      la_divide(xr + i, xi + i, det, det_im);
    }
    i = first;
    for (i64 j = first; j < first + 2 && j < n; ++j) {
      const T size = fabs(xr[j]) + fabs(xi[j]);
      largest = size > largest ? size : largest;
    }
    if (largest > 1 / EPS) {
      la_scale(xr, 1 / largest, n);
      la_scale(xi, 1 / largest, n);
    }
  }
}
// Column k of the vectors, and its conjugate's, k + 1, of a pair: of length 1, the largest element real.
FUNCTION void la_store_vector(GLOBAL T* vr, GLOBAL T* vi, const i64 v_r, const i64 v_c, const i64 n, const i64 k,
                              const int pair, GLOBAL T* xr, GLOBAL T* xi) {
  T largest = 0, sum = 0;
  i64 top = 0;
  for (i64 i = 0; i < n; ++i) {
    const T size = hypot(xr[i], xi[i]);
    if (!(size > largest || size != size)) continue;
    largest = size;
    top = i;
  }
  for (i64 i = 0; i < n; ++i) sum += xr[i] / largest * (xr[i] / largest) + xi[i] / largest * (xi[i] / largest);
  const T length = sqrt(sum) * largest, c = pair ? xr[top] / largest : (T)1, s = pair ? -xi[top] / largest : (T)0;
  for (i64 i = 0; i < n; ++i) {
    const T re = (c * xr[i] - s * xi[i]) / length, im = i == top ? (T)0 : (c * xi[i] + s * xr[i]) / length;
    vr[i * v_r + k * v_c] = re;
    vi[i * v_r + k * v_c] = im;
    if (!pair) continue;
    vr[i * v_r + (k + 1) * v_c] = re;
    vi[i * v_r + (k + 1) * v_c] = -im;
  }
}
// work: n (2n + 9) elements. vr, vi: where `wanted`.
FUNCTION void la_eig(IN(a), GLOBAL T* values, GLOBAL T* values_im, const i64 step, GLOBAL T* vr, GLOBAL T* vi,
                     const i64 v_r, const i64 v_c, const int wanted, const i64 n, GLOBAL T* work) {
  GLOBAL T *h = work, *z = h + n * n, *re = z + n * n, *im = re + n, *d = im + n, *xr = d + n, *xi = xr + n;
  GLOBAL T *yr = xi + n, *yi = yr + n, *v = yi + n, *w = v + n;
  la_copy(h, n, 1, V(a), n, n);
  const T largest = la_largest(h, n * n, 1);
  const T small = sqrt(SAFE_MIN) / EPS,
          scale = largest > 0 && (largest < small || largest > 1 / small) ? largest : (T)1;
  for (i64 i = 0; i < n * n && scale != 1; ++i) h[i] /= scale;
  la_balance(h, n, d);
  la_hessenberg(h, z, n, wanted, v, w);
  const i32 failed = !(largest <= 1 / SAFE_MIN) || la_francis(h, z, n, re, im, wanted);
  for (i64 i = 0; i < n; ++i) {
    values[i * step] = failed ? (T)NAN_F : re[i] * scale;
    values_im[i * step] = failed ? (T)NAN_F : im[i] * scale;
  }
  if (!wanted) return;
  const T noise = EPS * la_largest(h, n * n, 1), least = noise > SAFE_MIN ? noise : SAFE_MIN / EPS;
  for (i64 k = 0; k < n; ++k) {
    const int pair = !failed && im[k] > 0 && k + 1 < n;
    if (failed) {
      for (i64 i = 0; i < n; ++i) yr[i] = yi[i] = (T)NAN_F;
    } else {
      la_triangular_vector(h, n, re, im, k, least, xr, xi);
      for (i64 i = 0; i < n; ++i) yr[i] = yi[i] = 0;
      for (i64 j = 0; j <= k + pair; ++j) {
        la_add(yr, z + j * n, xr[j], n);
        la_add(yi, z + j * n, xi[j], n);
      }
      for (i64 i = 0; i < n; ++i) {
        yr[i] *= d[i];
        yi[i] *= d[i];
      }
    }
    la_store_vector(vr, vi, v_r, v_c, n, k, pair, yr, yi);
    k += pair;
  }
}
