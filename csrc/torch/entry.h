// SPDX-License-Identifier: Apache-2.0
// One aten overload as the router sees it: form, mutated arguments, functional sibling, special handling.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>

#include <atomic>
#include <optional>
#include <string>
#include <vector>

#include "call.h"
#include "shape_rules.h"
#include "torch_fl/fl_plugin.h"

namespace torch_fl::glue {

struct HostCall;  // host_route.h

enum class Form : uint8_t { Functional, InPlace, Out };

/// Integer operators whose CPU kernels raise for some scalar operands.
enum class IntegerRule : uint8_t { None, Divisor, Exponent };

struct ArgInfo {
  std::string name;
  c10::TypePtr type;
  bool mutated = false;
  bool written = false;     ///< mutated, or written to without the schema saying so (running statistics)
  bool promotes = false;    ///< a Scalar that takes part in type promotion ("other", "exponent", "min", ...)
  bool unpromoted = false;  ///< a tensor that does not ("condition", "mask")
};

struct Entry {
  explicit Entry(c10::OperatorHandle op);

  c10::OperatorHandle op;
  uint32_t id;
  std::string name;      ///< "aten::add.Tensor"
  std::string op_name;   ///< "aten::add"
  std::string overload;  ///< "Tensor"
  Form form = Form::Functional;
  std::vector<ArgInfo> args;
  std::vector<uint32_t> mutated;  ///< indices of mutated arguments
  bool writes = false;            ///< some argument is written, whether the schema says so or not
  uint32_t n_out_args = 0;        ///< trailing out= arguments
  uint32_t n_returns = 0;
  std::string kernel_name;         ///< functional sibling; equals `name` for functional overloads
  uint32_t kernel_args = 0;        ///< arguments of the functional sibling
  ShapeRule shape_rule = nullptr;  ///< of the functional sibling
  bool tensor_returns = false;     ///< every return is a Tensor (or a mutated argument)
  bool composite = false;          ///< PyTorch has a composite kernel to hand back to
  bool cpu_kernel = false;         ///< ... and a CPU kernel, too
  IntegerRule integer_rule = IntegerRule::None;
  bool predicate = false;             ///< its natural result is bool
  bool scalar_values_matter = false;  ///< output sizes depend on Scalars (arange)
  bool host_tensors_ok = false;       ///< non-scalar CPU tensors are legal beside device ones (index and the like)
  bool reads_values = false;          ///< its output's size depends on values, which a kernel's call finds counted
  bool out_by_cpu = false;            ///< an out= that its CPU kernel lays out, or checks, as no shape rule says
  int32_t indices = -1;               ///< the argument "indices" of aten::index and its relatives
  bool random = false;                ///< draws from the generator
  void (*host)(HostCall&) = nullptr;  ///< own host implementation instead of the CPU kernel
  std::atomic<bool> warned{false};
};

/// The overload of a full name ("aten::add.Tensor"), if this PyTorch has it.
std::optional<c10::OperatorHandle> find_overload(const std::string& name);
/// The entry of an overload; made on first use, lives for ever. Thread-safe.
Entry& entry_for(const c10::OperatorHandle& op);
/// All entries made so far.
std::vector<Entry*> all_entries();

/// The out= form of a functional overload: the same arguments, and one more for each result.
std::optional<c10::OperatorHandle> out_form(const c10::OperatorHandle& op);

/// Name of the functional overload that `op` (an out= or in-place form) derives from, or its own name.
std::string functional_sibling(const c10::OperatorHandle& op, Form form, uint32_t n_out_args);

}  // namespace torch_fl::glue
