// SPDX-License-Identifier: Apache-2.0
// The matrix-product family: mm, bmm, mv, dot and their forms with an addend.
//
// Large products: both factors are packed, the right one into panels of a tile's width and the left one into strips of
// its height (what is strided, or lies a page apart, would cost a cache and address-translation miss for every step);
// then each tile of ROWS x COLUMNS results is summed in registers, k in order. Products with few rows are bound by
// reading the right factor once; they are summed where it lies.
#include <algorithm>
#include <array>
#include <cstring>

#include "families.h"
#include "launch.h"
#include "runtime/internal.h"
#include "text.h"
#include "tuning.h"

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

enum class Part : uint8_t { Pack, Tiles, Stretches, Dots, Singles };

constexpr const char* kMembers =
    "  i64 batches, m, n, k, left_batch, left_row, left_column, right_batch, right_row, right_column;\n"
    "  i64 out_batch, out_row, out_column, addend_batch, addend_row, addend_column;\n"
    "  i64 pack_batch, pack_count, pack_outer, pack_inner, panel_batch, panel_next, panel_step, own, deep;\n"
    "  i64 total, chunk;\n  u64 alpha, beta, alpha_im, beta_im";

/// Members of `p` that are not the problem's.
struct Layout {
  int64_t pack_batch = 0, pack_count = 0, pack_outer = 0, pack_inner = 0;
  int64_t panel_batch = 0, panel_next = 0, panel_step = 0, own = 0, deep = 1;
};

using Words = Members<32>;

Words words_of(const Problem& p, const Layout& layout, int64_t total, int64_t chunk) {
  Words words;
  for (const int64_t word : {p.batches, p.m, p.n, p.k}) words.add(word);
  for (const Problem::Operand* o : {&p.left, &p.right, &p.out, &p.addend}) {
    for (const int64_t word : {o->batch, o->row, o->column}) words.add(word);
  }
  for (const int64_t word :
       {layout.pack_batch, layout.pack_count, layout.pack_outer, layout.pack_inner, layout.panel_batch,
        layout.panel_next, layout.panel_step, layout.own, layout.deep, total, chunk, static_cast<int64_t>(p.alpha[0]),
        static_cast<int64_t>(p.beta[0]), static_cast<int64_t>(p.alpha[1]), static_cast<int64_t>(p.beta[1])}) {
    words.add(word);
  }
  return words;
}

std::string complex_head(fl_dtype dtype, bool conjugate) {
  const std::string type = element_name(dtype), bits = dtype == FL_COMPLEX128 ? "BITS_f64" : "BITS_f32";
  return std::string("#define A ") + arithmetic_name(dtype) + "\n#define T " + type + "\n#define LOAD(p, i) LOAD_" +
         type + "(p, i)\n#define STORE(p, i, v) STORE_" + type + "(p, i, v)\n" + complex_defines(dtype) +
         text_of("complex.h") + "#define ZERO MAKE(0, 0)\n#define TIMES(a, b) c_mul(a, b)\n#define LEFT(i) " +
         (conjugate ? "c_conj(LOAD(left, i))" : "LOAD(left, i)") + "\n#define ALPHA MAKE(" + bits + "(p.alpha), " +
         bits + "(p.alpha_im))\n#define BETA MAKE(" + bits + "(p.beta), " + bits +
         "(p.beta_im))\n#define HAS_BETA c_true(BETA)\n";
}

Source write(Part part, fl_dtype dtype, const Tile& tile, bool with_addend, int group, bool conjugate = false) {
  constexpr const char* kFunctions[][2] = {
      {"PACK", "pack"}, {"TILES", "tiles"}, {"STRETCHES", "stretches"}, {"DOTS", "dots"}, {"SINGLES", "singles"}};
  const auto& [macro, function] = kFunctions[static_cast<size_t>(part)];
  const std::string type = element_name(dtype), packed = part == Part::Tiles ? arithmetic_name(dtype) : type;
  Source source;
  source.head = (is_complex(dtype) ? complex_head(dtype, conjugate) : tile_head(dtype, tile)) + "#define " + macro +
                "\n#define GROUP " + std::to_string(group) + "\n";
  source.members = kMembers;
  source.functions = text_of("product.h");
  if (part == Part::Pack) {
    source.pointers = {{arithmetic_name(dtype), "to", true}, {type, "from"}};
    source.body = "  pack(to, from, p, item);\n";
    return source;
  }
  source.pointers = {{type, "out", true}, {packed, "left"}, {packed, "right"}};
  if (with_addend) {
    source.head += "#define ADDEND\n";
    source.pointers.push_back({type, "addend"});
  }
  source.body = std::string("  ") + function +
                (with_addend ? "(out, left, right, addend, p, item);\n" : "(out, left, right, p, item);\n");
  return source;
}

// ---- Running ----------------------------------------------------------------------------------------------------

constexpr int64_t kStretch = 128;      ///< as in kernels/product.h
constexpr int64_t kFewRows = 4;        ///< a stretch's sums must stay near
constexpr int64_t kRowsForDots = 48;   ///< from here on packing the right factor pays
constexpr int64_t kOwnDepth = 128;     ///< so many rows of the right factor are near enough where they lie
constexpr int64_t kNear = 768 * 1024;  ///< bytes of strips that stay in a core's cache

class ProductRow : public Row {
 public:
  ProductRow(runtime::Chip& chip, Language language, const Product& product)
      : Row(chip, language), product_(product), tuner_(tuner_of(chip, language)) {}

  fl_status run(const fl_call& call) {
    Problem p;
    if (!read(call, product_, p)) return decline("a product that the portable kernels do not have");
    const fl_tensor& out = *p.out.tensor;
    if (out.numel == 0) return FL_OK;
    const bool wide = out.dtype == FL_FLOAT32 || out.dtype == FL_FLOAT64;
    if (wide && p.left.column == 1 && p.right.row == 1 && (p.m <= kRowsForDots || p.n < 8) && p.k >= 32) {
      const Tile tile{p.m == 1 ? 1 : p.m == 2 ? 2 : 4, p.n < 6 ? 1 : 6, tile_for(out.dtype, 1).width};
      const int64_t total = p.batches * up(p.m, tile.rows) * up(p.n, tile.vectors);
      return start(call, p, Part::Dots, tile, total, 16384 / (p.k * tile.rows), p.right.tensor->address);
    }
    if (!is_complex(out.dtype) && p.m <= kFewRows && p.right.column == 1 && p.n >= 16) {
      const Tile tile{static_cast<int>(p.m), 1, 1};
      return start(call, p, Part::Stretches, tile, p.batches * up(p.n, kStretch), 1, p.right.tensor->address);
    }
    if (is_floating(out.dtype) && p.m > kFewRows && p.n >= 8 && p.m * p.n * p.k >= 16 * 32 * 32) return tiled(call, p);
    return start(call, p, Part::Singles, {1, 1, 1}, p.batches * p.m * p.n, 4096 / std::max<int64_t>(p.k, 1),
                 p.right.tensor->address);
  }

  static fl_status supports(const fl_call* call) {
    Problem p;
    const auto* row = &row_of<ProductRow>(*call);
    return read(*call, row->product_, p) ? FL_OK : decline("a product that the portable kernels do not have");
  }

 private:
  static int64_t up(int64_t n, int64_t by) { return (n + by - 1) / by; }

  fl_status tiled(const fl_call& call, const Problem& p) {
    const fl_tensor& out = *p.out.tensor;
    const double work =
        static_cast<double>(p.batches) * static_cast<double>(p.m) * static_cast<double>(p.n) * static_cast<double>(p.k);
    const auto [tile, per_unit] = tuner_.choose(call, out.dtype, p.m, work);
    const bool wide = out.dtype == FL_FLOAT32 || out.dtype == FL_FLOAT64;
    Layout layout;
    layout.pack_batch = p.left.batch;
    layout.pack_count = p.m;
    layout.pack_outer = p.left.row;
    layout.pack_inner = p.left.column;
    fl_address strips = 0, panels = p.right.tensor->address;
    fl_status status = pack(call, p, layout, tile.rows, *p.left.tensor, &strips);
    if (status != FL_OK) return status;
    layout.own = wide && p.right.column == 1 && p.n >= tile.columns() && (p.k <= kOwnDepth || p.m <= 2 * tile.rows);
    if (layout.own != 0) {
      layout.panel_batch = p.right.batch;
      layout.panel_next = tile.columns();
      layout.panel_step = p.right.row;
    } else {
      layout.pack_batch = p.right.batch;
      layout.pack_count = p.n;
      layout.pack_outer = p.right.column;
      layout.pack_inner = p.right.row;
      layout.panel_step = tile.columns();
      layout.panel_next = p.k * tile.columns();
      layout.panel_batch = up(p.n, tile.columns()) * layout.panel_next;
      status = pack(call, p, layout, tile.columns(), *p.right.tensor, &panels);
      if (status != FL_OK) return status;
    }
    const int64_t strip = std::max<int64_t>(p.k, 1) * tile.rows * (out.dtype == FL_FLOAT64 ? 8 : 4);
    layout.deep = std::max<int64_t>(1, kNear / strip);
    const int64_t total = p.batches * up(p.m, tile.rows) * up(p.n, tile.columns());
    return start(call, p, Part::Tiles, tile, total, 65536 / std::max<int64_t>(p.k * tile.rows * tile.columns() / 16, 1),
                 panels, layout, strips, per_unit);
  }

  fl_status pack(const fl_call& call, const Problem& p, const Layout& layout, int group, const fl_tensor& from,
                 fl_address* to) {
    const fl_dtype dtype = from.dtype;
    const int64_t groups = p.batches * up(layout.pack_count, group), values = groups * group * p.k;
    const uint64_t bytes = static_cast<uint64_t>(values) * (dtype == FL_FLOAT64 ? 8 : 4);
    const fl_status status = runtime::host_services().scratch(&call, std::max<uint64_t>(bytes, 8), to);
    if (status != FL_OK || values == 0) return status;
    VariantKey key;
    key.add(static_cast<uint32_t>(Part::Pack));
    key.add(static_cast<uint32_t>(dtype));
    key.add(static_cast<uint32_t>(group));
    const fl_module module = variant(call, key, [&] { return write(Part::Pack, dtype, {1, 1, 1}, false, group); });
    const int64_t total = groups * up(p.k, 64);
    const Split work = split(device(call), total, 4);
    const Words words = words_of(p, layout, total, work.chunk);
    Arguments arguments;
    arguments.add_address(*to);
    arguments.add(from);
    arguments.add_members(words.data(), words.bytes());
    return arguments.launch(call, device(call), module, work.items);
  }

  fl_status start(const fl_call& call, const Problem& p, Part part, const Tile& tile, int64_t total, int64_t least,
                  fl_address right, const Layout& layout = {}, fl_address left = 0, int64_t per_unit = kItemsPerUnit) {
    const fl_dtype dtype = p.out.tensor->dtype;
    VariantKey key;
    key.add(static_cast<uint32_t>(part));
    key.add(static_cast<uint32_t>(dtype));
    add_tile(key, tile);
    const fl_module module =
        variant(call, key, [&] { return write(part, dtype, tile, product_.with_addend, 1, product_.conjugate); });
    const Split work = split(device(call), total, least, per_unit);
    const Words words = words_of(p, layout, total, work.chunk);
    Arguments arguments;
    arguments.add(*p.out.tensor);
    arguments.add_address(left != 0 ? left : p.left.tensor->address);
    arguments.add_address(right);
    if (product_.with_addend) arguments.add(*p.addend.tensor);
    arguments.add_members(words.data(), words.bytes());
    return arguments.launch(call, device(call), module, work.items);
  }

  const Product& product_;
  Tuner& tuner_;
};

}  // namespace

void add_products(Rows& rows, runtime::Chip& chip, Language language) {
  for (const Product& product : kProducts) {
    rows.push_back(make_row(product.op, 0, run_row<ProductRow>, ProductRow::supports,
                            keep<ProductRow>(chip, language, product), kFloats | kIntegers | kComplex));
  }
}

}  // namespace torch_fl::portable
