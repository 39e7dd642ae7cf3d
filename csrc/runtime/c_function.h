// SPDX-License-Identifier: Apache-2.0
// Calls of C functions whose parameter types are known at run time only (libffi). Private to the runtime.
#pragma once

#include <ffi.h>

#include <string>
#include <vector>

#include "description.h"
#include "expression.h"

namespace torch_fl::runtime {

constexpr size_t kMaxParameters = 128;

/// A value in the C type of a parameter or result. libffi widens integer results to ffi_arg.
union CValue {
  uint64_t bits = 0;
  int64_t i;
  uint64_t u;
  float f;
  double d;
  void* p;
  ffi_arg whole;
};

/// The address of an exported function; null if there is none.
void* find_symbol(void* library, const std::string& name);

/// One C function, ready to be called. Throws Error from its constructor for a function that cannot be called so.
class BoundFunction {
 public:
  BoundFunction() = default;
  /// `compute`: what T stands for.
  BoundFunction(void* address, const CFunction& function, fl_dtype compute);
  BoundFunction(BoundFunction&&) = delete;

  /// What the arguments are for this call. False: one has no value, or none that its type can hold; `why` says so.
  bool arguments(const CFunction& function, const fl_call& call, CValue* values, std::string* why) const;
  /// The same for the arguments that a call's signature determines: whether such calls can be made at all.
  bool possible(const CFunction& function, const fl_call& call, std::string* why) const;
  CValue operator()(CValue* values) const;

  CType result() const { return result_; }

 private:
  ffi_cif cif_{};
  void (*address_)() = nullptr;
  CType result_ = CType::Void;
  std::vector<CType> parameters_;
  std::vector<ffi_type*> types_;
};

bool is_integer(CType type);
/// The value of an integer result, of its own width.
int64_t integer_result(const CValue& value, CType type);
double real_result(const CValue& value, CType type);

}  // namespace torch_fl::runtime
