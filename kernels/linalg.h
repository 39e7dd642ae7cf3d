// SPDX-License-Identifier: Apache-2.0
// Dense linear algebra: what all of it is made of. A work item has a matrix to itself. T: f32 or f64; EPS: the distance
// from 1 to the next number; SAFE_MIN: the least normal number.
//
// A matrix among the parameters is a pointer with the distances between rows and between columns; elements are reached
// with AT. Work is done in row-major copies, where inner loops run along rows.
#define V(x) x, x##_r, x##_c
#define TRANSPOSED(x) x, x##_c, x##_r
#define IN(x) GLOBAL const T *x, const i64 x##_r, const i64 x##_c
#define OUT(x) GLOBAL T *x, const i64 x##_r, const i64 x##_c
#define AT(x, i, j) x[(i) * x##_r + (j) * x##_c]
#define LANES 8

FUNCTION void la_copy(OUT(to), IN(from), const i64 m, const i64 n) {
  for (i64 i = 0; i < m; ++i) {
    for (i64 j = 0; j < n; ++j) AT(to, i, j) = AT(from, i, j);
  }
}
FUNCTION void la_fill(OUT(to), const i64 m, const i64 n, const T off, const T diagonal) {
  for (i64 i = 0; i < m; ++i) {
    for (i64 j = 0; j < n; ++j) AT(to, i, j) = i == j ? diagonal : off;
  }
}
// One triangle with `diagonal` in place of its own where `unit`, zeros elsewhere.
FUNCTION void la_triangle(OUT(to), IN(from), const i64 m, const i64 n, const int lower, const int unit) {
  for (i64 i = 0; i < m; ++i) {
    for (i64 j = 0; j < n; ++j) {
      const int inside = lower ? j <= i : j >= i;
      AT(to, i, j) = unit && i == j ? (T)1 : (inside ? AT(from, i, j) : (T)0);
    }
  }
}
FUNCTION T la_dot(GLOBAL const T* x, GLOBAL const T* y, const i64 n) {
  T lane[LANES];
  for (int k = 0; k < LANES; ++k) lane[k] = 0;
  i64 j = 0;
  for (; j + LANES <= n; j += LANES) {
    for (int k = 0; k < LANES; ++k) lane[k] += x[j + k] * y[j + k];
  }
  for (; j < n; ++j) lane[0] += x[j] * y[j];
  for (int width = LANES / 2; width > 0; width /= 2) {
    for (int k = 0; k < width; ++k) lane[k] += lane[k + width];
  }
  return lane[0];
}
// y += f x, for rows that do not overlap
FUNCTION void la_add(GLOBAL T* y, GLOBAL const T* x, const T f, const i64 n) {
  VECTOR_LOOP
  for (i64 j = 0; j < n; ++j) y[j] += f * x[j];
}
FUNCTION void la_scale(GLOBAL T* x, const T f, const i64 n) {
  for (i64 j = 0; j < n; ++j) x[j] *= f;
}
FUNCTION void la_swap(GLOBAL T* x, GLOBAL T* y, const i64 n, const i64 step) {
  for (i64 j = 0; j < n; ++j) {
    const T kept = x[j * step];
    x[j * step] = y[j * step];
    y[j * step] = kept;
  }
}
// (x, y) becomes (c x - s y, s x + c y)
FUNCTION void la_rotate(GLOBAL T* x, GLOBAL T* y, const T c, const T s, const i64 n) {
  VECTOR_LOOP
  for (i64 j = 0; j < n; ++j) {
    const T a = x[j], b = y[j];
    x[j] = c * a - s * b;
    y[j] = s * a + c * b;
  }
}
// The largest magnitude of n elements; NaN if one is among them.
FUNCTION T la_largest(GLOBAL const T* x, const i64 n, const i64 step) {
  T top = 0;
  for (i64 j = 0; j < n; ++j) {
    const T v = fabs(x[j * step]);
    top = v > top || v != v ? v : top;
  }
  return top;
}
// c = a b for n x n matrices without gaps
FUNCTION void la_multiply(GLOBAL T* c, GLOBAL const T* a, GLOBAL const T* b, const i64 n) {
  for (i64 i = 0; i < n; ++i) {
    for (i64 j = 0; j < n; ++j) c[i * n + j] = 0;
    for (i64 k = 0; k < n; ++k) la_add(c + i * n, b + k * n, a[i * n + k], n);
  }
}

// t x = b for a triangle t; x takes the place of b (n x k).
FUNCTION void la_solve_triangle(IN(t), OUT(b), const i64 n, const i64 k, const int lower, const int unit) {
  for (i64 s = 0; s < n; ++s) {
    const i64 i = lower ? s : n - 1 - s, from = lower ? 0 : i + 1, end = lower ? i : n;
    for (i64 j = from; j < end; ++j) {
      const T f = AT(t, i, j);
      if (b_c == 1) {
        la_add(b + i * b_r, b + j * b_r, -f, k);
      } else {
        for (i64 c = 0; c < k; ++c) AT(b, i, c) -= f * AT(b, j, c);
      }
    }
    if (unit) continue;
    const T pivot = AT(t, i, i);
    for (i64 c = 0; c < k; ++c) AT(b, i, c) /= pivot;
  }
}

// a (m x n, rows `ld` apart) becomes L and U with pivots that count from 1. Returns 0, or 1 + where the first pivot of
// zero is.
FUNCTION i32 la_lu(GLOBAL T* a, const i64 m, const i64 n, const i64 ld, GLOBAL i32* pivots, const i64 step) {
  i32 info = 0;
  const i64 k = m < n ? m : n;
  for (i64 j = 0; j < k; ++j) {
    i64 best = j;
    T top = fabs(a[j * ld + j]);
    for (i64 i = j + 1; i < m; ++i) {
      const T v = fabs(a[i * ld + j]);
      if (v > top) {
        top = v;
        best = i;
      }
    }
    pivots[j * step] = (i32)(best + 1);
    if (top == 0) {
      if (info == 0) info = (i32)(j + 1);
      continue;
    }
    if (best != j) la_swap(a + j * ld, a + best * ld, n, 1);
    const T pivot = a[j * ld + j];
    for (i64 i = j + 1; i < m; ++i) {
      const T f = a[i * ld + j] / pivot;
      a[i * ld + j] = f;
      la_add(a + i * ld + j + 1, a + j * ld + j + 1, -f, n - j - 1);
    }
  }
  return info;
}
// The row that pivot i names, whatever the numbers are.
FUNCTION i64 la_pivot(GLOBAL const i32* pivots, const i64 i, const i64 step, const i64 rows) {
  const i64 named = (i64)pivots[i * step] - 1;
  return named < 0 || named >= rows ? i : named;
}
FUNCTION void la_permute(OUT(b), GLOBAL const i32* pivots, const i64 step, const i64 n, const i64 k, const int back) {
  for (i64 s = 0; s < n; ++s) {
    const i64 i = back ? n - 1 - s : s, other = la_pivot(pivots, i, step, n);
    if (other != i) la_swap(b + i * b_r, b + other * b_r, k, b_c);
  }
}
// (L U) x = P b, or its transpose; x takes the place of b (n x k).
FUNCTION void la_lu_solve(IN(lu), GLOBAL const i32* pivots, const i64 step, OUT(b), const i64 n, const i64 k,
                          const int transposed) {
  if (transposed) {
    la_solve_triangle(TRANSPOSED(lu), V(b), n, k, 1, 0);
    la_solve_triangle(TRANSPOSED(lu), V(b), n, k, 0, 1);
    la_permute(V(b), pivots, step, n, k, 1);
  } else {
    la_permute(V(b), pivots, step, n, k, 0);
    la_solve_triangle(V(lu), V(b), n, k, 1, 1);
    la_solve_triangle(V(lu), V(b), n, k, 0, 0);
  }
}
// P of a = P L U (m x m) from the n pivots.
FUNCTION void la_permutation(OUT(p), GLOBAL const i32* pivots, const i64 step, const i64 m, const i64 n) {
  la_fill(V(p), m, m, 0, 1);
  for (i64 i = n - 1; i >= 0; --i) {
    const i64 other = la_pivot(pivots, i, step, m);
    if (other != i) la_swap(p + i * p_r, p + other * p_r, m, p_c);
  }
}

// The lower triangle of a (n x n, rows `ld` apart) becomes L. Returns 0, or 1 + where a is not positive definite.
FUNCTION i32 la_cholesky(GLOBAL T* a, const i64 n, const i64 ld) {
  for (i64 i = 0; i < n; ++i) {
    GLOBAL T* row = a + i * ld;
    for (i64 j = 0; j < i; ++j) row[j] = (row[j] - la_dot(row, a + j * ld, j)) / a[j * ld + j];
    const T rest = row[i] - la_dot(row, row, i);
    if (!(rest > 0)) return (i32)(i + 1);
    row[i] = sqrt(rest);
  }
  return 0;
}
