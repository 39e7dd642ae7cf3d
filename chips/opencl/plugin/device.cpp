// SPDX-License-Identifier: Apache-2.0
// Which devices there are, in which order, and what they are like; opening and closing.
#include "device.h"

#include <dlfcn.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string_view>
#include <system_error>
#include <utility>

#include "status.h"

namespace fl_opencl {
namespace {

constexpr const char* kVendors = "/etc/OpenCL/vendors";

// ---- Reading what the runtime says
std::string printable(std::string text) {
  text.resize(std::strlen(text.c_str()));
  for (char& c : text)
    if (c < ' ' || c > '~') c = '?';
  const size_t first = text.find_first_not_of(' ');
  if (first == std::string::npos) return "";
  return text.substr(first, text.find_last_not_of(' ') - first + 1);
}

template <typename Object>
std::string text_of(cl_int (*query)(Object, cl_uint, size_t, void*, size_t*), Object object, cl_uint what) {
  size_t bytes = 0;
  if (query(object, what, 0, nullptr, &bytes) != CL_SUCCESS || bytes == 0) return "";
  std::string text(bytes, '\0');
  if (query(object, what, bytes, text.data(), nullptr) != CL_SUCCESS) return "";
  return printable(std::move(text));
}
std::string device_text(cl_device_id id, cl_uint what) { return text_of(cl.clGetDeviceInfo, id, what); }

/// Zero where the device does not know the question.
template <typename T>
T number_of(cl_device_id id, cl_uint what) {
  T value{};
  return cl.clGetDeviceInfo(id, what, sizeof value, &value, nullptr) == CL_SUCCESS ? value : T{};
}

std::string lower(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(), [](unsigned char c) { return std::tolower(c); });
  return text;
}

bool has_word(const std::string& words, std::string_view word) {
  return (" " + words + " ").find(" " + std::string(word) + " ") != std::string::npos;
}

// ---- Properties
uint64_t dtypes_of(cl_device_id id, const std::string& extensions) {
  // 16-bit floating-point types are loaded and stored by integer code where the hardware has none.
  uint64_t mask = (FL_DTYPE_BIT(FL_FLOAT8_E8M0FNU) << 1) - 1;
  const bool fp64 = number_of<cl_bitfield>(id, CL_DEVICE_DOUBLE_FP_CONFIG) != 0 || has_word(extensions, "cl_khr_fp64");
  if (!fp64) mask &= ~(FL_DTYPE_BIT(FL_FLOAT64) | FL_DTYPE_BIT(FL_COMPLEX128));
  return mask;
}

struct MemoryKinds {
  bool unified, usm, shared_usm;
  cl_bitfield svm;
};

MemoryKinds memory_kinds(DeviceInfo& info, const std::string& extensions) {
  MemoryKinds kinds{};
  kinds.unified = info.cpu || number_of<cl_bool>(info.id, CL_DEVICE_HOST_UNIFIED_MEMORY) != 0;
  const bool svm = cl.clSVMAlloc && cl.clSVMFree && cl.clSetKernelArgSVMPointer && cl.clEnqueueSVMMemcpy &&
                   cl.clEnqueueSVMMemFill && cl.clEnqueueSVMMap && cl.clEnqueueSVMUnmap;
  if (svm) kinds.svm = number_of<cl_bitfield>(info.id, CL_DEVICE_SVM_CAPABILITIES);
  if (has_word(extensions, "cl_intel_unified_shared_memory") && load_usm(info.platform, info.usm)) {
    const auto shared = number_of<cl_bitfield>(info.id, CL_DEVICE_SINGLE_DEVICE_SHARED_MEM_CAPABILITIES_INTEL);
    const auto own = number_of<cl_bitfield>(info.id, CL_DEVICE_DEVICE_MEM_CAPABILITIES_INTEL);
    kinds.shared_usm = kinds.unified && (shared & CL_UNIFIED_SHARED_MEMORY_CONCURRENT_ACCESS_INTEL) != 0;
    kinds.usm = kinds.shared_usm || (own & CL_UNIFIED_SHARED_MEMORY_ACCESS_INTEL) != 0;
  }
  return kinds;
}

/// Pointers that the host may follow are best. Without them: the device's own memory, with pointers where possible.
Memory best_memory(const MemoryKinds& kinds) {
  if (kinds.unified && (kinds.svm & CL_DEVICE_SVM_FINE_GRAIN_BUFFER)) return Memory::kSvm;
  if (kinds.usm) return Memory::kUsm;
  return kinds.svm != 0 ? Memory::kSvm : Memory::kBuffer;
}

/// TORCH_FL_OPENCL_MEMORY. The kinds behind a hyphen are what GPUs have; on a CPU they are there to be tested.
struct Wish {
  const char* name;
  Memory memory;
  bool shared;  ///< with the host, where the device can
};
constexpr Wish kWishes[] = {{"svm", Memory::kSvm, true},
                            {"svm-coarse", Memory::kSvm, false},
                            {"usm", Memory::kUsm, true},
                            {"usm-device", Memory::kUsm, false},
                            {"buffer", Memory::kBuffer, false}};

void choose_memory(DeviceInfo& info, const MemoryKinds& kinds) {
  info.memory = best_memory(kinds);
  bool shared = kinds.unified;
  const char* wish = std::getenv("TORCH_FL_OPENCL_MEMORY");
  if (wish != nullptr && *wish != '\0') {
    const auto* found = std::find_if(std::begin(kWishes), std::end(kWishes),
                                     [&](const Wish& w) { return std::strcmp(w.name, wish) == 0; });
    if (found == std::end(kWishes)) {
      info.refusal =
          "TORCH_FL_OPENCL_MEMORY is \"" + printable(wish) + "\": expected svm, svm-coarse, usm, usm-device or buffer";
      return;
    }
    info.memory = found->memory;
    shared = shared && found->shared;
    if ((info.memory == Memory::kSvm && kinds.svm == 0) || (info.memory == Memory::kUsm && !kinds.usm))
      info.refusal = "TORCH_FL_OPENCL_MEMORY=" + printable(wish) + ", but " + info.label + " has no such memory";
  }
  info.fine_svm = shared && (kinds.svm & CL_DEVICE_SVM_FINE_GRAIN_BUFFER) != 0;
  info.shared_usm = shared && kinds.shared_usm;
}

void set_properties(DeviceInfo& info, const std::string& name, const std::string& platform, const MemoryKinds& kinds,
                    const std::string& extensions) {
  fl_device_properties& p = info.properties;
  p.capabilities = FL_CAP_TIMED_EVENTS;
  const bool coherent =
      (info.memory == Memory::kSvm && info.fine_svm) || (info.memory == Memory::kUsm && info.shared_usm);
  // Two devices whose memory is the host's need no more than memcpy between them.
  if (coherent) p.capabilities |= FL_CAP_HOST_COHERENT | FL_CAP_PEER_COPY;
  if (coherent && info.memory == Memory::kSvm && (kinds.svm & CL_DEVICE_SVM_FINE_GRAIN_SYSTEM))
    p.capabilities |= FL_CAP_UNIFIED;
  const std::string shown_platform = platform.substr(0, 60);
  const int room = static_cast<int>(sizeof p.name - 4 - shown_platform.size());
  std::snprintf(p.name, sizeof p.name, "%.*s (%s)", room, name.c_str(), shown_platform.c_str());
  std::snprintf(p.driver_version, sizeof p.driver_version, "%s", device_text(info.id, CL_DRIVER_VERSION).c_str());
  p.total_memory = number_of<cl_ulong>(info.id, CL_DEVICE_GLOBAL_MEM_SIZE);
  p.max_allocation = number_of<cl_ulong>(info.id, CL_DEVICE_MAX_MEM_ALLOC_SIZE);
  // In bits. No buffer begins elsewhere; alignments asked of SVM may not exceed the largest type, long16.
  uint64_t alignment = number_of<cl_uint>(info.id, CL_DEVICE_MEM_BASE_ADDR_ALIGN) / 8;
  if (alignment < 64 || (alignment & (alignment - 1)) != 0) alignment = 64;
  if (info.memory != Memory::kBuffer) alignment = std::min<uint64_t>(alignment, 128);
  p.alignment = std::min<uint64_t>(alignment, 64 << 10);
  p.size_granularity = 1;
  if (info.memory == Memory::kBuffer)
    p.max_allocation = std::min(p.max_allocation, BufferTable::kRange - p.size_granularity);
  p.dtypes = dtypes_of(info.id, extensions);
  p.compute_units = number_of<cl_uint>(info.id, CL_DEVICE_MAX_COMPUTE_UNITS);
  p.clock_mhz = number_of<cl_uint>(info.id, CL_DEVICE_MAX_CLOCK_FREQUENCY);
}

/// "OpenCL 3.0 ..."; zeros where it says something else.
std::pair<int, int> version_of(cl_device_id id) {
  std::pair<int, int> version{};
  if (std::sscanf(device_text(id, CL_DEVICE_VERSION).c_str(), "OpenCL %d.%d", &version.first, &version.second) != 2)
    return {};
  return version;
}

DeviceInfo describe(cl_platform_id platform, const std::string& platform_name, cl_device_id id) {
  DeviceInfo info;
  info.platform = platform;
  info.id = id;
  const std::string name = device_text(id, CL_DEVICE_NAME), extensions = device_text(id, CL_DEVICE_EXTENSIONS);
  info.label = name + " (" + platform_name + ")";
  info.has_timer = version_of(id) >= std::pair(2, 1);
  info.cpu = (number_of<cl_bitfield>(id, CL_DEVICE_TYPE) & CL_DEVICE_TYPE_CPU) != 0;
  const MemoryKinds kinds = memory_kinds(info, extensions);
  choose_memory(info, kinds);
  set_properties(info, name, platform_name, kinds, extensions);
  info.identity = "platform " + platform_name + " " + text_of(cl.clGetPlatformInfo, platform, CL_PLATFORM_VERSION) +
                  "; device " + name + "; driver " + info.properties.driver_version + "; version " +
                  device_text(id, CL_DEVICE_VERSION) + "; language " + device_text(id, CL_DEVICE_OPENCL_C_VERSION);
  return info;
}

// ---- Listing
struct Listing {
  std::vector<DeviceInfo> devices;
  std::string problem;  ///< why there is no device, or not all of them
  pid_t process = getpid();
};

/// TORCH_FL_OPENCL_DEVICES: pieces of "platform/device", separated by commas; letters' case does not matter.
bool is_chosen(const std::string& full_name) {
  const char* wish = std::getenv("TORCH_FL_OPENCL_DEVICES");
  if (wish == nullptr || *wish == '\0') return true;
  const std::string name = lower(full_name);
  std::string rest = lower(wish);
  while (!rest.empty()) {
    const size_t comma = rest.find(',');
    const std::string piece = printable(rest.substr(0, comma));
    if (!piece.empty() && name.find(piece) != std::string::npos) return true;
    rest = comma == std::string::npos ? "" : rest.substr(comma + 1);
  }
  return false;
}

std::vector<std::pair<std::string, cl_platform_id>> platforms_by_name() {
  cl_uint count = 0;
  if (cl.clGetPlatformIDs(0, nullptr, &count) != CL_SUCCESS || count == 0) return {};
  std::vector<cl_platform_id> ids(count);
  if (cl.clGetPlatformIDs(count, ids.data(), nullptr) != CL_SUCCESS) return {};
  std::vector<std::pair<std::string, cl_platform_id>> platforms;
  for (cl_platform_id id : ids) platforms.emplace_back(text_of(cl.clGetPlatformInfo, id, CL_PLATFORM_NAME), id);
  // The order in which a loader finds them is the file system's.
  std::stable_sort(platforms.begin(), platforms.end(), [](auto& a, auto& b) { return a.first < b.first; });
  return platforms;
}

/// A loader passes silently over runtimes that it cannot load; the dynamic linker says why.
std::string broken_runtimes() {
  const char* given = std::getenv("OCL_ICD_VENDORS");
  std::error_code error;
  std::string text;
  for (const auto& entry :
       std::filesystem::directory_iterator(given != nullptr && *given != '\0' ? given : kVendors, error)) {
    std::string library;
    if (entry.path().extension() != ".icd" || !std::getline(std::ifstream(entry.path()), library)) continue;
    library = printable(library);
    if (dlopen(library.c_str(), RTLD_LAZY | RTLD_LOCAL) != nullptr) continue;
    const char* said = dlerror();
    text += (text.empty() ? "" : "; ") + entry.path().string() + " names " + library + ", which cannot be loaded (" +
            printable(said != nullptr ? said : "no reason given") + ")";
  }
  return text;
}

Listing list() {
  Listing listing;
  std::string seen;
  const auto platforms = platforms_by_name();
  for (const auto& [platform_name, platform] : platforms) {
    cl_uint count = 0;
    cl_int code = cl.clGetDeviceIDs(platform, CL_DEVICE_TYPE_ALL, 0, nullptr, &count);
    std::vector<cl_device_id> ids(code == CL_SUCCESS ? count : 0);
    if (!ids.empty()) code = cl.clGetDeviceIDs(platform, CL_DEVICE_TYPE_ALL, count, ids.data(), nullptr);
    if (code != CL_SUCCESS || ids.empty()) {
      seen += (seen.empty() ? "" : ", ") + platform_name + " (without a device)";
      listing.problem += (listing.problem.empty() ? "" : "; ") + platform_name +
                         " has no device (clGetDeviceIDs: " + code_name(code) + ")";
      continue;
    }
    for (cl_device_id id : ids) {
      const std::string name = platform_name + "/" + device_text(id, CL_DEVICE_NAME);
      seen += (seen.empty() ? "" : ", ") + name;
      if (is_chosen(name)) listing.devices.push_back(describe(platform, platform_name, id));
    }
  }
  if (const std::string broken = broken_runtimes(); !broken.empty())
    listing.problem += (listing.problem.empty() ? "" : "; ") + broken;
  if (!listing.devices.empty()) return listing;
  const std::string others = listing.problem.empty() ? "" : "; " + listing.problem;
  const char* wish = std::getenv("TORCH_FL_OPENCL_DEVICES");
  if (platforms.empty())
    listing.problem =
        "OpenCL's loader works but shows no platform: install the vendor's runtime (Debian, for the CPU: "
        "pocl-opencl-icd); it is found through an .icd file in /etc/OpenCL/vendors or the folder OCL_ICD_VENDORS" +
        others;
  else if (wish != nullptr && *wish != '\0')
    listing.problem = "TORCH_FL_OPENCL_DEVICES=" + std::string(wish) + " names none of the devices: " + seen + others;
  else
    listing.problem = "no OpenCL device; platforms: " + seen + others;
  return listing;
}

const Listing& listing() {
  static const Listing* once = new Listing(list());  // never destroyed: tensors may outlive static objects
  return *once;
}

// ---- The table
fl_status count(int32_t* count) {
  return guarded([&]() -> fl_status {
    const Listing& found = listing();
    *count = static_cast<int32_t>(found.devices.size());
    if (!found.problem.empty()) fail(FL_UNSUPPORTED, found.problem);
    return *count > 0 ? FL_OK : FL_UNSUPPORTED;
  });
}

fl_status find_info(int32_t index, const DeviceInfo** info) {
  const auto& devices = listing().devices;
  if (index < 0 || static_cast<size_t>(index) >= devices.size())
    return fail(FL_INVALID_ARGUMENT, "there is no OpenCL device " + std::to_string(index) + ": " +
                                         std::to_string(devices.size()) + " were found");
  *info = &devices[static_cast<size_t>(index)];
  return FL_OK;
}

fl_status properties(int32_t index, fl_device_properties* properties) {
  return guarded([&]() -> fl_status {
    const DeviceInfo* info = nullptr;
    if (const fl_status status = find_info(index, &info); status != FL_OK) return status;
    const uint32_t room = properties->struct_size;
    std::memcpy(properties, &info->properties, std::min<size_t>(room, sizeof *properties));
    properties->struct_size = room;
    return FL_OK;
  });
}

fl_status open(int32_t index, fl_device* handle) {
  return guarded([&]() -> fl_status {
    const DeviceInfo* info = nullptr;
    if (const fl_status status = find_info(index, &info); status != FL_OK) return status;
    if (!info->refusal.empty()) return fail(FL_UNSUPPORTED, info->refusal);
    // Runtimes start their threads when devices are listed, and a forked child has none of them: it would wait for
    // ever.
    if (listing().process != getpid())
      return fail(FL_UNSUPPORTED,
                  "this process was forked from one that had listed the OpenCL devices; use the spawn start method");
    auto device = std::make_unique<Device>(*info, index);
    const intptr_t wanted[] = {CL_CONTEXT_PLATFORM, reinterpret_cast<intptr_t>(info->platform), 0};
    cl_int code = CL_SUCCESS;
    device->context = cl.clCreateContext(wanted, 1, &info->id, nullptr, nullptr, &code);
    if (device->context == nullptr) return failed(code, "clCreateContext", *info);
    if (const fl_status status = make_queue(*device, &device->default_stream.queue); status != FL_OK) return status;
    device->streams.push_back(&device->default_stream);
    *handle = reinterpret_cast<fl_device>(device.release());
    return FL_OK;
  });
}

void close(fl_device device) { delete &device_of(device); }

fl_status synchronize(fl_device device) { return finish_all(device_of(device)); }

}  // namespace

Device::~Device() {
  profile.stop();
  if (clock_queue != nullptr) cl.clReleaseCommandQueue(clock_queue);
  for (const auto& [pointer, buffer] : pinned) {
    cl.clEnqueueUnmapMemObject(default_stream.queue, buffer, pointer, 0, nullptr, nullptr);
    cl.clReleaseMemObject(buffer);
  }
  for (Stream* stream : streams) {
    cl.clFinish(stream->queue);
    if (stream->last != nullptr) cl.clReleaseEvent(stream->last);
    cl.clReleaseCommandQueue(stream->queue);
    if (stream != &default_stream) delete stream;
  }
  if (copier != nullptr) kCompilerApi.release(copier);
  if (context != nullptr) cl.clReleaseContext(context);
}

const fl_device_api kDeviceApi = {sizeof(fl_device_api), count, properties, open, close, synchronize};

}  // namespace fl_opencl
