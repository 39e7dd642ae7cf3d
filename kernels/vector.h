// SPDX-License-Identifier: Apache-2.0
// Vectors of VECTOR_WIDTH numbers in f32, from and to any type that is computed in f32: VECTOR_LOAD_<type>(p, i),
// VECTOR_STORE_<type>(p, i, v). Compilers that vectorise no loops by themselves still keep these in wide registers.
#define VECTOR_WIDTH 16
FUNCTION u32x16 v_bf16_of(f32x16 value) {
  const u32x16 word = VECTOR_AS_U32(value);
  const u32x16 rounded = (word + 0x7fffu + ((word >> 16) & 1u)) >> 16;
  return VECTOR_AS_U32(VECTOR_PICK(value != value, VECTOR_AS_F32(rounded * 0u + 0x7fc0u), VECTOR_AS_F32(rounded)));
}
FUNCTION f32x16 v_max_of(f32x16 a, f32x16 b) { return VECTOR_PICK((a != a) | (a > b), a, b); }
FUNCTION f32x16 v_min_of(f32x16 a, f32x16 b) { return VECTOR_PICK((a != a) | (a < b), a, b); }
// Of the numbers of one vector.
FUNCTION f32 v_sum(f32x16 v) {
  v += VECTOR_SWAP_8(v);
  v += VECTOR_SWAP_4(v);
  v += VECTOR_SWAP_2(v);
  v += VECTOR_SWAP_1(v);
  return VECTOR_FIRST(v);
}
FUNCTION f32 v_max(f32x16 v) {
  v = v_max_of(v, VECTOR_SWAP_8(v));
  v = v_max_of(v, VECTOR_SWAP_4(v));
  v = v_max_of(v, VECTOR_SWAP_2(v));
  v = v_max_of(v, VECTOR_SWAP_1(v));
  return VECTOR_FIRST(v);
}
