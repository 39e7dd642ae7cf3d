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
