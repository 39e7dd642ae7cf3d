/* SPDX-License-Identifier: Apache-2.0
 *
 * simchip.h: the C API of libsimchip, a simulated NPU. It plays the part of a vendor's SDK: nothing here knows of
 * Torch-FL. C99; also compiles as C++.
 *
 * The chip executes "kernels", which are C functions, on streams. A stream has one worker thread (started with its
 * first command); commands of one stream run in order. In inline mode every command runs on the calling thread instead.
 *
 * Device addresses are BIASED: real pointer + a constant of the device that makes the address non-canonical, so a host
 * that dereferences one crashes at once. Kernels translate with simTranslate(). In host-coherent mode the bias is 0.
 *
 * Environment, read once by simInit() (other functions call it):
 *   SIMCHIP_DEVICES=2            number of devices (0 to 64)
 *   SIMCHIP_INLINE=1             commands run on the calling thread
 *   SIMCHIP_HOST_COHERENT=1      the host may address device memory
 *   SIMCHIP_MEMORY_MB=4096       memory of each device
 *   SIMCHIP_ALIGNMENT=64         bytes: alignment and granularity of allocations
 *   SIMCHIP_CHECK=1              check every range a kernel or copy touches, and red zones around allocations
 *   SIMCHIP_DTYPES=a,b           element types the arithmetic units have (names are the user's business)
 *   SIMCHIP_CONV_CHANNELS_LAST=1 convolutions take channels-last images only
 *   SIMCHIP_MATMUL_MULTIPLE=N    matrix sizes must be multiples of N
 *   SIMCHIP_CONV_STRIDES=1,2,4   convolutions take these strides only
 *   SIMCHIP_TRUSTING=1           the driver tells of none of these limits and checks none, as drivers do: the chip
 *                                aborts on a kernel that breaks one, or whose operands are not aligned
 *   SIMCHIP_HIDE_KERNELS=1       the chip pretends to have memory alone: no kernels and no compiler
 *   SIMCHIP_HIDE_KERNELS=2       ... no kernels, but a compiler
 *   SIMCHIP_HIDE_COMPILER=1      the chip pretends to have no compiler
 *   SIMCHIP_HIDE_PROFILER=1      the chip pretends to have no profiler
 *   SIMCHIP_CLOCK_DRIFT_PPM=N    the devices' clock runs faster than the host's by N millionths (negative: slower)
 *   SIMCHIP_CC="cc -m64"         the C compiler behind simModuleCompile(): a name or path, and its first arguments;
 *                                default: $CC, else the first of cc, gcc, clang on the PATH
 *   SIMCHIP_THREADS=2            threads that share a large kernel (at most 16; default: 2, or the one core there is)
 *   SIMCHIP_SLOW_STREAM_US=N     delay before each command of a worker
 *   SIMCHIP_SLOW_KERNEL=name[:p] that kernel takes p percent longer (default: 1), busy, wherever it runs
 *   SIMCHIP_FAIL_KERNEL=name[:n] the n-th launch (default: first) of that kernel fails
 *   SIMCHIP_LOSE_DEVICE=i[:n]    device i is lost at its launch number n (default 1), counted over its streams
 *   SIMCHIP_OOM_AFTER_MB=N       allocations fail beyond N MB per device, though more is reported
 *   SIMCHIP_FAIL_INIT=i          device i cannot be opened
 *   SIMCHIP_WRONG=name           kernels compute wrongly: a fault by its name (names are the user's business)
 *
 * Every function is thread-safe. Failures of kernels that run asynchronously are reported by the next launch or
 * synchronisation of their device. After fork() in a process that has a device open, the child can use none of it:
 * functions return SIM_ERROR_FORKED.
 */
#ifndef SIMCHIP_H_
#define SIMCHIP_H_

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define SIM_EXPORT __attribute__((visibility("default")))
#define SIM_VERSION "1.0"
#define SIM_MAX_DEVICES 64

typedef int32_t simResult;
enum {
  SIM_SUCCESS = 0,
  SIM_ERROR_INVALID_VALUE = 1,
  SIM_ERROR_OUT_OF_MEMORY = 2,
  SIM_ERROR_KERNEL_FAILED = 3,
  SIM_ERROR_DEVICE_LOST = 4,
  SIM_ERROR_NOT_READY = 5, /* queries only */
  SIM_ERROR_INIT_FAILED = 6,
  SIM_ERROR_FORKED = 7,
  SIM_ERROR_KERNEL_ARGUMENT = 8, /* a kernel met data that its operator does not allow */
  SIM_ERROR_KERNEL_RANGE = 9,    /* a kernel met an index outside its tensor */
  SIM_ERROR_SOURCE = 10,         /* source that does not compile; the text is the compiler's */
  SIM_ERROR_NO_COMPILER = 11,
  SIM_ERROR_COMPILER = 12, /* the compiler could not do its work: temporary files, a signal */
  SIM_ERROR_BINARY = 13    /* bytes that are no module for this CPU */
};

typedef uint64_t simAddress;

/* The head of a device, laid open so that kernels and launches cost no call. Read only. */
enum {
  SIM_MODE_QUEUED = 1u << 0,    /* commands go to worker threads */
  SIM_MODE_ATTENTION = 1u << 1, /* faults, limits or checks are on: use the functions, not the short cuts */
  SIM_MODE_PROFILING = 1u << 2  /* activities are kept: the same */
};
typedef struct simDeviceHead {
  uint64_t bias;
  uint32_t mode; /* SIM_MODE_*; may change at any time: read it with simMode() */
  uint32_t checked;
  int32_t index;
} simDeviceHead;
typedef simDeviceHead* simDevice;
typedef struct simStreamState* simStream; /* null: the device's default stream */
typedef struct simEventState* simEvent;

/* The text of the calling thread's last failure; "" if there was none. Valid until its next failure. */
SIM_EXPORT const char* simGetLastErrorString(void);

/* ---- Configuration and devices ---- */
typedef struct simLimits {
  int32_t devices;
  int32_t run_inline;
  int32_t host_coherent;
  int32_t checked;
  int32_t hide_kernels;
  int32_t hide_compiler;
  int32_t conv_channels_last;
  int32_t matmul_multiple; /* 0: any */
  uint64_t memory_bytes;
  uint64_t alignment;
  char dtypes[256]; /* "": all */
  int32_t trusting;
  char conv_strides[64]; /* "": all */
  int32_t hide_profiler;
} simLimits;
/* Reads the environment, once; starts nothing. */
SIM_EXPORT simResult simInit(void);
SIM_EXPORT const simLimits* simGetLimits(void);
SIM_EXPORT simResult simDeviceCount(int32_t* count);
SIM_EXPORT simResult simDeviceOpen(int32_t index, simDevice* device);
/* Waits for the device's work and stops its worker threads. It may be opened again. */
SIM_EXPORT simResult simDeviceClose(simDevice device);
SIM_EXPORT simResult simDeviceSynchronize(simDevice device);

/* ---- Memory ---- */
SIM_EXPORT simResult simMalloc(simDevice device, uint64_t bytes, simAddress* address);
SIM_EXPORT simResult simFree(simDevice device, simAddress address);
SIM_EXPORT simResult simHostAlloc(simDevice device, uint64_t bytes, void** pointer);
SIM_EXPORT simResult simHostFree(simDevice device, void* pointer);
SIM_EXPORT simResult simMemoryInfo(simDevice device, uint64_t* free_bytes, uint64_t* total_bytes);
enum { SIM_HOST_TO_DEVICE = 0, SIM_DEVICE_TO_HOST = 1, SIM_DEVICE_TO_DEVICE = 2 };
SIM_EXPORT simResult simMemcpyAsync(simDevice device, simStream stream, uint64_t dst, uint64_t src, uint64_t bytes,
                                    int32_t kind);
/* On a stream of the source device. */
SIM_EXPORT simResult simMemcpyPeerAsync(simDevice dst_device, simAddress dst, simDevice src_device, simAddress src,
                                        uint64_t bytes, simStream src_stream);
/* `count` repetitions of a pattern of 1, 2, 4, 8 or 16 bytes, read during the call. */
SIM_EXPORT simResult simMemsetAsync(simDevice device, simStream stream, simAddress dst, const void* pattern,
                                    uint32_t pattern_bytes, uint64_t count);

/* Host pointer of a device address: for kernels. */
static inline void* simTranslate(const simDeviceHead* device, simAddress address) {
  return address ? (void*)(uintptr_t)(address - device->bias) : NULL;
}
/* Aborts with a message unless [address, address + bytes) lies inside one live allocation. For SIMCHIP_CHECK. */
SIM_EXPORT void simCheckRange(const simDeviceHead* device, simAddress address, uint64_t bytes, const char* what);

/* ---- Streams and events ---- */
SIM_EXPORT simResult simStreamCreate(simDevice device, int32_t priority, simStream* stream);
SIM_EXPORT simResult simStreamDestroy(simDevice device, simStream stream); /* waits for its work */
SIM_EXPORT simResult simStreamSynchronize(simDevice device, simStream stream);
SIM_EXPORT simResult simStreamQuery(simDevice device, simStream stream);
SIM_EXPORT simResult simEventCreate(simDevice device, simEvent* event);
SIM_EXPORT simResult simEventDestroy(simEvent event);
SIM_EXPORT simResult simEventRecord(simDevice device, simEvent event, simStream stream);
SIM_EXPORT simResult simStreamWaitEvent(simDevice device, simStream stream, simEvent event);
SIM_EXPORT simResult simEventSynchronize(simEvent event);
SIM_EXPORT simResult simEventQuery(simEvent event);
SIM_EXPORT simResult simEventElapsed(simEvent start, simEvent end, int64_t* nanoseconds);

/* ---- Kernels ---- */
/* Runs on the chip. Returns SIM_SUCCESS, or one of SIM_ERROR_KERNEL_* after simKernelError(). */
typedef simResult (*simKernel)(simDevice device, void* packet);
/* Called by a kernel that fails: the text is copied. */
SIM_EXPORT void simKernelError(const char* message);

static inline uint32_t simMode(const simDeviceHead* device) { return __atomic_load_n(&device->mode, __ATOMIC_RELAXED); }
/* Launch with a packet that is copied. `name` must live as long as the process. */
SIM_EXPORT simResult simLaunch(simDevice device, simStream stream, const char* name, simKernel kernel,
                               const void* packet, size_t bytes);
/* The same without the copy: make a packet, fill it, submit it (which also takes it back if it fails). A packet is
 * aligned to 16 bytes. */
SIM_EXPORT void* simPacketCreate(size_t bytes);
SIM_EXPORT simResult simPacketSubmit(simDevice device, simStream stream, const char* name, simKernel kernel,
                                     void* packet);
/* Runs the kernel on the calling thread now, faults included. Only where SIM_MODE_QUEUED is off. */
SIM_EXPORT simResult simLaunchInline(simDevice device, const char* name, simKernel kernel, void* packet);

/* Runs task(context, i) for i in [0, count) on the calling thread and, when `operations` (multiply-adds or similar) is
 * large and the pool of threads is free, on others too; returns when all are done, with the number of threads it had.
 * A task must not throw. */
typedef void (*simTask)(const void* context, int64_t i);
SIM_EXPORT int32_t simParallelRun(int64_t count, double operations, simTask task, const void* context);
/* How many threads would share that much work: for choosing how to cut it. */
SIM_EXPORT int32_t simParallelWidth(double operations);

/* ---- Modules: kernels compiled from C source by the system's C compiler, as C99 with GNU's extensions ----
 * An entry has the type simEntry and runs the work items of a box, begin[d] <= id[d] < end[d] in three dimensions.
 * args[i] points to the i-th argument's value, an address being a pointer by then. A module runs on every device. */
typedef struct simModuleState* simModule;
typedef void (*simEntry)(void* const* args, const uint64_t* begin, const uint64_t* end);
enum { SIM_ARGUMENT_ADDRESS = 0, SIM_MAX_ARGUMENTS = 256, SIM_MAX_ARGUMENT_BYTES = 4096 };
/* One line that names the SDK, the compiler and the CPU: where it is the same, a saved module loads. */
SIM_EXPORT simResult simCompilerIdentity(char* text, uint64_t capacity);
/* `options` are arguments of the compiler, e.g. "-DN=4". No shell sees them. */
SIM_EXPORT simResult simModuleCompile(simDevice device, const char* source, const char* const* options,
                                      uint32_t n_options, simModule* module);
/* *bytes: in, what `binary` has room for; out, the size. With binary null only the size is told. */
SIM_EXPORT simResult simModuleSave(simModule module, void* binary, uint64_t* bytes);
/* SIM_ERROR_BINARY: damaged, or for another CPU or SDK. Needs no compiler. */
SIM_EXPORT simResult simModuleLoad(simDevice device, const void* binary, uint64_t bytes, simModule* module);
/* All its launches have completed. */
SIM_EXPORT simResult simModuleRelease(simModule module);
/* A launch like any other, of the kernel "module:<entry>". `args` are read during the call; sizes[i] is the bytes of
 * the value at args[i], or SIM_ARGUMENT_ADDRESS: a simAddress inside an allocation, or 0. Values are aligned to 8
 * bytes. A large range is cut into boxes over its slowest dimension, the last of more than one item. */
SIM_EXPORT simResult simModuleLaunch(simDevice device, simStream stream, simModule module, const char* entry,
                                     const uint64_t range[3], uint32_t n_args, const void* const* args,
                                     const uint32_t* sizes);

/* ---- Profiling: activities are kept while a device's profiler is started, at most 65536 that nobody has read ---- */
enum { SIM_ACTIVITY_KERNEL = 0, SIM_ACTIVITY_MEMCPY = 1, SIM_ACTIVITY_MEMSET = 2 };
typedef struct simActivity {
  int32_t kind;
  int32_t reserved;
  const char* name; /* lives as long as the process */
  simStream stream; /* null: the default stream */
  uint64_t correlation;
  int64_t start_ns, end_ns; /* in the device's clock */
  uint64_t bytes;           /* that a copy or fill writes */
} simActivity;
/* Of work launched from now on. Forgets what was kept. */
SIM_EXPORT simResult simProfilerStart(simDevice device);
SIM_EXPORT simResult simProfilerStop(simDevice device);
/* What the calling thread launches from now on carries this number. */
SIM_EXPORT void simProfilerSetCorrelation(uint64_t id);
/* Takes the oldest activities that have ended. *count: in, the room there is; out, how many came. *dropped (may be
 * null): how many found no room since it was last told. */
SIM_EXPORT simResult simProfilerRead(simDevice device, simActivity* activities, uint64_t* count, uint64_t* dropped);
/* The device's clock, and CLOCK_MONOTONIC at the same moment. */
SIM_EXPORT simResult simDeviceClock(simDevice device, int64_t* device_ns, int64_t* host_ns);

/* ---- Fault injection: what the environment does, at run time ---- */
/* The n-th launch from now of the kernel `name` fails, on any device. n >= 1; null name: no failure. */
SIM_EXPORT simResult simInjectKernelFailure(const char* name, int64_t n);
/* Device `index` is lost at its n-th launch from now; n = 0: at once. Lost is for ever. */
SIM_EXPORT simResult simInjectDeviceLoss(int32_t index, int64_t n);
/* Allocations beyond `bytes` in use fail on device `index`; 0: back to the whole memory. */
SIM_EXPORT simResult simInjectOutOfMemory(int32_t index, uint64_t bytes);
SIM_EXPORT simResult simInjectSlowStream(int64_t microseconds);
/* Opening device `index` fails; -1: none. */
SIM_EXPORT simResult simInjectInitFailure(int32_t index);
/* From now on kernels have the wrong result of that name; null or "": right results. */
SIM_EXPORT simResult simInjectWrongKernel(const char* name);
/* For kernels: the name in force, "" if none. Asked for only where SIM_MODE_ATTENTION is on. */
SIM_EXPORT void simWrongKernel(char* name, size_t capacity);

#ifdef __cplusplus
}
#endif
#endif /* SIMCHIP_H_ */
