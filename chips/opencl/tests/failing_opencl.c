/* SPDX-License-Identifier: Apache-2.0
 *
 * An OpenCL loader that fails when told to: the real one, which this library is linked to, with some functions in
 * front. A test sets the code of the failure in `fail_<function>`; 0 is success. `waits` counts what the host waited
 * for.
 */
#include <dlfcn.h>
#include <stddef.h>
#include <stdint.h>

#define EXPORT __attribute__((visibility("default")))

EXPORT int32_t fail_clFinish, fail_event, fail_clCreateBuffer, fail_clCreateContext, fail_clEnqueueNDRangeKernel;
EXPORT int64_t waits;

static void* real(const char* name) { return dlsym(dlopen("libOpenCL.so.1", RTLD_NOW), name); }

EXPORT int32_t clFinish(void* queue) {
  int32_t (*function)(void*) = real("clFinish");
  __atomic_fetch_add(&waits, 1, __ATOMIC_RELAXED);
  const int32_t code = function(queue);
  return fail_clFinish != 0 ? fail_clFinish : code;
}

EXPORT int32_t clWaitForEvents(uint32_t n, void* const* list) {
  int32_t (*function)(uint32_t, void* const*) = real("clWaitForEvents");
  __atomic_fetch_add(&waits, 1, __ATOMIC_RELAXED);
  return function(n, list);
}

EXPORT void* clEnqueueMapBuffer(void* queue, void* buffer, uint32_t blocking, uint64_t flags, size_t offset,
                                size_t size, uint32_t n, void* const* list, void** event, int32_t* code) {
  void* (*function)(void*, void*, uint32_t, uint64_t, size_t, size_t, uint32_t, void* const*, void**, int32_t*) =
      real("clEnqueueMapBuffer");
  if (blocking) __atomic_fetch_add(&waits, 1, __ATOMIC_RELAXED);
  return function(queue, buffer, blocking, flags, offset, size, n, list, event, code);
}

EXPORT int32_t clEnqueueSVMMap(void* queue, uint32_t blocking, uint64_t flags, void* pointer, size_t size, uint32_t n,
                               void* const* list, void** event) {
  int32_t (*function)(void*, uint32_t, uint64_t, void*, size_t, uint32_t, void* const*, void**) =
      real("clEnqueueSVMMap");
  if (blocking) __atomic_fetch_add(&waits, 1, __ATOMIC_RELAXED);
  return function(queue, blocking, flags, pointer, size, n, list, event);
}

/* The status of every command. */
EXPORT int32_t clGetEventInfo(void* event, uint32_t what, size_t room, void* value, size_t* bytes) {
  int32_t (*function)(void*, uint32_t, size_t, void*, size_t*) = real("clGetEventInfo");
  const int32_t code = function(event, what, room, value, bytes);
  if (fail_event != 0 && what == 0x11D3) *(int32_t*)value = fail_event;
  return code;
}

EXPORT void* clCreateBuffer(void* context, uint64_t flags, size_t size, void* host, int32_t* code) {
  void* (*function)(void*, uint64_t, size_t, void*, int32_t*) = real("clCreateBuffer");
  if (fail_clCreateBuffer == 0) return function(context, flags, size, host, code);
  *code = fail_clCreateBuffer;
  return NULL;
}

/* The next one only. */
EXPORT void* clCreateContext(const intptr_t* properties, uint32_t n, void* const* devices, void* notify, void* data,
                             int32_t* code) {
  void* (*function)(const intptr_t*, uint32_t, void* const*, void*, void*, int32_t*) = real("clCreateContext");
  if (fail_clCreateContext == 0) return function(properties, n, devices, notify, data, code);
  *code = fail_clCreateContext;
  fail_clCreateContext = 0;
  return NULL;
}

EXPORT int32_t clEnqueueNDRangeKernel(void* queue, void* kernel, uint32_t dims, const size_t* offset,
                                      const size_t* global, const size_t* local, uint32_t n, void* const* list,
                                      void** event) {
  int32_t (*function)(void*, void*, uint32_t, const size_t*, const size_t*, const size_t*, uint32_t, void* const*,
                      void**) = real("clEnqueueNDRangeKernel");
  if (fail_clEnqueueNDRangeKernel != 0) return fail_clEnqueueNDRangeKernel;
  return function(queue, kernel, dims, offset, global, local, n, list, event);
}
