/* SPDX-License-Identifier: Apache-2.0
 * A small synchronous-in-effect chip over the host's heap. Each macro breaks one rule of fl_plugin.h. */
#define _POSIX_C_SOURCE 200112L
#include <stdlib.h>
#include <string.h>

#ifdef FL_TEST_HEADER
#include FL_TEST_HEADER
#else
#include "torch_fl/fl_plugin.h"
#endif

#ifndef DEVICES
#define DEVICES 2
#endif
#define WILD(type) ((const type*)(uintptr_t)0x10) /* never mapped, aligned */

static const fl_host* host;

/* ---- device ---- */
static fl_status count(int32_t* n) {
#if defined(COUNT_FAILS)
  host->set_error(FL_INTERNAL, "the driver is asleep");
  return FL_INTERNAL;
#elif defined(DEVICE_MISSING)
  host->set_error(FL_UNSUPPORTED, "one more device is asleep");
  *n = 1;
#elif defined(DEVICES_MINUS)
  *n = -3;
#elif defined(DEVICES_65)
  *n = 65;
#elif defined(DEVICES_0)
  *n = 0;
#else
  *n = DEVICES;
#endif
  return FL_OK;
}

static fl_status properties(int32_t index, fl_device_properties* p) {
  fl_device_properties mine;
  size_t n = p->struct_size < sizeof mine ? p->struct_size : sizeof mine;
  const uint32_t declared = p->struct_size;
  (void)index;
#ifdef PROPERTIES_FAIL
  host->set_error(FL_INTERNAL, "no properties today");
  return FL_INTERNAL;
#endif
  memset(&mine, 0, sizeof mine);
  strcpy(mine.name, "Fake");
  strcpy(mine.driver_version, "1");
  mine.total_memory = 64 << 20;
#ifdef MEMORY_ZERO
  mine.total_memory = 0;
#endif
#ifdef ALIGNMENT_48
  mine.alignment = 48;
#endif
#ifdef DEVICE_NAME_ENDLESS
  memset(mine.name, 'x', sizeof mine.name);
#endif
  memcpy(p, &mine, n);
#ifdef PROPERTIES_OVERRUN
  memset((char*)p + sizeof mine, 'x', 64);
#endif
  p->struct_size = declared;
  return FL_OK;
}

static fl_status device_open(int32_t index, fl_device* device) {
  *device = (fl_device)(uintptr_t)(index + 1);
  return FL_OK;
}
static fl_status device_synchronize(fl_device device) {
  (void)device;
  return FL_OK;
}
static const fl_device_api device_api = {sizeof(fl_device_api), count, properties,
                                         device_open,           NULL,  device_synchronize};

/* ---- memory ---- */
static fl_status mem_alloc(fl_device device, uint64_t bytes, fl_address* address) {
  void* pointer = NULL;
  (void)device;
  if (posix_memalign(&pointer, 512, bytes) != 0) return FL_OUT_OF_MEMORY;
  *address = (fl_address)(uintptr_t)pointer;
  return FL_OK;
}
static fl_status mem_free(fl_device device, fl_address address) {
  (void)device;
  free((void*)(uintptr_t)address);
  return FL_OK;
}
static fl_status mem_copy(fl_device device, fl_stream stream, fl_address dst, fl_address src, uint64_t bytes,
                          fl_copy_kind kind) {
  (void)device, (void)stream, (void)kind;
  memcpy((void*)(uintptr_t)dst, (const void*)(uintptr_t)src, bytes);
  return FL_OK;
}
#ifdef HOST_FREE_MISSING
static fl_status host_alloc(fl_device device, uint64_t bytes, void** pointer) {
  (void)device;
  *pointer = malloc(bytes);
  return FL_OK;
}
#endif
static fl_memory_api memory_api = {
#if defined(MEMORY_SIZE_SMALL)
    24,
#elif defined(MEMORY_SIZE_HUGE)
    0xdeadbeef,
#else
    sizeof(fl_memory_api),
#endif
#ifdef MEMORY_ALLOC_NULL
    NULL,
#else
    mem_alloc,
#endif
    mem_free, mem_copy};

/* ---- streams ---- */
static fl_status stream_create(fl_device device, int32_t priority, fl_stream* stream) {
  static char streams[4096];
  static int next;
  (void)device, (void)priority;
  *stream = (fl_stream)&streams[next++ % (int)sizeof streams];
  return FL_OK;
}
static fl_status on_stream(fl_device device, fl_stream stream) {
  (void)device, (void)stream;
  return FL_OK;
}
static fl_status event_create(fl_device device, uint32_t flags, fl_event* event) {
  (void)device, (void)flags;
  *event = (fl_event)malloc(1);
  return FL_OK;
}
static fl_status event_destroy(fl_device device, fl_event event) {
  (void)device;
  free(event);
  return FL_OK;
}
static fl_status event_and_stream(fl_device device, fl_event event, fl_stream stream) {
  (void)device, (void)event, (void)stream;
  return FL_OK;
}
static fl_status on_event(fl_device device, fl_event event) {
  (void)device, (void)event;
  return FL_OK;
}
static fl_stream_api stream_api = {
#ifdef STREAM_SIZE_SMALL
    16,
#else
    sizeof(fl_stream_api),
#endif
    stream_create,
    on_stream,
    on_stream,
#ifdef STREAM_QUERY_NULL
    NULL,
#else
    on_stream,
#endif
    event_create,
    event_destroy,
    event_and_stream,
    event_and_stream,
    on_event,
    on_event};

/* ---- optional tables ---- */
#ifdef TUNING_HALF
static const fl_tuning_api tuning_api = {sizeof(fl_tuning_api)};
#endif
#ifdef COMPILER_HALF
static const fl_compiler_api compiler_api = {sizeof(fl_compiler_api), 0, "c99"};
#endif
#if defined(PROFILER) || defined(PROFILER_HALF) || defined(PROFILER_SIZE_SMALL)
#define HAS_PROFILER
static fl_status profile(fl_device device) {
  (void)device;
  return FL_OK;
}
static void set_correlation(uint64_t id) { (void)id; }
static fl_status flush(fl_device device, void (*sink)(void* context, const fl_profile_event* event), void* context) {
  (void)device;
  (void)sink;
  (void)context;
  return FL_OK;
}
static fl_status read_clock(fl_device device, int64_t* device_ns, int64_t* host_ns) {
  (void)device;
  *device_ns = *host_ns = 0;
  return FL_OK;
}
static const fl_profiler_api profiler_api = {
#ifdef PROFILER_SIZE_SMALL
    40,
#else
    sizeof(fl_profiler_api),
#endif
    profile,   profile, set_correlation,
#ifdef PROFILER_HALF
    NULL,
#else
    flush,
#endif
    read_clock};
#endif

/* ---- kernels ---- */
static fl_status run(const fl_call* call) {
  (void)call;
#ifdef KERNELS_DECLINE
  return FL_UNSUPPORTED;
#else
  return FL_OK;
#endif
}
static fl_status run_add(const fl_call* call) {
  if (call->n_args == 3) return run(call); /* self, other, alpha */
  host->set_error(FL_INTERNAL, "expected 3 arguments");
  return FL_INTERNAL;
}
#ifdef SUPPORTS_FAILS
static fl_status failing_supports(const fl_call* call) {
  (void)call;
  host->set_error(FL_INTERNAL, "supports() blew up");
  return FL_INTERNAL;
}
#endif
#ifdef KERNEL_OP_ENDLESS
static char endless[1024];
#endif
static fl_kernel relu = {sizeof(fl_kernel), FL_KERNEL_PROMOTE, "aten::relu", run};
static fl_kernel add = {sizeof(fl_kernel), FL_KERNEL_PROMOTE | FL_KERNEL_BROADCAST, "aten::add.Tensor", run_add};
static const fl_kernel* kernels[] = {&relu, &add};

static void break_kernels(void) {
#if defined(SUPPORTS_FAILS)
  relu.supports = failing_supports;
#elif defined(KERNEL_ROW_NULL)
  kernels[1] = NULL;
#elif defined(KERNEL_SIZE_SMALL)
  add.struct_size = 8;
#elif defined(KERNEL_RUN_NULL)
  add.run = NULL;
#elif defined(KERNEL_OP_NULL)
  add.op = NULL;
#elif defined(KERNEL_OP_BAD)
  add.op = "add.Tensor";
#elif defined(KERNEL_OP_ENDLESS)
  memset(endless, 'a', sizeof endless);
  add.op = endless;
#elif defined(KERNEL_TWICE)
  add.op = "aten::relu";
#elif defined(KERNEL_FLAGS)
  add.flags |= 1u << 30;
#endif
}

/* ---- the plugin ---- */
static fl_plugin plugin;

static void fill_plugin(void) {
  plugin.struct_size = sizeof plugin;
  plugin.abi_major = FL_ABI_MAJOR;
  plugin.abi_minor = FL_ABI_MINOR;
  plugin.name = CHIP;
  plugin.vendor = "Torch-FL tests";
  plugin.version = "1.2";
  plugin.device = &device_api;
  plugin.memory = &memory_api;
#ifndef NO_STREAMS
  plugin.stream = &stream_api;
#else
  (void)stream_api;
#endif
  plugin.kernels = kernels;
  plugin.n_kernels = 2;
#ifdef HAS_PROFILER
  plugin.profiler = &profiler_api;
#endif
}

static void break_plugin(void) {
#if defined(MAJOR_2)
  plugin.abi_major = 2;
#elif defined(PLUGIN_SIZE_SMALL)
  plugin.struct_size = 40;
#elif defined(PLUGIN_SIZE_HUGE)
  plugin.struct_size = 0x7fffffff;
#elif defined(MEMORY_NULL)
  plugin.memory = NULL;
#elif defined(MEMORY_WILD)
  plugin.memory = WILD(fl_memory_api);
#elif defined(HOST_FREE_MISSING)
  memory_api.host_alloc = host_alloc;
#elif defined(KERNELS_TOO_MANY)
  plugin.n_kernels = 100001;
#elif defined(KERNELS_WILD)
  plugin.kernels = WILD(fl_kernel* const);
#elif defined(NAME_BAD)
  plugin.name = "my chip/../x";
#elif defined(NAME_NULL)
  plugin.name = NULL;
#elif defined(NAME_EMPTY)
  plugin.name = "";
#elif defined(VENDOR_BINARY)
  plugin.vendor = "\xff\xfe";
#elif defined(TUNING_HALF)
  plugin.tuning = &tuning_api;
#elif defined(COMPILER_HALF)
  plugin.compiler = &compiler_api;
#endif
}

#ifdef NEEDS_GONE
int fl_test_not_a_plugin(void);
#endif

const fl_plugin* fl_plugin_get(const fl_host* given) {
  host = given;
#ifdef NEEDS_GONE
  plugin.n_kernels = (uint32_t)fl_test_not_a_plugin();
#endif
#if defined(NULL_WITH_MESSAGE)
  host->set_error(FL_UNSUPPORTED, "driver 3 or later expected, found 2");
  return NULL;
#elif defined(NULL_WITHOUT_MESSAGE)
  return NULL;
#elif defined(PLUGIN_POINTER_WILD)
  return WILD(fl_plugin);
#else
  fill_plugin();
  break_kernels();
  break_plugin();
  return &plugin;
#endif
}
