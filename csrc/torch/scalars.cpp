// SPDX-License-Identifier: Apache-2.0
#include "scalars.h"

#include <cmath>

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
  } else {
    v.kind = FL_INTEGER;
    v.u.i = s.type() == at::kUInt64 ? static_cast<int64_t>(s.toUInt64()) : s.toLong();
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

struct Limits {
  double low, high;
  int64_t mask;  ///< of the bits an unsigned type keeps; 0: signed
};

// As c10::overflows: unsigned types also take the negatives that wrap.
const Limits* integer_limits(fl_dtype type) {
  static constexpr Limits kUint8{-255, 255, 0xff}, kInt8{-128, 127, 0}, kInt16{-32768, 32767, 0};
  static constexpr Limits kInt32{-2147483648.0, 2147483647.0, 0}, kUint16{-65535, 65535, 0xffff};
  static constexpr Limits kUint32{-4294967295.0, 4294967295.0, 0xffffffff};
  static constexpr Limits kInt64{-9223372036854775808.0, 9223372036854775807.0, 0};
  switch (type) {
    case FL_UINT8:
      return &kUint8;
    case FL_INT64:
      return &kInt64;
    case FL_INT8:
      return &kInt8;
    case FL_INT16:
      return &kInt16;
    case FL_INT32:
      return &kInt32;
    case FL_UINT16:
      return &kUint16;
    case FL_UINT32:
      return &kUint32;
    default:
      return nullptr;
  }
}

bool is_complex(fl_dtype type) { return type == FL_COMPLEX32 || type == FL_COMPLEX64 || type == FL_COMPLEX128; }

double largest(fl_dtype type) {
  return type == FL_FLOAT16 ? 65504.0 : type == FL_FLOAT32 || type == FL_BFLOAT16 ? 3.4028234663852886e38 : HUGE_VAL;
}

bool is_integral(fl_dtype type) { return type <= FL_INT64 || (type >= FL_UINT16 && type <= FL_UINT64); }

}  // namespace

bool fit_scalar(fl_value& v, fl_dtype type) {
  if (v.kind == FL_COMPLEX) return is_complex(type) || v.u.c[1] == 0.0;
  const double value = v.kind == FL_REAL ? v.u.d : static_cast<double>(v.u.i);
  if (const Limits* limits = integer_limits(type)) {
    if (!(value >= limits->low && value <= limits->high)) return false;
    if (v.kind == FL_INTEGER && limits->mask != 0) v.u.i &= limits->mask;
    return true;
  }
  return !std::isfinite(value) || std::fabs(value) <= largest(type);
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
