// SPDX-License-Identifier: Apache-2.0
// The dialect in C99 with GNU's extensions.
#include <math.h>
#include <stdint.h>
#include <tgmath.h>
#define GLOBAL
#define FUNCTION static inline
#define VECTOR_LOOP _Pragma("GCC ivdep")
typedef int8_t i8;
typedef uint8_t u8, b8;
typedef int16_t i16;
typedef uint16_t u16, bf16;
typedef _Float16 f16;
typedef int32_t i32;
typedef uint32_t u32;
typedef int64_t i64;
typedef uint64_t u64;
typedef float f32;
typedef double f64;
// The bits of one type as the other.
#define REINTERPRET(NAME, TO, FROM) \
  FUNCTION TO NAME(FROM x) {        \
    union {                         \
      FROM from;                    \
      TO to;                        \
    } u = {x};                      \
    return u.to;                    \
  }
REINTERPRET(FLOAT_OF_BITS, f32, u32)
REINTERPRET(BITS_OF_FLOAT, u32, f32)
REINTERPRET(BITS_f64, f64, u64)
REINTERPRET(BITS_OF_DOUBLE, u64, f64)
#define BITS_f32(x) FLOAT_OF_BITS((u32)(x))
#define LOAD_f16(p, i) ((f32)(p)[i])
#define STORE_f16(p, i, v) ((p)[i] = (f16)(v))
#define rsqrt(x) (1 / sqrt(x))
#define M_PI_F 3.14159265358979323846f
typedef f32 c64 __attribute__((vector_size(8), aligned(4), may_alias));
typedef f64 c128 __attribute__((vector_size(16), aligned(8), may_alias));
#define MAKE_c64(re, im) ((c64){(f32)(re), (f32)(im)})
#define MAKE_c128(re, im) ((c128){(f64)(re), (f64)(im)})
#define RE(z) ((z)[0])
#define IM(z) ((z)[1])
typedef f32 f32x16 __attribute__((vector_size(64), aligned(4), may_alias));
typedef f32 f32x8 __attribute__((vector_size(32), aligned(4), may_alias));
typedef f64 f64x8 __attribute__((vector_size(64), aligned(8), may_alias));
typedef f64 f64x4 __attribute__((vector_size(32), aligned(8), may_alias));
typedef i32 i32x16 __attribute__((vector_size(64), aligned(4), may_alias));
typedef u32 u32x16 __attribute__((vector_size(64), aligned(4), may_alias));
typedef f16 f16x16 __attribute__((vector_size(32), aligned(2), may_alias));
typedef u16 u16x16 __attribute__((vector_size(32), aligned(2), may_alias));
#define VECTOR_FIRST(v) (v)[0]
#define VECTOR_SWAP_8(v) __builtin_shuffle(v, (i32x16){8, 9, 10, 11, 12, 13, 14, 15, 0, 1, 2, 3, 4, 5, 6, 7})
#define VECTOR_SWAP_4(v) __builtin_shuffle(v, (i32x16){4, 5, 6, 7, 0, 1, 2, 3, 12, 13, 14, 15, 8, 9, 10, 11})
#define VECTOR_SWAP_2(v) __builtin_shuffle(v, (i32x16){2, 3, 0, 1, 6, 7, 4, 5, 10, 11, 8, 9, 14, 15, 12, 13})
#define VECTOR_SWAP_1(v) __builtin_shuffle(v, (i32x16){1, 0, 3, 2, 5, 4, 7, 6, 9, 8, 11, 10, 13, 12, 15, 14})
#define VECTOR_LOAD_bytes(p) (*(const u32x16*)(p))
#define VECTOR_STORE_bytes(p, v) (*(u32x16*)(p) = (v))
#define VECTOR_SPLAT(c) ((f32x16){0} + (c))
#define VECTOR_PICK(condition, a, b) VECTOR_AS_F32(((condition) & (i32x16)(a)) | (~(condition) & (i32x16)(b)))
#define VECTOR_AS_F32(x) ((f32x16)(x))
#define VECTOR_AS_I32(x) ((i32x16)(x))
#define VECTOR_AS_U32(x) ((u32x16)(x))
#define VECTOR_TO_F32(x) __builtin_convertvector(x, f32x16)
#define VECTOR_LOAD_f32(p, i) (*(const f32x16*)((p) + (i)))
#define VECTOR_LOAD_f16(p, i) __builtin_convertvector(*(const f16x16*)((p) + (i)), f32x16)
#define VECTOR_LOAD_bf16(p, i) ((f32x16)(__builtin_convertvector(*(const u16x16*)((p) + (i)), u32x16) << 16))
#define VECTOR_STORE_f32(p, i, v) (*(f32x16*)((p) + (i)) = (v))
#define VECTOR_STORE_f16(p, i, v) (*(f16x16*)((p) + (i)) = __builtin_convertvector(v, f16x16))
#define VECTOR_STORE_bf16(p, i, v) (*(u16x16*)((p) + (i)) = __builtin_convertvector(v_bf16_of(v), u16x16))
#define ZERO_f32x16 {0}
#define ZERO_f32x8 {0}
#define ZERO_f64x8 {0}
#define ZERO_f64x4 {0}
#define VLOAD_f32x16(p) (*(const f32x16*)(p))
#define VLOAD_f32x8(p) (*(const f32x8*)(p))
#define VLOAD_f64x8(p) (*(const f64x8*)(p))
#define VLOAD_f64x4(p) (*(const f64x4*)(p))
#define VSTORE_f32x16(v, p) (*(f32x16*)(p) = (v))
#define VSTORE_f32x8(v, p) (*(f32x8*)(p) = (v))
#define VSTORE_f64x8(v, p) (*(f64x8*)(p) = (v))
#define VSTORE_f64x4(v, p) (*(f64x4*)(p) = (v))
