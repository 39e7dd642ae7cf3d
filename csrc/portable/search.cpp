// SPDX-License-Identifier: Apache-2.0
// Places in sorted lines (searchsorted, bucketize) and membership (isin).
#include <algorithm>
#include <cstring>

#include "families.h"
#include "indexing.h"
#include "text.h"

namespace torch_fl::portable {
namespace {

struct Search {
  const char* op;
  bool sorted;
  bool scalar;
  uint32_t line, value;  ///< arguments
};
const Search kSearches[] = {
    {"aten::searchsorted.Tensor", true, false, 0, 1}, {"aten::searchsorted.Scalar", true, true, 0, 1},
    {"aten::bucketize.Tensor", true, false, 1, 0},    {"aten::bucketize.Scalar", true, true, 1, 0},
    {"aten::isin.Tensor_Tensor", false, false, 1, 0}, {"aten::isin.Scalar_Tensor", false, true, 1, 0},
};

struct Reading {
  const fl_tensor* line = nullptr;
  const fl_tensor* values = nullptr;  ///< null: a number
  const fl_tensor* sorter = nullptr;
  const fl_tensor* out = nullptr;
  bool flag = false;  ///< to the right of equals; or whether the answer is inverted

  const char* read(const fl_call& call, const Search& search) {
    line = call.args[search.line].u.tensor;
    out = call.outs[0];
    if (type_name(line->dtype) == nullptr) return "an element type that the portable kernels do not compare";
    const fl_value& value = call.args[search.value];
    if (search.scalar) {
      const bool fits = is_floating(line->dtype) ? value.kind == FL_REAL || value.kind == FL_INTEGER
                                                 : is_integer(line->dtype) && value.kind == FL_INTEGER;
      if (!fits || element_bytes(line->dtype) == 2) return "a number that is of another type than the line";
    } else {
      values = value.u.tensor;
      if (values->dtype != line->dtype) return "values of another element type than the line";
    }
    flag = call.args[3].kind == FL_BOOLEAN && call.args[3].u.i != 0;
    if (!search.sorted) return nullptr;
    if (out->dtype != FL_INT64 && out->dtype != FL_INT32) return "places that are neither int64 nor int32";
    if (line->ndim == 0) return "a line without a dimension";
    for (int32_t d = 0; line->ndim > 1 && d < line->ndim - 1; ++d) {
      if (values == nullptr || values->ndim != line->ndim || values->sizes[d] != line->sizes[d]) {
        return "values and lines of other shapes";
      }
    }
    if (call.n_args > 4 && call.args[4].kind == FL_STRING) flag = std::strcmp(call.args[4].u.s, "right") == 0;
    if (call.n_args > 5 && call.args[5].kind == FL_TENSOR) {
      sorter = call.args[5].u.tensor;
      if (sorter->dtype != FL_INT64 || sorter->numel != line->numel) return "a sorter that does not fit";
    }
    return nullptr;
  }
};

class SearchRow : public Row {
 public:
  SearchRow(runtime::Chip& chip, Language language, const Search& line) : Row(chip, language), line_(line) {}

  Source write(const Reading& reading) const {
    const std::string type = type_name(reading.line->dtype), a = arithmetic_name(reading.line->dtype);
    const std::string load = "LOAD_" + type, sorter = reading.sorter != nullptr ? "sorter, " : "";
    Source source;
    source.head = "#define S " + type + "\n#define A " + a + "\n#define LINE(at) " + load + "(line, " +
                  (sorter.empty() ? "at" : "start + inside(sorter[at], n)") + ")\n";
    if (line_.sorted) {
      source.head += std::string("#define SORTED 1\n#define RIGHT ") + (reading.flag ? "1" : "0") +
                     "\n#define SORTER_PARAMETER " + (sorter.empty() ? "" : "GLOBAL const i64* sorter,") + "\n";
    }
    source.head += text_of("search.h");
    source.members = "  i64 numel, chunk, n, each;\n  u64 value";
    const std::string out = line_.sorted ? type_name(reading.out->dtype) : "b8";
    source.pointers = {{out, "out", true}, {type, "line"}};
    if (reading.values != nullptr) source.pointers.push_back({type, "values"});
    if (reading.sorter != nullptr) source.pointers.push_back({"i64", "sorter"});
    const std::string value = reading.values != nullptr ? load + "(values, e)" : "BITS_" + a + "(p.value)";
    const std::string found = line_.sorted
                                  ? "(" + out + ")place_of(line, " + sorter + "e / p.each * p.n, p.n, value)"
                                  : std::string("(b8)") + (reading.flag ? "!" : "") + "is_among(line, p.n, value)";
    source.body =
        "  const i64 end = SHARE_END(p.chunk, p.numel);\n"
        "  for (i64 e = item * p.chunk; e < end; ++e) {\n    const A value = " +
        value + ";\n    out[e] = " + found + ";\n  }\n";
    return source;
  }

  fl_status run(const fl_call& call) {
    Reading reading;
    if (const char* reason = reading.read(call, line_); reason != nullptr) return decline(reason);
    const int64_t numel = reading.out->numel;
    if (numel == 0) return FL_OK;
    VariantKey key;
    key.add(static_cast<uint32_t>(reading.line->dtype));
    key.add(static_cast<uint32_t>(reading.out->dtype));
    key.add((reading.flag ? 1u : 0u) | (reading.sorter != nullptr ? 2u : 0u));
    const fl_module module = variant(call, key, [&] { return write(reading); });
    const fl_tensor& line = *reading.line;
    const int64_t n = line_.sorted ? line.sizes[line.ndim - 1] : line.numel;
    const Split work = split(device(call), numel, line_.sorted ? 256 : std::max<int64_t>(1, 16384 / (n + 1)));
    // Values per line; all of them have the same one where there is one.
    const int64_t each =
        line.ndim > 1 && reading.values != nullptr ? std::max<int64_t>(reading.values->sizes[line.ndim - 1], 1) : numel;
    Members<5> words;
    for (const int64_t word : {numel, work.chunk, n, each}) words.add(word);
    words.add(reading.values == nullptr ? static_cast<int64_t>(bits_of(call.args[line_.value], line.dtype)) : 0);
    Arguments arguments;
    arguments.add(*reading.out);
    arguments.add_address(line.address != 0 ? line.address : reading.out->address);  // an empty line is not read
    if (reading.values != nullptr) arguments.add(*reading.values);
    if (reading.sorter != nullptr) {
      arguments.add_address(line.address != 0 ? reading.sorter->address : reading.out->address);
    }
    arguments.add_members(words.data(), words.bytes());
    return arguments.launch(call, device(call), module, work.items);
  }

  static fl_status supports(const fl_call* call) {
    Reading reading;
    const char* reason = reading.read(*call, row_of<SearchRow>(*call).line_);
    return reason == nullptr ? FL_OK : decline(reason);
  }

 private:
  const Search& line_;
};

}  // namespace

void add_searches(Rows& rows, runtime::Chip& chip, Language language) {
  constexpr uint32_t kDense = FL_KERNEL_CONTIGUOUS_INPUTS | FL_KERNEL_CONTIGUOUS_OUTPUTS;
  for (const Search& line : kSearches) {
    rows.push_back(
        make_row(line.op, kDense, run_row<SearchRow>, SearchRow::supports, keep<SearchRow>(chip, language, line), 0));
  }
}

}  // namespace torch_fl::portable
