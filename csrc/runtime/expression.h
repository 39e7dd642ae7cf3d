// SPDX-License-Identifier: Apache-2.0
// Expressions of descriptors (docs/design/descriptors.md), compiled to postfix programs by torch_fl/chips/descriptor/.
#pragma once

#include <cstdint>
#include <string>

#include "rules.h"

namespace torch_fl::runtime {

/// What an Instruction does. `arg` is its index, `k` its operand, `a`, `b`, ... what it takes from the stack (the
/// topmost last). An argument's index counts the call's args from 0; outputs are -1, -2, ...; kTraced is the tensor of
/// a list at which a check failed. torch_fl/chips/descriptor/codes.py has the same numbers
/// (tests/unit/test_expressions.py).
enum Code : int32_t {
  // Constants and what the call is.
  kInteger = 0,  // k
  kReal = 1,     // k (real)
  kBoolean = 2,  // k, 0 or 1
  kString = 3,   // k: a pointer from intern()
  kType = 4,     // k, an fl_dtype
  kComputeDtype = 5,
  kDeviceIndex = 6,
  kStream = 7,
  kPosition = 8,  // at which the check failed: of a dimension or a list's element

  // Arguments.
  kValue = 16,    // arg: a number, boolean, string or type
  kAddress = 17,  // arg: an integer, as an address
  kPresent = 18,  // arg is not None
  kLength = 19,   // of the list arg
  kElement = 20,  // a: list arg[a]
  kTensor = 21,   // element a of the tensor list arg becomes what kTraced means; takes a, gives nothing

  // Of the tensor arg.
  kSize = 32,      // a
  kStride = 33,    // a
  kSizeAt = 34,    // k
  kStrideAt = 35,  // k
  kNdim = 36,
  kNumel = 37,
  kDtype = 38,
  kItemsize = 39,
  kData = 40,
  kContiguous = 41,
  kChannelsLast = 42,

  // Operators.
  kAdd = 64,
  kSubtract = 65,
  kMultiply = 66,
  kFloorDivide = 67,
  kModulo = 68,
  kDivide = 69,
  kNegate = 70,
  kNot = 71,
  kEqual = 72,
  kNotEqual = 73,
  kLess = 74,
  kLessEqual = 75,
  kGreater = 76,
  kGreaterEqual = 77,
  kAbs = 78,
  kMin = 79,  // of k values
  kMax = 80,
  kIn = 81,  // a, and k values: a is one of them

  // k: instructions to skip, beyond the next.
  kJump = 96,
  kJumpIfFalse = 97,      // takes a
  kJumpIfFalseKeep = 98,  // a stays where it jumps
  kJumpIfTrueKeep = 99,

  // Conditions on every element of a list, every dimension, every tensor: true where there is none. They note the place
  // that does not hold.
  kEveryIn = 112,            // k values: the list or single value arg
  kEveryAtLeast = 113,       // a: the same
  kEveryAtMost = 114,        // a
  kEveryDtypeIn = 115,       // k: FL_DTYPE_BITs; the tensor or list of tensors arg
  kEveryNdimIn = 116,        // k: bit n for n dimensions; 64 and more never hold
  kEveryNumelAtMost = 117,   // k
  kEverySizeMultiple = 118,  // k; dimension a, or all of them where a is false
  kEverySizeAtLeast = 119,   // k; the same
  kEverySizeAtMost = 120,    // k; the same
};

constexpr int32_t kTraced = INT32_MIN;
constexpr size_t kMaxInstructions = 4096, kMaxDepth = 512;

struct Value {
  enum Kind : uint8_t { Undefined, Integer, Real, Boolean, String, Type, Address };
  Kind kind;  // no initialisers: a stack of these costs nothing
  union {
    int64_t i;  ///< of an integer, a boolean, a type and an address
    double d;
    const char* s;
  };
};

/// Where a check did not hold.
struct Trace {
  int64_t position = 0;  ///< of the dimension, or in the list
  int64_t item = -1;     ///< of the tensor in its list; -1: it stands alone
  const fl_tensor* tensor = nullptr;
};

/// What `program` must have passed verify() for. Allocates nothing.
Value evaluate(const Program& program, const fl_call& call);
/// The same as evaluate() above. A check notes in `trace` where it fails; the program that tells what was found reads
/// it.
Value evaluate(const Program& program, const fl_call& call, Trace& trace);
/// Whether evaluate() gives true, or a number other than 0; faster for what constraints are made of.
bool holds(const Program& program, const fl_call& call, Trace& trace);

/// Throws Error(FL_INVALID_ARGUMENT) unless evaluate() can run `program` on any call: known codes, no underflow, a
/// bounded stack, jumps that end inside, one value left. Indices of arguments are checked against each call.
void verify(const Program& program);

/// `text` for ever: equal texts give the same pointer.
const char* intern(const std::string& text);

/// "3", "1.5", "true", "'mean'", "float16", "nothing".
std::string to_text(const Value& value);
const char* dtype_name(fl_dtype dtype);
/// 0 for a type without a name.
int64_t dtype_bytes(fl_dtype dtype);

}  // namespace torch_fl::runtime
