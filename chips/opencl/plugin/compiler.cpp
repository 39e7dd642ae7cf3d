// SPDX-License-Identifier: Apache-2.0
// Source to programs, programs to bytes and back, and launches.
#include <cstring>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "device.h"
#include "status.h"

namespace fl_opencl {
namespace {

/// A value of at most 8 bytes, or an address, as it was set last: setting it again is skipped.
struct KnownArg {
  static constexpr uint32_t kUnknown = ~UINT32_C(0);
  uint64_t value = 0;
  uint32_t size = kUnknown;
};

/// Arguments belong to the kernel object, so setting them and enqueuing is one critical section.
struct Kernel {
  std::string name;
  cl_kernel kernel = nullptr;
  cl_uint n_args = 0;
  std::mutex mutex;
  std::vector<KnownArg> known;
  uint64_t frees = 0;  ///< Device::frees when the addresses in `known` were set

  ~Kernel() {
    if (kernel != nullptr) cl.clReleaseKernel(kernel);
  }
};

/// Immutable once made, apart from each kernel's arguments: a look-up takes no lock.
struct Module {
  explicit Module(Device& device) : device(device) {}
  ~Module() {
    kernels.clear();
    if (program != nullptr) cl.clReleaseProgram(program);
  }
  Module(const Module&) = delete;

  Device& device;
  cl_program program = nullptr;
  std::vector<std::unique_ptr<Kernel>> kernels;
  std::mutex saved_mutex;
  std::vector<unsigned char> saved;
};

Module& module_of(fl_module module) { return *reinterpret_cast<Module*>(module); }

// ---- Building
std::string build_log(const Module& module) {
  size_t bytes = 0;
  const cl_device_id id = module.device.info.id;
  if (cl.clGetProgramBuildInfo(module.program, id, CL_PROGRAM_BUILD_LOG, 0, nullptr, &bytes) != CL_SUCCESS) return "";
  std::string text(bytes, '\0');
  cl.clGetProgramBuildInfo(module.program, id, CL_PROGRAM_BUILD_LOG, bytes, text.data(), nullptr);
  text.resize(std::strlen(text.c_str()));
  return text;
}

fl_status make_kernels(Module& module) {
  const DeviceInfo& info = module.device.info;
  cl_uint count = 0;
  cl_int code = cl.clCreateKernelsInProgram(module.program, 0, nullptr, &count);
  if (code != CL_SUCCESS) return failed(code, "clCreateKernelsInProgram", info);
  std::vector<cl_kernel> kernels(count);
  if (count > 0) code = cl.clCreateKernelsInProgram(module.program, count, kernels.data(), nullptr);
  if (code != CL_SUCCESS) return failed(code, "clCreateKernelsInProgram", info);
  for (cl_kernel kernel : kernels) {
    auto made = std::make_unique<Kernel>();
    made->kernel = kernel;
    size_t bytes = 0;
    code = cl.clGetKernelInfo(kernel, CL_KERNEL_FUNCTION_NAME, 0, nullptr, &bytes);
    made->name.resize(bytes);
    if (code == CL_SUCCESS)
      code = cl.clGetKernelInfo(kernel, CL_KERNEL_FUNCTION_NAME, bytes, made->name.data(), nullptr);
    if (code == CL_SUCCESS)
      code = cl.clGetKernelInfo(kernel, CL_KERNEL_NUM_ARGS, sizeof made->n_args, &made->n_args, nullptr);
    if (code != CL_SUCCESS) return failed(code, "clGetKernelInfo", info);
    made->name.resize(std::strlen(made->name.c_str()));
    made->known.resize(made->n_args);
    module.kernels.push_back(std::move(made));
  }
  return FL_OK;
}

fl_status build(Module& module, const char* flags) {
  const cl_device_id id = module.device.info.id;
  // Compilers that are part of this process would tell its stderr how many warnings there are.
  const std::string quiet = std::string("-w ") + flags;
  const cl_int code = cl.clBuildProgram(module.program, 1, &id, quiet.c_str(), nullptr, nullptr);
  if (code != CL_SUCCESS) return failed(code, "clBuildProgram", module.device.info, "\n" + build_log(module));
  return make_kernels(module);
}

/// As text in front of the source, since options are split at blanks. #line keeps the numbers in messages.
std::string definitions(const fl_compile_options* options) {
  std::string text;
  if (options == nullptr) return text;
  for (uint32_t i = 0; i < options->n_defines; ++i) {
    const std::string_view define = options->defines[i];
    const size_t equals = define.find('=');
    text += "#define " + std::string(define.substr(0, equals)) + " ";
    text += equals == std::string_view::npos ? "1" : define.substr(equals + 1);
    text += "\n";
  }
  if (!text.empty()) text += "#line 1\n";
  return text;
}

fl_status compile(fl_device handle, const char* source, const fl_compile_options* options, fl_module* module) {
  return guarded([&]() -> fl_status {
    auto made = std::make_unique<Module>(device_of(handle));
    const std::string head = definitions(options);
    const char* texts[] = {head.c_str(), source};
    cl_int code = CL_SUCCESS;
    made->program = head.empty() ? cl.clCreateProgramWithSource(made->device.context, 1, &source, nullptr, &code)
                                 : cl.clCreateProgramWithSource(made->device.context, 2, texts, nullptr, &code);
    if (made->program == nullptr) return failed(code, "clCreateProgramWithSource", made->device.info);
    const char* flags = options != nullptr && FL_HAS(options, flags) && options->flags != nullptr ? options->flags : "";
    if (const fl_status status = build(*made, flags); status != FL_OK) return status;
    *module = reinterpret_cast<fl_module>(made.release());
    return FL_OK;
  });
}

fl_status release(fl_module module) {
  delete &module_of(module);
  return FL_OK;
}

fl_status identity(fl_device handle, char* text, uint64_t capacity) {
  const std::string& all = device_of(handle).info.identity;
  if (capacity <= all.size()) return fail(FL_INVALID_ARGUMENT, "the identity's text needs a larger buffer");
  std::memcpy(text, all.c_str(), all.size() + 1);
  return FL_OK;
}

// ---- Bytes. Drivers may crash on bytes that are not theirs, so a header of our own is checked first.
struct BinaryHeader {
  char magic[8];
  uint64_t identity;  ///< hash of DeviceInfo::identity
  uint64_t bytes;     ///< that follow
  uint64_t checksum;  ///< of those
};
constexpr char kMagic[8] = {'F', 'L', '-', 'C', 'L', '-', '1', '\0'};

/// FNV-1a.
uint64_t hash(const void* data, size_t bytes) {
  const auto* p = static_cast<const unsigned char*>(data);
  uint64_t h = UINT64_C(0xcbf29ce484222325);
  for (size_t i = 0; i < bytes; ++i) h = (h ^ p[i]) * UINT64_C(0x100000001b3);
  return h;
}

uint64_t identity_hash(const Device& device) { return hash(device.info.identity.data(), device.info.identity.size()); }

fl_status read_binary(const Module& module, std::vector<unsigned char>& all) {
  const DeviceInfo& info = module.device.info;
  size_t bytes = 0;
  cl_int code = cl.clGetProgramInfo(module.program, CL_PROGRAM_BINARY_SIZES, sizeof bytes, &bytes, nullptr);
  if (code != CL_SUCCESS) return failed(code, "clGetProgramInfo", info);
  if (bytes == 0) return fail(FL_UNSUPPORTED, info.label + " gives no binary of a program");
  all.resize(sizeof(BinaryHeader) + bytes);
  unsigned char* binary = all.data() + sizeof(BinaryHeader);
  code = cl.clGetProgramInfo(module.program, CL_PROGRAM_BINARIES, sizeof binary, &binary, nullptr);
  if (code != CL_SUCCESS) return failed(code, "clGetProgramInfo", info);
  BinaryHeader header{{}, identity_hash(module.device), bytes, hash(binary, bytes)};
  std::memcpy(header.magic, kMagic, sizeof kMagic);
  std::memcpy(all.data(), &header, sizeof header);
  return FL_OK;
}

/// A driver's binary may grow between two calls (kernels are compiled when first launched): the size that was told
/// belongs to bytes that are kept until they are fetched.
fl_status save(fl_module handle, void* binary, uint64_t* bytes) {
  return guarded([&]() -> fl_status {
    Module& module = module_of(handle);
    const std::lock_guard lock(module.saved_mutex);
    if (binary == nullptr || module.saved.empty()) {
      const fl_status status = read_binary(module, module.saved);
      if (status != FL_OK) {
        module.saved.clear();
        return status;
      }
    }
    const uint64_t room = *bytes;
    *bytes = module.saved.size();
    if (binary == nullptr) return FL_OK;
    if (room < *bytes) return fail(FL_INVALID_ARGUMENT, "save: the buffer is smaller than the binary");
    std::memcpy(binary, module.saved.data(), module.saved.size());
    std::vector<unsigned char>().swap(module.saved);
    return FL_OK;
  });
}

const char* why_foreign(const Device& device, const void* binary, uint64_t bytes, BinaryHeader& header) {
  if (bytes < sizeof header) return "it is too short";
  std::memcpy(&header, binary, sizeof header);
  if (std::memcmp(header.magic, kMagic, sizeof kMagic) != 0) return "it is no binary of this plugin";
  if (header.identity != identity_hash(device)) return "it is of another device or driver";
  if (header.bytes != bytes - sizeof header) return "its length is wrong";
  if (header.checksum != hash(static_cast<const char*>(binary) + sizeof header, header.bytes)) return "it is damaged";
  return nullptr;
}

fl_status load(fl_device handle, const void* binary, uint64_t bytes, fl_module* module) {
  return guarded([&]() -> fl_status {
    Device& device = device_of(handle);
    BinaryHeader header{};
    if (const char* why = why_foreign(device, binary, bytes, header); why != nullptr)
      return fail(FL_UNSUPPORTED, "the compiled module cannot be loaded on " + device.info.label + ": " + why);
    auto made = std::make_unique<Module>(device);
    const size_t length = header.bytes;
    const auto* data = static_cast<const unsigned char*>(binary) + sizeof header;
    cl_int state = CL_SUCCESS, code = CL_SUCCESS;
    made->program = cl.clCreateProgramWithBinary(device.context, 1, &device.info.id, &length, &data, &state, &code);
    if (code == CL_SUCCESS) code = state;
    const fl_status status = made->program == nullptr || code != CL_SUCCESS
                                 ? failed(code, "clCreateProgramWithBinary", device.info)
                                 : build(*made, "");
    if (status == FL_OUT_OF_MEMORY) return status;
    // The checks above passed, so it is the driver that has changed its mind.
    if (status != FL_OK) return fail(FL_UNSUPPORTED, "the driver of " + device.info.label + " refuses its own binary");
    *module = reinterpret_cast<fl_module>(made.release());
    return FL_OK;
  });
}

// ---- Launching
Kernel* find_kernel(Module& module, const char* entry) {
  for (const auto& kernel : module.kernels)
    if (kernel->name == entry) return kernel.get();
  return nullptr;
}

fl_status no_kernel(const Module& module, const char* entry) {
  std::string names;
  for (const auto& kernel : module.kernels) names += " " + kernel->name;
  return fail(FL_INVALID_ARGUMENT, "the module has no kernel " + std::string(entry) + "; it has:" + names);
}

/// Sets arguments; the kernel's mutex is held.
class Arguments {
 public:
  Arguments(Device& device, Kernel& kernel, const fl_launch& launch)
      : device_(device), kernel_(kernel), launch_(launch) {
    const uint64_t frees = device.frees.load(std::memory_order_relaxed);
    // The same address may mean new memory, which a driver may have resolved when the argument was set.
    if (frees != kernel.frees)
      for (KnownArg& known : kernel.known) known.size = KnownArg::kUnknown;
    kernel.frees = frees;
  }

  fl_status set_all() {
    for (cl_uint i = 0; i < launch_.n_args; ++i) {
      if (launch_.arg_sizes[i] != FL_ARG_ADDRESS) {
        if (!set_value(i, launch_.args[i], launch_.arg_sizes[i])) return argument_failed(i);
        continue;
      }
      fl_address address = 0;
      std::memcpy(&address, launch_.args[i], sizeof address);
      if (device_.info.memory != Memory::kBuffer) {
        if (!set_pointer(i, address)) return argument_failed(i);
        continue;
      }
      if (i + 1 >= launch_.n_args || launch_.arg_sizes[i + 1] != sizeof(uint64_t))
        return fail(FL_INVALID_ARGUMENT,
                    kernel_.name + ": no 64-bit offset follows address argument " + std::to_string(i));
      if (const fl_status status = set_buffer(i, address); status != FL_OK) return status;
      ++i;
    }
    if (launch_.local_bytes > 0 &&
        !call(cl.clSetKernelArg(kernel_.kernel, launch_.n_args, launch_.local_bytes, nullptr)))
      return argument_failed(launch_.n_args);
    return FL_OK;
  }

 private:
  bool call(cl_int code) {
    code_ = code;
    return code == CL_SUCCESS;
  }

  bool is_known(cl_uint index, uint64_t value, uint32_t size) {
    const KnownArg& known = kernel_.known[index];
    return known.value == value && known.size == size;
  }
  void remember(cl_uint index, uint64_t value, uint32_t size) { kernel_.known[index] = {value, size}; }

  bool set_value(cl_uint index, const void* value, uint32_t size) {
    if (size > sizeof(uint64_t)) return call(cl.clSetKernelArg(kernel_.kernel, index, size, value));
    uint64_t bits = 0;
    std::memcpy(&bits, value, size);
    if (is_known(index, bits, size)) return true;
    if (!call(cl.clSetKernelArg(kernel_.kernel, index, size, value))) return false;
    remember(index, bits, size);
    return true;
  }

  bool set_pointer(cl_uint index, fl_address address) {
    if (is_known(index, address, FL_ARG_ADDRESS)) return true;
    const auto* pointer = reinterpret_cast<const void*>(static_cast<uintptr_t>(address));
    const cl_mem none = nullptr;
    if (!call(address == 0 ? cl.clSetKernelArg(kernel_.kernel, index, sizeof none, &none)
              : device_.info.memory == Memory::kSvm
                  ? cl.clSetKernelArgSVMPointer(kernel_.kernel, index, pointer)
                  : device_.info.usm.clSetKernelArgMemPointerINTEL(kernel_.kernel, index, pointer)))
      return false;
    remember(index, address, FL_ARG_ADDRESS);
    return true;
  }

  /// The handle, and behind it the offset that the host left at zero.
  fl_status set_buffer(cl_uint index, fl_address address) {
    BufferTable::Place place{};
    if (address != 0 && !device_.buffers.find(address, place))
      return fail(FL_INVALID_ARGUMENT,
                  kernel_.name + ": argument " + std::to_string(index) + " is no address of " + device_.info.label);
    const auto handle = static_cast<uint64_t>(reinterpret_cast<uintptr_t>(place.buffer));
    if (!is_known(index, handle, FL_ARG_ADDRESS)) {
      if (!call(cl.clSetKernelArg(kernel_.kernel, index, sizeof place.buffer, &place.buffer)))
        return argument_failed(index);
      remember(index, handle, FL_ARG_ADDRESS);
    }
    uint64_t offset = 0;
    std::memcpy(&offset, launch_.args[index + 1], sizeof offset);
    offset += place.offset;
    return set_value(index + 1, &offset, sizeof offset) ? FL_OK : argument_failed(index + 1);
  }

  fl_status argument_failed(cl_uint index) {
    kernel_.known[index < kernel_.n_args ? index : 0].size = KnownArg::kUnknown;
    return failed(code_, "setting a kernel's argument", device_.info,
                  "kernel " + kernel_.name + ", argument " + std::to_string(index));
  }

  Device& device_;
  Kernel& kernel_;
  const fl_launch& launch_;
  cl_int code_ = CL_SUCCESS;
};

struct Range {
  size_t global[3], local[3];
  bool has_local = false;
  bool empty = false;
};

/// Where the chip chooses: on CPUs one of a few fixed sizes, since a runtime compiles the kernel anew for each; few
/// items are large ones, and each is then a work group of its own. GPUs' drivers choose by themselves.
size_t choose_local(const DeviceInfo& info, size_t first, size_t all) {
  if (all < size_t{64} * 16 * info.properties.compute_units) return 1;
  return first % 64 == 0 ? 64 : first % 8 == 0 ? 8 : 1;
}

Range range_of(const DeviceInfo& info, const fl_launch& launch) {
  Range range{};
  size_t all = 1;
  for (uint32_t d = 0; d < launch.work_dim; ++d) {
    range.global[d] = launch.global_size[d];
    range.local[d] = launch.local_size[d] == 0 ? 1 : launch.local_size[d];
    range.has_local |= launch.local_size[d] != 0;
    all *= range.global[d];
  }
  range.empty = all == 0;
  if (!range.has_local && info.cpu) {
    range.local[0] = choose_local(info, range.global[0], all);
    range.has_local = true;
  }
  return range;
}

fl_status enqueue(Device& device, Stream& stream, Kernel& kernel, const fl_launch& launch) {
  const Range range = range_of(device.info, launch);
  if (range.empty) return FL_OK;
  const std::lock_guard lock(kernel.mutex);
  if (const fl_status status = Arguments(device, kernel, launch).set_all(); status != FL_OK) return status;
  Enqueuing command(stream);
  const cl_int code = cl.clEnqueueNDRangeKernel(stream.queue, kernel.kernel, launch.work_dim, nullptr, range.global,
                                                range.has_local ? range.local : nullptr, 0, nullptr, command.event());
  if (code != CL_SUCCESS) return failed(code, "clEnqueueNDRangeKernel", device.info, "kernel " + kernel.name);
  note_profiled(device, stream, command, FL_PROFILE_KERNEL, kernel.name, 0);
  return FL_OK;
}

fl_status launch(fl_device handle, fl_stream stream, fl_module module, const char* entry, const fl_launch* launch) {
  return guarded([&]() -> fl_status {
    Device& device = device_of(handle);
    Module& m = module_of(module);
    Kernel* kernel = find_kernel(m, entry);
    if (kernel == nullptr) return no_kernel(m, entry);
    const cl_uint given = launch->n_args + (launch->local_bytes > 0 ? 1 : 0);
    if (given != kernel->n_args)
      return fail(FL_INVALID_ARGUMENT, "the kernel " + kernel->name + " has " + std::to_string(kernel->n_args) +
                                           " parameters, but " + std::to_string(given) + " arguments came");
    if (launch->work_dim < 1 || launch->work_dim > 3)
      return fail(FL_INVALID_ARGUMENT, "work_dim is " + std::to_string(launch->work_dim) + ": expected 1 to 3");
    return enqueue(device, device.stream(stream), *kernel, *launch);
  });
}

}  // namespace

const fl_compiler_api kCompilerApi = {
    .struct_size = sizeof(fl_compiler_api),
    .reserved = 0,
    .dialect = "opencl-c",
    .identity = identity,
    .compile = compile,
    .save = save,
    .load = load,
    .release = release,
    .launch = launch,
};

}  // namespace fl_opencl
