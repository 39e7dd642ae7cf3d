// SPDX-License-Identifier: Apache-2.0
// The kernel tables of the element-wise, reducing and random families, and what they share.
#pragma once

#include "launch.h"

namespace fl_sim {

/// Every element type with a name.
constexpr uint64_t kKnown = (UINT64_C(1) << (FL_FLOAT8_E8M0FNU + 1)) - 1;

Family copy_family();
Family pointwise_family();
Family element_loss_family();
Family shape_family();
Family reduce_family();
Family scan_family();
Family random_family();

/// dst[i] = src[i] with a cast where the element types differ; equal sizes, any strides.
void copy_view(const View& dst, const View& src);
void fill_view(const View& dst, const fl_value& value);

}  // namespace fl_sim
