// SPDX-License-Identifier: Apache-2.0
// launch_cost LIBRARY: what enqueuing one launch costs through the plugin, beside OpenCL's own calls for the same
// kernel (TORCH_FL_OPENCL_MEMORY chooses the kind of memory). Microseconds; the lower quartile of 60 batches of 200.
#include <dlfcn.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "../plugin/cl_api.h"
#include "torch_fl/fl_plugin.h"

using namespace fl_opencl;

namespace {

constexpr const char* kSource =
    "__kernel void k(__global float* a, ulong ao, __global float* b, ulong bo, __global float* c, ulong co, long n) {"
    "  if (n < 0) a[ao] = b[bo] + c[co];"
    "}";

void must(int code, const char* what) {
  if (code == 0) return;
  std::fprintf(stderr, "%s failed: %d\n", what, code);
  std::exit(1);
}

template <typename Launch, typename Wait>
double cost(Launch launch, Wait wait) {
  std::vector<double> times;
  for (int batch = 0; batch < 60; ++batch) {
    const auto start = std::chrono::steady_clock::now();
    for (int i = 0; i < 200; ++i) launch(i);
    const std::chrono::duration<double, std::micro> took = std::chrono::steady_clock::now() - start;
    times.push_back(took.count() / 200);
    wait();
  }
  std::sort(times.begin(), times.end());
  return times[times.size() / 4];
}

// What the plugin would call, on a queue and a context of our own.
struct Bare {
  explicit Bare(const fl_device_properties& properties) {
    cl_uint n = 0;
    cl.clGetPlatformIDs(0, nullptr, &n);
    std::vector<cl_platform_id> platforms(n);
    cl.clGetPlatformIDs(n, platforms.data(), nullptr);
    for (cl_platform_id candidate : platforms) {
      char name[128] = {};
      cl.clGetPlatformInfo(candidate, CL_PLATFORM_NAME, sizeof name, name, nullptr);
      if (std::string(properties.name).find("(" + std::string(name) + ")") != std::string::npos) platform = candidate;
    }
    cl_device_id device = nullptr;
    must(cl.clGetDeviceIDs(platform, CL_DEVICE_TYPE_ALL, 1, &device, nullptr), "clGetDeviceIDs");
    cl_int code = 0;
    context = cl.clCreateContext(nullptr, 1, &device, nullptr, nullptr, &code);
    must(code, "clCreateContext");
    queue = cl.clCreateCommandQueue(context, device, CL_QUEUE_PROFILING_ENABLE, &code);
    const char* source = kSource;
    cl_program program = cl.clCreateProgramWithSource(context, 1, &source, nullptr, &code);
    must(cl.clBuildProgram(program, 1, &device, "", nullptr, nullptr), "clBuildProgram");
    must(cl.clCreateKernelsInProgram(program, 1, &kernel, nullptr), "clCreateKernelsInProgram");
    const std::string wish = std::getenv("TORCH_FL_OPENCL_MEMORY") ? std::getenv("TORCH_FL_OPENCL_MEMORY") : "";
    kind = wish.empty() ? 's' : wish[0];
    if (kind == 'u') load_usm(platform, usm);
    for (int i = 0; i < 5; ++i) {
      if (kind == 's') pointers.push_back(cl.clSVMAlloc(context, CL_MEM_SVM_FINE_GRAIN_BUFFER, 4096, 0));
      if (kind == 'u') pointers.push_back(usm.clSharedMemAllocINTEL(context, device, nullptr, 4096, 64, &code));
      if (kind == 'b') buffers.push_back(cl.clCreateBuffer(context, CL_MEM_READ_WRITE, 4096, nullptr, &code));
    }
  }

  void set(int64_t i) {
    const uint64_t offset = 0;
    for (cl_uint a = 0; a < 3; ++a) {
      const size_t which = static_cast<size_t>(i + a) % 5;
      if (kind == 's') cl.clSetKernelArgSVMPointer(kernel, 2 * a, pointers[which]);
      if (kind == 'u') usm.clSetKernelArgMemPointerINTEL(kernel, 2 * a, pointers[which]);
      if (kind == 'b') cl.clSetKernelArg(kernel, 2 * a, sizeof(cl_mem), &buffers[which]);
      cl.clSetKernelArg(kernel, 2 * a + 1, sizeof offset, &offset);
    }
    cl.clSetKernelArg(kernel, 6, sizeof i, &i);
  }
  void enqueue() {
    const size_t one = 1;
    must(cl.clEnqueueNDRangeKernel(queue, kernel, 1, nullptr, &one, &one, 0, nullptr, nullptr), "clEnqueueNDRange");
  }

  char kind = 's';
  cl_platform_id platform = nullptr;
  cl_context context = nullptr;
  cl_command_queue queue = nullptr;
  cl_kernel kernel = nullptr;
  UsmFunctions usm;
  std::vector<void*> pointers;
  std::vector<cl_mem> buffers;
};

void measure(const fl_plugin& plugin, int32_t index) {
  fl_device_properties properties{};
  properties.struct_size = sizeof properties;
  must(plugin.device->properties(index, &properties), "properties");
  fl_device device = nullptr;
  if (plugin.device->open(index, &device) != FL_OK) return;
  const fl_compile_options options = {sizeof options, 0, nullptr, nullptr};
  fl_module module = nullptr;
  fl_stream stream = nullptr;
  must(plugin.compiler->compile(device, kSource, &options, &module), "compile");
  must(plugin.stream->create(device, 0, &stream), "stream create");
  fl_address memory[5];
  for (fl_address& address : memory) must(plugin.memory->alloc(device, 4096, &address), "alloc");
  fl_address a[3] = {memory[0], memory[1], memory[2]};
  const uint64_t offset = 0;
  int64_t n = 0;
  const void* args[] = {&a[0], &offset, &a[1], &offset, &a[2], &offset, &n};
  const uint32_t sizes[] = {0, 8, 0, 8, 0, 8, 8};
  const fl_launch launch = {sizeof launch, 1, {1}, {1}, 7, 0, args, sizes};
  const auto enqueue = [&](int) { must(plugin.compiler->launch(device, stream, module, "k", &launch), "launch"); };
  const auto enqueue_changed = [&](int i) {
    for (int k = 0; k < 3; ++k) a[k] = memory[(i + k) % 5];
    n = i;
    enqueue(i);
  };
  const auto wait = [&] { must(plugin.stream->synchronize(device, stream), "synchronize"); };
  enqueue(0), wait();
  const double same = cost(enqueue, wait), changed = cost(enqueue_changed, wait);

  Bare bare(properties);
  const auto finish = [&] { cl.clFinish(bare.queue); };
  bare.set(0), bare.enqueue(), finish();
  const double bare_same = cost([&](int) { bare.enqueue(); }, finish);
  const double bare_changed = cost([&](int i) { bare.set(i), bare.enqueue(); }, finish);
  std::printf("%s: same arguments %.2f (bare %.2f), all changed %.2f (bare %.2f)\n", properties.name, same, bare_same,
              changed, bare_changed);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) return std::fprintf(stderr, "usage: launch_cost LIBRARY\n"), 2;
  void* library = dlopen(argv[1], RTLD_NOW);
  const auto get = library ? reinterpret_cast<fl_plugin_get_fn>(dlsym(library, FL_PLUGIN_ENTRY)) : nullptr;
  fl_host host{};
  host.struct_size = sizeof host;
  host.set_error = [](fl_status, const char* text) { std::fprintf(stderr, "%s\n", text); };
  const fl_plugin* plugin = get ? get(&host) : nullptr;
  if (plugin == nullptr || load_opencl() != nullptr) return 1;
  int32_t count = 0;
  must(plugin->device->count(&count), "count");
  for (int32_t i = 0; i < count; ++i) measure(*plugin, i);
}
