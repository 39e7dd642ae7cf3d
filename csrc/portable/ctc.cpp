// SPDX-License-Identifier: Apache-2.0
// The connectionist temporal classification loss and its gradient. The lengths are arguments on the host.
#include <algorithm>

#include "families.h"
#include "launch.h"
#include "runtime/internal.h"
#include "text.h"

namespace torch_fl::portable {
namespace {

constexpr int64_t kTogether = 16;  // samples in one launch

/// One call, looked through once.
struct Reading {
  const fl_tensor *probabilities, *targets, *loss, *states;
  const fl_value *lengths, *labels;
  int64_t steps, n, c, width, blank;

  bool read(const fl_call& call, bool backward) {
    const uint32_t first = backward ? 1 : 0;
    const auto tensor = [&](uint32_t i) { return call.args[i].kind == FL_TENSOR ? call.args[i].u.tensor : nullptr; };
    probabilities = tensor(first);
    targets = tensor(first + 1);
    lengths = &call.args[first + 2];
    labels = &call.args[first + 3];
    loss = backward ? tensor(5) : call.outs[0];
    states = backward ? tensor(6) : call.outs[1];
    blank = call.args[backward ? 7 : 4].u.i;
    if (probabilities == nullptr || targets == nullptr || loss == nullptr || states == nullptr) return false;
    if (probabilities->ndim != 3 || states->ndim != 3 || targets->ndim < 1 || targets->ndim > 2) return false;
    if (targets->dtype != FL_INT64 && targets->dtype != FL_INT32) return false;
    if (lengths->kind != FL_INTEGERS || labels->kind != FL_INTEGERS) return false;
    steps = probabilities->sizes[0];
    n = probabilities->sizes[1];
    c = probabilities->sizes[2];
    width = states->sizes[2];
    if (states->sizes[0] != n || states->sizes[1] != steps || loss->numel != n || blank < 0 || blank >= c) return false;
    if (lengths->count != n || labels->count != n || (targets->ndim == 2 && targets->sizes[0] != n)) return false;
    for (int64_t i = 0; i < n; ++i) {
      const int64_t length = lengths->u.ints[i], label = labels->u.ints[i];
      if (length < 0 || length > steps || label < 0 || 2 * label + 1 > width) return false;
      if (start(i) + label > (targets->ndim == 2 ? (i + 1) * targets->sizes[1] : targets->numel)) return false;
    }
    return true;
  }
  /// Where the targets of a sample begin.
  int64_t start(int64_t sample) const {
    if (targets->ndim == 2) return sample * targets->sizes[1];
    int64_t sum = 0;
    for (int64_t i = 0; i < sample; ++i) sum += labels->u.ints[i];
    return sum;
  }
};

class CtcRow : public Row {
 public:
  CtcRow(runtime::Chip& chip, Language language, bool backward) : Row(chip, language), backward_(backward) {}

  Source write(const Reading& r) const {
    const std::string a = type_name(r.probabilities->dtype);
    Source source;
    source.head = "#define A " + a + "\n" + (backward_ ? "" : "#define FORWARD 1\n") +
                  "FUNCTION A log_of_sum(A x, A y, A z) {\n"
                  "  A top = x > y ? x : y;\n"
                  "  top = top > z ? top : z;\n"
                  "  return top == -INF_F ? top : top + log(exp(x - top) + exp(y - top) + exp(z - top));\n"
                  "}\n";
    const std::string each = "[" + std::to_string(kTogether) + "]";
    source.members =
        "  i64 first, steps, n, c, width, blank, zero_infinity, lengths" + each + ", labels" + each + ", starts" + each;
    source.pointers = {{a, "probabilities"},
                       {type_name(r.targets->dtype), "targets"},
                       {a, "loss", !backward_},
                       {a, "states", !backward_}};
    if (backward_) {
      source.pointers.push_back({a, "gradient"});
      source.pointers.push_back({a, "out", true});
      source.pointers.push_back({a, "after", true});
    }
    source.body = text_of("ctc_body.h");
    return source;
  }

  fl_status run(const fl_call& call) {
    Reading r;
    if (!r.read(call, backward_)) return decline(kReason);
    if (r.n == 0 || (backward_ && call.outs[0]->numel == 0)) return FL_OK;
    VariantKey key;
    key.add(static_cast<uint32_t>(r.probabilities->dtype));
    key.add(static_cast<uint32_t>(r.targets->dtype));
    const fl_module module = variant(call, key, [&] { return write(r); });
    fl_address after = 0;
    if (backward_) {
      const fl_status status =
          runtime::host_services().scratch(&call, static_cast<uint64_t>(r.n * 2 * r.width) * 8, &after);
      if (status != FL_OK) return status;
    }
    for (int64_t first = 0; first < r.n; first += kTogether) {
      const int64_t count = std::min(kTogether, r.n - first);
      Members<7 + 3 * kTogether> words;
      for (const int64_t word : {first, r.steps, r.n, r.c, r.width, r.blank, backward_ ? call.args[8].u.i : 0})
        words.add(word);
      for (const fl_value* list : {r.lengths, r.labels}) {
        for (int64_t i = 0; i < kTogether; ++i) words.add(i < count ? list->u.ints[first + i] : 0);
      }
      for (int64_t i = 0; i < kTogether; ++i) words.add(i < count ? r.start(first + i) : 0);
      Arguments arguments;
      for (const fl_tensor* tensor : {r.probabilities, r.targets, r.loss, r.states}) arguments.add(*tensor);
      if (backward_) {
        arguments.add(*call.args[0].u.tensor);
        arguments.add(*call.outs[0]);
        arguments.add_address(after);
      }
      arguments.add_members(words.data(), words.bytes());
      const fl_status status = arguments.launch(call, device(call), module, static_cast<uint64_t>(count));
      if (status != FL_OK) return status;
    }
    return FL_OK;
  }

  static fl_status supports(const fl_call* call) {
    Reading reading;
    return reading.read(*call, row_of<CtcRow>(*call).backward_) ? FL_OK : decline(kReason);
  }

 private:
  static constexpr const char* kReason = "a classification of sequences that the portable kernels do not have";
  const bool backward_;
};

}  // namespace

void add_ctc(Rows& rows, runtime::Chip& chip, Language language) {
  constexpr uint32_t kDense = FL_KERNEL_CONTIGUOUS_INPUTS | FL_KERNEL_CONTIGUOUS_OUTPUTS;
  for (const bool backward : {false, true}) {
    rows.push_back(make_row(backward ? "aten::_ctc_loss_backward" : "aten::_ctc_loss", kDense, run_row<CtcRow>,
                            CtcRow::supports, keep<CtcRow>(chip, language, backward),
                            FL_DTYPE_BIT(FL_FLOAT32) | FL_DTYPE_BIT(FL_FLOAT64)));
  }
}

}  // namespace torch_fl::portable
