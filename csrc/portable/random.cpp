// SPDX-License-Identifier: Apache-2.0
// Random fills and dropout, with the numbers that the ABI prescribes.
#include <algorithm>
#include <cstring>

#include "arguments.h"
#include "families.h"
#include "launch.h"
#include "text.h"

namespace torch_fl::portable {
namespace {

enum class Kind : uint8_t { Uniform, Normal, LogNormal, Exponential, Cauchy, Geometric, Bernoulli, Integers, Dropout };

struct Fill {
  const char* op;
  Kind kind;
};
const Fill kFills[] = {
    {"aten::uniform_", Kind::Uniform},         {"aten::normal_", Kind::Normal},
    {"aten::exponential_", Kind::Exponential}, {"aten::bernoulli_.float", Kind::Bernoulli},
    {"aten::log_normal_", Kind::LogNormal},    {"aten::cauchy_", Kind::Cauchy},
    {"aten::geometric_", Kind::Geometric},     {"aten::random_.from", Kind::Integers},
    {"aten::native_dropout", Kind::Dropout},
};

/// What a fill draws for each element, and from what.
struct Plan {
  bool wide = false;      ///< 64-bit draws: two elements a block, else four
  bool computes = false;  ///< ... in f64
  uint64_t first = 0, second = 0;
};

Plan plan_of(Kind kind, const fl_call& call) {
  Plan plan;
  const bool f64 = call.outs[0]->dtype == FL_FLOAT64;
  switch (kind) {
    case Kind::Uniform:
    case Kind::Normal:
    case Kind::LogNormal:
    case Kind::Cauchy:
      plan.wide = plan.computes = f64;
      plan.first = bits_of(real(call.args[1], 0), f64);
      plan.second = bits_of(real(call.args[2], 1), f64);
      break;
    case Kind::Exponential:
    case Kind::Geometric:
      plan.wide = plan.computes = f64;
      plan.first = bits_of(real(call.args[1], 1), f64);
      break;
    case Kind::Bernoulli:
      plan.first = bits_of(real(call.args[1], 0.5), false);
      break;
    case Kind::Integers: {
      plan.first = static_cast<uint64_t>(call.args[1].u.i);
      // No upper bound: all of 2^64, which is written 0.
      plan.second = call.args[2].kind == FL_NONE ? 0 : static_cast<uint64_t>(call.args[2].u.i) - plan.first;
      plan.wide = plan.second == 0 || plan.second > (uint64_t{1} << 32);
      break;
    }
    case Kind::Dropout: {
      const double p = real(call.args[1], 0.5);
      plan.computes = f64;
      plan.first = bits_of(p, false);
      plan.second = bits_of(p == 1 ? 0 : 1 / (1 - p), f64);
      break;
    }
  }
  return plan;
}

// The value of the element that has draw number k of its block.
std::string value_of(Kind kind, bool wide, const std::string& type, bool is_integral) {
  const std::string unit = wide ? "unit_f64(wide_word(word, k))" : "unit_f32(word[k])";
  switch (kind) {
    case Kind::Uniform:
      return "const A range = SECOND - FIRST;\n const A product = " + unit + " * range;\n STORE_" + type +
             "(out, e + k, FIRST + product);\n if (LOAD_" + type + "(out, e + k) >= SECOND) STORE_" + type +
             "(out, e + k, FIRST);\n";
    case Kind::Normal:
    case Kind::LogNormal: {
      const std::string mate = wide ? "unit_f64(wide_word(word, k ^ 1))" : "unit_f32(word[k ^ 1])";
      return "const A mine = " + unit + ", other = " + mate +
             ";\n const A radius = sqrt((A)-2 * log_of_unit((A)1 - (k & 1 ? other : mine)));\n"
             " const A drawn = SECOND * (radius * circle(k & 1 ? mine : other, k & 1));\n STORE_" +
             type + "(out, e + k, " + (kind == Kind::LogNormal ? "m_exp(FIRST + drawn)" : "FIRST + drawn") + ");\n";
    }
    case Kind::Exponential:
      return "STORE_" + type + "(out, e + k, -log_of_unit((A)1 - " + unit + ") / FIRST);\n";
    case Kind::Cauchy:  // tan(pi (u - 1/2)) by the distance from the nearer pole
      return "const A u = " + unit +
             ";\n const A near = (A)3.141592653589793 * (u < (A)0.5 ? u : 1 - u);\n"
             " const A cotangent = near == 0 ? (A)1.633123935319537e16 : cos(near) / sin(near);\n STORE_" +
             type + "(out, e + k, FIRST + SECOND * (u < (A)0.5 ? -cotangent : cotangent));\n";
    case Kind::Geometric:
      return "const L trials = ceil(log1p(-(L)" + unit + ") / log1p(-(L)FIRST));\n STORE_" + type + "(out, e + k, (" +
             (is_integral ? "(i64)" : "") + "(trials < 1 ? 1 : trials)));\n";
    case Kind::Bernoulli:
      return "STORE_" + type + "(out, e + k, " + unit + " < FIRST ? 1 : 0);\n";
    case Kind::Integers: {
      const std::string drawn = wide ? "wide_word(word, k)" : "(u64)word[k]";
      return "const u64 drawn = " + drawn +
             ";\n const i64 v = (i64)(p.first + (p.second != 0 ? drawn % p.second : drawn));\n STORE_" + type +
             "(out, e + k, v);\n";
    }
    case Kind::Dropout:
      return "const int kept = " + unit + " >= BITS_f32(p.first);\n const A x = LOAD_" + type +
             "(in, e + k);\n STORE_" + type + "(out, e + k, kept ? x * SECOND : x * 0);\n mask[e + k] = (b8)kept;\n";
  }
  return "";
}

class FillRow : public Row {
 public:
  FillRow(runtime::Chip& chip, Language language, const Fill& line) : Row(chip, language), line_(line) {}

  bool read(const fl_call& call) const {
    if (call.n_outs < 1 || call.outs[0] == nullptr || type_name(call.outs[0]->dtype) == nullptr) return false;
    if (line_.kind != Kind::Dropout) return true;
    const bool trains = call.args[2].kind != FL_BOOLEAN || call.args[2].u.i != 0;
    return trains && call.n_outs == 2 && call.outs[1] != nullptr;
  }

  Source write(const fl_call& call, const Plan& plan) const {
    const std::string type = type_name(call.outs[0]->dtype), a = plan.computes ? "f64" : "f32";
    Source source;
    source.head = std::string("#ifdef __OPENCL_VERSION__\n#pragma OPENCL FP_CONTRACT OFF\n#endif\n#define A ") + a +
                  "\n" + (plan.computes ? "" : "#define FL_F32 1\n") + math_functions(false) + text_of("random.h") +
                  "#define FIRST BITS_" + a + "(p.first)\n#define SECOND BITS_" + a + "(p.second)\n";
    source.members = "  i64 numel, chunk;\n  u64 seed, offset, first, second";
    source.pointers = {{type, "out", true}};
    if (line_.kind == Kind::Dropout) {
      source.pointers.push_back({"b8", "mask", true});
      source.pointers.push_back({type, "in"});
    }
    if (line_.kind == Kind::Geometric) {  // near a whole number the last bits decide
      source.head += "#ifdef FL_F64\n#define L f64\n#else\n#define L f32\n#endif\n";
    }
    const std::string per_block = plan.wide ? "2" : "4";
    source.body =
        "  const i64 end = SHARE_END(p.chunk, p.numel);\n"
        "  for (i64 e = item * p.chunk; e < end; e += " +
        per_block +
        ") {\n"
        "    u32 word[4];\n    philox(p.seed, p.offset + (u64)e / " +
        per_block +
        ", word);\n"
        "    for (int k = 0; k < " +
        per_block + " && e + k < end; ++k) {\n" +
        value_of(line_.kind, plan.wide, type, is_integer(call.outs[0]->dtype)) + "    }\n  }\n";
    return source;
  }

  fl_status run(const fl_call& call) {
    if (!read(call)) return decline("a random fill that the portable kernels do not have");
    const fl_tensor& out = *call.outs[0];
    if (out.numel == 0) return FL_OK;
    const Plan plan = plan_of(line_.kind, call);
    Split work = split(device(call), out.numel, 4096);
    work.chunk = (work.chunk + 3) / 4 * 4;  // blocks stay whole
    work.items = static_cast<uint64_t>((out.numel + work.chunk - 1) / work.chunk);
    VariantKey key;
    key.add(static_cast<uint32_t>(out.dtype));
    key.add((plan.wide ? 1u : 0u) | (plan.computes ? 2u : 0u));
    const fl_module module = variant(call, key, [&] { return write(call, plan); });
    Members<6> words;
    for (const uint64_t word : {static_cast<uint64_t>(out.numel), static_cast<uint64_t>(work.chunk), call.philox_seed,
                                call.philox_offset, plan.first, plan.second}) {
      words.add(static_cast<int64_t>(word));
    }
    Arguments arguments;
    arguments.add(out);
    if (line_.kind == Kind::Dropout) {
      arguments.add(*call.outs[1]);
      arguments.add(*call.args[0].u.tensor);
    }
    arguments.add_members(words.data(), words.bytes());
    return arguments.launch(call, device(call), module, work.items);
  }

  static fl_status supports(const fl_call* call) {
    const auto* row = &row_of<FillRow>(*call);
    return row->read(*call) ? FL_OK : decline("a random fill that the portable kernels do not have");
  }

 private:
  const Fill& line_;
};

}  // namespace

void add_random(Rows& rows, runtime::Chip& chip, Language language) {
  constexpr uint32_t kDense = FL_KERNEL_RANDOM | FL_KERNEL_CONTIGUOUS_OUTPUTS;
  for (const Fill& line : kFills) {
    const bool numbers = line.kind == Kind::Bernoulli || line.kind == Kind::Geometric || line.kind == Kind::Integers;
    const uint32_t flags = line.kind == Kind::Dropout ? kDense | FL_KERNEL_CONTIGUOUS_INPUTS : kDense;
    rows.push_back(make_row(line.op, flags, run_row<FillRow>, FillRow::supports, keep<FillRow>(chip, language, line),
                            numbers ? kFloats | kIntegers | kBool : kFloats));
  }
}

}  // namespace torch_fl::portable
