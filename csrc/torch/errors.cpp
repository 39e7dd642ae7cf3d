// SPDX-License-Identifier: Apache-2.0
#include "errors.h"

#include <c10/util/Exception.h>

#include "python_chip.h"

namespace torch_fl::glue {

void throw_torch(const runtime::Error& error) {
  throw_python_cause(error);
  const c10::SourceLocation here{__func__, __FILE__, static_cast<uint32_t>(__LINE__)};
  switch (error.status()) {
    case FL_OUT_OF_MEMORY:
      throw c10::OutOfMemoryError(here, error.what());
    case FL_UNSUPPORTED:
      throw c10::NotImplementedError(here, error.what());
    case FL_INVALID_ARGUMENT:
      throw c10::Error(here, error.what());
    case FL_OUT_OF_RANGE:
      throw c10::IndexError(here, error.what());
    default:
      throw c10::AcceleratorError(here, error.status(), error.what());
  }
}

}  // namespace torch_fl::glue
