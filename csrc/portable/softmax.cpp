// SPDX-License-Identifier: Apache-2.0
// Softmax and log-softmax along a dimension, and their gradients.
#include <algorithm>

#include "families.h"
#include "launch.h"
#include "text.h"

namespace torch_fl::portable {
namespace {

struct Softmax {
  const char* op;
  bool backward;
  bool log;
};
const Softmax kOperators[] = {
    {"aten::_softmax", false, false},
    {"aten::_log_softmax", false, true},
    {"aten::_softmax_backward_data", true, false},
    {"aten::_log_softmax_backward_data", true, true},
};

/// Dense tensors seen as outer x size x inner around the dimension.
struct Reading {
  const fl_tensor* tensors[3];  ///< the output first
  int count = 0;
  int64_t outer = 1, size = 1, inner = 1;

  bool read(const fl_call& call, bool backward) {
    if (call.n_outs != 1 || call.outs[0] == nullptr) return false;
    tensors[count++] = call.outs[0];
    for (uint32_t i = 0; i < (backward ? 2u : 1u); ++i) {
      if (call.args[i].kind != FL_TENSOR) return false;
      tensors[count++] = call.args[i].u.tensor;
    }
    for (int k = 0; k < count; ++k) {
      if (!is_floating(tensors[k]->dtype)) return false;
    }
    const fl_tensor& in = *tensors[1];
    int64_t dim = call.args[backward ? 2 : 1].u.i;
    dim += dim < 0 ? std::max(in.ndim, 1) : 0;
    for (int32_t d = 0; d < in.ndim; ++d) (d < dim ? outer : d == dim ? size : inner) *= in.sizes[d];
    return true;
  }
};

class SoftmaxRow : public Row {
 public:
  SoftmaxRow(runtime::Chip& chip, Language language, const Softmax& line) : Row(chip, language), line_(line) {}

  static bool is_wide(const Reading& reading) { return reading.tensors[1]->dtype == FL_FLOAT64; }
  static bool with_vectors(const Reading& reading) {
    return !is_wide(reading) && (reading.inner == 1 ? reading.size >= 16 : reading.inner >= 16);
  }

  Source write(const Reading& reading) const {
    const auto type = [&](int k) { return std::string(type_name(reading.tensors[k]->dtype)); };
    const bool vectors = with_vectors(reading);
    const std::string gradient = line_.backward ? "_gradient" : "", operands = line_.backward ? "x, y, out" : "x, out";
    Source source;
    source.head = std::string("#define A ") + (is_wide(reading) ? "f64\n" : "f32\n#define FL_F32 1\n") + "#define X " +
                  type(1) + "\n#define Y " + type(line_.backward ? 2 : 1) + "\n#define OUT " + type(0) +
                  "\n#define LOG " + (line_.log ? "1" : "0") + "\n#define VECTORS " + (vectors ? "1\n" : "0\n") +
                  math_functions(vectors) + text_of("softmax.h");
    source.members = "  i64 lines, chunk, size, inner";
    source.pointers = {{type(0), "out", true}, {type(1), "x"}};
    if (line_.backward) source.pointers.push_back({type(2), "y"});
    const auto handle = [&](const char* form, const char* rest) {
      return "softmax" + gradient + form + "(" + operands + ", at, p.size" + rest + ");\n";
    };
    source.body =
        "  const i64 end = SHARE_END(p.chunk, p.lines);\n"
        "  for (i64 line = item * p.chunk; line < end;) {\n"
        "    const i64 at = line / p.inner * p.inner * p.size + line % p.inner;\n";
    if (vectors && reading.inner == 1) {
      source.body += "    " + handle("_row", "");
    } else if (vectors) {
      source.body += "    if (p.inner - line % p.inner >= LANES && end - line >= LANES) {\n      " +
                     handle("_lines", ", p.inner") + "      line += LANES;\n      continue;\n    }\n    " +
                     handle("_line", ", p.inner");
    } else {
      source.body += "    " + handle("_line", reading.inner == 1 ? ", 1" : ", p.inner");
    }
    source.body += "    ++line;\n  }\n";
    return source;
  }

  fl_status run(const fl_call& call) {
    Reading reading;
    if (!reading.read(call, line_.backward)) return decline("a softmax that the portable kernels do not have");
    if (reading.tensors[0]->numel == 0) return FL_OK;
    VariantKey key;
    for (int k = 0; k < reading.count; ++k) key.add(static_cast<uint32_t>(reading.tensors[k]->dtype));
    key.add((reading.inner == 1 ? 1u : 0u) | (with_vectors(reading) ? 2u : 0u));
    const int64_t lines = reading.outer * reading.inner;
    const Split work = split(device(call), lines, std::max<int64_t>(1, 4096 / reading.size));
    const fl_module module = variant(call, key, [&] { return write(reading); });
    Members<4> words;
    for (const int64_t word : {lines, work.chunk, reading.size, reading.inner}) words.add(word);
    Arguments arguments;
    for (int k = 0; k < reading.count; ++k) arguments.add(*reading.tensors[k]);
    arguments.add_members(words.data(), words.bytes());
    return arguments.launch(call, device(call), module, work.items);
  }

  static fl_status supports(const fl_call* call) {
    Reading reading;
    const auto* row = &row_of<SoftmaxRow>(*call);
    return reading.read(*call, row->line_.backward) ? FL_OK
                                                    : decline("a softmax that the portable kernels do not have");
  }

 private:
  const Softmax& line_;
};

}  // namespace

void add_softmax(Rows& rows, runtime::Chip& chip, Language language) {
  constexpr uint32_t kDense = FL_KERNEL_CONTIGUOUS_INPUTS | FL_KERNEL_CONTIGUOUS_OUTPUTS;
  for (const Softmax& line : kOperators) {
    rows.push_back(make_row(line.op, kDense, run_row<SoftmaxRow>, SoftmaxRow::supports,
                            keep<SoftmaxRow>(chip, language, line), kFloats));
  }
}

}  // namespace torch_fl::portable
