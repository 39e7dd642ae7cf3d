// SPDX-License-Identifier: Apache-2.0
// Finds OpenCL's loader and its functions at run time.
#include <dlfcn.h>

#include <cstdlib>
#include <string>

#include "cl_api.h"

namespace fl_opencl {

Functions cl;

namespace {

constexpr const char* kLoader = "libOpenCL.so.1";
constexpr const char* kVariable = "TORCH_FL_OPENCL_LIBRARY";

std::string open_loader() {
  const char* given = std::getenv(kVariable);
  const std::string name = given != nullptr && *given != '\0' ? given : kLoader;
  // Never closed: runtimes start threads of their own.
  void* library = dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    const char* said = dlerror();
    return "no OpenCL loader (" + name +
           "): install one (Debian: ocl-icd-libopencl1) and the vendor's runtime, or set " + kVariable +
           " to its path; the system says: " + (said != nullptr ? said : "nothing");
  }
  const char* missing = nullptr;
#define FL_FIND(result, function, parameters) \
  cl.function = reinterpret_cast<result(*) parameters>(dlsym(library, #function));
#define FL_REQUIRE(result, function, parameters) \
  FL_FIND(result, function, parameters)          \
  if (cl.function == nullptr) missing = #function;
  FL_CL_FUNCTIONS(FL_REQUIRE)
  FL_CL_SVM_FUNCTIONS(FL_FIND)
  FL_CL_TIMER_FUNCTIONS(FL_FIND)
#undef FL_REQUIRE
#undef FL_FIND
  if (missing == nullptr) return "";
  return "the library " + name + " is no OpenCL loader of version 1.2 or later: it has no function " + missing;
}

}  // namespace

const char* load_opencl() {
  static const std::string reason = open_loader();
  return reason.empty() ? nullptr : reason.c_str();
}

bool load_usm(cl_platform_id platform, UsmFunctions& functions) {
  bool complete = true;
#define FL_FIND(result, function, parameters)                                                                   \
  functions.function =                                                                                          \
      reinterpret_cast<result(*) parameters>(cl.clGetExtensionFunctionAddressForPlatform(platform, #function)); \
  if (functions.function == nullptr) complete = false;
  FL_CL_USM_FUNCTIONS(FL_FIND)
#undef FL_FIND
  return complete;
}

}  // namespace fl_opencl
