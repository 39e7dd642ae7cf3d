// SPDX-License-Identifier: Apache-2.0
// Running sums, products, extremes along one dimension.
#include <algorithm>
#include <iterator>

#include "families.h"
#include "isa.h"
#include "pointwise.h"
#include "reduce.h"

namespace fl_sim {
namespace {

const Scan& scan_of(Scanned which, Kind kind) {
  static const ReduceLoops& loops = FL_SIM_PICK(reduce_loops);
  const Scan& s = loops.scan[static_cast<int>(which)][kind];
  if (!s.line) throw KernelError("this element type is not in the kernel's table row");
  return s;
}

// All lines along one dimension; `inner` is a second dimension in whose direction lines are taken together.
class Scanner {
 public:
  Scanner(const View& in, const View* outs, int n_outs, int dim, Kind kind, const Scan& scan)
      : in_(in), outs_(outs), n_(n_outs), dim_(dim), kind_(kind), scan_(scan) {
    for (int d = 0; d < in.ndim; ++d) {
      if (d == dim || in.sizes[d] == 1) continue;
      if (inner_ < 0 || in.strides[d] < in.strides[inner_]) inner_ = d;
    }
    if (inner_ >= 0 && in.strides[dim] <= in.strides[inner_]) inner_ = -1;  // lines are the dense direction
  }

  void run() {
    int64_t index[kMaxDims] = {};
    for (;;) {
      if (inner_ < 0)
        line(index);
      else
        for (int64_t i = 0; i < in_.sizes[inner_]; i += kChunk) {
          index[inner_] = i;
          lines(index, std::min(kChunk, in_.sizes[inner_] - i));
        }
      if (inner_ >= 0) index[inner_] = 0;
      int d = in_.ndim - 1;
      for (; d >= 0; --d) {
        if (d == dim_ || d == inner_) continue;
        if (++index[d] < in_.sizes[d]) break;
        index[d] = 0;
      }
      if (d < 0) return;
    }
  }

 private:
  static char* place(const View& v, const int64_t* index) {
    int64_t offset = 0;
    for (int d = 0; d < v.ndim; ++d) offset += index[d] * v.strides[d];
    return v.as<char>() + offset * dtype_size(v.dtype);
  }
  void load(const char* memory, int64_t stride, int64_t n) {
    converters().load[kind_][in_.dtype](values_, memory, stride, n);
  }
  void store(int o, char* memory, int64_t stride, int64_t n) {
    converters().store[scan_.out[o]][outs_[o].dtype](memory, stride, results_[o], n);
  }

  void line(const int64_t* index) {
    alignas(16) char acc[32];
    scan_.init(acc, 1);
    void* results[2] = {results_[0], results_[1]};
    const int64_t length = in_.ndim ? in_.sizes[dim_] : 1, stride = in_.ndim ? in_.strides[dim_] : 1;
    const char* from = place(in_, index);
    for (int64_t i = 0; i < length; i += kChunk) {
      const int64_t n = std::min(kChunk, length - i);
      load(from + i * stride * dtype_size(in_.dtype), stride, n);
      scan_.line(acc, results, values_, n);
      for (int o = 0; o < n_; ++o) {
        const int64_t step = outs_[o].ndim ? outs_[o].strides[dim_] : 1;
        store(o, place(outs_[o], index) + i * step * dtype_size(outs_[o].dtype), step, n);
      }
    }
  }

  void lines(const int64_t* index, int64_t n) {
    scan_.init(accs_, n);
    void* results[2] = {results_[0], results_[1]};
    for (int64_t i = 0; i < in_.sizes[dim_]; ++i) {
      load(place(in_, index) + i * in_.strides[dim_] * dtype_size(in_.dtype), in_.strides[inner_], n);
      scan_.step(accs_, results, values_, n);
      for (int o = 0; o < n_; ++o)
        store(o, place(outs_[o], index) + i * outs_[o].strides[dim_] * dtype_size(outs_[o].dtype),
              outs_[o].strides[inner_], n);
    }
  }

  const View& in_;
  const View* outs_;
  int n_, dim_, inner_ = -1;
  Kind kind_;
  const Scan& scan_;
  alignas(64) char values_[kChunk * 16], results_[2][kChunk * 16], accs_[kChunk * 32];
};

template <Scanned which>
void scan_body(const Call& call) {
  constexpr bool kPlaces = which == Scanned::kMax || which == Scanned::kMin;
  const View in = call.tensor(0);
  if (in.numel == 0) return;
  const int64_t dim = call.integer(1);
  View outs[2] = {call.out(0)};
  if (kPlaces) outs[1] = call.out(1);
  const Kind kind = kind_of(kPlaces ? in.dtype : outs[0].dtype);
  Scanner(in, outs, kPlaces ? 2 : 1, static_cast<int>(dim < 0 ? dim + in.ndim : dim), kind, scan_of(which, kind)).run();
}

template <Scanned which>
fl_status run_scan(const fl_call* call) {
  return launch(call, scan_body<which>);
}
fl_status supports_cast(const fl_call* call) {
  if (is_complex(call->compute_dtype) && !is_complex(call->outs[0]->dtype))
    return unsupported("complex numbers summed as reals");
  const Kind kind = kind_of(call->outs[0]->dtype);
  return kind == kBool || kind == kU64 || kind == kNoKind ? unsupported("no loop for the output's element type")
                                                          : FL_OK;
}

constexpr uint64_t kSummed = kReals | kInts | kBoolBit | kComplexes;
const fl_kernel kRows[] = {
    row("aten::cumsum", 0, run_scan<Scanned::kSum>, kSummed, supports_cast),
    row("aten::cumprod", 0, run_scan<Scanned::kProd>, kSummed, supports_cast),
    row("aten::cummax", 0, run_scan<Scanned::kMax>, kReals | kInts | kBoolBit),
    row("aten::cummin", 0, run_scan<Scanned::kMin>, kReals | kInts | kBoolBit),
    row("aten::logcumsumexp", 0, run_scan<Scanned::kLogSumExp>, kReals),
};

}  // namespace

Family scan_family() { return kRows; }

}  // namespace fl_sim
