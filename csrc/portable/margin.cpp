// SPDX-License-Identifier: Apache-2.0
// Losses by margins between classes, and their gradients.
#include <algorithm>

#include "families.h"
#include "launch.h"
#include "runtime/internal.h"
#include "text.h"

namespace torch_fl::portable {
namespace {

struct Margin {
  const char* op;
  bool multilabel, backward;
  int reduction;  ///< argument
};
const Margin kOperators[] = {
    {"aten::multi_margin_loss", false, false, 5},
    {"aten::multi_margin_loss_backward", false, true, 6},
    {"aten::multilabel_margin_loss_forward", true, false, 2},
    {"aten::multilabel_margin_loss_backward", true, true, 3},
};
enum Reduction : int64_t { kNone = 0, kMean = 1 };

/// One call, looked through once: `rows` samples of `c` classes.
struct Reading {
  const fl_tensor* gradient = nullptr;
  const fl_tensor* in = nullptr;
  const fl_tensor* target = nullptr;
  const fl_tensor* weights = nullptr;
  const fl_tensor* is_target = nullptr;
  int64_t rows = 1, c = 1, reduction = 0, squares = 0;
  uint64_t margin = 0;

  bool read(const fl_call& call, const Margin& line) {
    const uint32_t first = line.backward ? 1 : 0;
    for (uint32_t i = 0; i < first + 2; ++i) {
      if (call.args[i].kind != FL_TENSOR) return false;
    }
    for (uint32_t i = 0; i < call.n_outs; ++i) {
      if (call.outs[i] == nullptr) return false;
    }
    gradient = line.backward ? call.args[0].u.tensor : nullptr;
    in = call.args[first].u.tensor;
    target = call.args[first + 1].u.tensor;
    reduction = call.args[line.reduction].u.i;
    if (in->ndim > 2 || target->dtype != FL_INT64) return false;
    if (in->ndim == 2) rows = in->sizes[0];
    if (in->ndim > 0) c = in->sizes[in->ndim - 1];
    if (c < 1 || target->numel != (line.multilabel ? in->numel : rows)) return false;
    const int64_t each = reduction == kNone ? rows : 1;
    // Of a single line the CPU gives a number, where the shape rule has a line of one.
    if (line.multilabel && !line.backward && in->ndim < 2 && call.outs[0]->ndim > 0) return false;
    if (line.backward ? gradient->numel != each || call.outs[0]->numel != in->numel : call.outs[0]->numel != each)
      return false;
    if (line.multilabel) {
      is_target = line.backward ? call.args[4].u.tensor : call.outs[1];
      return is_target->dtype == in->dtype && is_target->numel == in->numel;
    }
    const fl_value &p = call.args[first + 2], &weight = call.args[first + 4];
    const double order = p.kind == FL_REAL ? p.u.d : static_cast<double>(p.u.i);
    squares = order == 2 ? 1 : 0;
    margin = bits_of(call.args[first + 3], in->dtype);
    if (weight.kind == FL_TENSOR) weights = weight.u.tensor;
    return (order == 1 || order == 2) && (weights == nullptr || (weights->dtype == in->dtype && weights->numel == c));
  }
};

class MarginRow : public Row {
 public:
  MarginRow(runtime::Chip& chip, Language language, const Margin& line) : Row(chip, language), line_(line) {}

  Source write(const Reading& r, bool total) const {
    const std::string type = type_name(r.in->dtype), a = arithmetic_name(r.in->dtype);
    const bool adds = r.reduction != kNone;
    Source source;
    const auto define = [&](const std::string& text) { source.head += "#define " + text + "\n"; };
    define("A " + a);
    define("BITS(x) BITS_" + a + "((u64)(x))");
    define("LOAD(p, i) LOAD_" + type + "(p, i)");
    define("STORE(p, i, v) STORE_" + type + "(p, i, v)");
    define(adds ? std::string("STORE_LOSS(n, v) losses[n] = (v)")
                : "STORE_LOSS(n, v) STORE_" + type + "(losses, n, v)");
    if (!line_.backward) define("FORWARD 1");
    define(line_.multilabel ? "MULTILABEL 1" : "MULTI 1");
    source.members = "  i64 rows, chunk, c, each, mean, squares, weighted, margin";
    source.body = text_of("margin_body.h");
    if (total) {
      define("TOTAL 1");
      source.pointers = {{a, "losses"}, {type, "out", true}};
      return source;
    }
    source.pointers = {{type, "in"}, {"i64", "target"}};
    if (line_.backward) source.pointers.push_back({type, "gradient"});
    if (r.weights != nullptr) {
      source.pointers.push_back({type, "weights"});
    } else {
      define("weights in");  // never read
    }
    if (r.is_target != nullptr) source.pointers.push_back({type, "is_target", !line_.backward});
    source.pointers.push_back(line_.backward ? Pointer{type, "out", true} : Pointer{adds ? a : type, "losses", true});
    return source;
  }

  fl_module module_of(const fl_call& call, const Reading& r, bool total) {
    VariantKey key;
    key.add(static_cast<uint32_t>(r.in->dtype));
    key.add((total ? 1u : 0u) | (r.weights != nullptr ? 2u : 0u) | (r.reduction != kNone ? 4u : 0u));
    return variant(call, key, [&] { return write(r, total); });
  }

  fl_status run(const fl_call& call) {
    Reading r;
    if (!r.read(call, line_)) return decline(kReason);
    const bool adds = !line_.backward && r.reduction != kNone;
    fl_address losses = call.outs[0]->address;
    if (adds) {
      const fl_status status =
          runtime::host_services().scratch(&call, static_cast<uint64_t>(std::max<int64_t>(r.rows, 1)) * 8, &losses);
      if (status != FL_OK) return status;
    }
    const Split work = split(device(call), r.rows, std::max<int64_t>(1, 16384 / std::max<int64_t>(1, r.c)));
    Members<8> words;
    for (const int64_t word : {r.rows, work.chunk, r.c, int64_t{r.reduction == kNone}, int64_t{r.reduction == kMean},
                               r.squares, int64_t{r.weights != nullptr}, static_cast<int64_t>(r.margin)})
      words.add(word);
    if (r.rows > 0) {
      Arguments arguments;
      arguments.add(*r.in);
      arguments.add(*r.target);
      if (line_.backward) arguments.add(*r.gradient);
      if (r.weights != nullptr) arguments.add(*r.weights);
      if (r.is_target != nullptr) arguments.add(*r.is_target);
      arguments.add_address(losses);
      arguments.add_members(words.data(), words.bytes());
      const fl_status status = arguments.launch(call, device(call), module_of(call, r, false), work.items);
      if (status != FL_OK || !adds) return status;
    }
    if (!adds) return FL_OK;
    Arguments arguments;
    arguments.add_address(losses);
    arguments.add(*call.outs[0]);
    arguments.add_members(words.data(), words.bytes());
    return arguments.launch(call, device(call), module_of(call, r, true), 1);
  }

  static fl_status supports(const fl_call* call) {
    Reading reading;
    return reading.read(*call, row_of<MarginRow>(*call).line_) ? FL_OK : decline(kReason);
  }

 private:
  static constexpr const char* kReason = "a margin loss that the portable kernels do not have";
  const Margin& line_;
};

}  // namespace

void add_margins(Rows& rows, runtime::Chip& chip, Language language) {
  constexpr uint32_t kFlags = FL_KERNEL_CONTIGUOUS_INPUTS | FL_KERNEL_CONTIGUOUS_OUTPUTS | FL_KERNEL_VALUE_DEPENDENT;
  for (const Margin& line : kOperators) {
    rows.push_back(make_row(line.op, kFlags, run_row<MarginRow>, MarginRow::supports,
                            keep<MarginRow>(chip, language, line), kFloats));
  }
}

}  // namespace torch_fl::portable
