// SPDX-License-Identifier: Apache-2.0
// Distances between rows, norms that are held down, and outer products.
#include <algorithm>
#include <cmath>

#include "arguments.h"
#include "families.h"
#include "text.h"
#include "walk.h"

namespace torch_fl::portable {
namespace {

constexpr uint32_t kDense = FL_KERNEL_CONTIGUOUS_INPUTS | FL_KERNEL_CONTIGUOUS_OUTPUTS;
constexpr uint64_t kSingles = FL_DTYPE_BIT(FL_FLOAT32) | FL_DTYPE_BIT(FL_FLOAT64);
constexpr const char* kReason = "distances or products that the portable kernels do not have";

uint32_t order_class(double p) { return p == 0 ? 0 : p == 1 ? 1 : p == 2 ? 2 : std::isinf(p) ? 3 : 4; }

std::string head_of(fl_dtype dtype, double p) {
  const std::string type = type_name(dtype), a = arithmetic_name(dtype);
  return "#define A " + a + "\n#define LOAD LOAD_" + type + "\n#define STORE STORE_" + type + "\n#define BITS BITS_" +
         a + "\n#define ORDER " + std::to_string(order_class(p)) + "\n" + text_of("distance.h");
}

/// Strides of a tensor of fewer dimensions in an index space, the last `own` of which are given.
struct Steps {
  int64_t list[64] = {};
  bool fit = true;
  Steps(const fl_tensor& t, const fl_tensor& space, std::initializer_list<int64_t> own) {
    const int last = static_cast<int>(own.size());
    for (int k = 1; k <= space.ndim - last; ++k) {
      const int d = t.ndim - last - k;
      fit = fit && (d < 0 || t.sizes[d] == 1 || t.sizes[d] == space.sizes[space.ndim - last - k]);
      list[space.ndim - last - k] = d >= 0 && t.sizes[d] != 1 ? t.strides[d] : 0;
    }
    for (int d = 0; d < t.ndim - space.ndim; ++d) fit = fit && t.sizes[d] == 1;
    int at = space.ndim - last;
    for (const int64_t step : own) list[at++] = step;
  }
};

/// Between all rows of one and all rows of another tensor; and the gradient for the one.
class CdistRow : public WalkRow {
 public:
  CdistRow(runtime::Chip& chip, Language language, bool backward) : WalkRow(chip, language), backward_(backward) {}

  struct Reading {
    Geometry g;
    double p = 2;
    std::array<uint64_t, 5> words{};
  };
  bool read(const fl_call& call, Reading& reading) const {
    const fl_tensor &out = *call.outs[0], &x1 = tensor(call, backward_ ? 1 : 0), &x2 = tensor(call, backward_ ? 2 : 1);
    if (x1.dtype != out.dtype || x2.dtype != out.dtype || out.ndim < 2 || x1.ndim < 2 || x2.ndim < 2) return false;
    const auto row = [](const fl_tensor& t) { return t.strides[t.ndim - 2]; };
    const auto column = [](const fl_tensor& t) { return t.strides[t.ndim - 1]; };
    reading.p = real(call.args[backward_ ? 3 : 2]);
    const uint64_t order = bits_of(reading.p, out.dtype == FL_FLOAT64);
    if (!backward_) {
      const Steps one(x1, out, {row(x1), 0}), two(x2, out, {0, row(x2)});
      const int64_t* steps[] = {out.strides, one.list, two.list};
      reading.words = {order, static_cast<uint64_t>(x1.sizes[x1.ndim - 1]), static_cast<uint64_t>(column(x1)),
                       static_cast<uint64_t>(column(x2)), 0};
      return one.fit && two.fit && reading.g.merge(out.ndim, out.sizes, steps, 3);
    }
    const fl_tensor &grad = tensor(call, 0), &far = tensor(call, 4);
    if (grad.dtype != out.dtype || far.dtype != out.dtype || grad.ndim < 2 || far.ndim < 2) return false;
    const Steps one(x1, out, {row(x1), column(x1)}), two(x2, out, {0, column(x2)}), of_grad(grad, out, {row(grad), 0}),
        of_far(far, out, {row(far), 0});
    const int64_t* steps[] = {out.strides, one.list, two.list, of_grad.list, of_far.list};
    // Of an empty batch nothing comes back.
    const int64_t count = grad.numel == 0 ? 0 : x2.sizes[x2.ndim - 2];
    const bool fit = count == 0 || (one.fit && two.fit && of_grad.fit && of_far.fit && far.numel == grad.numel);
    reading.words = {order, static_cast<uint64_t>(count), static_cast<uint64_t>(row(x2)),
                     static_cast<uint64_t>(column(grad)), static_cast<uint64_t>(column(far))};
    return fit && reading.g.merge(out.ndim, out.sizes, steps, 5);
  }

  Source write(fl_dtype dtype, const Reading& reading) const {
    const Geometry& g = reading.g;
    Source source;
    source.head = head_of(dtype, reading.p);
    source.members = walk_members(g) + ";\n  u64 order;\n  i64 count, step[3]";
    for (int k = 0; k < g.operands; ++k) source.pointers.push_back({type_name(dtype), operand_name(k), k == 0});
    const auto at = [&](int operand, const char* step) {
      return "LOAD(" + element(g, operand) + " + n * p.step[" + step + "])";
    };
    std::string text = "    const A order = BITS(p.order);\n    A sum = 0;\n    for (i64 n = 0; n < p.count; ++n) {\n";
    if (backward_) {
      text += "      const A d = LOAD(" + element(g, 1) + ") - " + at(2, "0") + ";\n      sum += " + at(3, "1") +
              " * norm_gradient(d, " + at(4, "2") + ", order);\n    }\n    STORE(" + element(g, 0) + ", sum);\n";
    } else {
      text += "      const A d = " + at(1, "0") + " - " + at(2, "1") + ";\n      NORM_ADD(sum, d);\n    }\n    STORE(" +
              element(g, 0) + ", NORM_END(sum));\n";
    }
    source.body = walk(g, text);
    return source;
  }

  fl_status run(const fl_call& call) {
    Reading reading;
    if (!read(call, reading)) return decline(kReason);
    const fl_dtype dtype = call.outs[0]->dtype;
    VariantKey key;
    key.add(static_cast<uint32_t>(dtype));
    key.add(order_class(reading.p));
    const auto make = [&] { return write(dtype, reading); };
    const fl_address out = call.outs[0]->address;
    if (!backward_) {
      return walk_each(call, key, reading.g, {out, tensor(call, 0).address, tensor(call, 1).address}, reading.words,
                       make);
    }
    return walk_each(
        call, key, reading.g,
        {out, tensor(call, 1).address, tensor(call, 2).address, tensor(call, 0).address, tensor(call, 4).address},
        reading.words, make);
  }
  static fl_status supports(const fl_call* call) {
    Reading reading;
    return row_of<CdistRow>(*call).read(*call, reading) ? FL_OK : decline(kReason);
  }

 private:
  const bool backward_;
};

/// Kernels of distance.h over dense tensors: pdist, its gradient, renorm.
class NormRow : public Row {
 public:
  enum class Kind : uint8_t { Pdist, PdistBackward, Renorm };
  NormRow(runtime::Chip& chip, Language language, Kind kind) : Row(chip, language), kind_(kind) {}

  fl_status run(const fl_call& call) {
    const fl_tensor& out = *call.outs[0];
    const fl_tensor& x = tensor(call, kind_ == Kind::PdistBackward ? 1 : 0);
    if (out.numel == 0) return FL_OK;
    const bool renorm = kind_ == Kind::Renorm, wide = out.dtype == FL_FLOAT64;
    const double p = real(call.args[kind_ == Kind::PdistBackward ? 2 : 1]);
    int64_t outer = 1, size = x.ndim == 0 ? 1 : x.sizes[0], inner = 1;
    if (renorm) {
      const int64_t dim = call.args[2].u.i < 0 ? call.args[2].u.i + x.ndim : call.args[2].u.i;
      size = x.sizes[dim];
      for (int d = 0; d < x.ndim; ++d) (d < dim ? outer : inner) *= d == dim ? 1 : x.sizes[d];
    }
    VariantKey key;
    key.add(static_cast<uint32_t>(out.dtype));
    key.add(order_class(p));
    const fl_module module = variant(call, key, [&] {
      Source source;
      const std::string type = type_name(out.dtype);
      source.head = head_of(out.dtype, p);
      source.pointers = {{type, "out", true}, {type, "x"}};
      if (kind_ == Kind::PdistBackward) source.pointers.insert(source.pointers.end(), {{type, "grad"}, {type, "far"}});
      source.members =
          renorm ? "  i64 size, chunk, outer, inner;\n  u64 order, most" : "  i64 rows, chunk, columns;\n  u64 order";
      source.body = renorm ? "  RENORM\n" : kind_ == Kind::Pdist ? "  PDIST\n" : "  PDIST_BACKWARD\n";
      return source;
    });
    const Split work = split(device(call), size, std::max<int64_t>(1, 4096 * size / std::max<int64_t>(x.numel, 1)));
    Members<6> words;
    words.add(size);
    words.add(work.chunk);
    if (renorm) words.add(outer);
    words.add(renorm ? inner : x.sizes[1]);
    words.add(static_cast<int64_t>(bits_of(p, wide)));
    if (renorm) words.add(static_cast<int64_t>(bits_of(real(call.args[3]), wide)));
    Arguments arguments;
    arguments.add(out);
    arguments.add(x);
    if (kind_ == Kind::PdistBackward) {
      arguments.add(tensor(call, 0));
      arguments.add(tensor(call, 3));
    }
    arguments.add_members(words.data(), words.bytes());
    return arguments.launch(call, device(call), module, work.items);
  }
  static fl_status supports(const fl_call* call) {
    const auto& row = row_of<NormRow>(*call);
    const fl_tensor& x = tensor(*call, row.kind_ == Kind::PdistBackward ? 1 : 0);
    bool shaped = row.kind_ == Kind::Renorm ? x.ndim >= 2 : x.ndim == 2;
    if (shaped && row.kind_ == Kind::PdistBackward) {
      const int64_t pairs = x.sizes[0] * (x.sizes[0] - 1) / 2;
      shaped = tensor(*call, 0).numel == pairs && tensor(*call, 3).numel == pairs &&
               x.dtype == tensor(*call, 0).dtype && x.dtype == tensor(*call, 3).dtype;
    }
    return shaped && x.dtype == call->outs[0]->dtype ? FL_OK : decline(kReason);
  }

 private:
  const Kind kind_;
};

/// beta self + alpha vec1 (x) vec2
class OuterRow : public WalkRow {
 public:
  using WalkRow::WalkRow;

  static bool read(const fl_call& call, Geometry& g) {
    const fl_tensor &out = *call.outs[0], &self = tensor(call, 0), &one = tensor(call, 1), &two = tensor(call, 2);
    for (uint32_t i = 0; i < 3; ++i) {
      if (call.args[i].kind != FL_TENSOR || tensor(call, i).dtype != out.dtype) return false;
    }
    if (out.ndim != 2 || one.ndim != 1 || two.ndim != 1 || self.ndim > 2) return false;
    const Steps addend(self, out, {}), rows(one, out, {one.strides[0], 0}), columns(two, out, {0, two.strides[0]});
    const int64_t* steps[] = {out.strides, addend.list, rows.list, columns.list};
    return addend.fit && one.sizes[0] == out.sizes[0] && two.sizes[0] == out.sizes[1] &&
           g.merge(2, out.sizes, steps, 4);
  }
  fl_status run(const fl_call& call) {
    Geometry g;
    if (!read(call, g)) return decline(kReason);
    const fl_tensor& out = *call.outs[0];
    VariantKey key;
    key.add(static_cast<uint32_t>(out.dtype));
    const std::array<uint64_t, 2> words = {bits_of(call.args[3], out.dtype), bits_of(call.args[4], out.dtype)};
    return walk_each(call, key, g,
                     {out.address, tensor(call, 0).address, tensor(call, 1).address, tensor(call, 2).address}, words,
                     [&] {
                       Source source;
                       const std::string t = type_name(out.dtype), a = arithmetic_name(out.dtype);
                       source.members = walk_members(g) + ";\n  u64 beta, alpha";
                       for (int k = 0; k < 4; ++k) source.pointers.push_back({t, operand_name(k), k == 0});
                       const auto load = [&](int k) { return "LOAD_" + t + "(" + element(g, k) + ")"; };
                       const std::string beta = "BITS_" + a + "(p.beta)", alpha = "BITS_" + a + "(p.alpha)";
                       // With beta 0 the addend does not count, whatever it is.
                       source.body = walk(g, "    const " + a + " addend = " + beta + " == 0 ? 0 : " + beta + " * " +
                                                 load(1) + ";\n    STORE_" + t + "(" + element(g, 0) + ", addend + " +
                                                 alpha + " * " + load(2) + " * " + load(3) + ");\n");
                       return source;
                     });
  }
  static fl_status supports(const fl_call* call) {
    Geometry g;
    return read(*call, g) ? FL_OK : decline(kReason);
  }
};

}  // namespace

void add_distances(Rows& rows, runtime::Chip& chip, Language language) {
  const auto add_cdist = [&](const char* op, bool backward) {
    rows.push_back(
        make_row(op, 0, run_row<CdistRow>, CdistRow::supports, keep<CdistRow>(chip, language, backward), kSingles));
  };
  add_cdist("aten::_cdist_forward", false);
  add_cdist("aten::_cdist_backward", true);
  const auto add_norm = [&](const char* op, NormRow::Kind kind, uint64_t dtypes) {
    rows.push_back(
        make_row(op, kDense, run_row<NormRow>, NormRow::supports, keep<NormRow>(chip, language, kind), dtypes));
  };
  add_norm("aten::_pdist_forward", NormRow::Kind::Pdist, kSingles);
  add_norm("aten::_pdist_backward", NormRow::Kind::PdistBackward, kSingles);
  add_norm("aten::renorm", NormRow::Kind::Renorm, kFloats);
  rows.push_back(make_row("aten::addr", FL_KERNEL_PROMOTE, run_row<OuterRow>, OuterRow::supports,
                          keep<OuterRow>(chip, language), kSingles | kIntegers));
}

}  // namespace torch_fl::portable
