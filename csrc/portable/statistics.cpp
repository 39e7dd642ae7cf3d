// SPDX-License-Identifier: Apache-2.0
// Reductions that are no joining of elements two by two: positions of extrema, variances, logsumexp, hashes.
#include <string>

#include "families.h"
#include "reducing.h"
#include "text.h"

namespace torch_fl::portable {
namespace {

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

void add_statistics(Rows& rows, runtime::Chip& chip, Language language) {
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
