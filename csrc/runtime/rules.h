// SPDX-License-Identifier: Apache-2.0
// What a descriptor says of single operators: when the chip's kernel may be called, and what the host does to the
// arguments first. Compiled once from the descriptor's text (docs/design/descriptors.md); torch-free.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "torch_fl/fl_plugin.h"

namespace torch_fl::runtime {

/// One step of a program in postfix form: codes are listed in expression.h, and in torch_fl/chips/descriptor/codes.py.
struct Instruction {
  int32_t code = 0;
  int32_t index = 0;  ///< of the argument, or what else the code says
  union {
    int64_t integer = 0;
    double real;
  };
};
using Program = std::vector<Instruction>;

/// One condition on a call.
struct Check {
  Program holds;
  Program found;              ///< what to show when it does not hold; empty: nothing
  std::string expected;       ///< "self.size(0) must be a multiple of 128"
  bool reads_values = false;  ///< looks at a Scalar or floating-point argument, which signatures leave out
};

struct Cast {
  fl_dtype from, to;
};

struct OpRules {
  std::vector<Check> checks;
  uint32_t flags = 0;       ///< FL_KERNEL_*, added to those of the kernel's row
  uint32_t cleared = 0;     ///< FL_KERNEL_*, taken from the row's flags first (IN_PLACE_SAFE)
  uint64_t alignment = 0;   ///< bytes: tensors at other addresses are copied first; 0: any
  std::vector<Cast> casts;  ///< compute in `to` where the call says `from`; the result is cast back
};

inline uint32_t flags_under(const OpRules& rules, uint32_t row_flags) {
  return (row_flags & ~rules.cleared) | rules.flags;
}

/// What is to be done with calls of one operator that no kernel takes.
struct OpFallback {
  std::string policy;      ///< "allow", "warn", "deny"; empty: the chip's
  bool decompose = true;   ///< PyTorch's decomposition may be taken
  std::string python;      ///< override: a function registered under this name; empty: none
  std::string expression;  ///< override: an expression of operators; empty: none
};

/// The first check of `rules` that `call` does not meet, as text ("..., found 3"); empty: all hold. Addresses may be 0.
std::string broken_rule(const OpRules& rules, const fl_call& call);

}  // namespace torch_fl::runtime
