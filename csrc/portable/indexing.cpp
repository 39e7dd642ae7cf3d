// SPDX-License-Identifier: Apache-2.0
#include "indexing.h"

#include <algorithm>

#include "runtime/internal.h"
#include "text.h"

namespace torch_fl::portable {
namespace {

uint64_t value_bits(const fl_value& v, fl_dtype dtype) {
  if (dtype == FL_BOOL) return v.kind == FL_REAL ? v.u.d != 0 : v.u.i != 0;
  return bits_of(v, dtype);
}

// What comes of an index that lies outside: no number, where the type has that.
uint64_t missing_bits(fl_dtype dtype) {
  switch (dtype) {
    case FL_FLOAT16:
      return 0x7e00;
    case FL_BFLOAT16:
      return 0x7fc0;
    case FL_FLOAT32:
      return 0x7fc00000;
    case FL_COMPLEX64:
      return 0x7fc000007fc00000;
    case FL_FLOAT64:
    case FL_COMPLEX128:
      return 0x7ff8000000000000;
    default:
      return 0;
  }
}

const char* join_of(Put put, bool floating) {
  switch (put) {
    case Put::Add:
      return "t + x";
    case Put::Multiply:
      return "t * x";
    case Put::Maximum:
      return "max_of(t, x)";
    case Put::Minimum:
      return "min_of(t, x)";
    case Put::Divide:  // by a count; integers round down
      return floating ? "x > 1 ? t / x : t" : "x > 1 ? t / x - (t % x != 0 && t < 0) : t";
    default:
      return "x";
  }
}

/// How a step is cut up.
struct Cut {
  bool run, uniform, to_dense, from_dense;
  int64_t rows, length, block, blocks, parts, range;
  Split work;
};

Cut cut_of(const runtime::Device& device, const Step& step) {
  const Geometry& free = step.free;
  const auto last = static_cast<size_t>(free.rank - 1);
  Cut cut{};
  cut.run = free.strides[Step::kTo][last] == 1 || step.sequence.numel == 1;
  cut.uniform = true;
  for (int k = 0; k < step.n_indices; ++k) {
    cut.uniform &= !cut.run || free.strides[static_cast<size_t>(Step::kIndex + k)][last] == 0;
  }
  cut.to_dense = cut.run && free.strides[Step::kTo][last] == 1;
  cut.from_dense = cut.run && free.strides[Step::kFrom][last] == 1;
  cut.length = cut.run ? free.sizes[last] : 1;
  cut.rows = free.numel / cut.length;
  const int64_t units = device.properties.compute_units == 0 ? 8 : device.properties.compute_units;
  const int64_t wanted = std::clamp<int64_t>(free.numel * step.sequence.numel / 8192, 1, 4 * units);
  // Few rows: pieces of rows, and after those shares of the places.
  int64_t missing = (wanted + cut.rows - 1) / cut.rows;
  cut.blocks = std::clamp<int64_t>(cut.length / 256, 1, missing);
  cut.block = (cut.length + cut.blocks - 1) / cut.blocks;
  cut.blocks = (cut.length + cut.block - 1) / cut.block;
  missing = (missing + cut.blocks - 1) / cut.blocks;
  int64_t places = 1;
  for (int k = 0; k < step.n_indices; ++k) {
    const Step::Index& index = step.indices[static_cast<size_t>(k)];
    places += std::max<int64_t>(index.bound - 1, 0) * index.step;
  }
  cut.parts = step.leads_to_target ? std::min(missing, places) : 1;
  cut.range = (places + cut.parts - 1) / cut.parts;
  cut.work = split(device, cut.rows * cut.blocks, 1);
  if (static_cast<int64_t>(cut.work.items) > wanted) {
    cut.work.chunk = (cut.rows * cut.blocks + wanted - 1) / wanted;
    cut.work.items = static_cast<uint64_t>((cut.rows * cut.blocks + cut.work.chunk - 1) / cut.work.chunk);
  }
  return cut;
}

std::string define(const char* name, const std::string& value) {
  return std::string("#define ") + name + " " + value + "\n";
}

Source write_step(const Step& step, const Cut& cut) {
  const bool moves = step.put == Put::Move;
  const std::string word = word_of(element_bytes(step.to.dtype));
  const std::string t = moves ? word : type_name(step.to.dtype), s = moves ? word : type_name(step.from.dtype);
  const std::string last = std::to_string(step.free.rank - 1);
  Source source;
  std::string& head = source.head;
  head += define("MISSING", word == "Pair" ? "{w.value, w.value}" : "(T)w.value");
  if (word == "Pair") head += kPair;
  head += define("T", t) + define("S", s) + define("RANK", std::to_string(step.free.rank)) +
          define("SEQUENCE_RANK", std::to_string(step.sequence.rank)) + define("RUN", cut.run ? "1" : "0") +
          define("UNIFORM", cut.uniform ? "1" : "0") + define("WRAP", step.wrap ? "1" : "0") +
          define("INDICES", std::to_string(std::max(step.n_indices, 1))) +
          define("LEADS_TO_TARGET", step.leads_to_target ? "1" : "0") +
          define("TO_STEP", !cut.run || cut.to_dense ? "1" : "w.to[" + last + "]") +
          define("FROM_STEP", !cut.run || cut.from_dense ? "1" : "w.from[" + last + "]");
  if (moves) {
    head += define("PUT(to, from)", "target[to] = source[from]");
  } else {
    const bool floating = is_floating(step.to.dtype);
    const std::string a = arithmetic_name(step.to.dtype), value = "BITS_" + a + "(w.value)";
    const std::string load = "(A)LOAD_" + s + "(source, from)";
    const std::string x = step.operand == Operand::Source  ? load
                          : step.operand == Operand::Value ? value
                                                           : "(A)(" + load + " * " + value + ")";
    const std::string old = step.put == Put::Set ? "" : "const A t = LOAD_" + t + "(target, to); ";
    head += define("A", a) + (floating ? "#define FL_FLOATING 1\n" : "") + text_of("extrema.h") +
            define("PUT(to, from)", "{ const A x = " + x + "; " + old + "STORE_" + t + "(target, to, (" +
                                        join_of(step.put, floating) + ")); }");
  }
  source.pointers = {{t, "target", true}, {s, "source"}};
  std::string parameters, each, names;
  for (int k = 0; k < step.n_indices; ++k) {
    const std::string name = "index" + std::to_string(k);
    const std::string type = type_name(step.indices[static_cast<size_t>(k)].tensor->dtype);
    source.pointers.push_back({type, name});
    parameters += "GLOBAL const " + type + "* " + name + ", ";
    each += "M(" + std::to_string(k) + ") ";
    names += name + ", ";
  }
  head += define("INDEX_PARAMETERS", parameters) + define("EACH_INDEX(M)", each) + text_of("indexing.h");
  source.members = "  Walk walk";
  source.body = "  move_indexed(target, source, " + names + "p.walk, item);\n";
  return source;
}

}  // namespace

const char* word_of(int64_t bytes) {
  return bytes == 1 ? "u8" : bytes == 2 ? "u16" : bytes == 4 ? "u32" : bytes == 8 ? "u64" : "Pair";
}

int64_t size_in(const fl_tensor& t, int64_t dim, int64_t ndim) {
  const int64_t own = dim - (ndim - t.ndim);
  return own < 0 ? 1 : t.sizes[own];
}
int64_t stride_in(const fl_tensor& t, int64_t dim, int64_t ndim) {
  const int64_t own = dim - (ndim - t.ndim);
  return own < 0 || t.sizes[own] == 1 ? 0 : t.strides[own];
}

int Space::add(int64_t size) {
  sizes_[n_] = size;
  numel_ *= size;
  for (auto& operand : strides_) operand[n_] = 0;
  return n_++;
}

void Space::order_by_index() {
  int64_t stride = 1;
  for (int d = n_ - 1; d >= 0; --d) {
    strides_[0][d] = stride;
    stride *= std::max<int64_t>(sizes_[d], 1);
  }
}

bool Space::merge(int operands, Geometry& geometry) const {
  std::array<fl_tensor, kMaxOperands> tensors{};
  std::array<const fl_tensor*, kMaxOperands> pointers{};
  for (size_t o = 0; o < static_cast<size_t>(operands); ++o) {
    tensors[o].ndim = n_;
    tensors[o].sizes = sizes_;
    tensors[o].strides = strides_[o];
    tensors[o].numel = numel_;
    pointers[o] = &tensors[o];
  }
  return geometry.merge(pointers.data(), operands);
}

void Space::halve(bool parts) {
  for (const int operand : {Step::kTo, Step::kFrom}) {
    for (int d = 0; d < n_; ++d) strides_[static_cast<size_t>(operand)][d] *= 2;
  }
  if (!parts) return;
  const int part = add(2);
  set(Step::kTo, part, 1);
  set(Step::kFrom, part, 1);
}

bool Step::walk(Space& over, Space* then) {
  Space none;
  if (then == nullptr) then = &none;
  if (has_parts(to.dtype) && (put == Put::Add || (put == Put::Set && operand == Operand::Value))) {
    over.halve(put == Put::Add);
    then->halve(false);
    to.dtype = from.dtype = part_of(to.dtype);
    for (int k = 0; k < n_indices; ++k) indices[static_cast<size_t>(k)].step *= 2;
    if (skip > 0) skip *= 2;
  }
  then->order_by_index();
  return over.merge(kIndex + n_indices, free) && then->merge(kIndex + n_indices, sequence);
}

fl_status StepsRow::launch_step(const fl_call& call, const Step& step, const fl_address* scratch) {
  if (step.free.numel == 0 || step.sequence.numel == 0) return FL_OK;
  const Cut cut = cut_of(device(call), step);
  VariantKey key;
  for (const fl_dtype type : {step.to.dtype, step.from.dtype}) key.add(static_cast<uint32_t>(type));
  key.add(static_cast<uint32_t>(step.put) * 8 + static_cast<uint32_t>(step.operand));
  key.add((cut.run ? 1u : 0u) | (cut.uniform ? 2u : 0u) | (cut.to_dense ? 4u : 0u) | (cut.from_dense ? 8u : 0u) |
          (step.leads_to_target ? 16u : 0u) | (step.wrap ? 32u : 0u));
  key.add(static_cast<uint32_t>(step.free.rank * 16 + step.sequence.rank));
  for (int k = 0; k < step.n_indices; ++k) {
    key.add(static_cast<uint32_t>(step.indices[static_cast<size_t>(k)].tensor->dtype));
  }
  const fl_module module = variant(call, key, [&] { return write_step(step, cut); });
  const uint64_t value = step.put == Put::Move ? missing_bits(step.to.dtype) : value_bits(step.value, step.to.dtype);
  Members<10 + 2 * Step::kMostIndices + kMaxRank * (5 + 2 * Step::kMostIndices)> words;
  for (const int64_t word : {cut.rows * cut.blocks, cut.work.chunk, cut.blocks, cut.block, cut.length, cut.parts,
                             cut.range, step.sequence.numel, step.skip, static_cast<int64_t>(value)}) {
    words.add(word);
  }
  const int indices = std::max(step.n_indices, 1);
  const auto index = [&](int k) { return step.indices[static_cast<size_t>(k)]; };
  for (int k = 0; k < indices; ++k) words.add(k < step.n_indices ? index(k).bound : 0);
  for (int k = 0; k < indices; ++k) words.add(k < step.n_indices ? index(k).step : 0);
  const auto strides = [&](const Geometry& g, int operand) {
    for (size_t d = 0; d < static_cast<size_t>(g.rank); ++d) {
      words.add(operand < Step::kIndex + step.n_indices ? g.strides[static_cast<size_t>(operand)][d] : 0);
    }
  };
  for (size_t d = 0; d < static_cast<size_t>(step.free.rank); ++d) words.add(step.free.sizes[d]);
  for (int o = 0; o < Step::kIndex + indices; ++o) strides(step.free, o);
  for (size_t d = 0; d < static_cast<size_t>(step.sequence.rank); ++d) words.add(step.sequence.sizes[d]);
  for (int o = Step::kFrom; o < Step::kIndex + indices; ++o) strides(step.sequence, o);
  const auto address = [&](const Place& place) {
    return place.scratch > 0 ? scratch[place.scratch - 1] : place.address;
  };
  Arguments arguments;
  arguments.add_address(address(step.to));
  // A step without a source has its target there: some chips take no null.
  arguments.add_address(step.operand == Operand::Value ? address(step.to) : address(step.from));
  for (int k = 0; k < step.n_indices; ++k) arguments.add(*index(k).tensor);
  arguments.add_members(words.data(), words.bytes());
  return arguments.launch(call, device(call), module, cut.work.items * static_cast<uint64_t>(cut.parts));
}

fl_status StepsRow::run(const fl_call& call) {
  Steps steps;
  if (const char* reason = plan_(call, steps); reason != nullptr) return decline(reason);
  return run_steps(call, steps);
}

fl_status StepsRow::run_steps(const fl_call& call, const Steps& steps) {
  std::array<fl_address, 2> scratch{};
  for (size_t i = 0; i < scratch.size(); ++i) {
    if (steps.scratch[i] == 0) continue;
    const fl_status status =
        runtime::host_services().scratch(&call, static_cast<uint64_t>(steps.scratch[i]), &scratch[i]);
    if (status != FL_OK) return status;
  }
  for (size_t i = 0; i < steps.n; ++i) {
    const fl_status status = launch_step(call, steps.list[i], scratch.data());
    if (status != FL_OK) return status;
  }
  return FL_OK;
}

fl_status StepsRow::supports(const fl_call* call) {
  Steps steps;
  const char* reason = row_of<StepsRow>(*call).plan_(*call, steps);
  return reason == nullptr ? FL_OK : decline(reason);
}

bool add_copy(Steps& steps, const fl_tensor& to, const fl_tensor& from) {
  if (to.address == from.address && to.address != 0) return true;
  Step& step = steps.add();
  step.to = Place(to);
  step.from = Place(from);
  Space over;
  for (int32_t d = 0; d < to.ndim; ++d) {
    const int at = over.add(to.sizes[d]);
    over.set(Step::kTo, at, to.strides[d]);
    over.set(Step::kFrom, at, from.strides[d]);
  }
  return step.walk(over);
}

bool add_fill(Steps& steps, const fl_tensor& like, const Place& to, const fl_value& value) {
  Step& step = steps.add();
  step.to = step.from = to;
  step.put = Put::Set;
  step.operand = Operand::Value;
  step.value = value;
  Space over;
  for (int32_t d = 0; d < like.ndim; ++d) over.set(Step::kTo, over.add(like.sizes[d]), like.strides[d]);
  return step.walk(over);
}

bool add_up_rows(Steps& steps, const Place& to, int64_t rows, int64_t columns, const fl_tensor& index,
                 const fl_tensor* source, int64_t skip) {
  Step& step = steps.add();
  step.leads_to_target = true;
  step.put = Put::Add;
  step.operand = source == nullptr ? Operand::Value : Operand::Source;
  step.to = to;
  step.from = source == nullptr ? to : Place(*source);
  step.value = number_of(1);
  step.skip = skip < 0 ? -1 : skip * columns;
  Space free, sequence;
  const int column = free.add(columns), at = sequence.add(index.numel);
  free.set(Step::kTo, column, 1);
  free.set(Step::kFrom, column, 1);
  sequence.set(Step::kFrom, at, columns);
  sequence.set(Step::kIndex, at, 1);
  step.lead(index, rows, columns);
  return step.walk(free, &sequence);
}

bool add_by_row(Steps& steps, Put put, const Place& to, const Place& from, int64_t rows, int64_t columns,
                bool per_row) {
  Step& step = steps.add();
  step.put = put;
  step.to = to;
  step.from = from;
  Space over;
  const int row = over.add(rows), column = over.add(columns);
  over.set(Step::kTo, row, columns);
  over.set(Step::kTo, column, 1);
  over.set(Step::kFrom, row, per_row ? 1 : columns);
  over.set(Step::kFrom, column, per_row ? 0 : 1);
  return step.walk(over);
}

fl_value number_of(double value) {
  fl_value v{};
  v.kind = FL_REAL;
  v.u.d = value;
  return v;
}

}  // namespace torch_fl::portable
