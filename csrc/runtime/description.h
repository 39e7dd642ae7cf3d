// SPDX-License-Identifier: Apache-2.0
// What a descriptor says, as the core takes it: everything is checked when a chip is made of it. Torch-free.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "rules.h"

namespace torch_fl::runtime {

/// Types of C parameters and results. Compute: of the type computed in ("T").
enum class CType : uint8_t {
  Void,
  Bool,
  Int8,
  Int16,
  Int32,
  Int64,
  UInt8,
  UInt16,
  UInt32,
  UInt64,
  Float,
  Double,
  Pointer,
  Compute,
  Last = Compute
};

/// A C function, and the expressions of what it is passed.
struct CFunction {
  std::string symbol;  ///< empty: there is no such function
  std::string where;   ///< its place in the descriptor, for messages
  CType result = CType::Void;
  std::vector<CType> parameters;
  std::vector<Program> arguments;  ///< one for each parameter
  std::vector<bool> reads_values;  ///< whether it looks at a Scalar or floating-point argument
};

/// An operator's kernel in a library: an fl_kernel_fn, or any C function.
struct DescribedKernel {
  std::string op;
  uint32_t flags = 0;   ///< FL_KERNEL_*
  uint64_t dtypes = 0;  ///< FL_DTYPE_BITs; 0: any
  bool plain = false;   ///< `call` is a C function; else its symbol is an fl_kernel_fn
  CFunction call;
  std::vector<std::pair<fl_dtype, std::string>> symbols;  ///< by type; empty: call.symbol for all
  int32_t starts_as = -1;  ///< the argument of which outs[0] is made a copy before the call; -1: none
};

struct StatusCodes {
  std::vector<int64_t> ok{0}, out_of_memory, device_lost;
};

/// A plain library's functions beyond kernels. Each sees the arguments named here, in this order.
struct LibraryRuntime {
  CFunction count;        ///< result: where to write the number, unless it is returned
  CFunction init;         ///< device
  CFunction alloc;        ///< device, bytes, result: where to write the address, unless it is returned
  CFunction free;         ///< device, address
  CFunction copy;         ///< device, bytes, kind, dst, src
  CFunction synchronize;  ///< device
  StatusCodes status;
  int32_t devices = 1;  ///< where there is no count
};

struct Described {
  std::string name, vendor, version, device_type, policy;
  std::string library;  ///< a path, or a bare name for the dynamic linker
  std::string library_where;
  fl_device_properties properties{};
  bool host_coherent = true;
  LibraryRuntime runtime;
  std::vector<DescribedKernel> kernels;
  std::vector<std::pair<std::string, OpRules>> rules;  ///< by operator
  std::vector<std::string> required_rules;             ///< operators of which at least one overload must have a kernel
  OpRules defaults;                                    ///< of every kernel that `rules` says nothing of
  std::vector<DescribedKernel> overrides;              ///< each an fl_kernel_fn
  std::vector<std::pair<std::string, OpFallback>> fallbacks;
};

}  // namespace torch_fl::runtime
