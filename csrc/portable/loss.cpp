// SPDX-License-Identifier: Apache-2.0
// Losses: element by element, and the negative log likelihood of classes (kernels/loss.h).
#include "families.h"
#include "function.h"
#include "runtime/internal.h"

namespace torch_fl::portable {
namespace {

constexpr const char* kFile = "loss.h";
constexpr const char* kRefusal = "a loss of these shapes or element types";
enum Reduction : int64_t { kNone = 0, kMean = 1 };

// `count` numbers of the type that is computed in.
fl_status take_scratch(const fl_call& call, fl_dtype dtype, uint64_t count, fl_address* address) {
  return runtime::host_services().scratch(&call, count * bytes_of_arithmetic(arithmetic(dtype)), address);
}

// ---- Element by element -----------------------------------------------------------------------------------------

struct Element {
  const char* op;
  uint32_t loss;  ///< LOSS of kernels/loss.h
  bool backward;
  int weight, reduction, extra;  ///< arguments; -1: none
};
const Element kElements[] = {
    {"aten::mse_loss", 0, false, -1, 2, -1},          {"aten::smooth_l1_loss", 1, false, -1, 2, 3},
    {"aten::huber_loss", 2, false, -1, 2, 3},         {"aten::binary_cross_entropy", 3, false, 2, 3, -1},
    {"aten::mse_loss_backward", 0, true, -1, 3, -1},  {"aten::smooth_l1_loss_backward", 1, true, -1, 3, 4},
    {"aten::huber_loss_backward", 2, true, -1, 3, 4}, {"aten::binary_cross_entropy_backward", 3, true, 3, 4, -1},
};

class ElementRow : public Row {
 public:
  ElementRow(runtime::Chip& chip, Language language, const Element& line) : Row(chip, language), line_(line) {}

  struct Reading {
    const fl_tensor *g, *x, *target, *weight, *out;
    int64_t reduction;
    double extra;
  };

  bool read(const fl_call& call, Reading& r) const {
    const uint32_t first = line_.backward ? 1 : 0;
    r.g = line_.backward ? input_of(call, 0) : nullptr;
    r.x = input_of(call, first);
    r.target = input_of(call, first + 1);
    r.weight = line_.weight < 0 ? nullptr : input_of(call, static_cast<uint32_t>(line_.weight));
    r.out = output_of(call, 0);
    r.reduction = call.args[line_.reduction].u.i;
    r.extra = line_.extra < 0 ? 0 : real_of(call.args[line_.extra]);
    if (r.out == nullptr || !same_shape(r.x, r.target) || r.x->dtype != r.out->dtype) return false;
    if (r.weight != nullptr && !same_shape(r.x, r.weight)) return false;
    const bool each = line_.backward || r.reduction == kNone;
    if (each ? !same_shape(r.x, r.out) : r.out->numel != 1) return false;
    return !line_.backward || (r.g != nullptr && r.g->dtype == r.x->dtype && (r.g->numel == 1 || alike(r.g, r.x)));
  }

  fl_status run(const fl_call& call) {
    Reading r;
    if (!read(call, r)) return decline(kRefusal);
    const int64_t n = r.x->numel;
    const bool total = !line_.backward && r.reduction != kNone;
    if (n == 0 && !total) return FL_OK;
    const Split work = share(device(call), n, 1);
    FunctionCall f(kFile,
                   line_.backward ? "element_loss_backward"
                   : total        ? "element_loss_sums"
                                  : "element_loss",
                   r.x->dtype);
    f.type("X", r.x->dtype).setting("LOSS", line_.loss).setting("HAS_WEIGHT", given(r.weight));
    if (line_.backward) {
      f.setting("EACH_GRADIENT", r.g->numel != 1 ? 1 : 0);
      f.out("X", r.out).in("X", r.g).in("X", r.x).in("X", r.target).in("X", r.weight).words({n, work.chunk});
      f.real(r.extra).real(r.reduction == kMean ? 1.0 / static_cast<double>(n) : 1.0);
      return f.launch(*this, call, work.items);
    }
    fl_address partial = 0;
    if (total) {
      const fl_status status = take_scratch(call, r.x->dtype, work.items, &partial);
      if (status != FL_OK) return status;
      f.scratch("A", partial);
    } else {
      f.out("X", r.out);
    }
    f.in("X", r.x).in("X", r.target).in("X", r.weight).words({n, work.chunk}).real(r.extra);
    const fl_status status = f.launch(*this, call, work.items);
    if (status != FL_OK || !total) return status;
    FunctionCall last(kFile, "element_loss_total", r.x->dtype);
    last.type("X", r.x->dtype).setting("LOSS", line_.loss);
    last.out("X", r.out).scratch("A", partial).word(static_cast<int64_t>(work.items));
    return last.real(r.reduction == kMean ? static_cast<double>(n) : 1.0).launch(*this, call, 1);
  }

  static fl_status supports(const fl_call* call) {
    Reading r;
    return row_of<ElementRow>(*call).read(*call, r) ? FL_OK : decline(kRefusal);
  }

 private:
  static bool same_shape(const fl_tensor* a, const fl_tensor* b) {
    return alike(a, b) && a->ndim == b->ndim && std::equal(a->sizes, a->sizes + a->ndim, b->sizes);
  }
  const Element& line_;
};

// ---- Classes ----------------------------------------------------------------------------------------------------

class ClassRow : public Row {
 public:
  ClassRow(runtime::Chip& chip, Language language, bool backward) : Row(chip, language), backward_(backward) {}

  struct Reading {
    const fl_tensor *g, *x, *target, *weight, *out, *total;  ///< x: in the backward pass only its shape counts
    int64_t reduction, ignored, images = 1, classes = 0, points = 1;
    bool each;
  };

  bool read(const fl_call& call, Reading& r) const {
    const uint32_t first = backward_ ? 1 : 0;
    r.g = backward_ ? input_of(call, 0) : nullptr;
    r.x = input_of(call, first);
    r.target = input_of(call, first + 1);
    r.weight = input_of(call, first + 2);
    r.reduction = call.args[first + 3].u.i;
    r.ignored = call.args[first + 4].u.i;
    r.out = output_of(call, 0);
    r.total = backward_ ? input_of(call, 6) : output_of(call, 1);
    if (r.x == nullptr || r.target == nullptr || r.out == nullptr || r.total == nullptr || r.x->ndim < 1) return false;
    const bool single = r.x->ndim == 1;  // without a batch: never reduced by "none"
    r.images = single ? 1 : r.x->sizes[0];
    r.classes = r.x->sizes[single ? 0 : 1];
    for (int32_t d = 2; d < r.x->ndim; ++d) r.points *= r.x->sizes[d];
    r.each = r.reduction == kNone && !single;
    const int64_t targets = r.images * r.points, losses = r.each ? targets : 1;
    const bool types = r.target->dtype == FL_INT64 || r.target->dtype == FL_UINT8;
    if (!types || r.target->numel != targets || r.total->numel != 1 || r.total->dtype != r.x->dtype) return false;
    if (r.weight != nullptr && (r.weight->dtype != r.x->dtype || r.weight->numel != r.classes)) return false;
    if (!backward_) return r.out->dtype == r.x->dtype && r.out->numel == losses;
    return alike(r.out, r.x) && r.g != nullptr && r.g->dtype == r.x->dtype && r.g->numel == losses;
  }

  static FunctionCall function(const char* name, const Reading& r) {
    FunctionCall f(kFile, name, r.x->dtype);
    f.type("X", r.x->dtype).type("LABEL", r.target->dtype).setting("CLASSES", 1).setting("HAS_WEIGHT", given(r.weight));
    f.setting("EACH_GRADIENT", r.each ? 1 : 0).setting("MEAN", r.reduction == kMean ? 1 : 0);
    return f;
  }

  fl_status run(const fl_call& call) {
    Reading r;
    if (!read(call, r)) return decline(kRefusal);
    const int64_t targets = r.images * r.points;
    if (backward_) {
      if (r.out->numel == 0) return FL_OK;
      const bool rows = r.points == 1;
      const int64_t units = rows ? r.images : r.images * r.classes;
      const Split work = share(device(call), units, r.out->numel / units);
      FunctionCall f = function(rows ? "nll_backward_rows" : "nll_backward_planes", r);
      f.out("X", r.out).in("X", r.g).in("X", r.total).in("LABEL", r.target).in("X", r.weight);
      f.words({units, work.chunk, r.classes});
      if (!rows) f.word(r.points);
      return f.word(r.ignored).launch(*this, call, work.items);
    }
    const Split work = share(device(call), targets, 8);
    fl_address partial = 0;
    FunctionCall f = function(r.each ? "nll_each" : "nll_sums", r);
    if (r.each) {
      f.out("X", r.out).out("X", r.total);
    } else {
      const fl_status status = take_scratch(call, r.x->dtype, 2 * work.items, &partial);
      if (status != FL_OK) return status;
      f.scratch("A", partial);
    }
    f.in("X", r.x).in("LABEL", r.target).in("X", r.weight);
    f.words({targets, work.chunk, r.classes, r.points, r.ignored});
    const fl_status status = f.launch(*this, call, work.items);
    if (status != FL_OK || r.each) return status;
    FunctionCall last = function("nll_total", r);
    last.out("X", r.out).out("X", r.total).scratch("A", partial).word(static_cast<int64_t>(work.items));
    return last.launch(*this, call, 1);
  }

  static fl_status supports(const fl_call* call) {
    Reading r;
    return row_of<ClassRow>(*call).read(*call, r) ? FL_OK : decline(kRefusal);
  }

 private:
  const bool backward_;
};

}  // namespace

void add_losses(Rows& rows, runtime::Chip& chip, Language language) {
  constexpr uint32_t kDense = FL_KERNEL_CONTIGUOUS_INPUTS | FL_KERNEL_CONTIGUOUS_OUTPUTS;
  for (const Element& line : kElements) {
    rows.push_back(make_row(line.op, kDense, run_row<ElementRow>, ElementRow::supports,
                            keep<ElementRow>(chip, language, line), kFloats));
  }
  for (const char* op : {"aten::nll_loss_forward", "aten::nll_loss2d_forward"}) {
    rows.push_back(
        make_row(op, kDense, run_row<ClassRow>, ClassRow::supports, keep<ClassRow>(chip, language, false), kFloats));
  }
  for (const char* op : {"aten::nll_loss_backward", "aten::nll_loss2d_backward"}) {
    rows.push_back(
        make_row(op, kDense, run_row<ClassRow>, ClassRow::supports, keep<ClassRow>(chip, language, true), kFloats));
  }
}

}  // namespace torch_fl::portable
