// SPDX-License-Identifier: Apache-2.0
// Distances by a norm. A: the type computed in. ORDER: 0, 1, 2, 3 for infinity, 4 for any other, which is `order`.
#if ORDER == 0
#define NORM_ADD(sum, d) (sum) += (d) != 0
#define NORM_END(sum) (sum)
#elif ORDER == 1
#define NORM_ADD(sum, d) (sum) += fabs(d)
#define NORM_END(sum) (sum)
#elif ORDER == 2
#define NORM_ADD(sum, d) (sum) += (d) * (d)
#define NORM_END(sum) sqrt(sum)
#elif ORDER == 3
#define NORM_ADD(sum, d) (sum) = (sum) != (sum) || (sum) > fabs(d) ? (sum) : fabs(d)
#define NORM_END(sum) (sum)
#else
#define NORM_ADD(sum, d) (sum) += pow(fabs(d), order)
#define NORM_END(sum) pow(sum, 1 / order)
#endif

// What the difference d contributes to the gradient of its distance `far`.
FUNCTION A norm_gradient(const A d, const A far, const A order) {
  const A sign = (A)((d > 0) - (d < 0));
#if ORDER == 0
  return 0;
#elif ORDER == 1
  return sign;
#elif ORDER == 2
  return far == 0 ? 0 : d / far;
#elif ORDER == 3
  return fabs(d) == far ? sign : 0;
#else
  return far == 0 || d == 0 ? 0 : sign * pow(fabs(d), order - 1) / pow(far, order - 1);
#endif
}
FUNCTION i64 pair_of(const i64 a, const i64 b, const i64 rows) {
  const i64 low = a < b ? a : b, high = a < b ? b : a;
  return low * (2 * rows - low - 1) / 2 + high - low - 1;
}

// Every pair of rows of x, and back.
#define PDIST                                                    \
  const A order = BITS(p.order);                                 \
  const i64 end = SHARE_END(p.chunk, p.rows);                    \
  for (i64 a = item * p.chunk; a < end; ++a) {                   \
    for (i64 b = a + 1; b < p.rows; ++b) {                       \
      A sum = 0;                                                 \
      for (i64 m = 0; m < p.columns; ++m) {                      \
        const A d = x[a * p.columns + m] - x[b * p.columns + m]; \
        NORM_ADD(sum, d);                                        \
      }                                                          \
      out[pair_of(a, b, p.rows)] = NORM_END(sum);                \
    }                                                            \
  }
#define PDIST_BACKWARD                                           \
  const A order = BITS(p.order);                                 \
  const i64 end = SHARE_END(p.chunk, p.rows);                    \
  for (i64 a = item * p.chunk; a < end; ++a) {                   \
    for (i64 m = 0; m < p.columns; ++m) {                        \
      A sum = 0;                                                 \
      for (i64 b = 0; b < p.rows; ++b) {                         \
        if (b == a) continue;                                    \
        const i64 pair = pair_of(a, b, p.rows);                  \
        const A d = x[a * p.columns + m] - x[b * p.columns + m]; \
        sum += grad[pair] * norm_gradient(d, far[pair], order);  \
      }                                                          \
      out[a * p.columns + m] = sum;                              \
    }                                                            \
  }

// Slices [outer, inner] of a dense tensor, scaled down to the norm p.most where theirs is larger.
#define RENORM                                                                         \
  const A order = BITS(p.order), most = BITS(p.most);                                  \
  const i64 end = SHARE_END(p.chunk, p.size);                                          \
  for (i64 slice = item * p.chunk; slice < end; ++slice) {                             \
    A total = 0;                                                                       \
    for (i64 o = 0; o < p.outer; ++o) {                                                \
      A sum = ORDER == 3 ? total : 0;                                                  \
      for (i64 i = 0; i < p.inner; ++i) {                                              \
        const A v = LOAD(x, (o * p.size + slice) * p.inner + i);                       \
        NORM_ADD(sum, v);                                                              \
      }                                                                                \
      total = ORDER == 3 ? sum : total + sum;                                          \
    }                                                                                  \
    const A norm = NORM_END(total), scale = norm > most ? most / (norm + (A)1e-7) : 1; \
    for (i64 o = 0; o < p.outer; ++o) {                                                \
      for (i64 i = 0; i < p.inner; ++i) {                                              \
        const i64 at = (o * p.size + slice) * p.inner + i;                             \
        STORE(out, at, LOAD(x, at) * scale);                                           \
      }                                                                                \
    }                                                                                  \
  }
