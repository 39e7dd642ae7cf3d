/* SPDX-License-Identifier: Apache-2.0
 *
 * An OpenCL loader around two faults in Oclgrind 21.10's record of what was written. It goes wrong where a larger
 * buffer gets an address that was used before, so buffers are never released; it misses most of a fill, so fills are
 * writes.
 */
#include <dlfcn.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define EXPORT __attribute__((visibility("default")))

EXPORT int32_t clReleaseMemObject(void* buffer) {
  (void)buffer;
  return 0;
}

EXPORT int32_t clEnqueueFillBuffer(void* queue, void* buffer, const void* pattern, size_t size, size_t offset,
                                   size_t bytes, uint32_t n, void* const* list, void** event) {
  int32_t (*write)(void*, void*, uint32_t, size_t, size_t, const void*, uint32_t, void* const*, void**) =
      dlsym(dlopen("libOpenCL.so.1", RTLD_NOW), "clEnqueueWriteBuffer");
  char* data = malloc(bytes);
  if (data == NULL) return -6;
  for (size_t at = 0; at < bytes; at += size) memcpy(data + at, pattern, size);
  const int32_t code = write(queue, buffer, 1, offset, bytes, data, n, list, event);
  free(data);
  return code;
}
