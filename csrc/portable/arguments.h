// SPDX-License-Identifier: Apache-2.0
// A call's arguments, as what the operator takes them for.
#pragma once

#include <cstdint>

#include "dialect.h"

namespace torch_fl::portable {

constexpr int kMostDims = 64;  // of a tensor
inline const fl_tensor& tensor(const fl_call& call, uint32_t i) { return *call.args[i].u.tensor; }
/// `absent`: of None.
inline double real(const fl_value& v, double absent = 0) {
  return v.kind == FL_NONE ? absent : v.kind == FL_REAL ? v.u.d : static_cast<double>(v.u.i);
}
inline int64_t integer(const fl_value& v, int64_t absent = 0) {
  return v.kind == FL_NONE ? absent : v.kind == FL_REAL ? static_cast<int64_t>(v.u.d) : v.u.i;
}
inline int64_t wrap(int64_t dim, int64_t ndim) { return dim < 0 ? dim + ndim : dim; }

}  // namespace torch_fl::portable
