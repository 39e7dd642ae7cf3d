// SPDX-License-Identifier: Apache-2.0
// Element-wise losses: per element, and added up where the loss is reduced.
#pragma once

#include "kinds.h"

namespace fl_sim {

struct ElementLoss {
  const char* op;
  int8_t weight;     ///< schema position of an optional weight, or -1
  int8_t reduction;  ///< schema position
  PrepareFn prepare;
  LoopFn each[2];       ///< float, double
  LoopFn sum[2];        ///< adds to params.sum
  LoopFn refused[2];    ///< counts into params.sum the elements that the loss does not take; null: it takes all
  const char* refusal;  ///< what to say of them
};

struct ElementLossTable {
  const ElementLoss* rows;
  uint64_t count;
};

}  // namespace fl_sim
