// SPDX-License-Identifier: Apache-2.0
// The dialect in OpenCL C 1.2.
#ifdef __clang__
#pragma clang diagnostic ignored "-Wpass-failed"  // not every VECTOR_LOOP can be
#pragma clang diagnostic ignored "-Wpsabi"        // wide vectors are passed inside a kernel only
#endif
#define GLOBAL __global
#define FUNCTION static inline
#define VECTOR_LOOP _Pragma("clang loop vectorize(assume_safety)")
typedef char i8;
typedef uchar u8, b8;
typedef short i16;
typedef ushort u16, f16, bf16;
typedef int i32;
typedef uint u32;
typedef long i64;
typedef ulong u64;
typedef float f32;
#ifdef FL_F64
#pragma OPENCL EXTENSION cl_khr_fp64 : enable
typedef double f64;
#define BITS_f64(x) as_double((u64)(x))
#define BITS_OF_DOUBLE(x) as_ulong(x)
#endif
#define BITS_f32(x) as_float((u32)(x))
#define FLOAT_OF_BITS(x) as_float(x)
#define BITS_OF_FLOAT(x) as_uint(x)
// By arithmetic on bits rather than vload_half, whose calls compilers do not vectorise.
FUNCTION f32 f32_of_f16(f16 half_bits) {
  const u32 bits = half_bits, exponent = bits & 0x7c00u, rest = bits & 0x7fffu;
  const u32 normal = (rest << 13) + (exponent == 0x7c00u ? 0x70000000u : 0x38000000u);
  const u32 subnormal = BITS_OF_FLOAT((f32)(i32)(rest) * 5.9604644775390625e-08f);
  return FLOAT_OF_BITS((exponent == 0 ? subnormal : normal) | (bits & 0x8000u) << 16);
}
// Nearest even. Adding 0.5 rounds a value below 2^-14 at the last place of the subnormal numbers.
FUNCTION f16 f16_of(f32 value) {
  const u32 bits = BITS_OF_FLOAT(value), rest = bits & 0x7fffffffu;
  const u32 normal = (rest - 0x38000000u + 0x0fffu + ((rest >> 13) & 1u)) >> 13;
  const u32 subnormal = BITS_OF_FLOAT(FLOAT_OF_BITS(rest < 0x38800000u ? rest : 0u) + 0.5f) - 0x3f000000u;
  const u32 finite = rest < 0x38800000u ? subnormal : normal;
  const u32 special = rest > 0x7f800000u ? 0x7e00u : 0x7c00u;
  return (f16)((rest >= 0x47800000u ? special : finite) | (bits >> 16 & 0x8000u));
}
#define LOAD_f16(p, i) f32_of_f16((p)[i])
#define STORE_f16(p, i, v) ((p)[i] = f16_of((f32)(v)))
typedef float2 c64;
#define MAKE_c64(re, im) ((c64)((f32)(re), (f32)(im)))
#define RE(z) ((z).x)
#define IM(z) ((z).y)
typedef float16 f32x16;
typedef float8 f32x8;
#define ZERO_f32x16 (float16)(0)
#define ZERO_f32x8 (float8)(0)
#define ZERO_f64x8 (double8)(0)
#define ZERO_f64x4 (double4)(0)
#define VLOAD_f32x16(p) vload16(0, p)
#define VLOAD_f32x8(p) vload8(0, p)
#define VSTORE_f32x16(v, p) vstore16(v, 0, p)
#define VSTORE_f32x8(v, p) vstore8(v, 0, p)
typedef int16 i32x16;
typedef uint16 u32x16;
#define VECTOR_FIRST(v) (v).s0
// Number by number, of which compilers make one shuffle: Oclgrind takes number 11 in the mask of a shuffle for none.
#define NUMBERS_OF(v, a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p)                                           \
  (float16)((v).s##a, (v).s##b, (v).s##c, (v).s##d, (v).s##e, (v).s##f, (v).s##g, (v).s##h, (v).s##i, (v).s##j, \
            (v).s##k, (v).s##l, (v).s##m, (v).s##n, (v).s##o, (v).s##p)
#define VECTOR_SWAP_8(v) NUMBERS_OF(v, 8, 9, a, b, c, d, e, f, 0, 1, 2, 3, 4, 5, 6, 7)
#define VECTOR_SWAP_4(v) NUMBERS_OF(v, 4, 5, 6, 7, 0, 1, 2, 3, c, d, e, f, 8, 9, a, b)
#define VECTOR_SWAP_2(v) NUMBERS_OF(v, 2, 3, 0, 1, 6, 7, 4, 5, a, b, 8, 9, e, f, c, d)
#define VECTOR_SWAP_1(v) NUMBERS_OF(v, 1, 0, 3, 2, 5, 4, 7, 6, 9, 8, b, a, d, c, f, e)
#define VECTOR_LOAD_bytes(p) vload16(0, (GLOBAL const u32*)(p))
#define VECTOR_STORE_bytes(p, v) vstore16(v, 0, (GLOBAL u32*)(p))
#define VECTOR_SPLAT(c) (float16)(c)
#define VECTOR_PICK(condition, a, b) ((condition) ? (a) : (b))
#define VECTOR_AS_F32(x) as_float16(x)
#define VECTOR_AS_I32(x) as_int16(x)
#define VECTOR_AS_U32(x) as_uint16(x)
#define VECTOR_TO_F32(x) convert_float16(x)
#define VECTOR_LOAD_f32(p, i) vload16(0, (p) + (i))
#define VECTOR_LOAD_f16(p, i) vload_half16(0, (GLOBAL const half*)(p) + (i))
#define VECTOR_LOAD_bf16(p, i) as_float16(convert_uint16(vload16(0, (p) + (i))) << 16)
#define VECTOR_STORE_f32(p, i, v) vstore16(v, 0, (p) + (i))
#define VECTOR_STORE_f16(p, i, v) vstore_half16_rte(v, 0, (GLOBAL half*)(p) + (i))
#define VECTOR_STORE_bf16(p, i, v) vstore16(convert_ushort16(v_bf16_of(v)), 0, (p) + (i))
#ifdef FL_F64
typedef double2 c128;
#define MAKE_c128(re, im) ((c128)((f64)(re), (f64)(im)))
typedef double8 f64x8;
typedef double4 f64x4;
#define VLOAD_f64x8(p) vload8(0, p)
#define VLOAD_f64x4(p) vload4(0, p)
#define VSTORE_f64x8(v, p) vstore8(v, 0, p)
#define VSTORE_f64x4(v, p) vstore4(v, 0, p)
#endif
