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

// One result line: the elements of a row, `step` apart. A log-softmax needs no second exponential: x - max - log(sum).
std::string forward_body(bool log, const std::string& in, const std::string& out) {
  const std::string x = "LOAD_" + in + "(x, at + j * step)", to = "STORE_" + out + "(out, at + j * step, ";
  return "    A lane[LANES];\n"
         "    for (int k = 0; k < LANES; ++k) lane[k] = -INF_F;\n"
         "    for (i64 j = 0; j + LANES <= p.size; j += LANES) {\n"
         "      for (int k = 0; k < LANES; ++k) { const A v = LOAD_" +
         in +
         "(x, at + (j + k) * step); lane[k] = v > lane[k] ? v : lane[k]; }\n"
         "    }\n"
         "    A top = -INF_F;\n"
         "    for (int k = 0; k < LANES; ++k) top = lane[k] > top ? lane[k] : top;\n"
         "    for (i64 j = p.size / LANES * LANES; j < p.size; ++j) { const A v = " +
         x +
         "; top = v > top ? v : top; }\n"
         "    for (int k = 0; k < LANES; ++k) lane[k] = 0;\n"
         "    A sum = 0;\n"
         "    for (i64 j = 0; j + LANES <= p.size; j += LANES) {\n"
         "      for (int k = 0; k < LANES; ++k) lane[k] += m_exp(LOAD_" +
         in +
         "(x, at + (j + k) * step) - top);\n"
         "    }\n"
         "    for (i64 j = p.size / LANES * LANES; j < p.size; ++j) sum += m_exp(" +
         x +
         " - top);\n"
         "    for (int k = 0; k < LANES; ++k) sum += lane[k];\n" +
         (log ? "    const A shift = top + m_log(sum);\n    VECTOR_LOOP\n    for (i64 j = 0; j < p.size; ++j) " + to +
                    x + " - shift);\n"
              : "    const A scale = 1 / sum;\n    VECTOR_LOOP\n    for (i64 j = 0; j < p.size; ++j) " + to + "m_exp(" +
                    x + " - top) * scale);\n");
}

// softmax: (g - sum(g y)) y; log-softmax: g - sum(g) exp(y).
std::string backward_body(bool log, const std::string& g, const std::string& y, const std::string& out) {
  const auto at = [](const std::string& type, const char* name, const char* j) {
    return "LOAD_" + type + "(" + name + ", at + " + j + " * step)";
  };
  const std::string gk = at(g, "x", "(j + k)"), yk = at(y, "y", "(j + k)"), gj = at(g, "x", "j"), yj = at(y, "y", "j");
  return "    A lane[LANES];\n"
         "    for (int k = 0; k < LANES; ++k) lane[k] = 0;\n"
         "    A sum = 0;\n"
         "    for (i64 j = 0; j + LANES <= p.size; j += LANES) {\n"
         "      for (int k = 0; k < LANES; ++k) lane[k] += " +
         gk + (log ? "" : " * " + yk) +
         ";\n"
         "    }\n"
         "    for (i64 j = p.size / LANES * LANES; j < p.size; ++j) sum += " +
         gj + (log ? "" : " * " + yj) +
         ";\n"
         "    for (int k = 0; k < LANES; ++k) sum += lane[k];\n"
         "    VECTOR_LOOP\n"
         "    for (i64 j = 0; j < p.size; ++j) STORE_" +
         out + "(out, at + j * step, " + (log ? gj + " - m_exp(" + yj + ") * sum" : "(" + gj + " - sum) * " + yj) +
         ");\n";
}

class SoftmaxRow : public Row {
 public:
  SoftmaxRow(runtime::Chip& chip, Language language, const Softmax& line) : Row(chip, language), line_(line) {}

  Source write(const Reading& reading) const {
    const auto type = [&](int k) { return std::string(type_name(reading.tensors[k]->dtype)); };
    const bool wide = reading.tensors[1]->dtype == FL_FLOAT64;
    Source source;
    source.head = std::string("#define A ") + (wide ? "f64\n" : "f32\n#define FL_F32 1\n") + "#define LANES 16\n" +
                  text_of("math.h");
    source.members = "  i64 lines, chunk, size, inner";
    source.pointers = {{type(0), "out", true}, {type(1), "x"}};
    if (line_.backward) source.pointers.push_back({type(2), "y"});
    source.body = std::string("  const i64 end = (item + 1) * p.chunk < p.lines ? (item + 1) * p.chunk : p.lines;\n") +
                  "  const i64 step = " + (reading.inner == 1 ? "1" : "p.inner") +
                  ";\n"
                  "  for (i64 line = item * p.chunk; line < end; ++line) {\n"
                  "    const i64 at = line / p.inner * p.inner * p.size + line % p.inner;\n" +
                  (line_.backward ? backward_body(line_.log, type(1), type(2), type(0))
                                  : forward_body(line_.log, type(1), type(0))) +
                  "  }\n";
    return source;
  }

  fl_status run(const fl_call& call) {
    Reading reading;
    if (!reading.read(call, line_.backward)) return decline("a softmax that the portable kernels do not have");
    if (reading.tensors[0]->numel == 0) return FL_OK;
    VariantKey key;
    for (int k = 0; k < reading.count; ++k) key.add(static_cast<uint32_t>(reading.tensors[k]->dtype));
    key.add(reading.inner == 1 ? 1 : 0);
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
