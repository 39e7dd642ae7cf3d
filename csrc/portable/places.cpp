// SPDX-License-Identifier: Apache-2.0
// Elements made from their place, or from few others: triangles, ranges, polar, cross products, traces.
#include <algorithm>
#include <array>
#include <string>

#include "arguments.h"
#include "families.h"
#include "text.h"
#include "walk.h"

namespace torch_fl::portable {
namespace {

// ---- tril, triu ---------------------------------------------------------------------------------------------------

class TriangleRow : public Row {
 public:
  TriangleRow(runtime::Chip& chip, Language language, bool upper) : Row(chip, language), upper_(upper) {}

  fl_status run(const fl_call& call) {
    const fl_tensor& out = *call.outs[0];
    if (out.numel == 0) return FL_OK;
    const int64_t wide = element_bytes(out.dtype) == 16 ? 2 : 1;
    const fl_dtype type = wide == 2 ? fl_dtype{FL_INT64} : carrier(out.dtype);
    const int64_t rows = out.sizes[out.ndim - 2], columns = out.sizes[out.ndim - 1];
    VariantKey key;
    key.add(static_cast<uint32_t>(type));
    const fl_module module = variant(call, key, [&] {
      Source source;
      source.head = std::string("#define T ") + type_name(type) + "\n" + text_of("shapes.h");
      source.members = "  i64 lines, chunk, rows, columns, diagonal, upper, wide";
      source.pointers = {{type_name(type), "out", true}, {type_name(type), "x"}};
      source.body = "  TRIANGLE\n";
      return source;
    });
    const Split work = split(device(call), out.numel / columns, std::max<int64_t>(1, 16384 / columns));
    Members<7> words;
    for (const int64_t word : {out.numel / columns, work.chunk, rows, columns,
                               std::clamp(call.args[1].u.i, -rows - 1, columns + 1), int64_t{upper_ ? 1 : 0}, wide}) {
      words.add(word);
    }
    Arguments arguments;
    arguments.add(out);
    arguments.add(tensor(call, 0));
    arguments.add_members(words.data(), words.bytes());
    return arguments.launch(call, device(call), module, work.items);
  }
  static fl_status supports(const fl_call* call) {
    return call->outs[0]->ndim >= 2 && call->outs[0]->dtype != FL_DTYPE_OTHER
               ? FL_OK
               : decline("a triangle of elements or dimensions that the portable kernels do not have");
  }

 private:
  const bool upper_;
};

// ---- Ranges -------------------------------------------------------------------------------------------------------

enum class Range : uint8_t { Arange, Linspace, Logspace };

/// Numbers from their place. Computed in f64 where the device has it.
class RangeRow : public WalkRow {
 public:
  RangeRow(runtime::Chip& chip, Language language, Range kind) : WalkRow(chip, language), kind_(kind) {}

  fl_status run(const fl_call& call) {
    const fl_tensor& out = *call.outs[0];
    if (out.numel == 0) return FL_OK;
    Geometry g;
    const fl_tensor* outs[] = {&out};
    if (!g.merge(outs, 1) || g.rank != 1) return decline("a range that is not one line");
    const bool whole = kind_ == Range::Arange && is_integer(out.dtype), wide = has_f64(call);
    const auto bits = [&](double v) { return bits_of(v, wide); };
    std::array<uint64_t, 5> words{};
    if (whole) {
      words[0] = static_cast<uint64_t>(integer(call.args[0]));
      words[1] = static_cast<uint64_t>(integer(call.args[2], 1));
    } else if (kind_ == Range::Arange) {
      words[0] = bits(real(call.args[0]));
      words[1] = bits(real(call.args[2], 1));
    } else {
      const bool truncates = is_integer(out.dtype);  // the bounds are cast first
      const auto bound = [&](uint32_t i) {
        return truncates ? static_cast<double>(integer(call.args[i])) : real(call.args[i]);
      };
      const double start = bound(0), end = bound(1);
      const int64_t steps = call.args[2].u.i;
      words[0] = bits(start);
      words[1] = bits(steps > 1 ? (end - start) / static_cast<double>(steps - 1) : 0);
      words[2] = bits(end);
      words[3] = static_cast<uint64_t>(steps);
      words[4] = bits(kind_ == Range::Logspace ? real(call.args[3], 10) : 1);
    }
    VariantKey key;
    key.add(static_cast<uint32_t>(out.dtype));
    return walk_each(call, key, g, {out.address}, words, [&] { return write(g, out.dtype, whole, wide); });
  }

  static fl_status supports(const fl_call* call) {
    const fl_dtype type = call->outs[0]->dtype;
    if (!is_floating(type) && !is_integer(type)) return decline("a range of this element type");
    for (uint32_t i = 0; i < 2; ++i) {
      if (call->args[i].kind == FL_COMPLEX || call->args[i].kind == FL_TENSOR)
        return decline("bounds that are not real numbers");
    }
    return call->outs[0]->ndim <= 1 ? FL_OK : decline("a range that is not one line");
  }

 private:
  bool has_f64(const fl_call& call) const {
    const uint64_t dtypes = device(call).properties.dtypes;
    return dtypes == 0 || (dtypes & FL_DTYPE_BIT(FL_FLOAT64)) != 0;
  }
  Source write(const Geometry& g, fl_dtype dtype, bool whole, bool wide) const {
    Source source;
    const std::string a = whole ? "i64" : wide ? "f64" : "f32", type = type_name(dtype);
    const auto word = [&](const char* name) { return "BITS_" + a + "(p." + name + ")"; };
    source.members = walk_members(g) + ";\n  u64 start, step, end, steps, base";
    source.pointers = {{type, operand_name(0), true}};
    std::string value = word("start") + " + " + word("step") + " * (" + a + ")i";
    if (kind_ != Range::Arange) {  // from both ends, so that both are met exactly
      value = "(i < (i64)p.steps / 2 || p.steps == 1 ? " + value + " : " + word("end") + " - " + word("step") + " * (" +
              a + ")((i64)p.steps - i - 1))";
    }
    if (kind_ == Range::Logspace) value = "pow(" + word("base") + ", " + value + ")";
    if (!whole && is_integer(dtype)) value = "(i64)(" + value + ")";
    source.body =
        walk(g, "    const i64 i = begin + j;\n    STORE_" + type + "(" + element(g, 0) + ", " + value + ");\n");
    return source;
  }
  const Range kind_;
};

// ---- polar, linalg_cross, trace -------------------------------------------------------------------------------------

class PolarRow : public WalkRow {
 public:
  using WalkRow::WalkRow;

  static bool read(const fl_call& call, Geometry& g) {
    const fl_tensor &out = *call.outs[0], &radius = tensor(call, 0), &angle = tensor(call, 1);
    if (radius.dtype != angle.dtype) return false;
    int64_t doubled[kMostDims];
    for (int d = 0; d < out.ndim; ++d) doubled[d] = 2 * out.strides[d];
    const int64_t* steps[] = {doubled, radius.strides, angle.strides};
    return g.merge(out.ndim, out.sizes, steps, 3);
  }
  fl_status run(const fl_call& call) {
    Geometry g;
    if (!read(call, g)) return decline("polar coordinates that the portable kernels do not have");
    const fl_tensor &radius = tensor(call, 0), &angle = tensor(call, 1);
    VariantKey key;
    key.add(static_cast<uint32_t>(radius.dtype));
    const std::array<fl_address, 3> at = {call.outs[0]->address, radius.address, angle.address};
    return walk_each(call, key, g, {at[0], at[1], at[2]}, std::array<uint64_t, 0>{}, [&] {
      Source source;
      const std::string t = type_name(radius.dtype);
      source.members = walk_members(g);
      for (int k = 0; k < 3; ++k) source.pointers.push_back({t, operand_name(k), k == 0});
      source.body = walk(g, "    const " + t + " r = LOAD_" + t + "(" + element(g, 1) + "), a = LOAD_" + t + "(" +
                                element(g, 2) + ");\n    STORE_" + t + "(" + element(g, 0) +
                                ", r * cos(a));\n    STORE_" + t + "(" + element(g, 0) + " + 1, r * sin(a));\n");
      return source;
    });
  }
  static fl_status supports(const fl_call* call) {
    Geometry g;
    return read(*call, g) ? FL_OK : decline("polar coordinates that the portable kernels do not have");
  }
};

/// Walks all dimensions but the one of three elements.
class CrossRow : public WalkRow {
 public:
  using WalkRow::WalkRow;

  struct Reading {
    Geometry g;
    std::array<uint64_t, 3> steps;  ///< along that dimension
    bool read(const fl_call& call) {
      const fl_tensor* tensors[] = {call.outs[0], &tensor(call, 0), &tensor(call, 1)};
      const int ndim = tensors[0]->ndim;
      const int64_t dim = wrap(integer(call.args[2], -1), ndim);
      if (dim < 0 || dim >= ndim || tensors[0]->sizes[dim] != 3) return false;
      int64_t sizes[kMostDims], strides[3][kMostDims];
      const int64_t* lists[3];
      for (size_t k = 0; k < 3; ++k) {
        if (tensors[k]->dtype != tensors[0]->dtype || tensors[k]->ndim != ndim) return false;
        steps[k] = static_cast<uint64_t>(tensors[k]->strides[dim]);
        lists[k] = strides[k];
        for (int d = 0; d < ndim; ++d) {
          sizes[d] = d == dim ? 1 : tensors[0]->sizes[d];
          strides[k][d] = tensors[k]->strides[d];
        }
      }
      return g.merge(ndim, sizes, lists, 3);
    }
  };
  fl_status run(const fl_call& call) {
    Reading reading;
    if (!reading.read(call)) return decline("a cross product that the portable kernels do not have");
    const Geometry& g = reading.g;
    const fl_dtype type = call.outs[0]->dtype;
    VariantKey key;
    key.add(static_cast<uint32_t>(type));
    const std::array<fl_address, 3> at = {call.outs[0]->address, tensor(call, 0).address, tensor(call, 1).address};
    return walk_each(call, key, g, {at[0], at[1], at[2]}, reading.steps, [&] {
      Source source;
      const std::string t = type_name(type), a = arithmetic_name(type);
      source.members = walk_members(g) + ";\n  i64 step[3]";
      for (int k = 0; k < 3; ++k) source.pointers.push_back({t, operand_name(k), k == 0});
      std::string text;
      for (const char* side : {"1", "2"}) {
        for (const char* c : {"0", "1", "2"}) {
          text += "    const " + a + " v" + side + c + " = LOAD_" + t + "(" + element(g, side[0] - '0') + " + " + c +
                  " * p.step[" + side + "]);\n";
        }
      }
      const char* terms[] = {"v11 * v22 - v12 * v21", "v12 * v20 - v10 * v22", "v10 * v21 - v11 * v20"};
      for (int c = 0; c < 3; ++c) {
        text +=
            "    STORE_" + t + "(" + element(g, 0) + " + " + std::to_string(c) + " * p.step[0], " + terms[c] + ");\n";
      }
      source.body = walk(g, text);
      return source;
    });
  }
  static fl_status supports(const fl_call* call) {
    Reading reading;
    return reading.read(*call) ? FL_OK : decline("a cross product that the portable kernels do not have");
  }
};

class TraceRow : public Row {
 public:
  using Row::Row;

  fl_status run(const fl_call& call) {
    const fl_tensor &in = tensor(call, 0), &out = *call.outs[0];
    VariantKey key;
    key.add(static_cast<uint32_t>(in.dtype));
    const fl_module module = variant(call, key, [&] {
      Source source;
      const std::string from = type_name(in.dtype), to = type_name(out.dtype);
      source.members = "  i64 count, step";
      source.pointers = {{to, "out", true}, {from, "x"}};
      source.body = std::string("  ") + arithmetic_name(out.dtype) +
                    " total = 0;\n  for (i64 i = 0; i < p.count; ++i) total += LOAD_" + from +
                    "(x, i * p.step);\n  STORE_" + to + "(out, 0, total);\n";
      return source;
    });
    Members<2> words;
    words.add(std::min(in.sizes[0], in.sizes[1]));
    words.add(in.strides[0] + in.strides[1]);
    Arguments arguments;
    arguments.add(out);
    arguments.add(in);
    arguments.add_members(words.data(), words.bytes());
    return arguments.launch(call, device(call), module, 1);
  }
  static fl_status supports(const fl_call* call) {
    return tensor(*call, 0).ndim == 2 && tensor(*call, 0).numel > 0 && type_name(call->outs[0]->dtype) != nullptr
               ? FL_OK
               : decline("a trace of something that is no matrix, or empty");
  }
};

}  // namespace

void add_places(Rows& rows, runtime::Chip& chip, Language language) {
  constexpr uint32_t kDense = FL_KERNEL_CONTIGUOUS_INPUTS | FL_KERNEL_CONTIGUOUS_OUTPUTS;
  const auto add_triangle = [&](const char* op, bool upper) {
    rows.push_back(
        make_row(op, kDense, run_row<TriangleRow>, TriangleRow::supports, keep<TriangleRow>(chip, language, upper), 0));
  };
  add_triangle("aten::tril", false);
  add_triangle("aten::triu", true);
  rows.push_back(make_row("aten::polar", FL_KERNEL_BROADCAST, run_row<PolarRow>, PolarRow::supports,
                          keep<PolarRow>(chip, language), FL_DTYPE_BIT(FL_FLOAT32) | FL_DTYPE_BIT(FL_FLOAT64)));
  rows.push_back(make_row("aten::linalg_cross", FL_KERNEL_BROADCAST, run_row<CrossRow>, CrossRow::supports,
                          keep<CrossRow>(chip, language), kFloats | kIntegers));
  rows.push_back(make_row("aten::trace", 0, run_row<TraceRow>, TraceRow::supports, keep<TraceRow>(chip, language),
                          kFloats | kIntegers | kBool));
  const auto add_range = [&](const char* op, Range kind) {
    rows.push_back(make_row(op, 0, run_row<RangeRow>, RangeRow::supports, keep<RangeRow>(chip, language, kind), 0));
  };
  add_range("aten::arange.start_step", Range::Arange);
  add_range("aten::linspace", Range::Linspace);
  add_range("aten::logspace", Range::Logspace);
}

}  // namespace torch_fl::portable
