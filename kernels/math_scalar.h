// SPDX-License-Identifier: Apache-2.0
// math.h of one number at a time.
#undef I  // of complex.h
#define M(name) m_##name
#define F f32
#define I i32
#define U u32
#define SPLAT(c) (c)
#define PICK(condition, a, b) ((condition) ? (a) : (b))
#define F_OF_BITS(x) FLOAT_OF_BITS(x)
#define BITS_OF_F(x) BITS_OF_FLOAT(x)
#define F_OF_I(x) ((f32)(x))
#define I_OF_U(x) ((i32)(x))
#define U_OF_I(x) ((u32)(x))
#define MAGNITUDE(x) fabs(x)
#define WITH_SIGN(x, of) copysign(x, of)
