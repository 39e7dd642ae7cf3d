// SPDX-License-Identifier: Apache-2.0
// The exponential of a matrix: its Taylor polynomial at the matrix halved until small, then squared as often.

// work: 5 n n elements
FUNCTION void la_exp(OUT(out), IN(a), const i64 n, GLOBAL T* work) {
  GLOBAL T *x = work, *x2 = x + n * n, *x3 = x2 + n * n, *sum = x3 + n * n, *next = sum + n * n;
  la_copy(x, n, 1, V(a), n, n);
  T norm = 0;
  for (i64 j = 0; j < n; ++j) {
    T column = 0;
    for (i64 i = 0; i < n; ++i) column += fabs(x[i * n + j]);
    norm = column > norm || column != column ? column : norm;
  }
  int halvings = 0;
  for (T rest = norm; rest > 1 && rest < INF_F; rest /= 2) ++halvings;
  T scale = 1;
  for (int k = 0; k < halvings; ++k) scale /= 2;
  la_scale(x, scale, n * n);
  la_multiply(x2, x, x, n);
  la_multiply(x3, x2, x, n);
  // Terms up to x^18 / 18!, by Horner's rule in x^3; the coefficients 1 / k! of a block are formed as it is reached.
  for (int block = 6; block >= 0; --block) {
    T c0 = 1;
    for (int k = 2; k <= 3 * block; ++k) c0 /= (T)k;
    const T c1 = c0 / (T)(3 * block + 1), c2 = block == 6 ? (T)0 : c1 / (T)(3 * block + 2);
    if (block < 6) {
      la_multiply(next, sum, x3, n);
    } else {
      la_fill(next, n, 1, n, n, 0, 0);
    }
    for (i64 i = 0; i < n * n; ++i) sum[i] = next[i] + (block == 6 ? (T)0 : c1) * x[i] + c2 * x2[i];
    for (i64 i = 0; i < n; ++i) sum[i * (n + 1)] += c0;
  }
  for (int k = 0; k < halvings; ++k) {
    la_multiply(next, sum, sum, n);
    GLOBAL T* kept = sum;
    sum = next;
    next = kept;
  }
  la_copy(V(out), sum, n, 1, n, n);
}
