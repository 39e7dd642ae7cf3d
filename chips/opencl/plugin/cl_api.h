// SPDX-License-Identifier: Apache-2.0
// The part of the OpenCL C API that the plugin uses: types, constants, and a table of functions that is filled at run
// time. Declared here from the public specification, so that a build needs neither OpenCL's headers nor a loader.
#pragma once

#include <cstddef>
#include <cstdint>

namespace fl_opencl {

using cl_int = int32_t;
using cl_uint = uint32_t;
using cl_ulong = uint64_t;
using cl_bool = cl_uint;
using cl_bitfield = cl_ulong;
using cl_platform_id = struct cl_platform_*;
using cl_device_id = struct cl_device_*;
using cl_context = struct cl_context_*;
using cl_command_queue = struct cl_command_queue_*;
using cl_mem = struct cl_mem_*;
using cl_program = struct cl_program_*;
using cl_kernel = struct cl_kernel_*;
using cl_event = struct cl_event_*;
using cl_context_notify = void (*)(const char*, const void*, size_t, void*);
using cl_program_notify = void (*)(cl_program, void*);

enum : cl_int {
  CL_SUCCESS = 0,
  CL_DEVICE_NOT_FOUND = -1,
  CL_DEVICE_NOT_AVAILABLE = -2,
  CL_COMPILER_NOT_AVAILABLE = -3,
  CL_MEM_OBJECT_ALLOCATION_FAILURE = -4,
  CL_OUT_OF_RESOURCES = -5,
  CL_OUT_OF_HOST_MEMORY = -6,
  CL_PROFILING_INFO_NOT_AVAILABLE = -7,
  CL_MEM_COPY_OVERLAP = -8,
  CL_BUILD_PROGRAM_FAILURE = -11,
  CL_MAP_FAILURE = -12,
  CL_EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST = -14,
  CL_COMPILE_PROGRAM_FAILURE = -15,
  CL_LINK_PROGRAM_FAILURE = -17,
  CL_INVALID_VALUE = -30,
  CL_INVALID_PLATFORM = -32,
  CL_INVALID_DEVICE = -33,
  CL_INVALID_CONTEXT = -34,
  CL_INVALID_QUEUE_PROPERTIES = -35,
  CL_INVALID_COMMAND_QUEUE = -36,
  CL_INVALID_HOST_PTR = -37,
  CL_INVALID_MEM_OBJECT = -38,
  CL_INVALID_BINARY = -42,
  CL_INVALID_BUILD_OPTIONS = -43,
  CL_INVALID_PROGRAM = -44,
  CL_INVALID_PROGRAM_EXECUTABLE = -45,
  CL_INVALID_KERNEL_NAME = -46,
  CL_INVALID_KERNEL_DEFINITION = -47,
  CL_INVALID_KERNEL = -48,
  CL_INVALID_ARG_INDEX = -49,
  CL_INVALID_ARG_VALUE = -50,
  CL_INVALID_ARG_SIZE = -51,
  CL_INVALID_KERNEL_ARGS = -52,
  CL_INVALID_WORK_DIMENSION = -53,
  CL_INVALID_WORK_GROUP_SIZE = -54,
  CL_INVALID_WORK_ITEM_SIZE = -55,
  CL_INVALID_GLOBAL_OFFSET = -56,
  CL_INVALID_EVENT_WAIT_LIST = -57,
  CL_INVALID_EVENT = -58,
  CL_INVALID_OPERATION = -59,
  CL_INVALID_BUFFER_SIZE = -61,
  CL_INVALID_GLOBAL_WORK_SIZE = -63,
  CL_INVALID_PROPERTY = -64,
  CL_PLATFORM_NOT_FOUND_KHR = -1001,
};

enum : cl_uint {
  CL_PLATFORM_VERSION = 0x0901,
  CL_PLATFORM_NAME = 0x0902,

  CL_DEVICE_TYPE = 0x1000,
  CL_DEVICE_MAX_COMPUTE_UNITS = 0x1002,
  CL_DEVICE_MAX_CLOCK_FREQUENCY = 0x100C,
  CL_DEVICE_MAX_MEM_ALLOC_SIZE = 0x1010,
  CL_DEVICE_MEM_BASE_ADDR_ALIGN = 0x1019,
  CL_DEVICE_GLOBAL_MEM_SIZE = 0x101F,
  CL_DEVICE_NAME = 0x102B,
  CL_DRIVER_VERSION = 0x102D,
  CL_DEVICE_VERSION = 0x102F,
  CL_DEVICE_EXTENSIONS = 0x1030,
  CL_DEVICE_DOUBLE_FP_CONFIG = 0x1032,
  CL_DEVICE_HOST_UNIFIED_MEMORY = 0x1035,
  CL_DEVICE_OPENCL_C_VERSION = 0x103D,
  CL_DEVICE_SVM_CAPABILITIES = 0x1053,
  CL_DEVICE_HOST_MEM_CAPABILITIES_INTEL = 0x4190,
  CL_DEVICE_DEVICE_MEM_CAPABILITIES_INTEL = 0x4191,
  CL_DEVICE_SINGLE_DEVICE_SHARED_MEM_CAPABILITIES_INTEL = 0x4192,

  CL_PROGRAM_BINARY_SIZES = 0x1165,
  CL_PROGRAM_BINARIES = 0x1166,
  CL_PROGRAM_BUILD_LOG = 0x1183,
  CL_KERNEL_FUNCTION_NAME = 0x1190,
  CL_KERNEL_NUM_ARGS = 0x1191,
  CL_EVENT_COMMAND_EXECUTION_STATUS = 0x11D3,
  CL_PROFILING_COMMAND_START = 0x1282,
  CL_PROFILING_COMMAND_END = 0x1283,
};

inline constexpr intptr_t CL_CONTEXT_PLATFORM = 0x1084;
inline constexpr cl_bitfield CL_DEVICE_TYPE_CPU = 1 << 1;
inline constexpr cl_bitfield CL_DEVICE_TYPE_ALL = 0xFFFFFFFF;
inline constexpr cl_bitfield CL_DEVICE_SVM_COARSE_GRAIN_BUFFER = 1 << 0;
inline constexpr cl_bitfield CL_DEVICE_SVM_FINE_GRAIN_BUFFER = 1 << 1;
inline constexpr cl_bitfield CL_DEVICE_SVM_FINE_GRAIN_SYSTEM = 1 << 2;
inline constexpr cl_bitfield CL_UNIFIED_SHARED_MEMORY_ACCESS_INTEL = 1 << 0;
inline constexpr cl_bitfield CL_UNIFIED_SHARED_MEMORY_CONCURRENT_ACCESS_INTEL = 1 << 2;
inline constexpr cl_bitfield CL_QUEUE_PROFILING_ENABLE = 1 << 1;
inline constexpr cl_bitfield CL_MEM_READ_WRITE = 1 << 0;
inline constexpr cl_bitfield CL_MEM_ALLOC_HOST_PTR = 1 << 4;
inline constexpr cl_bitfield CL_MEM_SVM_FINE_GRAIN_BUFFER = 1 << 10;
inline constexpr cl_bitfield CL_MAP_READ = 1 << 0;
inline constexpr cl_bitfield CL_MAP_WRITE = 1 << 1;
inline constexpr cl_int CL_COMPLETE = 0;
inline constexpr cl_bool CL_FALSE = 0, CL_TRUE = 1;

// X(result, name, parameters). Every loader has these.
#define FL_CL_FUNCTIONS(X)                                                                                           \
  X(cl_int, clGetPlatformIDs, (cl_uint, cl_platform_id*, cl_uint*))                                                  \
  X(cl_int, clGetPlatformInfo, (cl_platform_id, cl_uint, size_t, void*, size_t*))                                    \
  X(cl_int, clGetDeviceIDs, (cl_platform_id, cl_bitfield, cl_uint, cl_device_id*, cl_uint*))                         \
  X(cl_int, clGetDeviceInfo, (cl_device_id, cl_uint, size_t, void*, size_t*))                                        \
  X(void*, clGetExtensionFunctionAddressForPlatform, (cl_platform_id, const char*))                                  \
  X(cl_context, clCreateContext, (const intptr_t*, cl_uint, const cl_device_id*, cl_context_notify, void*, cl_int*)) \
  X(cl_int, clReleaseContext, (cl_context))                                                                          \
  X(cl_command_queue, clCreateCommandQueue, (cl_context, cl_device_id, cl_bitfield, cl_int*))                        \
  X(cl_int, clRetainCommandQueue, (cl_command_queue))                                                                \
  X(cl_int, clReleaseCommandQueue, (cl_command_queue))                                                               \
  X(cl_int, clFlush, (cl_command_queue))                                                                             \
  X(cl_int, clFinish, (cl_command_queue))                                                                            \
  X(cl_int, clEnqueueMarkerWithWaitList, (cl_command_queue, cl_uint, const cl_event*, cl_event*))                    \
  X(cl_int, clEnqueueBarrierWithWaitList, (cl_command_queue, cl_uint, const cl_event*, cl_event*))                   \
  X(cl_int, clWaitForEvents, (cl_uint, const cl_event*))                                                             \
  X(cl_int, clGetEventInfo, (cl_event, cl_uint, size_t, void*, size_t*))                                             \
  X(cl_int, clGetEventProfilingInfo, (cl_event, cl_uint, size_t, void*, size_t*))                                    \
  X(cl_int, clRetainEvent, (cl_event))                                                                               \
  X(cl_int, clReleaseEvent, (cl_event))                                                                              \
  X(cl_mem, clCreateBuffer, (cl_context, cl_bitfield, size_t, void*, cl_int*))                                       \
  X(cl_int, clReleaseMemObject, (cl_mem))                                                                            \
  X(cl_int, clEnqueueReadBuffer,                                                                                     \
    (cl_command_queue, cl_mem, cl_bool, size_t, size_t, void*, cl_uint, const cl_event*, cl_event*))                 \
  X(cl_int, clEnqueueWriteBuffer,                                                                                    \
    (cl_command_queue, cl_mem, cl_bool, size_t, size_t, const void*, cl_uint, const cl_event*, cl_event*))           \
  X(cl_int, clEnqueueCopyBuffer,                                                                                     \
    (cl_command_queue, cl_mem, cl_mem, size_t, size_t, size_t, cl_uint, const cl_event*, cl_event*))                 \
  X(cl_int, clEnqueueFillBuffer,                                                                                     \
    (cl_command_queue, cl_mem, const void*, size_t, size_t, size_t, cl_uint, const cl_event*, cl_event*))            \
  X(void*, clEnqueueMapBuffer,                                                                                       \
    (cl_command_queue, cl_mem, cl_bool, cl_bitfield, size_t, size_t, cl_uint, const cl_event*, cl_event*, cl_int*))  \
  X(cl_int, clEnqueueUnmapMemObject, (cl_command_queue, cl_mem, void*, cl_uint, const cl_event*, cl_event*))         \
  X(cl_program, clCreateProgramWithSource, (cl_context, cl_uint, const char**, const size_t*, cl_int*))              \
  X(cl_program, clCreateProgramWithBinary,                                                                           \
    (cl_context, cl_uint, const cl_device_id*, const size_t*, const unsigned char**, cl_int*, cl_int*))              \
  X(cl_int, clReleaseProgram, (cl_program))                                                                          \
  X(cl_int, clBuildProgram, (cl_program, cl_uint, const cl_device_id*, const char*, cl_program_notify, void*))       \
  X(cl_int, clGetProgramInfo, (cl_program, cl_uint, size_t, void*, size_t*))                                         \
  X(cl_int, clGetProgramBuildInfo, (cl_program, cl_device_id, cl_uint, size_t, void*, size_t*))                      \
  X(cl_int, clCreateKernelsInProgram, (cl_program, cl_uint, cl_kernel*, cl_uint*))                                   \
  X(cl_int, clReleaseKernel, (cl_kernel))                                                                            \
  X(cl_int, clGetKernelInfo, (cl_kernel, cl_uint, size_t, void*, size_t*))                                           \
  X(cl_int, clSetKernelArg, (cl_kernel, cl_uint, size_t, const void*))                                               \
  X(cl_int, clEnqueueNDRangeKernel,                                                                                  \
    (cl_command_queue, cl_kernel, cl_uint, const size_t*, const size_t*, const size_t*, cl_uint, const cl_event*,    \
     cl_event*))

// Those of OpenCL 2.0: null under an older loader, and then no device has shared virtual memory.
#define FL_CL_SVM_FUNCTIONS(X)                                                                    \
  X(void*, clSVMAlloc, (cl_context, cl_bitfield, size_t, cl_uint))                                \
  X(void, clSVMFree, (cl_context, void*))                                                         \
  X(cl_int, clSetKernelArgSVMPointer, (cl_kernel, cl_uint, const void*))                          \
  X(cl_int, clEnqueueSVMMemcpy,                                                                   \
    (cl_command_queue, cl_bool, void*, const void*, size_t, cl_uint, const cl_event*, cl_event*)) \
  X(cl_int, clEnqueueSVMMemFill,                                                                  \
    (cl_command_queue, void*, const void*, size_t, size_t, cl_uint, const cl_event*, cl_event*))  \
  X(cl_int, clEnqueueSVMMap,                                                                      \
    (cl_command_queue, cl_bool, cl_bitfield, void*, size_t, cl_uint, const cl_event*, cl_event*)) \
  X(cl_int, clEnqueueSVMUnmap, (cl_command_queue, void*, cl_uint, const cl_event*, cl_event*))

// That of OpenCL 2.1: null under an older loader.
#define FL_CL_TIMER_FUNCTIONS(X) X(cl_int, clGetDeviceAndHostTimer, (cl_device_id, cl_ulong*, cl_ulong*))

// cl_intel_unified_shared_memory: a platform's own, asked for by name.
#define FL_CL_USM_FUNCTIONS(X)                                                                              \
  X(void*, clHostMemAllocINTEL, (cl_context, const cl_bitfield*, size_t, cl_uint, cl_int*))                 \
  X(void*, clDeviceMemAllocINTEL, (cl_context, cl_device_id, const cl_bitfield*, size_t, cl_uint, cl_int*)) \
  X(void*, clSharedMemAllocINTEL, (cl_context, cl_device_id, const cl_bitfield*, size_t, cl_uint, cl_int*)) \
  X(cl_int, clMemFreeINTEL, (cl_context, void*))                                                            \
  X(cl_int, clSetKernelArgMemPointerINTEL, (cl_kernel, cl_uint, const void*))                               \
  X(cl_int, clEnqueueMemcpyINTEL,                                                                           \
    (cl_command_queue, cl_bool, void*, const void*, size_t, cl_uint, const cl_event*, cl_event*))           \
  X(cl_int, clEnqueueMemFillINTEL,                                                                          \
    (cl_command_queue, void*, const void*, size_t, size_t, cl_uint, const cl_event*, cl_event*))

#define FL_CL_POINTER(result, name, parameters) result(*name) parameters = nullptr;
struct Functions {
  FL_CL_FUNCTIONS(FL_CL_POINTER)
  FL_CL_SVM_FUNCTIONS(FL_CL_POINTER)
  FL_CL_TIMER_FUNCTIONS(FL_CL_POINTER)
};
struct UsmFunctions {
  FL_CL_USM_FUNCTIONS(FL_CL_POINTER)
};
#undef FL_CL_POINTER

/// The loader's functions; valid once load_opencl() returned null.
extern Functions cl;
/// Opens the loader (TORCH_FL_OPENCL_LIBRARY, else libOpenCL.so.1). Returns null, or why it cannot be used; once.
const char* load_opencl();
/// Fills the table from a platform; false when one of the functions is missing.
bool load_usm(cl_platform_id platform, UsmFunctions& functions);

}  // namespace fl_opencl
