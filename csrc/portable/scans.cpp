// SPDX-License-Identifier: Apache-2.0
// Running sums, products, extrema along a dimension.
#include <algorithm>
#include <cstring>

#include "families.h"
#include "launch.h"
#include "runtime/internal.h"
#include "text.h"

namespace torch_fl::portable {
namespace {

struct Scan {
  const char* op;
  const char* step;
  const char* first;
  uint64_t types;
  bool extremum = false;
};
constexpr uint64_t kAll = kFloats | kIntegers | kBool;
const Scan kScans[] = {
    {"aten::cumsum", "SUM", "0", kAll},
    {"aten::cumprod", "PRODUCT", "1", kAll},
    {"aten::logcumsumexp", "LOG_SUM", "-INF_F", kFloats},
    {"aten::cummax", "MAXIMUM", "0", kAll, true},
    {"aten::cummin", "MINIMUM", "0", kAll, true},
};

constexpr int64_t kTile = 32;
constexpr int64_t kWorthCutting = 32768;

class ScanRow : public Row {
 public:
  ScanRow(runtime::Chip& chip, Language language, const Scan& line) : Row(chip, language), line_(line) {}

  Source write(fl_dtype in, fl_dtype out, bool tiles, bool totals) const {
    Source source;
    const std::string from = type_name(in), to = type_name(out);
    const bool log = std::strcmp(line_.step, "LOG_SUM") == 0;
    if (is_floating(out) && !line_.extremum) {  // what adds up grows long: in the widest type there is
      source.head = std::string("#ifdef FL_F64\n#define A f64\n#else\n#define A f32\n#define FL_F32 1\n#endif\n");
    } else {
      source.head = std::string("#define A ") + arithmetic_name(out) + "\n";
    }
    if (log) source.head += "#define LOG_SUM 1\n" + math_functions(false);
    const std::string cast = is_floating(in) && is_integer(out) ? "(A)(i64)" : "(A)";
    source.head += std::string("#define TILE ") + (tiles ? std::to_string(kTile) : "1") + "\n#define FIRST (A)(" +
                   line_.first + ")\n#define STEP STEP_" + line_.step + "\n#define LOAD(p, i) " + cast + "LOAD_" +
                   from + "(p, i)\n#define SHOW(at, s, w) STORE_" + to + "(out, at, s)" +
                   (line_.extremum ? "; where[at] = w" : "") + "\n" + text_of("scan.h");
    source.members = "  i64 units, chunk, size, inner, blocks, length";
    source.pointers = {{from, "x"}, {"A", "total", totals}, {"i64", "place", totals}};
    if (!totals) {
      source.pointers.push_back({to, "out", true});
      if (line_.extremum) source.pointers.push_back({"i64", "where", true});
    }
    source.body = std::string("  EACH_UNIT(") + (totals ? "TOTALS" : "SCAN") + ")\n";
    return source;
  }

  fl_status run(const fl_call& call) {
    const fl_tensor &in = *call.args[0].u.tensor, &out = *call.outs[0];
    if (out.numel == 0) return FL_OK;
    int64_t outer = 1, size = 1, inner = 1;
    const int64_t dim = call.args[1].u.i < 0 ? call.args[1].u.i + std::max(in.ndim, 1) : call.args[1].u.i;
    for (int32_t d = 0; d < in.ndim; ++d) (d < dim ? outer : d == dim ? size : inner) *= in.sizes[d];
    const bool tiles = inner > 1;
    const int64_t width = tiles ? kTile : 1, lines = outer * ((inner + width - 1) / width);
    // Few long lines are cut, and gone through twice.
    const int64_t threads = device(call).properties.compute_units == 0 ? 8 : device(call).properties.compute_units;
    int64_t blocks = 1, length = size;
    if (lines < threads && size * std::min(inner, width) >= enough(kWorthCutting)) {
      length = (size + 2 * threads - 1) / (2 * threads);
      blocks = (size + length - 1) / length;
    }
    fl_address total = in.address, place = in.address;  // not looked at unless there are parts
    if (blocks > 1) {
      const uint64_t each = static_cast<uint64_t>(lines * blocks * width) * 8;
      const fl_status status = runtime::host_services().scratch(&call, 2 * each, &total);
      if (status != FL_OK) return status;
      place = total + each;
    }
    const int64_t units = lines * blocks;
    const Split work = split(device(call), units, std::max<int64_t>(1, 16384 / (length * width)));
    Members<6> words;
    for (const int64_t word : {units, work.chunk, size, inner, blocks, length}) words.add(word);
    for (const bool totals : {true, false}) {
      if (totals && blocks == 1) continue;
      VariantKey key;
      for (const int32_t byte : {in.dtype, out.dtype}) key.add(static_cast<uint32_t>(byte));
      key.add((tiles ? 1u : 0u) | (totals ? 2u : 0u));
      const fl_module module = variant(call, key, [&] { return write(in.dtype, out.dtype, tiles, totals); });
      Arguments arguments;
      arguments.add(in);
      arguments.add_address(total);
      arguments.add_address(place);
      for (uint32_t k = 0; !totals && k < call.n_outs; ++k) arguments.add(*call.outs[k]);
      arguments.add_members(words.data(), words.bytes());
      const fl_status status = arguments.launch(call, device(call), module, work.items);
      if (status != FL_OK) return status;
    }
    return FL_OK;
  }

  static fl_status supports(const fl_call* call) {
    const bool extremum = row_of<ScanRow>(*call).line_.extremum;
    bool known = call->n_outs == (extremum ? 2u : 1u) && call->args[0].kind == FL_TENSOR;
    for (uint32_t k = 0; known && k < call->n_outs; ++k) known = call->outs[k] != nullptr;
    known = known && type_name(call->outs[0]->dtype) != nullptr && (extremum || call->outs[0]->dtype != FL_BOOL);
    return known ? FL_OK : decline("a running sum or extremum that the portable kernels do not have");
  }

 private:
  const Scan& line_;
};

}  // namespace

void add_scans(Rows& rows, runtime::Chip& chip, Language language) {
  constexpr uint32_t kDense = FL_KERNEL_CONTIGUOUS_INPUTS | FL_KERNEL_CONTIGUOUS_OUTPUTS;
  for (const Scan& line : kScans) {
    rows.push_back(make_row(line.op, kDense | FL_KERNEL_IN_PLACE_SAFE, run_row<ScanRow>, ScanRow::supports,
                            keep<ScanRow>(chip, language, line), line.types));
  }
}

}  // namespace torch_fl::portable
