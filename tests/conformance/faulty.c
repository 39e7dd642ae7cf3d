/* SPDX-License-Identifier: Apache-2.0
 * A chip over the host's memory whose kernels break one rule each; relu breaks none. */
#define _POSIX_C_SOURCE 200112L
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "torch_fl/fl_plugin.h"

static const fl_host* host;
static void* at(fl_address address) { return (void*)(uintptr_t)address; }

static fl_status count(int32_t* number) {
  *number = 1;
  return FL_OK;
}
static fl_status properties(int32_t index, fl_device_properties* p) {
  (void)index;
  snprintf(p->name, sizeof p->name, "Faulty 1");
  snprintf(p->driver_version, sizeof p->driver_version, "7.3");
  p->total_memory = UINT64_C(1) << 30;
  return FL_OK;
}
static fl_status open_device(int32_t index, fl_device* device) {
  (void)index;
  *device = (fl_device)&host;
  return FL_OK;
}
static fl_status synchronize(fl_device device) {
  (void)device;
  return FL_OK;
}
static const fl_device_api device_api = {
    .struct_size = sizeof(fl_device_api),
    .count = count,
    .properties = properties,
    .open = open_device,
    .synchronize = synchronize,
};

static fl_status alloc(fl_device device, uint64_t bytes, fl_address* address) {
  void* block = NULL;
  (void)device;
  if (posix_memalign(&block, 64, bytes) != 0) return FL_OUT_OF_MEMORY;
  *address = (fl_address)(uintptr_t)block;
  return FL_OK;
}
static fl_status free_block(fl_device device, fl_address address) {
  (void)device;
  free(at(address));
  return FL_OK;
}
static fl_status copy(fl_device device, fl_stream stream, fl_address dst, fl_address src, uint64_t bytes,
                      fl_copy_kind kind) {
  (void)device, (void)stream, (void)kind;
  memmove(at(dst), at(src), bytes);
  return FL_OK;
}
static const fl_memory_api memory_api = {
    .struct_size = sizeof(fl_memory_api),
    .alloc = alloc,
    .free = free_block,
    .copy = copy,
};

typedef float (*function)(float);
static fl_status map(const fl_call* call, function f) {
  const float* x = at(call->args[0].u.tensor->address);
  float* y = at(call->outs[0]->address);
  for (int64_t i = 0; i < call->outs[0]->numel; i++) y[i] = f(x[i]);
  return FL_OK;
}
static float positive(float x) { return x < 0.0f ? 0.0f : x; }
static float coarse_cosine(float x) { return cosf(x) * 1.00005f; }
static float wrong_exponential(float x) { return expf(x) * 1.01f; }
static float infinite_tangent(float x) { return fabsf(x) > 2.9f ? INFINITY : tanhf(x); }

static fl_status relu(const fl_call* call) { return map(call, positive); }
static fl_status rough_cos(const fl_call* call) { return map(call, coarse_cosine); }
static fl_status wrong_exp(const fl_call* call) { return map(call, wrong_exponential); }
static fl_status wrong_tanh(const fl_call* call) { return map(call, infinite_tangent); }
static fl_status crashing_neg(const fl_call* call) {
  (void)call;
  *(volatile int*)(uintptr_t)8 = 1;
  return FL_OK;
}
static fl_status hanging_abs(const fl_call* call) {
  (void)call;
  for (volatile int run = 1; run;) {
  }
  return FL_OK;
}
static fl_status sqrt_too_far(const fl_call* call) {
  const fl_status status = map(call, sqrtf);
  float* y = at(call->outs[0]->address);
  y[call->outs[0]->numel] = 0.0f;
  return status;
}
static fl_status ceil_too_early(const fl_call* call) {
  const fl_status status = map(call, ceilf);
  float* y = at(call->outs[0]->address);
  y[-2] = 0.0f;
  return status;
}
static fl_status losing_floor(const fl_call* call) {
  (void)call;
  host->set_error(FL_DEVICE_LOST, "the chip fell off the bus");
  return FL_DEVICE_LOST;
}
static fl_status raising_sin(const fl_call* call) {
  (void)call;
  host->set_error(FL_INTERNAL, "no sine today");
  return FL_INTERNAL;
}
static fl_status greedy_erf(const fl_call* call) { /* writes to its input */
  float* x = at(call->args[0].u.tensor->address);
  const fl_status status = map(call, erff);
  if (call->args[0].u.tensor->numel > 0) x[0] += 1.0f;
  return status;
}

#define DENSE FL_KERNEL_CONTIGUOUS_INPUTS | FL_KERNEL_CONTIGUOUS_OUTPUTS
#define ROW(name, function) \
  {.struct_size = sizeof(fl_kernel), .flags = DENSE, .op = name, .run = function, .dtypes = FL_DTYPE_BIT(FL_FLOAT32)}
static const fl_kernel rows[] = {
    ROW("aten::relu", relu),         ROW("aten::cos", rough_cos),       ROW("aten::exp", wrong_exp),
    ROW("aten::tanh", wrong_tanh),   ROW("aten::neg", crashing_neg),    ROW("aten::abs", hanging_abs),
    ROW("aten::sqrt", sqrt_too_far), ROW("aten::ceil", ceil_too_early), ROW("aten::floor", losing_floor),
    ROW("aten::sin", raising_sin),   ROW("aten::erf", greedy_erf),      ROW("aten::_trilinear", relu),
};
enum { kRows = sizeof rows / sizeof rows[0] };
static const fl_kernel* kernels[kRows];

static const fl_plugin plugin = {
    .struct_size = sizeof(fl_plugin),
    .abi_major = FL_ABI_MAJOR,
    .abi_minor = FL_ABI_MINOR,
    .n_kernels = kRows,
    .name = "faulty",
    .vendor = "Torch-FL tests",
    .version = "0.4",
    .device = &device_api,
    .memory = &memory_api,
    .kernels = kernels,
};

FL_EXPORT const fl_plugin* fl_plugin_get(const fl_host* services) {
  host = services;
  for (int i = 0; i < kRows; i++) kernels[i] = &rows[i];
  return &plugin;
}
