// SPDX-License-Identifier: Apache-2.0
// Elementary functions for inner loops, for numbers (m_exp) and for vectors of them (v_exp): math_scalar.h and
// math_vector.h say which, and this text follows either. Those of f32 have no branches or calls, so that compilers
// vectorise loops over numbers too; their error is a few units in the last place. Coefficients: weighted minimax fits
// made for this project.
#ifdef FL_F32
FUNCTION F M(power_of_two)(I n) { return F_OF_BITS(U_OF_I(n + 127) << 23); }
// x = n ln(2) + rest. Adding and subtracting 1.5 * 2^23 rounds to an integer, which then sits in the low bits.
FUNCTION I M(reduce)(F x, F* rest) {
  const F shifted = x * 1.44269504f + 12582912.0f;
  const F whole = shifted - 12582912.0f;
  *rest = (x - whole * 0.693359375f) - whole * -2.12194440e-4f;
  return I_OF_U(BITS_OF_F(shifted)) - 0x4B400000;
}
// e^r - 1 for |r| <= ln(2)/2
FUNCTION F M(expm1_reduced)(F r) {
  F q = SPLAT(1.99079533e-04f);
  q = q * r + 1.39339023e-03f;
  q = q * r + 8.33328548e-03f;
  q = q * r + 4.16664626e-02f;
  q = q * r + 1.66666668e-01f;
  q = q * r + 0.5f;
  return r + r * r * q;
}
FUNCTION F M(exp)(F x) {
  F bounded = PICK(x > SPLAT(89.0f), SPLAT(89.0f), x);
  bounded = PICK(bounded < SPLAT(-104.0f), SPLAT(-104.0f), bounded);
  F rest;
  const I n = M(reduce)(bounded, &rest);
  const I half_n = n >> 1;  // 2^n in two steps: n may be 128, or that of a subnormal
  return (M(expm1_reduced)(rest) + 1.0f) * M(power_of_two)(half_n) * M(power_of_two)(n - half_n);
}
FUNCTION F M(expm1)(F x) {
  F bounded = PICK(x > SPLAT(89.0f), SPLAT(89.0f), x);
  bounded = PICK(bounded < SPLAT(-20.0f), SPLAT(-20.0f), bounded);
  F rest;
  const I n = M(reduce)(bounded, &rest);
  const F half_power = M(power_of_two)(n - 1);  // n may be 128
  const F value = (half_power * M(expm1_reduced)(rest) + (half_power - 0.5f)) * 2.0f;
  return PICK(MAGNITUDE(x) < SPLAT(1e-7f), x, value);
}
FUNCTION F M(log)(F x) {
  const F scaled = PICK(x < SPLAT(1.17549435e-38f), x * 8388608.0f, x);
  const I bits = I_OF_U(BITS_OF_F(scaled));
  const I n = (bits - 0x3F3504F3) >> 23;  // so that the mantissa lies in [sqrt(1/2), sqrt(2))
  const F f = F_OF_BITS(U_OF_I(bits) - (U_OF_I(n) << 23)) - 1.0f;
  const F e = F_OF_I(n) - PICK(x < SPLAT(1.17549435e-38f), SPLAT(23.0f), SPLAT(0.0f));
  F q = SPLAT(6.91910e-02f);
  q = q * f - 1.17814760e-01f;
  q = q * f + 1.18665e-01f;
  q = q * f - 1.23855440e-01f;
  q = q * f + 1.42198300e-01f;
  q = q * f - 1.66692080e-01f;
  q = q * f + 2.00021560e-01f;
  q = q * f - 2.49999870e-01f;
  q = q * f + 3.33333120e-01f;
  const F square = f * f;
  F value = f * square * q + e * -2.12194440e-4f;
  value = (f + (value - 0.5f * square)) + e * 0.693359375f;
  value = PICK(x == SPLAT(INF_F), SPLAT(INF_F), value);
  value = PICK(x == SPLAT(0.0f), SPLAT(-INF_F), value);
  return PICK(x >= SPLAT(0.0f), value, SPLAT(NAN_F));
}
FUNCTION F M(log1p)(F x) {
  const F u = x + 1.0f;
  const F plain = M(log)(u);
  const F corrected = plain - ((u - 1.0f) - x) / u;
  const F value = PICK(u == SPLAT(1.0f), x, corrected);
  return PICK((u == SPLAT(0.0f)) | (u > SPLAT(3e38f)) | (u != u), plain, value);
}
FUNCTION F M(tanh)(F x) {
  const F magnitude = MAGNITUDE(x);
  const F bounded = PICK(magnitude > SPLAT(10.0f), SPLAT(10.0f), magnitude);
  const F e = M(expm1)(bounded * -2.0f);
  return PICK(x != x, x, WITH_SIGN(-e / (e + 2.0f), x));
}
// x P(x^2) / Q(x^2), relative error of the fit 1.4e-8 up to where erf rounds to 1
FUNCTION F M(erf)(F x) {
  F a = PICK(x > SPLAT(3.8325f), SPLAT(3.8325f), x);
  a = PICK(a < SPLAT(-3.8325f), SPLAT(-3.8325f), a);
  const F square = a * a;
  F p = SPLAT(2.123129459e-06f);
  p = p * square + 2.859441820e-04f;
  p = p * square + 3.652787495e-03f;
  p = p * square + 5.241863747e-02f;
  p = p * square + 1.873090821e-01f;
  p = p * square + 1.128379152e+00f;
  F q = SPLAT(3.889830102e-05f);
  q = q * square + 1.141715734e-03f;
  q = q * square + 1.474256524e-02f;
  q = q * square + 1.129008178e-01f;
  q = q * square + 4.993312557e-01f;
  q = q * square + 1.0f;
  F value = a * p / q;
  value = PICK(value > SPLAT(1.0f), SPLAT(1.0f), value);
  return PICK(value < SPLAT(-1.0f), SPLAT(-1.0f), value);
}
#else
#define m_exp exp
#define m_expm1 expm1
#define m_log log
#define m_log1p log1p
#define m_tanh tanh
#define m_erf erf
#endif
