// SPDX-License-Identifier: Apache-2.0
#include "status.h"

#include "device.h"

namespace fl_opencl {
namespace {

const fl_host* the_host = nullptr;

const char* plain_name(cl_int code) {
#define FL_NAME(name) \
  case name:          \
    return #name;
  switch (code) {
    FL_NAME(CL_DEVICE_NOT_FOUND)
    FL_NAME(CL_DEVICE_NOT_AVAILABLE)
    FL_NAME(CL_COMPILER_NOT_AVAILABLE)
    FL_NAME(CL_MEM_OBJECT_ALLOCATION_FAILURE)
    FL_NAME(CL_OUT_OF_RESOURCES)
    FL_NAME(CL_OUT_OF_HOST_MEMORY)
    FL_NAME(CL_PROFILING_INFO_NOT_AVAILABLE)
    FL_NAME(CL_MEM_COPY_OVERLAP)
    FL_NAME(CL_BUILD_PROGRAM_FAILURE)
    FL_NAME(CL_MAP_FAILURE)
    FL_NAME(CL_EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST)
    FL_NAME(CL_COMPILE_PROGRAM_FAILURE)
    FL_NAME(CL_LINK_PROGRAM_FAILURE)
    FL_NAME(CL_INVALID_VALUE)
    FL_NAME(CL_INVALID_PLATFORM)
    FL_NAME(CL_INVALID_DEVICE)
    FL_NAME(CL_INVALID_CONTEXT)
    FL_NAME(CL_INVALID_QUEUE_PROPERTIES)
    FL_NAME(CL_INVALID_COMMAND_QUEUE)
    FL_NAME(CL_INVALID_HOST_PTR)
    FL_NAME(CL_INVALID_MEM_OBJECT)
    FL_NAME(CL_INVALID_BINARY)
    FL_NAME(CL_INVALID_BUILD_OPTIONS)
    FL_NAME(CL_INVALID_PROGRAM)
    FL_NAME(CL_INVALID_PROGRAM_EXECUTABLE)
    FL_NAME(CL_INVALID_KERNEL_NAME)
    FL_NAME(CL_INVALID_KERNEL_DEFINITION)
    FL_NAME(CL_INVALID_KERNEL)
    FL_NAME(CL_INVALID_ARG_INDEX)
    FL_NAME(CL_INVALID_ARG_VALUE)
    FL_NAME(CL_INVALID_ARG_SIZE)
    FL_NAME(CL_INVALID_KERNEL_ARGS)
    FL_NAME(CL_INVALID_WORK_DIMENSION)
    FL_NAME(CL_INVALID_WORK_GROUP_SIZE)
    FL_NAME(CL_INVALID_WORK_ITEM_SIZE)
    FL_NAME(CL_INVALID_GLOBAL_OFFSET)
    FL_NAME(CL_INVALID_EVENT_WAIT_LIST)
    FL_NAME(CL_INVALID_EVENT)
    FL_NAME(CL_INVALID_OPERATION)
    FL_NAME(CL_INVALID_BUFFER_SIZE)
    FL_NAME(CL_INVALID_GLOBAL_WORK_SIZE)
    FL_NAME(CL_INVALID_PROPERTY)
    FL_NAME(CL_PLATFORM_NOT_FOUND_KHR)
    default:
      return "an unknown code";
  }
#undef FL_NAME
}

}  // namespace

void set_host(const fl_host* host) noexcept { the_host = host; }

void warn(const std::string& text) noexcept {
  if (FL_HAS(the_host, log) && the_host->log != nullptr) the_host->log(FL_LOG_WARNING, text.c_str());
}

fl_status fail(fl_status status, const char* text) noexcept {
  if (FL_HAS(the_host, set_error) && the_host->set_error != nullptr) the_host->set_error(status, text);
  return status;
}

std::string code_name(cl_int code) { return std::string(plain_name(code)) + " (" + std::to_string(code) + ")"; }

fl_status status_of(cl_int code) noexcept {
  switch (code) {
    case CL_SUCCESS:
      return FL_OK;
    case CL_MEM_OBJECT_ALLOCATION_FAILURE:
    case CL_OUT_OF_RESOURCES:
    case CL_OUT_OF_HOST_MEMORY:
    case CL_INVALID_BUFFER_SIZE:  // larger than the device allows
      return FL_OUT_OF_MEMORY;
    case CL_DEVICE_NOT_AVAILABLE:
      return FL_DEVICE_LOST;
    case CL_MEM_COPY_OVERLAP:
    case CL_BUILD_PROGRAM_FAILURE:
    case CL_INVALID_VALUE:
    case CL_INVALID_BUILD_OPTIONS:
    case CL_INVALID_KERNEL_NAME:
    case CL_INVALID_ARG_INDEX:
    case CL_INVALID_ARG_VALUE:
    case CL_INVALID_ARG_SIZE:
    case CL_INVALID_KERNEL_ARGS:
    case CL_INVALID_WORK_DIMENSION:
    case CL_INVALID_WORK_GROUP_SIZE:
    case CL_INVALID_WORK_ITEM_SIZE:
    case CL_INVALID_GLOBAL_WORK_SIZE:
      return FL_INVALID_ARGUMENT;
    default:
      return FL_INTERNAL;
  }
}

namespace {

fl_status report(fl_status status, cl_int code, const char* call, const DeviceInfo& device, const std::string& detail) {
  std::string text = std::string(call) + " failed on " + device.label + ": " + code_name(code);
  if (!detail.empty()) text += ": " + detail;
  return fail(status, text);
}

}  // namespace

fl_status failed(cl_int code, const char* call, const DeviceInfo& device, const std::string& detail) noexcept {
  return guarded([&] { return report(status_of(code), code, call, device, detail); });
}

fl_status failed_later(cl_int code, const char* call, const DeviceInfo& device) noexcept {
  return guarded([&] {
    // Drivers of GPUs say so after a kernel that left its memory as well: no reason to speak of memory used up.
    if (code == CL_OUT_OF_RESOURCES)
      return report(FL_INTERNAL, code, call, device, "a kernel may have read or written outside its memory");
    return report(status_of(code), code, call, device, "");
  });
}

}  // namespace fl_opencl
