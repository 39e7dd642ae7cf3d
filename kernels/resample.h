// SPDX-License-Identifier: Apache-2.0
// Resampling. Along each dimension, output o reads inputs starts[o] to starts[o] + k - 1 (those outside count as the
// nearest inside) with weights[j * out + o]; starts never decrease. NEAREST, NEAREST_EXACT, LINEAR or CUBIC, or
// ANTIALIAS with a FILTER(x).
#define AT(stride, n, c, z, y, x) \
  ((n) * stride[0] + (c) * stride[1] + (z) * stride[2] + (y) * stride[3] + (x) * stride[4])

FUNCTION i64 least(i64 a, i64 b) { return a < b ? a : b; }
FUNCTION i64 most(i64 a, i64 b) { return a > b ? a : b; }
FUNCTION i64 inside(i64 i, i64 size) { return i < 0 ? 0 : i < size ? i : size - 1; }
FUNCTION i32 inside_32(i32 i, i32 size) { return i < 0 ? 0 : i < size ? i : size - 1; }
FUNCTION A between_0_and_1(A x) { return x < 0 ? 0 : x > 1 ? 1 : x; }
FUNCTION A linear_filter(A x) { return fabs(x) < 1 ? 1 - fabs(x) : 0; }
FUNCTION A cubic_near(A x, A a) { return ((a + 2) * x - (a + 3)) * x * x + 1; }       // |x| <= 1
FUNCTION A cubic_far(A x, A a) { return ((a * x - 5 * a) * x + 8 * a) * x - 4 * a; }  // 1 <= |x| <= 2
FUNCTION A cubic_filter(A x) {
  const A d = fabs(x);
  return d < 1 ? cubic_near(d, (A)-0.5) : d < 2 ? cubic_far(d, (A)-0.5) : 0;
}
FUNCTION A sinc_of(A x) {
  const A angle = x * (A)3.14159265358979323846;
  return x == 0 ? 1 : sin(angle) / angle;
}
FUNCTION A lanczos_filter(A x) { return fabs(x) < 3 ? sinc_of(x) * sinc_of(x / 3) : 0; }

// Fills in the table for output o of one dimension.
FUNCTION void make_taps(GLOBAL i32* starts, GLOBAL A* weights, i64 o, i64 in, i64 out, i64 k, A scale, i64 corners) {
  const A middle = scale * ((A)o + (A)0.5) - (A)0.5;
  const A bounded = middle < 0 ? 0 : middle;
#if defined(ANTIALIAS)
  const A centre = scale * ((A)o + (A)0.5), stretch = scale >= 1 ? scale : 1, support = stretch * (A)HALF_WIDTH;
  const i64 first = most((i64)(centre - support + (A)0.5), 0);
  const i64 size = inside(least((i64)(centre + support + (A)0.5), in) - first, k + 1);
  A total = 0;
  for (i64 j = 0; j < size; ++j) {
    const A weight = FILTER(((A)(j + first) - centre + (A)0.5) / stretch);
    weights[j * out + o] = weight;
    total += weight;
  }
  for (i64 j = 0; j < size && total != 0; ++j) weights[j * out + o] /= total;
  for (i64 j = size; j < k; ++j) weights[j * out + o] = 0;
#elif defined(CUBIC)
  const A at = corners ? scale * (A)o : middle;
  const i64 whole = least((i64)floor(at), in - 1), first = whole - 1;
  const A t = between_0_and_1(at - (A)whole), a = (A)-0.75;
  weights[o] = cubic_far(t + 1, a);
  weights[out + o] = cubic_near(t, a);
  weights[2 * out + o] = cubic_near(1 - t, a);
  weights[3 * out + o] = cubic_far(2 - t, a);
#elif defined(LINEAR)
  const A at = corners ? scale * (A)o : bounded;
  const i64 first = least((i64)at, in - 1);
  const A t = between_0_and_1(at - (A)first);
  weights[o] = 1 - t;
  weights[out + o] = t;
#else
#ifdef NEAREST_EXACT
  const A at = bounded + (A)0.5;
#else
  const A at = scale * (A)o;
#endif
  const i64 first = least((i64)floor((f32)at), in - 1);
  weights[o] = 1;
#endif
  starts[o] = (i32)first;
}

// The first output whose start is not below `value`.
FUNCTION i64 first_from(GLOBAL const i32* starts, i64 out, i64 value) {
  i64 low = 0, high = out;
  while (low < high) {
    const i64 middle = (low + high) / 2;
    if (starts[middle] < value) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  return low;
}
// How much of input i output o has.
FUNCTION A share_of(GLOBAL const i32* starts, GLOBAL const A* weights, i64 o, i64 i, i64 in, i64 out, i64 k) {
  A sum = 0;
  for (i64 j = 0; j < k; ++j) sum += inside(starts[o] + j, in) == i ? weights[j * out + o] : 0;
  return sum;
}

// Of dimension d, with the names that the bodies have. FIRST and LAST: the outputs that read input i.
#define STARTS(d) (starts + p.starts[d])
#define WEIGHTS(d) (weights + p.weights[d])
#define SHARE(d, o, i) share_of(STARTS(d), WEIGHTS(d), o, i, p.in[d], p.out[d], K(d))
#define FIRST(d, i) first_from(STARTS(d), p.out[d], (i) - K(d) + 1)
#define BEYOND(d, i) ((i) == p.in[d] - 1 ? p.out[d] : first_from(STARTS(d), p.out[d], (i) + 1))
#ifdef ANTIALIAS  // a weight of 0 stands for no input
#define SKIP_ZERO(w, v) ((w) != 0 ? (w) * (v) : 0)
#else
#define SKIP_ZERO(w, v) ((w) * (v))
#endif
