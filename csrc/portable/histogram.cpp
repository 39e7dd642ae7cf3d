// SPDX-License-Identifier: Apache-2.0
// histc: how many elements fall into each of equal intervals.
#include <algorithm>
#include <cmath>

#include "arguments.h"
#include "families.h"
#include "launch.h"
#include "runtime/internal.h"

namespace torch_fl::portable {
namespace {

// Every item counts its share in a row of its own, then the rows are added up.
class HistogramRow : public Row {
 public:
  using Row::Row;

  Source write(const fl_tensor& in, bool adds) const {
    Source source;
    const std::string type = type_name(in.dtype), a = arithmetic_name(in.dtype);
    source.members = "  i64 numel, chunk, bins, rows;\n  u64 low, high";
    source.pointers = {{type, "x"}, {"u32", "counts", true}, {type, "out", true}};
    source.body = adds ? "  const i64 end = SHARE_END(p.chunk, p.bins);\n"
                         "  for (i64 bin = item * p.chunk; bin < end; ++bin) {\n"
                         "    u64 total = 0;\n"
                         "    for (i64 row = 0; row < p.rows; ++row) total += counts[row * p.bins + bin];\n"
                         "    STORE_" +
                             type + "(out, bin, (" + a + ")total);\n  }\n"
                       : "  const " + a + " low = BITS_" + a + "(p.low), high = BITS_" + a +
                             "(p.high);\n"
                             "  const i64 end = SHARE_END(p.chunk, p.numel);\n"
                             "  GLOBAL u32* const row = counts + item * p.bins;\n"
                             "  for (i64 bin = 0; bin < p.bins; ++bin) row[bin] = 0;\n"
                             "  for (i64 i = item * p.chunk; i < end; ++i) {\n"
                             "    const " +
                             a + " v = LOAD_" + type +
                             "(x, i);\n"
                             "    if (!(v >= low && v <= high)) continue;\n"
                             "    const i64 bin = (i64)((v - low) * (" +
                             a +
                             ")p.bins / (high - low));\n"
                             "    ++row[bin >= 0 && bin < p.bins ? bin : p.bins - 1];\n  }\n";
    return source;
  }

  fl_status run(const fl_call& call) {
    const fl_tensor &in = *call.args[0].u.tensor, &out = *call.outs[0];
    const int64_t bins = call.args[1].u.i;
    const Split elements = split(device(call), in.numel, std::max<int64_t>(16384, bins));
    const Split sums = split(device(call), bins, 4096);
    const auto rows = in.numel == 0 ? int64_t{0} : static_cast<int64_t>(elements.items);
    fl_address counts = out.address;
    if (rows > 0) {
      const fl_status status =
          runtime::host_services().scratch(&call, static_cast<uint64_t>(rows * bins) * sizeof(uint32_t), &counts);
      if (status != FL_OK) return status;
    }
    for (const bool adds : {false, true}) {
      if (!adds && rows == 0) continue;
      VariantKey key;
      key.add(static_cast<uint32_t>(in.dtype));
      key.add(adds ? 1 : 0);
      const fl_module module = variant(call, key, [&] { return write(in, adds); });
      const bool wide = in.dtype == FL_FLOAT64;
      Members<6> words;
      for (const int64_t word : {in.numel, adds ? sums.chunk : elements.chunk, bins, rows}) words.add(word);
      for (const uint32_t i : {2u, 3u}) words.add(static_cast<int64_t>(bits_of(real(call.args[i]), wide)));
      Arguments arguments;
      if (rows > 0) {
        arguments.add(in);
      } else {
        arguments.add(out);
      }
      arguments.add_address(counts);
      arguments.add(out);
      arguments.add_members(words.data(), words.bytes());
      const fl_status status = arguments.launch(call, device(call), module, adds ? sums.items : elements.items);
      if (status != FL_OK) return status;
    }
    return FL_OK;
  }

  static fl_status supports(const fl_call* call) {
    const fl_value &low = call->args[2], &high = call->args[3];
    if (low.kind == FL_COMPLEX || high.kind == FL_COMPLEX || !(real(low) < real(high)) ||
        !std::isfinite(static_cast<float>(real(high) - real(low))))
      return decline("a range that the elements decide");
    const bool known = call->args[1].u.i > 0 && call->args[0].u.tensor->numel < (int64_t{1} << 32) &&
                       call->outs[0]->dtype == call->args[0].u.tensor->dtype;
    return known ? FL_OK : decline("a histogram that the portable kernels do not have");
  }
};

}  // namespace

void add_histograms(Rows& rows, runtime::Chip& chip, Language language) {
  rows.push_back(make_row("aten::histc",
                          FL_KERNEL_CONTIGUOUS_INPUTS | FL_KERNEL_CONTIGUOUS_OUTPUTS | FL_KERNEL_VALUE_DEPENDENT,
                          run_row<HistogramRow>, HistogramRow::supports, keep<HistogramRow>(chip, language),
                          FL_DTYPE_BIT(FL_FLOAT32) | FL_DTYPE_BIT(FL_FLOAT64)));
}

}  // namespace torch_fl::portable
