// SPDX-License-Identifier: Apache-2.0
#include "c_function.h"

#include <dlfcn.h>

#include <cmath>
#include <limits>

#include "error.h"

namespace torch_fl::runtime {
namespace {

struct TypeFacts {
  const char* name;
  ffi_type* type;
};

const TypeFacts& facts(CType type) {
  static const TypeFacts all[] = {
      {"void", &ffi_type_void},        {"bool", &ffi_type_uint8},      {"int8_t", &ffi_type_sint8},
      {"int16_t", &ffi_type_sint16},   {"int", &ffi_type_sint32},      {"int64_t", &ffi_type_sint64},
      {"uint8_t", &ffi_type_uint8},    {"uint16_t", &ffi_type_uint16}, {"unsigned int", &ffi_type_uint32},
      {"uint64_t", &ffi_type_uint64},  {"float", &ffi_type_float},     {"double", &ffi_type_double},
      {"a pointer", &ffi_type_pointer}};
  return all[static_cast<size_t>(type)];
}

CType resolved(CType type, fl_dtype compute) {
  if (type != CType::Compute) return type;
  switch (compute) {
    case FL_BOOL:
      return CType::Bool;
    case FL_INT8:
      return CType::Int8;
    case FL_INT16:
      return CType::Int16;
    case FL_INT32:
      return CType::Int32;
    case FL_INT64:
      return CType::Int64;
    case FL_UINT8:
      return CType::UInt8;
    case FL_UINT16:
      return CType::UInt16;
    case FL_UINT32:
      return CType::UInt32;
    case FL_UINT64:
      return CType::UInt64;
    case FL_FLOAT32:
      return CType::Float;
    case FL_FLOAT64:
      return CType::Double;
    default:
      throw Error(FL_INVALID_ARGUMENT, std::string("T by value is ") + dtype_name(compute) +
                                           ", which no C type of a parameter is; pass a pointer");
  }
}

template <typename T>
bool fits(int64_t value) {
  if constexpr (std::is_same_v<T, uint64_t>)
    return value >= 0;
  else
    return value >= static_cast<int64_t>(std::numeric_limits<T>::min()) &&
           value <= static_cast<int64_t>(std::numeric_limits<T>::max());
}

bool fits(int64_t value, CType type) {
  switch (type) {
    case CType::Bool:
      return value == 0 || value == 1;
    case CType::Int8:
      return fits<int8_t>(value);
    case CType::Int16:
      return fits<int16_t>(value);
    case CType::Int32:
      return fits<int32_t>(value);
    case CType::UInt8:
      return fits<uint8_t>(value);
    case CType::UInt16:
      return fits<uint16_t>(value);
    case CType::UInt32:
      return fits<uint32_t>(value);
    case CType::UInt64:
      return fits<uint64_t>(value);
    default:
      return true;
  }
}

bool is_whole(const Value& v) { return v.kind == Value::Integer || v.kind == Value::Boolean || v.kind == Value::Type; }

bool to_pointer(const Value& v, CValue* value) {
  if (v.kind == Value::String) value->p = const_cast<char*>(v.s);
  if (v.kind == Value::Address) value->u = static_cast<uint64_t>(v.i);
  return v.kind == Value::String || v.kind == Value::Address || (v.kind == Value::Integer && v.i == 0);
}

/// Into a float or double. A number beyond float's range is none of its values.
bool to_real(const Value& v, CType type, CValue* value) {
  if (!is_whole(v) && v.kind != Value::Real) return false;
  const double d = v.kind == Value::Real ? v.d : static_cast<double>(v.i);
  if (type == CType::Double) {
    value->d = d;
    return true;
  }
  value->f = static_cast<float>(d);
  return std::isfinite(value->f) || !std::isfinite(d);
}

/// Little-endian: the lower bytes of `i` are the narrower types' values.
bool to_integer(const Value& v, CType type, CValue* value) {
  value->i = v.i;
  return is_whole(v) && fits(v.i, type);
}

bool convert(const Value& v, CType type, CValue* value) {
  *value = {};
  if (type == CType::Pointer) return to_pointer(v, value);
  if (type == CType::Float || type == CType::Double) return to_real(v, type, value);
  return to_integer(v, type, value);
}

std::string mismatch(const CFunction& function, size_t i, CType type, const Value& v) {
  const std::string which = "argument " + std::to_string(i + 1) + " of " + function.symbol;
  if (v.kind == Value::Undefined) return which + " has no value for this call";
  return which + " is " + to_text(v) + ", which its type, " + facts(type).name + ", cannot hold";
}

}  // namespace

void* find_symbol(void* library, const std::string& name) { return dlsym(library, name.c_str()); }

BoundFunction::BoundFunction(void* address, const CFunction& function, fl_dtype compute)
    : address_(reinterpret_cast<void (*)()>(address)), result_(resolved(function.result, compute)) {
  const size_t n = function.parameters.size();
  if (n > kMaxParameters || function.arguments.size() != n || function.reads_values.size() != n) {
    throw Error(FL_INVALID_ARGUMENT, function.symbol + " has " + std::to_string(n) + " parameters and " +
                                         std::to_string(function.arguments.size()) +
                                         " arguments, but as many, and at most " + std::to_string(kMaxParameters) +
                                         ", were expected");
  }
  for (const CType type : function.parameters) {
    if (type == CType::Void) throw Error(FL_INVALID_ARGUMENT, function.symbol + " has a parameter of type void");
    parameters_.push_back(resolved(type, compute));
    types_.push_back(facts(parameters_.back()).type);
  }
  for (const Program& program : function.arguments) verify(program);
  const auto count = static_cast<unsigned>(n);
  if (ffi_prep_cif(&cif_, FFI_DEFAULT_ABI, count, facts(result_).type, types_.data()) != FFI_OK) {
    throw Error(FL_INVALID_ARGUMENT, "libffi cannot call " + function.symbol + " with this signature");
  }
}

bool BoundFunction::arguments(const CFunction& function, const fl_call& call, CValue* values, std::string* why) const {
  for (size_t i = 0; i < parameters_.size(); ++i) {
    const Value v = evaluate(function.arguments[i], call);
    if (convert(v, parameters_[i], &values[i])) continue;
    *why = mismatch(function, i, parameters_[i], v);
    return false;
  }
  return true;
}

bool BoundFunction::possible(const CFunction& function, const fl_call& call, std::string* why) const {
  CValue ignored;
  for (size_t i = 0; i < parameters_.size(); ++i) {
    if (function.reads_values[i]) continue;
    const Value v = evaluate(function.arguments[i], call);
    if (convert(v, parameters_[i], &ignored)) continue;
    *why = mismatch(function, i, parameters_[i], v);
    return false;
  }
  return true;
}

CValue BoundFunction::operator()(CValue* values) const {
  void* pointers[kMaxParameters];
  for (size_t i = 0; i < parameters_.size(); ++i) pointers[i] = &values[i];
  CValue result;
  // libffi takes the description as not const, but changes nothing in it.
  ffi_call(const_cast<ffi_cif*>(&cif_), address_, &result, pointers);
  return result;
}

bool is_integer(CType type) { return type >= CType::Bool && type <= CType::UInt64; }

int64_t integer_result(const CValue& value, CType type) {
  switch (type) {
    case CType::Bool:
    case CType::UInt8:
      return static_cast<uint8_t>(value.u);
    case CType::Int8:
      return static_cast<int8_t>(value.u);
    case CType::Int16:
      return static_cast<int16_t>(value.u);
    case CType::UInt16:
      return static_cast<uint16_t>(value.u);
    case CType::Int32:
      return static_cast<int32_t>(value.u);
    case CType::UInt32:
      return static_cast<uint32_t>(value.u);
    default:
      return value.i;
  }
}

double real_result(const CValue& value, CType type) {
  if (type == CType::Float) return value.f;
  return type == CType::Double ? value.d : static_cast<double>(integer_result(value, type));
}

}  // namespace torch_fl::runtime
