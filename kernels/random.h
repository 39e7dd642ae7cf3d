// SPDX-License-Identifier: Apache-2.0
// The numbers that the ABI prescribes (fl_plugin.h, "Random numbers"). Bit for bit: no multiply-add may fuse.
FUNCTION void philox(u64 seed, u64 counter, u32* word) {
  u32 c0 = (u32)counter, c1 = (u32)(counter >> 32), c2 = 0, c3 = 0;
  u32 k0 = (u32)seed, k1 = (u32)(seed >> 32);
  for (int round = 0; round < 10; ++round) {
    const u64 a = (u64)0xD2511F53u * c0, b = (u64)0xCD9E8D57u * c2;
    c0 = (u32)(b >> 32) ^ c1 ^ k0;
    c1 = (u32)b;
    c2 = (u32)(a >> 32) ^ c3 ^ k1;
    c3 = (u32)a;
    k0 += 0x9E3779B9u;
    k1 += 0xBB67AE85u;
  }
  word[0] = c0;
  word[1] = c1;
  word[2] = c2;
  word[3] = c3;
}
FUNCTION f32 unit_f32(u32 word) { return (f32)(word >> 8) * 5.9604644775390625e-08f; }
FUNCTION u64 wide_word(const u32* word, int k) { return word[2 * k] | (u64)word[2 * k + 1] << 32; }
#ifdef FL_F64
FUNCTION f64 unit_f64(u64 word) { return (f64)(word >> 11) * 1.1102230246251565e-16; }
#endif
// Horner's rule, from the highest power: z times what is so far, and the next coefficient 1 / n.
#define THEN(n) (sum = sum * z + (A)1 / (A)(n))
FUNCTION A log_of_unit(A x) {  // x in (0, 1]
#ifdef FL_F32
  const u32 at = BITS_OF_FLOAT(x) - 0x3f3504f3u;  // the distance from sqrt(1/2), whose exponent is now the power
  const i32 power = (i32)at >> 23;
  const A m = FLOAT_OF_BITS((at & 0x7fffffu) + 0x3f3504f3u);
#else
  const u64 at = BITS_OF_DOUBLE(x) - 0x3fe6a09e667f3bcdu;
  const i64 power = (i64)at >> 52;
  const A m = BITS_f64((at & 0xfffffffffffffu) + 0x3fe6a09e667f3bcdu);
#endif
  const A s = (m - 1) / (m + 1), z = s * s;
  A sum = 0;
#ifndef FL_F32
  THEN(21), THEN(19), THEN(17), THEN(15), THEN(13), THEN(11);
#endif
  THEN(9), THEN(7), THEN(5), THEN(3), THEN(1);
  return (A)power * (A)0.6931471805599453 + (2 * s) * sum;
}
// sine 0: cos(2 pi u), 1: sin(2 pi u), for u in [0, 1)
FUNCTION A circle(A u, int sine) {
  const int quarter = (int)(4 * u + (A)0.5);
  const A a = (A)6.283185307179586 * (u - (A)quarter * (A)0.25), z = a * a;
  A sum = 0;
  if ((quarter + sine) & 1) {
#ifndef FL_F32
    THEN(355687428096000), THEN(-1307674368000), THEN(6227020800), THEN(-39916800);
#endif
    THEN(362880), THEN(-5040), THEN(120), THEN(-6), THEN(1);
    sum = a * sum;
  } else {
#ifndef FL_F32
    THEN(20922789888000), THEN(-87178291200), THEN(479001600);
#endif
    THEN(-3628800), THEN(40320), THEN(-720), THEN(24), THEN(-2), THEN(1);
  }
  return ((quarter + (sine ? 0 : 1)) & 2) ? -sum : sum;
}
