// SPDX-License-Identifier: Apache-2.0
// Operators whose output lists what counts: nonzero, masked_select and their relatives.
#include <algorithm>

#include "families.h"
#include "indexing.h"
#include "runtime/internal.h"
#include "text.h"

namespace torch_fl::portable {
namespace {

enum class Choice : uint8_t { Positions, FixedPositions, Masked, Scattered, Repeated };

struct Selecting {
  const char* op;
  Choice choice;
  uint32_t flags;
};
constexpr uint32_t kDense = FL_KERNEL_CONTIGUOUS_INPUTS | FL_KERNEL_CONTIGUOUS_OUTPUTS;
const Selecting kOperators[] = {
    {"aten::nonzero", Choice::Positions, 0},
    {"aten::nonzero_static", Choice::FixedPositions, 0},
    {"aten::masked_select", Choice::Masked, FL_KERNEL_CONTIGUOUS_OUTPUTS},
    {"aten::masked_scatter", Choice::Scattered, FL_KERNEL_CONTIGUOUS_INPUTS},
    {"aten::repeat_interleave.Tensor", Choice::Repeated, kDense},
};
constexpr int32_t kMostCoordinates = 16;

/// A type of C for the values to test, and whether one of them differs from zero. Only the top bit tells the two zeros
/// of a floating-point number apart; a complex number is two of them.
struct Test {
  std::string type, weight;
};
Test test_of(fl_dtype dtype) {
  if (dtype == FL_FLOAT64) return {"u64", "(tested[at] << 1) != 0"};
  if (dtype == FL_COMPLEX64) return {"u32", "((tested[2 * at] | tested[2 * at + 1]) << 1) != 0"};
  if (dtype == FL_COMPLEX128) return {"u64", "((tested[2 * at] | tested[2 * at + 1]) << 1) != 0"};
  if (dtype == FL_COMPLEX32) return {"u16", "((tested[2 * at] | tested[2 * at + 1]) & 0x7fff) != 0"};
  if (is_floating(dtype)) return {type_name(dtype), std::string("LOAD_") + type_name(dtype) + "(tested, at) != 0"};
  return {word_of(element_bytes(dtype)), "tested[at] != 0"};
}

/// A call, as the kernel sees it.
struct Reading {
  const fl_tensor* tested = nullptr;
  const fl_tensor* chosen = nullptr;  ///< what is chosen from; or null
  const fl_tensor* out = nullptr;
  int64_t limit = 0, to0 = 1, to1 = 1, fill = 0;
  Geometry walk;

  const char* read(const fl_call& call, Choice choice) {
    constexpr const char* kShapes = "shapes or element types that do not fit";
    out = call.outs[0];
    tested = call.args[choice == Choice::Masked || choice == Choice::Scattered ? 1 : 0].u.tensor;
    const fl_tensor* along = nullptr;  // what is walked beside the tested tensor
    const fl_tensor& self = *call.args[0].u.tensor;
    int64_t ndim = tested->ndim;
    switch (choice) {
      case Choice::Positions:
      case Choice::FixedPositions:
        if (out->ndim != 2 || out->sizes[1] != self.ndim || out->dtype != FL_INT64) return kShapes;
        if (element_bytes(self.dtype) == 0 || (self.dtype >= FL_FLOAT8_E5M2 && self.dtype <= FL_FLOAT8_E8M0FNU))
          return "an element type that the portable kernels do not compare with zero";
        if (self.ndim > kMostCoordinates) return "too many dimensions";
        limit = out->sizes[0];
        to0 = out->strides[0];
        to1 = out->strides[1];
        if (choice == Choice::FixedPositions) fill = call.args[2].u.i;
        break;
      case Choice::Masked:
        along = &self;
        chosen = &self;
        ndim = std::max(ndim, static_cast<int64_t>(self.ndim));
        limit = out->numel;
        break;
      case Choice::Scattered:
        along = out;
        chosen = call.args[2].u.tensor;
        ndim = out->ndim;
        limit = chosen->numel;
        if (chosen->dtype != out->dtype || self.dtype != out->dtype) return kShapes;
        break;
      case Choice::Repeated:
        if (!is_index(self.dtype) || self.ndim != 1 || out->dtype != self.dtype) return kShapes;
        limit = out->numel;
        break;
    }
    if (along != nullptr && (tested->dtype != FL_BOOL || element_bytes(along->dtype) == 0)) return kShapes;
    Space space;
    for (int64_t d = 0; d < ndim; ++d) {
      const int64_t a = size_in(*tested, d, ndim), b = along != nullptr ? size_in(*along, d, ndim) : a;
      if (a != b && a != 1 && b != 1) return kShapes;
      if (choice == Choice::Scattered && a != b && a != 1) return kShapes;
      const int at = space.add(a == 1 ? b : a);
      space.set(1, at, stride_in(*tested, d, ndim));
      if (along != nullptr) space.set(2, at, stride_in(*along, d, ndim));
    }
    space.order_by_index();
    return space.merge(3, walk) ? nullptr : "too many dimensions";
  }
};

class SelectRow : public StepsRow {
 public:
  SelectRow(runtime::Chip& chip, Language language, const Selecting& line)
      : StepsRow(chip, language, nullptr), line_(line) {}

  Source write(const Reading& reading, bool emits) const {
    const bool positions = line_.choice == Choice::Positions || line_.choice == Choice::FixedPositions;
    const bool repeats = line_.choice == Choice::Repeated;
    const Test test = test_of(reading.tested->dtype);
    const std::string s = repeats ? type_name(reading.tested->dtype) : test.type;
    const std::string out =
        positions || repeats ? type_name(reading.out->dtype) : word_of(element_bytes(reading.out->dtype));
    const std::string in = reading.chosen != nullptr ? out : s;
    const std::string ndim = std::to_string(positions ? reading.tested->ndim : 1);
    Source source;
    source.head = std::string(out == "Pair" ? kPair : "") + "#define S " + s + "\n#define T " + out + "\n#define U " +
                  in + "\n#define RANK " + std::to_string(reading.walk.rank) + "\n#define SHAPE_RANK " +
                  (ndim == "0" ? "1" : ndim) + "\n#define EMITS " + (emits ? "1" : "0") + "\n#define WEIGHT " +
                  (repeats ? "tested[at] > 0 ? tested[at] : 0" : test.weight) + "\n";
    const char* emit = "";
    if (positions && ndim == "0") {  // a scalar has no coordinates
      emit = "#define EMIT\n#define FILL\n";
    } else if (positions) {
      emit = "#define STORE_OUT STORE_i64\n#define EMIT EMIT_POSITION\n#define FILL FILL_POSITION\n";
    } else if (repeats) {
      emit = "#define EMIT out[n] = l\n#define FILL out[n] = 0\n";
    } else if (line_.choice == Choice::Masked) {
      emit = "#define EMIT out[n] = in[of]\n#define FILL { const T zero = {0}; out[n] = zero; }\n";
    } else {
      emit = "#define EMIT out[of] = in[n]\n#define FILL\n";
    }
    source.head += emit;
    source.head += text_of("select.h");
    source.members = "  Scan scan";
    source.pointers = {{s, "tested"}, {"i64", "partial", true}, {out, "out", true}, {in, "in"}};
    source.body = "  scan(tested, partial, out, in, p.scan, item);\n";
    return source;
  }

  fl_status run(const fl_call& call) {
    Reading reading;
    if (const char* reason = reading.read(call, line_.choice); reason != nullptr) return decline(reason);
    if (line_.choice == Choice::Scattered) {
      const fl_status status = copy_broadcast(call);
      if (status != FL_OK) return status;
    }
    if (reading.limit == 0 || reading.out->numel == 0) return FL_OK;
    // With nothing to test, the outputs are filled.
    const Split work = split(device(call), reading.walk.numel, 4096);
    fl_address partial = 0;
    const fl_status status = runtime::host_services().scratch(&call, work.items * 8, &partial);
    if (status != FL_OK) return status;
    const bool positions = line_.choice == Choice::Positions || line_.choice == Choice::FixedPositions;
    Members<7 + 3 * kMaxRank + kMostCoordinates> words;
    for (const int64_t word : {reading.walk.numel, work.chunk, reading.limit, static_cast<int64_t>(work.items),
                               reading.to0, reading.to1, reading.fill}) {
      words.add(word);
    }
    const auto rank = static_cast<size_t>(reading.walk.rank);
    // An empty tensor has a size of 0 somewhere, by which nobody may divide.
    for (size_t d = 0; d < rank; ++d) words.add(std::max<int64_t>(reading.walk.sizes[d], 1));
    for (size_t o = 1; o < 3; ++o) {
      for (size_t d = 0; d < rank; ++d) words.add(reading.walk.strides[o][d]);
    }
    const int32_t ndim = positions ? std::max(reading.tested->ndim, 1) : 1;
    for (int32_t d = 0; d < ndim; ++d) words.add(reading.tested->ndim > 0 ? reading.tested->sizes[d] : 1);
    for (const bool emits : {false, true}) {
      if (!emits && work.items == 1) continue;
      VariantKey key;
      key.add(emits ? 1 : 0);
      key.add(static_cast<uint32_t>(reading.tested->dtype));
      key.add(static_cast<uint32_t>(reading.out->dtype));
      key.add(static_cast<uint32_t>(rank));
      key.add(static_cast<uint32_t>(positions ? reading.tested->ndim : 0));
      const fl_module module = variant(call, key, [&] { return write(reading, emits); });
      Arguments arguments;
      // What is empty has no address, which some chips do not take.
      const auto add = [&](const fl_tensor& t) { arguments.add_address(t.address != 0 ? t.address : partial); };
      add(*reading.tested);
      arguments.add_address(partial);
      add(*reading.out);
      add(reading.chosen != nullptr ? *reading.chosen : *reading.tested);
      arguments.add_members(words.data(), words.bytes());
      const fl_status done = arguments.launch(call, device(call), module, work.items);
      if (done != FL_OK) return done;
    }
    return FL_OK;
  }

  static fl_status supports(const fl_call* call) {
    Reading reading;
    const auto* row = &row_of<SelectRow>(*call);
    const char* reason = reading.read(*call, row->line_.choice);
    return reason == nullptr ? FL_OK : decline(reason);
  }

 private:
  // What is not written to keeps self's value.
  fl_status copy_broadcast(const fl_call& call) {
    Steps steps;
    const fl_tensor &self = *call.args[0].u.tensor, &out = *call.outs[0];
    std::array<int64_t, 64> strides;
    fl_tensor grown = self;
    grown.strides = strides.data();
    for (int32_t d = 0; d < out.ndim; ++d) strides[static_cast<size_t>(d)] = stride_in(self, d, out.ndim);
    if (!add_copy(steps, out, grown)) return decline("too many dimensions");
    return run_steps(call, steps);
  }
  const Selecting& line_;
};

}  // namespace

void add_selecting(Rows& rows, runtime::Chip& chip, Language language) {
  for (const Selecting& line : kOperators) {
    rows.push_back(make_row(line.op, line.flags, run_row<SelectRow>, SelectRow::supports,
                            keep<SelectRow>(chip, language, line), 0));
  }
}

}  // namespace torch_fl::portable
