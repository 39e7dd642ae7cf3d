// SPDX-License-Identifier: Apache-2.0
// Sorting along a dimension, and what sorting finds: the largest, the k-th, the median, the most frequent.
#include <algorithm>
#include <array>
#include <limits>

#include "families.h"
#include "launch.h"
#include "runtime/internal.h"
#include "text.h"

namespace torch_fl::portable {
namespace {

enum class Kind : uint8_t { Sort, Topk, Kth, Median, NanMedian, Mode };

struct Sorting {
  const char* op;
  Kind kind;
  int dim_argument;  ///< -1: all elements in one line
};
const Sorting kSortings[] = {
    {"aten::sort.stable", Kind::Sort, 2},
    {"aten::topk", Kind::Topk, 2},
    {"aten::kthvalue", Kind::Kth, 2},
    {"aten::median", Kind::Median, -1},
    {"aten::median.dim", Kind::Median, 1},
    {"aten::nanmedian", Kind::NanMedian, -1},
    {"aten::nanmedian.dim", Kind::NanMedian, 1},
    {"aten::mode", Kind::Mode, 1},
};

constexpr int64_t kMostListed = 64;       // MOST in sort.h
constexpr int64_t kWorthSharing = 65536;  // elements of a line

enum class Order : uint8_t { Floats, Signed, Unsigned, None };
Order order_of(fl_dtype dtype) {
  if (is_floating(dtype)) return Order::Floats;
  if (dtype == FL_INT8 || dtype == FL_INT16 || dtype == FL_INT32 || dtype == FL_INT64) return Order::Signed;
  const bool counts =
      dtype == FL_UINT8 || dtype == FL_BOOL || dtype == FL_UINT16 || dtype == FL_UINT32 || dtype == FL_UINT64;
  return counts ? Order::Unsigned : Order::None;
}

/// Dense tensors as lines along the dimension.
struct Reading {
  const fl_tensor *in, *values, *places = nullptr;
  int64_t outer = 1, size = 1, inner = 1, count = 1, k = 0;
  bool descending = false;

  bool read(const fl_call& call, const Sorting& line) {
    in = call.args[0].u.tensor;
    values = call.outs[0];
    if (values == nullptr || order_of(in->dtype) == Order::None || values->dtype != in->dtype) return false;
    if (call.n_outs > 1) places = call.outs[1];
    if (line.dim_argument < 0) {
      size = in->numel;
    } else {
      if (places == nullptr || places->dtype != FL_INT64) return false;
      const fl_value& v = call.args[line.dim_argument];
      const int64_t dim = v.u.i < 0 ? v.u.i + std::max(in->ndim, 1) : v.u.i;
      for (int32_t d = 0; d < in->ndim; ++d) (d < dim ? outer : d == dim ? size : inner) *= in->sizes[d];
    }
    if (line.kind == Kind::Sort) count = size, descending = call.args[3].u.i != 0;
    if (line.kind == Kind::Topk) count = k = call.args[1].u.i, descending = call.args[3].u.i != 0;
    if (line.kind == Kind::Kth) k = call.args[1].u.i;
    if ((line.kind == Kind::Topk || line.kind == Kind::Kth) && (k < 0 || k > size)) return false;
    if (line.kind == Kind::Kth && k == 0) return false;
    // Of which equal element the CPU tells the place is settled by its sort, which is stable up to here.
    constexpr int64_t kStable = 16;
    if (line.kind == Kind::Mode && size > kStable) return false;
    return size <= std::numeric_limits<int32_t>::max() && (size > 0 || values->numel == 0);
  }
};

class SortRow : public Row {
 public:
  SortRow(runtime::Chip& chip, Language language, const Sorting& line) : Row(chip, language), line_(line) {}

  fl_status run(const fl_call& call) {
    Reading reading;
    if (!reading.read(call, line_)) return decline(kReason);
    if (reading.values->numel == 0) return FL_OK;
    Work work;
    work.lines = reading.outer * reading.inner;
    const int64_t threads = device(call).properties.compute_units == 0 ? 8 : device(call).properties.compute_units;
    const int64_t worth = enough(kWorthSharing);
    const bool few = work.lines < threads && reading.size >= worth;
    const bool lists = line_.kind == Kind::Topk && reading.k <= kMostListed && 4 * reading.k <= reading.size;
    if (few) {
      const int64_t wanted = std::min<int64_t>(2 * threads, reading.size / std::max<int64_t>(1, worth / 8));
      work.chunk = (reading.size + wanted - 1) / wanted;
    } else {
      work.chunk = reading.size;
    }
    work.blocks = (reading.size + work.chunk - 1) / work.chunk;
    if (lists) return by_lists(call, reading, work);
    return few ? by_blocks(call, reading, work) : by_lines(call, reading, work);
  }

  static fl_status supports(const fl_call* call) {
    Reading reading;
    return reading.read(*call, row_of<SortRow>(*call).line_) ? FL_OK : decline(kReason);
  }

 private:
  static constexpr const char* kReason = "elements or lines that the portable kernels do not sort";

  struct Work {
    int64_t lines = 0, chunk = 0, blocks = 1;
    int shift = 0;
    std::array<fl_address, 5> memory{};  ///< keys, places, the same once more, counts
  };

  static int64_t key_bytes(const Reading& reading) { return element_bytes(reading.in->dtype) == 8 ? 8 : 4; }

  Source write(fl_dtype dtype, const char* phase) const {
    Source source;
    const int64_t bytes = element_bytes(dtype);
    const std::string type = type_name(carrier(dtype));
    source.head = "#define T " + type + "\n#define K " + (bytes == 8 ? "u64" : "u32") + "\n#define BITS " +
                  std::to_string(8 * bytes) + "\n#define KIND " +
                  std::to_string(line_.kind == Kind::Sort ? 0 : static_cast<int>(line_.kind) - 1) + "\n";
    if (order_of(dtype) == Order::Signed) source.head += "#define KEY_SIGNED 1\n";
    if (order_of(dtype) == Order::Floats) {
      source.head += std::string("#define KEY_FLOAT ") +
                     (dtype == FL_FLOAT64    ? "0x7ff0000000000000"
                      : dtype == FL_FLOAT32  ? "0x7f800000u"
                      : dtype == FL_BFLOAT16 ? "0x7f80u"
                                             : "0x7c00u") +
                     "\n";
    }
    source.head += text_of("sort.h");
    source.members = "  i64 lines, each, size, inner, count, k, places, flip, blocks, chunk, shift";
    source.pointers = {{type, "x"},         {"K", "key", true},     {"u32", "rank", true},
                       {"K", "key2", true}, {"u32", "rank2", true}, {"u32", "counts", true},
                       {type, "out", true}, {"i64", "where", true}};
    source.body = std::string("  ") + phase + "\n";
    return source;
  }

  // `items` share `units`.
  fl_status launch(const fl_call& call, const Reading& reading, const Work& work, uint32_t phase, int64_t units,
                   int64_t least) {
    static constexpr const char* kPhases[] = {"SORT_LINES",    "BLOCK_KEYS",    "BLOCK_COUNT", "BLOCK_PREFIX",
                                              "BLOCK_SCATTER", "BLOCK_RESULTS", "BLOCK_BEST",  "LINE_BEST"};
    VariantKey key;
    key.add(static_cast<uint32_t>(reading.in->dtype));
    key.add(phase);
    const fl_module module = variant(call, key, [&] { return write(reading.in->dtype, kPhases[phase]); });
    const Split split_units =
        phase == kPrefix ? Split{static_cast<uint64_t>(units), 1} : split(device(call), units, least);
    Members<11> words;
    for (const int64_t word : {work.lines, split_units.chunk, reading.size, reading.inner, reading.count, reading.k,
                               int64_t{reading.places != nullptr}, int64_t{reading.descending ? -1 : 0}, work.blocks,
                               work.chunk, int64_t{work.shift}}) {
      words.add(word);
    }
    Arguments arguments;
    arguments.add(*reading.in);
    for (const fl_address address : work.memory)
      arguments.add_address(address != 0 ? address : reading.values->address);
    arguments.add(*reading.values);
    arguments.add(reading.places != nullptr ? *reading.places : *reading.values);
    arguments.add_members(words.data(), words.bytes());
    return arguments.launch(call, device(call), module, split_units.items);
  }
  enum Phase : uint32_t { kLines, kKeys, kCount, kPrefix, kScatter, kResults, kBest, kLineBest };

  // Room for `pairs` keys and places, twice where `twice`, and so many counts.
  static fl_status reserve(const fl_call& call, const Reading& reading, Work& work, int64_t pairs, bool twice,
                           int64_t counts) {
    const int64_t keys = (pairs * key_bytes(reading) + 63) / 64 * 64, places = (pairs * 4 + 63) / 64 * 64;
    const int64_t each = keys + places;
    fl_address base = 0;
    const fl_status status =
        runtime::host_services().scratch(&call, static_cast<uint64_t>(each * (twice ? 2 : 1) + counts * 4), &base);
    if (status != FL_OK) return status;
    const auto at = [&](int64_t bytes) { return base + static_cast<uint64_t>(bytes); };
    work.memory[0] = base;
    work.memory[1] = at(keys);
    if (twice) work.memory[2] = at(each), work.memory[3] = at(each + keys);
    if (counts > 0) work.memory[4] = at(2 * each);
    return FL_OK;
  }

  fl_status by_lines(const fl_call& call, const Reading& reading, Work& work) {
    const int64_t least = std::max<int64_t>(1, 4096 / reading.size);
    const auto items = static_cast<int64_t>(split(device(call), work.lines, least).items);
    const fl_status status = reserve(call, reading, work, items * 2 * reading.size, false, 0);
    return status != FL_OK ? status : launch(call, reading, work, kLines, work.lines, least);
  }

  // By the keys' bytes, lowest first.
  fl_status by_blocks(const fl_call& call, const Reading& reading, Work& work) {
    const int64_t units = work.lines * work.blocks;
    fl_status status = reserve(call, reading, work, work.lines * reading.size, true, units * 256);
    if (status == FL_OK) status = launch(call, reading, work, kKeys, units, 1);
    for (int byte = 0; byte < element_bytes(reading.in->dtype) && status == FL_OK; ++byte) {
      work.shift = 8 * byte;
      status = launch(call, reading, work, kCount, units, 1);
      if (status == FL_OK) status = launch(call, reading, work, kPrefix, work.lines, 1);
      if (status == FL_OK) status = launch(call, reading, work, kScatter, units, 1);
      std::swap(work.memory[0], work.memory[2]);
      std::swap(work.memory[1], work.memory[3]);
    }
    return status == FL_OK ? launch(call, reading, work, kResults, units, 1) : status;
  }

  fl_status by_lists(const fl_call& call, const Reading& reading, Work& work) {
    const int64_t units = work.lines * work.blocks;
    fl_status status = reserve(call, reading, work, units * reading.k, false, 0);
    if (status == FL_OK) {
      status = launch(call, reading, work, kBest, units, std::max<int64_t>(1, 16384 / work.chunk));
    }
    return status == FL_OK ? launch(call, reading, work, kLineBest, work.lines, 256) : status;
  }

  const Sorting& line_;
};

}  // namespace

void add_sorting(Rows& rows, runtime::Chip& chip, Language language) {
  constexpr uint32_t kDense = FL_KERNEL_CONTIGUOUS_INPUTS | FL_KERNEL_CONTIGUOUS_OUTPUTS;
  for (const Sorting& line : kSortings) {
    rows.push_back(
        make_row(line.op, kDense, run_row<SortRow>, SortRow::supports, keep<SortRow>(chip, language, line),
                 kFloats | kIntegers | (line.kind == Kind::Sort || line.kind == Kind::Mode ? kBool : uint64_t{0})));
  }
}

}  // namespace torch_fl::portable
