// SPDX-License-Identifier: Apache-2.0
#include "expression.h"

#include <cmath>
#include <cstdio>
#include <cstring>

namespace torch_fl::runtime {
namespace {

struct DtypeFacts {
  const char* name;
  int64_t bytes;
};
constexpr DtypeFacts kDtypes[] = {
    {"uint8", 1},         {"int8", 1},        {"int16", 2},         {"int32", 4},           {"int64", 8},
    {"float16", 2},       {"float32", 4},     {"float64", 8},       {"complex32", 4},       {"complex64", 8},
    {"complex128", 16},   {"bool", 1},        {"bfloat16", 2},      {"uint16", 2},          {"uint32", 4},
    {"uint64", 8},        {"float8_e5m2", 1}, {"float8_e4m3fn", 1}, {"float8_e5m2fnuz", 1}, {"float8_e4m3fnuz", 1},
    {"float8_e8m0fnu", 1}};

bool known(fl_dtype dtype) { return dtype >= 0 && static_cast<size_t>(dtype) < std::size(kDtypes); }

// ---- Values -------------------------------------------------------------------------------------------------------
Value integer(int64_t i) {
  Value v;
  v.kind = Value::Integer, v.i = i;
  return v;
}
Value real(double d) {
  Value v;
  v.kind = Value::Real, v.d = d;
  return v;
}
Value boolean(bool b) {
  Value v;
  v.kind = Value::Boolean, v.i = b ? 1 : 0;
  return v;
}
Value of_kind(Value::Kind kind, int64_t i) {
  Value v;
  v.kind = kind, v.i = i;
  return v;
}
Value text(const char* s) {
  Value v{};
  if (s != nullptr) v.kind = Value::String, v.s = s;
  return v;
}

bool is_whole(const Value& v) { return v.kind == Value::Integer || v.kind == Value::Boolean; }
bool is_number(const Value& v) { return is_whole(v) || v.kind == Value::Real; }
double as_real(const Value& v) { return v.kind == Value::Real ? v.d : static_cast<double>(v.i); }

enum class Order : uint8_t { Less, Equal, Greater, None };

Order order_of(double a, double b) {
  return a < b ? Order::Less : a > b ? Order::Greater : a == b ? Order::Equal : Order::None;
}

/// Exact: an integer beyond 2^53 is not rounded first.
Order order_of(int64_t a, double b) {
  if (std::isnan(b)) return Order::None;
  if (b >= 0x1p63) return Order::Less;
  if (b < -0x1p63) return Order::Greater;
  const double whole = std::floor(b);
  const auto floor = static_cast<int64_t>(whole);
  if (a != floor) return a < floor ? Order::Less : Order::Greater;
  return whole < b ? Order::Less : Order::Equal;
}

Order order_of(const Value& a, const Value& b) {
  if (is_whole(a) && is_whole(b)) return a.i < b.i ? Order::Less : a.i > b.i ? Order::Greater : Order::Equal;
  if (is_whole(a)) return order_of(a.i, b.d);
  if (!is_whole(b)) return order_of(a.d, b.d);
  const Order turned = order_of(b.i, a.d);
  return turned == Order::Less ? Order::Greater : turned == Order::Greater ? Order::Less : turned;
}

/// 1, 0, or -1 where the two cannot be compared.
int equal(const Value& a, const Value& b) {
  if (is_number(a) && is_number(b)) return order_of(a, b) == Order::Equal ? 1 : 0;
  if (a.kind != b.kind) return -1;
  return a.kind == Value::String ? std::strcmp(a.s, b.s) == 0 : a.i == b.i;
}

// As in Python, whose results have the sign of the divisor.
double real_modulo(double a, double b) {
  double rest = std::fmod(a, b);
  if (rest == 0) return std::copysign(0.0, b);
  return (rest < 0) != (b < 0) ? rest + b : rest;
}
double real_floor_divide(double a, double b) {
  double rest = std::fmod(a, b);
  double quotient = (a - rest) / b;
  if (rest != 0 && (rest < 0) != (b < 0)) quotient -= 1;
  if (quotient == 0) return std::copysign(0.0, a / b);
  const double whole = std::floor(quotient);
  return quotient - whole > 0.5 ? whole + 1 : whole;
}

Value whole_arithmetic(int32_t code, int64_t a, int64_t b) {
  int64_t r = 0;
  switch (code) {
    case kAdd:
      return __builtin_add_overflow(a, b, &r) ? Value{} : integer(r);
    case kSubtract:
      return __builtin_sub_overflow(a, b, &r) ? Value{} : integer(r);
    case kMultiply:
      return __builtin_mul_overflow(a, b, &r) ? Value{} : integer(r);
    default:
      break;
  }
  if (b == 0) return {};
  if (code == kDivide) return real(static_cast<double>(a) / static_cast<double>(b));
  if (b == -1) {
    if (code == kModulo) return integer(0);
    return __builtin_sub_overflow(int64_t{0}, a, &r) ? Value{} : integer(r);
  }
  const int64_t rest = a % b;
  const bool down = rest != 0 && (rest < 0) != (b < 0);
  return code == kModulo ? integer(down ? rest + b : rest) : integer(a / b - (down ? 1 : 0));
}

Value arithmetic(int32_t code, const Value& a, const Value& b) {
  if (is_whole(a) && is_whole(b)) return whole_arithmetic(code, a.i, b.i);
  if (a.kind == Value::Address && is_whole(b) && (code == kAdd || code == kSubtract)) {
    const auto base = static_cast<uint64_t>(a.i), by = static_cast<uint64_t>(b.i);
    return of_kind(Value::Address, static_cast<int64_t>(code == kAdd ? base + by : base - by));
  }
  if (!is_number(a) || !is_number(b)) return {};
  const double x = as_real(a), y = as_real(b);
  switch (code) {
    case kAdd:
      return real(x + y);
    case kSubtract:
      return real(x - y);
    case kMultiply:
      return real(x * y);
    default:
      break;
  }
  if (y == 0 || (code != kDivide && !(std::isfinite(x) && std::isfinite(y)))) return {};
  return real(code == kDivide ? x / y : code == kModulo ? real_modulo(x, y) : real_floor_divide(x, y));
}

Value negated(const Value& v) {
  if (v.kind == Value::Real) return real(-v.d);
  return is_whole(v) ? whole_arithmetic(kSubtract, 0, v.i) : Value{};
}

Value absolute(const Value& v) {
  if (v.kind == Value::Real) return real(std::fabs(v.d));
  if (!is_whole(v)) return {};
  return v.i < 0 ? whole_arithmetic(kSubtract, 0, v.i) : integer(v.i);
}

Value compared(int32_t code, const Value& a, const Value& b) {
  if (code == kEqual || code == kNotEqual) {
    const int same = equal(a, b);
    return same < 0 ? Value{} : boolean((same == 1) == (code == kEqual));
  }
  if (!is_number(a) || !is_number(b)) return {};
  const Order order = order_of(a, b);
  switch (code) {
    case kLess:
      return boolean(order == Order::Less);
    case kLessEqual:
      return boolean(order == Order::Less || order == Order::Equal);
    case kGreater:
      return boolean(order == Order::Greater);
    default:
      return boolean(order == Order::Greater || order == Order::Equal);
  }
}

Value extremum(int32_t code, const Value* values, int64_t n) {
  Value best = values[0];
  for (int64_t i = 0; i < n; ++i) {
    if (!is_number(values[i])) return {};
    if (i > 0 && order_of(values[i], best) == (code == kMin ? Order::Less : Order::Greater)) best = values[i];
  }
  return best;
}

/// 1, 0, or -1 where there is no telling.
int truth(const Value& v) {
  if (v.kind == Value::Real) return v.d != 0 ? 1 : 0;
  return is_whole(v) ? (v.i != 0 ? 1 : 0) : -1;
}

/// One of `n` values; undefined where it cannot be compared with one of them.
int member(const Value& v, const Value* values, int64_t n) {
  int found = 0;
  for (int64_t i = 0; i < n; ++i) {
    const int same = equal(v, values[i]);
    if (same < 0) return -1;
    found |= same;
  }
  return found;
}

// ---- The call -----------------------------------------------------------------------------------------------------
const fl_value* argument(const fl_call& call, int32_t index) {
  return index >= 0 && static_cast<uint32_t>(index) < call.n_args ? &call.args[index] : nullptr;
}

const fl_tensor* output(const fl_call& call, int32_t index) {
  const auto at = static_cast<uint32_t>(-1 - index);
  return at < call.n_outs ? call.outs[at] : nullptr;
}

const fl_tensor* tensor(const fl_call& call, int32_t index, const Trace& trace) {
  if (index == kTraced) return trace.tensor;
  if (index < 0) return output(call, index);
  const fl_value* v = argument(call, index);
  return v != nullptr && v->kind == FL_TENSOR ? v->u.tensor : nullptr;
}

Value scalar(const fl_value& v) {
  switch (v.kind) {
    case FL_BOOLEAN:
      return boolean(v.u.i != 0);
    case FL_INTEGER:
      return integer(v.u.i);
    case FL_REAL:
      return real(v.u.d);
    case FL_STRING:
      return text(v.u.s);
    case FL_DTYPE:
      return of_kind(Value::Type, v.u.i);
    default:
      return {};
  }
}

int64_t length(const fl_value& v) {
  return v.kind >= FL_INTEGERS && v.kind <= FL_VALUES ? int64_t{v.count} : int64_t{-1};
}

Value element(const fl_value& v, int64_t i) {
  const int64_t n = length(v);
  if (i < 0) i += n;
  if (n < 0 || i < 0 || i >= n) return {};
  switch (v.kind) {
    case FL_INTEGERS:
      return integer(v.u.ints[i]);
    case FL_REALS:
      return real(v.u.reals[i]);
    case FL_BOOLEANS:
      return boolean(v.u.bools[i] != 0);
    case FL_VALUES:
      return scalar(v.u.values[i]);
    default:
      return {};
  }
}

Value dimension(const int64_t* values, const fl_tensor& t, int64_t d) {
  if (d < 0) d += t.ndim;
  return d < 0 || d >= t.ndim ? Value{} : integer(values[d]);
}

Value present(const fl_call& call, int32_t index) {
  if (index < 0) return boolean(output(call, index) != nullptr);
  const fl_value* v = argument(call, index);
  return boolean(v != nullptr && v->kind != FL_NONE);
}

// ---- Conditions on everything of a kind ---------------------------------------------------------------------------
/// `holds` of every tensor that the argument is, or lists. A tensor that is absent, or a number instead, has no say.
template <typename Holds>
bool every_tensor(const fl_call& call, int32_t index, Trace& trace, Holds&& holds) {
  trace.item = -1;
  trace.tensor = tensor(call, index, trace);
  if (trace.tensor != nullptr) return holds(*trace.tensor);
  const fl_value* v = argument(call, index);
  if (v == nullptr || v->kind != FL_TENSORS) return true;
  for (uint32_t k = 0; k < v->count; ++k) {
    trace.item = k;
    trace.tensor = v->u.tensors[k];
    if (trace.tensor != nullptr && !holds(*trace.tensor)) return false;
  }
  return true;
}

template <typename Holds>
bool every_size(const fl_call& call, int32_t index, const Value& which, Trace& trace, Holds&& holds) {
  return every_tensor(call, index, trace, [&](const fl_tensor& t) {
    if (which.kind == Value::Integer) {
      trace.position = which.i;
      const Value size = dimension(t.sizes, t, which.i);
      return size.kind == Value::Undefined || holds(size.i);  // no such dimension: nothing to ask
    }
    for (int32_t d = 0; d < t.ndim; ++d) {
      trace.position = d;
      if (!holds(t.sizes[d])) return false;
    }
    return true;
  });
}

bool has_bit(int64_t bits, int64_t bit) {
  return bit >= 0 && bit < 64 && ((static_cast<uint64_t>(bits) >> bit) & 1) != 0;
}

inline bool every_dtype_in(const Instruction& step, const fl_call& call, Trace& trace) {
  return every_tensor(call, step.index, trace, [&](const fl_tensor& t) { return has_bit(step.integer, t.dtype); });
}
inline bool every_ndim_in(const Instruction& step, const fl_call& call, Trace& trace) {
  return every_tensor(call, step.index, trace, [&](const fl_tensor& t) { return has_bit(step.integer, t.ndim); });
}
inline bool every_numel_at_most(const Instruction& step, const fl_call& call, Trace& trace) {
  return every_tensor(call, step.index, trace, [&](const fl_tensor& t) { return t.numel <= step.integer; });
}
inline bool every_size_of(const Instruction& step, const fl_call& call, const Value& which, Trace& trace) {
  const int64_t k = step.integer;
  if (step.code == kEverySizeMultiple) {
    if ((k & (k - 1)) == 0) {  // a division costs as much as the rest of the check
      return every_size(call, step.index, which, trace, [&](int64_t size) { return (size & (k - 1)) == 0; });
    }
    return every_size(call, step.index, which, trace, [&](int64_t size) { return size % k == 0; });
  }
  const bool at_least = step.code == kEverySizeAtLeast;
  return every_size(call, step.index, which, trace, [&](int64_t size) { return at_least ? size >= k : size <= k; });
}

bool holds_of_value(const Instruction& step, const Value& v, const Value* values) {
  if (step.code == kEveryIn) return member(v, values, step.integer) == 1;
  const Value answer = compared(step.code == kEveryAtLeast ? kGreaterEqual : kLessEqual, v, values[0]);
  return answer.kind == Value::Boolean && answer.i != 0;
}

bool every_of_values(const Instruction& step, const fl_call& call, const Value* values, Trace& trace) {
  const fl_value* v = argument(call, step.index);
  if (v == nullptr) return false;
  const int64_t n = length(*v);
  if (n < 0) return holds_of_value(step, scalar(*v), values);
  for (int64_t i = 0; i < n; ++i) {
    trace.position = i;
    if (!holds_of_value(step, element(*v, i), values)) return false;
  }
  return true;
}

Value of_tensor(const Instruction& step, const fl_tensor& t) {
  switch (step.code) {
    case kSizeAt:
      return dimension(t.sizes, t, step.integer);
    case kStrideAt:
      return dimension(t.strides, t, step.integer);
    case kNdim:
      return integer(t.ndim);
    case kNumel:
      return integer(t.numel);
    case kDtype:
      return of_kind(Value::Type, t.dtype);
    case kItemsize:
      return known(t.dtype) ? integer(kDtypes[t.dtype].bytes) : Value{};
    case kData:
      return of_kind(Value::Address, static_cast<int64_t>(t.address));
    case kContiguous:
      return boolean((t.flags & FL_TENSOR_CONTIGUOUS) != 0);
    default:
      return boolean((t.flags & FL_TENSOR_CHANNELS_LAST) != 0);
  }
}

bool select_tensor(const fl_value* list, const Value& which, Trace& trace) {
  if (list == nullptr || list->kind != FL_TENSORS || which.kind != Value::Integer) return false;
  const int64_t i = which.i < 0 ? which.i + list->count : which.i;
  if (i < 0 || i >= list->count) return false;
  trace.item = i;
  trace.tensor = list->u.tensors[i];
  return trace.tensor != nullptr;
}

}  // namespace

// Whatever has no value makes everything computed from it undefined, so that ends the program.
Value evaluate(const Program& program, const fl_call& call, Trace& trace) {
  Value stack[kMaxDepth];
  Value* top = stack;  // the next free place
  const size_t n = program.size();
  for (size_t at = 0; at < n; ++at) {
    const Instruction& step = program[at];
    Value result{};
    switch (step.code) {
      case kInteger:
        result = integer(step.integer);
        break;
      case kReal:
        result = real(step.real);
        break;
      case kBoolean:
        result = boolean(step.integer != 0);
        break;
      case kString:
        result = text(reinterpret_cast<const char*>(step.integer));
        break;
      case kType:
        result = of_kind(Value::Type, step.integer);
        break;
      case kComputeDtype:
        result = of_kind(Value::Type, call.compute_dtype);
        break;
      case kDeviceIndex:
        result = integer(call.device_index);
        break;
      case kStream:
        result = of_kind(Value::Address, reinterpret_cast<int64_t>(call.stream));
        break;
      case kPosition:
        result = integer(trace.position);
        break;
      case kValue: {
        const fl_value* v = argument(call, step.index);
        if (v != nullptr) result = scalar(*v);
        break;
      }
      case kAddress: {
        const fl_value* v = argument(call, step.index);
        if (v != nullptr && v->kind == FL_INTEGER) result = of_kind(Value::Address, v->u.i);
        break;
      }
      case kPresent:
        result = present(call, step.index);
        break;
      case kLength: {
        const fl_value* v = argument(call, step.index);
        if (v != nullptr && length(*v) >= 0) result = integer(length(*v));
        break;
      }
      case kElement: {
        const fl_value* v = argument(call, step.index);
        const Value i = *--top;
        if (v != nullptr && is_whole(i)) result = element(*v, i.i);
        break;
      }
      case kTensor:
        if (!select_tensor(argument(call, step.index), *--top, trace)) return {};
        continue;
      case kSize:
      case kStride: {
        const fl_tensor* t = tensor(call, step.index, trace);
        const Value d = *--top;
        if (t != nullptr && is_whole(d)) result = dimension(step.code == kSize ? t->sizes : t->strides, *t, d.i);
        break;
      }
      case kSizeAt:
      case kStrideAt:
      case kNdim:
      case kNumel:
      case kDtype:
      case kItemsize:
      case kData:
      case kContiguous:
      case kChannelsLast: {
        const fl_tensor* t = tensor(call, step.index, trace);
        if (t != nullptr) result = of_tensor(step, *t);
        break;
      }
      case kAdd:
      case kSubtract:
      case kMultiply:
      case kFloorDivide:
      case kModulo:
      case kDivide:
        top -= 2;
        result = arithmetic(step.code, top[0], top[1]);
        break;
      case kNegate:
        result = negated(*--top);
        break;
      case kAbs:
        result = absolute(*--top);
        break;
      case kNot: {
        const int t = truth(*--top);
        if (t >= 0) result = boolean(t == 0);
        break;
      }
      case kEqual:
      case kNotEqual:
      case kLess:
      case kLessEqual:
      case kGreater:
      case kGreaterEqual:
        top -= 2;
        result = compared(step.code, top[0], top[1]);
        break;
      case kMin:
      case kMax:
        top -= step.integer;
        result = extremum(step.code, top, step.integer);
        break;
      case kIn: {
        top -= step.integer + 1;
        const int found = member(top[0], top + 1, step.integer);
        if (found >= 0) result = boolean(found == 1);
        break;
      }
      case kJump:
        at += static_cast<size_t>(step.integer);
        continue;
      case kJumpIfFalse: {
        const int t = truth(*--top);
        if (t < 0) return {};
        if (t == 0) at += static_cast<size_t>(step.integer);
        continue;
      }
      case kJumpIfFalseKeep:
      case kJumpIfTrueKeep: {
        const int t = truth(top[-1]);
        if (t < 0) return {};
        if (t == (step.code == kJumpIfTrueKeep ? 1 : 0)) {
          at += static_cast<size_t>(step.integer);
        } else {
          --top;
        }
        continue;
      }
      case kEveryIn:
      case kEveryAtLeast:
      case kEveryAtMost:
        top -= step.code == kEveryIn ? step.integer : 1;
        result = boolean(every_of_values(step, call, top, trace));
        break;
      case kEveryDtypeIn:
        result = boolean(every_dtype_in(step, call, trace));
        break;
      case kEveryNdimIn:
        result = boolean(every_ndim_in(step, call, trace));
        break;
      case kEveryNumelAtMost:
        result = boolean(every_numel_at_most(step, call, trace));
        break;
      case kEverySizeMultiple:
      case kEverySizeAtLeast:
      case kEverySizeAtMost: {
        const Value which = *--top;
        result = boolean(every_size_of(step, call, which, trace));
        break;
      }
      default:
        return {};
    }
    if (result.kind == Value::Undefined) return result;
    *top++ = result;
  }
  return top[-1];
}

namespace {

/// A whole number or whole numbers, compared with constants. Null where either is something else.
const int64_t* whole_values(const fl_value& v, size_t* count) {
  *count = v.kind == FL_INTEGERS ? v.count : 1;
  if (v.kind == FL_INTEGERS) return v.u.ints;
  return v.kind == FL_INTEGER || v.kind == FL_BOOLEAN ? &v.u.i : nullptr;
}

bool satisfies(const Program& program, int32_t code, int64_t value) {
  if (code == kEveryAtLeast) return value >= program[0].integer;
  if (code == kEveryAtMost) return value <= program[0].integer;
  for (size_t i = 0; i + 1 < program.size(); ++i) {
    if (value == program[i].integer) return true;
  }
  return false;
}

/// 1, 0, or -1 where it is not that simple.
int every_whole(const Program& program, const fl_call& call, Trace& trace) {
  for (size_t i = 0; i + 1 < program.size(); ++i) {
    if (program[i].code != kInteger && program[i].code != kBoolean) return -1;
  }
  const fl_value* v = argument(call, program.back().index);
  size_t n = 0;
  const int64_t* values = v == nullptr ? nullptr : whole_values(*v, &n);
  if (values == nullptr) return -1;
  for (size_t i = 0; i < n; ++i) {
    trace.position = static_cast<int64_t>(i);
    if (!satisfies(program, program.back().code, values[i])) return 0;
  }
  return 1;
}

/// What constraints become, without a stack: one condition with constants. -1: something else.
[[gnu::flatten]] int holds_at_once(const Program& program, const fl_call& call, Trace& trace) {
  const Instruction& last = program.back();
  switch (last.code) {
    case kEveryDtypeIn:
      return program.size() == 1 ? every_dtype_in(last, call, trace) : -1;
    case kEveryNdimIn:
      return program.size() == 1 ? every_ndim_in(last, call, trace) : -1;
    case kEveryNumelAtMost:
      return program.size() == 1 ? every_numel_at_most(last, call, trace) : -1;
    case kEverySizeMultiple:
    case kEverySizeAtLeast:
    case kEverySizeAtMost:
      if (program.size() != 2) return -1;
      if (program[0].code == kInteger) return every_size_of(last, call, integer(program[0].integer), trace);
      return program[0].code == kBoolean ? every_size_of(last, call, boolean(false), trace) : -1;
    case kEveryIn:
      return static_cast<int64_t>(program.size()) == last.integer + 1 ? every_whole(program, call, trace) : -1;
    case kEveryAtLeast:
    case kEveryAtMost:
      return program.size() == 2 ? every_whole(program, call, trace) : -1;
    default:
      return -1;
  }
}

}  // namespace

bool holds(const Program& program, const fl_call& call, Trace& trace) {
  const int at_once = holds_at_once(program, call, trace);
  return at_once >= 0 ? at_once == 1 : truth(evaluate(program, call, trace)) == 1;
}

Value evaluate(const Program& program, const fl_call& call) {
  Trace trace;
  return evaluate(program, call, trace);
}

std::string to_text(const Value& value) {
  switch (value.kind) {
    case Value::Integer:
      return std::to_string(value.i);
    case Value::Real: {
      char digits[32];
      std::snprintf(digits, sizeof digits, "%.6g", value.d);
      return digits;
    }
    case Value::Boolean:
      return value.i != 0 ? "true" : "false";
    case Value::String:
      return std::string("'") + value.s + "'";
    case Value::Type:
      return dtype_name(static_cast<fl_dtype>(value.i));
    case Value::Address: {
      char digits[32];
      std::snprintf(digits, sizeof digits, "0x%llx", static_cast<unsigned long long>(value.i));
      return digits;
    }
    default:
      return "nothing";
  }
}

const char* dtype_name(fl_dtype dtype) { return known(dtype) ? kDtypes[dtype].name : "another type"; }
int64_t dtype_bytes(fl_dtype dtype) { return known(dtype) ? kDtypes[dtype].bytes : 0; }

}  // namespace torch_fl::runtime
