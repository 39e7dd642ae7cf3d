// SPDX-License-Identifier: Apache-2.0
#include "isa.h"

#include "launch.h"

namespace fl_sim {

bool use_avx2() {
#if defined(FL_SIM_HAVE_AVX2)
  static const bool has =
      __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("f16c");
  return has;
#else
  return false;
#endif
}

const Converters& converters() {
  static const Converters& table = FL_SIM_PICK(converter_table);
  return table;
}

void scalar_to_kind(const fl_value& value, Kind kind, fl_dtype via, void* number) {
  const Converters& convert = converters();
  alignas(16) char wide[16], narrow[16];
  // The scalar in its own widest kind, then (by way of an element type) in the kind asked for.
  Kind own = kI64;
  if (value.kind == FL_REAL) {
    own = kF64;
    *reinterpret_cast<double*>(wide) = value.u.d;
  } else if (value.kind == FL_COMPLEX) {
    own = kC128;
    *reinterpret_cast<std::complex<double>*>(wide) = {value.u.c[0], value.u.c[1]};
  } else {
    *reinterpret_cast<int64_t*>(wide) = value.u.i;
  }
  const fl_dtype between = via == FL_DTYPE_OTHER ? native_dtype(kind) : via;
  convert.store[own][between](narrow, 1, wide, 1);
  convert.load[kind][between](number, narrow, 1, 1);
}

}  // namespace fl_sim
