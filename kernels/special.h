// SPDX-License-Identifier: Apache-2.0
// Special functions by series, continued fractions, recurrences and quadrature whose terms do not cancel: no tables of
// coefficients. W: the widest floating-point type that the device has; narrower results are rounded from it.
#ifdef FL_F64
typedef f64 W;
#define W_EPSILON 1e-17
#define AIRY_SERIES -7
#else
typedef f32 W;
#define W_EPSILON 1e-8f
#define AIRY_SERIES -4
#endif
#define K(x) ((W)(x))
#define PI_W K(3.14159265358979323846)
#define EULER K(0.57721566490153286061)
#define INF_W K(INF_F)
#define NAN_W K(NAN_F)

// ---- Modified Bessel functions of orders 0 and 1 ----
FUNCTION W bessel_i_series(W x, int order) {
  const W q = x * x / 4;
  W term = 1, sum = 1;
  for (int k = 1; k < 200 && term > sum * W_EPSILON; ++k) {
    term *= q / (K(k) * K(k + order));
    sum += term;
  }
  return order == 0 ? sum : sum * x / 2;
}
// The sums of Hankel's expansion for large x, mu = 4 order^2, up to the smallest term: even terms, odd terms. `sign`:
// how even and odd terms alternate, each by itself.
FUNCTION void hankel(W x, W mu, int sign, W* even, W* odd) {
  W term = 1;
  *even = 1;
  *odd = 0;
  for (int k = 1; k < 60; ++k) {
    const W step = (mu - K(2 * k - 1) * K(2 * k - 1)) / (8 * K(k) * x);
    term *= step;
    if (!(fabs(step) < 1) || fabs(term) < W_EPSILON) break;
    const W signed_term = (k & 2) != 0 ? sign * term : term;
    if ((k & 1) != 0) {
      *odd += signed_term;
    } else {
      *even += signed_term;
    }
  }
}
// e^-x I(x) for x >= 0
FUNCTION W bessel_i_scaled(W x, int order) {
  if (x <= 20) return exp(-x) * bessel_i_series(x, order);
  W even, odd;
  hankel(x, K(4 * order), 1, &even, &odd);
  return (even - odd) / sqrt(2 * PI_W * x);
}
FUNCTION W bessel_i(W x, int order) {
  const W a = fabs(x), value = a <= 20 ? bessel_i_series(a, order) : exp(a) * bessel_i_scaled(a, order);
  return order == 1 && x < 0 ? -value : value;
}
FUNCTION W bessel_ie(W x, int order) {
  const W value = bessel_i_scaled(fabs(x), order);
  return order == 1 && x < 0 ? -value : value;
}
// e^x K(x) by the trapezoidal rule, which for this integrand converges faster than any power of the step.
FUNCTION W bessel_k_quadrature(W x, W order) {
  const W by_width = K(0.6) / sqrt(x), h = by_width < K(0.22) ? by_width : K(0.22);
  W sum = K(0.5);
  for (int k = 1; k < 100; ++k) {
    const W t = K(k) * h, s = sinh(t / 2), term = exp(-2 * x * s * s) * cosh(order * t);
    sum += term;
    if (!(term > sum * W_EPSILON)) break;
  }
  return sum * h;
}
// K(x) for 0 < x < 1, by its series
FUNCTION W bessel_k_series(W x, int order) {
  const W q = x * x / 4, l = log(x / 2) + EULER;
  W term = 1, harmonic = 0, sum = 0;
  for (int k = 0; k < 30; ++k) {
    sum += order == 0 ? term * (harmonic - l) : term * (l - harmonic - 1 / K(2 * (k + 1)));
    harmonic += 1 / K(k + 1);
    term *= q / (K(k + 1) * K(k + 1 + order));
    if (term < W_EPSILON) break;
  }
  return order == 0 ? sum : 1 / x + sum * x / 2;
}
FUNCTION W bessel_k(W x, int order, int scaled) {
  if (x == 0) return INF_W;
  if (!(x > 0)) return NAN_W;
  if (x < 1) return bessel_k_series(x, order) * (scaled ? exp(x) : 1);
  return bessel_k_quadrature(x, K(order)) * (scaled ? 1 : exp(-x));
}

// ---- Bessel functions ----
// J (second = 0) or Y (second = 1) of order 0 or 1 for x > 0
FUNCTION W bessel_jy(W x, int order, int second) {
  if (x > 25) {
    W p, q;
    hankel(x, K(4 * order), -1, &p, &q);
    const W sine = sin(x), cosine = cos(x);
    const W along = order == 0 ? cosine + sine : sine - cosine, across = order == 0 ? sine - cosine : -sine - cosine;
    return (second ? p * across + q * along : p * along - q * across) / sqrt(PI_W * x);
  }
  const W l = second ? log(x / 2) + EULER : 0;
  if (x < K(1e-6)) {
    if (!second) return order == 0 ? 1 - x * x / 4 : x / 2;
    return 2 / PI_W * (order == 0 ? l : (l - K(0.5)) * x / 2 - 1 / x);
  }
  // Downwards by the recurrence, in which direction it is stable; the sum of the even ones gives the scale. Y:
  // Neumann's series in J.
  W above = 0, here = K(1e-20), even = 0, y0 = 0, y1 = 0;
  for (int n = 30 + 2 * (int)(x * K(0.7)); n > 0; --n) {
    const int k = n / 2;
    const W sign = (k & 1) != 0 ? -1 : 1;
    if ((n & 1) == 0) {
      even += here;
      y0 += sign * here / K(k);
    } else if (n > 1) {
      y1 += sign * here * K(n) / (K(k) * K(k + 1));
    }
    const W below = 2 * K(n) / x * here - above;
    above = here;
    here = below;
    if (fabs(here) > K(1e10)) {
      const W down = K(1e-10);
      here *= down;
      above *= down;
      even *= down;
      y0 *= down;
      y1 *= down;
    }
  }
  const W scale = 1 / (here + 2 * even);
  if (!second) return scale * (order == 0 ? here : above);
  return 2 * scale / PI_W * (order == 0 ? l * here - 2 * y0 : (l - 1) * above - here / x - y1);
}
FUNCTION W bessel_j(W x, int order) {
  if (isinf(x)) return 0;
  if (x == 0) return order == 0 ? 1 : 0;
  const W value = bessel_jy(fabs(x), order, 0);
  return order == 1 && x < 0 ? -value : value;
}
FUNCTION W bessel_y(W x, int order) {
  if (x == 0) return -INF_W;
  if (!(x > 0)) return NAN_W;
  return isinf(x) ? 0 : bessel_jy(x, order, 1);
}
FUNCTION W spherical_bessel(W x) {
  if (isinf(x)) return 0;
  if (fabs(x) >= K(0.5)) return sin(x) / x;
  const W q = x * x;
  return 1 - q / 6 * (1 - q / 20 * (1 - q / 42 * (1 - q / 72 * (1 - q / 110 * (1 - q / 156)))));
}
FUNCTION W airy(W x) {
  if (isinf(x)) return NAN_W;
  const W zeta = fabs(x) * sqrt(fabs(x)) * 2 / 3;
  if (x > 1) return sqrt(x / 3) / PI_W * exp(-zeta) * bessel_k_quadrature(zeta, K(1) / 3);
  if (x < AIRY_SERIES) {
    W p, q;
    hankel(zeta, K(4) / 9, -1, &p, &q);
    const W sine = sin(zeta), cosine = cos(zeta);
    return ((cosine + sine) * p - (sine - cosine) * q) / sqrt(2 * PI_W * sqrt(-x));
  }
  const W cube = x * x * x;
  W f = 1, g = x, f_term = 1, g_term = x;
  for (int k = 0; k < 80; ++k) {
    f_term *= cube / (K(3 * k + 2) * K(3 * k + 3));
    g_term *= cube / (K(3 * k + 3) * K(3 * k + 4));
    f += f_term;
    g += g_term;
    if (fabs(f_term) + fabs(g_term) < W_EPSILON) break;
  }
  return K(0.355028053887817239260) * f - K(0.258819403792806798405) * g;
}

// ---- The error function's relatives ----
FUNCTION W erfcx_of(W x) {
  if (x < 2) return exp(x * x) * erfc(x);
  W fraction = x;
  for (int k = 60; k > 0; --k) fraction = x + K(k) / 2 / fraction;
  return K(0.56418958354775628695) / fraction;
}
// z >= 0 with erfc(z) = q, for 0 < q <= 1/2: Halley's iteration.
FUNCTION W inverse_erfc(W q) {
  const W l = -log(q);
  W z = sqrt(l - K(0.5) * log(PI_W * l));
  for (int k = 0; k < 4; ++k) {
    const W e = (q * exp(z * z) - erfcx_of(z)) * K(0.88622692545275801365);
    z -= e / (1 + z * e);
  }
  return z;
}
FUNCTION W erfinv_of(W y) {
  const W a = fabs(y);
  if (!(a <= 1)) return NAN_W;
  if (a == 1) return copysign(INF_W, y);
  if (a > K(0.5)) return copysign(inverse_erfc(1 - a), y);
  W z = y * K(0.88622692545275801365);
  for (int k = 0; k < 4; ++k) {
    const W e = (erf(z) - y) * K(0.88622692545275801365) * exp(z * z);
    z -= e / (1 + z * e);
  }
  return z;
}
FUNCTION W ndtri_of(W p) {
  if (!(p >= 0 && p <= 1)) return NAN_W;
  if (p == 0 || p == 1) return p == 0 ? -INF_W : INF_W;
  if (p < K(0.25)) return K(-1.41421356237309504880) * inverse_erfc(2 * p);
  return K(1.41421356237309504880) * erfinv_of(2 * p - 1);
}
FUNCTION W log_ndtr_of(W x) {
  const W t = x * K(0.70710678118654752440);
  return x < -1 ? log(erfcx_of(-t) / 2) - t * t : log1p(-erfc(t) / 2);
}
FUNCTION W entr_of(W x) { return x != x ? x : x > 0 ? -x * log(x) : x == 0 ? 0 : -INF_W; }

// ---- The gamma function's relatives ----
FUNCTION W digamma_of(W x) {
  if (x == 0) return copysign(INF_W, -x);
  W sum = 0;
  if (x < 0) {
    if (x == floor(x)) return NAN_W;
    sum = -PI_W / tan(PI_W * (x - trunc(x)));
    x = 1 - x;
  }
  for (; x < 10; x += 1) sum -= 1 / x;
  const W z = 1 / (x * x);
  const W tail =
      z * (K(1) / 12 -
           z * (K(1) / 120 - z * (K(1) / 252 - z * (K(1) / 240 - z * (K(1) / 132 - z * (K(691) / 32760 - z / 12))))));
  return sum + log(x) - K(0.5) / x - tail;
}
// Hurwitz' zeta for s > 1, q > 0: Euler and Maclaurin.
FUNCTION W zeta_positive(W s, W q) {
  const W c[8] = {K(8.3333333333333333e-02),  K(-1.3888888888888889e-03), K(3.3068783068783069e-05),
                  K(-8.2671957671957672e-07), K(2.0876756987868099e-08),  K(-5.2841901386874932e-10),
                  K(1.3382536530684679e-11),  K(-3.3896802963225829e-13)};
  W sum = 0;
  for (int k = 0; k < 10; ++k) sum += pow(q + k, -s);
  const W w = q + 10, last = pow(w, -s);
  if (last > 0) {
    sum += last * w / (s - 1) + last / 2;
    W factor = last * (s / w);
    for (int j = 0; j < 8; ++j) {
      sum += factor * c[j];
      factor *= ((s + 2 * j + 1) / w) * ((s + 2 * j + 2) / w);
    }
  }
  return sum;
}
FUNCTION W zeta_of(W s, W q) {
  if (s == 1) return INF_W;
  if (!(s > 1) || q != q || q == INF_W) return NAN_W;
  if (q > 0) return zeta_positive(s, q);
  if (q == floor(q)) return INF_W;
  if (s != floor(s)) return NAN_W;
  // Terms left of zero mirrored: a difference of two such functions. Of odd powers, large terms of both sides cancel.
  const W above = -q - floor(-q), right = zeta_positive(s, 1 - above), left = zeta_positive(s, above);
  const W beyond = zeta_positive(s, 1 - q);
  return fmod(s, K(2)) == 0 ? right + (left - beyond) : (right - left) + beyond;
}
// In the type of the elements, as the CPU does it: where the reflection's sine ought to be 0, its rounding decides.
FUNCTION A trigamma_of(A x) {
  A sum = 0, sign = 1;
  if (x < (A)0.5) {
    const A sine = sin((A)3.14159265358979323846 * x);
    sum = -(A)9.86960440108935861883 / (sine * sine);
    sign = -1;
    x = 1 - x;
  }
  for (int k = 0; k < 6; ++k, x += 1) sum += 1 / (x * x);
  const A z = 1 / (x * x);
  return sign * (sum + (1 + 1 / (2 * x) + z * ((A)1 / 6 - z * ((A)1 / 30 - z * ((A)1 / 42)))) / x);
}
// Factors in the type of the elements: where that cannot hold one, the CPU's result is not finite.
FUNCTION A polygamma_of(A n, A x) {
  if (n == 0) return (A)digamma_of(x);
  if (n == 1) return trigamma_of(x);
  const A factor = (A)exp(lgamma((W)n + 1)), zeta = (A)zeta_of((W)n + 1, x);
  return (fmod(n, (A)2) == 0 ? -1 : 1) * factor * zeta;
}
// m - log(1 + m)
FUNCTION W beyond_log1p(W m) {
  if (fabs(m) > K(0.25)) return m - log1p(m);
  W power = m * m, sum = power / 2;
  for (int k = 3; k < 40 && fabs(power) > W_EPSILON * sum; ++k) {
    power *= -m;
    sum += power / k;
  }
  return sum;
}
// The regularised incomplete gamma functions: lower, or upper.
FUNCTION W incomplete_gamma(W a, W x, int upper) {
  if (!(x >= 0 && a >= 0)) return NAN_W;
  if (a == 0) return x > 0 ? upper : NAN_W * (1 - upper) + NAN_W;
  if (x == 0) return upper;
  if (isinf(a)) return isinf(x) ? NAN_W : upper;
  if (isinf(x)) return 1 - upper;
  const W m = (x - a) / a, phi = beyond_log1p(m);
  if (a > K(2e5)) {  // the first terms of the uniform expansion
    const W eta = copysign(sqrt(2 * phi), m);
    const W r = exp(-a * phi) / sqrt(2 * PI_W * a) * (fabs(m) < K(1e-4) ? eta / 12 - K(1) / 3 : 1 / m - 1 / eta);
    return upper ? erfc(eta * sqrt(a / 2)) / 2 + r : erfc(-eta * sqrt(a / 2)) / 2 - r;
  }
  // x^a e^-x / gamma(a + 1); for larger a by Stirling's formula, with logarithms that do not cancel
  W front;
  if (a < 10) {
    front = exp(a * log(x) - x - lgamma(a + 1));
  } else {
    const W z = 1 / (a * a);
    front = exp(-a * phi - (K(1) / 12 - z * (K(1) / 360 - z * (K(1) / 1260 - z * (K(1) / 1680 - z / 1188)))) / a) /
            sqrt(2 * PI_W * a);
  }
  if (x <= K(1.1) || x < a + 1) {
    W term = 1, sum = 1;
    for (int k = 1; k < 8000 && term > sum * W_EPSILON; ++k) {
      term *= x / (a + k);
      sum += term;
    }
    return upper ? 1 - front * sum : front * sum;
  }
  W b = x + 1 - a, c = K(1e30), d = 1 / b, fraction = d;
  for (int k = 1; k < 8000; ++k) {
    const W by = -K(k) * (K(k) - a);
    b += 2;
    d = 1 / (by * d + b);
    c = b + by / c;
    const W change = c * d;
    fraction *= change;
    if (fabs(change - 1) < 10 * W_EPSILON) break;
  }
  return upper ? front * a * fraction : 1 - front * a * fraction;
}

// ---- Orthogonal polynomials, of degree n (cut to an integer) ----
// Kinds 1 to 4 are T, U, V, W. Within (-1, 1) by their angle, from a degree where that is shorter.
FUNCTION W chebyshev(int kind, W x, W degree) {
  const W n = trunc(degree), odd = fmod(n, K(2)) == 0 ? 0 : 1, sign = odd == 0 ? 1 : -1;
  if (!(n >= 0)) return 0;
  if (fabs(x) == 1) {
    if (kind == 1) return x > 0 ? 1 : sign;
    if (kind == 2) return x > 0 ? n + 1 : sign * (n + 1);
    if (kind == 3) return x > 0 ? 1 : sign * (2 * n + 1);
    return x > 0 ? 2 * n + 1 : sign;
  }
  if (n > (kind == 1 ? 6 : 8) && fabs(x) < 1) {
    const W angle = acos(x);
    if (kind == 1) return cos(n * angle);
    if (kind == 2) return sin((n + 1) * angle) / sin(angle);
    if (kind == 3) return cos((n + K(0.5)) * angle) / cos(angle / 2);
    return sin((n + K(0.5)) * angle) / sin(angle / 2);
  }
  if (n == 0) return 1;
  W before = 1, value = kind == 1 ? x : kind == 2 ? 2 * x : kind == 3 ? 2 * x - 1 : 2 * x + 1;
  for (W k = 1; k < n && value == value; k += 1) {
    const W next = 2 * x * value - before;
    before = value;
    value = next;
  }
  return value;
}
// Kinds: 0 Hermite H, 1 Hermite He, 2 Laguerre, 3 Legendre.
FUNCTION W polynomial(int kind, W x, W degree, W most) {
  const W n = trunc(degree);
  if (!(n >= 0)) return 0;
  if (kind == 2 && x == 0) return 1;
  if (kind == 3 && fabs(x) == 1) return x > 0 || fmod(n, K(2)) == 0 ? 1 : -1;
  if (n == 0) return 1;
  if (n > most) return NAN_W;
  W before = 1, value = kind == 0 ? 2 * x : kind == 2 ? 1 - x : x;
  for (W k = 1; k < n && value == value; k += 1) {
    const W next = kind == 0   ? 2 * (x * value - k * before)
                   : kind == 1 ? x * value - k * before
                   : kind == 2 ? ((2 * k + 1 - x) * value - k * before) / (k + 1)
                               : ((2 * k + 1) * x * value - k * before) / (k + 1);
    before = value;
    value = next;
  }
  return value;
}
