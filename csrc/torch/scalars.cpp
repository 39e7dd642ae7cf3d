// SPDX-License-Identifier: Apache-2.0
#include "scalars.h"

#include <c10/util/overflows.h>

#include <cstdint>
#include <type_traits>

namespace torch_fl::glue {

fl_value scalar_value(const at::Scalar& s) {
  fl_value v{};
  if (s.isBoolean()) {
    v.kind = FL_BOOLEAN;
    v.u.i = s.toBool();
  } else if (s.isComplex()) {
    const auto c = s.toComplexDouble();
    v.kind = FL_COMPLEX;
    v.u.c[0] = c.real();
    v.u.c[1] = c.imag();
  } else if (s.isFloatingPoint()) {
    v.kind = FL_REAL;
    v.u.d = s.toDouble();
  } else if (s.type() == at::kUInt64 && s.toUInt64() > static_cast<uint64_t>(INT64_MAX)) {
    v.kind = FL_OPAQUE;  // no kernel could tell it from a negative number
  } else {
    v.kind = FL_INTEGER;
    v.u.i = s.toLong();
  }
  return v;
}

fl_value host_scalar(const at::Tensor& t) {
  const void* data = t.const_data_ptr();
  fl_value v{};
  switch (t.scalar_type()) {
    case at::kDouble:
      v.kind = FL_REAL;
      v.u.d = *static_cast<const double*>(data);
      return v;
    case at::kFloat:
      v.kind = FL_REAL;
      v.u.d = *static_cast<const float*>(data);
      return v;
    case at::kLong:
      v.kind = FL_INTEGER;
      v.u.i = *static_cast<const int64_t*>(data);
      return v;
    case at::kBool:
      v.kind = FL_BOOLEAN;
      v.u.i = *static_cast<const bool*>(data);
      return v;
    default:
      return scalar_value(at::_local_scalar_dense(t));
  }
}

namespace {

// PyTorch's own rule (Scalar::to), which also lets negative integers wrap into unsigned types.
template <class T>
bool fit(fl_value& v) {
  if (v.kind == FL_REAL) return !c10::overflows<T, double>(v.u.d);
  if (c10::overflows<T, int64_t>(v.u.i)) return false;
  if constexpr (std::is_integral_v<T>) v.u.i = static_cast<int64_t>(static_cast<T>(v.u.i));
  return true;
}

bool fit_complex(const fl_value& v, fl_dtype type) {
  const c10::complex<double> value(v.u.c[0], v.u.c[1]);
  switch (type) {
    case FL_COMPLEX32:
      return !c10::overflows<c10::complex<at::Half>, c10::complex<double>>(value);
    case FL_COMPLEX64:
      return !c10::overflows<c10::complex<float>, c10::complex<double>>(value);
    case FL_COMPLEX128:
      return true;
    default:
      return v.u.c[1] == 0.0;
  }
}

bool is_integral(fl_dtype type) { return type <= FL_INT64 || (type >= FL_UINT16 && type <= FL_UINT64); }

}  // namespace

bool fit_scalar(fl_value& v, fl_dtype type) {
  if (v.kind == FL_COMPLEX) return fit_complex(v, type);
  switch (type) {
    case FL_UINT8:
      return fit<uint8_t>(v);
    case FL_INT8:
      return fit<int8_t>(v);
    case FL_INT16:
      return fit<int16_t>(v);
    case FL_INT32:
      return fit<int32_t>(v);
    case FL_INT64:
      return fit<int64_t>(v);
    case FL_UINT16:
      return fit<uint16_t>(v);
    case FL_UINT32:
      return fit<uint32_t>(v);
    case FL_UINT64:
      return fit<uint64_t>(v);
    case FL_FLOAT16:
    case FL_COMPLEX32:
      return fit<at::Half>(v);
    case FL_FLOAT32:
    case FL_COMPLEX64:
      return fit<float>(v);
    case FL_BFLOAT16:
      return fit<at::BFloat16>(v);
    case FL_FLOAT8_E5M2:
      return fit<at::Float8_e5m2>(v);
    case FL_FLOAT8_E4M3FN:
      return fit<at::Float8_e4m3fn>(v);
    case FL_FLOAT8_E5M2FNUZ:
      return fit<at::Float8_e5m2fnuz>(v);
    case FL_FLOAT8_E4M3FNUZ:
      return fit<at::Float8_e4m3fnuz>(v);
    case FL_FLOAT8_E8M0FNU:
      return fit<at::Float8_e8m0fnu>(v);
    default:
      return true;  // bool takes everything, double and its complex type everything that a Scalar holds
  }
}

bool valid_operand(const Entry& entry, uint32_t i, const fl_value& v, fl_dtype type) {
  if (i == 0 || v.kind != FL_INTEGER || !is_integral(type) || v.u.i > 0) return true;
  switch (entry.integer_rule) {
    case IntegerRule::Divisor:
      return entry.args[i].name != "other" || v.u.i != 0;
    case IntegerRule::Exponent:
      return entry.args[i].name != "exponent" || v.u.i >= 0;
    case IntegerRule::None:
      return true;
  }
  return true;
}

}  // namespace torch_fl::glue
