// SPDX-License-Identifier: Apache-2.0
#include "pointwise.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "isa.h"

namespace fl_sim {
namespace {

// The walk's geometry after sorting and merging dimensions; [0] is the innermost.
struct Plan {
  int ndim = 0;
  int64_t sizes[kMaxDims];
  int64_t strides[kMaxOperands][kMaxDims];
};

// True when dimension a should lie inside dimension b: smaller strides of the first operand that tells them apart.
bool inside(const Plan& plan, int n, int a, int b) {
  for (int o = 0; o < n; ++o) {
    const int64_t x = plan.strides[o][a], y = plan.strides[o][b];
    if (x != y && x != 0 && y != 0) return x < y;
  }
  return false;
}

void swap_dims(Plan& plan, int n, int a, int b) {
  std::swap(plan.sizes[a], plan.sizes[b]);
  for (int o = 0; o < n; ++o) std::swap(plan.strides[o][a], plan.strides[o][b]);
}

void make_plan(Plan& plan, const int64_t* sizes, int32_t ndim, const Operand* operands, int n) {
  for (int32_t d = ndim - 1; d >= 0; --d) {
    if (sizes[d] == 1) continue;
    plan.sizes[plan.ndim] = sizes[d];
    for (int o = 0; o < n; ++o) plan.strides[o][plan.ndim] = operands[o].strides ? operands[o].strides[d] : 0;
    ++plan.ndim;
  }
  for (int i = 1; i < plan.ndim; ++i)  // insertion sort: nearly always sorted already
    for (int j = i; j > 0 && inside(plan, n, j, j - 1); --j) swap_dims(plan, n, j, j - 1);
  int merged = 0;
  for (int d = 1; d < plan.ndim; ++d) {
    bool fits = true;
    for (int o = 0; o < n && fits; ++o) fits = plan.strides[o][d] == plan.strides[o][merged] * plan.sizes[merged];
    if (fits) {
      plan.sizes[merged] *= plan.sizes[d];
      continue;
    }
    ++merged;
    plan.sizes[merged] = plan.sizes[d];
    for (int o = 0; o < n; ++o) plan.strides[o][merged] = plan.strides[o][d];
  }
  plan.ndim = plan.ndim ? merged + 1 : 0;
}

struct Walker {
  Plan plan;
  Operand* operands;
  int n_out, n_in, n;
  LoopFn loop;
  const Params& params;
  int64_t bytes[kMaxOperands];
  bool direct[kMaxOperands];  // the loop may work on memory itself
  alignas(64) char buffers[kMaxOperands][kChunk * 16];

  Walker(Operand* ops, int outs, int ins, LoopFn l, const Params& p)
      : operands(ops), n_out(outs), n_in(ins), n(outs + ins), loop(l), params(p) {}

  void prepare(int64_t numel) {
    for (int o = 0; o < n; ++o) {
      bytes[o] = dtype_size(operands[o].dtype);
      direct[o] = operands[o].strides && operands[o].dtype == native_dtype(operands[o].kind) &&
                  (plan.ndim == 0 || plan.strides[o][0] == 1);
      if (!operands[o].strides) fill_scalar(o, std::min(numel, kChunk));
    }
  }

  void fill_scalar(int o, int64_t n) {
    const Kind kind = operands[o].kind;
    converters().load[kind][native_dtype(kind)](buffers[o], operands[o].number, 0, n);
  }

  // One row of the innermost dimension, chunk by chunk.
  void row(char* const* at, int64_t length) {
    const Converters& convert = converters();
    const bool all_direct = std::all_of(direct, direct + n, [](bool d) { return d; });
    const int64_t step = all_direct ? length : kChunk;
    for (int64_t begin = 0; begin < length; begin += step) {
      const int64_t count = std::min(step, length - begin);
      void* pointers[kMaxOperands];
      for (int o = 0; o < n; ++o) {
        const int64_t stride = plan.ndim ? plan.strides[o][0] : 0;
        char* memory = at[o] + begin * stride * bytes[o];
        pointers[o] = direct[o] ? memory : buffers[o];
        if (o >= n_out && !direct[o] && operands[o].strides)
          convert.load[operands[o].kind][operands[o].dtype](buffers[o], memory, stride, count);
      }
      loop(count, pointers, pointers + n_out, params);
      for (int o = 0; o < n_out; ++o) {
        const int64_t stride = plan.ndim ? plan.strides[o][0] : 1;
        if (!direct[o])
          convert.store[operands[o].kind][operands[o].dtype](at[o] + begin * stride * bytes[o], stride, buffers[o],
                                                             count);
      }
    }
  }

  // Several short rows at once, so that the loop is called on a full chunk.
  void rows(char* const* at, int64_t first, int64_t count) {
    const Converters& convert = converters();
    const int64_t length = plan.sizes[0];
    void* pointers[kMaxOperands];
    for (int o = 0; o < n; ++o) pointers[o] = buffers[o];
    for (int o = n_out; o < n; ++o) {
      if (!operands[o].strides) continue;
      const LoadFn load = convert.load[operands[o].kind][operands[o].dtype];
      const int64_t row_bytes = length * kind_size(operands[o].kind);
      for (int64_t r = 0; r < count; ++r)
        load(buffers[o] + r * row_bytes, at[o] + (first + r) * plan.strides[o][1] * bytes[o], plan.strides[o][0],
             length);
    }
    loop(count * length, pointers, pointers + n_out, params);
    for (int o = 0; o < n_out; ++o) {
      const StoreFn store = convert.store[operands[o].kind][operands[o].dtype];
      const int64_t row_bytes = length * kind_size(operands[o].kind);
      for (int64_t r = 0; r < count; ++r)
        store(at[o] + (first + r) * plan.strides[o][1] * bytes[o], plan.strides[o][0], buffers[o] + r * row_bytes,
              length);
    }
  }

  void run() {
    char* at[kMaxOperands];
    for (int o = 0; o < n; ++o) at[o] = operands[o].data;
    const int64_t length = plan.ndim ? plan.sizes[0] : 1;
    const bool batch = plan.ndim > 1 && length <= kChunk / 4;
    const int inner = batch ? 2 : 1;
    int64_t index[kMaxDims] = {};
    for (;;) {
      if (batch) {
        const int64_t at_once = kChunk / length;
        for (int64_t r = 0; r < plan.sizes[1]; r += at_once) rows(at, r, std::min(at_once, plan.sizes[1] - r));
      } else {
        row(at, length);
      }
      int d = inner;
      for (; d < plan.ndim; ++d) {
        for (int o = 0; o < n; ++o) at[o] += plan.strides[o][d] * bytes[o];
        if (++index[d] < plan.sizes[d]) break;
        for (int o = 0; o < n; ++o) at[o] -= plan.strides[o][d] * plan.sizes[d] * bytes[o];
        index[d] = 0;
      }
      if (d >= plan.ndim) return;
    }
  }
};

Kind out_kind(Out out, Kind kind) {
  if (out == Out::kBool) return kBool;
  if (out == Out::kReal) return kind == kC64 ? kF32 : kind == kC128 ? kF64 : kind;
  return kind;
}

void repeat_number(const fl_value& value, Kind kind, fl_dtype round_to, void* buffer, int64_t n) {
  alignas(16) char number[16];
  scalar_to_kind(value, kind, round_to, number);
  converters().load[kind][native_dtype(kind)](buffer, number, 0, n);
}

// Everything dense and of the kind's own type (scalars besides): no walk is needed.
bool run_dense(const Call& call, const Pointwise& op, Kind kind, LoopFn loop, const Params& params) {
  const View out = call.out(0);
  const Kind result = out_kind(op.out, kind);
  if (op.n_out != 1 || !out.contiguous() || out.dtype != native_dtype(result)) return false;
  alignas(64) char numbers[3][kChunk * 16];
  const void* ins[3];
  bool scalar[3] = {}, chunked = false;
  for (int i = 0; i < op.n_in; ++i) {
    const auto arg = static_cast<uint32_t>(op.args[i]);
    const Kind k = op.fixed[i] != kNoKind ? op.fixed[i] : kind;
    if (!call.is_tensor(arg)) {
      repeat_number(call.value(arg), k, op.round_scalars ? call.raw.compute_dtype : FL_DTYPE_OTHER, numbers[i],
                    std::min(out.numel, kChunk));
      ins[i] = numbers[i];
      scalar[i] = true;
      chunked |= out.numel > kChunk;
      continue;
    }
    const View in = call.tensor(arg);
    if (!in.contiguous() || in.dtype != native_dtype(k) || in.numel != out.numel) return false;
    ins[i] = in.data;
  }
  void* outs[1] = {out.data};
  if (!chunked) {
    loop(out.numel, outs, ins, params);
    return true;
  }
  for (int64_t begin = 0; begin < out.numel; begin += kChunk) {
    const void* at[3];
    for (int i = 0; i < op.n_in; ++i) {
      const Kind k = op.fixed[i] != kNoKind ? op.fixed[i] : kind;
      at[i] = scalar[i] ? ins[i] : static_cast<const char*>(ins[i]) + begin * kind_size(k);
    }
    outs[0] = out.as<char>() + begin * kind_size(result);
    loop(std::min(kChunk, out.numel - begin), outs, at, params);
  }
  return true;
}

Kind compute_kind(const Call& call, const Pointwise& op) {
  const Kind kind = kind_of(call.raw.compute_dtype);
  if (kind != kNoKind && op.loop[kind]) return kind;
  const Kind result = kind_of(call.out(0).dtype);
  if (op.out == Out::kSame && result != kNoKind && op.loop[result]) return result;
  throw KernelError("this element type is not in the kernel's table row");
}

void run_strided(const Call& call, const Pointwise& op, Kind kind, LoopFn loop, const Params& params) {
  const View out = call.out(0);
  Operand operands[kMaxOperands];
  for (int o = 0; o < op.n_out; ++o)
    operands[o] = operand_of(call.out(static_cast<uint32_t>(o)), out_kind(op.out, kind));
  for (int i = 0; i < op.n_in; ++i) {
    const auto arg = static_cast<uint32_t>(op.args[i]);
    const Kind k = op.fixed[i] != kNoKind ? op.fixed[i] : kind;
    operands[op.n_out + i] =
        call.is_tensor(arg)
            ? operand_of(call.tensor(arg), k)
            : scalar_operand(call.value(arg), k, op.round_scalars ? call.raw.compute_dtype : FL_DTYPE_OTHER);
  }
  walk(out.sizes, out.ndim, out.numel, operands, op.n_out, op.n_in, loop, params);
}

void pointwise_body(const Call& call) {
  const auto& op = *static_cast<const Pointwise*>(call.raw.kernel->user_data);
  if (call.out(0).numel == 0) return;
  const Kind kind = compute_kind(call, op);
  const LoopFn loop = op.loop[kind];
  Params params;
  params.dtype = call.raw.compute_dtype;
  if (op.prepare) op.prepare(call, params);
  if (!run_dense(call, op, kind, loop, params)) run_strided(call, op, kind, loop, params);
}

fl_status run_pointwise(const fl_call* call) { return launch(call, pointwise_body); }

uint64_t mask_of(const Pointwise& op) {
  uint64_t mask = 0;
  for (fl_dtype d = 0; d < kDtypes; ++d)
    if (kind_of(d) != kNoKind && d != FL_COMPLEX32 && op.loop[kind_of(d)]) mask |= FL_DTYPE_BIT(d);
  return mask;
}

}  // namespace

Operand operand_of(const View& view, Kind kind) {
  static constexpr int64_t none[1] = {0};
  Operand o;
  o.data = view.as<char>();
  o.dtype = view.dtype;
  o.kind = kind;
  o.strides = view.ndim ? view.strides : none;
  return o;
}

Operand scalar_operand(const fl_value& value, Kind kind, fl_dtype round_to) {
  Operand o;
  o.dtype = native_dtype(kind);
  o.kind = kind;
  scalar_to_kind(value, kind, round_to, o.number);
  return o;
}

void walk(const int64_t* sizes, int32_t ndim, int64_t numel, Operand* operands, int n_out, int n_in, LoopFn loop,
          const Params& params) {
  if (numel == 0) return;
  Walker walker(operands, n_out, n_in, loop, params);
  make_plan(walker.plan, sizes, ndim, operands, n_out + n_in);
  walker.prepare(numel);
  walker.run();
}

Family pointwise_family() {
  static const std::vector<fl_kernel> rows = [] {
    std::vector<fl_kernel> all;
    for (const PointwiseTable table : {FL_SIM_PICK(binary_table), FL_SIM_PICK(compare_table), FL_SIM_PICK(unary_table),
                                       FL_SIM_PICK(activation_table), FL_SIM_PICK(loss_backward_table)})
      for (uint64_t i = 0; i < table.count; ++i) {
        const Pointwise& op = table.rows[i];
        const uint32_t flags =
            FL_KERNEL_BROADCAST | FL_KERNEL_IN_PLACE_SAFE | (op.keeps_dtype ? 0u : uint32_t{FL_KERNEL_PROMOTE});
        all.push_back(row(op.op, flags, run_pointwise, mask_of(op), op.supports, const_cast<Pointwise*>(&op)));
      }
    return all;
  }();
  return rows;
}

}  // namespace fl_sim
