// SPDX-License-Identifier: Apache-2.0
// Chips that are Python classes (torch_fl/chips/python_backend/). The core sees an ordinary chip whose tables call
// Python with the interpreter's lock held.
#pragma once

#include "entry.h"
#include "runtime/device.h"

namespace torch_fl::glue {

/// The row through which a Python class that lists no operators is asked for this overload, made on first use.
/// Null: not such a chip, or a call that no kernel can express.
const fl_kernel* python_row(const runtime::Chip& chip, const Entry& entry);

/// The properties of a device, with what init_runtime() said since.
fl_device_properties described_properties(const runtime::Device& device);

/// If `error` tells of a Python exception that was just raised on this thread: throws what Python shall see, a
/// RuntimeError with that exception as its cause.
void throw_python_cause(const runtime::Error& error);

}  // namespace torch_fl::glue
