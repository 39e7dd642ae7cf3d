// SPDX-License-Identifier: Apache-2.0
// The dialect in OpenCL C 1.2.
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
#endif
#define BITS_f32(x) as_float((u32)(x))
#define FLOAT_OF_BITS(x) as_float(x)
#define BITS_OF_FLOAT(x) as_uint(x)
#define LOAD_f16(p, i) vload_half((i), (GLOBAL const half*)(p))
#define STORE_f16(p, i, v) vstore_half_rte((f32)(v), (i), (GLOBAL half*)(p))
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
typedef double8 f64x8;
typedef double4 f64x4;
#define VLOAD_f64x8(p) vload8(0, p)
#define VLOAD_f64x4(p) vload4(0, p)
#define VSTORE_f64x8(v, p) vstore8(v, 0, p)
#define VSTORE_f64x4(v, p) vstore4(v, 0, p)
#endif
