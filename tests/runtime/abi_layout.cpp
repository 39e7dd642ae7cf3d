// SPDX-License-Identifier: Apache-2.0
// The layout of ABI 1.0, frozen. A line here never changes and is never removed; fields of a later minor are appended.
// FL_SIZE is the size that 1.0 had: a struct may grow, but never shrink.
#include <cstddef>

#include "torch_fl/fl_plugin.h"

#define FL_SIZE(type, size, align) static_assert(sizeof(type) >= (size) && alignof(type) == (align), #type)
#define FL_FIXED(type, size, align) static_assert(sizeof(type) == (size) && alignof(type) == (align), #type)
#define FL_FIELD(type, field, offset, size) \
  static_assert(offsetof(type, field) == (offset) && sizeof(type::field) == (size), #type "." #field)

FL_SIZE(fl_tensor, 48, 8);
FL_FIELD(fl_tensor, struct_size, 0, 4);
FL_FIELD(fl_tensor, flags, 4, 4);
FL_FIELD(fl_tensor, address, 8, 8);
FL_FIELD(fl_tensor, dtype, 16, 4);
FL_FIELD(fl_tensor, ndim, 20, 4);
FL_FIELD(fl_tensor, sizes, 24, 8);
FL_FIELD(fl_tensor, strides, 32, 8);
FL_FIELD(fl_tensor, numel, 40, 8);

FL_FIXED(fl_value, 24, 8);
FL_FIELD(fl_value, kind, 0, 4);
FL_FIELD(fl_value, count, 4, 4);
FL_FIELD(fl_value, u, 8, 16);

FL_SIZE(fl_call, 80, 8);
FL_FIELD(fl_call, struct_size, 0, 4);
FL_FIELD(fl_call, device_index, 4, 4);
FL_FIELD(fl_call, device, 8, 8);
FL_FIELD(fl_call, stream, 16, 8);
FL_FIELD(fl_call, kernel, 24, 8);
FL_FIELD(fl_call, args, 32, 8);
FL_FIELD(fl_call, n_args, 40, 4);
FL_FIELD(fl_call, n_outs, 44, 4);
FL_FIELD(fl_call, outs, 48, 8);
FL_FIELD(fl_call, compute_dtype, 56, 4);
FL_FIELD(fl_call, reserved, 60, 4);
FL_FIELD(fl_call, philox_seed, 64, 8);
FL_FIELD(fl_call, philox_offset, 72, 8);

FL_SIZE(fl_kernel, 56, 8);
FL_FIELD(fl_kernel, struct_size, 0, 4);
FL_FIELD(fl_kernel, flags, 4, 4);
FL_FIELD(fl_kernel, op, 8, 8);
FL_FIELD(fl_kernel, run, 16, 8);
FL_FIELD(fl_kernel, supports, 24, 8);
FL_FIELD(fl_kernel, user_data, 32, 8);
FL_FIELD(fl_kernel, dtypes, 40, 8);
FL_FIELD(fl_kernel, constraint, 48, 4);
FL_FIELD(fl_kernel, reserved, 52, 4);

FL_SIZE(fl_device_properties, 272, 8);
FL_FIELD(fl_device_properties, struct_size, 0, 4);
FL_FIELD(fl_device_properties, capabilities, 4, 4);
FL_FIELD(fl_device_properties, name, 8, 128);
FL_FIELD(fl_device_properties, driver_version, 136, 64);
FL_FIELD(fl_device_properties, total_memory, 200, 8);
FL_FIELD(fl_device_properties, max_allocation, 208, 8);
FL_FIELD(fl_device_properties, alignment, 216, 8);
FL_FIELD(fl_device_properties, size_granularity, 224, 8);
FL_FIELD(fl_device_properties, padding, 232, 8);
FL_FIELD(fl_device_properties, dtypes, 240, 8);
FL_FIELD(fl_device_properties, compute_units, 248, 4);
FL_FIELD(fl_device_properties, clock_mhz, 252, 4);
FL_FIELD(fl_device_properties, peak_flops, 256, 8);
FL_FIELD(fl_device_properties, peak_bandwidth, 264, 8);

FL_SIZE(fl_device_api, 48, 8);
FL_FIELD(fl_device_api, struct_size, 0, 4);
FL_FIELD(fl_device_api, count, 8, 8);
FL_FIELD(fl_device_api, properties, 16, 8);
FL_FIELD(fl_device_api, open, 24, 8);
FL_FIELD(fl_device_api, close, 32, 8);
FL_FIELD(fl_device_api, synchronize, 40, 8);

FL_SIZE(fl_memory_api, 104, 8);
FL_FIELD(fl_memory_api, struct_size, 0, 4);
FL_FIELD(fl_memory_api, alloc, 8, 8);
FL_FIELD(fl_memory_api, free, 16, 8);
FL_FIELD(fl_memory_api, copy, 24, 8);
FL_FIELD(fl_memory_api, copy_peer, 32, 8);
FL_FIELD(fl_memory_api, fill, 40, 8);
FL_FIELD(fl_memory_api, host_alloc, 48, 8);
FL_FIELD(fl_memory_api, host_free, 56, 8);
FL_FIELD(fl_memory_api, host_register, 64, 8);
FL_FIELD(fl_memory_api, host_unregister, 72, 8);
FL_FIELD(fl_memory_api, map, 80, 8);
FL_FIELD(fl_memory_api, unmap, 88, 8);
FL_FIELD(fl_memory_api, info, 96, 8);

FL_SIZE(fl_stream_api, 104, 8);
FL_FIELD(fl_stream_api, struct_size, 0, 4);
FL_FIELD(fl_stream_api, create, 8, 8);
FL_FIELD(fl_stream_api, destroy, 16, 8);
FL_FIELD(fl_stream_api, synchronize, 24, 8);
FL_FIELD(fl_stream_api, query, 32, 8);
FL_FIELD(fl_stream_api, event_create, 40, 8);
FL_FIELD(fl_stream_api, event_destroy, 48, 8);
FL_FIELD(fl_stream_api, event_record, 56, 8);
FL_FIELD(fl_stream_api, event_wait, 64, 8);
FL_FIELD(fl_stream_api, event_synchronize, 72, 8);
FL_FIELD(fl_stream_api, event_query, 80, 8);
FL_FIELD(fl_stream_api, event_elapsed, 88, 8);
FL_FIELD(fl_stream_api, native_handle, 96, 8);

FL_SIZE(fl_compile_options, 24, 8);
FL_FIELD(fl_compile_options, struct_size, 0, 4);
FL_FIELD(fl_compile_options, n_defines, 4, 4);
FL_FIELD(fl_compile_options, defines, 8, 8);
FL_FIELD(fl_compile_options, flags, 16, 8);

FL_SIZE(fl_launch, 80, 8);
FL_FIELD(fl_launch, struct_size, 0, 4);
FL_FIELD(fl_launch, work_dim, 4, 4);
FL_FIELD(fl_launch, global_size, 8, 24);
FL_FIELD(fl_launch, local_size, 32, 24);
FL_FIELD(fl_launch, n_args, 56, 4);
FL_FIELD(fl_launch, local_bytes, 60, 4);
FL_FIELD(fl_launch, args, 64, 8);
FL_FIELD(fl_launch, arg_sizes, 72, 8);

FL_SIZE(fl_compiler_api, 64, 8);
FL_FIELD(fl_compiler_api, struct_size, 0, 4);
FL_FIELD(fl_compiler_api, reserved, 4, 4);
FL_FIELD(fl_compiler_api, dialect, 8, 8);
FL_FIELD(fl_compiler_api, identity, 16, 8);
FL_FIELD(fl_compiler_api, compile, 24, 8);
FL_FIELD(fl_compiler_api, save, 32, 8);
FL_FIELD(fl_compiler_api, load, 40, 8);
FL_FIELD(fl_compiler_api, release, 48, 8);
FL_FIELD(fl_compiler_api, launch, 56, 8);

FL_SIZE(fl_graph_api, 64, 8);
FL_FIELD(fl_graph_api, struct_size, 0, 4);
FL_FIELD(fl_graph_api, begin, 8, 8);
FL_FIELD(fl_graph_api, end, 16, 8);
FL_FIELD(fl_graph_api, launch, 24, 8);
FL_FIELD(fl_graph_api, destroy, 32, 8);
FL_FIELD(fl_graph_api, claim, 40, 8);
FL_FIELD(fl_graph_api, build, 48, 8);
FL_FIELD(fl_graph_api, run, 56, 8);

FL_SIZE(fl_collectives_api, 96, 8);
FL_FIELD(fl_collectives_api, struct_size, 0, 4);
FL_FIELD(fl_collectives_api, id_bytes, 4, 4);
FL_FIELD(fl_collectives_api, make_id, 8, 8);
FL_FIELD(fl_collectives_api, init, 16, 8);
FL_FIELD(fl_collectives_api, destroy, 24, 8);
FL_FIELD(fl_collectives_api, all_reduce, 32, 8);
FL_FIELD(fl_collectives_api, broadcast, 40, 8);
FL_FIELD(fl_collectives_api, all_gather, 48, 8);
FL_FIELD(fl_collectives_api, reduce_scatter, 56, 8);
FL_FIELD(fl_collectives_api, send, 64, 8);
FL_FIELD(fl_collectives_api, recv, 72, 8);
FL_FIELD(fl_collectives_api, group_begin, 80, 8);
FL_FIELD(fl_collectives_api, group_end, 88, 8);

FL_SIZE(fl_profile_event, 64, 8);
FL_FIELD(fl_profile_event, struct_size, 0, 4);
FL_FIELD(fl_profile_event, kind, 4, 4);
FL_FIELD(fl_profile_event, name, 8, 8);
FL_FIELD(fl_profile_event, device_index, 16, 4);
FL_FIELD(fl_profile_event, reserved, 20, 4);
FL_FIELD(fl_profile_event, stream, 24, 8);
FL_FIELD(fl_profile_event, correlation, 32, 8);
FL_FIELD(fl_profile_event, start_ns, 40, 8);
FL_FIELD(fl_profile_event, end_ns, 48, 8);
FL_FIELD(fl_profile_event, bytes, 56, 8);

FL_SIZE(fl_profiler_api, 48, 8);
FL_FIELD(fl_profiler_api, struct_size, 0, 4);
FL_FIELD(fl_profiler_api, start, 8, 8);
FL_FIELD(fl_profiler_api, stop, 16, 8);
FL_FIELD(fl_profiler_api, set_correlation, 24, 8);
FL_FIELD(fl_profiler_api, flush, 32, 8);
FL_FIELD(fl_profiler_api, clock, 40, 8);

FL_SIZE(fl_tuning_api, 24, 8);
FL_FIELD(fl_tuning_api, struct_size, 0, 4);
FL_FIELD(fl_tuning_api, candidates, 8, 8);
FL_FIELD(fl_tuning_api, choose, 16, 8);

FL_SIZE(fl_host, 56, 8);
FL_FIELD(fl_host, struct_size, 0, 4);
FL_FIELD(fl_host, abi_major, 4, 4);
FL_FIELD(fl_host, abi_minor, 8, 4);
FL_FIELD(fl_host, reserved, 12, 4);
FL_FIELD(fl_host, version, 16, 8);
FL_FIELD(fl_host, log, 24, 8);
FL_FIELD(fl_host, set_error, 32, 8);
FL_FIELD(fl_host, scratch, 40, 8);
FL_FIELD(fl_host, current_stream, 48, 8);

FL_SIZE(fl_plugin, 112, 8);
FL_FIELD(fl_plugin, struct_size, 0, 4);
FL_FIELD(fl_plugin, abi_major, 4, 4);
FL_FIELD(fl_plugin, abi_minor, 8, 4);
FL_FIELD(fl_plugin, n_kernels, 12, 4);
FL_FIELD(fl_plugin, name, 16, 8);
FL_FIELD(fl_plugin, vendor, 24, 8);
FL_FIELD(fl_plugin, version, 32, 8);
FL_FIELD(fl_plugin, device, 40, 8);
FL_FIELD(fl_plugin, memory, 48, 8);
FL_FIELD(fl_plugin, stream, 56, 8);
FL_FIELD(fl_plugin, kernels, 64, 8);
FL_FIELD(fl_plugin, compiler, 72, 8);
FL_FIELD(fl_plugin, graph, 80, 8);
FL_FIELD(fl_plugin, collectives, 88, 8);
FL_FIELD(fl_plugin, profiler, 96, 8);
FL_FIELD(fl_plugin, tuning, 104, 8);

static_assert(FL_OK == 0);
static_assert(FL_UNSUPPORTED == 1);
static_assert(FL_OUT_OF_MEMORY == 2);
static_assert(FL_INVALID_ARGUMENT == 3);
static_assert(FL_DEVICE_LOST == 4);
static_assert(FL_INTERNAL == 5);
static_assert(FL_NOT_READY == 6);
static_assert(FL_OUT_OF_RANGE == 7);

static_assert(FL_UINT8 == 0);
static_assert(FL_INT8 == 1);
static_assert(FL_INT16 == 2);
static_assert(FL_INT32 == 3);
static_assert(FL_INT64 == 4);
static_assert(FL_FLOAT16 == 5);
static_assert(FL_FLOAT32 == 6);
static_assert(FL_FLOAT64 == 7);
static_assert(FL_COMPLEX32 == 8);
static_assert(FL_COMPLEX64 == 9);
static_assert(FL_COMPLEX128 == 10);
static_assert(FL_BOOL == 11);
static_assert(FL_BFLOAT16 == 12);
static_assert(FL_UINT16 == 13);
static_assert(FL_UINT32 == 14);
static_assert(FL_UINT64 == 15);
static_assert(FL_FLOAT8_E5M2 == 16);
static_assert(FL_FLOAT8_E4M3FN == 17);
static_assert(FL_FLOAT8_E5M2FNUZ == 18);
static_assert(FL_FLOAT8_E4M3FNUZ == 19);
static_assert(FL_FLOAT8_E8M0FNU == 20);
static_assert(FL_DTYPE_OTHER == 63);

static_assert(FL_TENSOR_CONTIGUOUS == 1u << 0);
static_assert(FL_TENSOR_CHANNELS_LAST == 1u << 1);

static_assert(FL_NONE == 0);
static_assert(FL_TENSOR == 1);
static_assert(FL_BOOLEAN == 2);
static_assert(FL_INTEGER == 3);
static_assert(FL_REAL == 4);
static_assert(FL_COMPLEX == 5);
static_assert(FL_STRING == 6);
static_assert(FL_INTEGERS == 7);
static_assert(FL_REALS == 8);
static_assert(FL_BOOLEANS == 9);
static_assert(FL_TENSORS == 10);
static_assert(FL_VALUES == 11);
static_assert(FL_DTYPE == 12);
static_assert(FL_OPAQUE == 13);

static_assert(FL_KERNEL_PROMOTE == 1u << 0);
static_assert(FL_KERNEL_BROADCAST == 1u << 1);
static_assert(FL_KERNEL_CONTIGUOUS_INPUTS == 1u << 2);
static_assert(FL_KERNEL_CONTIGUOUS_OUTPUTS == 1u << 3);
static_assert(FL_KERNEL_IN_PLACE_SAFE == 1u << 4);
static_assert(FL_KERNEL_VALUE_DEPENDENT == 1u << 5);
static_assert(FL_KERNEL_RANDOM == 1u << 6);
static_assert(FL_KERNEL_CHANNELS_LAST_OK == 1u << 7);
static_assert(FL_KERNEL_CHANNELS_LAST_ONLY == 1u << 8);

static_assert(FL_CAP_HOST_COHERENT == 1u << 0);
static_assert(FL_CAP_UNIFIED == 1u << 1);
static_assert(FL_CAP_PEER_COPY == 1u << 2);
static_assert(FL_CAP_TIMED_EVENTS == 1u << 3);

static_assert(FL_COPY_HOST_TO_DEVICE == 0);
static_assert(FL_COPY_DEVICE_TO_HOST == 1);
static_assert(FL_COPY_DEVICE_TO_DEVICE == 2);

static_assert(FL_EVENT_TIMED == 1u << 0);

static_assert(FL_REDUCE_SUM == 0);
static_assert(FL_REDUCE_AVG == 1);
static_assert(FL_REDUCE_PROD == 2);
static_assert(FL_REDUCE_MIN == 3);
static_assert(FL_REDUCE_MAX == 4);

static_assert(FL_PROFILE_KERNEL == 0);
static_assert(FL_PROFILE_COPY == 1);
static_assert(FL_PROFILE_FILL == 2);
static_assert(FL_PROFILE_RUNTIME == 3);

static_assert(FL_LOG_DEBUG == 0);
static_assert(FL_LOG_INFO == 1);
static_assert(FL_LOG_WARNING == 2);
static_assert(FL_LOG_ERROR == 3);

static_assert(FL_ABI_MAJOR == 1);
