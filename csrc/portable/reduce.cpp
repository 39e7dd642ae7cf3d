// SPDX-License-Identifier: Apache-2.0
// Reductions by joining elements two by two: sums, products, extrema, any/all, norms.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <initializer_list>

#include "families.h"
#include "reducing.h"
#include "text.h"

namespace torch_fl::portable {
namespace {

struct Reduction {
  const char* op;
  uint64_t types;
  Which which;
  int dims_argument;
  const char* first;
  const char* map;   ///< of x, an element in type A
  const char* join;  ///< of a and b
  const char* last;  ///< of a; sees p.count
  enum Accumulate : uint8_t { InOutput, InInput, InByte } accumulate;
  double order = NAN;  ///< of a vector norm: this row is for this order alone

  // The same of vectors of f32; null: numbers only.
  const char* vector_map() const {
    const auto is = [&](const char* text) { return std::strcmp(map, text) == 0; };
    return is("x") || is("x * x")   ? map
           : is("fabs(x)")          ? "MAGNITUDE(x)"
           : is("(x != x ? 0 : x)") ? "PICK(x != x, SPLAT(0.0f), x)"
                                    : nullptr;
  }
  const char* vector_join() const {
    const auto is = [&](const char* text) { return std::strcmp(join, text) == 0; };
    return is("a + b") || is("a * b") ? join
           : is("max_of(a, b)")       ? "v_max_of(a, b)"
           : is("min_of(a, b)")       ? "v_min_of(a, b)"
                                      : nullptr;
  }
};

constexpr auto kOutput = Reduction::InOutput;
constexpr auto kInput = Reduction::InInput;
constexpr auto kByte = Reduction::InByte;
constexpr double kAnyOrder = -1e300;               // not one that a row of its own is for
constexpr const char* kAminmax = "aten::aminmax";  // two results: a line each
constexpr const char* kProduct = "MAKE(RE(a) * RE(b) - IM(a) * IM(b), RE(a) * IM(b) + IM(a) * RE(b))";
constexpr const char* kNotZero = "(RE(x) != 0 || IM(x) != 0)";
constexpr const char* kNorm = "aten::linalg_vector_norm";

const Reduction kTable[] = {
    {"aten::sum", kAll, Which::All, -1, "0", "x", "a + b", "a", kOutput},
    {"aten::sum", kComplex, Which::All, -1, "MAKE(0, 0)", "x", "a + b", "a", kOutput},
    {"aten::sum.dim_IntList", kAll, Which::List, 1, "0", "x", "a + b", "a", kOutput},
    {"aten::sum.dim_IntList", kComplex, Which::List, 1, "MAKE(0, 0)", "x", "a + b", "a", kOutput},
    {"aten::nansum", kFloats, Which::List, 1, "0", "(x != x ? 0 : x)", "a + b", "a", kOutput},
    {"aten::mean", kFloats, Which::All, -1, "0", "x", "a + b", "a / (A)p.count", kOutput},
    {"aten::mean", kComplex, Which::All, -1, "MAKE(0, 0)", "x", "a + b", "a / (R)p.count", kOutput},
    {"aten::mean.dim", kFloats, Which::List, 1, "0", "x", "a + b", "a / (A)p.count", kOutput},
    {"aten::mean.dim", kComplex, Which::List, 1, "MAKE(0, 0)", "x", "a + b", "a / (R)p.count", kOutput},
    {"aten::count_nonzero", kAll, Which::OneOrAll, 1, "0", "(x != 0)", "a + b", "a", kOutput},
    {"aten::count_nonzero.dim_IntList", kAll, Which::List, 1, "0", "(x != 0)", "a + b", "a", kOutput},
    {"aten::prod", kAll, Which::All, -1, "1", "x", "a * b", "a", kOutput},
    {"aten::prod", kComplex, Which::All, -1, "MAKE(1, 0)", "x", kProduct, "a", kOutput},
    {"aten::prod.dim_int", kAll, Which::One, 1, "1", "x", "a * b", "a", kOutput},
    {"aten::prod.dim_int", kComplex, Which::One, 1, "MAKE(1, 0)", "x", kProduct, "a", kOutput},
    {"aten::amax", kAll, Which::List, 1, "LOWEST", "x", "max_of(a, b)", "a", kInput},
    {"aten::amin", kAll, Which::List, 1, "HIGHEST", "x", "min_of(a, b)", "a", kInput},
    {"aten::max", kAll, Which::All, -1, "LOWEST", "x", "max_of(a, b)", "a", kInput},
    {"aten::min", kAll, Which::All, -1, "HIGHEST", "x", "min_of(a, b)", "a", kInput},
    {"aten::any", kAll, Which::All, -1, "0", "(x != 0)", "a | b", "a", kByte},
    {"aten::any", kComplex, Which::All, -1, "0", kNotZero, "a | b", "a", kByte},
    {"aten::any.dim", kAll, Which::One, 1, "0", "(x != 0)", "a | b", "a", kByte},
    {"aten::any.dim", kComplex, Which::One, 1, "0", kNotZero, "a | b", "a", kByte},
    {"aten::any.dims", kAll, Which::ListOrAll, 1, "0", "(x != 0)", "a | b", "a", kByte},
    {"aten::any.dims", kComplex, Which::ListOrAll, 1, "0", kNotZero, "a | b", "a", kByte},
    {"aten::all.dims", kAll, Which::ListOrAll, 1, "1", "(x != 0)", "a & b", "a", kByte},
    {"aten::all.dims", kComplex, Which::ListOrAll, 1, "1", kNotZero, "a & b", "a", kByte},
    {"aten::all", kAll, Which::All, -1, "1", "(x != 0)", "a & b", "a", kByte},
    {"aten::all", kComplex, Which::All, -1, "1", kNotZero, "a & b", "a", kByte},
    {"aten::all.dim", kAll, Which::One, 1, "1", "(x != 0)", "a & b", "a", kByte},
    {"aten::all.dim", kComplex, Which::One, 1, "1", kNotZero, "a & b", "a", kByte},
    {kAminmax, kAll, Which::OneOrAll, 1, "HIGHEST", "x", "min_of(a, b)", "a", kInput},
    {kAminmax, kAll, Which::OneOrAll, 1, "LOWEST", "x", "max_of(a, b)", "a", kInput},
    {kNorm, kFloats, Which::List, 2, "0", "x * x", "a + b", "sqrt(a)", kOutput, 2},
    {kNorm, kFloats, Which::List, 2, "0", "fabs(x)", "a + b", "a", kOutput, 1},
    {kNorm, kFloats, Which::List, 2, "0", "(x != 0)", "a + b", "a", kOutput, 0},
    {kNorm, kFloats, Which::List, 2, "0", "fabs(x)", "max_of(a, b)", "a", kOutput, INFINITY},
    {kNorm, kFloats, Which::List, 2, "INF_F", "fabs(x)", "min_of(a, b)", "a", kOutput, -INFINITY},
    {kNorm, kFloats, Which::List, 2, "0", "pow((A)fabs(x), (A)ORDER)", "a + b", "pow(a, 1 / (A)ORDER)", kOutput,
     kAnyOrder},
    {kNorm, kComplex, Which::List, 2, "0", "(A)RE(x) * (A)RE(x) + (A)IM(x) * (A)IM(x)", "a + b", "sqrt(a)", kOutput, 2},
    {kNorm, kComplex, Which::List, 2, "0", "hypot((A)RE(x), (A)IM(x))", "a + b", "a", kOutput, 1},
    {kNorm, kComplex, Which::List, 2, "0", kNotZero, "a + b", "a", kOutput, 0},
    {kNorm, kComplex, Which::List, 2, "0", "hypot((A)RE(x), (A)IM(x))", "max_of(a, b)", "a", kOutput, INFINITY},
    {kNorm, kComplex, Which::List, 2, "INF_F", "hypot((A)RE(x), (A)IM(x))", "min_of(a, b)", "a", kOutput, -INFINITY},
    {kNorm, kComplex, Which::List, 2, "0", "pow(hypot((A)RE(x), (A)IM(x)), (A)ORDER)", "a + b", "pow(a, 1 / (A)ORDER)",
     kOutput, kAnyOrder},
};

// The same frame for tiles; `add` sees `row`, where one row of the tile lies. A sum is taken up in blocks of rows.
std::string each_tile(const Reading& reading, const std::string& store) {
  const Dims &kept = reading.kept, &reduced = reading.reduced;
  const int last = kept.rank - 1;
  std::string text =
      "  const i64 split = item % p.splits, unit = item / p.splits;\n"
      "  const i64 r0 = split * p.rchunk;\n"
      "  const i64 r1 = r0 + p.rchunk < p.rsize[0] ? r0 + p.rchunk : p.rsize[0];\n"
      "  const i64 width = " +
      member("ksize", last) +
      ", tiles = (width + TILE - 1) / TILE;\n"
      "  const i64 all = p.outputs / width * tiles;\n"
      "  const i64 end = (unit + 1) * p.chunk < all ? (unit + 1) * p.chunk : all;\n"
      "  for (i64 t = unit * p.chunk; t < end; ++t) {\n"
      "    const i64 c0 = t % tiles * TILE, there = width - c0 < TILE ? width - c0 : TILE;\n"
      "    i64 at = c0, to = c0, rest = t / tiles;\n";
  for (int d = last - 1; d >= 0; --d) {
    const std::string c = d > 0 ? "rest % " + member("ksize", d) : std::string("rest");
    text +=
        "    { const i64 c = " + c + "; at += c * " + member("kin", d) + "; to += c * " + member("kout", d) + "; }\n";
    if (d > 0) text += "    rest /= " + member("ksize", d) + ";\n";
  }
  text +=
      "    A total[TILE], block[TILE];\n"
      "    for (int c = 0; c < TILE; ++c) total[c] = block[c] = FIRST;\n"
      "#if VECTORS\n"
      "    f32x16 v0 = SPLAT(FIRST), v1 = v0, v2 = v0, v3 = v0;\n"
      "#endif\n"
      "    i64 since = 0;\n";
  std::string row = "at";
  for (int d = 0; d < reduced.rank; ++d) {
    const std::string i = "i" + number(d);
    text += "    for (i64 " + i + " = " + (d == 0 ? "r0" : "0") + "; " + i + " < " +
            (d == 0 ? "r1" : member("rsize", d)) + "; ++" + i + ")\n";
    row += " + " + i + " * " + member("rin", d);
  }
  text += "    {\n      const i64 row = " + row +
          ";\n"
          "      if (there == TILE) {\n"
          "#if VECTORS\n"
          "        v0 = V_JOIN(v0, V_MAP(V_LOAD(x, row)));\n"
          "        v1 = V_JOIN(v1, V_MAP(V_LOAD(x, row + 16)));\n"
          "        v2 = V_JOIN(v2, V_MAP(V_LOAD(x, row + 32)));\n"
          "        v3 = V_JOIN(v3, V_MAP(V_LOAD(x, row + 48)));\n"
          "#else\n"
          "        for (int c = 0; c < TILE; ++c) block[c] = JOIN(block[c], MAP(LOAD(x, row + c)));\n"
          "#endif\n"
          "      } else {\n"
          "        for (i64 c = 0; c < there; ++c) block[c] = JOIN(block[c], MAP(LOAD(x, row + c)));\n"
          "      }\n"
          "      if (++since == 256) {\n"
          "        TAKE_UP\n"
          "        for (int c = 0; c < TILE; ++c) { total[c] = JOIN(total[c], block[c]); block[c] = FIRST; }\n"
          "        since = 0;\n"
          "      }\n    }\n"
          "    TAKE_UP\n"
          "    for (i64 c = 0; c < there; ++c) {\n      const A a = JOIN(total[c], block[c]);\n" +
          store + "    }\n";
  return text + "  }\n";
}

std::string limits(const std::string& a, fl_dtype dtype) {
  if (is_floating(dtype)) return "#define LOWEST (-INF_F)\n#define HIGHEST INF_F\n";
  if (dtype == FL_BOOL) return "#define LOWEST 0\n#define HIGHEST 1\n";
  if (dtype == FL_UINT8) return "#define LOWEST 0\n#define HIGHEST 255\n";
  return "#define LOWEST ((" + a + ")((u64)1 << (8 * sizeof(" + a + ") - 1)))\n#define HIGHEST ((" + a + ")~LOWEST)\n";
}

class ReductionRow : public Row {
 public:
  ReductionRow(runtime::Chip& chip, Language language, std::vector<const Reduction*> lines)
      : Row(chip, language), lines_(std::move(lines)) {}

  const Reduction* line_of(const fl_call& call) const {
    for (const Reduction* line : lines_) {
      if ((line->types & FL_DTYPE_BIT(call.compute_dtype)) == 0) continue;
      if (std::isnan(line->order)) return line;
      const double order = order_of(call);
      if (order == line->order || (line->order == kAnyOrder && !std::isnan(order))) return line;
    }
    return nullptr;
  }

  static double order_of(const fl_call& call) {
    const fl_value& v = call.args[1];
    return v.kind == FL_REAL ? v.u.d : v.kind == FL_NONE ? 2 : static_cast<double>(v.u.i);
  }

  static fl_dtype accumulator(const Reduction& line, const Reading& reading) {
    switch (line.accumulate) {
      case Reduction::InOutput:
        return is_floating(reading.out->dtype) && reading.out->dtype != FL_FLOAT64 ? fl_dtype{FL_FLOAT32}
                                                                                   : reading.out->dtype;
      case Reduction::InInput:
        return is_floating(reading.in->dtype) && reading.in->dtype != FL_FLOAT64 ? fl_dtype{FL_FLOAT32}
                                                                                 : reading.in->dtype;
      default:
        return FL_UINT8;
    }
  }

  bool read(const fl_call& call, Reading& reading) const {
    const Reduction* line = line_of(call);
    return line != nullptr && reading.read(call, line->which, line->dims_argument) &&
           element_name(reading.in->dtype) != nullptr && element_name(reading.out->dtype) != nullptr &&
           (line->types != kFloats || is_floating(reading.out->dtype)) && types_fit(*line, reading);
  }

  // Complex numbers give complex ones of the same type, bytes, or norms in the type of their parts.
  static bool types_fit(const Reduction& line, const Reading& reading) {
    const fl_dtype in = reading.in->dtype, out = reading.out->dtype;
    if (!is_complex(in)) return !is_complex(out);
    if (line.accumulate == kByte) return !is_complex(out);
    return std::isnan(line.order) ? in == out : is_floating(out);
  }

  static Source write(const Reduction& line, const Reading& reading, double order, bool partial, bool second) {
    const fl_dtype acc = accumulator(line, reading);
    const std::string a = arithmetic_name(acc);
    const bool dense = second || dense_inside(reading);
    const fl_dtype in = second ? acc : reading.in->dtype;
    const char* vector_map = second ? "x" : line.vector_map();
    const bool vectors = acc == FL_FLOAT32 && is_floating(in) && in != FL_FLOAT64 && vector_map != nullptr &&
                         line.vector_join() != nullptr;
    Source source;
    source.head = head_of(a, is_floating(acc), in, dense, vectors) + limits(a, acc) + "#define FIRST ((A)(" +
                  line.first + "))\n#define JOIN(a, b) join_of(a, b)\n#define MAP(x) map_of(x)\n";
    if (line.order == kAnyOrder) {
      std::array<char, 40> text{};
      std::snprintf(text.data(), text.size(), "#define ORDER %.17g\n", order);
      source.head += text.data();
    }
    source.head += is_complex(acc) ? complex_defines(acc) : text_of("extrema.h");
    // Functions, so that an element is loaded once.
    // A norm of another type is that of the elements in it.
    const bool cast = second || (!std::isnan(line.order) && !is_complex(reading.in->dtype));
    const std::string x = cast ? a : arithmetic_name(reading.in->dtype);
    const std::string functions = "FUNCTION A map_of(const " + x + " x) { return (A)(" + (second ? "x" : line.map) +
                                  "); }\nFUNCTION A join_of(const A a, const A b) { return (A)(" + line.join + "); }\n";
    if (vectors) {
      source.head = std::string("#define FL_F32 1\n") + math_functions(true) + source.head +
                    "FUNCTION f32x16 v_map_of(const f32x16 x) { return " + vector_map +
                    "; }\nFUNCTION f32x16 v_join_of(const f32x16 a, const f32x16 b) { return " + line.vector_join() +
                    "; }\n#define V_MAP(x) v_map_of(x)\n#define V_JOIN(a, b) v_join_of(a, b)\n";
    }
    source.head += functions;
    source.head += text_of("reduce.h");
    source.members = members_of(reading);
    source.pointers = {{second ? a : element_name(reading.in->dtype), "x"},
                       {partial ? a : element_name(reading.out->dtype), "out", true}};
    const bool tiles = !second && by_tiles(reading);
    const std::string o = tiles ? "(t / tiles * width + c0 + c)" : "o", to = tiles ? "to + c" : "to";
    const std::string store = partial ? "    out[" + o + " * p.splits + split] = a;\n"
                                      : std::string("    STORE_") + element_name(reading.out->dtype) + "(out, " + to +
                                            ", (" + line.last + "));\n";
    if (tiles) {
      source.head += "#define TILE " + number(kTile) + "\n";
      // What the vectors hold goes to `block`, which is FIRST until then where they are used.
      source.head += vectors ? "#define TAKE_UP if (there == TILE) { VSTORE_f32x16(v0, block); "
                               "VSTORE_f32x16(v1, block + 16); VSTORE_f32x16(v2, block + 32); "
                               "VSTORE_f32x16(v3, block + 48); v0 = v1 = v2 = v3 = SPLAT(FIRST); }\n"
                             : "#define TAKE_UP\n";
      source.body = each_tile(reading, store);
      return source;
    }
    std::string body = "    A a = FIRST;\n";
    body += nest(reading.reduced,
                 "      a = JOIN(a, reduce_run(x, row, run, " + member("rin", reading.reduced.rank - 1) + "));\n");
    body += store;
    source.body = each_output(reading, body);
    return source;
  }

  fl_status launch_one(const fl_call& call, const Reduction& line, const Reading& reading, const Work& work,
                       fl_address from, fl_address to, bool partial, bool second, int64_t count) {
    VariantKey key;
    key.add(static_cast<uint32_t>(&line - kTable));
    key.add((partial ? 1u : 0u) | (second ? 2u : 0u) | (!second && by_tiles(reading) ? 4u : 0u));
    add_shape(key, reading);
    const double order = line.order == kAnyOrder ? order_of(call) : 0;
    for (size_t byte = 0; line.order == kAnyOrder && byte < sizeof(order); ++byte) {
      key.add(reinterpret_cast<const unsigned char*>(&order)[byte]);
    }
    const fl_module module = variant(call, key, [&] { return write(line, reading, order, partial, second); });
    Words words;
    add_members(words, reading, work, count);
    Arguments arguments;
    arguments.add_address(from);
    arguments.add_address(to);
    arguments.add_members(words.data(), words.bytes());
    return arguments.launch(call, device(call), module, work.outputs.items * static_cast<uint64_t>(work.splits));
  }

  fl_status run(const fl_call& call) {
    Reading reading;
    if (!read(call, reading)) return decline("a reduction that the portable kernels do not have");
    if (reading.out->numel == 0) return FL_OK;
    const Reduction& line = *line_of(call);
    const int64_t count = reading.reduced.numel;
    const Work work = plan(device(call), reading, true, by_tiles(reading));
    if (work.splits == 1) {
      return launch_one(call, line, reading, work, reading.in->address, reading.out->address, false, false, count);
    }
    // Two steps: each split's result into scratch memory, then these.
    const fl_dtype acc = accumulator(line, reading);
    fl_address partial = 0;
    const uint64_t bytes = static_cast<uint64_t>(reading.kept.numel * work.splits) * (acc == FL_UINT8 ? 1 : 16);
    const fl_status status = runtime::host_services().scratch(&call, bytes, &partial);
    if (status != FL_OK) return status;
    const fl_status first = launch_one(call, line, reading, work, reading.in->address, partial, true, false, count);
    if (first != FL_OK) return first;
    Reading rest = reading;
    int64_t stride = work.splits;
    for (int d = rest.kept.rank - 1; d >= 0; --d) {
      rest.kept.in[d] = stride;
      stride *= rest.kept.size[d];
    }
    rest.reduced = Dims();
    rest.reduced.add(work.splits, 1, 0);
    const Work all = plan(device(call), rest, false);
    return launch_one(call, line, rest, all, partial, reading.out->address, false, true, count);
  }

  static fl_status supports(const fl_call* call) {
    Reading reading;
    const auto* row = &row_of<ReductionRow>(*call);
    return row->read(*call, reading) ? FL_OK : decline("a reduction that the portable kernels do not have");
  }

 private:
  const std::vector<const Reduction*> lines_;
};

class AminmaxRow : public Row {
 public:
  AminmaxRow(runtime::Chip& chip, Language language, const std::vector<const Reduction*>& lines)
      : Row(chip, language), low_(chip, language, {lines[0]}), high_(chip, language, {lines[1]}) {}

  fl_status run(const fl_call& call) {
    fl_call one = call;
    one.n_outs = 1;
    const fl_status status = low_.run(one);
    ++one.outs;
    return status == FL_OK ? high_.run(one) : status;
  }
  static fl_status supports(const fl_call* call) {
    Reading low, high;
    const auto& row = row_of<AminmaxRow>(*call);
    fl_call other = *call;
    ++other.outs;
    return call->n_outs == 2 && row.low_.read(*call, low) && row.high_.read(other, high) && low.reduced.numel > 0
               ? FL_OK
               : decline("extrema that the portable kernels do not have");
  }

 private:
  ReductionRow low_, high_;
};

}  // namespace

void add_reductions(Rows& rows, runtime::Chip& chip, Language language) {
  for (size_t i = 0; i < std::size(kTable);) {
    std::vector<const Reduction*> lines;
    const Reduction& first = kTable[i];
    for (; i < std::size(kTable) && std::strcmp(kTable[i].op, first.op) == 0; ++i) lines.push_back(&kTable[i]);
    if (first.op == kAminmax) {
      rows.push_back(make_row(kAminmax, 0, run_row<AminmaxRow>, AminmaxRow::supports,
                              keep<AminmaxRow>(chip, language, lines), first.types));
      continue;
    }
    const uint32_t flags = std::isnan(first.order) ? 0 : static_cast<uint32_t>(FL_KERNEL_VALUE_DEPENDENT);
    uint64_t dtypes = 0;
    for (const Reduction* line : lines) dtypes |= line->types;
    rows.push_back(make_row(first.op, flags, run_row<ReductionRow>, ReductionRow::supports,
                            keep<ReductionRow>(chip, language, lines), dtypes));
    if (first.op != kNorm) continue;
    for (const char* op : {"aten::norm.ScalarOpt_dim", "aten::norm.ScalarOpt_dim_dtype"}) {
      rows.push_back(make_row(op, flags, run_row<ReductionRow>, ReductionRow::supports,
                              keep<ReductionRow>(chip, language, lines), dtypes));
    }
  }
}

}  // namespace torch_fl::portable
