// SPDX-License-Identifier: Apache-2.0
// Padding by reflection and replication, and patches of images as columns, with what goes back.
#include <algorithm>
#include <array>

#include "families.h"
#include "indexing.h"
#include "text.h"

namespace torch_fl::portable {
namespace {

/// A kernel over lines of dense tensors: an input, an output, sizes.
class LineRow : public Row {
 public:
  using Row::Row;

 protected:
  /// `adds`: elements are summed, else they are moved as they are.
  template <size_t n>
  fl_status run_lines(const fl_call& call, const fl_tensor& in, bool adds, int64_t width,
                      const std::array<int64_t, n>& sizes, const std::string& defines, const char* members,
                      const char* body) {
    const fl_tensor& out = *call.outs[0];
    if (out.numel == 0) return FL_OK;
    const std::string type = adds ? type_name(out.dtype) : word_of(element_bytes(out.dtype));
    VariantKey key;
    key.add(static_cast<uint32_t>(out.dtype));
    const fl_module module = variant(call, key, [&] {
      Source source;
      source.head = kPair + defines + "#define T " + type + "\n";
      if (adds) {
        source.head += std::string("#define A ") + arithmetic_name(out.dtype) + "\n#define LOAD LOAD_" + type +
                       "\n#define STORE STORE_" + type + "\n";
      }
      source.head += text_of("padding.h");
      source.members = std::string("  i64 lines, chunk, ") + members;
      source.pointers = {{type, "out", true}, {type, "x"}};
      source.body = std::string("  ") + body + "\n";
      return source;
    });
    const int64_t lines = out.numel / width;
    const Split work = split(device(call), lines, std::max<int64_t>(1, 16384 / width));
    Members<2 + n> words;
    words.add(lines);
    words.add(work.chunk);
    for (const int64_t word : sizes) words.add(word);
    Arguments arguments;
    arguments.add(out);
    arguments.add(in);
    arguments.add_members(words.data(), words.bytes());
    return arguments.launch(call, device(call), module, work.items);
  }
};

struct Padding {
  const char* op;
  int dims;
  bool reflects, backward;
};
const Padding kPaddings[] = {
    {"aten::reflection_pad1d", 1, true, false},           {"aten::reflection_pad2d", 2, true, false},
    {"aten::reflection_pad3d", 3, true, false},           {"aten::reflection_pad1d_backward", 1, true, true},
    {"aten::reflection_pad2d_backward", 2, true, true},   {"aten::reflection_pad3d_backward", 3, true, true},
    {"aten::replication_pad1d", 1, false, false},         {"aten::replication_pad2d", 2, false, false},
    {"aten::replication_pad3d", 3, false, false},         {"aten::replication_pad1d_backward", 1, false, true},
    {"aten::replication_pad2d_backward", 2, false, true}, {"aten::replication_pad3d_backward", 3, false, true},
};

class PaddingRow : public LineRow {
 public:
  PaddingRow(runtime::Chip& chip, Language language, const Padding& line) : LineRow(chip, language), line_(line) {}

  fl_status run(const fl_call& call) {
    const fl_tensor &result = *call.outs[0], &first = *call.args[0].u.tensor;
    const fl_tensor &narrow = line_.backward ? result : first, &wide = line_.backward ? first : result;
    const fl_value& padding = call.args[line_.backward ? 2 : 1];
    std::array<int64_t, 9> sizes{1, 1, 1, 1, 1, 1, 0, 0, 0};  // in, out, pad
    for (int k = 0; k < line_.dims; ++k) {
      const auto d = static_cast<size_t>(3 - line_.dims + k);
      sizes[d] = narrow.sizes[narrow.ndim - line_.dims + k];
      sizes[3 + d] = wide.sizes[wide.ndim - line_.dims + k];
      sizes[6 + d] = padding.u.ints[2 * (line_.dims - 1 - k)];  // listed from the last dimension on
    }
    return run_lines(call, first, line_.backward, sizes[line_.backward ? 2 : 5], sizes,
                     line_.reflects ? "#define REFLECT 1\n" : "", "in[3], out[3], pad[3]",
                     line_.backward ? "PAD_BACKWARD" : "PAD");
  }

  static fl_status supports(const fl_call* call) {
    const auto& line = row_of<PaddingRow>(*call).line_;
    const fl_tensor &out = *call->outs[0], &in = *call->args[0].u.tensor;
    const bool known = line.backward ? is_floating(out.dtype) && in.dtype == out.dtype : out.dtype != FL_DTYPE_OTHER;
    const fl_value& padding = call->args[line.backward ? 2 : 1];
    // An element that is shown must exist.
    const bool filled = line.backward || in.numel > 0 || out.numel == 0;
    return known && filled && out.ndim >= line.dims && in.ndim == out.ndim &&
                   padding.count == static_cast<uint32_t>(2 * line.dims)
               ? FL_OK
               : decline("a padding that the portable kernels do not have");
  }

 private:
  const Padding& line_;
};

/// im2col and col2im. Planes are (image, channel) pairs: in the image H x W, in the columns places x patches.
class PatchRow : public LineRow {
 public:
  PatchRow(runtime::Chip& chip, Language language, bool back) : LineRow(chip, language), back_(back) {}

  fl_status run(const fl_call& call) {
    const fl_tensor& in = *call.args[0].u.tensor;
    const fl_tensor& image = back_ ? *call.outs[0] : in;
    const uint32_t first = back_ ? 2 : 1;
    std::array<int64_t, 12> sizes{};  // image, window, dilation, pad, stride, grid
    for (size_t d = 0; d < 2; ++d) {
      int64_t* s = sizes.data() + d;
      s[0] = image.sizes[image.ndim - 2 + static_cast<int>(d)];
      for (uint32_t a = 0; a < 4; ++a) {
        const fl_value& v = call.args[first + a];
        s[2 * (a + 1)] = v.u.ints[v.count > 1 ? d : 0];
      }
      s[10] = (s[0] + 2 * s[6] - s[4] * (s[2] - 1) - 1) / s[8] + 1;
    }
    return run_lines(call, in, back_, back_ ? sizes[1] : sizes[11], sizes, "",
                     "image[2], window[2], dilation[2], pad[2], stride[2], grid[2]", back_ ? "COL2IM" : "IM2COL");
  }

  static fl_status supports(const fl_call* call) {
    const auto& row = row_of<PatchRow>(*call);
    const fl_tensor &out = *call->outs[0], &in = *call->args[0].u.tensor;
    bool known = out.ndim >= 2 && in.ndim >= 2 && in.dtype == out.dtype && (in.numel > 0 || out.numel == 0);
    known = known && (row.back_ ? is_floating(out.dtype) : out.dtype != FL_DTYPE_OTHER);
    for (uint32_t i = 1; i < call->n_args; ++i) known = known && call->args[i].count > 0;
    return known ? FL_OK : decline("patches that the portable kernels do not have");
  }

 private:
  const bool back_;
};

/// unfold_backward. The windows lie in their dimension's place, what they hold in a last dimension.
class WindowRow : public LineRow {
 public:
  using LineRow::LineRow;

  fl_status run(const fl_call& call) {
    const fl_tensor &out = *call.outs[0], &in = *call.args[0].u.tensor;
    const int64_t dim = wrap_dim(call.args[2].u.i, out.ndim), n = size_at(out, dim);
    int64_t inner = 1;
    for (int64_t d = dim + 1; d < out.ndim; ++d) inner *= out.sizes[d];
    const int64_t windows = out.ndim > 0 ? in.sizes[dim] : 1;  // of a number there is one
    return run_lines<5>(call, in, true, inner, {n, windows, inner, call.args[3].u.i, call.args[4].u.i}, "",
                        "n, windows, inner, size, step", "UNFOLD_BACKWARD");
  }

  static fl_status supports(const fl_call* call) {
    const fl_tensor &out = *call->outs[0], &in = *call->args[0].u.tensor;
    bool known = is_floating(out.dtype) && in.dtype == out.dtype && in.ndim == out.ndim + 1;
    const int64_t dim = wrap_dim(call->args[2].u.i, out.ndim), size = call->args[3].u.i, step = call->args[4].u.i;
    known = known && step > 0 && size >= 0 && in.sizes[out.ndim] == size;
    for (int64_t d = 0; known && d < out.ndim; ++d) {
      known = d == dim ? in.sizes[d] == (out.sizes[d] - size) / step + 1 : in.sizes[d] == out.sizes[d];
    }
    return known ? FL_OK : decline("windows that the portable kernels do not have");
  }
};

}  // namespace

void add_padding(Rows& rows, runtime::Chip& chip, Language language) {
  constexpr uint32_t kDense = FL_KERNEL_CONTIGUOUS_INPUTS | FL_KERNEL_CONTIGUOUS_OUTPUTS;
  for (const Padding& line : kPaddings) {
    rows.push_back(make_row(line.op, kDense, run_row<PaddingRow>, PaddingRow::supports,
                            keep<PaddingRow>(chip, language, line), 0));
  }
  rows.push_back(make_row("aten::im2col", kDense, run_row<PatchRow>, PatchRow::supports,
                          keep<PatchRow>(chip, language, false), 0));
  rows.push_back(
      make_row("aten::col2im", kDense, run_row<PatchRow>, PatchRow::supports, keep<PatchRow>(chip, language, true), 0));
  rows.push_back(make_row("aten::unfold_backward", kDense, run_row<WindowRow>, WindowRow::supports,
                          keep<WindowRow>(chip, language), 0));
}

}  // namespace torch_fl::portable
