// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <Python.h>

namespace torch_fl::glue {

/// The process ends: the interpreter's lock can't be taken any more.
inline bool interpreter_gone() {
#if PY_VERSION_HEX >= 0x030D0000
  return Py_IsInitialized() == 0 || Py_IsFinalizing() != 0;
#else
  return Py_IsInitialized() == 0 || _Py_IsFinalizing() != 0;
#endif
}

}  // namespace torch_fl::glue
