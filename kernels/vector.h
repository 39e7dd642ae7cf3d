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
FUNCTION f32 v_sum(f32x16 v) {
  f32 lane[VECTOR_WIDTH];
  VSTORE_f32x16(v, lane);
  for (int width = VECTOR_WIDTH / 2; width > 0; width /= 2) {
    for (int k = 0; k < width; ++k) lane[k] += lane[k + width];
  }
  return lane[0];
}
FUNCTION f32 v_max(f32x16 v) {
  f32 lane[VECTOR_WIDTH];
  VSTORE_f32x16(v, lane);
  f32 most = lane[0];
  for (int k = 1; k < VECTOR_WIDTH; ++k) most = most != most || most > lane[k] ? most : lane[k];
  return most;
}
