// SPDX-License-Identifier: Apache-2.0
// torch_fl.UnsupportedOpError: raised when no allowed route exists.
#pragma once

#include <string>

#include "router.h"

namespace torch_fl::glue {

/// The Python class to raise; until it is set (and without an interpreter) a c10::NotImplementedError is thrown.
void set_unsupported_error(void* python_class);

/// "add.Tensor(fl:0 float32[2, 3], float64[])": the call as a person reads it.
std::string describe_call(const Call& call);

}  // namespace torch_fl::glue
