// SPDX-License-Identifier: Apache-2.0
// The tables of fl_plugin.h over the simulated chip's SDK.
#include "plugin.h"

#include <cstdio>
#include <cstring>
#include <string_view>

namespace fl_sim {
namespace {

const fl_host* the_host = nullptr;

simDevice device_of(fl_device device) { return reinterpret_cast<simDevice>(device); }
simStream stream_of(fl_stream stream) { return reinterpret_cast<simStream>(stream); }
simEvent event_of(fl_event event) { return reinterpret_cast<simEvent>(event); }

constexpr struct {
  const char* name;
  fl_dtype dtype;
} kDtypeNames[] = {
    {"uint8", FL_UINT8},         {"int8", FL_INT8},           {"int16", FL_INT16},           {"int32", FL_INT32},
    {"int64", FL_INT64},         {"float16", FL_FLOAT16},     {"float32", FL_FLOAT32},       {"float64", FL_FLOAT64},
    {"complex32", FL_COMPLEX32}, {"complex64", FL_COMPLEX64}, {"complex128", FL_COMPLEX128}, {"bool", FL_BOOL},
    {"bfloat16", FL_BFLOAT16},   {"uint16", FL_UINT16},       {"uint32", FL_UINT32},         {"uint64", FL_UINT64}};

uint64_t parse_dtypes(std::string_view text) {
  uint64_t mask = 0;
  while (!text.empty()) {
    const size_t comma = text.find(',');
    const std::string_view name = text.substr(0, comma);
    uint64_t bit = 0;
    for (const auto& known : kDtypeNames)
      if (name == known.name) bit = FL_DTYPE_BIT(known.dtype);
    if (!bit)
      std::fprintf(stderr,
                   "fl_sim: SIMCHIP_DTYPES has an unknown element type \"%.*s\"; expected names such as float32\n",
                   static_cast<int>(name.size()), name.data());
    mask |= bit;
    text = comma == std::string_view::npos ? std::string_view() : text.substr(comma + 1);
  }
  return mask;
}

// ---- Device
fl_status device_count(int32_t* count) { return check(simDeviceCount(count)); }

fl_status device_properties(int32_t index, fl_device_properties* p) {
  const simLimits& l = *simGetLimits();
  if (index < 0 || index >= l.devices) return fail(FL_INVALID_ARGUMENT, "no such simulated device");
  p->capabilities = FL_CAP_PEER_COPY | FL_CAP_TIMED_EVENTS;
  if (l.host_coherent) p->capabilities |= FL_CAP_HOST_COHERENT;
  std::snprintf(p->name, sizeof p->name, "Simulated NPU %d", index);
  std::snprintf(p->driver_version, sizeof p->driver_version, "simchip %s", SIM_VERSION);
  p->total_memory = l.memory_bytes;
  p->alignment = l.alignment < 64 ? 64 : l.alignment;
  p->size_granularity = p->alignment;
  p->dtypes = l.trusting ? 0 : device_dtypes();
  p->compute_units = 1;
  return FL_OK;
}

fl_status device_open(int32_t index, fl_device* device) {
  return check(simDeviceOpen(index, reinterpret_cast<simDevice*>(device)));
}
void device_close(fl_device device) { simDeviceClose(device_of(device)); }
fl_status device_synchronize(fl_device device) { return check(simDeviceSynchronize(device_of(device))); }

// ---- Memory
fl_status memory_alloc(fl_device device, uint64_t bytes, fl_address* address) {
  return check(simMalloc(device_of(device), bytes, address));
}
fl_status memory_free(fl_device device, fl_address address) { return check(simFree(device_of(device), address)); }
fl_status memory_copy(fl_device device, fl_stream stream, fl_address dst, fl_address src, uint64_t bytes,
                      fl_copy_kind kind) {
  return check(simMemcpyAsync(device_of(device), stream_of(stream), dst, src, bytes, kind));
}
fl_status memory_copy_peer(fl_device dst_device, fl_address dst, fl_device src_device, fl_address src, uint64_t bytes,
                           fl_stream src_stream) {
  return check(
      simMemcpyPeerAsync(device_of(dst_device), dst, device_of(src_device), src, bytes, stream_of(src_stream)));
}
fl_status memory_fill(fl_device device, fl_stream stream, fl_address dst, const void* pattern, uint32_t pattern_bytes,
                      uint64_t count) {
  return check(simMemsetAsync(device_of(device), stream_of(stream), dst, pattern, pattern_bytes, count));
}
fl_status memory_host_alloc(fl_device device, uint64_t bytes, void** pointer) {
  return check(simHostAlloc(device_of(device), bytes, pointer));
}
fl_status memory_host_free(fl_device device, void* pointer) { return check(simHostFree(device_of(device), pointer)); }
fl_status memory_info(fl_device device, uint64_t* free_bytes, uint64_t* total_bytes) {
  return check(simMemoryInfo(device_of(device), free_bytes, total_bytes));
}

// ---- Streams and events
fl_status stream_create(fl_device device, int32_t priority, fl_stream* stream) {
  return check(simStreamCreate(device_of(device), priority, reinterpret_cast<simStream*>(stream)));
}
fl_status stream_destroy(fl_device device, fl_stream stream) {
  return check(simStreamDestroy(device_of(device), stream_of(stream)));
}
fl_status stream_synchronize(fl_device device, fl_stream stream) {
  return check(simStreamSynchronize(device_of(device), stream_of(stream)));
}
fl_status stream_query(fl_device device, fl_stream stream) {
  return check(simStreamQuery(device_of(device), stream_of(stream)));
}
fl_status event_create(fl_device device, uint32_t, fl_event* event) {
  return check(simEventCreate(device_of(device), reinterpret_cast<simEvent*>(event)));
}
fl_status event_destroy(fl_device, fl_event event) { return check(simEventDestroy(event_of(event))); }
fl_status event_record(fl_device device, fl_event event, fl_stream stream) {
  return check(simEventRecord(device_of(device), event_of(event), stream_of(stream)));
}
fl_status event_wait(fl_device device, fl_event event, fl_stream stream) {
  return check(simStreamWaitEvent(device_of(device), stream_of(stream), event_of(event)));
}
fl_status event_synchronize(fl_device, fl_event event) { return check(simEventSynchronize(event_of(event))); }
fl_status event_query(fl_device, fl_event event) { return check(simEventQuery(event_of(event))); }
fl_status event_elapsed(fl_device, fl_event start, fl_event end, int64_t* nanoseconds) {
  return check(simEventElapsed(event_of(start), event_of(end), nanoseconds));
}
fl_status native_handle(fl_device, fl_stream stream, void** handle) {
  *handle = stream;
  return FL_OK;
}

const fl_device_api kDevice = {sizeof(fl_device_api), device_count, device_properties,
                               device_open,           device_close, device_synchronize};
const fl_memory_api kMemory = {
    .struct_size = sizeof(fl_memory_api),
    .alloc = memory_alloc,
    .free = memory_free,
    .copy = memory_copy,
    .copy_peer = memory_copy_peer,
    .fill = memory_fill,
    .host_alloc = memory_host_alloc,
    .host_free = memory_host_free,
    .host_register = nullptr,
    .host_unregister = nullptr,
    .map = nullptr,
    .unmap = nullptr,
    .info = memory_info,
};
const fl_stream_api kStream = {
    sizeof(fl_stream_api), stream_create, stream_destroy, stream_synchronize, stream_query,
    event_create,          event_destroy, event_record,   event_wait,         event_synchronize,
    event_query,           event_elapsed, native_handle};

}  // namespace

const fl_host* host() noexcept { return the_host; }

uint64_t device_dtypes() noexcept {
  static const uint64_t mask = parse_dtypes(simGetLimits()->dtypes);
  return mask;
}

}  // namespace fl_sim

const fl_plugin* fl_plugin_get(const fl_host* host) {
  using namespace fl_sim;
  the_host = host;
  static const fl_plugin plugin = [] {
    const auto kernels = simGetLimits()->hide_kernels ? std::span<const fl_kernel* const>() : all_kernels();
    fl_plugin p = {};
    p.struct_size = sizeof(fl_plugin);
    p.abi_major = FL_ABI_MAJOR;
    p.abi_minor = FL_ABI_MINOR;
    p.n_kernels = static_cast<uint32_t>(kernels.size());
    p.name = "sim";
    p.vendor = "Torch-FL";
    p.version = SIM_VERSION;
    p.device = &kDevice;
    p.memory = &kMemory;
    p.stream = &kStream;
    p.kernels = kernels.empty() ? nullptr : kernels.data();
    p.compiler = simGetLimits()->hide_compiler ? nullptr : compiler_table();
    p.profiler = simGetLimits()->hide_profiler ? nullptr : profiler_table();
    return p;
  }();
  return &plugin;
}
