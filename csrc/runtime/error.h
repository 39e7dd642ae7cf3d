// SPDX-License-Identifier: Apache-2.0
// Errors of the runtime. The glue turns them into PyTorch's exceptions.
#pragma once

#include <stdexcept>
#include <string>

#include "torch_fl/fl_plugin.h"

namespace torch_fl::runtime {

class Error : public std::runtime_error {
 public:
  Error(fl_status status, const std::string& message) : std::runtime_error(message), status_(status) {}
  fl_status status() const noexcept { return status_; }

 private:
  fl_status status_;
};

/// "out of memory", "device lost", ...
const char* status_name(fl_status status) noexcept;

/// What a plugin said through host->set_error() on this thread since the last take; empty if nothing.
std::string take_plugin_message();
void set_plugin_message(fl_status status, const char* message);

}  // namespace torch_fl::runtime
