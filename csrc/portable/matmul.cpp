// SPDX-License-Identifier: Apache-2.0
// The matrix-product family: mm, bmm, mv, dot and their forms with an addend.
//
// Large products: the right factor is packed into panels of a tile's width (what is strided, or lies a page apart,
// would cost a cache and address-translation miss for every step), then each tile of ROWS x COLUMNS results is summed
// in registers. Products with few rows are bound by reading the right factor once; they are summed where it lies.
#include <algorithm>
#include <array>
#include <cstring>

#include "families.h"
#include "launch.h"
#include "runtime/internal.h"
#include "text.h"

namespace torch_fl::portable {
namespace {

/// out[b, i, j] = alpha * sum over k of left[b, i, k] * right[b, k, j] + beta * addend[b, i, j]
struct Problem {
  struct Operand {
    const fl_tensor* tensor = nullptr;
    int64_t batch = 0, row = 0, column = 0;  ///< strides
  };
  int64_t batches = 1, m = 1, n = 1, k = 1;
  Operand left, right, addend, out;
  /// Real and imaginary part, as bits of the type computed in; used with an addend only.
  std::array<uint64_t, 2> alpha{}, beta{};
};

enum class Shape : uint8_t { MatrixMatrix, BatchBatch, MatrixVector, VectorVector };

struct Product {
  const char* op;
  Shape shape;
  bool with_addend;
  bool conjugate = false;  ///< the left factor
};
const Product kProducts[] = {
    {"aten::mm", Shape::MatrixMatrix, false},  {"aten::addmm", Shape::MatrixMatrix, true},
    {"aten::bmm", Shape::BatchBatch, false},   {"aten::baddbmm", Shape::BatchBatch, true},
    {"aten::mv", Shape::MatrixVector, false},  {"aten::addmv", Shape::MatrixVector, true},
    {"aten::dot", Shape::VectorVector, false}, {"aten::vdot", Shape::VectorVector, false, true},
};

/// What a tile is made of.
struct Tile {
  int rows, vectors, width;
  int columns() const { return vectors * width; }
};

Tile tile_for(fl_dtype dtype) { return dtype == FL_FLOAT64 ? Tile{12, 2, 8} : Tile{12, 2, 16}; }

Problem::Operand matrix(const fl_tensor& t) {
  Problem::Operand o{&t, 0, 0, 0};
  if (t.ndim == 3) o.batch = t.sizes[0] == 1 ? 0 : t.strides[0];
  o.row = t.strides[t.ndim - 2];
  o.column = t.strides[t.ndim - 1];
  return o;
}

// The addend broadcasts to the result: its dimensions are the result's last ones.
Problem::Operand broadcast(const fl_tensor& t, bool vector) {
  Problem::Operand o{&t, 0, 0, 0};
  int64_t* const places[3] = {&o.batch, &o.row, &o.column};
  for (int32_t d = 0; d < t.ndim; ++d) {
    const int32_t from_last = t.ndim - 1 - d;
    const int place = vector ? 1 : 2 - from_last;  // a vector result is a column
    if (place >= 0) *places[place] = t.sizes[d] == 1 ? 0 : t.strides[d];
  }
  return o;
}

bool read(const fl_call& call, const Product& product, Problem& p) {
  const uint32_t first = product.with_addend ? 1 : 0;
  if (call.n_outs != 1 || call.outs[0] == nullptr) return false;
  for (uint32_t i = 0; i < first + 2; ++i) {
    if (call.args[i].kind != FL_TENSOR || call.args[i].u.tensor->dtype != call.outs[0]->dtype) return false;
  }
  const fl_tensor &a = *call.args[first].u.tensor, &b = *call.args[first + 1].u.tensor, &out = *call.outs[0];
  if (element_name(out.dtype) == nullptr || out.dtype == FL_BOOL) return false;
  const bool vector = product.shape == Shape::MatrixVector || product.shape == Shape::VectorVector;
  p.out.tensor = &out;
  if (!vector) {
    p.batches = product.shape == Shape::BatchBatch ? a.sizes[0] : 1;
    p.m = a.sizes[a.ndim - 2];
    p.k = a.sizes[a.ndim - 1];
    p.n = b.sizes[b.ndim - 1];
    p.left = matrix(a);
    p.right = matrix(b);
    p.out = matrix(out);
  } else {
    const bool dot = product.shape == Shape::VectorVector;
    p.m = dot ? 1 : a.sizes[0];
    p.k = dot ? a.sizes[0] : a.sizes[1];
    p.left = {&a, 0, dot ? 0 : a.strides[0], a.strides[dot ? 0 : 1]};
    p.right = {&b, 0, b.strides[0], 0};
    p.out.row = dot ? 0 : out.strides[0];
  }
  if (product.with_addend) {
    p.addend = broadcast(*call.args[0].u.tensor, vector);
    p.beta = parts_of(call.args[3], out.dtype);
    p.alpha = parts_of(call.args[4], out.dtype);
  }
  return true;
}

// ---- Source -----------------------------------------------------------------------------------------------------

std::string head_of(const fl_tensor& out) {
  const std::string type = element_name(out.dtype), a = arithmetic_name(out.dtype);
  std::string head = "#define A " + a + "\n#define T " + type + "\n#define LOAD(p, i) LOAD_" + type +
                     "(p, i)\n#define STORE(p, i, v) STORE_" + type + "(p, i, v)\n";
  if (!is_complex(out.dtype)) {
    return head +
           "#define ZERO 0\n#define TIMES(a, b) ((a) * (b))\n#define LEFT(i) LOAD(left, i)\n#define BITS(x) BITS_" + a +
           "(x)\n#define ALPHA BITS(p.alpha)\n#define BETA BITS(p.beta)\n#define HAS_BETA (BETA != 0)\n";
  }
  head += complex_defines(out.dtype) + text_of("complex.h");
  head += std::string("#define ZERO MAKE(0, 0)\n#define TIMES(a, b) c_mul(a, b)\n#define BITS(x) BITS_") +
          (out.dtype == FL_COMPLEX128 ? "f64" : "f32") + "(x)\n";
  return head +
         "#define ALPHA MAKE(BITS(p.alpha), BITS(p.alpha_im))\n#define BETA MAKE(BITS(p.beta), BITS(p.beta_im))\n"
         "#define HAS_BETA c_true(BETA)\n";
}

constexpr const char* kMembers =
    "  i64 batches, m, n, k, left_batch, left_row, left_column, right_batch, right_row, right_column;\n"
    "  i64 out_batch, out_row, out_column, addend_batch, addend_row, addend_column, total, chunk;\n"
    "  u64 alpha, beta, alpha_im, beta_im";

std::vector<Pointer> pointers_of(const fl_tensor& out, bool with_addend, const char* right_type) {
  const std::string type = element_name(out.dtype);
  std::vector<Pointer> pointers{{type, "out", true}, {type, "left"}, {right_type, "right"}};
  if (with_addend) pointers.push_back({type, "addend"});
  return pointers;
}

// Statement that stores `value` at (i, j) of batch b. PyTorch: with beta 0 the addend is not read.
std::string store_statement(bool with_addend, const std::string& value) {
  if (!with_addend) return "STORE(out, b * p.out_batch + i * p.out_row + j * p.out_column, " + value + ");\n";
  return "{ A v = TIMES(ALPHA, " + value +
         "); if (HAS_BETA) v += TIMES(BETA, LOAD(addend, b * p.addend_batch + i * p.addend_row + j * "
         "p.addend_column)); STORE(out, b * p.out_batch + i * p.out_row + j * p.out_column, v); }\n";
}

// panels[b][panel][k][columns]: the right factor, a panel's columns side by side, 0 beyond the last.
Source pack_source(const fl_tensor& right, const Tile& tile) {
  Source source;
  source.head = head_of(right) + "#define COLUMNS " + std::to_string(tile.columns()) + "\n";
  source.members = "  i64 batches, n, k, batch, row, column, total, chunk";
  source.pointers = {{type_name(right.dtype), "right"}, {arithmetic_name(right.dtype), "panels", true}};
  source.body =
      "  const i64 per_batch = (p.n + COLUMNS - 1) / COLUMNS;\n"
      "  const i64 end = (item + 1) * p.chunk < p.total ? (item + 1) * p.chunk : p.total;\n"
      "  for (i64 t = item * p.chunk; t < end; ++t) {\n"  // one step k of one panel
      "    const i64 k = t % p.k, panel = t / p.k % per_batch, b = t / p.k / per_batch;\n"
      "    const i64 j0 = panel * COLUMNS, from = b * p.batch + k * p.row + j0 * p.column;\n"
      "    const i64 there = p.n - j0 < COLUMNS ? p.n - j0 : COLUMNS;\n"
      "    GLOBAL A* to = panels + t * COLUMNS;\n"
      "    if (there == COLUMNS && p.column == 1) {\n"
      "      for (int c = 0; c < COLUMNS; ++c) to[c] = LOAD(right, from + c);\n"
      "    } else {\n"
      "      for (i64 c = 0; c < COLUMNS; ++c) to[c] = c < there ? LOAD(right, from + c * p.column) : 0;\n"
      "    }\n"
      "  }\n";
  return source;
}

std::string accumulator(int row, int vector) { return "c" + std::to_string(row) + "_" + std::to_string(vector); }

// Written out by name: private arrays of vectors would have to be taken apart by the compiler first, which not all do.
Source tile_source(const fl_tensor& out, bool with_addend, const Tile& tile) {
  Source source;
  const std::string a = arithmetic_name(out.dtype), vec = a + "x" + std::to_string(tile.width);
  source.head = head_of(out) + "#define ROWS " + std::to_string(tile.rows) + "\n#define COLUMNS " +
                std::to_string(tile.columns()) + "\n";
  source.members = kMembers;
  source.pointers = pointers_of(out, with_addend, a.c_str());
  std::string zero, step, store, at;
  for (int r = 0; r < tile.rows; ++r) {
    const std::string row = std::to_string(r);
    for (int v = 0; v < tile.vectors; ++v) zero += "    " + vec + " " + accumulator(r, v) + " = ZERO_" + vec + ";\n";
    // Rows beyond the last are summed like the last, and not stored.
    at += "    const i64 at" + row + " = b * p.left_batch + (i0 + " + row + " < p.m ? i0 + " + row +
          " : p.m - 1) * p.left_row;\n";
    step += "      { const A a = LOAD(left, at" + row + " + k * p.left_column);";
    store += "    if (i0 + " + row + " < p.m) {\n      const i64 i = i0 + " + row + ";\n      A line[COLUMNS];\n";
    for (int v = 0; v < tile.vectors; ++v) {
      step += " " + accumulator(r, v) + " += a * b" + std::to_string(v) + ";";
      store += "      VSTORE_" + vec + "(" + accumulator(r, v) + ", line + " + std::to_string(v * tile.width) + ");\n";
    }
    step += " }\n";
    store += "      for (i64 c = 0; c < there; ++c) { const i64 j = j0 + c; " +
             store_statement(with_addend, "line[c]") + "      }\n    }\n";
  }
  std::string loads;
  for (int v = 0; v < tile.vectors; ++v) {
    loads += "      const " + vec + " b" + std::to_string(v) + " = VLOAD_" + vec + "(panel + k * COLUMNS + " +
             std::to_string(v * tile.width) + ");\n";
  }
  source.body =
      "  const i64 down = (p.m + ROWS - 1) / ROWS, across = (p.n + COLUMNS - 1) / COLUMNS;\n"
      "  const i64 end = (item + 1) * p.chunk < p.total ? (item + 1) * p.chunk : p.total;\n"
      "  for (i64 t = item * p.chunk; t < end; ++t) {\n"  // neighbours share a panel
      "    const i64 i0 = t % down * ROWS, j0 = t / down % across * COLUMNS, b = t / down / across;\n"
      "    const i64 there = p.n - j0 < COLUMNS ? p.n - j0 : COLUMNS;\n"
      "    GLOBAL const A* panel = right + (t / down) * p.k * COLUMNS;\n" +
      at + zero + "    for (i64 k = 0; k < p.k; ++k) {\n" + loads + step + "    }\n" + store + "  }\n";
  return source;
}

// Each result by itself. DOTS: the right factor's columns are contiguous along k; else its rows are, and a stretch of
// results is summed side by side.
Source direct_source(const fl_tensor& out, const Product& product, bool dots) {
  const bool with_addend = product.with_addend;
  Source source;
  source.head = head_of(out) + "#define LANES 16\n#define STRETCH 64\n";
  if (is_complex(out.dtype))
    source.head += product.conjugate ? "#define LEFT(i) c_conj(LOAD(left, i))\n" : "#define LEFT(i) LOAD(left, i)\n";
  source.members = kMembers;
  source.pointers = pointers_of(out, with_addend, element_name(out.dtype));
  const std::string dot =
      "    const i64 j = t % p.n, i = t / p.n % p.m, b = t / p.n / p.m;\n"
      "    const i64 x = b * p.left_batch + i * p.left_row, y = b * p.right_batch + j * p.right_column;\n"
      "    A lane[LANES];\n"
      "    for (int l = 0; l < LANES; ++l) lane[l] = ZERO;\n"
      "    i64 k = 0;\n"
      "    if (p.left_column == 1) {\n"
      "      for (; k + LANES <= p.k; k += LANES) {\n"
      "        for (int l = 0; l < LANES; ++l) lane[l] += TIMES(LEFT(x + k + l), LOAD(right, y + k + l));\n"
      "      }\n"
      "    }\n"
      "    for (; k < p.k; ++k) lane[0] += TIMES(LEFT(x + k * p.left_column), LOAD(right, y + k * p.right_row));\n"
      "    for (int width = LANES / 2; width > 0; width /= 2) {\n"
      "      for (int l = 0; l < width; ++l) lane[l] += lane[l + width];\n"
      "    }\n"
      "    " +
      store_statement(with_addend, "lane[0]");
  const std::string strip =
      "    const i64 across = (p.n + STRETCH - 1) / STRETCH;\n"
      "    const i64 j0 = t % across * STRETCH, i = t / across % p.m, b = t / across / p.m;\n"
      "    const i64 there = p.n - j0 < STRETCH ? p.n - j0 : STRETCH;\n"
      "    const i64 x = b * p.left_batch + i * p.left_row, y = b * p.right_batch + j0 * p.right_column;\n"
      "    A sum[STRETCH];\n"
      "    for (int c = 0; c < STRETCH; ++c) sum[c] = ZERO;\n"
      "    for (i64 k = 0; k < p.k; ++k) {\n"
      "      const A a = LEFT(x + k * p.left_column);\n"
      "      if (there == STRETCH && p.right_column == 1) {\n"
      "        for (int c = 0; c < STRETCH; ++c) sum[c] += TIMES(a, LOAD(right, y + k * p.right_row + c));\n"
      "      } else {\n"
      "        for (i64 c = 0; c < there; ++c) sum[c] += TIMES(a, LOAD(right, y + k * p.right_row + c * "
      "p.right_column));\n"
      "      }\n"
      "    }\n"
      "    for (i64 c = 0; c < there; ++c) { const i64 j = j0 + c; " +
      store_statement(with_addend, "sum[c]") + "    }\n";
  source.body =
      "  const i64 end = (item + 1) * p.chunk < p.total ? (item + 1) * p.chunk : p.total;\n"
      "  for (i64 t = item * p.chunk; t < end; ++t) {\n" +
      (dots ? dot : strip) + "  }\n";
  return source;
}

// ---- Running ----------------------------------------------------------------------------------------------------

constexpr int64_t kStretch = 64;
constexpr int64_t kFewRows = 4;

using Words = Members<22>;

Words words_of(const Problem& p, int64_t total, int64_t chunk) {
  Words words;
  for (const int64_t word : {p.batches,
                             p.m,
                             p.n,
                             p.k,
                             p.left.batch,
                             p.left.row,
                             p.left.column,
                             p.right.batch,
                             p.right.row,
                             p.right.column,
                             p.out.batch,
                             p.out.row,
                             p.out.column,
                             p.addend.batch,
                             p.addend.row,
                             p.addend.column,
                             total,
                             chunk,
                             static_cast<int64_t>(p.alpha[0]),
                             static_cast<int64_t>(p.beta[0]),
                             static_cast<int64_t>(p.alpha[1]),
                             static_cast<int64_t>(p.beta[1])}) {
    words.add(word);
  }
  return words;
}

class ProductRow : public Row {
 public:
  ProductRow(runtime::Chip& chip, Language language, const Product& product) : Row(chip, language), product_(product) {}

  fl_status run(const fl_call& call) {
    Problem p;
    if (!read(call, product_, p)) return decline("a product that the portable kernels do not have");
    if (p.out.tensor->numel == 0) return FL_OK;
    const bool floating = is_floating(p.out.tensor->dtype);
    const bool small = p.m <= kFewRows || p.n < 8 || p.m * p.n * p.k < 32 * 32 * 32;
    return small || !floating ? direct(call, p) : tiled(call, p);
  }

  static fl_status supports(const fl_call* call) {
    Problem p;
    const auto* row = &row_of<ProductRow>(*call);
    return read(*call, row->product_, p) ? FL_OK : decline("a product that the portable kernels do not have");
  }

 private:
  fl_status direct(const fl_call& call, const Problem& p) {
    const bool dots = p.right.row == 1 || p.n == 1 || p.right.column != 1;
    const int64_t total = p.batches * p.m * (dots ? p.n : (p.n + kStretch - 1) / kStretch);
    const Split work = split(device(call), total, std::max<int64_t>(1, 8192 / std::max<int64_t>(p.k, 1)));
    VariantKey key;
    key.add(dots ? 0 : 1);
    key.add(static_cast<uint32_t>(p.out.tensor->dtype));
    const fl_module module = variant(call, key, [&] { return direct_source(*p.out.tensor, product_, dots); });
    return start(call, p, module, work, total, p.right.tensor->address);
  }

  fl_status tiled(const fl_call& call, const Problem& p) {
    const fl_tensor& out = *p.out.tensor;
    const Tile tile = tile_for(out.dtype);
    const int64_t columns = tile.columns(), across = (p.n + columns - 1) / columns;
    const int64_t steps = p.batches * across * p.k;
    const uint64_t bytes = static_cast<uint64_t>(steps * columns) * (out.dtype == FL_FLOAT64 ? 8 : 4);
    fl_address panels = 0;
    const fl_status status = runtime::host_services().scratch(&call, std::max<uint64_t>(bytes, 8), &panels);
    if (status != FL_OK) return status;
    const fl_status packed = pack(call, p, tile, panels, steps);
    if (packed != FL_OK) return packed;
    const int64_t total = p.batches * across * ((p.m + tile.rows - 1) / tile.rows);
    VariantKey key;
    key.add(2);
    key.add(static_cast<uint32_t>(out.dtype));
    const fl_module module = variant(call, key, [&] { return tile_source(out, product_.with_addend, tile); });
    const int64_t least = std::max<int64_t>(1, 65536 / std::max<int64_t>(p.k * columns * tile.rows / 16, 1));
    return start(call, p, module, split(device(call), total, least), total, panels);
  }

  fl_status pack(const fl_call& call, const Problem& p, const Tile& tile, fl_address panels, int64_t steps) {
    if (steps == 0) return FL_OK;
    const Split work = split(device(call), steps, 256);
    VariantKey key;
    key.add(3);
    key.add(static_cast<uint32_t>(p.out.tensor->dtype));
    const fl_module module = variant(call, key, [&] { return pack_source(*p.right.tensor, tile); });
    Members<8> words;
    for (const int64_t word : {p.batches, p.n, p.k, p.right.batch, p.right.row, p.right.column, steps, work.chunk}) {
      words.add(word);
    }
    Arguments arguments;
    arguments.add(*p.right.tensor);
    arguments.add_address(panels);
    arguments.add_members(words.data(), words.bytes());
    return arguments.launch(call, device(call), module, work.items);
  }

  fl_status start(const fl_call& call, const Problem& p, fl_module module, const Split& work, int64_t total,
                  fl_address right) {
    const Words words = words_of(p, total, work.chunk);
    Arguments arguments;
    arguments.add(*p.out.tensor);
    arguments.add(*p.left.tensor);
    arguments.add_address(right);
    if (product_.with_addend) arguments.add(*p.addend.tensor);
    arguments.add_members(words.data(), words.bytes());
    return arguments.launch(call, device(call), module, work.items);
  }

  const Product& product_;
};

}  // namespace

void add_products(Rows& rows, runtime::Chip& chip, Language language) {
  for (const Product& product : kProducts) {
    rows.push_back(make_row(product.op, 0, run_row<ProductRow>, ProductRow::supports,
                            keep<ProductRow>(chip, language, product), kFloats | kIntegers | kComplex));
  }
}

}  // namespace torch_fl::portable
