// SPDX-License-Identifier: Apache-2.0
// Scalar arguments as a kernel gets them.
#pragma once

#include "entry.h"
#include "torch_fl/fl_plugin.h"

namespace torch_fl::glue {

/// FL_OPAQUE for an integer above INT64_MAX: the call is the CPU's.
fl_value scalar_value(const at::Scalar& s);
/// The value of a CPU tensor of one element.
fl_value host_scalar(const at::Tensor& t);

/// Brings a scalar into the range of `type` as PyTorch does, where it converts Scalars to the type it computes in.
/// False where PyTorch raises.
bool fit_scalar(fl_value& v, fl_dtype type);

/// False for scalars at which PyTorch's integer kernels raise: a divisor of 0, a negative exponent.
bool valid_operand(const Entry& entry, uint32_t i, const fl_value& v, fl_dtype type);

}  // namespace torch_fl::glue
