// SPDX-License-Identifier: Apache-2.0
// Complex arithmetic. A: complex numbers, vectors of two parts of type R; made with MAKE(re, im), taken apart with RE
// and IM. Sums and differences are those of vectors.
#define C(x) ((R)(x))
FUNCTION A c_mul(A a, A b) { return MAKE(RE(a) * RE(b) - IM(a) * IM(b), RE(a) * IM(b) + IM(a) * RE(b)); }
FUNCTION A c_conj(A z) { return MAKE(RE(z), -IM(z)); }
FUNCTION A c_scale(A z, R by) { return MAKE(RE(z) * by, IM(z) * by); }
FUNCTION A c_by_i(A z) { return MAKE(-IM(z), RE(z)); }
FUNCTION A c_by_minus_i(A z) { return MAKE(IM(z), -RE(z)); }
FUNCTION A c_div(A a, A b) {
  const R re = fabs(RE(b)), im = fabs(IM(b));
  if (re >= im) {
    if (re == 0 && im == 0) return MAKE(RE(a) / re, IM(a) / im);
    const R ratio = IM(b) / RE(b), scale = 1 / (RE(b) + IM(b) * ratio);
    return MAKE((RE(a) + IM(a) * ratio) * scale, (IM(a) - RE(a) * ratio) * scale);
  }
  const R ratio = RE(b) / IM(b), scale = 1 / (RE(b) * ratio + IM(b));
  return MAKE((RE(a) * ratio + IM(a)) * scale, (IM(a) * ratio - RE(a)) * scale);
}
FUNCTION int c_eq(A a, A b) { return RE(a) == RE(b) && IM(a) == IM(b); }
FUNCTION int c_true(A z) { return RE(z) != 0 || IM(z) != 0; }
FUNCTION int c_nan(A z) { return RE(z) != RE(z) || IM(z) != IM(z); }
FUNCTION R c_abs(A z) { return hypot(RE(z), IM(z)); }
FUNCTION R c_arg(A z) { return c_nan(z) ? NAN_F : atan2(IM(z), RE(z)); }
FUNCTION A c_sgn(A z) {
  const R size = c_abs(z);
  return size == 0 ? MAKE(0, 0) : MAKE(RE(z) / size, IM(z) / size);
}
FUNCTION A c_exp(A z) {
  const R size = exp(RE(z));
  if (IM(z) == 0) return MAKE(size, IM(z));
  return size == 0 ? MAKE(0, 0) : MAKE(size * cos(IM(z)), size * sin(IM(z)));
}
FUNCTION A c_expm1(A z) {
  const R half_sine = sin(IM(z) / 2), less = expm1(RE(z));
  return MAKE(less * cos(IM(z)) - 2 * half_sine * half_sine, (less + 1) * sin(IM(z)));
}
FUNCTION A c_log(A z) {
  const R re = fabs(RE(z)), im = fabs(IM(z)), large = re > im ? re : im, small = re > im ? im : re,
          size = hypot(re, im);
  const int near_one = size > C(0.5) && size < 2;
  return MAKE(near_one ? log1p((large - 1) * (large + 1) + small * small) / 2 : log(size), c_arg(z));
}
FUNCTION A c_log1p(A z) {
  const R re = RE(z), im = IM(z);
  if (fabs(re) > C(0.5) || fabs(im) > C(0.5)) return c_log(MAKE(re + 1, im));
  return MAKE(log1p(re * (2 + re) + im * im) / 2, atan2(im, 1 + re));
}
FUNCTION A c_sqrt(A z) {
  if (isinf(IM(z))) return MAKE(INF_F, IM(z));
  if (RE(z) == 0 && IM(z) == 0) return MAKE(0, IM(z));
  const R re = fabs(RE(z)),
          s = re > C(1e30) ? 2 * sqrt(hypot(re / 4, IM(z) / 4) / 2 + re / 8) : sqrt((hypot(re, IM(z)) + re) / 2);
  if (RE(z) >= 0) return MAKE(s, IM(z) / (2 * s));
  return MAKE(fabs(IM(z)) / (2 * s), copysign(s, IM(z)));
}
FUNCTION A c_reciprocal(A z) { return c_div(MAKE(1, 0), z); }
FUNCTION A c_sin(A z) { return MAKE(sin(RE(z)) * cosh(IM(z)), cos(RE(z)) * sinh(IM(z))); }
FUNCTION A c_cos(A z) { return MAKE(cos(RE(z)) * cosh(IM(z)), -sin(RE(z)) * sinh(IM(z))); }
FUNCTION A c_sinh(A z) { return MAKE(sinh(RE(z)) * cos(IM(z)), cosh(RE(z)) * sin(IM(z))); }
FUNCTION A c_cosh(A z) { return MAKE(cosh(RE(z)) * cos(IM(z)), sinh(RE(z)) * sin(IM(z))); }
FUNCTION A c_tanh(A z) {
  if (fabs(RE(z)) > 20) {  // without the squares, which would overflow
    return MAKE(copysign(C(1), RE(z)), 4 * sin(IM(z)) * cos(IM(z)) * exp(-2 * fabs(RE(z))));
  }
  const R t = tan(IM(z)), s = sinh(RE(z)), beta = 1 + t * t, under = 1 + beta * s * s;
  return MAKE(beta * sqrt(1 + s * s) * s / under, t / under);
}
FUNCTION A c_tan(A z) {
  const A w = c_tanh(c_by_i(z));
  return c_by_minus_i(w);
}
// The inverse functions by Kahan's formulas, whose branch cuts lie where they should.
FUNCTION A c_asin(A z) {
  const A less = c_sqrt(MAKE(1 - RE(z), -IM(z))), more = c_sqrt(MAKE(1 + RE(z), IM(z)));
  const A product = c_mul(less, more), other = c_mul(c_conj(less), more);
  return MAKE(atan2(RE(z), RE(product)), asinh(IM(other)));
}
FUNCTION A c_acos(A z) {
  const A less = c_sqrt(MAKE(1 - RE(z), -IM(z))), more = c_sqrt(MAKE(1 + RE(z), IM(z)));
  const A product = c_mul(c_conj(more), less);
  return MAKE(2 * atan2(RE(less), RE(more)), asinh(IM(product)));
}
FUNCTION A c_acosh(A z) {
  const A less = c_sqrt(MAKE(RE(z) - 1, IM(z))), more = c_sqrt(MAKE(RE(z) + 1, IM(z)));
  const A product = c_mul(c_conj(less), more);
  return MAKE(asinh(RE(product)), 2 * atan2(IM(less), RE(more)));
}
FUNCTION A c_asinh(A z) {
  const A w = c_asin(c_by_i(z));
  return c_by_minus_i(w);
}
FUNCTION A c_atanh(A z) {
  const R re = fabs(RE(z)), im = IM(z), far = log1p(4 * re / ((1 - re) * (1 - re) + im * im)) / 4;
  return MAKE(copysign(far, RE(z)), atan2(2 * im, (1 - re) * (1 + re) - im * im) / 2);
}
FUNCTION A c_atan(A z) {
  const A w = c_atanh(c_by_i(z));
  return c_by_minus_i(w);
}
FUNCTION A c_pow(A base, A exponent) {
  if (!c_true(exponent)) return MAKE(1, 0);
  if (!c_true(base)) {
    if (RE(exponent) > 0) return MAKE(0, 0);
    return MAKE(IM(exponent) == 0 ? INF_F : NAN_F, NAN_F);
  }
  if (IM(exponent) == 0) {
    const R n = RE(exponent);
    if (n == 1) return base;
    if (n == 2) return c_mul(base, base);
    if (n == 3) return c_mul(c_mul(base, base), base);
    if (n == C(0.5)) return c_sqrt(base);
    if (n == -1) return c_reciprocal(base);
  }
  return c_exp(c_mul(exponent, c_log(base)));
}
FUNCTION A c_sigmoid(A z) {
  const A e = c_exp(-z);
  return c_reciprocal(MAKE(1 + RE(e), IM(e)));
}
