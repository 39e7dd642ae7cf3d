// SPDX-License-Identifier: Apache-2.0
// What comes out of operators that PyTorch gives no C++ meta function: dtype, sizes and strides, exactly the CPU's.
//
// Asking the dispatcher instead (shape.cpp) enters Python for most of them. A rule may answer "don't know" or throw; it
// must never accept a call that the CPU refuses.
#pragma once

#include <ATen/ATen.h>

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "packed.h"

namespace torch_fl::glue {

/// The arguments of a call, by their position in the schema of the functional overload.
class RuleArgs {
 public:
  RuleArgs(const PackedArg* args, uint32_t count) : args_(args), count_(count) {}

  /// Undefined where the argument is absent.
  const at::Tensor& tensor(uint32_t i) const {
    static const at::Tensor undefined;
    return args_[i].kind == Kind::Tensor ? *args_[i].u.tensor : undefined;
  }
  at::IntArrayRef ints(uint32_t i) const {
    return args_[i].kind == Kind::IntList ? at::IntArrayRef(args_[i].u.ints, args_[i].count) : at::IntArrayRef();
  }
  at::OptionalIntArrayRef optional_ints(uint32_t i) const {
    return args_[i].kind == Kind::IntList ? at::OptionalIntArrayRef(ints(i)) : std::nullopt;
  }
  std::optional<int64_t> optional_integer(uint32_t i) const {
    return args_[i].kind == Kind::Int ? std::optional(args_[i].u.i) : std::nullopt;
  }
  int64_t integer(uint32_t i) const { return args_[i].u.i; }
  double real(uint32_t i) const { return args_[i].u.d; }
  bool flag(uint32_t i) const { return args_[i].u.i != 0; }
  bool mask(uint32_t i, uint32_t k) const { return args_[i].u.bools[k]; }
  const at::Scalar& scalar(uint32_t i) const { return *args_[i].u.scalar; }
  std::optional<at::ScalarType> dtype(uint32_t i) const {
    return args_[i].kind == Kind::DType ? std::optional(static_cast<at::ScalarType>(args_[i].u.i)) : std::nullopt;
  }
  std::string_view text(uint32_t i, std::string_view absent) const {
    return args_[i].kind == Kind::String ? std::string_view(args_[i].u.s, args_[i].count) : absent;
  }
  /// The trailing argument, where the rule is asked about an out= form: some results have its dtype.
  const at::Tensor& last() const { return tensor(count_ - 1); }

 private:
  const PackedArg* args_;
  uint32_t count_;
};

/// Appends the outputs' metadata; an undefined tensor is an output that is left out. False: don't know.
using ShapeRule = bool (*)(const RuleArgs& args, std::vector<at::Tensor>& outputs);

struct ShapeRuleRow {
  const char* op;  ///< "aten::relu"; a functional overload
  ShapeRule rule;
};

/// The rule of a functional overload, or null.
ShapeRule find_shape_rule(const std::string& op);
std::vector<std::string> shape_rule_names();

// ---- What rules are made of -------------------------------------------------------------------------------------
namespace rules {

using Outputs = std::vector<at::Tensor>;

inline bool give(Outputs& outputs, at::Tensor meta) {
  outputs.push_back(std::move(meta));
  return true;
}

inline bool is_floating(const at::Tensor& t) { return at::isFloatingType(t.scalar_type()); }

/// at::empty, at::empty_strided and at::empty_like (keeping strides) of the meta device.
at::Tensor dense(at::IntArrayRef sizes, at::ScalarType dtype, at::MemoryFormat format = at::MemoryFormat::Contiguous);
at::Tensor strided(at::IntArrayRef sizes, at::IntArrayRef strides, at::ScalarType dtype);
at::Tensor like(const at::Tensor& t, at::ScalarType dtype);
inline at::Tensor like(const at::Tensor& t) { return like(t, t.scalar_type()); }
/// Contiguous or channels-last, as the tensor suggests.
at::Tensor suggested(const at::Tensor& t);

std::vector<ShapeRuleRow> network_rules();  ///< normalisation, pooling, padding, losses
std::vector<ShapeRuleRow> linalg_rules();

}  // namespace rules
}  // namespace torch_fl::glue
