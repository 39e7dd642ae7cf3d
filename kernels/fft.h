// SPDX-License-Identifier: Apache-2.0
// Parts of Fourier transforms of complex numbers A (see complex.h).

// e^(2 pi i k / n), 0 <= k < n. The angle is brought into an eighth of the circle while it is a fraction of integers.
FUNCTION A root_of_unity(i64 k, i64 n) {
  const i64 eighth = 8 * k / n, rest = 8 * k - eighth * n, along = (eighth & 1) != 0 ? n - rest : rest;
  const R angle = C(0.78539816339744830962) * ((R)along / (R)n), s = sin(angle), c = cos(angle);
  const int mirrored = ((eighth + 1) & 2) != 0;
  const R re = mirrored ? s : c, im = mirrored ? c : s;
  return MAKE(eighth >= 2 && eighth < 6 ? -re : re, eighth >= 4 ? -im : im);
}

#ifdef RADIX
// y[k] = w[k] * sum over i of x[i] e^(+-2 pi i i k / RADIX). The roots are those of a longer transform, `root_step`
// apart.
FUNCTION void butterfly(GLOBAL const A* x, i64 x_step, GLOBAL A* y, i64 y_step, const A* w, GLOBAL const A* roots,
                        i64 root_step) {
#if RADIX == 2
  const A a = x[0], b = x[x_step], d = a - b;
  y[0] = a + b;
  y[y_step] = c_mul(d, w[1]);
#elif RADIX == 4
  const A quarter = roots[root_step];  // i or -i
  const A a = x[0], b = x[x_step], c = x[2 * x_step], d = x[3 * x_step];
  const A ac = a + c, bd = b + d, a_c = a - c, b_d = b - d;
  const A turned = MAKE(-IM(quarter) * IM(b_d), IM(quarter) * RE(b_d)), y1 = a_c + turned, y2 = ac - bd,
          y3 = a_c - turned;
  y[0] = ac + bd;
  y[y_step] = c_mul(y1, w[1]);
  y[2 * y_step] = c_mul(y2, w[2]);
  y[3 * y_step] = c_mul(y3, w[3]);
#else
  A a[RADIX];
  for (int i = 0; i < RADIX; ++i) a[i] = x[i * x_step];
  for (int k = 0; k < RADIX; ++k) {
    A sum = a[0];
    int at = 0;
    for (int i = 1; i < RADIX; ++i) {
      at += k;
      at = at >= RADIX ? at - RADIX : at;
      sum += c_mul(a[i], roots[at * root_step]);
    }
    y[k * y_step] = k == 0 ? sum : c_mul(sum, w[k]);
  }
#endif
}
#endif
