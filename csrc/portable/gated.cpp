// SPDX-License-Identifier: Apache-2.0
// Gated linear units: one half of a tensor along a dimension, gated by the other; and the gradient.
#include <algorithm>

#include "families.h"
#include "launch.h"
#include "text.h"

namespace torch_fl::portable {
namespace {

// `item` has outputs (backward: gates) begin to end, in rows of p.gated next to each other.
constexpr const char* kBody =
    "  const i64 begin = item * p.chunk, end = begin + p.chunk < p.total ? begin + p.chunk : p.total;\n"
    "  for (i64 i = begin; i < end;) {\n"
    "    const i64 row = i / p.gated, j = i % p.gated, run = p.gated - j < end - i ? p.gated - j : end - i;\n"
    "    const i64 at = row * 2 * p.gated + j;\n"
    "    VECTOR_LOOP\n"
    "    for (i64 k = 0; k < run; ++k) {\n"
    "      const A value = LOAD(in, at + k), gate = 1 / (1 + m_exp(-LOAD(in, at + p.gated + k)));\n"
    "#ifdef BACKWARD\n"
    "      const A g = LOAD(gradient, i + k);\n"
    "      STORE(out, at + k, g * gate);\n"
    "      STORE(out, at + p.gated + k, g * value * gate * (1 - gate));\n"
    "#else\n"
    "      STORE(out, i + k, value * gate);\n"
    "#endif\n"
    "    }\n"
    "    i += run;\n"
    "  }\n";

class GatedRow : public Row {
 public:
  GatedRow(runtime::Chip& chip, Language language, bool backward) : Row(chip, language), backward_(backward) {}

  struct Reading {
    const fl_tensor *in, *gated, *out;
    int64_t half = 1;
  };
  bool read(const fl_call& call, Reading& r) const {
    const uint32_t at = backward_ ? 1 : 0;
    if (call.n_outs != 1 || call.outs[0] == nullptr || call.args[at].kind != FL_TENSOR) return false;
    r.in = call.args[at].u.tensor;
    r.out = call.outs[0];
    r.gated = backward_ ? call.args[0].u.tensor : r.out;
    int64_t dim = call.args[at + 1].u.i;
    dim += dim < 0 ? r.in->ndim : 0;
    if (dim < 0 || dim >= r.in->ndim || r.in->sizes[dim] % 2 != 0) return false;
    for (int64_t d = dim; d < r.in->ndim; ++d) r.half *= r.in->sizes[d];
    r.half /= 2;
    return r.gated->dtype == r.in->dtype && r.out->dtype == r.in->dtype && r.gated->numel * 2 == r.in->numel &&
           (!backward_ || r.out->numel == r.in->numel);
  }

  Source write(const Reading& r) const {
    const std::string type = type_name(r.in->dtype);
    Source source;
    source.head = std::string("#define A ") + arithmetic_name(r.in->dtype) + "\n" +
                  (r.in->dtype == FL_FLOAT64 ? "" : "#define FL_F32 1\n") + (backward_ ? "#define BACKWARD 1\n" : "") +
                  "#define LOAD(p, i) LOAD_" + type + "(p, i)\n#define STORE(p, i, v) STORE_" + type + "(p, i, v)\n" +
                  math_functions(false);
    source.members = "  i64 total, chunk, gated";
    source.pointers = {{type, "in"}, {type, "out", true}};
    if (backward_) source.pointers.push_back({type, "gradient"});
    source.body = kBody;
    return source;
  }

  fl_status run(const fl_call& call) {
    Reading r;
    if (!read(call, r)) return decline(kReason);
    if (r.in->numel == 0) return FL_OK;
    VariantKey key;
    key.add(static_cast<uint32_t>(r.in->dtype));
    const fl_module module = variant(call, key, [&] { return write(r); });
    const int64_t total = r.in->numel / 2;
    const Split work = split(device(call), total, 8192);
    Members<3> words;
    for (const int64_t word : {total, work.chunk, r.half}) words.add(word);
    Arguments arguments;
    arguments.add(*r.in);
    arguments.add(*r.out);
    if (backward_) arguments.add(*r.gated);
    arguments.add_members(words.data(), words.bytes());
    return arguments.launch(call, device(call), module, work.items);
  }

  static fl_status supports(const fl_call* call) {
    Reading reading;
    return row_of<GatedRow>(*call).read(*call, reading) ? FL_OK : decline(kReason);
  }

 private:
  static constexpr const char* kReason = "a gated linear unit that the portable kernels do not have";
  const bool backward_;
};

}  // namespace

void add_gated(Rows& rows, runtime::Chip& chip, Language language) {
  constexpr uint32_t kDense = FL_KERNEL_CONTIGUOUS_INPUTS | FL_KERNEL_CONTIGUOUS_OUTPUTS;
  for (const bool backward : {false, true}) {
    rows.push_back(make_row(backward ? "aten::glu_backward" : "aten::glu", kDense, run_row<GatedRow>,
                            GatedRow::supports, keep<GatedRow>(chip, language, backward), kFloats));
  }
}

}  // namespace torch_fl::portable
