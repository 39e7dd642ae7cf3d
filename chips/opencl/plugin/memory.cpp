// SPDX-License-Identifier: Apache-2.0
// Allocation, copies and fills in the three kinds of memory.
#include <algorithm>
#include <cstdlib>
#include <string>

#include "device.h"
#include "status.h"

namespace fl_opencl {
namespace {

void* pointer_of(fl_address address) { return reinterpret_cast<void*>(static_cast<uintptr_t>(address)); }
fl_address address_of(const void* pointer) { return reinterpret_cast<uintptr_t>(pointer); }

// ---- Allocation
fl_status out_of_memory(const Device& device, const char* call, uint64_t bytes, cl_int code) {
  const std::string detail = "an allocation of " + std::to_string(bytes) + " bytes; the device has " +
                             std::to_string(device.info.properties.total_memory) + ", of which this process has " +
                             std::to_string(device.usage.bytes()) + ", and allows " +
                             std::to_string(device.info.properties.max_allocation) + " at once";
  // clSVMAlloc has no code to give.
  return failed(code == CL_SUCCESS ? CL_MEM_OBJECT_ALLOCATION_FAILURE : code, call, device.info, detail);
}

fl_status alloc_bytes(Device& device, uint64_t bytes, fl_address* address) {
  const DeviceInfo& info = device.info;
  const auto alignment = static_cast<cl_uint>(info.properties.alignment);
  cl_int code = CL_SUCCESS;
  if (info.memory == Memory::kSvm) {
    const cl_bitfield flags = CL_MEM_READ_WRITE | (info.fine_svm ? CL_MEM_SVM_FINE_GRAIN_BUFFER : 0);
    *address = address_of(cl.clSVMAlloc(device.context, flags, bytes, alignment));
    return *address != 0 ? FL_OK : out_of_memory(device, "clSVMAlloc", bytes, code);
  }
  if (info.memory == Memory::kUsm) {
    void* pointer = info.shared_usm
                        ? info.usm.clSharedMemAllocINTEL(device.context, info.id, nullptr, bytes, alignment, &code)
                        : info.usm.clDeviceMemAllocINTEL(device.context, info.id, nullptr, bytes, alignment, &code);
    *address = address_of(pointer);
    if (pointer != nullptr) return FL_OK;
    return out_of_memory(device, info.shared_usm ? "clSharedMemAllocINTEL" : "clDeviceMemAllocINTEL", bytes, code);
  }
  const cl_mem buffer = cl.clCreateBuffer(device.context, CL_MEM_READ_WRITE, bytes, nullptr, &code);
  if (buffer == nullptr) return out_of_memory(device, "clCreateBuffer", bytes, code);
  *address = device.buffers.add(buffer, bytes);
  if (*address != 0) return FL_OK;
  cl.clReleaseMemObject(buffer);
  return fail(FL_OUT_OF_MEMORY, "too many allocations on " + info.label);
}

fl_status alloc(fl_device handle, uint64_t bytes, fl_address* address) {
  return guarded([&]() -> fl_status {
    Device& device = device_of(handle);
    const fl_device_properties& properties = device.info.properties;
    if (bytes == 0) return fail(FL_INVALID_ARGUMENT, "an allocation of 0 bytes");
    // Some runtimes hand out more than they declare, and fail when it is used.
    if (bytes > properties.max_allocation) return out_of_memory(device, "alloc", bytes, CL_INVALID_BUFFER_SIZE);
    if (!device.usage.claim(bytes, properties.total_memory))
      return out_of_memory(device, "alloc", bytes, CL_MEM_OBJECT_ALLOCATION_FAILURE);
    const fl_status status = alloc_bytes(device, bytes, address);
    device.usage.settle(status == FL_OK ? *address : 0, bytes);
    return status;
  });
}

fl_status free_memory(fl_device handle, fl_address address) {
  return guarded([&]() -> fl_status {
    Device& device = device_of(handle);
    device.frees.fetch_add(1, std::memory_order_relaxed);
    device.usage.release(address);
    if (device.info.memory == Memory::kSvm) {
      cl.clSVMFree(device.context, pointer_of(address));
      return FL_OK;
    }
    if (device.info.memory == Memory::kUsm)
      return check(device.info.usm.clMemFreeINTEL(device.context, pointer_of(address)), "clMemFreeINTEL", device.info);
    const cl_mem buffer = device.buffers.remove(address);
    if (buffer == nullptr) return fail(FL_INVALID_ARGUMENT, "free of an address where no allocation begins");
    return check(cl.clReleaseMemObject(buffer), "clReleaseMemObject", device.info);
  });
}

/// Where in which buffer `bytes` from the address lie.
fl_status find(const Device& device, fl_address address, uint64_t bytes, BufferTable::Place& place) {
  if (device.buffers.find(address, place) && bytes <= place.room) return FL_OK;
  return fail(FL_INVALID_ARGUMENT, "no allocation of " + device.info.label + " holds " + std::to_string(bytes) +
                                       " bytes from address " + std::to_string(address));
}

// ---- Copies
// Of many bytes on a CPU by all its units, past the caches: runtimes copy with one thread, which does not use all of
// memory's bandwidth.
constexpr uint64_t kLargeCopy = UINT64_C(8) << 20;
constexpr const char* kCopier = R"(
#ifdef __has_builtin
#if __has_builtin(__builtin_nontemporal_store)
#define PUT(v, p) __builtin_nontemporal_store(v, p)
#endif
#endif
#ifndef PUT
#define PUT(v, p) (*(p) = (v))
#endif
kernel void copy(global ulong4* to, global const ulong4* from, ulong n, ulong chunk) {
  ulong i = get_global_id(0) * chunk;
  const ulong end = min(i + chunk, n);
  for (; i + 4 <= end; i += 4) {
    const ulong4 a = from[i], b = from[i + 1], c = from[i + 2], d = from[i + 3];
    PUT(a, to + i);
    PUT(b, to + i + 1);
    PUT(c, to + i + 2);
    PUT(d, to + i + 3);
  }
  for (; i < end; ++i) PUT(from[i], to + i);
  mem_fence(CLK_GLOBAL_MEM_FENCE);
}
)";
constexpr uint64_t kCopied = 32;  // bytes at a time

bool copies_by_kernel(Device& device, fl_address dst, fl_address src, uint64_t bytes) {
  if (!device.info.cpu || device.info.memory == Memory::kBuffer || bytes < kLargeCopy || (dst | src) % kCopied != 0)
    return false;
  // Where it does not compile, copies are the runtime's.
  std::call_once(device.copier_once,
                 [&] { kCompilerApi.compile(reinterpret_cast<fl_device>(&device), kCopier, nullptr, &device.copier); });
  return device.copier != nullptr;
}

/// All but the last bytes % kCopied, which the caller copies.
fl_status copy_by_kernel(Device& device, fl_stream stream, fl_address dst, fl_address src, uint64_t bytes) {
  const uint64_t n = bytes / kCopied, items = 8 * std::max<uint64_t>(1, device.info.properties.compute_units);
  const uint64_t chunk = (n + items - 1) / items;
  const void* args[] = {&dst, &src, &n, &chunk};
  const uint32_t sizes[] = {FL_ARG_ADDRESS, FL_ARG_ADDRESS, sizeof n, sizeof chunk};
  fl_launch launch{};
  launch.struct_size = sizeof launch;
  launch.work_dim = 1;
  launch.global_size[0] = items;
  launch.local_size[0] = 1;
  launch.n_args = 4;
  launch.args = args;
  launch.arg_sizes = sizes;
  return kCompilerApi.launch(reinterpret_cast<fl_device>(&device), stream, device.copier, "copy", &launch);
}

fl_status copy_pointers(Device& device, Stream& stream, void* dst, const void* src, uint64_t bytes, cl_event* event) {
  const bool svm = device.info.memory == Memory::kSvm;
  const auto enqueue = svm ? cl.clEnqueueSVMMemcpy : device.info.usm.clEnqueueMemcpyINTEL;
  const cl_int code = enqueue(stream.queue, CL_FALSE, dst, src, bytes, 0, nullptr, event);
  return check(code, svm ? "clEnqueueSVMMemcpy" : "clEnqueueMemcpyINTEL", device.info);
}

fl_status copy_buffers(Device& device, Stream& stream, fl_address dst, fl_address src, uint64_t bytes,
                       fl_copy_kind kind, cl_event* event) {
  BufferTable::Place to{}, from{};
  if (kind != FL_COPY_DEVICE_TO_HOST)
    if (const fl_status status = find(device, dst, bytes, to); status != FL_OK) return status;
  if (kind != FL_COPY_HOST_TO_DEVICE)
    if (const fl_status status = find(device, src, bytes, from); status != FL_OK) return status;
  if (kind == FL_COPY_HOST_TO_DEVICE)
    return check(cl.clEnqueueWriteBuffer(stream.queue, to.buffer, CL_FALSE, to.offset, bytes, pointer_of(src), 0,
                                         nullptr, event),
                 "clEnqueueWriteBuffer", device.info);
  if (kind == FL_COPY_DEVICE_TO_HOST)
    return check(cl.clEnqueueReadBuffer(stream.queue, from.buffer, CL_FALSE, from.offset, bytes, pointer_of(dst), 0,
                                        nullptr, event),
                 "clEnqueueReadBuffer", device.info);
  return check(
      cl.clEnqueueCopyBuffer(stream.queue, from.buffer, to.buffer, from.offset, to.offset, bytes, 0, nullptr, event),
      "clEnqueueCopyBuffer", device.info);
}

fl_status copy(fl_device handle, fl_stream stream_handle, fl_address dst, fl_address src, uint64_t bytes,
               fl_copy_kind kind) {
  return guarded([&]() -> fl_status {
    Device& device = device_of(handle);
    Stream& stream = device.stream(stream_handle);
    if (bytes == 0 || dst == src) return FL_OK;
    if (kind == FL_COPY_DEVICE_TO_DEVICE && copies_by_kernel(device, dst, src, bytes)) {
      const fl_status status = copy_by_kernel(device, stream_handle, dst, src, bytes);
      const uint64_t rest = bytes % kCopied;
      if (status != FL_OK || rest == 0) return status;
      dst += bytes - rest;
      src += bytes - rest;
      bytes = rest;
    }
    Enqueuing command(stream);
    const fl_status status =
        device.info.memory == Memory::kBuffer
            ? copy_buffers(device, stream, dst, src, bytes, kind, command.event())
            : copy_pointers(device, stream, pointer_of(dst), pointer_of(src), bytes, command.event());
    if (status == FL_OK) note_profiled(device, stream, command, FL_PROFILE_COPY, "copy", bytes);
    return status;
  });
}

fl_status copy_peer(fl_device dst_device, fl_address dst, fl_device src_device, fl_address src, uint64_t bytes,
                    fl_stream src_stream) {
  Device &to = device_of(dst_device), &from = device_of(src_device);
  if (&to != &from && !(to.info.coherent() && from.info.coherent()))
    return fail(FL_UNSUPPORTED, "copies between devices need memory that the host may read and write");
  // To the source's runtime the other device's memory is memory of the host.
  return copy(src_device, src_stream, dst, src, bytes,
              &to == &from ? FL_COPY_DEVICE_TO_DEVICE : FL_COPY_DEVICE_TO_HOST);
}

// ---- Fills
fl_status fill(fl_device handle, fl_stream stream_handle, fl_address dst, const void* pattern, uint32_t pattern_bytes,
               uint64_t count) {
  return guarded([&]() -> fl_status {
    Device& device = device_of(handle);
    const DeviceInfo& info = device.info;
    Stream& stream = device.stream(stream_handle);
    if (count == 0) return FL_OK;
    if (pattern_bytes == 0 || pattern_bytes > 16 || (pattern_bytes & (pattern_bytes - 1)) != 0 ||
        dst % pattern_bytes != 0)
      return fail(FL_INVALID_ARGUMENT, "fill: a pattern has 1, 2, 4, 8 or 16 bytes, and the address is a multiple");
    const uint64_t bytes = count * pattern_bytes;
    Enqueuing command(stream);
    fl_status status = FL_OK;
    if (info.memory == Memory::kSvm) {
      status = check(cl.clEnqueueSVMMemFill(stream.queue, pointer_of(dst), pattern, pattern_bytes, bytes, 0, nullptr,
                                            command.event()),
                     "clEnqueueSVMMemFill", info);
    } else if (info.memory == Memory::kUsm) {
      status = check(info.usm.clEnqueueMemFillINTEL(stream.queue, pointer_of(dst), pattern, pattern_bytes, bytes, 0,
                                                    nullptr, command.event()),
                     "clEnqueueMemFillINTEL", info);
    } else {
      BufferTable::Place place{};
      status = find(device, dst, bytes, place);
      if (status == FL_OK)
        status = check(cl.clEnqueueFillBuffer(stream.queue, place.buffer, pattern, pattern_bytes, place.offset, bytes,
                                              0, nullptr, command.event()),
                       "clEnqueueFillBuffer", info);
    }
    if (status == FL_OK) note_profiled(device, stream, command, FL_PROFILE_FILL, "fill", bytes);
    return status;
  });
}

// ---- Pinned memory of the host: ordinary memory where the device works in the host's, USM, or a buffer that stays
// mapped, which is what drivers pin.
enum class Pinned { kOrdinary, kUsm, kMapped };

Pinned pinned_kind(const DeviceInfo& info) {
  if (info.memory == Memory::kUsm) return Pinned::kUsm;
  return info.coherent() ? Pinned::kOrdinary : Pinned::kMapped;
}

fl_status map_pinned(Device& device, uint64_t bytes, void** pointer) {
  cl_int code = CL_SUCCESS;
  const cl_mem buffer =
      cl.clCreateBuffer(device.context, CL_MEM_READ_WRITE | CL_MEM_ALLOC_HOST_PTR, bytes, nullptr, &code);
  if (buffer == nullptr) return out_of_memory(device, "clCreateBuffer", bytes, code);
  *pointer = cl.clEnqueueMapBuffer(device.default_stream.queue, buffer, CL_TRUE, CL_MAP_READ | CL_MAP_WRITE, 0, bytes,
                                   0, nullptr, nullptr, &code);
  if (*pointer == nullptr) {
    cl.clReleaseMemObject(buffer);
    return failed(code, "clEnqueueMapBuffer", device.info);
  }
  const std::lock_guard lock(device.pinned_mutex);
  device.pinned.emplace(*pointer, buffer);
  return FL_OK;
}

fl_status host_alloc(fl_device handle, uint64_t bytes, void** pointer) {
  return guarded([&]() -> fl_status {
    Device& device = device_of(handle);
    constexpr uint64_t kAlignment = 64;
    cl_int code = CL_SUCCESS;
    switch (pinned_kind(device.info)) {
      case Pinned::kOrdinary:
        *pointer = std::aligned_alloc(kAlignment, (bytes + kAlignment - 1) / kAlignment * kAlignment);
        return *pointer != nullptr ? FL_OK : out_of_memory(device, "aligned_alloc", bytes, code);
      case Pinned::kUsm:
        *pointer = device.info.usm.clHostMemAllocINTEL(device.context, nullptr, bytes, kAlignment, &code);
        return *pointer != nullptr ? FL_OK : out_of_memory(device, "clHostMemAllocINTEL", bytes, code);
      case Pinned::kMapped:
        return map_pinned(device, bytes, pointer);
    }
    return FL_INTERNAL;
  });
}

fl_status unmap_pinned(Device& device, void* pointer) {
  cl_mem buffer = nullptr;
  {
    const std::lock_guard lock(device.pinned_mutex);
    const auto found = device.pinned.find(pointer);
    if (found == device.pinned.end()) return fail(FL_INVALID_ARGUMENT, "host_free of memory not from host_alloc");
    buffer = found->second;
    device.pinned.erase(found);
  }
  // The release is deferred by OpenCL until the queued unmapping is done.
  const cl_int code = cl.clEnqueueUnmapMemObject(device.default_stream.queue, buffer, pointer, 0, nullptr, nullptr);
  cl.clFlush(device.default_stream.queue);
  cl.clReleaseMemObject(buffer);
  return check(code, "clEnqueueUnmapMemObject", device.info);
}

fl_status host_free(fl_device handle, void* pointer) {
  return guarded([&]() -> fl_status {
    Device& device = device_of(handle);
    switch (pinned_kind(device.info)) {
      case Pinned::kOrdinary:
        std::free(pointer);
        return FL_OK;
      case Pinned::kUsm:
        return check(device.info.usm.clMemFreeINTEL(device.context, pointer), "clMemFreeINTEL", device.info);
      case Pinned::kMapped:
        return unmap_pinned(device, pointer);
    }
    return FL_INTERNAL;
  });
}

// ---- Mapping device memory
fl_status map(fl_device handle, fl_address address, uint64_t bytes, void** pointer) {
  return guarded([&]() -> fl_status {
    Device& device = device_of(handle);
    const DeviceInfo& info = device.info;
    // Earlier work may be on any stream.
    if (const fl_status status = finish_all(device); status != FL_OK) return status;
    const cl_command_queue queue = device.default_stream.queue;
    cl_int code = CL_SUCCESS;
    if (info.memory == Memory::kBuffer) {
      BufferTable::Place place{};
      if (const fl_status status = find(device, address, bytes, place); status != FL_OK) return status;
      *pointer = cl.clEnqueueMapBuffer(queue, place.buffer, CL_TRUE, CL_MAP_READ | CL_MAP_WRITE, place.offset, bytes, 0,
                                       nullptr, nullptr, &code);
      return *pointer != nullptr ? FL_OK : failed(code, "clEnqueueMapBuffer", info);
    }
    if (info.memory == Memory::kUsm && !info.shared_usm)
      return fail(FL_UNSUPPORTED, "device memory of " + info.label + " cannot be mapped; copy it");
    *pointer = pointer_of(address);
    if (info.coherent()) return FL_OK;
    return check(cl.clEnqueueSVMMap(queue, CL_TRUE, CL_MAP_READ | CL_MAP_WRITE, *pointer, bytes, 0, nullptr, nullptr),
                 "clEnqueueSVMMap", info);
  });
}

fl_status unmap(fl_device handle, fl_address address, void* pointer) {
  return guarded([&]() -> fl_status {
    Device& device = device_of(handle);
    const DeviceInfo& info = device.info;
    if (info.coherent()) return FL_OK;
    const cl_command_queue queue = device.default_stream.queue;
    cl_int code = CL_SUCCESS;
    if (info.memory == Memory::kBuffer) {
      BufferTable::Place place{};
      if (const fl_status status = find(device, address, 1, place); status != FL_OK) return status;
      code = cl.clEnqueueUnmapMemObject(queue, place.buffer, pointer, 0, nullptr, nullptr);
      if (code != CL_SUCCESS) return failed(code, "clEnqueueUnmapMemObject", info);
    } else {
      code = cl.clEnqueueSVMUnmap(queue, pointer, 0, nullptr, nullptr);
      if (code != CL_SUCCESS) return failed(code, "clEnqueueSVMUnmap", info);
    }
    // Work on any stream may come next.
    return check(cl.clFinish(queue), "clFinish", info);
  });
}

}  // namespace

const fl_memory_api kMemoryApi = {
    .struct_size = sizeof(fl_memory_api),
    .alloc = alloc,
    .free = free_memory,
    .copy = copy,
    .copy_peer = copy_peer,
    .fill = fill,
    .host_alloc = host_alloc,
    .host_free = host_free,
    .host_register = nullptr,
    .host_unregister = nullptr,
    .map = map,
    .unmap = unmap,
    .info = nullptr,  // OpenCL does not tell what is free
};

}  // namespace fl_opencl
