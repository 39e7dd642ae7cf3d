// SPDX-License-Identifier: Apache-2.0
// Bags of embeddings, reductions of segments, and rows that are brought to a norm.
#include <algorithm>
#include <cmath>
#include <string_view>

#include "arguments.h"
#include "families.h"
#include "indexing.h"
#include "runtime/internal.h"
#include "text.h"

namespace torch_fl::portable {
namespace {

enum class Kind : uint8_t { Forward, Backward, DenseBackward, Factors, Renorm, Segments, SegmentsBackward };

struct Line {
  const char* op;
  Kind kind;
};
const Line kLines[] = {
    {"aten::_embedding_bag", Kind::Forward},
    {"aten::_embedding_bag_forward_only", Kind::Forward},
    {"aten::_embedding_bag_backward", Kind::Backward},
    {"aten::_embedding_bag_dense_backward", Kind::DenseBackward},
    {"aten::_embedding_bag_per_sample_weights_backward", Kind::Factors},
    {"aten::embedding_renorm_", Kind::Renorm},
    {"aten::segment_reduce", Kind::Segments},
    {"aten::_segment_reduce_backward", Kind::SegmentsBackward},
};

int64_t numel_at(const fl_tensor* t) { return t == nullptr ? 0 : t->numel; }

/// The words of kernels/bags.h's Rows, in its order.
struct Numbers {
  int64_t units = 0, rows = 0, width = 0, count = 0, stretches = 0, padding = -1, sizes = 0, places = 0, extrema = 0;
  uint64_t first = 0, second = 0;
};

/// A call, looked through once. Everything is dense.
struct Reading {
  static constexpr size_t kMost = 8;
  std::array<const fl_tensor*, kMost> tensors{};  ///< the kernel's parameters; null: not looked at
  size_t count = 0, written = 1;
  const fl_tensor* element = nullptr;  ///< whose type is T
  fl_dtype index = FL_INT64, offset = FL_INT64;
  int64_t mode = 0, least = 1;  ///< least: units of a work item
  bool weighted = false, by_offsets = false, initial = false, scaled = false, by_rows = false;
  Numbers numbers;

  void use(std::initializer_list<const fl_tensor*> list) {
    for (const fl_tensor* t : list) tensors[count++] = t;
  }
  const char* read(const fl_call& call, Kind kind) {
    switch (kind) {
      case Kind::Forward:
        return forward(call);
      case Kind::Backward:
        return call.args[9].u.i != 0 ? "a sparse gradient" : backward(call, 1);
      case Kind::DenseBackward:
        return backward(call, 0);
      case Kind::Factors:
        return factors(call);
      case Kind::Renorm:
        return renorm(call);
      default:
        return segments(call, kind == Kind::SegmentsBackward);
    }
  }

 private:
  static constexpr const char* kUnfit = "shapes or element types that do not fit";
  static const fl_tensor* maybe(const fl_value& v) { return v.kind == FL_TENSOR ? v.u.tensor : nullptr; }

  const char* forward(const fl_call& call) {
    const fl_tensor &weight = *call.args[0].u.tensor, &indices = *call.args[1].u.tensor;
    const fl_tensor &offsets = *call.args[2].u.tensor, &out = *call.outs[0];
    const fl_tensor* factors = maybe(call.args[6]);
    for (uint32_t i = 0; i < call.n_outs; ++i) {
      if (call.outs[i] == nullptr || (i > 0 && call.outs[i]->dtype != indices.dtype)) return kUnfit;
    }
    if (call.n_outs != 4 || weight.ndim != 2 || indices.ndim != 1 || offsets.ndim != 1 || !is_index(indices.dtype) ||
        !is_index(offsets.dtype) || !is_floating(weight.dtype) || out.ndim != 2) {
      return kUnfit;
    }
    if (factors != nullptr && (factors->dtype != weight.dtype || factors->numel != indices.numel)) return kUnfit;
    element = &weight;
    index = indices.dtype;
    offset = offsets.dtype;
    mode = call.args[4].u.i;
    weighted = factors != nullptr;
    written = 4;
    use({&out, call.outs[1], call.outs[2], call.outs[3], &weight, &indices, &offsets, factors});
    const int64_t bags = out.sizes[0];
    if (out.sizes[1] != weight.sizes[1] || bags > offsets.numel) return kUnfit;
    numbers = {bags,
               weight.sizes[0],
               weight.sizes[1],
               indices.numel,
               offsets.numel,
               call.args[8].u.i,
               call.outs[2]->numel,
               call.outs[1]->numel,
               mode == 2 ? call.outs[3]->numel : 0};
    least = 16384 / std::max<int64_t>(1, (indices.numel / std::max<int64_t>(bags, 1) + 1) * weight.sizes[1]);
    return nullptr;
  }

  // `shift`: the one operator has the offsets among its arguments, and whether the result is sparse.
  const char* backward(const fl_call& call, uint32_t shift) {
    const fl_tensor &gradient = *call.args[0].u.tensor, &indices = *call.args[1].u.tensor, &out = *call.outs[0];
    const fl_tensor& bag_of = *call.args[2 + shift].u.tensor;
    const fl_tensor &bag_size = *call.args[3 + shift].u.tensor, &extrema = *call.args[4 + shift].u.tensor;
    const fl_tensor* factors = maybe(call.args[8 + 2 * shift]);
    mode = call.args[7 + shift].u.i;
    scaled = call.args[6 + shift].u.i != 0 && mode != 2;
    if (gradient.ndim != 2 || out.ndim != 2 || gradient.sizes[1] != out.sizes[1] || !is_floating(out.dtype) ||
        gradient.dtype != out.dtype || !is_index(indices.dtype) || indices.ndim != 1) {
      return kUnfit;
    }
    for (const fl_tensor* t : {&bag_of, &bag_size, &extrema}) {
      if (t->dtype != indices.dtype) return kUnfit;
    }
    if (factors != nullptr && (factors->dtype != gradient.dtype || factors->numel != indices.numel)) return kUnfit;
    // What the CPU leaves out of the forward's results is not there.
    if ((mode != 2 && bag_of.numel != indices.numel) || (mode != 0 && bag_size.numel < gradient.sizes[0]) ||
        (mode == 2 && extrema.numel != gradient.numel)) {
      return kUnfit;
    }
    element = &out;
    index = indices.dtype;
    weighted = factors != nullptr;
    by_rows = true;
    use({&out, &gradient, &indices, &bag_of, &bag_size, &extrema, factors});
    numbers = {out.sizes[0],  out.sizes[0],      out.sizes[1],
               indices.numel, gradient.sizes[0], call.args[9 + 2 * shift].u.i};
    return nullptr;
  }

  const char* factors(const fl_call& call) {
    const fl_tensor &gradient = *call.args[0].u.tensor, &weight = *call.args[1].u.tensor;
    const fl_tensor &indices = *call.args[2].u.tensor, &bag_of = *call.args[4].u.tensor, &out = *call.outs[0];
    if (gradient.ndim != 2 || weight.ndim != 2 || weight.sizes[1] != gradient.sizes[1] || !is_floating(out.dtype) ||
        gradient.dtype != out.dtype || weight.dtype != out.dtype || !is_index(indices.dtype) ||
        bag_of.dtype != indices.dtype || bag_of.numel != indices.numel || out.numel != indices.numel) {
      return kUnfit;
    }
    element = &out;
    index = indices.dtype;
    use({&out, &gradient, &weight, &indices, &bag_of});
    numbers = {indices.numel, weight.sizes[0], weight.sizes[1], indices.numel, gradient.sizes[0], call.args[6].u.i};
    least = 16384 / std::max<int64_t>(1, weight.sizes[1]);
    return nullptr;
  }

  const char* renorm(const fl_call& call) {
    const fl_tensor &self = *call.outs[0], &indices = *call.args[1].u.tensor;
    if (self.ndim != 2 || !is_floating(self.dtype) || !is_index(indices.dtype)) return kUnfit;
    const double order = real(call.args[3]);
    if (!(order > 0)) return "a norm that the portable kernels do not have";
    element = &self;
    index = indices.dtype;
    by_rows = true;
    mode = order == 1 ? 1 : order == 2 ? 2 : std::isinf(order) ? 0 : 3;
    use({&self, &indices});
    numbers = {self.sizes[0], self.sizes[0], self.sizes[1], indices.numel};
    const bool wide = self.dtype == FL_FLOAT64;
    numbers.first = bits_of(real(call.args[2]), wide);
    numbers.second = bits_of(order, wide);
    return nullptr;
  }

  // data, reduce, lengths, indices, offsets, axis, unsafe, initial; of the gradient: gradient, result, data, reduce,
  // lengths, offsets, axis, initial.
  const char* segments(const fl_call& call, bool gradient) {
    const fl_tensor &data = *call.args[gradient ? 2 : 0].u.tensor, &out = *call.outs[0];
    const std::string_view name = call.args[gradient ? 3 : 1].u.s;
    const fl_tensor *lengths = maybe(call.args[gradient ? 4 : 2]), *offsets = maybe(call.args[gradient ? 5 : 4]);
    if (!gradient && call.args[3].kind == FL_TENSOR) return "segments by indices";
    const fl_tensor* where = lengths != nullptr ? lengths : offsets;
    constexpr std::string_view kNames[] = {"sum", "mean", "max", "min", "prod"};
    mode = std::find(std::begin(kNames), std::end(kNames), name) - std::begin(kNames);
    if (where == nullptr || mode == 5 || !is_index(where->dtype) || !is_floating(data.dtype)) return kUnfit;
    const int64_t axis = wrap_dim(call.args[gradient ? 6 : 5].u.i, data.ndim);
    if (axis < 0 || axis >= data.ndim || where->ndim != axis + 1) return kUnfit;
    int64_t outer = 1, width = 1;
    for (int32_t d = 0; d < data.ndim; ++d) {
      if (d < axis && where->sizes[d] != data.sizes[d]) return kUnfit;
      if (d != axis) (d < axis ? outer : width) *= data.sizes[d];
    }
    by_offsets = lengths == nullptr;
    const int64_t stretches = where->sizes[axis] - (by_offsets ? 1 : 0);
    const fl_value& start = call.args[7];
    initial = start.kind != FL_NONE;
    element = &data;
    index = where->dtype;
    if (gradient) {
      const fl_tensor &g = *call.args[0].u.tensor, &result = *call.args[1].u.tensor;
      if (g.dtype != data.dtype || result.dtype != data.dtype || g.numel != outer * stretches * width ||
          result.numel != g.numel) {
        return kUnfit;
      }
      use({&out, &data, where, &g, &result});
    } else {
      use({&out, &data, where});
    }
    if (out.dtype != data.dtype || out.numel != (gradient ? data.numel : outer * stretches * width)) return kUnfit;
    numbers = {outer * stretches, data.sizes[axis], width, 0, std::max<int64_t>(stretches, 1)};
    const double neutral = mode == 2 ? -INFINITY : mode == 3 ? INFINITY : mode == 4 ? 1 : 0;
    numbers.first = bits_of(initial ? real(start) : neutral, data.dtype == FL_FLOAT64);
    least = 16384 / std::max<int64_t>(1, (data.sizes[axis] / std::max<int64_t>(stretches, 1) + 1) * width);
    return nullptr;
  }
};

const char* parameters_of(Kind kind) {
  switch (kind) {
    case Kind::Forward:
      return "out bag_of bag_size extrema weight index offsets factors";
    case Kind::Backward:
    case Kind::DenseBackward:
      return "sums gradient index bag_of bag_size extrema factors";
    case Kind::Factors:
      return "out gradient weight index bag_of";
    case Kind::Renorm:
      return "rows index named";
    case Kind::Segments:
      return "out data where";
    default:
      return "out data where gradient result";
  }
}

std::string type_of(std::string_view name) {
  if (name == "sums") return "SUMS";
  if (name == "named") return "u8";
  if (name == "offsets") return "OFFSET";
  constexpr std::string_view kIndices[] = {"bag_of", "bag_size", "extrema", "index", "where"};
  return std::find(std::begin(kIndices), std::end(kIndices), name) != std::end(kIndices) ? "INDEX" : "T";
}

class BagRow : public StepsRow {
 public:
  BagRow(runtime::Chip& chip, Language language, const Line& line) : StepsRow(chip, language, nullptr), line_(line) {}

  bool spreads() const { return line_.kind == Kind::Backward || line_.kind == Kind::DenseBackward; }

  Source write(const Reading& reading, fl_dtype sums) const {
    const std::string type = type_name(reading.element->dtype), a = arithmetic_name(reading.element->dtype);
    const auto define = [](const char* name, const std::string& value) {
      return std::string("#define ") + name + " " + value + "\n";
    };
    const std::string mode = std::to_string(reading.mode), s = type_name(sums);
    const char *part = "SEGMENTS", *function = "reduce_segments";
    if (line_.kind == Kind::Forward) {
      part = "BAGS";
      function = "sum_bags";
    } else if (spreads()) {
      part = "BAGS_BACKWARD";
      function = "spread_bags";
    } else if (line_.kind == Kind::Factors) {
      part = "BAGS_FACTORS";
      function = "factors_of_bags";
    } else if (line_.kind == Kind::Renorm) {
      part = "RENORM";
      function = "shorten_rows";
    } else if (line_.kind == Kind::SegmentsBackward) {
      function = "spread_segments";
    }
    Source source;
    source.head = define("T", type) + define("A", a) + define("LOAD(p, i)", "LOAD_" + type + "(p, i)") +
                  define("STORE(p, i, v)", "STORE_" + type + "(p, i, v)") + define("BITS_A(x)", "BITS_" + a + "(x)") +
                  define("SUMS", s) + define("LOAD_SUM(p, i)", "LOAD_" + s + "(p, i)") +
                  define("STORE_SUM(p, i, v)", "STORE_" + s + "(p, i, v)") + define("INDEX", type_name(reading.index)) +
                  define("OFFSET", type_name(reading.offset)) + define("MODE", mode) + define("KIND", mode) +
                  define("ORDER", mode) + define("WEIGHTED", reading.weighted ? "1" : "0") +
                  define("BY_OFFSETS", reading.by_offsets ? "1" : "0") +
                  define("HAS_INITIAL", reading.initial ? "1" : "0") + define(part, "1") + text_of("bags.h");
    source.members = "  Rows rows";
    std::string call;
    std::string_view names = parameters_of(line_.kind);
    for (size_t k = 0; !names.empty(); ++k) {
      const std::string name(names.substr(0, names.find(' ')));
      names.remove_prefix(std::min(names.size(), name.size() + 1));
      source.pointers.push_back({type_of(name), name, k < reading.written || name == "named"});
      call += name + ", ";
    }
    source.body = std::string("  ") + function + "(" + call + "p.rows, item);\n";
    return source;
  }

  fl_status run(const fl_call& call) {
    Reading reading;
    if (const char* reason = reading.read(call, line_.kind); reason != nullptr) return decline(reason);
    if (reading.tensors[0]->numel == 0 && line_.kind != Kind::Forward) return FL_OK;
    const fl_tensor& out = *reading.tensors[0];
    const Numbers& n = reading.numbers;
    // 16-bit sums are formed in float32.
    const bool narrow = spreads() && element_bytes(out.dtype) == 2;
    Place sums(out);
    if (narrow) sums.dtype = FL_FLOAT32;
    const auto scratch = [&](int64_t bytes, fl_address& address) {
      return runtime::host_services().scratch(&call, static_cast<uint64_t>(std::max<int64_t>(bytes, 8)), &address);
    };
    if (const fl_status status = narrow ? scratch(out.numel * 4, sums.address) : FL_OK; status != FL_OK) return status;
    Steps before;
    if ((spreads() || line_.kind == Kind::SegmentsBackward) && !add_fill(before, out, sums, number_of(0))) {
      return decline("too many dimensions");
    }
    if (const fl_status status = run_steps(call, before); status != FL_OK) return status;
    if (const fl_status status = launch_rows(call, reading, sums); status != FL_OK) return status;
    if (!narrow && !reading.scaled) return FL_OK;
    Steps after;
    bool fits = true;
    if (reading.scaled) {
      const Place counts(1, FL_INT64);
      after.scratch[0] = n.rows * 8;
      fl_tensor line = out;
      line.ndim = 1;
      line.strides = out.strides + 1;
      fits = add_fill(after, line, counts, number_of(0)) &&
             add_up_rows(after, counts, n.rows, 1, *reading.tensors[2], nullptr, n.padding) &&
             add_by_row(after, Put::Divide, sums, counts, n.rows, n.width, true);
    }
    if (narrow) fits = fits && add_by_row(after, Put::Set, Place(out), sums, n.rows, n.width, false);
    return fits ? run_steps(call, after) : decline("too many dimensions");
  }

  static fl_status supports(const fl_call* call) {
    Reading reading;
    const char* reason = reading.read(*call, row_of<BagRow>(*call).line_.kind);
    return reason == nullptr ? FL_OK : decline(reason);
  }

 private:
  fl_status launch_rows(const fl_call& call, const Reading& reading, const Place& sums) {
    const Numbers& n = reading.numbers;
    if (n.units == 0) return FL_OK;
    VariantKey key;
    for (const fl_dtype type : {reading.element->dtype, reading.index, reading.offset}) {
      key.add(static_cast<uint32_t>(type));
    }
    key.add(static_cast<uint32_t>(reading.mode));
    key.add((reading.weighted ? 1u : 0u) | (reading.by_offsets ? 2u : 0u) | (reading.initial ? 4u : 0u));
    const fl_module module = variant(call, key, [&] { return write(reading, sums.dtype); });
    // Items that own rows look at every index each: no more of them than the work on the rows is worth.
    const int64_t least =
        reading.by_rows ? std::max<int64_t>(1, 8192 * n.rows / (n.count * n.width + n.rows + 1)) : reading.least;
    const Split work = split(device(call), n.units, std::max<int64_t>(least, 1));
    Members<12> words;
    for (const int64_t word : {n.units, work.chunk, n.rows, n.width, n.count, n.stretches, n.padding, n.sizes, n.places,
                               n.extrema, static_cast<int64_t>(n.first), static_cast<int64_t>(n.second)}) {
      words.add(word);
    }
    fl_address named = 0;
    const bool marks = line_.kind == Kind::Renorm;
    if (marks) {
      const fl_status status = runtime::host_services().scratch(&call, static_cast<uint64_t>(n.rows), &named);
      if (status != FL_OK) return status;
    }
    Arguments arguments;
    arguments.add_address(sums.address);
    for (size_t k = 1; k < reading.count; ++k) {
      // What is absent or empty is not looked at; some chips take no null.
      const fl_tensor* t = reading.tensors[k];
      arguments.add_address(numel_at(t) > 0 ? t->address : sums.address);
    }
    if (marks) arguments.add_address(named);
    arguments.add_members(words.data(), words.bytes());
    return arguments.launch(call, device(call), module, work.items);
  }
  const Line& line_;
};

}  // namespace

void add_bags(Rows& rows, runtime::Chip& chip, Language language) {
  constexpr uint32_t kDense = FL_KERNEL_CONTIGUOUS_INPUTS | FL_KERNEL_CONTIGUOUS_OUTPUTS;
  for (const Line& line : kLines) {
    const bool by_value = line.kind == Kind::Renorm || line.kind == Kind::Segments;
    rows.push_back(make_row(line.op, kDense | (by_value ? static_cast<uint32_t>(FL_KERNEL_VALUE_DEPENDENT) : 0u),
                            run_row<BagRow>, BagRow::supports, keep<BagRow>(chip, language, line), kFloats));
  }
}

}  // namespace torch_fl::portable
