// SPDX-License-Identifier: Apache-2.0
// The larger and the smaller of two values of type A; a NaN wins.
#ifdef FL_FLOATING
FUNCTION A max_of(A a, A b) { return a != a || a > b ? a : b; }
FUNCTION A min_of(A a, A b) { return a != a || a < b ? a : b; }
#else
FUNCTION A max_of(A a, A b) { return a > b ? a : b; }
FUNCTION A min_of(A a, A b) { return a < b ? a : b; }
#endif
