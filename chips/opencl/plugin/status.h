// SPDX-License-Identifier: Apache-2.0
// OpenCL's codes as statuses of fl_plugin.h, with a text for the host.
#pragma once

#include <exception>
#include <new>
#include <string>

#include "cl_api.h"
#include "torch_fl/fl_plugin.h"

namespace fl_opencl {

struct DeviceInfo;

void set_host(const fl_host* host) noexcept;

/// Writes to the host's log.
void warn(const std::string& text) noexcept;

/// Hands the text to the host and returns the status.
fl_status fail(fl_status status, const char* text) noexcept;
inline fl_status fail(fl_status status, const std::string& text) noexcept { return fail(status, text.c_str()); }

/// "CL_OUT_OF_RESOURCES (-5)".
std::string code_name(cl_int code);
fl_status status_of(cl_int code) noexcept;

/// The failure of an OpenCL call: "clFoo failed on <device>: CL_NAME (-n)", and `detail` behind it.
fl_status failed(cl_int code, const char* call, const DeviceInfo& device, const std::string& detail = {}) noexcept;
/// The same for a failure that a wait reports: of work enqueued earlier.
fl_status failed_later(cl_int code, const char* call, const DeviceInfo& device) noexcept;
inline fl_status check(cl_int code, const char* call, const DeviceInfo& device) noexcept {
  return code == CL_SUCCESS ? FL_OK : failed(code, call, device);
}

/// Runs `function` so that no exception leaves the plugin.
template <typename F>
fl_status guarded(F&& function) noexcept {
  try {
    return function();
  } catch (const std::bad_alloc&) {
    return fail(FL_OUT_OF_MEMORY, "the host's memory is used up");
  } catch (const std::exception& error) {
    return fail(FL_INTERNAL, error.what());
  } catch (...) {
    return fail(FL_INTERNAL, "an exception of an unknown type");
  }
}

}  // namespace fl_opencl
