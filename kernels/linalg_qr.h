// SPDX-License-Identifier: Apache-2.0
// Householder reflectors H = 1 - tau v v', v beginning with a 1 that is not stored, as LAPACK has them.

// The reflector that takes (*first, x) to (beta, 0): *first becomes beta, x becomes v. Returns tau. The sum of squares
// is formed of scaled elements, so that it neither overflows nor vanishes.
FUNCTION T la_reflector(GLOBAL T* first, GLOBAL T* x, const i64 n, const i64 step) {
  const T largest = la_largest(x, n, step);
  if (largest == 0) return 0;
  T sum = 0;
  for (i64 i = 0; i < n; ++i) {
    const T v = x[i * step] / largest;
    sum += v * v;
  }
  const T alpha = *first, beta = -copysign(hypot(alpha, largest * sqrt(sum)), alpha);
  for (i64 i = 0; i < n; ++i) x[i * step] /= alpha - beta;
  *first = beta;
  return (beta - alpha) / beta;
}
// c (m x n, rows `ld` apart) becomes H c. w: room for n.
FUNCTION void la_reflect(GLOBAL const T* v, const i64 step, const T tau, GLOBAL T* c, const i64 ld, const i64 m,
                         const i64 n, GLOBAL T* w) {
  if (tau == 0) return;
  for (i64 j = 0; j < n; ++j) w[j] = c[j];
  for (i64 i = 1; i < m; ++i) la_add(w, c + i * ld, v[i * step], n);
  la_add(c, w, -tau, n);
  for (i64 i = 1; i < m; ++i) la_add(c + i * ld, w, -tau * v[i * step], n);
}
// a (m x n, rows `ld` apart) becomes R with the reflectors below it.
FUNCTION void la_qr(GLOBAL T* a, const i64 m, const i64 n, const i64 ld, GLOBAL T* tau, const i64 step, GLOBAL T* w) {
  const i64 k = m < n ? m : n;
  for (i64 j = 0; j < k; ++j) {
    GLOBAL T* corner = a + j * ld + j;
    const T t = la_reflector(corner, corner + ld, m - j - 1, ld);
    tau[j * step] = t;
    la_reflect(corner, ld, t, corner + 1, ld, m - j, n - j - 1, w);
  }
}
// c (m x n, rows `ld` apart) becomes Q c or Q' c, for the k reflectors in the columns of a.
FUNCTION void la_apply_q(IN(a), GLOBAL const T* tau, const i64 step, GLOBAL T* c, const i64 ld, const i64 m,
                         const i64 n, const i64 k, const int transposed, GLOBAL T* w) {
  for (i64 s = 0; s < k; ++s) {
    const i64 j = transposed ? s : k - 1 - s;
    la_reflect(a + j * (a_r + a_c), a_r, tau[j * step], c + j * ld, ld, m - j, n, w);
  }
}
// q (m x n, rows `ld` apart) becomes the first n columns of Q: reflector j changes none before column j.
FUNCTION void la_form_q(IN(a), GLOBAL const T* tau, const i64 step, GLOBAL T* q, const i64 ld, const i64 m, const i64 n,
                        const i64 k, GLOBAL T* w) {
  la_fill(q, ld, 1, m, n, 0, 1);
  for (i64 j = k - 1; j >= 0; --j) {
    la_reflect(a + j * (a_r + a_c), a_r, tau[j * step], q + j * ld + j, ld, m - j, n - j, w);
  }
}
