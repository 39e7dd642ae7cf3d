// SPDX-License-Identifier: Apache-2.0
// math.h of VECTOR_WIDTH numbers at a time.
#undef M
#undef F
#undef I
#undef U
#undef SPLAT
#undef PICK
#undef F_OF_BITS
#undef BITS_OF_F
#undef F_OF_I
#undef I_OF_U
#undef U_OF_I
#undef MAGNITUDE
#undef WITH_SIGN
#define M(name) v_##name
#define F f32x16
#define I i32x16
#define U u32x16
#define SPLAT(c) VECTOR_SPLAT(c)
#define PICK(condition, a, b) VECTOR_PICK(condition, a, b)
#define F_OF_BITS(x) VECTOR_AS_F32(x)
#define BITS_OF_F(x) VECTOR_AS_U32(x)
#define F_OF_I(x) VECTOR_TO_F32(x)
#define I_OF_U(x) VECTOR_AS_I32(x)
#define U_OF_I(x) VECTOR_AS_U32(x)
#define MAGNITUDE(x) F_OF_BITS(BITS_OF_F(x) & 0x7fffffffu)
#define WITH_SIGN(x, of) F_OF_BITS((BITS_OF_F(x) & 0x7fffffffu) | (BITS_OF_F(of) & 0x80000000u))
