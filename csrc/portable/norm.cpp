// SPDX-License-Identifier: Apache-2.0
// Layer, root-mean-square, group and batch normalisation, forward and backward (kernels/norm.h).
#include <algorithm>
#include <limits>

#include "families.h"
#include "function.h"
#include "runtime/internal.h"

namespace torch_fl::portable {
namespace {

constexpr const char* kFile = "norm.h";
constexpr int64_t kTile = 64;       ///< TILE of kernels/sums.h
constexpr int64_t kMostRows = 512;  ///< that one item adds up, so that errors stay small

fl_dtype dtype_or(const fl_tensor* first, const fl_tensor* second, fl_dtype otherwise) {
  return first != nullptr ? first->dtype : second != nullptr ? second->dtype : otherwise;
}
int64_t tiles_of(int64_t width) { return (width + kTile - 1) / kTile; }

/// A pair of vectors that are given or not, of one type and length.
bool fits(const fl_tensor* first, const fl_tensor* second, int64_t length) {
  for (const fl_tensor* t : {first, second}) {
    if (t != nullptr && (!is_floating(t->dtype) || t->numel != length)) return false;
  }
  return first == nullptr || second == nullptr || first->dtype == second->dtype;
}

// ---- Layer and root mean square ---------------------------------------------------------------------------------

struct Layer {
  const char* op;
  bool centred;  ///< about the mean
  bool backward;
};
const Layer kLayers[] = {
    {"aten::native_layer_norm", true, false},
    {"aten::_fused_rms_norm", false, false},
    {"aten::native_layer_norm_backward", true, true},
    {"aten::_fused_rms_norm_backward", false, true},
};

class LayerRow : public Row {
 public:
  LayerRow(runtime::Chip& chip, Language language, const Layer& line) : Row(chip, language), line_(line) {}

  struct Reading {
    const fl_tensor *g = nullptr, *x, *weight, *bias = nullptr;
    const fl_tensor *out, *for_weight = nullptr, *for_bias = nullptr;
    const fl_tensor *means = nullptr, *rstds;
    int64_t rows = 0, width = 1;
    double eps = 0;
  };

  bool read(const fl_call& call, Reading& r) const {
    const uint32_t first = line_.backward ? 1 : 0;
    uint32_t next = first + 2;
    r.x = input_of(call, first);
    const fl_value& shape = call.args[first + 1];
    if (r.x == nullptr || shape.kind != FL_INTEGERS) return false;
    r.out = output_of(call, 0);
    if (line_.backward) {
      r.g = input_of(call, 0);
      if (line_.centred) r.means = input_of(call, next++);
      r.rstds = input_of(call, next++);
      r.weight = input_of(call, next++);
      r.for_weight = output_of(call, 1);
      if (line_.centred) r.for_bias = output_of(call, 2);
    } else {
      r.weight = input_of(call, next++);
      if (line_.centred) r.bias = input_of(call, next++);
      const fl_value& eps = call.args[next];
      r.eps = eps.kind == FL_NONE ? epsilon(r.x->dtype) : real_of(eps);
      if (line_.centred) r.means = output_of(call, 1);
      r.rstds = output_of(call, line_.centred ? 2 : 1);
    }
    for (uint32_t d = 0; d < shape.count; ++d) r.width *= shape.u.ints[d];
    r.rows = r.width == 0 ? 0 : r.x->numel / r.width;
    return r.width > 0 && r.rows * r.width == r.x->numel && fits(r.weight, r.bias, r.width) &&
           fits(r.for_weight, r.for_bias, r.width) && fits(r.means, r.rstds, r.rows) && r.rstds != nullptr &&
           (line_.centred ? r.means != nullptr : true) && (r.out == nullptr || alike(r.out, r.x)) &&
           (line_.backward ? alike(r.g, r.x) : r.out != nullptr);
  }

  FunctionCall function(const char* name, const Reading& r) const {
    FunctionCall f(kFile, name, r.x->dtype);
    f.type("X", r.x->dtype).type("S", r.rstds->dtype).setting("LAYER", 1).setting("CENTRED", line_.centred ? 1 : 0);
    f.type("W", dtype_or(r.weight, r.bias, dtype_or(r.for_weight, r.for_bias, r.x->dtype)));
    return f;
  }

  fl_status run(const fl_call& call) {
    Reading r;
    if (!read(call, r)) return decline("a normalisation that the portable kernels do not have");
    if (line_.backward) return backward(call, r);
    if (r.rows == 0) return FL_OK;
    const Split work = share(device(call), r.rows, r.width);
    FunctionCall f = function("layer_norm", r);
    f.setting("HAS_WEIGHT", given(r.weight)).setting("HAS_BIAS", given(r.bias));
    f.out("X", r.out).out("S", r.means).out("S", r.rstds).in("X", r.x).in("W", r.weight).in("W", r.bias);
    return f.words({r.rows, work.chunk, r.width}).real(r.eps).launch(*this, call, work.items);
  }

  fl_status backward(const fl_call& call, const Reading& r) {
    const bool parameters = r.for_weight != nullptr || r.for_bias != nullptr;
    if (!parameters && (r.out == nullptr || r.rows == 0)) return FL_OK;
    Split work = share(device(call), r.rows, r.width);
    if (work.chunk > kMostRows) work = {static_cast<uint64_t>((r.rows + kMostRows - 1) / kMostRows), kMostRows};
    fl_address partial = 0;
    if (parameters) {
      const uint64_t bytes =
          work.items * 2 * static_cast<uint64_t>(r.width) * bytes_of_arithmetic(arithmetic(r.x->dtype));
      const fl_status status = runtime::host_services().scratch(&call, bytes, &partial);
      if (status != FL_OK) return status;
    }
    FunctionCall f = function("layer_norm_backward", r);
    f.setting("HAS_WEIGHT", given(r.weight)).setting("INPUT", given(r.out)).setting("PARAMETERS", parameters ? 1 : 0);
    f.out("X", r.out).scratch("A", partial).in("X", r.g).in("X", r.x).in("S", r.means).in("S", r.rstds);
    f.in("W", r.weight).words({r.rows, work.chunk, r.width});
    const fl_status status = f.launch(*this, call, work.items);
    if (status != FL_OK || !parameters) return status;
    const Split tiles = share(device(call), tiles_of(r.width), kTile * static_cast<int64_t>(work.items));
    FunctionCall sums = function("column_sums", r);
    sums.setting("HAS_WEIGHT", given(r.for_weight)).setting("HAS_BIAS", given(r.for_bias));
    sums.out("W", r.for_weight).out("W", r.for_bias).scratch("A", partial);
    sums.words({tiles_of(r.width), tiles.chunk, r.width, static_cast<int64_t>(work.items)});
    return sums.launch(*this, call, tiles.items);
  }

  static fl_status supports(const fl_call* call) {
    Reading r;
    return row_of<LayerRow>(*call).read(*call, r) ? FL_OK
                                                  : decline("a normalisation that the portable kernels do not have");
  }

 private:
  static double epsilon(fl_dtype dtype) {
    switch (dtype) {
      case FL_FLOAT16:
        return 0x1p-10;
      case FL_BFLOAT16:
        return 0x1p-7;
      case FL_FLOAT64:
        return std::numeric_limits<double>::epsilon();
      default:
        return static_cast<double>(std::numeric_limits<float>::epsilon());
    }
  }
  const Layer& line_;
};

// ---- Groups -----------------------------------------------------------------------------------------------------

class GroupRow : public Row {
 public:
  GroupRow(runtime::Chip& chip, Language language, bool backward) : Row(chip, language), backward_(backward) {}

  struct Reading {
    const fl_tensor *g = nullptr, *x, *weight, *bias = nullptr, *means, *rstds;
    const fl_tensor *out, *for_weight = nullptr, *for_bias = nullptr;
    int64_t images, channels, points, groups, depth;
  };

  bool read(const fl_call& call, Reading& r) const {
    const uint32_t at = backward_ ? 5 : 3;
    r.images = call.args[at].u.i;
    r.channels = call.args[at + 1].u.i;
    r.points = call.args[at + 2].u.i;
    r.groups = call.args[at + 3].u.i;
    r.x = input_of(call, backward_ ? 1 : 0);
    r.weight = input_of(call, backward_ ? 4 : 1);
    r.out = output_of(call, 0);
    if (backward_) {
      r.g = input_of(call, 0);
      r.means = input_of(call, 2);
      r.rstds = input_of(call, 3);
      r.for_weight = output_of(call, 1);
      r.for_bias = output_of(call, 2);
    } else {
      r.bias = input_of(call, 2);
      r.means = output_of(call, 1);
      r.rstds = output_of(call, 2);
    }
    if (r.x == nullptr || r.means == nullptr || r.rstds == nullptr || r.groups <= 0) return false;
    r.depth = r.channels / r.groups;
    return r.images >= 0 && r.points >= 0 && r.depth > 0 && r.depth * r.groups == r.channels &&
           r.images * r.channels * r.points == r.x->numel && fits(r.weight, r.bias, r.channels) &&
           fits(r.for_weight, r.for_bias, r.channels) && fits(r.means, r.rstds, r.images * r.groups) &&
           (r.out == nullptr || alike(r.out, r.x)) && (backward_ ? alike(r.g, r.x) : r.out != nullptr);
  }

  static FunctionCall function(const char* name, const Reading& r) {
    FunctionCall f(kFile, name, r.x->dtype);
    f.type("X", r.x->dtype).type("S", r.rstds->dtype).setting("GROUP", 1);
    f.type("W", dtype_or(r.weight, r.bias, dtype_or(r.for_weight, r.for_bias, r.x->dtype)));
    f.setting("HAS_WEIGHT", given(r.weight)).setting("HAS_BIAS", given(r.bias));
    return f;
  }

  fl_status run(const fl_call& call) {
    Reading r;
    if (!read(call, r)) return decline("a group normalisation that the portable kernels do not have");
    if (backward_) return backward(call, r);
    if (r.x->numel == 0) return FL_OK;
    const int64_t all = r.images * r.groups;
    const Split work = share(device(call), all, r.depth * r.points);
    FunctionCall f = function("group_norm", r);
    f.out("X", r.out).out("S", r.means).out("S", r.rstds).in("X", r.x).in("W", r.weight).in("W", r.bias);
    f.words({all, work.chunk, r.groups, r.depth, r.points}).real(real_of(call.args[7]));
    return f.launch(*this, call, work.items);
  }

  fl_status backward(const fl_call& call, const Reading& r) {
    const int64_t stretches = r.images * r.channels, all = r.images * r.groups;
    fl_address sums = 0;
    const uint64_t bytes = 2 * static_cast<uint64_t>(stretches) * bytes_of_arithmetic(arithmetic(r.x->dtype));
    fl_status status = runtime::host_services().scratch(&call, std::max<uint64_t>(bytes, 1), &sums);
    if (status == FL_OK && stretches > 0) {
      const Split work = share(device(call), stretches, r.points);
      FunctionCall f = function("group_norm_sums", r);
      f.scratch("A", sums).in("X", r.g).in("X", r.x).in("S", r.means);
      status = f.words({stretches, work.chunk, r.depth, r.points}).launch(*this, call, work.items);
    }
    if (status == FL_OK && r.out != nullptr && r.out->numel > 0) {
      const Split work = share(device(call), all, r.depth * r.points);
      FunctionCall f = function("group_norm_input", r);
      f.out("X", r.out).scratch("A", sums).in("X", r.g).in("X", r.x).in("S", r.means).in("S", r.rstds);
      f.in("W", r.weight).words({all, work.chunk, r.groups, r.depth, r.points});
      status = f.launch(*this, call, work.items);
    }
    if (status != FL_OK || (r.for_weight == nullptr && r.for_bias == nullptr)) return status;
    const Split work = share(device(call), r.channels, r.images);
    FunctionCall f = function("group_norm_parameters", r);
    f.setting("WANTS_WEIGHT", given(r.for_weight)).setting("WANTS_BIAS", given(r.for_bias));
    f.out("W", r.for_weight).out("W", r.for_bias).scratch("A", sums).in("S", r.rstds);
    return f.words({r.channels, work.chunk, r.images, r.depth}).launch(*this, call, work.items);
  }

  static fl_status supports(const fl_call* call) {
    Reading r;
    return row_of<GroupRow>(*call).read(*call, r)
               ? FL_OK
               : decline("a group normalisation that the portable kernels do not have");
  }

 private:
  const bool backward_;
};

// ---- Batches ----------------------------------------------------------------------------------------------------

struct Images {
  int64_t images, channels, points = 1;
  explicit Images(const fl_tensor& x) : images(x.sizes[0]), channels(x.sizes[1]) {
    for (int32_t d = 2; d < x.ndim; ++d) points *= x.sizes[d];
  }
};

class BatchRow : public Row {
 public:
  BatchRow(runtime::Chip& chip, Language language, bool statistics) : Row(chip, language), statistics_(statistics) {}

  struct Reading {
    const fl_tensor *x, *weight, *bias, *running_mean = nullptr, *running_var = nullptr, *out, *means, *rstds;
    bool training;
    double momentum, eps;
  };

  bool read(const fl_call& call, Reading& r) const {
    r.x = input_of(call, 0);
    r.weight = input_of(call, 1);
    r.bias = input_of(call, 2);
    const uint32_t at = statistics_ ? 5 : 3;
    if (statistics_) {
      r.running_mean = input_of(call, 3);
      r.running_var = input_of(call, 4);
    }
    r.training = call.args[at].u.i != 0;
    r.momentum = real_of(call.args[at + 1]);
    r.eps = real_of(call.args[at + 2]);
    r.out = output_of(call, 0);
    r.means = output_of(call, 1);
    r.rstds = output_of(call, 2);
    if (r.x == nullptr || r.x->ndim < 2 || !alike(r.out, r.x) || r.means == nullptr || r.rstds == nullptr) return false;
    const int64_t channels = r.x->sizes[1];
    if (!fits(r.weight, r.bias, channels) || !fits(r.running_mean, r.running_var, channels)) return false;
    return r.training ? fits(r.means, r.rstds, channels) : r.running_mean != nullptr && r.running_var != nullptr;
  }

  fl_status run(const fl_call& call) {
    Reading r;
    if (!read(call, r)) return decline("a batch normalisation that the portable kernels do not have");
    if (r.x->numel == 0) return FL_OK;
    const Images s(*r.x);
    const bool columns = s.points == 1;
    const char* name = r.training ? columns ? "batch_norm_columns" : "batch_norm"
                       : columns  ? "batch_norm_fixed_rows"
                                  : "batch_norm_fixed";
    FunctionCall f(kFile, name, r.x->dtype);
    f.type("X", r.x->dtype).type("W", dtype_or(r.weight, r.bias, r.x->dtype)).setting("BATCH", 1);
    f.type("R", dtype_or(r.running_mean, r.running_var, r.x->dtype)).type("S", r.means->dtype);
    f.setting("HAS_WEIGHT", given(r.weight)).setting("HAS_BIAS", given(r.bias));
    f.setting("HAS_RUNNING_MEAN", given(r.running_mean)).setting("HAS_RUNNING_VAR", given(r.running_var));
    Split work{};
    if (r.training) {
      f.out("X", r.out).out("S", r.means).out("S", r.rstds).out("R", r.running_mean).out("R", r.running_var);
      f.in("X", r.x).in("W", r.weight).in("W", r.bias);
      const int64_t units = columns ? tiles_of(s.channels) : s.channels;
      work = share(device(call), units, r.x->numel / units);
      f.words({units, work.chunk, s.images, columns ? s.channels : s.points}).real(r.eps).real(r.momentum);
    } else {
      f.out("X", r.out).in("X", r.x).in("R", r.running_mean).in("R", r.running_var).in("W", r.weight).in("W", r.bias);
      const int64_t units = columns ? s.images : s.images * s.channels;
      work = share(device(call), units, r.x->numel / units);
      f.words({units, work.chunk, s.channels});
      if (!columns) f.word(s.points);
      f.real(r.eps);
    }
    return f.launch(*this, call, work.items);
  }

  static fl_status supports(const fl_call* call) {
    Reading r;
    return row_of<BatchRow>(*call).read(*call, r)
               ? FL_OK
               : decline("a batch normalisation that the portable kernels do not have");
  }

 private:
  const bool statistics_;
};

class BatchBackwardRow : public Row {
 public:
  using Row::Row;

  struct Reading {
    const fl_tensor *g, *x, *weight, *means, *spread, *out, *for_weight, *for_bias;
    bool training;
  };

  static bool read(const fl_call& call, Reading& r) {
    r.g = input_of(call, 0);
    r.x = input_of(call, 1);
    r.weight = input_of(call, 2);
    r.training = call.args[7].u.i != 0;
    r.means = input_of(call, r.training ? 5 : 3);
    r.spread = input_of(call, r.training ? 6 : 4);
    r.out = output_of(call, 0);
    r.for_weight = output_of(call, 1);
    r.for_bias = output_of(call, 2);
    if (!alike(r.g, r.x) || r.x->ndim < 2 || r.means == nullptr || r.spread == nullptr) return false;
    const int64_t channels = r.x->sizes[1];
    return fits(r.weight, nullptr, channels) && fits(r.means, r.spread, channels) &&
           fits(r.for_weight, r.for_bias, channels) && (r.out == nullptr || alike(r.out, r.x)) &&
           (r.weight == nullptr || r.for_weight == nullptr || r.weight->dtype == r.for_weight->dtype) &&
           (r.weight == nullptr || r.for_bias == nullptr || r.weight->dtype == r.for_bias->dtype);
  }

  fl_status run(const fl_call& call) {
    Reading r;
    if (!read(call, r)) return decline("a batch normalisation's gradient that the portable kernels do not have");
    const Images s(*r.x);
    if (s.channels == 0 || (r.out == nullptr && r.for_weight == nullptr && r.for_bias == nullptr)) return FL_OK;
    const bool columns = s.points == 1;
    FunctionCall f(kFile, columns ? "batch_norm_backward_columns" : "batch_norm_backward", r.x->dtype);
    f.type("X", r.x->dtype).type("S", r.spread->dtype).setting("BATCH_BACKWARD", 1);
    f.type("W", dtype_or(r.weight, r.for_weight, dtype_or(r.for_bias, nullptr, r.x->dtype)));
    f.setting("HAS_WEIGHT", given(r.weight)).setting("TRAIN", r.training ? 1 : 0).setting("INPUT", given(r.out));
    f.setting("WANTS_WEIGHT", given(r.for_weight)).setting("WANTS_BIAS", given(r.for_bias));
    f.out("X", r.out).out("W", r.for_weight).out("W", r.for_bias).in("X", r.g).in("X", r.x).in("W", r.weight);
    f.in("S", r.means).in("S", r.spread);
    const int64_t units = columns ? tiles_of(s.channels) : s.channels;
    const Split work = share(device(call), units, r.x->numel / units);
    f.words({units, work.chunk, s.images, columns ? s.channels : s.points}).real(real_of(call.args[8]));
    return f.launch(*this, call, work.items);
  }

  static fl_status supports(const fl_call* call) {
    Reading r;
    return read(*call, r) ? FL_OK : decline("a batch normalisation's gradient that the portable kernels do not have");
  }
};

}  // namespace

void add_norms(Rows& rows, runtime::Chip& chip, Language language) {
  constexpr uint32_t kDense = FL_KERNEL_CONTIGUOUS_INPUTS | FL_KERNEL_CONTIGUOUS_OUTPUTS;
  const auto add = [&]<class R>(const char* op, R* row) {
    rows.push_back(make_row(op, kDense, run_row<R>, R::supports, row, kFloats));
  };
  for (const Layer& line : kLayers) add(line.op, keep<LayerRow>(chip, language, line));
  add("aten::native_group_norm", keep<GroupRow>(chip, language, false));
  add("aten::native_group_norm_backward", keep<GroupRow>(chip, language, true));
  add("aten::native_batch_norm", keep<BatchRow>(chip, language, true));
  add("aten::_native_batch_norm_legit.no_stats", keep<BatchRow>(chip, language, false));
  add("aten::native_batch_norm_backward", keep<BatchBackwardRow>(chip, language));
}

}  // namespace torch_fl::portable
