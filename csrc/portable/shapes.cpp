// SPDX-License-Identifier: Apache-2.0
// Operators that only move elements, or fill with one: cat, flip, roll, repeat, eye, ...
#include <algorithm>
#include <array>
#include <cmath>
#include <vector>

#include "arguments.h"
#include "families.h"
#include "text.h"
#include "walk.h"

namespace torch_fl::portable {
namespace {

constexpr uint32_t kDense = FL_KERNEL_CONTIGUOUS_INPUTS | FL_KERNEL_CONTIGUOUS_OUTPUTS;

/// Elements that go from one block of a tensor to one of another. Places and strides in elements of either.
struct Piece {
  fl_address to = 0, from = 0;
  fl_dtype to_type = 0, from_type = 0;
  int ndim = 0;
  int64_t sizes[kMostDims], to_steps[kMostDims], from_steps[kMostDims];

  Piece(const fl_tensor& target, const fl_tensor& source)
      : to(target.address), from(source.address), to_type(target.dtype), from_type(source.dtype) {}
  void add(int64_t size, int64_t to_step, int64_t from_step) {
    sizes[ndim] = size;
    to_steps[ndim] = to_step;
    from_steps[ndim++] = from_step;
  }
  void shift_to(int64_t elements) { to += static_cast<uint64_t>(elements * element_bytes(to_type)); }
  void shift_from(int64_t elements) { from += static_cast<uint64_t>(elements * element_bytes(from_type)); }

  // In elements that the dialect has. False: it has none, or too many dimensions are left.
  bool settle(Geometry& geometry) {
    if (to_type == from_type) {
      to_type = from_type = carrier(to_type);
      if (to_type == FL_COMPLEX128) {
        to_type = from_type = FL_INT64;
        for (int d = 0; d < ndim; ++d) to_steps[d] *= 2, from_steps[d] *= 2;
        add(2, 1, 1);
      }
    }
    const int64_t* steps[] = {to_steps, from_steps};
    return type_name(to_type) != nullptr && type_name(from_type) != nullptr && geometry.merge(ndim, sizes, steps, 2);
  }
};
using Pieces = std::vector<Piece>;

/// A row whose kernels copy or fill blocks.
class BlockRow : public WalkRow {
 public:
  using WalkRow::WalkRow;

 protected:
  fl_status move(const fl_call& call, Piece& piece) {
    Geometry g;
    if (!piece.settle(g)) return decline("elements that the portable kernels cannot move");
    VariantKey key;
    for (const uint32_t byte : {0u, static_cast<uint32_t>(piece.to_type), static_cast<uint32_t>(piece.from_type)})
      key.add(byte);
    return walk_each(call, key, g, {piece.to, piece.from}, std::array<uint64_t, 0>{}, [&] {
      Source source;
      const std::string to = type_name(piece.to_type), from = type_name(piece.from_type);
      const std::string cast = is_floating(piece.from_type) && is_integer(piece.to_type) ? "(i64)" : "";
      source.members = walk_members(g);
      source.pointers = {{to, operand_name(0), true}, {from, operand_name(1)}};
      source.body = walk(
          g, "    STORE_" + to + "(" + element(g, 0) + ", " + cast + "LOAD_" + from + "(" + element(g, 1) + "));\n");
      return source;
    });
  }

  // Every element becomes the one with these bits. Of 16 bytes: the first half; the second becomes 0.
  fl_status fill(const fl_call& call, Piece block, uint64_t bits) {
    fl_status status = FL_OK;
    const bool halves = element_bytes(block.to_type) == 16;
    block.from_type = block.to_type = halves ? fl_dtype{FL_INT64} : carrier(block.to_type);
    for (int half = 0; half < (halves ? 2 : 1) && status == FL_OK; ++half) {
      if (halves && half == 0) {
        for (int d = 0; d < block.ndim; ++d) block.to_steps[d] *= 2;
      }
      Geometry g;
      const int64_t* steps[] = {block.to_steps};
      if (!g.merge(block.ndim, block.sizes, steps, 1)) return decline("too many dimensions that cannot be merged");
      VariantKey key;
      key.add(1);
      key.add(static_cast<uint32_t>(block.to_type));
      const std::array<uint64_t, 1> value = {half == 0 ? bits : 0};
      status = walk_each(call, key, g, {block.to}, value, [&] {
        Source source;
        const std::string type = type_name(block.to_type);
        source.members = walk_members(g) + ";\n  u64 value";
        source.pointers = {{type, operand_name(0), true}};
        source.body = walk(g, "    STORE_" + type + "(" + element(g, 0) + ", p.value);\n");
        return source;
      });
      block.shift_to(1);
    }
    return status;
  }
};

// ---- Copies of blocks -------------------------------------------------------------------------------------------

void flip(const fl_call& call, Pieces& pieces) {
  const fl_tensor &in = tensor(call, 0), &out = *call.outs[0];
  Piece piece(out, in);
  for (int d = 0; d < in.ndim; ++d) {
    bool flips = false;
    for (uint32_t k = 0; k < call.args[1].count; ++k) flips |= wrap(call.args[1].u.ints[k], in.ndim) == d;
    if (flips) piece.shift_from((in.sizes[d] - 1) * in.strides[d]);
    piece.add(in.sizes[d], out.strides[d], flips ? -in.strides[d] : in.strides[d]);
  }
  pieces.push_back(piece);
}

// Every rolled dimension falls into two parts. Both tensors are dense.
void roll(const fl_call& call, Pieces& pieces) {
  const fl_tensor &in = tensor(call, 0), &out = *call.outs[0];
  const fl_value &shifts = call.args[1], &dims = call.args[2];
  const bool flat = dims.count == 0 || in.ndim == 0;
  int64_t sizes[kMostDims], steps[kMostDims], shift[kMostDims] = {};
  const int ndim = flat ? 1 : in.ndim;
  for (int d = 0; d < ndim; ++d) {
    sizes[d] = flat ? in.numel : in.sizes[d];
    steps[d] = flat ? 1 : in.strides[d];
  }
  for (uint32_t k = 0; k < (flat ? std::min(shifts.count, 1u) : dims.count); ++k) {
    const int64_t d = flat ? 0 : wrap(dims.u.ints[k], in.ndim);
    shift[d] = ((shift[d] + shifts.u.ints[k]) % sizes[d] + sizes[d]) % sizes[d];
  }
  int rolled[kMostDims], n = 0;
  for (int d = 0; d < ndim; ++d) {
    if (shift[d] != 0) rolled[n++] = d;
  }
  for (uint32_t part = 0; part < (1u << n); ++part) {
    Piece piece(out, in);
    for (int d = 0, k = 0; d < ndim; ++d) {
      int64_t length = sizes[d];
      if (k < n && rolled[k] == d) {
        const bool tail = ((part >> k++) & 1) != 0;  // the last `shift` come first
        length = tail ? sizes[d] - shift[d] : shift[d];
        piece.shift_to((tail ? shift[d] : 0) * steps[d]);
        piece.shift_from((tail ? 0 : sizes[d] - shift[d]) * steps[d]);
      }
      piece.add(length, steps[d], steps[d]);
    }
    pieces.push_back(piece);
  }
}
bool can_roll(const fl_call& call) { return call.args[2].count <= 6; }

void repeat(const fl_call& call, Pieces& pieces) {
  const fl_tensor &in = tensor(call, 0), &out = *call.outs[0];
  Piece piece(out, in);
  const int extra = out.ndim - in.ndim;
  for (int d = 0; d < out.ndim; ++d) {
    const int64_t size = d < extra ? 1 : in.sizes[d - extra];
    if (out.sizes[d] != size) piece.add(out.sizes[d] / size, out.strides[d] * size, 0);
    if (size != 1) piece.add(size, out.strides[d], in.strides[d - extra]);
  }
  pieces.push_back(piece);
}
bool can_repeat(const fl_call& call) { return 2 * call.outs[0]->ndim < kMostDims; }

void narrow(const fl_call& call, Pieces& pieces) {
  const fl_tensor &in = tensor(call, 0), &out = *call.outs[0];
  Piece piece(out, in);
  const int64_t dim = wrap(call.args[1].u.i, in.ndim);
  piece.shift_from(wrap(call.args[2].u.i, in.sizes[dim]) * in.strides[dim]);
  for (int d = 0; d < in.ndim; ++d) piece.add(out.sizes[d], out.strides[d], in.strides[d]);
  pieces.push_back(piece);
}

// [.., C r r, H, W] and [.., C, H r, W r], one into the other.
void shuffle_pixels(const fl_call& call, Pieces& pieces, bool undo) {
  const fl_tensor &in = tensor(call, 0), &out = *call.outs[0];
  const fl_tensor &deep = undo ? out : in, &wide = undo ? in : out;
  const int64_t r = call.args[1].u.i;
  const int c = deep.ndim - 3, h = c + 1, w = c + 2;
  Piece piece(out, in);
  const auto add = [&](int64_t size, int64_t deep_step, int64_t wide_step) {
    piece.add(size, undo ? deep_step : wide_step, undo ? wide_step : deep_step);
  };
  for (int d = 0; d < c; ++d) add(deep.sizes[d], deep.strides[d], wide.strides[d]);
  add(wide.sizes[c], deep.strides[c] * r * r, wide.strides[c]);
  add(deep.sizes[h], deep.strides[h], wide.strides[h] * r);
  add(r, deep.strides[c] * r, wide.strides[h]);
  add(deep.sizes[w], deep.strides[w], wide.strides[w] * r);
  add(r, deep.strides[c], wide.strides[w]);
  pieces.push_back(piece);
}
void pixel_shuffle(const fl_call& call, Pieces& pieces) { shuffle_pixels(call, pieces, false); }
void pixel_unshuffle(const fl_call& call, Pieces& pieces) { shuffle_pixels(call, pieces, true); }

void channel_shuffle(const fl_call& call, Pieces& pieces) {
  const fl_tensor &in = tensor(call, 0), &out = *call.outs[0];
  const int64_t groups = call.args[1].u.i, each = in.sizes[1] / groups;
  Piece piece(out, in);
  piece.add(in.sizes[0], out.strides[0], in.strides[0]);
  piece.add(each, out.strides[1] * groups, in.strides[1]);
  piece.add(groups, out.strides[1], in.strides[1] * each);
  for (int d = 2; d < in.ndim; ++d) piece.add(in.sizes[d], out.strides[d], in.strides[d]);
  pieces.push_back(piece);
}

// The output's two halves are real tensors of twice the stride.
void complex(const fl_call& call, Pieces& pieces) {
  const fl_tensor& out = *call.outs[0];
  for (uint32_t part = 0; part < 2; ++part) {
    const fl_tensor& in = tensor(call, part);
    Piece piece(out, in);
    piece.to_type = in.dtype;
    piece.shift_to(part);
    for (int d = 0; d < in.ndim; ++d) piece.add(in.sizes[d], 2 * out.strides[d], in.strides[d]);
    pieces.push_back(piece);
  }
}
bool can_complex(const fl_call& call) {
  return call.args[1].kind == FL_TENSOR && call.args[1].u.tensor->dtype == call.compute_dtype;
}

// An empty tensor of one dimension counts for nothing whatever the others look like (an old habit of programs).
bool skipped(const fl_tensor& t) { return t.ndim == 1 && t.sizes[0] == 0; }

void cat(const fl_call& call, Pieces& pieces) {
  const fl_tensor& out = *call.outs[0];
  const int64_t dim = wrap(call.args[1].u.i, out.ndim);
  int64_t at = 0;
  for (uint32_t k = 0; k < call.args[0].count; ++k) {
    const fl_tensor& in = *call.args[0].u.tensors[k];
    if (in.numel == 0) continue;
    Piece piece(out, in);
    piece.shift_to(at * out.strides[dim]);
    for (int d = 0; d < in.ndim; ++d) piece.add(in.sizes[d], out.strides[d], in.strides[d]);
    at += in.sizes[dim];
    pieces.push_back(piece);
  }
}
bool can_cat(const fl_call& call) {
  const fl_value& list = call.args[0];
  for (uint32_t k = 0; k < list.count; ++k) {
    const fl_tensor* t = list.u.tensors[k];
    if (t == nullptr || (!skipped(*t) && t->ndim != call.outs[0]->ndim)) return false;
  }
  return true;
}

struct Moved {
  const char* op;
  uint32_t flags;
  uint64_t dtypes;
  void (*cut)(const fl_call& call, Pieces& pieces);  ///< of outputs that are not empty
  bool (*can)(const fl_call& call) = nullptr;
};
const Moved kMoved[] = {
    {"aten::flip", 0, 0, flip},
    {"aten::roll", kDense, 0, roll, can_roll},
    {"aten::repeat", 0, 0, repeat, can_repeat},
    {"aten::narrow_copy", 0, 0, narrow},
    {"aten::pixel_shuffle", 0, 0, pixel_shuffle},
    {"aten::pixel_unshuffle", 0, 0, pixel_unshuffle},
    {"aten::channel_shuffle", 0, 0, channel_shuffle},
    {"aten::complex", FL_KERNEL_BROADCAST, kFloats & ~FL_DTYPE_BIT(FL_BFLOAT16), complex, can_complex},
};

class MoveRow : public BlockRow {
 public:
  MoveRow(runtime::Chip& chip, Language language, const Moved& line) : BlockRow(chip, language), line_(line) {}

  static bool read(const fl_call& call, const Moved& line, Pieces& pieces) {
    if (call.n_outs != 1 || call.outs[0] == nullptr || (line.can != nullptr && !line.can(call))) return false;
    if (call.outs[0]->numel > 0) line.cut(call, pieces);
    return true;
  }
  fl_status run(const fl_call& call) { return run_pieces(call, line_); }
  static fl_status supports(const fl_call* call) { return supports_pieces(*call, row_of<MoveRow>(*call).line_); }

 protected:
  fl_status run_pieces(const fl_call& call, const Moved& line) {
    Pieces pieces;
    if (!read(call, line, pieces)) return decline("a call that the portable kernels do not have");
    for (Piece& piece : pieces) {
      const fl_status status = move(call, piece);
      if (status != FL_OK) return status;
    }
    return FL_OK;
  }
  static fl_status supports_pieces(const fl_call& call, const Moved& line) {
    Pieces pieces;
    if (!read(call, line, pieces)) return decline("a call that the portable kernels do not have");
    for (Piece& piece : pieces) {
      Geometry g;
      if (!piece.settle(g)) return decline("elements that the portable kernels cannot move");
    }
    return FL_OK;
  }

 private:
  const Moved& line_;
};

// ---- cat of dense tensors: several at once, as rows of the output ---------------------------------------------------

const Moved kCat = {"aten::cat", 0, 0, cat, can_cat};

class CatRow : public MoveRow {
 public:
  CatRow(runtime::Chip& chip, Language language) : MoveRow(chip, language, kCat) {}

  static constexpr size_t kMost = 8;

  static bool dense(const fl_call& call) {
    const fl_tensor& out = *call.outs[0];
    bool all = (out.flags & FL_TENSOR_CONTIGUOUS) != 0 && element_bytes(out.dtype) <= 8;
    for (uint32_t k = 0; all && k < call.args[0].count; ++k) {
      const fl_tensor& in = *call.args[0].u.tensors[k];
      all = in.numel == 0 || ((in.flags & FL_TENSOR_CONTIGUOUS) != 0 && in.dtype == out.dtype);
    }
    return all;
  }

  static Source write(fl_dtype type, size_t count) {
    Source source;
    const std::string t = type_name(type);
    source.head = text_of("shapes.h");
    source.members = "  i64 numel, chunk, width, first, start[" + std::to_string(count + 1) + "]";
    source.pointers = {{t, "out", true}};
    source.body = "  const i64 band = p.start[" + std::to_string(count) +
                  "], end = SHARE_END(p.chunk, p.numel);\n"
                  "  i64 e = item * p.chunk, row = e / band, c = e % band;\n"
                  "  while (e < end) {\n";
    for (size_t k = 0; k < count; ++k) {
      const std::string x = "x" + std::to_string(k), n = std::to_string(k), next = std::to_string(k + 1);
      source.pointers.push_back({t, x});
      source.body += "    CAT_PART(" + x + ", p.start[" + n + "], p.start[" + next + "])\n";
    }
    source.body += "    if (c == band) { c = 0; ++row; }\n  }\n";
    return source;
  }

  fl_status run(const fl_call& call) {
    if (call.outs[0]->numel == 0) return FL_OK;
    if (!dense(call)) return run_pieces(call, kCat);
    const fl_tensor& out = *call.outs[0];
    const int64_t dim = wrap(call.args[1].u.i, out.ndim);
    int64_t inner = 1, outer = 1;
    for (int d = 0; d < out.ndim; ++d) (d < dim ? outer : d > dim ? inner : inner) *= d == dim ? 1 : out.sizes[d];
    const int64_t width = out.sizes[dim] * inner;
    int64_t first = 0;
    for (uint32_t k = 0; k < call.args[0].count;) {
      const fl_tensor* group[kMost];
      size_t n = 0;
      for (; k < call.args[0].count && n < kMost; ++k) {
        const fl_tensor* in = call.args[0].u.tensors[k];
        if (in->numel > 0) group[n++] = in;
      }
      if (n == 0) break;
      const fl_status status = copy_group(call, group, n, outer, inner, dim, width, first);
      if (status != FL_OK) return status;
    }
    return FL_OK;
  }

  static fl_status supports(const fl_call* call) { return supports_pieces(*call, kCat); }

 private:
  fl_status copy_group(const fl_call& call, const fl_tensor* const* group, size_t n, int64_t outer, int64_t inner,
                       int64_t dim, int64_t width, int64_t& first) {
    const fl_dtype type = carrier(call.outs[0]->dtype);
    const size_t count = n <= 2 ? 2 : n <= 4 ? 4 : kMost;  // few variants; the rest are empty
    VariantKey key;
    key.add(2);
    key.add(static_cast<uint32_t>(type));
    key.add(static_cast<uint32_t>(count));
    const fl_module module = variant(call, key, [&] { return write(type, count); });
    Arguments arguments;
    arguments.add(*call.outs[0]);
    std::array<int64_t, kMost + 1> start{};
    for (size_t k = 0; k < count; ++k) {
      arguments.add(*group[k < n ? k : 0]);
      start[k + 1] = start[k] + (k < n ? group[k]->sizes[dim] * inner : 0);
    }
    const int64_t numel = outer * start[count];
    const Split work = split(device(call), numel, 16384);
    Members<4 + kMost + 1> words;
    for (const int64_t word : {numel, work.chunk, width, first}) words.add(word);
    for (size_t k = 0; k <= count; ++k) words.add(start[k]);
    first += start[count];
    arguments.add_members(words.data(), words.bytes());
    return arguments.launch(call, device(call), module, work.items);
  }
};

// ---- zero_, eye: the same element in many places ------------------------------------------------------------------

uint64_t one_of(fl_dtype dtype) {
  switch (dtype) {
    case FL_FLOAT32:
    case FL_COMPLEX64:
      return 0x3f800000;
    case FL_FLOAT64:
    case FL_COMPLEX128:
      return 0x3ff0000000000000;
    case FL_FLOAT16:
    case FL_COMPLEX32:
      return 0x3c00;
    case FL_BFLOAT16:
      return 0x3f80;
    case FL_FLOAT8_E5M2:
      return 0x3c;
    case FL_FLOAT8_E4M3FN:
      return 0x38;
    case FL_FLOAT8_E5M2FNUZ:
    case FL_FLOAT8_E4M3FNUZ:
      return 0x40;
    case FL_FLOAT8_E8M0FNU:
      return 0x7f;
    default:
      return 1;
  }
}

class FillRow : public BlockRow {
 public:
  FillRow(runtime::Chip& chip, Language language, bool diagonal) : BlockRow(chip, language), diagonal_(diagonal) {}

  fl_status run(const fl_call& call) {
    const fl_tensor& out = *call.outs[0];
    if (out.numel == 0) return FL_OK;
    Piece all(out, out);
    for (int d = 0; d < out.ndim; ++d) all.add(out.sizes[d], out.strides[d], 0);
    const fl_status status = fill(call, all, 0);
    if (!diagonal_ || status != FL_OK) return status;
    Piece line(out, out);
    line.add(std::min(out.sizes[0], out.sizes[1]), out.strides[0] + out.strides[1], 0);
    return fill(call, line, one_of(out.dtype));
  }
  static fl_status supports(const fl_call* call) {
    Geometry g;
    const fl_tensor* out = call->outs[0];
    return out != nullptr && out->dtype != FL_DTYPE_OTHER && g.merge(&out, 1)
               ? FL_OK
               : decline("too many dimensions that cannot be merged");
  }

 private:
  const bool diagonal_;
};

}  // namespace

void add_shapes(Rows& rows, runtime::Chip& chip, Language language) {
  for (const Moved& line : kMoved) {
    rows.push_back(make_row(line.op, line.flags, run_row<MoveRow>, MoveRow::supports,
                            keep<MoveRow>(chip, language, line), line.dtypes));
  }
  rows.push_back(make_row("aten::cat", 0, run_row<CatRow>, CatRow::supports, keep<CatRow>(chip, language), 0));
  const auto add_fill = [&](const char* op, bool diagonal) {
    rows.push_back(make_row(op, 0, run_row<FillRow>, FillRow::supports, keep<FillRow>(chip, language, diagonal), 0));
  };
  add_fill("aten::zero_", false);
  add_fill("aten::eye", true);
  add_fill("aten::eye.m", true);
}

}  // namespace torch_fl::portable
