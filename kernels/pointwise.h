// SPDX-License-Identifier: Apache-2.0
// Functions of element-wise expressions. A: the type computed in; FL_FLOATING: it is a floating-point one.
#define SIGN(x) ((A)(((x) > 0) - ((x) < 0)))
#define SQUARE(x) ((x) * (x))

#ifdef FL_FLOATING
#define C(x) ((A)(x))
FUNCTION A sigmoid(A x) { return 1 / (1 + m_exp(-x)); }
FUNCTION A softplus(A x) { return x > 0 ? x + m_log1p(m_exp(-x)) : m_log1p(m_exp(x)); }
FUNCTION A floor_division(A a, A b) {
  if (b == 0) return a / b;
  const A rest = fmod(a, b);
  A quotient = (a - rest) / b;
  if (rest != 0 && (b < 0) != (rest < 0)) quotient -= 1;
  if (quotient == 0) return copysign(C(0), a / b);
  const A low = floor(quotient);
  return quotient - low > C(0.5) ? low + 1 : low;
}
FUNCTION A remainder_of(A a, A b) {
  const A rest = fmod(a, b);
  return rest != 0 && (b < 0) != (rest < 0) ? rest + b : rest;
}
FUNCTION A log_add(A a, A b) {
  if (a == b && isinf(a)) return a;
  const A high = max_of(a, b);
  return high + m_log1p(m_exp(-fabs(a - b)));
}
FUNCTION A log_add_2(A a, A b) {
  if (a == b && isinf(a)) return a;
  const A high = max_of(a, b);
  return high + m_log1p(exp2(-fabs(a - b))) * C(1.4426950408889634);
}
FUNCTION A gelu(A x) { return x * C(0.5) * (1 + m_erf(x * C(0.7071067811865476))); }
FUNCTION A gelu_tanh(A x) { return C(0.5) * x * (1 + m_tanh(C(0.7978845608028654) * (x + C(0.044715) * x * x * x))); }
FUNCTION A gelu_gradient(A x) {
  const A density = m_exp(x * x * C(-0.5)) * C(0.3989422804014327);
  return C(0.5) * (1 + m_erf(x * C(0.7071067811865476))) + x * density;
}
FUNCTION A gelu_tanh_gradient(A x) {
  const A t = m_tanh(C(0.7978845608028654) * (x + C(0.044715) * x * x * x));
  return C(0.5) * (1 + t) + C(0.5) * x * (1 - t * t) * C(0.7978845608028654) * (1 + C(0.134145) * x * x);
}
FUNCTION A silu_gradient(A x) {
  const A s = sigmoid(x);
  return s * (1 + x * (1 - s));
}
FUNCTION A mish_gradient(A x) {
  const A t = m_tanh(softplus(x));
  return t + x * sigmoid(x) * (1 - t * t);
}
FUNCTION A round_to(A x, A decimals) {
  A power = 1;
  for (A k = fabs(decimals); k > 0 && power < C(1e38); k -= 1) power *= 10;
  return decimals < 0 ? rint(x / power) * power : rint(x * power) / power;
}
FUNCTION A clamped(A x, A low, A high) { return min_of(max_of(x, low), high); }
FUNCTION A logit(A x) { return m_log(x / (1 - x)); }
FUNCTION A logit_gradient(A grad, A x, A eps, int bounded) {
  if (bounded ? x < eps || x > 1 - eps : x < 0 || x > 1) return bounded ? 0 : NAN_F;
  return x == 0 || x == 1 ? grad * INF_F : grad / (x * (1 - x));
}
// x = mantissa * 2^exponent, 1/2 <= |mantissa| < 1
FUNCTION int exponent_of(A x) { return isfinite(x) && x != 0 ? ilogb(x) + 1 : 0; }
FUNCTION A mantissa_of(A x) { return ldexp(x, -exponent_of(x)); }
#else
// Of zero there is no quotient; kernels cannot raise, so it is -1 and the rest is all there was, as on GPUs. b + 1 == 0
// is -1 where there is one; the lowest number divided by it would trap.
FUNCTION A quotient_of(A a, A b) { return b == 0 ? (A)-1 : b + 1 == 0 ? (A)(0 - (u64)a) : (A)(a / b); }
FUNCTION A rest_of(A a, A b) { return b == 0 ? a : b + 1 == 0 ? 0 : (A)(a % b); }
FUNCTION A remainder_of(A a, A b) {
  const A rest = rest_of(a, b);
  return rest != 0 && b != 0 && (b < 0) != (rest < 0) ? (A)(rest + b) : rest;
}
FUNCTION A floor_division(A a, A b) {
  const A quotient = quotient_of(a, b), rest = rest_of(a, b);
  return rest != 0 && b != 0 && (b < 0) != (rest < 0) ? (A)(quotient - 1) : quotient;
}
FUNCTION A shifted_left(A a, A by) { return by < 0 || by >= 8 * (int)sizeof(A) ? 0 : (A)((u64)a << by); }
FUNCTION A shifted_right(A a, A by) { return by < 0 || by >= 8 * (int)sizeof(A) ? (a < 0 ? (A)-1 : 0) : (A)(a >> by); }
FUNCTION A power_of(A base, A exponent) {
  if (exponent < 0) return base == 1 ? 1 : base + 1 == 0 ? (exponent % 2 != 0 ? (A)-1 : 1) : 0;
  u64 result = 1, factor = (u64)base;
  for (u64 rest = (u64)exponent; rest != 0; rest >>= 1) {
    if (rest & 1) result *= factor;
    factor *= factor;
  }
  return (A)result;
}
FUNCTION A gcd_of(A a, A b) {
  while (a != 0) {
    const A rest = rest_of(b, a);
    b = a;
    a = rest;
  }
  return b < 0 ? (A)-b : b;
}
FUNCTION A lcm_of(A a, A b) {
  const A divisor = gcd_of(a, b);
  const A product = divisor == 0 ? 0 : (A)(quotient_of(a, divisor) * b);
  return product < 0 ? (A)-product : product;
}
#endif
