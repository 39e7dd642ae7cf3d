// SPDX-License-Identifier: Apache-2.0
// Element-wise operators from one-line expressions (kernels/pointwise.def), and copies between element types.
#include <cstring>
#include <map>

#include "families.h"
#include "geometry.h"
#include "launch.h"
#include "text.h"

namespace torch_fl::portable {
namespace {

struct Line {
  const char* op;
  const char* types;  ///< letters: see the table
  const char* expression;
  int mode_argument = -1;        ///< this string argument ...
  const char* mode = "";         ///< ... has this value
  const char* second = nullptr;  ///< expression of the second output
  bool special = false;          ///< needs special.h
};

const Line kTable[] = {
#define POINTWISE(op, types, expression) {op, types, expression},
#define POINTWISE_MODE(op, types, argument, mode, expression) {op, types, expression, argument, mode},
#define POINTWISE_TWO(op, types, expression, second) {op, types, expression, -1, "", second},
#define POINTWISE_SPECIAL(op, types, expression) {op, types, expression, -1, "", nullptr, true},
#include "kernels/pointwise.def"
#undef POINTWISE
#undef POINTWISE_MODE
#undef POINTWISE_TWO
#undef POINTWISE_SPECIAL
};

constexpr int kMostArguments = 8;
uint64_t mask_of(const char* types) {
  uint64_t mask = 0;
  if (std::strchr(types, 'f') != nullptr) mask |= kFloats;
  if (std::strchr(types, 'i') != nullptr) mask |= kIntegers;
  if (std::strchr(types, 'b') != nullptr) mask |= kBool;
  if (std::strchr(types, 'c') != nullptr) mask |= kComplex;
  return mask;
}

int outputs_of(const Line& line) { return line.second == nullptr ? 1 : 2; }

bool mode_matches(const Line& line, const fl_call& call) {
  if (line.mode_argument < 0) return true;
  const fl_value& v = call.args[line.mode_argument];
  return std::strcmp(v.kind == FL_STRING ? v.u.s : "", line.mode) == 0;
}

bool is_scalar(const fl_value& v, fl_dtype compute) {
  return v.kind == FL_BOOLEAN || v.kind == FL_INTEGER || v.kind == FL_REAL ||
         (v.kind == FL_COMPLEX && is_complex(compute));
}

/// One call, looked through once.
struct Reading {
  const fl_tensor* tensors[kMaxOperands];  ///< the outputs first
  int operand[kMostArguments];             ///< of each argument: index in `tensors`, or -1
  int outputs = 1, count = 1;
  Geometry geometry;
  uint64_t scalars[2 * kMostArguments];  ///< a complex one takes two
  uint32_t n_scalars = 0;

  // False: not for these kernels, with the reason.
  bool read(const fl_call& call, const char** reason, int n_outputs = 1);
};

bool Reading::read(const fl_call& call, const char** reason, int n_outputs) {
  *reason = "more arguments or outputs than a portable kernel takes";
  if (call.n_outs != static_cast<uint32_t>(n_outputs) || call.n_args > kMostArguments) return false;
  outputs = count = n_outputs;
  for (int k = 0; k < outputs; ++k) {
    if (call.outs[k] == nullptr) return false;
    tensors[k] = call.outs[k];
  }
  for (uint32_t i = 0; i < call.n_args; ++i) {
    const fl_value& v = call.args[i];
    operand[i] = -1;
    if (v.kind == FL_TENSOR) {
      if (count == kMaxOperands) return false;
      operand[i] = count;
      tensors[count++] = v.u.tensor;
    } else if (is_scalar(v, call.compute_dtype)) {
      const auto parts = parts_of(v, call.compute_dtype);
      scalars[n_scalars++] = parts[0];
      if (is_complex(call.compute_dtype)) scalars[n_scalars++] = parts[1];
    } else if (v.kind != FL_NONE && v.kind != FL_STRING) {
      *reason = "an argument of a kind that portable kernels do not take";
      return false;
    }
  }
  for (int k = 0; k < count; ++k) {
    *reason = "an element type that portable kernels have no arithmetic for";
    if (element_name(tensors[k]->dtype) == nullptr) return false;
    *reason = "operands of different shapes";
    if (tensors[k]->ndim != tensors[0]->ndim || tensors[k]->numel != tensors[0]->numel) return false;
  }
  *reason = "too many dimensions that cannot be merged";
  return geometry.merge(tensors, count);
}

// ---- Source -----------------------------------------------------------------------------------------------------

std::string members_of(const Geometry& g, uint32_t n_scalars) {
  const std::string text = walk_members(g);
  return n_scalars == 0 ? text : text + ";\n  u64 scalar[" + std::to_string(n_scalars) + "]";
}

std::string load(const Geometry& g, int operand, fl_dtype dtype) {
  return std::string("LOAD_") + element_name(dtype) + "(" + element(g, operand) + ")";
}
std::string store(const Geometry& g, int operand, fl_dtype dtype, const std::string& value) {
  return std::string("    STORE_") + element_name(dtype) + "(" + element(g, operand) + ", (" + value + "));\n";
}

std::vector<Pointer> pointers_of(const Reading& reading) {
  std::vector<Pointer> pointers;
  for (int k = 0; k < reading.count; ++k)
    pointers.push_back({element_name(reading.tensors[k]->dtype), operand_name(k), k < reading.outputs});
  return pointers;
}

const char* largest_of(fl_dtype dtype) {
  switch (dtype) {
    case FL_FLOAT64:
      return "1.7976931348623157e308";
    case FL_FLOAT16:
      return "65504.0f";
    case FL_BFLOAT16:
      return "3.3895313892515355e38f";
    default:
      return "3.4028234663852886e38f";
  }
}

// What an expression may use, for the type computed in.
std::string head_of(const Line& line, fl_dtype compute, fl_dtype out) {
  std::string head = std::string("#define A ") + arithmetic_name(compute) + "\n";
  if (is_complex(compute)) return head + complex_defines(compute) + text_of("complex.h");
  if (is_floating(compute)) {
    head += compute == FL_FLOAT64 ? "#define FL_FLOATING 1\n" : "#define FL_FLOATING 1\n#define FL_F32 1\n";
    head += std::string("#define LARGEST ") + largest_of(out) + "\n";
    head += math_functions(false);
  }
  head += text_of("extrema.h");
  head += text_of("pointwise.h");
  if (line.special) head += text_of("special.h");
  return head;
}

// Number `scalar` of the scalars, as a value of the type computed in.
std::string scalar_value(fl_dtype compute, uint32_t scalar) {
  const auto part = [&](const char* type, uint32_t k) {
    return std::string("BITS_") + type + "(p.scalar[" + std::to_string(k) + "])";
  };
  if (!is_complex(compute)) return part(arithmetic_name(compute), scalar);
  const char* type = compute == FL_COMPLEX128 ? "f64" : "f32";
  return "MAKE(" + part(type, scalar) + ", " + part(type, scalar + 1) + ")";
}

// What an expression does not name is not read: to fill_, its tensor may be new memory.
bool names(const Line& line, const std::string& argument) {
  const std::string text = std::string(line.expression) + " " + (line.second == nullptr ? "" : line.second);
  return text.find(argument) != std::string::npos;
}

Source write_expression(const Line& line, const fl_call& call, const Reading& reading) {
  Source source;
  const fl_dtype compute = call.compute_dtype;
  const std::string a = arithmetic_name(compute);
  source.head = head_of(line, compute, reading.tensors[0]->dtype);
  source.members = members_of(reading.geometry, reading.n_scalars);
  source.pointers = pointers_of(reading);
  std::string statement;
  uint32_t scalar = 0;
  for (uint32_t i = 0; i < call.n_args; ++i) {
    const std::string number = std::to_string(i);
    source.head += "#define HAS" + number + (call.args[i].kind == FL_NONE ? " 0\n" : " 1\n");
    if (call.args[i].kind == FL_STRING) continue;
    const int k = reading.operand[i];
    std::string type = a, value = is_complex(compute) ? "MAKE(0, 0)" : "0";
    if (k >= 0) {
      const fl_dtype dtype = reading.tensors[k]->dtype;
      if (dtype != compute) type = arithmetic_name(dtype);
      value = load(reading.geometry, k, dtype);
    } else if (is_scalar(call.args[i], compute)) {
      value = scalar_value(compute, scalar);
      scalar += is_complex(compute) ? 2 : 1;
    }
    if (names(line, "a" + number)) statement += "    const " + type + " a" + number + " = " + value + ";\n";
  }
  statement += store(reading.geometry, 0, reading.tensors[0]->dtype, line.expression);
  if (line.second != nullptr) statement += store(reading.geometry, 1, reading.tensors[1]->dtype, line.second);
  source.body = walk(reading.geometry, statement);
  return source;
}

// ---- Running ----------------------------------------------------------------------------------------------------

fl_status start(Row& row, const fl_call& call, const Reading& reading, fl_module module) {
  const Geometry& g = reading.geometry;
  runtime::Device& device = row.device(call);
  const Split work = split(device, g.numel, 16384);
  Members<2 + kMaxRank + kMaxOperands * kMaxRank + 2 * kMostArguments> members;
  add_walk_members(members, g, work.chunk);
  for (uint32_t s = 0; s < reading.n_scalars; ++s) members.add(static_cast<int64_t>(reading.scalars[s]));
  Arguments arguments;
  for (int k = 0; k < reading.count; ++k) arguments.add(*reading.tensors[k]);
  arguments.add_members(members.data(), members.bytes());
  return arguments.launch(call, device, module, work.items);
}

void add_geometry(VariantKey& key, const Reading& reading) {
  add_walk_key(key, reading.geometry);
  for (int k = 0; k < reading.count; ++k) key.add(static_cast<uint32_t>(reading.tensors[k]->dtype));
}

class ExpressionRow : public Row {
 public:
  ExpressionRow(runtime::Chip& chip, Language language, std::vector<const Line*> lines)
      : Row(chip, language), lines_(std::move(lines)) {}

  const Line* line_of(const fl_call& call) const {
    for (const Line* line : lines_) {
      if ((mask_of(line->types) & FL_DTYPE_BIT(call.compute_dtype)) != 0 && mode_matches(*line, call)) return line;
    }
    return nullptr;
  }

  fl_status run(const fl_call& call) {
    Reading reading;
    const char* reason = nullptr;
    const Line* line = line_of(call);
    if (line == nullptr || !reading.read(call, &reason, outputs_of(*line)))
      return decline(reason == nullptr ? "no expression" : reason);
    if (reading.geometry.numel == 0) return FL_OK;
    VariantKey key;
    key.add(static_cast<uint32_t>(line - kTable) & 0xff);
    key.add(static_cast<uint32_t>(line - kTable) >> 8);
    key.add(static_cast<uint32_t>(call.compute_dtype));
    for (uint32_t i = 0; i < call.n_args; ++i)
      key.add(is_scalar(call.args[i], call.compute_dtype) ? uint32_t{FL_REAL}
                                                          : static_cast<uint32_t>(call.args[i].kind));
    add_geometry(key, reading);
    return start(*this, call, reading, variant(call, key, [&] { return write_expression(*line, call, reading); }));
  }

  static fl_status supports(const fl_call* call) {
    const auto* row = &row_of<ExpressionRow>(*call);
    const Line* line = row->line_of(*call);
    if (line == nullptr) return decline("no portable expression for this type or mode");
    Reading reading;
    const char* reason = nullptr;
    return reading.read(*call, &reason, outputs_of(*line)) ? FL_OK : decline(reason);
  }

 private:
  const std::vector<const Line*> lines_;
};

// ---- Copies and fills -------------------------------------------------------------------------------------------

class CopyRow : public Row {
 public:
  using Row::Row;

  // The tensors as elements that the dialect has a name for.
  static bool read(const fl_call& call, fl_tensor (&storage)[2], Reading& reading, const char** reason) {
    if (call.n_outs != 1 || call.args[1].kind != FL_TENSOR) return false;
    storage[0] = *call.outs[0];
    storage[1] = *call.args[1].u.tensor;
    if (storage[0].dtype == storage[1].dtype) storage[0].dtype = storage[1].dtype = carrier(storage[0].dtype);
    fl_value from{};
    from.kind = FL_TENSOR;
    from.u.tensor = &storage[1];
    fl_tensor* out = &storage[0];
    fl_call copy = call;
    copy.args = &from;
    copy.n_args = 1;
    copy.outs = &out;
    return reading.read(copy, reason);
  }

  // Elements that lie side by side, as words of 32 bits: several vectors are read before any is written, for a loop
  // that copies one at a time becomes a call of memcpy, which is slow in some runtimes.
  static Source write_words() {
    Source source;
    source.members = "  i64 words, chunk";
    source.pointers = {{"u32", "out", true}, {"u32", "x"}};
    source.body =
        "  i64 j = item * p.chunk;\n"
        "  const i64 end = j + p.chunk < p.words ? j + p.chunk : p.words;\n"
        "  for (; j + 64 <= end; j += 64) {\n"
        "    const u32x16 a = VECTOR_LOAD_bytes(x + j), b = VECTOR_LOAD_bytes(x + j + 16);\n"
        "    const u32x16 c = VECTOR_LOAD_bytes(x + j + 32), d = VECTOR_LOAD_bytes(x + j + 48);\n"
        "    VECTOR_STORE_bytes(out + j, a);\n    VECTOR_STORE_bytes(out + j + 16, b);\n"
        "    VECTOR_STORE_bytes(out + j + 32, c);\n    VECTOR_STORE_bytes(out + j + 48, d);\n"
        "  }\n"
        "  for (; j < end; ++j) out[j] = x[j];\n";
    return source;
  }

  static bool moves_words(const Reading& reading) {
    const Geometry& g = reading.geometry;
    const fl_tensor &out = *reading.tensors[0], &in = *reading.tensors[1];
    return out.dtype == in.dtype && g.rank == 1 && g.strides[0][0] == 1 && g.strides[1][0] == 1 &&
           (g.numel * element_bytes(out.dtype)) % 4 == 0 && (out.address | in.address) % 4 == 0;
  }

  fl_status run_words(const fl_call& call, const Reading& reading) {
    const int64_t words = reading.geometry.numel * element_bytes(reading.tensors[0]->dtype) / 4;
    VariantKey key;
    key.add(0);  // no rank
    const fl_module module = variant(call, key, write_words);
    const Split work = split(device(call), words, 16384);
    Members<2> members;
    members.add(words);
    members.add(work.chunk);
    Arguments arguments;
    for (int k = 0; k < 2; ++k) arguments.add(*reading.tensors[k]);
    arguments.add_members(members.data(), members.bytes());
    return arguments.launch(call, device(call), module, work.items);
  }

  static Source write(const Reading& reading) {
    Source source;
    source.members = members_of(reading.geometry, 0);
    source.pointers = pointers_of(reading);
    const fl_dtype to = reading.tensors[0]->dtype, from = reading.tensors[1]->dtype;
    source.body = walk(reading.geometry, "    const " + std::string(arithmetic_name(from)) +
                                             " v = " + load(reading.geometry, 1, from) + ";\n" +
                                             store(reading.geometry, 0, to, converted(from, to)));
    return source;
  }

  // Of v. C leaves a negative floating-point number's way to an unsigned type open; by way of the widest it is defined.
  static std::string converted(fl_dtype from, fl_dtype to) {
    if (is_complex(to)) {
      const std::string make = std::string("MAKE_") + element_name(to);
      return from == to ? "v" : make + (is_complex(from) ? "(RE(v), IM(v))" : "(v, 0)");
    }
    if (is_complex(from)) return to == FL_BOOL ? "RE(v) != 0 || IM(v) != 0" : is_integer(to) ? "(i64)RE(v)" : "RE(v)";
    return is_floating(from) && is_integer(to) ? "(i64)v" : "v";
  }

  fl_status run(const fl_call& call) {
    fl_tensor storage[2];
    Reading reading;
    const char* reason = "not a copy of one tensor";
    if (!read(call, storage, reading, &reason)) return decline(reason);
    if (reading.geometry.numel == 0) return FL_OK;
    if (moves_words(reading)) return run_words(call, reading);
    VariantKey key;
    add_geometry(key, reading);
    return start(*this, call, reading, variant(call, key, [&] { return write(reading); }));
  }

  static fl_status supports(const fl_call* call) {
    fl_tensor storage[2];
    Reading reading;
    const char* reason = "not a copy of one tensor";
    return read(*call, storage, reading, &reason) ? FL_OK : decline(reason);
  }
};

}  // namespace

void add_pointwise(Rows& rows, runtime::Chip& chip, Language language) {
  std::map<std::string, std::vector<const Line*>> lines;
  for (const Line& line : kTable) lines[line.op].push_back(&line);
  for (const auto& [op, of_op] : lines) {
    uint64_t dtypes = 0;
    for (const Line* line : of_op) dtypes |= mask_of(line->types);
    const bool mutation = op.find("_.") != std::string::npos;  // of a type of its own, which nothing promotes
    constexpr uint32_t kFunctional = FL_KERNEL_PROMOTE | FL_KERNEL_BROADCAST | FL_KERNEL_IN_PLACE_SAFE;
    rows.push_back(make_row(of_op[0]->op, mutation ? 0 : kFunctional, run_row<ExpressionRow>, ExpressionRow::supports,
                            keep<ExpressionRow>(chip, language, of_op), dtypes));
  }
  rows.push_back(make_row("aten::copy", 0, run_row<CopyRow>, CopyRow::supports, keep<CopyRow>(chip, language), 0));
}

}  // namespace torch_fl::portable
