// SPDX-License-Identifier: Apache-2.0
// Softmax and log-softmax (LOG 1) of lines of `size` numbers that lie `step` apart, and their gradients. X, Y and OUT
// are element types, A the type computed in; VECTORS says that f32x16 may be used: along a line whose step is 1, or
// over lines that lie side by side.
#define LANES 16
#define TIE_(a, b) a##b
#define TIE(a, b) TIE_(a, b)
#define LOAD_X TIE(LOAD_, X)
#define LOAD_Y TIE(LOAD_, Y)
#define STORE_OUT TIE(STORE_, OUT)
#define VLOAD_X TIE(VECTOR_LOAD_, X)
#define VLOAD_Y TIE(VECTOR_LOAD_, Y)
#define VSTORE_OUT TIE(VECTOR_STORE_, OUT)

FUNCTION void softmax_line(GLOBAL const X* x, GLOBAL OUT* out, const i64 at, const i64 size, const i64 step) {
  A top = -INF_F;
  for (i64 j = 0; j < size; ++j) top = LOAD_X(x, at + j * step) > top ? LOAD_X(x, at + j * step) : top;
  A sum = 0;
  for (i64 j = 0; j < size; ++j) sum += m_exp(LOAD_X(x, at + j * step) - top);
  const A rest = LOG ? m_log(sum) : 1 / sum;
  for (i64 j = 0; j < size; ++j) {
    const A v = LOAD_X(x, at + j * step) - top;
    STORE_OUT(out, at + j * step, LOG ? v - rest : m_exp(v) * rest);
  }
}

// softmax: (g - sum(g y)) y; log-softmax: g - sum(g) exp(y)
FUNCTION void softmax_gradient_line(GLOBAL const X* g, GLOBAL const Y* y, GLOBAL OUT* out, const i64 at, const i64 size,
                                    const i64 step) {
  A sum = 0;
  for (i64 j = 0; j < size; ++j) sum += LOAD_X(g, at + j * step) * (LOG ? 1 : LOAD_Y(y, at + j * step));
  for (i64 j = 0; j < size; ++j) {
    const A gj = LOAD_X(g, at + j * step), yj = LOAD_Y(y, at + j * step);
    STORE_OUT(out, at + j * step, LOG ? gj - m_exp(yj) * sum : (gj - sum) * yj);
  }
}

#if VECTORS
FUNCTION void softmax_row(GLOBAL const X* x, GLOBAL OUT* out, const i64 at, const i64 size) {
  const i64 whole = size / LANES * LANES;
  f32x16 tops = SPLAT(-INF_F);
  for (i64 j = 0; j < whole; j += LANES) tops = v_max_of(VLOAD_X(x, at + j), tops);
  f32 top = v_max(tops);
  for (i64 j = whole; j < size; ++j) top = LOAD_X(x, at + j) > top ? LOAD_X(x, at + j) : top;
  f32x16 sums = SPLAT(0.0f), more = SPLAT(0.0f);
  i64 i = 0;
  for (; i + 2 * LANES <= whole; i += 2 * LANES) {
    sums += v_exp(VLOAD_X(x, at + i) - top);
    more += v_exp(VLOAD_X(x, at + i + LANES) - top);
  }
  for (; i < whole; i += LANES) sums += v_exp(VLOAD_X(x, at + i) - top);
  f32 sum = v_sum(sums + more);
  for (i64 j = whole; j < size; ++j) sum += m_exp(LOAD_X(x, at + j) - top);
  const f32 rest = LOG ? m_log(sum) : 1 / sum;
  for (i64 j = 0; j < whole; j += LANES) {
    const f32x16 v = VLOAD_X(x, at + j) - top;
    VSTORE_OUT(out, at + j, LOG ? v - rest : v_exp(v) * rest);
  }
  for (i64 j = whole; j < size; ++j) {
    const f32 v = LOAD_X(x, at + j) - top;
    STORE_OUT(out, at + j, LOG ? v - rest : m_exp(v) * rest);
  }
}

FUNCTION void softmax_gradient_row(GLOBAL const X* g, GLOBAL const Y* y, GLOBAL OUT* out, const i64 at,
                                   const i64 size) {
  const i64 whole = size / LANES * LANES;
  f32x16 sums = SPLAT(0.0f);
  for (i64 j = 0; j < whole; j += LANES) {
    f32x16 term = VLOAD_X(g, at + j);  // no conditional expression: C99's compilers find its sides of different types
    if (!LOG) term *= VLOAD_Y(y, at + j);
    sums += term;
  }
  f32 sum = v_sum(sums);
  for (i64 j = whole; j < size; ++j) sum += LOAD_X(g, at + j) * (LOG ? 1 : LOAD_Y(y, at + j));
  for (i64 j = 0; j < whole; j += LANES) {
    const f32x16 gj = VLOAD_X(g, at + j), yj = VLOAD_Y(y, at + j);
    VSTORE_OUT(out, at + j, LOG ? gj - v_exp(yj) * sum : (gj - sum) * yj);
  }
  for (i64 j = whole; j < size; ++j) {
    const f32 gj = LOAD_X(g, at + j), yj = LOAD_Y(y, at + j);
    STORE_OUT(out, at + j, LOG ? gj - m_exp(yj) * sum : (gj - sum) * yj);
  }
}

// LANES lines that begin side by side.
FUNCTION void softmax_lines(GLOBAL const X* x, GLOBAL OUT* out, const i64 at, const i64 size, const i64 step) {
  f32x16 top = SPLAT(-INF_F), sum = SPLAT(0.0f);
  for (i64 j = 0; j < size; ++j) top = v_max_of(VLOAD_X(x, at + j * step), top);
  for (i64 j = 0; j < size; ++j) sum += v_exp(VLOAD_X(x, at + j * step) - top);
  f32x16 rest = SPLAT(1.0f) / sum;
  if (LOG) rest = v_log(sum);
  for (i64 j = 0; j < size; ++j) {
    const f32x16 v = VLOAD_X(x, at + j * step) - top;
    VSTORE_OUT(out, at + j * step, LOG ? v - rest : v_exp(v) * rest);
  }
}

FUNCTION void softmax_gradient_lines(GLOBAL const X* g, GLOBAL const Y* y, GLOBAL OUT* out, const i64 at,
                                     const i64 size, const i64 step) {
  f32x16 sum = SPLAT(0.0f);
  for (i64 j = 0; j < size; ++j) {
    f32x16 term = VLOAD_X(g, at + j * step);
    if (!LOG) term *= VLOAD_Y(y, at + j * step);
    sum += term;
  }
  for (i64 j = 0; j < size; ++j) {
    const f32x16 gj = VLOAD_X(g, at + j * step), yj = VLOAD_Y(y, at + j * step);
    VSTORE_OUT(out, at + j * step, LOG ? gj - v_exp(yj) * sum : (gj - sum) * yj);
  }
}
#endif
