/* SPDX-License-Identifier: Apache-2.0
 * A vendor's plain library: memory of its own, and functions that compute. It counts what is called. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define PUBLIC __attribute__((visibility("default")))

PUBLIC int plain_calls, plain_inits, plain_syncs, plain_next_status;

static int status(void) {
  const int now = plain_next_status;
  plain_next_status = 0;
  return now;
}

PUBLIC int plain_count(void) { return 2; }
PUBLIC int plain_count_to(int* n) {
  *n = 3;
  return 0;
}
PUBLIC int plain_init(int device) {
  plain_inits += 1 + device;
  return status();
}
PUBLIC void* plain_malloc(size_t n) { return status() ? NULL : malloc(n); }
PUBLIC int plain_malloc_to(int device, void** p, size_t n) {
  *p = malloc(n);
  (void)device;
  return status();
}
PUBLIC void plain_free(void* p) { free(p); }
PUBLIC int plain_copy(void* dst, const void* src, size_t n, int kind) {
  memcpy(dst, src, n);
  return kind > 3 ? 1 : status();
}
PUBLIC int plain_sync(void) {
  plain_syncs++;
  return status();
}

/* y += a x */
PUBLIC int plain_axpy32(int n, float a, const float* x, float* y) {
  plain_calls++;
  for (int i = 0; i < n; ++i) y[i] += a * x[i];
  return status();
}
PUBLIC int plain_axpy64(int n, double a, const double* x, double* y) {
  plain_calls++;
  for (int i = 0; i < n; ++i) y[i] += a * x[i];
  return status();
}
PUBLIC float plain_total32(int n, const float* x) {
  float total = 0;
  for (int i = 0; i < n; ++i) total += x[i];
  return total;
}
PUBLIC int8_t plain_small(int8_t a, uint16_t b, _Bool c, const char* text) {
  return (int8_t)(a == -5 && b == 65535 && c && strcmp(text, "mean") == 0 ? 0 : -1);
}
