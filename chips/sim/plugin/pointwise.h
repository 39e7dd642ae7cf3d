// SPDX-License-Identifier: Apache-2.0
// The engine that walks tensors of any strides and element types and feeds dense chunks to a pointwise loop.
#pragma once

#include "kinds.h"
#include "launch.h"

namespace fl_sim {

constexpr int kMaxOperands = 6;
constexpr int kMaxDims = 64;

/// One tensor (or scalar) in a walk. Strides have the common number of dimensions.
struct Operand {
  char* data = nullptr;
  fl_dtype dtype = FL_FLOAT32;
  Kind kind = kF32;
  const int64_t* strides = nullptr;  ///< null: a scalar, its number lies in `number`
  alignas(16) char number[16] = {};
};

/// Runs `loop` over the elements: operands[0..n_out) are written, the others read; all have these sizes.
void walk(const int64_t* sizes, int32_t ndim, int64_t numel, Operand* operands, int n_out, int n_in, LoopFn loop,
          const Params& params);

Operand operand_of(const View& view, Kind kind);
Operand scalar_operand(const fl_value& value, Kind kind, fl_dtype round_to);

/// The rows of all pointwise operators.
Family pointwise_family();

}  // namespace fl_sim
