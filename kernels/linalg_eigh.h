// SPDX-License-Identifier: Apache-2.0
// Eigenvalues and eigenvectors of symmetric matrices: Householder's reduction to a tridiagonal, then implicit QL steps.
// Eigenvectors are kept as rows, which the rotations then run along.

// a (n x n, symmetric, both triangles there) becomes the tridiagonal d, e, with the reflectors in its rows and their
// tau. w: room for n.
FUNCTION void la_tridiagonal(GLOBAL T* a, const i64 n, GLOBAL T* d, GLOBAL T* e, GLOBAL T* tau, GLOBAL T* w) {
  for (i64 k = 0; k < n; ++k) {
    d[k] = a[k * n + k];
    e[k] = 0;
    tau[k] = 0;
    if (k + 1 == n) break;
    GLOBAL T* v = a + k * n + k + 1;
    const i64 m = n - k - 1;
    const T t = la_reflector(v, v + 1, m - 1, 1);
    e[k] = v[0];
    tau[k] = t;
    v[0] = 1;
    if (t == 0) continue;
    GLOBAL T* rest = a + (k + 1) * (n + 1);
    for (i64 i = 0; i < m; ++i) w[i] = t * la_dot(rest + i * n, v, m);
    la_add(w, v, t * la_dot(w, v, m) / -2, m);
    for (i64 i = 0; i < m; ++i) {
      la_add(rest + i * n, w, -v[i], m);
      la_add(rest + i * n, v, -w[i], m);
    }
  }
}
// z (n x n) becomes the transpose of the product of the reflectors.
FUNCTION void la_tridiagonal_basis(GLOBAL const T* a, GLOBAL const T* tau, GLOBAL T* z, const i64 n) {
  la_fill(z, n, 1, n, n, 0, 1);
  for (i64 k = n - 2; k >= 0; --k) {
    GLOBAL const T* v = a + k * n + k + 1;
    for (i64 i = k + 1; i < n && tau[k] != 0; ++i) {
      GLOBAL T* row = z + i * n + k + 1;
      la_add(row, v, -tau[k] * la_dot(row, v, n - k - 1), n - k - 1);
    }
  }
}
// d becomes the eigenvalues; the rows of z (where `vectors`) are turned along. Returns 0, or 1 where it does not
// converge.
FUNCTION i32 la_ql(GLOBAL T* d, GLOBAL T* e, GLOBAL T* z, const i64 n, const int vectors) {
  for (i64 l = 0; l < n; ++l) {
    for (int round = 0;; ++round) {
      i64 m = l;
      for (; m + 1 < n; ++m) {
        if (fabs(e[m]) <= EPS / 2 * (fabs(d[m]) + fabs(d[m + 1]))) break;
      }
      if (m == l) break;
      if (round == 60) return 1;
      T g = (d[l + 1] - d[l]) / (2 * e[l]);
      g = d[m] - d[l] + e[l] / (g + copysign(hypot(g, (T)1), g));
      T s = 1, c = 1, p = 0;
      i64 i = m - 1;
      for (; i >= l; --i) {
        const T f = s * e[i], b = c * e[i], r = hypot(f, g);
        e[i + 1] = r;
        if (r == 0) {
          d[i + 1] -= p;
          e[m] = 0;
          break;
        }
        s = f / r;
        c = g / r;
        g = d[i + 1] - p;
        const T turned = (d[i] - g) * s + 2 * c * b;
        p = s * turned;
        d[i + 1] = g + p;
        g = c * turned - b;
        if (vectors) la_rotate(z + i * n, z + (i + 1) * n, c, s, n);
      }
      if (i >= l) continue;
      d[l] -= p;
      e[l] = g;
      e[m] = 0;
    }
  }
  return 0;
}
// work: n (2n + 4) elements.
FUNCTION void la_eigh(IN(a), const int lower, GLOBAL T* values, const i64 step, OUT(vectors), const int wanted,
                      const i64 n, GLOBAL T* work) {
  GLOBAL T *full = work, *z = work + n * n, *d = z + n * n, *e = d + n, *tau = e + n, *w = tau + n;
  for (i64 i = 0; i < n; ++i) {
    for (i64 j = 0; j <= i; ++j) {
      const T v = lower ? AT(a, i, j) : AT(a, j, i);
      full[i * n + j] = full[j * n + i] = v;
    }
  }
  const T largest = la_largest(full, n * n, 1);
  // Squares of what is not near the ends of the range neither overflow nor vanish.
  const T scale = largest > 0 && (largest < SAFE_MIN / EPS || largest > EPS / SAFE_MIN) ? largest : (T)1;
  for (i64 i = 0; i < n * n && scale != 1; ++i) full[i] /= scale;
  la_tridiagonal(full, n, d, e, tau, w);
  if (wanted) la_tridiagonal_basis(full, tau, z, n);
  const i32 failed = la_ql(d, e, z, n, wanted);
  for (i64 i = 0; i < n; ++i) {
    i64 least = i;
    for (i64 j = i + 1; j < n; ++j) least = d[j] < d[least] ? j : least;
    const T value = d[least];
    d[least] = d[i];
    values[i * step] = failed ? (T)NAN_F : value * scale;
    if (!wanted) continue;
    if (least != i) la_swap(z + i * n, z + least * n, n, 1);
    for (i64 j = 0; j < n; ++j) AT(vectors, j, i) = failed ? (T)NAN_F : z[i * n + j];
  }
}
