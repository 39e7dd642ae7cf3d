// SPDX-License-Identifier: Apache-2.0
// Fused optimizer steps over lists of parameters, and gradient scaling (kernels/optimizer.h). They mutate their
// arguments. Several parameters share a launch.
#include <cmath>

#include "families.h"
#include "function.h"
#include "runtime/internal.h"

namespace torch_fl::portable {
namespace {

constexpr const char* kFile = "optimizer.h";
constexpr uint32_t kParts = 6;

struct Step {
  const char* op;
  const char* function;
  const char* setting;
  bool decoupled;    ///< weight decay
  uint32_t states;   ///< the first lists: parameters, gradients and what runs along them
  uint32_t steps;    ///< list of step counts; 0: none
  uint32_t rate;     ///< the learning rate's argument
  uint32_t scaling;  ///< grad_scale's; found_inf's is the next
  uint32_t maximize;
};
#define BOTH(op, ...) \
  {op, __VA_ARGS__}, { op ".tensor_lr", __VA_ARGS__ }
const Step kSteps[] = {
    BOTH("aten::_fused_adam_", "adam", "ADAM", false, 5, 5, 6, 13, 12),
    BOTH("aten::_fused_adamw_", "adam", "ADAM", true, 5, 5, 6, 13, 12),
    BOTH("aten::_fused_sgd_", "sgd", "SGD", false, 3, 0, 5, 10, 8),
    BOTH("aten::_fused_adagrad_", "adagrad", "ADAGRAD", false, 3, 3, 4, 9, 8),
};
#undef BOTH

/// Element i of a list argument, or null.
const fl_tensor* element(const fl_call& call, uint32_t list, uint32_t i) {
  const fl_value& v = call.args[list];
  return v.kind == FL_TENSORS && i < v.count ? v.u.tensors[i] : nullptr;
}

// Laid out the same way, without gaps.
bool same_layout(const fl_tensor& a, const fl_tensor& b) {
  if (a.dtype != b.dtype || a.ndim != b.ndim) return false;
  if (((a.flags & b.flags) & (FL_TENSOR_CONTIGUOUS | FL_TENSOR_CHANNELS_LAST)) == 0) return false;
  return std::equal(a.sizes, a.sizes + a.ndim, b.sizes);
}
bool is_one(const fl_tensor* t, fl_dtype dtype) { return t != nullptr && t->dtype == dtype && t->numel == 1; }

class StepRow : public Row {
 public:
  StepRow(runtime::Chip& chip, Language language, const Step& line) : Row(chip, language), line_(line) {}

  bool is_adam() const { return line_.states == 5; }
  // Momentum buffers are listed also where there is no momentum, and the largest squares are without amsgrad.
  bool uses(const fl_call& call, uint32_t list) const {
    if (is_adam()) return list < 4 || call.args[11].u.i != 0;
    return list < 2 || line_.steps != 0 || real_of(call.args[4]) != 0;
  }

  fl_status run(const fl_call& call) {
    const char* reason = check(call, true);
    if (reason != nullptr) return decline(reason);
    const uint32_t count = call.args[0].count;
    for (uint32_t first = 0; first < count;) {
      uint32_t last = first;
      int64_t all = 0;
      for (; last < count && last - first < kParts; ++last) all += element(call, 0, last)->numel;
      const fl_status status = all == 0 ? FL_OK : launch_some(call, first, last, all);
      if (status != FL_OK) return status;
      first = last;
    }
    return FL_OK;
  }

  static fl_status supports(const fl_call* call) {
    const char* reason = row_of<StepRow>(*call).check(*call, false);
    return reason == nullptr ? FL_OK : decline(reason);
  }

 private:
  fl_status launch_some(const fl_call& call, uint32_t first, uint32_t last, int64_t all) {
    const fl_tensor *scale = input_of(call, line_.scaling), *found = input_of(call, line_.scaling + 1);
    const fl_tensor* rate = input_of(call, line_.rate);
    const fl_dtype dtype = element(call, 0, first)->dtype;
    const int64_t chunk = share(device(call), all, 1).chunk;
    FunctionCall f(kFile, line_.function, dtype);
    f.type("X", dtype).type("RATE", rate != nullptr ? rate->dtype : FL_FLOAT32).setting(line_.setting, 1);
    f.setting("HAS_RATE", given(rate)).setting("HAS_SCALE", given(scale)).setting("HAS_FOUND", given(found));
    f.setting("MAXIMIZE", flag(call, line_.maximize));
    f.in("f32", scale).in("f32", found).in("RATE", rate).word(chunk);
    f.real(rate != nullptr ? 0 : real_of(call.args[line_.rate]));
    add_numbers(call, f);
    for (uint32_t k = 0; k < (last - first > 1 ? kParts : 1); ++k) {
      const uint32_t i = first + k;
      const fl_tensor* parameter = i < last ? element(call, 0, i) : nullptr;  // null: an empty part
      const int64_t n = parameter == nullptr ? 0 : parameter->numel;
      f.part(static_cast<uint64_t>((n + chunk - 1) / chunk));
      for (uint32_t list = 0; list < line_.states; ++list) {
        f.out("X", n > 0 && uses(call, list) ? element(call, list, i) : nullptr);
      }
      if (line_.steps != 0) f.in("f32", n > 0 ? element(call, line_.steps, i) : nullptr);
      f.word(n);
    }
    return f.launch(*this, call, f.items_of_parts());
  }

  void add_numbers(const fl_call& call, FunctionCall& f) const {
    const auto number = [&](uint32_t i) { return real_of(call.args[i]); };
    if (is_adam()) {
      f.setting("DECOUPLED", line_.decoupled ? 1 : 0).setting("AMSGRAD", flag(call, 11));
      for (const uint32_t i : {7, 8, 9, 10}) f.real(number(i));
      f.real(std::log(number(7))).real(std::log(number(8))).real(1 - number(7)).real(1 - number(8));
    } else if (line_.steps == 0) {
      f.setting("HAS_MOMENTUM", number(4) != 0 ? 1 : 0).setting("NESTEROV", flag(call, 7));
      f.setting("FIRST", flag(call, 9)).real(number(3)).real(number(4)).real(1 - number(6));
    } else {
      f.real(number(5)).real(number(6)).real(number(7));
    }
  }

  static uint32_t flag(const fl_call& call, uint32_t i) { return call.args[i].u.i != 0 ? 1 : 0; }

  // Null, or why not. `values`: numbers may be looked at, too.
  const char* check(const fl_call& call, bool values) const {
    const fl_value& parameters = call.args[0];
    if (parameters.kind != FL_TENSORS) return "no list of parameters";
    for (uint32_t i = 0; i < parameters.count; ++i) {
      const fl_tensor* parameter = element(call, 0, i);
      if (parameter == nullptr || !is_floating(parameter->dtype)) return "a parameter is not floating-point";
      if (parameter->dtype != element(call, 0, 0)->dtype) return "parameters of several types";
      for (uint32_t list = 0; list < line_.states; ++list) {
        const fl_tensor* state = element(call, list, i);
        if (state == nullptr && (call.args[list].count == 0 || !values) && list >= 2) continue;
        if (state == nullptr || !same_layout(*parameter, *state)) {
          return "parameter, gradient and state differ in type, shape or layout";
        }
      }
      if (line_.steps != 0 && !is_one(element(call, line_.steps, i), FL_FLOAT32)) return "a step is not one float32";
    }
    for (const uint32_t i : {line_.scaling, line_.scaling + 1}) {
      if (call.args[i].kind == FL_TENSOR && !is_one(call.args[i].u.tensor, FL_FLOAT32)) {
        return "grad_scale or found_inf is not one float32";
      }
    }
    const fl_tensor* rate = input_of(call, line_.rate);
    if (rate != nullptr && !is_one(rate, FL_FLOAT32) && !is_one(rate, FL_FLOAT64)) return "not one learning rate";
    if (!values) return nullptr;
    for (uint32_t list = 2; list < line_.states; ++list) {
      if (uses(call, list) && call.args[list].count != parameters.count) return "a list of states is too short";
    }
    if (is_adam()) {
      for (const uint32_t i : {7, 8}) {
        if (!(real_of(call.args[i]) >= 0 && real_of(call.args[i]) < 1)) return "a beta outside of [0, 1)";
      }
    }
    return nullptr;
  }

  const Step& line_;
};

// ---- Gradient scaling -------------------------------------------------------------------------------------------

class UnscaleRow : public Row {
 public:
  using Row::Row;

  static const char* check(const fl_call& call) {
    if (call.args[0].kind != FL_TENSORS || !is_one(input_of(call, 1), FL_FLOAT32) ||
        !is_one(input_of(call, 2), FL_FLOAT32)) {
      return "found_inf or inv_scale is not one float32";
    }
    for (uint32_t i = 0; i < call.args[0].count; ++i) {
      const fl_tensor* t = element(call, 0, i);
      if (t == nullptr || !is_floating(t->dtype) || !same_layout(*t, *t))
        return "a gradient with gaps between elements";
    }
    return nullptr;
  }

  fl_status run(const fl_call& call) {
    const char* reason = check(call);
    if (reason != nullptr) return decline(reason);
    const uint32_t count = call.args[0].count;
    int64_t all = 0, items = 0;
    for (uint32_t i = 0; i < count; ++i) all += element(call, 0, i)->numel;
    const int64_t chunk = share(device(call), all, 1).chunk;
    for (uint32_t i = 0; i < count; ++i) items += (element(call, 0, i)->numel + chunk - 1) / chunk;
    if (items == 0) return FL_OK;
    fl_address flags = 0;
    fl_status status = runtime::host_services().scratch(&call, static_cast<uint64_t>(items), &flags);
    fl_address next = flags;
    for (uint32_t first = 0; first < count && status == FL_OK;) {
      const fl_dtype dtype = element(call, 0, first)->dtype;
      FunctionCall f(kFile, "unscale", dtype);
      f.type("X", dtype).setting("UNSCALE", 1).in("f32", input_of(call, 2)).word(chunk);
      const bool one = first + 1 == count || element(call, 0, first + 1)->dtype != dtype;
      for (uint32_t k = 0; k < (one ? 1 : kParts); ++k) {
        const bool there = first < count && element(call, 0, first)->dtype == dtype;
        const fl_tensor* t = there ? element(call, 0, first++) : nullptr;
        const int64_t n = t == nullptr ? 0 : t->numel, of_part = (n + chunk - 1) / chunk;
        f.part(static_cast<uint64_t>(of_part)).out("X", t).scratch("u8", of_part == 0 ? 0 : next).word(n);
        next += static_cast<fl_address>(of_part);
      }
      if (f.items_of_parts() > 0) status = f.launch(*this, call, f.items_of_parts());
    }
    if (status != FL_OK) return status;
    FunctionCall f(kFile, "any_flag", FL_FLOAT32);
    f.type("X", FL_FLOAT32).setting("UNSCALE", 1).out("f32", input_of(call, 1)).scratch("u8", flags).word(items);
    return f.launch(*this, call, 1);
  }

  static fl_status supports(const fl_call* call) {
    const char* reason = check(*call);
    return reason == nullptr ? FL_OK : decline(reason);
  }
};

class ScaleRow : public Row {
 public:
  using Row::Row;

  fl_status run(const fl_call& call) {
    FunctionCall f(kFile, "update_scale", FL_FLOAT32);
    f.type("X", FL_FLOAT32).setting("UNSCALE", 1);
    f.out("f32", input_of(call, 0)).out("i32", input_of(call, 1)).in("f32", input_of(call, 2));
    f.word(call.args[5].u.i).real(real_of(call.args[3])).real(real_of(call.args[4]));
    return f.launch(*this, call, 1);
  }

  static fl_status supports(const fl_call* call) {
    const bool fits = is_one(input_of(*call, 0), FL_FLOAT32) && is_one(input_of(*call, 1), FL_INT32) &&
                      is_one(input_of(*call, 2), FL_FLOAT32);
    return fits ? FL_OK : decline("scale and found_inf are one float32 each, growth_tracker is one int32");
  }
};

}  // namespace

void add_optimizers(Rows& rows, runtime::Chip& chip, Language language) {
  for (const Step& line : kSteps) {
    rows.push_back(
        make_row(line.op, 0, run_row<StepRow>, StepRow::supports, keep<StepRow>(chip, language, line), kFloats));
  }
  rows.push_back(make_row("aten::_amp_foreach_non_finite_check_and_unscale_", 0, run_row<UnscaleRow>,
                          UnscaleRow::supports, keep<UnscaleRow>(chip, language), kFloats));
  rows.push_back(make_row("aten::_amp_update_scale_", 0, run_row<ScaleRow>, ScaleRow::supports,
                          keep<ScaleRow>(chip, language), kFloats));
}

}  // namespace torch_fl::portable
