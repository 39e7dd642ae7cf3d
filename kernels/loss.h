// SPDX-License-Identifier: Apache-2.0
// Losses. X: all floating-point tensors; LABEL: classes.
#ifndef EACH_GRADIENT
#define EACH_GRADIENT 0
#endif
#ifdef LOSS
// Element by element: a = input, b = target, `extra` = beta or delta.
FUNCTION A at_least(const A x, const A low) { return x < low ? low : x; }  // NaN stays
FUNCTION A loss_of(const A a, const A b, const A extra) {
  const A z = fabs(a - b);
#if LOSS == 0  // squares
  return z * z;
#elif LOSS == 1  // smooth l1
  return z < extra ? (A)0.5 * z * z / extra : z - (A)0.5 * extra;
#elif LOSS == 2  // Huber
  return z <= extra ? (A)0.5 * z * z : extra * (z - (A)0.5 * extra);
#else            // binary cross entropy
  return (b - 1) * at_least(m_log1p(-a), -100) - b * at_least(m_log(a), -100);
#endif
}
FUNCTION A slope_of(const A a, const A b, const A extra) {
  const A x = a - b;
#if LOSS == 0  // squares
  return 2 * x;
#elif LOSS == 1  // smooth l1
  return x <= -extra ? -1 : x >= extra ? 1 : x / extra;
#elif LOSS == 2  // Huber
  return x <= -extra ? -extra : x >= extra ? extra : x;
#else            // binary cross entropy
  return x / at_least((1 - a) * a, (A)1e-12);
#endif
}
#if HAS_WEIGHT
#define FACTOR(j) LOAD_X(weight, j)
#else
#define FACTOR(j) ((A)1)
#endif
FUNCTION void element_loss(GLOBAL X* out, GLOBAL const X* x, GLOBAL const X* target, GLOBAL const X* weight,
                           const i64 n, const i64 chunk, const A extra, const i64 item) {
  const i64 begin = item * chunk, end = begin + chunk < n ? begin + chunk : n;
  VECTOR_LOOP
  for (i64 j = begin; j < end; ++j) {
    STORE_X(out, j, loss_of(LOAD_X(x, j), LOAD_X(target, j), extra) * FACTOR(j));
  }
}
FUNCTION void element_loss_sums(GLOBAL A* partial, GLOBAL const X* x, GLOBAL const X* target, GLOBAL const X* weight,
                                const i64 n, const i64 chunk, const A extra, const i64 item) {
  const i64 begin = item * chunk, count = begin + chunk < n ? chunk : n - begin;
  A sum = 0;
  SUM_OVER(sum, count, j, loss_of(LOAD_X(x, begin + j), LOAD_X(target, begin + j), extra) * FACTOR(begin + j))
  partial[item] = sum;
}
FUNCTION void element_loss_total(GLOBAL X* out, GLOBAL const A* partial, const i64 n, const A divisor, const i64 item) {
  A sum = 0;
  SUM_OVER(sum, n, j, partial[j])
  STORE_X(out, 0, sum / divisor);
}
// One gradient of the loss, or with EACH_GRADIENT one of each element.
FUNCTION void element_loss_backward(GLOBAL X* out, GLOBAL const X* g, GLOBAL const X* x, GLOBAL const X* target,
                                    GLOBAL const X* weight, const i64 n, const i64 chunk, const A extra, const A share,
                                    const i64 item) {
  const i64 begin = item * chunk, end = begin + chunk < n ? begin + chunk : n;
  VECTOR_LOOP
  for (i64 j = begin; j < end; ++j) {
    const A upstream = LOAD_X(g, EACH_GRADIENT ? j : 0) * share;
    STORE_X(out, j, slope_of(LOAD_X(x, j), LOAD_X(target, j), extra) * FACTOR(j) * upstream);
  }
}
#endif

#ifdef CLASSES
// images x classes x points. A target that is no class gives NaN: kernels cannot raise.
FUNCTION A weight_of(GLOBAL const X* weight, const i64 target, const i64 classes, const i64 ignored) {
  if (target == ignored) return 0;
  if (target < 0 || target >= classes) return NAN_F;
#if HAS_WEIGHT
  return LOAD_X(weight, target);
#else
  return 1;
#endif
}
FUNCTION A likelihood(GLOBAL const X* x, const i64 i, const i64 target, const i64 classes, const i64 points,
                      const i64 ignored) {
  if (target == ignored || target < 0 || target >= classes) return 0;
  return LOAD_X(x, (i / points * classes + target) * points + i % points);
}
FUNCTION void nll_each(GLOBAL X* out, GLOBAL X* total, GLOBAL const X* x, GLOBAL const LABEL* target,
                       GLOBAL const X* weight, const i64 n, const i64 chunk, const i64 classes, const i64 points,
                       const i64 ignored, const i64 item) {
  if (item == 0) STORE_X(total, 0, 0);
  EACH(i, n) {
    const i64 t = (i64)LOAD_LABEL(target, i);
    const A loss = -weight_of(weight, t, classes, ignored) * likelihood(x, i, t, classes, points, ignored);
    STORE_X(out, i, t == ignored ? 0 : loss);
  }
}
FUNCTION void nll_sums(GLOBAL A* partial, GLOBAL const X* x, GLOBAL const LABEL* target, GLOBAL const X* weight,
                       const i64 n, const i64 chunk, const i64 classes, const i64 points, const i64 ignored,
                       const i64 item) {
  const i64 begin = item * chunk, count = begin + chunk < n ? chunk : n - begin;
  A sum = 0, total = 0;
#define TARGET ((i64)LOAD_LABEL(target, begin + j))
  SUM_TWO_OVER(sum, total, count, j,
               weight_of(weight, TARGET, classes, ignored) * likelihood(x, begin + j, TARGET, classes, points, ignored),
               weight_of(weight, TARGET, classes, ignored))
#undef TARGET
  partial[2 * item] = -sum;
  partial[2 * item + 1] = total;
}
FUNCTION void nll_total(GLOBAL X* out, GLOBAL X* total, GLOBAL const A* partial, const i64 items, const i64 item) {
  A sum = 0, weight = 0;
  SUM_TWO_OVER(sum, weight, items, j, partial[2 * j], partial[2 * j + 1])
  STORE_X(out, 0, MEAN ? sum / weight : sum);
  STORE_X(total, 0, weight);
}
FUNCTION A nll_gradient(GLOBAL const X* g, GLOBAL const X* total, GLOBAL const X* weight, const i64 i, const i64 target,
                        const i64 classes, const i64 ignored) {
  const A upstream = LOAD_X(g, EACH_GRADIENT ? i : 0) / (MEAN ? LOAD_X(total, 0) : 1);
  return -weight_of(weight, target, classes, ignored) * upstream;
}
FUNCTION void nll_backward_rows(GLOBAL X* out, GLOBAL const X* g, GLOBAL const X* total, GLOBAL const LABEL* target,
                                GLOBAL const X* weight, const i64 rows, const i64 chunk, const i64 classes,
                                const i64 ignored, const i64 item) {
  EACH(i, rows) {
    for (i64 c = 0; c < classes; ++c) STORE_X(out, i * classes + c, 0);
    const i64 t = (i64)LOAD_LABEL(target, i);
    if (t == ignored || t < 0 || t >= classes) continue;
    STORE_X(out, i * classes + t, nll_gradient(g, total, weight, i, t, classes, ignored));
  }
}
FUNCTION void nll_backward_planes(GLOBAL X* out, GLOBAL const X* g, GLOBAL const X* total, GLOBAL const LABEL* target,
                                  GLOBAL const X* weight, const i64 planes, const i64 chunk, const i64 classes,
                                  const i64 points, const i64 ignored, const i64 item) {
  EACH(s, planes) {
    const i64 c = s % classes, at = s / classes * points;
    for (i64 j = 0; j < points; ++j) {
      const i64 hit = (i64)LOAD_LABEL(target, at + j) == c && c != ignored;
      STORE_X(out, s * points + j, hit ? nll_gradient(g, total, weight, at + j, c, classes, ignored) : 0);
    }
  }
}
#endif
