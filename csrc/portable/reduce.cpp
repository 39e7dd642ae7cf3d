// SPDX-License-Identifier: Apache-2.0
// Reductions: sums, extrema, any/all, norms, positions of extrema, variances.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <initializer_list>

#include "families.h"
#include "launch.h"
#include "runtime/internal.h"
#include "text.h"

namespace torch_fl::portable {
namespace {

constexpr int kMost = 8;  // dimensions of either kind that are left after merging

/// Dimensions walked together: sizes, and strides of the input and (kept ones) of the output.
struct Dims {
  int rank = 0;
  int64_t numel = 1;
  int64_t size[kMost], in[kMost], out[kMost];

  // Row-major order stays. False: too many.
  bool add(int64_t n, int64_t in_stride, int64_t out_stride) {
    numel *= n;
    if (n == 1) return true;
    if (rank > 0 && in[rank - 1] == in_stride * n && out[rank - 1] == out_stride * n) {
      size[rank - 1] *= n;
      in[rank - 1] = in_stride;
      out[rank - 1] = out_stride;
      return true;
    }
    if (rank == kMost) return false;
    size[rank] = n;
    in[rank] = in_stride;
    out[rank++] = out_stride;
    return true;
  }
  void finish() {
    if (rank == 0) {
      size[0] = 1;
      in[0] = out[0] = 0;
      rank = 1;
    }
  }
};

/// How an operator says which dimensions go.
enum class Which : uint8_t { All, List, ListOrAll, One, OneOrAll };  // of ListOrAll, an empty list is none

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

constexpr uint64_t kAll = kFloats | kIntegers | kBool;
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

/// One call, looked through once: what is kept, what goes.
struct Reading {
  const fl_tensor* in = nullptr;
  const fl_tensor* out = nullptr;
  Dims kept, reduced;

  bool read(const fl_call& call, Which which, int dims_argument) {
    if (call.n_outs == 0 || call.outs[0] == nullptr || call.args[0].kind != FL_TENSOR) return false;
    in = call.args[0].u.tensor;
    out = call.outs[0];
    bool goes[64] = {};
    if (!mark(call, which, dims_argument, goes)) return false;
    const bool keepdim = out->ndim == in->ndim;
    int32_t o = 0;
    for (int32_t d = 0; d < in->ndim; ++d) {
      if (goes[d]) {
        if (!reduced.add(in->sizes[d], in->strides[d], 0)) return false;
        o += keepdim ? 1 : 0;
      } else {
        if (o >= out->ndim || !kept.add(in->sizes[d], in->strides[d], out->strides[o])) return false;
        ++o;
      }
    }
    kept.finish();
    reduced.finish();
    return true;
  }

 private:
  bool mark(const fl_call& call, Which which, int dims_argument, bool (&goes)[64]) const {
    const int64_t ndim = in->ndim;
    const fl_value* v = dims_argument < 0 ? nullptr : &call.args[dims_argument];
    const bool listed = v != nullptr && v->kind == FL_INTEGERS && v->count > 0;
    const bool one = v != nullptr && v->kind == FL_INTEGER;
    if (!listed && !one) {
      if (which == Which::One) return false;
      if (which == Which::ListOrAll && v->kind == FL_INTEGERS) return true;
      for (int64_t d = 0; d < ndim; ++d) goes[d] = true;
      return true;
    }
    for (uint32_t k = 0; k < (listed ? v->count : 1); ++k) {
      int64_t d = listed ? v->u.ints[k] : v->u.i;
      d += d < 0 ? std::max<int64_t>(ndim, 1) : 0;
      if (d < 0 || d >= std::max<int64_t>(ndim, 1)) return false;
      goes[d] = true;
    }
    return true;
  }
};

std::string number(int64_t value) { return std::to_string(value); }

std::string member(const char* name, int d) { return std::string("p.") + name + "[" + number(d) + "]"; }

// `at` (and `to`) of output number `o`.
std::string locate(const Dims& kept) {
  std::string text = "    i64 at = 0, to = 0, rest = o;\n";
  for (int d = kept.rank - 1; d >= 0; --d) {
    const std::string c = d > 0 ? "rest % " + member("ksize", d) : std::string("rest");
    text +=
        "    { const i64 c = " + c + "; at += c * " + member("kin", d) + "; to += c * " + member("kout", d) + "; }\n";
    if (d > 0) text += "    rest /= " + member("ksize", d) + ";\n";
  }
  return text;
}

// Loops over the reduced dimensions but the innermost; `inner` sees `row` (where it starts), `run` (its length) and
// `count` (elements before it, in row-major order). The outermost goes from r0 to r1.
std::string nest(const Dims& reduced, const std::string& inner) {
  const int last = reduced.rank - 1;
  std::string text;
  if (last == 0) {
    return "    { const i64 row = at + r0 * " + member("rin", 0) + ", run = r1 - r0, count = r0;\n" + inner + "    }\n";
  }
  std::string row = "at", count = "0";
  for (int d = 0; d < last; ++d) {
    const std::string i = "i" + number(d);
    text += "    for (i64 " + i + " = " + (d == 0 ? "r0" : "0") + "; " + i + " < " +
            (d == 0 ? "r1" : member("rsize", d)) + "; ++" + i + ")\n";
    row += " + " + i + " * " + member("rin", d);
    count = "(" + count + " * " + member("rsize", d) + " + " + i + ")";
  }
  return text + "    { const i64 row = " + row + ", run = " + member("rsize", last) + ", count = " + count +
         " * run;\n" + inner + "    }\n";
}

std::string members_of(const Reading& reading) {
  const std::string k = number(reading.kept.rank), r = number(reading.reduced.rank);
  return "  i64 outputs, chunk, splits, rchunk, count, ksize[" + k + "], kin[" + k + "], kout[" + k + "], rsize[" + r +
         "], rin[" + r + "]";
}

// The frame every kernel here has: the outputs of this item, and its share of the outermost reduced dimension.
std::string each_output(const Reading& reading, const std::string& body) {
  return "  const i64 split = item % p.splits, unit = item / p.splits;\n"
         "  const i64 r0 = split * p.rchunk;\n"
         "  const i64 r1 = r0 + p.rchunk < p.rsize[0] ? r0 + p.rchunk : p.rsize[0];\n"
         "  const i64 end = (unit + 1) * p.chunk < p.outputs ? (unit + 1) * p.chunk : p.outputs;\n"
         "  for (i64 o = unit * p.chunk; o < end; ++o) {\n" +
         locate(reading.kept) + body + "  }\n";
}

// Where the results lie side by side in the input and what is added up does not, a tile of results is formed at once.
constexpr int64_t kTile = 64;
bool by_tiles(const Reading& reading) {
  const Dims& kept = reading.kept;
  const int last = kept.rank - 1;
  return kept.in[last] == 1 && kept.out[last] == 1 && kept.size[last] >= 16 &&
         reading.reduced.in[reading.reduced.rank - 1] != 1;
}
int64_t units_of(const Reading& reading) {
  if (!by_tiles(reading)) return reading.kept.numel;
  const int64_t row = reading.kept.size[reading.kept.rank - 1];
  return reading.kept.numel / row * ((row + kTile - 1) / kTile);
}

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

/// What one launch works on.
struct Work {
  int64_t splits = 1, rchunk = 0;
  Split outputs{1, 1};
};

constexpr int64_t kWorthSplitting = 32768;

Work plan(const runtime::Device& device, const Reading& reading, bool may_split, bool tiles = false) {
  Work work;
  const int64_t worth = enough(kWorthSplitting);
  const int64_t units = device.properties.compute_units == 0 ? 8 : device.properties.compute_units;
  const int64_t outputs = tiles ? units_of(reading) : reading.kept.numel, outer = reading.reduced.size[0];
  const int64_t each = std::max<int64_t>(reading.reduced.numel, 1) * (tiles ? kTile : 1);
  work.outputs = split(device, outputs, std::max<int64_t>(1, 16384 / each));
  work.rchunk = std::max<int64_t>(outer, 1);
  if (may_split && static_cast<int64_t>(work.outputs.items) < units &&
      reading.reduced.numel * (tiles ? kTile : 1) >= worth) {
    const int64_t wanted = std::min<int64_t>({2 * units, outer, each / std::max<int64_t>(1, worth / 4)});
    if (wanted > 1) {
      work.rchunk = (outer + wanted - 1) / wanted;
      work.splits = (outer + work.rchunk - 1) / work.rchunk;
    }
  }
  return work;
}

using Words = Members<5 + 5 * kMost + 2>;

void add_members(Words& words, const Reading& reading, const Work& work, int64_t count) {
  const Dims &k = reading.kept, &r = reading.reduced;
  for (const int64_t word : {k.numel, work.outputs.chunk, work.splits, work.rchunk, count}) words.add(word);
  for (const int64_t* list : {k.size, k.in, k.out}) {
    for (int d = 0; d < k.rank; ++d) words.add(list[d]);
  }
  for (const int64_t* list : {r.size, r.in}) {
    for (int d = 0; d < r.rank; ++d) words.add(list[d]);
  }
}

void add_shape(VariantKey& key, const Reading& reading) {
  key.add(static_cast<uint32_t>(reading.in->dtype));
  key.add(static_cast<uint32_t>(reading.out->dtype));
  key.add(static_cast<uint32_t>(reading.kept.rank));
  key.add(static_cast<uint32_t>(reading.reduced.rank));
  key.add(reading.reduced.in[reading.reduced.rank - 1] == 1 ? 1 : 0);
}

std::string limits(const std::string& a, fl_dtype dtype) {
  if (is_floating(dtype)) return "#define LOWEST (-INF_F)\n#define HIGHEST INF_F\n";
  if (dtype == FL_BOOL) return "#define LOWEST 0\n#define HIGHEST 1\n";
  if (dtype == FL_UINT8) return "#define LOWEST 0\n#define HIGHEST 255\n";
  return "#define LOWEST ((" + a + ")((u64)1 << (8 * sizeof(" + a + ") - 1)))\n#define HIGHEST ((" + a + ")~LOWEST)\n";
}

std::string head_of(const std::string& a, bool floating, fl_dtype in, bool dense, bool vectors = false) {
  return std::string("#define VECTORS ") + (vectors ? "1" : "0") + "\n#define V_LOAD(p, i) VECTOR_LOAD_" +
         element_name(in) + "(p, i)\n" + "#define A " + a + "\n" + (floating ? "#define FL_FLOATING 1\n" : "") +
         "#define IN " + element_name(in) + "\n#define LOAD(p, i) LOAD_" + element_name(in) + "(p, i)\n#define STEP " +
         (dense ? "1" : "0") + "\n";
}

bool dense_inside(const Reading& reading) { return reading.reduced.in[reading.reduced.rank - 1] == 1; }

/// One launch over whole lines, none of them split; `arguments` holds the tensors, `more` what follows the members.
template <class Write>
fl_status launch_whole(Row& row, const fl_call& call, const Reading& reading, Arguments& arguments, const Write& write,
                       std::initializer_list<int64_t> more = {}) {
  VariantKey key;
  add_shape(key, reading);
  const Work work = plan(row.device(call), reading, false);
  const fl_module module = row.variant(call, key, write);
  Words words;
  add_members(words, reading, work, reading.reduced.numel);
  for (const int64_t word : more) words.add(word);
  arguments.add_members(words.data(), words.bytes());
  return arguments.launch(call, row.device(call), module, work.outputs.items);
}

/// Whether two outputs are walked alike, so that one offset serves both.
bool same_strides(const fl_tensor& a, const fl_tensor& b) {
  for (int32_t d = 0; d < a.ndim; ++d) {
    if (a.sizes[d] > 1 && a.strides[d] != b.strides[d]) return false;
  }
  return true;
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

// ---- Where the extremum is --------------------------------------------------------------------------------------

struct Extremum {
  const char* op;
  const char* better;  ///< whether v beats best
  bool with_value;     ///< outputs: value and index, else the index alone
};
const Extremum kExtrema[] = {
    {"aten::max.dim", "v > best", true},
    {"aten::min.dim", "v < best", true},
    {"aten::argmax", "v > best", false},
    {"aten::argmin", "v < best", false},
};

class ExtremumRow : public Row {
 public:
  ExtremumRow(runtime::Chip& chip, Language language, const Extremum& line) : Row(chip, language), line_(line) {}

  bool read(const fl_call& call, Reading& reading) const {
    if (line_.with_value && (call.n_outs != 2 || call.outs[0] == nullptr || call.outs[1] == nullptr)) return false;
    if (!reading.read(call, line_.with_value ? Which::One : Which::OneOrAll, 1) || reading.reduced.numel == 0)
      return false;
    if (!line_.with_value) return type_name(reading.in->dtype) != nullptr;
    return same_strides(*call.outs[0], *call.outs[1]) && type_name(reading.in->dtype) != nullptr;
  }

  Source write(const Reading& reading) const {
    const std::string a = arithmetic_name(reading.in->dtype);
    Source source;
    source.head = head_of(a, is_floating(reading.in->dtype), reading.in->dtype, dense_inside(reading));
    source.members = members_of(reading);
    source.pointers = {{type_name(reading.in->dtype), "x"}, {"i64", "out", true}};
    if (line_.with_value) source.pointers.push_back({type_name(reading.in->dtype), "value", true});
    const std::string step = member("rin", reading.reduced.rank - 1);
    std::string body = "    A best = 0;\n    i64 where = -1;\n";
    body += nest(reading.reduced,
                 "      for (i64 j = 0; j < run; ++j) {\n        const A v = LOAD(x, row + j * " + step +
                     ");\n        if (where < 0 || (" + line_.better +
                     ") || (v != v && best == best)) {\n          best = v;\n          where = count + j;\n        }\n"
                     // The first NaN is it.
                     "        if (best != best) break;\n      }\n");
    body += "    out[to] = where;\n";
    if (line_.with_value) body += std::string("    STORE_") + type_name(reading.in->dtype) + "(value, to, best);\n";
    source.body = each_output(reading, body);
    return source;
  }

  fl_status run(const fl_call& call) {
    Reading reading;
    if (!read(call, reading)) return decline("an extremum that the portable kernels do not have");
    if (reading.out->numel == 0) return FL_OK;
    Arguments arguments;
    arguments.add(*reading.in);
    arguments.add(*call.outs[line_.with_value ? 1 : 0]);
    if (line_.with_value) arguments.add(*call.outs[0]);
    return launch_whole(*this, call, reading, arguments, [&] { return write(reading); });
  }

  static fl_status supports(const fl_call* call) {
    Reading reading;
    const auto* row = &row_of<ExtremumRow>(*call);
    return row->read(*call, reading) ? FL_OK : decline("an extremum that the portable kernels do not have");
  }

 private:
  const Extremum& line_;
};

// ---- Variances --------------------------------------------------------------------------------------------------

struct Variance {
  const char* op;
  bool root;
  bool with_mean;
};
const Variance kVariances[] = {
    {"aten::var.correction", false, false},
    {"aten::std.correction", true, false},
    {"aten::var_mean.correction", false, true},
    {"aten::std_mean.correction", true, true},
};

class VarianceRow : public Row {
 public:
  VarianceRow(runtime::Chip& chip, Language language, const Variance& line) : Row(chip, language), line_(line) {}

  bool read(const fl_call& call, Reading& reading) const {
    if (line_.with_mean) {
      if (call.n_outs != 2 || call.outs[0] == nullptr || call.outs[1] == nullptr) return false;
      if (!same_strides(*call.outs[0], *call.outs[1])) return false;
    }
    return reading.read(call, Which::List, 1) && is_floating(reading.in->dtype) &&
           reading.in->dtype == reading.out->dtype;
  }

  // The mean first, then the squares of the differences (two passes: exact where one pass cancels).
  Source write(const Reading& reading) const {
    const std::string a = arithmetic_name(reading.in->dtype), type = type_name(reading.in->dtype);
    Source source;
    source.head = head_of(a, true, reading.in->dtype, dense_inside(reading)) +
                  "#define FIRST ((A)0)\n#define JOIN(a, b) ((a) + (b))\n#define MAP(x) (x)\n" + text_of("reduce.h");
    source.members = members_of(reading) + ", correction";
    source.pointers = {{type, "x"}, {type, "out", true}};
    if (line_.with_mean) source.pointers.push_back({type, "average", true});
    const std::string step = member("rin", reading.reduced.rank - 1);
    std::string body = "    A sum = 0;\n";
    body += nest(reading.reduced, "      sum += reduce_run(x, row, run, " + step + ");\n");
    body += "    const A mean = sum / (A)p.count;\n    A squares = 0;\n";
    body += nest(
        reading.reduced,
        "      A lane[LANES];\n      for (int k = 0; k < LANES; ++k) lane[k] = 0;\n      i64 j = 0;\n"
        "#if STEP == 1\n      for (; j + LANES <= run; j += LANES) {\n        for (int k = 0; k < LANES; ++k) {\n"
        "          const A d = LOAD(x, row + j + k) - mean;\n          lane[k] += d * d;\n        }\n      }\n#endif\n"
        "      for (; j < run; ++j) {\n        const A d = LOAD(x, row + j * " +
            step +
            ") - mean;\n        lane[0] += d * d;\n      }\n"
            "      for (int k = 0; k < LANES; ++k) squares += lane[k];\n");
    body += "    const A freedom = (A)p.count - BITS_" + a + "((u64)p.correction);\n";
    body += "    const A variance = squares / (freedom > 0 ? freedom : 0);\n";
    body += "    STORE_" + type + "(out, to, " + (line_.root ? "sqrt(variance)" : "variance") + ");\n";
    if (line_.with_mean) body += "    STORE_" + type + "(average, to, mean);\n";
    source.body = each_output(reading, body);
    return source;
  }

  fl_status run(const fl_call& call) {
    Reading reading;
    if (!read(call, reading)) return decline("a variance that the portable kernels do not have");
    if (reading.out->numel == 0) return FL_OK;
    const fl_value& v = call.args[2];
    const double correction = v.kind == FL_NONE ? 1.0 : v.kind == FL_REAL ? v.u.d : static_cast<double>(v.u.i);
    Arguments arguments;
    arguments.add(*reading.in);
    arguments.add(*reading.out);
    if (line_.with_mean) arguments.add(*call.outs[1]);
    return launch_whole(*this, call, reading, arguments, [&] { return write(reading); },
                        {static_cast<int64_t>(bits_of(correction, reading.in->dtype == FL_FLOAT64))});
  }

  static fl_status supports(const fl_call* call) {
    Reading reading;
    const auto* row = &row_of<VarianceRow>(*call);
    return row->read(*call, reading) ? FL_OK : decline("a variance that the portable kernels do not have");
  }

 private:
  const Variance& line_;
};

// ---- Reductions of whole lines, by statements of their own --------------------------------------------------------

struct LogSumExp {
  static bool read(const fl_call& call, Reading& reading) {
    return reading.read(call, Which::List, 1) && type_name(reading.in->dtype) != nullptr &&
           is_floating(reading.out->dtype);
  }

  // The largest first, so that no exponential overflows.
  static Source write(const Reading& reading) {
    const std::string a = arithmetic_name(reading.out->dtype), type = type_name(reading.out->dtype);
    Source source;
    source.head = std::string(reading.out->dtype == FL_FLOAT64 ? "" : "#define FL_F32 1\n") +
                  head_of(a, true, reading.in->dtype, dense_inside(reading)) + text_of("extrema.h") +
                  math_functions(false);
    source.members = members_of(reading);
    source.pointers = {{type_name(reading.in->dtype), "x"}, {type, "out", true}};
    const std::string v = "(A)LOAD(x, row + j * " + member("rin", reading.reduced.rank - 1) + ")";
    std::string body = "    A top = -INF_F;\n";
    body += nest(reading.reduced, "      for (i64 j = 0; j < run; ++j) top = max_of(top, " + v + ");\n");
    body += "    const A shift = isinf(top) ? 0 : top;\n    A sum = 0;\n";
    body += nest(reading.reduced, "      A part = 0;\n      for (i64 j = 0; j < run; ++j) part += m_exp(" + v +
                                      " - shift);\n      sum += part;\n");
    body += "    STORE_" + type + "(out, to, shift + m_log(sum));\n";
    source.body = each_output(reading, body);
    return source;
  }
};

// The exclusive or of the elements as 64-bit words: integers, or the bits of f64.
struct Hash {
  static bool read(const fl_call& call, Reading& reading) {
    return call.args[3].u.i == 0 && reading.read(call, Which::List, 1) && type_name(reading.in->dtype) != nullptr &&
           reading.out->dtype == FL_UINT64;
  }

  static Source write(const Reading& reading) {
    const fl_dtype in = reading.in->dtype;
    const std::string type = in == FL_FLOAT64 ? "i64" : type_name(in);
    Source source;
    // Of a f32, for devices without f64.
    source.head =
        "FUNCTION u64 widened(f32 x) {\n"
        "  const u32 bits = BITS_OF_FLOAT(x), rest = bits & 0x7fffffffu;\n"
        "  const u64 sign = (u64)(bits >> 31) << 63;\n"
        "  if (rest > 0x7f800000u) return sign | (u64)0x7ff8 << 48 | (u64)(rest & 0x3fffffu) << 29;\n"
        "  if (rest == 0x7f800000u) return sign | (u64)0x7ff << 52;\n"
        "  if (rest == 0) return sign;\n"
        "  u64 exponent = rest >> 23, mantissa = rest & 0x7fffffu;\n"
        "  if (exponent == 0) {\n"
        "    for (exponent = 1; mantissa < 0x800000u; --exponent) mantissa <<= 1;\n"
        "  }\n"
        "  return sign | (exponent + 896) << 52 | (mantissa & 0x7fffffu) << 29;\n}\n";
    source.members = members_of(reading);
    source.pointers = {{type, "x"}, {"i64", "out", true}};
    const std::string v = "LOAD_" + type + "(x, row + j * " + member("rin", reading.reduced.rank - 1) + ")";
    const bool widens = is_floating(in) && in != FL_FLOAT64;
    source.body =
        each_output(reading, "    u64 hash = 0;\n" +
                                 nest(reading.reduced, "      for (i64 j = 0; j < run; ++j) hash ^= " +
                                                           (widens ? "widened(" + v + ")" : "(u64)(i64)" + v) + ";\n") +
                                 "    out[to] = (i64)hash;\n");
    return source;
  }
};

template <class Kind>
class WholeRow : public Row {
 public:
  using Row::Row;

  fl_status run(const fl_call& call) {
    Reading reading;
    if (!Kind::read(call, reading)) return decline("a reduction that the portable kernels do not have");
    if (reading.out->numel == 0) return FL_OK;
    Arguments arguments;
    arguments.add(*reading.in);
    arguments.add(*reading.out);
    return launch_whole(*this, call, reading, arguments, [&] { return Kind::write(reading); });
  }

  static fl_status supports(const fl_call* call) {
    Reading reading;
    return Kind::read(*call, reading) ? FL_OK : decline("a reduction that the portable kernels do not have");
  }
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
  for (const Extremum& line : kExtrema) {
    rows.push_back(make_row(line.op, 0, run_row<ExtremumRow>, ExtremumRow::supports,
                            keep<ExtremumRow>(chip, language, line),
                            kFloats | kIntegers | (line.with_value ? kBool : uint64_t{0})));
  }
  for (const Variance& line : kVariances) {
    rows.push_back(make_row(line.op, FL_KERNEL_VALUE_DEPENDENT, run_row<VarianceRow>, VarianceRow::supports,
                            keep<VarianceRow>(chip, language, line), kFloats));
  }
  const auto add_whole = [&]<class R>(const char* op, R* row) {
    rows.push_back(make_row(op, 0, run_row<R>, R::supports, row, kAll));
  };
  add_whole("aten::logsumexp", keep<WholeRow<LogSumExp>>(chip, language));
  add_whole("aten::hash_tensor", keep<WholeRow<Hash>>(chip, language));
}

}  // namespace torch_fl::portable
