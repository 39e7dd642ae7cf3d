// SPDX-License-Identifier: Apache-2.0
// Elementary functions for inner loops. Those of f32 have no branches or calls, so that a compiler vectorises a loop
// over them; their error is about one unit in the last place. Coefficients: weighted minimax fits made for this
// project.
#ifdef FL_F32
FUNCTION f32 m_power_of_two(i32 n) { return FLOAT_OF_BITS((u32)(n + 127) << 23); }
// x = n ln(2) + rest. Adding and subtracting 1.5 * 2^23 rounds to an integer, which then sits in the low bits.
FUNCTION i32 m_reduce(f32 x, f32* rest) {
  const f32 shifted = x * 1.44269504f + 12582912.0f;
  const f32 whole = shifted - 12582912.0f;
  *rest = (x - whole * 0.693359375f) - whole * -2.12194440e-4f;
  return (i32)(BITS_OF_FLOAT(shifted) - BITS_OF_FLOAT(12582912.0f));
}
// e^r - 1 for |r| <= ln(2)/2
FUNCTION f32 m_expm1_reduced(f32 r) {
  f32 q = 1.99079533e-04f;
  q = q * r + 1.39339023e-03f;
  q = q * r + 8.33328548e-03f;
  q = q * r + 4.16664626e-02f;
  q = q * r + 1.66666668e-01f;
  q = q * r + 0.5f;
  return r + r * r * q;
}
FUNCTION f32 m_exp(f32 x) {
  f32 bounded = x > 89.0f ? 89.0f : x;
  bounded = bounded < -104.0f ? -104.0f : bounded;
  f32 rest;
  const i32 n = m_reduce(bounded, &rest);
  const i32 half_n = n >> 1;  // 2^n in two steps: n may be 128, or that of a subnormal
  return (1.0f + m_expm1_reduced(rest)) * m_power_of_two(half_n) * m_power_of_two(n - half_n);
}
FUNCTION f32 m_expm1(f32 x) {
  f32 bounded = x > 88.0f ? 88.0f : x;
  bounded = bounded < -20.0f ? -20.0f : bounded;
  f32 rest;
  const i32 n = m_reduce(bounded, &rest);
  const f32 half_power = m_power_of_two(n - 1);
  const f32 value = 2.0f * (half_power * m_expm1_reduced(rest) + (half_power - 0.5f));
  return x > 88.0f ? m_exp(x) : (fabs(x) < 1e-7f ? x : value);
}
FUNCTION f32 m_log(f32 x) {
  const int tiny = x < 1.17549435e-38f;
  const f32 scaled = tiny ? x * 8388608.0f : x;
  const i32 bits = (i32)BITS_OF_FLOAT(scaled);
  const i32 n = (bits - 0x3F3504F3) >> 23;  // so that the mantissa lies in [sqrt(1/2), sqrt(2))
  const f32 f = FLOAT_OF_BITS((u32)bits - ((u32)n << 23)) - 1.0f;
  const f32 e = (f32)n - (tiny ? 23.0f : 0.0f);
  f32 q = 6.91910e-02f;
  q = q * f - 1.17814760e-01f;
  q = q * f + 1.18665e-01f;
  q = q * f - 1.23855440e-01f;
  q = q * f + 1.42198300e-01f;
  q = q * f - 1.66692080e-01f;
  q = q * f + 2.00021560e-01f;
  q = q * f - 2.49999870e-01f;
  q = q * f + 3.33333120e-01f;
  const f32 square = f * f;
  f32 value = f * square * q + e * -2.12194440e-4f;
  value = (f + (value - 0.5f * square)) + e * 0.693359375f;
  value = x == INF_F ? INF_F : value;
  value = x == 0.0f ? -INF_F : value;
  return x >= 0.0f ? value : NAN_F;
}
FUNCTION f32 m_log1p(f32 x) {
  const f32 u = 1.0f + x;
  const f32 corrected = m_log(u) - ((u - 1.0f) - x) / u;
  const f32 value = u == 1.0f ? x : corrected;
  return u == 0.0f || u > 3e38f || u != u ? m_log(u) : value;
}
FUNCTION f32 m_tanh(f32 x) {
  const f32 magnitude = fabs(x);
  const f32 bounded = magnitude > 10.0f ? 10.0f : magnitude;
  const f32 e = m_expm1(-2.0f * bounded);
  const f32 value = copysign(-e / (e + 2.0f), x);
  return x != x ? x : value;
}
FUNCTION f32 m_erf(f32 x) {
  const f32 square = x * x;
  f32 small = 7.88911955e-05f;
  small = small * square - 8.02084128e-04f;
  small = small * square + 5.18953534e-03f;
  small = small * square - 2.68544446e-02f;
  small = small * square + 1.12836002e-01f;
  small = small * square - 3.76126271e-01f;
  small = small * square + 1.12837917e+00f;
  f32 a = fabs(x);
  a = a > 4.0f ? 4.0f : a;
  f32 log_erfc = 9.10539435e-08f;
  log_erfc = log_erfc * a - 2.29955843e-05f;
  log_erfc = log_erfc * a + 4.49398410e-04f;
  log_erfc = log_erfc * a - 4.23237016e-03f;
  log_erfc = log_erfc * a + 2.52670198e-02f;
  log_erfc = log_erfc * a - 1.08496509e-01f;
  log_erfc = log_erfc * a - 6.33156520e-01f;
  log_erfc = log_erfc * a - 1.12960733e+00f;
  log_erfc = log_erfc * a + 1.93706269e-04f;
  const f32 large = copysign(1.0f - m_exp(log_erfc), x);
  const f32 value = fabs(x) < 1.0f ? x * small : large;
  return x != x ? x : value;
}
#else
#define m_exp exp
#define m_expm1 expm1
#define m_log log
#define m_log1p log1p
#define m_tanh tanh
#define m_erf erf
#endif
