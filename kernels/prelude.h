// SPDX-License-Identifier: Apache-2.0
// After the prelude of either language: loads, stores and arithmetic with PyTorch's rules.
#define BITS_i64(x) ((i64)(x))
#define BITS_i32(x) ((i32)(x))
#define BITS_i16(x) ((i16)(x))
#define BITS_i8(x) ((i8)(x))
#define BITS_u8(x) ((u8)(x))
#define BITS_b8(x) ((b8)((x) != 0))

#define LOAD_u8(p, i) ((p)[i])
#define LOAD_i8(p, i) ((p)[i])
#define LOAD_i16(p, i) ((p)[i])
#define LOAD_i32(p, i) ((p)[i])
#define LOAD_i64(p, i) ((p)[i])
#define LOAD_b8(p, i) ((p)[i])
#define LOAD_f32(p, i) ((p)[i])
#define LOAD_f64(p, i) ((p)[i])
#define LOAD_bf16(p, i) FLOAT_OF_BITS((u32)((p)[i]) << 16)

#define STORE_u8(p, i, v) ((p)[i] = (u8)(v))
#define STORE_i8(p, i, v) ((p)[i] = (i8)(v))
#define STORE_i16(p, i, v) ((p)[i] = (i16)(v))
#define STORE_i32(p, i, v) ((p)[i] = (i32)(v))
#define STORE_i64(p, i, v) ((p)[i] = (i64)(v))
#define STORE_b8(p, i, v) ((p)[i] = (b8)((v) != 0))
#define STORE_f32(p, i, v) ((p)[i] = (f32)(v))
#define STORE_f64(p, i, v) ((p)[i] = (f64)(v))
#define LOAD_c64(p, i) ((p)[i])
#define LOAD_c128(p, i) ((p)[i])
#define STORE_c64(p, i, v) ((p)[i] = (v))
#define STORE_c128(p, i, v) ((p)[i] = (v))
#define STORE_bf16(p, i, v) ((p)[i] = bf16_of((f32)(v)))

// Nearest even; every NaN becomes the quiet one, as PyTorch does it.
FUNCTION bf16 bf16_of(f32 value) {
  const u32 word = BITS_OF_FLOAT(value);
  const u32 rounded = (word + 0x7fff + ((word >> 16) & 1)) >> 16;
  return (bf16)(value != value ? 0x7fc0 : rounded);
}
#define NAN_F FLOAT_OF_BITS(0x7fc00000u)
#define INF_F FLOAT_OF_BITS(0x7f800000u)

// Of `n` things, `chunk` for each work item: where the share of this one, which is called `item`, ends.
#define SHARE_END(chunk, n) ((item + 1) * (chunk) < (n) ? (item + 1) * (chunk) : (n))
