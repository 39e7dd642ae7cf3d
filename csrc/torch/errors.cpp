// SPDX-License-Identifier: Apache-2.0
#include "errors.h"

#include <c10/util/Exception.h>

namespace torch_fl::glue {
namespace {

// What depends on values is found on the device, often after the call has returned. The plugin reports it in PyTorch's
// own words; the exception then has the type that the CPU's would have.
void throw_value_error(const c10::SourceLocation& here, const std::string& message) {
  const auto says = [&](const char* text) { return message.find(text) != std::string::npos; };
  if (says("aten::gather") || says("aten::scatter")) throw c10::Error(here, message);
  if (says("is out of bounds for dimension") || says("out of range")) throw c10::IndexError(here, message);
  if (says("ZeroDivisionError")) throw c10::Error(here, message);
}

}  // namespace

void throw_torch(const runtime::Error& error) {
  const c10::SourceLocation here{__func__, __FILE__, static_cast<uint32_t>(__LINE__)};
  if (error.status() == FL_INTERNAL || error.status() == FL_INVALID_ARGUMENT) throw_value_error(here, error.what());
  switch (error.status()) {
    case FL_OUT_OF_MEMORY:
      throw c10::OutOfMemoryError(here, error.what());
    case FL_UNSUPPORTED:
      throw c10::NotImplementedError(here, error.what());
    case FL_INVALID_ARGUMENT:
      throw c10::Error(here, error.what());
    default:
      throw c10::AcceleratorError(here, error.status(), error.what());
  }
}

}  // namespace torch_fl::glue
