// SPDX-License-Identifier: Apache-2.0
// Losses that compare element by element: unreduced, summed, or averaged.
#include "loss_loops.h"

#include <algorithm>
#include <vector>

#include "families.h"
#include "isa.h"
#include "pointwise.h"

namespace fl_sim {
namespace {

constexpr int64_t kNone = 0, kMean = 1;

const ElementLoss& loss_of(const fl_call& call) { return *static_cast<const ElementLoss*>(call.kernel->user_data); }

Operand one(Kind kind) {
  fl_value value = {};
  value.kind = FL_INTEGER;
  value.u.i = 1;
  return scalar_operand(value, kind, FL_DTYPE_OTHER);
}

void loss_body(const Call& call) {
  const ElementLoss& loss = loss_of(call.raw);
  const View in = call.tensor(0), out = call.out(0);
  const Kind kind = kind_of(in.dtype);
  const auto weight = static_cast<uint32_t>(loss.weight);
  const int64_t reduction = call.integer(static_cast<uint32_t>(loss.reduction), kMean);
  Params params;
  if (loss.prepare) loss.prepare(call, params);
  Operand operands[4] = {
      operand_of(out, kind), operand_of(in, kind), operand_of(call.tensor(1), kind),
      loss.weight >= 0 && call.is_tensor(weight) ? operand_of(call.tensor(weight), kind) : one(kind)};
  double sum = 0;
  params.sum = &sum;
  if (loss.refusal) {
    walk(in.sizes, in.ndim, in.numel, operands + 1, 0, 3, loss.refused[kind], params);
    if (sum > 0) throw InvalidArgument(loss.refusal);
  }
  if (reduction == kNone) return walk(in.sizes, in.ndim, in.numel, operands, 1, 3, loss.each[kind], params);
  walk(in.sizes, in.ndim, in.numel, operands + 1, 0, 3, loss.sum[kind], params);
  if (reduction == kMean) sum /= static_cast<double>(in.numel);
  converters().store[kF64][out.dtype](out.data, 1, &sum, 1);
}

fl_status run_loss(const fl_call* call) { return launch(call, loss_body); }

fl_status supports_loss(const fl_call* call) {
  const ElementLoss& loss = loss_of(*call);
  const fl_tensor& in = *call->args[0].u.tensor;
  for (const int8_t i : {int8_t{1}, loss.weight}) {
    if (i < 0 || call->args[i].kind == FL_NONE) continue;
    const fl_tensor& other = *call->args[i].u.tensor;
    if (other.dtype != in.dtype) return unsupported("a loss of two element types");
    if (other.ndim != in.ndim || !std::equal(in.sizes, in.sizes + in.ndim, other.sizes))
      return unsupported("a loss of tensors of different sizes");
  }
  return FL_OK;
}

}  // namespace

Family element_loss_family() {
  static const std::vector<fl_kernel> rows = [] {
    std::vector<fl_kernel> all;
    const ElementLossTable table = FL_SIM_PICK(element_loss_table);
    for (uint64_t i = 0; i < table.count; ++i)
      all.push_back(
          row(table.rows[i].op, 0, run_loss, kReals, supports_loss, const_cast<ElementLoss*>(&table.rows[i])));
    return all;
  }();
  return rows;
}

}  // namespace fl_sim
