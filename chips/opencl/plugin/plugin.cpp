// SPDX-License-Identifier: Apache-2.0
// The exported symbol. The chip has no kernels of its own: with the compiler table it gets the portable ones.
#include "device.h"
#include "status.h"

const fl_plugin* fl_plugin_get(const fl_host* host) {
  using namespace fl_opencl;
  set_host(host);
  if (const char* reason = load_opencl(); reason != nullptr) {
    fail(FL_UNSUPPORTED, reason);
    return nullptr;
  }
  static const fl_plugin plugin = [] {
    fl_plugin p = {};
    p.struct_size = sizeof(fl_plugin);
    p.abi_major = FL_ABI_MAJOR;
    p.abi_minor = FL_ABI_MINOR;
    p.name = "opencl";
    p.vendor = "Khronos OpenCL";
    p.version = "0.1.0";
    p.device = &kDeviceApi;
    p.memory = &kMemoryApi;
    p.stream = &kStreamApi;
    p.compiler = &kCompilerApi;
    p.profiler = &kProfilerApi;
    return p;
  }();
  return &plugin;
}
