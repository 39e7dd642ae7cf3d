// SPDX-License-Identifier: Apache-2.0
// What lower.py makes of a descriptor, plain values of Python, as the structs of the runtime. Every mistake in it is an
// exception: nobody but lower.py should write such values, but anybody can.
#include <torch/csrc/Exceptions.h>
#include <torch/csrc/utils/pybind.h>

#include <time.h>

#include <cstring>
#include <deque>

#include "../runtime/description.h"
#include "../runtime/device.h"
#include "../runtime/expression.h"
#include "attention.h"
#include "errors.h"
#include "portable/portable.h"

namespace torch_fl::glue {
namespace {

using namespace torch_fl::runtime;

[[noreturn]] void wrong(const std::string& what) { throw py::value_error("a lowered descriptor: " + what); }

template <typename T>
T get(const py::dict& from, const char* key, T otherwise) {
  return from.contains(key) ? from[key].cast<T>() : otherwise;
}

template <typename Each>
void each(const py::dict& from, const char* key, Each&& each) {
  if (!from.contains(key)) return;
  for (const py::handle item : from[key].cast<py::list>()) each(item);
}

int64_t operand_of(const py::handle& value, Instruction* step) {
  if (py::isinstance<py::str>(value)) return reinterpret_cast<int64_t>(intern(value.cast<std::string>()));
  if (py::isinstance<py::float_>(value)) {
    step->real = value.cast<double>();
    return step->integer;
  }
  return value.cast<int64_t>();
}

Program program_of(const py::handle& from) {
  Program program;
  for (const py::handle item : from.cast<py::list>()) {
    const auto step = item.cast<py::tuple>();
    if (step.size() != 3) wrong("a step of a program is (code, index, operand)");
    Instruction instruction;
    instruction.code = step[0].cast<int32_t>();
    instruction.index = step[1].cast<int32_t>();
    const bool real = py::isinstance<py::float_>(step[2]), text = py::isinstance<py::str>(step[2]);
    if (real != (instruction.code == kReal) || text != (instruction.code == kString))
      wrong("an operand of another kind");
    instruction.integer = operand_of(step[2], &instruction);
    program.push_back(instruction);
  }
  verify(program);
  return program;
}

CType c_type(const py::handle& from) {
  const auto number = from.cast<int64_t>();
  if (number < 0 || number > static_cast<int64_t>(CType::Last)) wrong("an unknown C type");
  return static_cast<CType>(number);
}

fl_dtype dtype_of(const py::handle& from) {
  const auto number = from.cast<int64_t>();
  if (number < 0 || number >= FL_DTYPE_OTHER) wrong("an unknown element type");
  return static_cast<fl_dtype>(number);
}

CFunction function_of(const py::dict& from) {
  CFunction function;
  function.symbol = get<std::string>(from, "symbol", "");
  function.where = get<std::string>(from, "where", "");
  if (from.contains("result")) function.result = c_type(from["result"]);
  each(from, "parameters", [&](const py::handle& type) { function.parameters.push_back(c_type(type)); });
  each(from, "arguments", [&](const py::handle& program) { function.arguments.push_back(program_of(program)); });
  each(from, "reads_values", [&](const py::handle& reads) { function.reads_values.push_back(reads.cast<bool>()); });
  return function;
}

DescribedKernel kernel_of(const py::handle& item) {
  const auto from = item.cast<py::dict>();
  DescribedKernel kernel;
  kernel.op = from["op"].cast<std::string>();
  kernel.flags = get<uint32_t>(from, "flags", 0);
  kernel.dtypes = get<uint64_t>(from, "dtypes", 0);
  kernel.plain = get<bool>(from, "plain", false);
  kernel.starts_as = get<int32_t>(from, "starts_as", -1);
  kernel.call = function_of(from);
  each(from, "symbols", [&](const py::handle& pair) {
    const auto entry = pair.cast<py::tuple>();
    if (entry.size() != 2) wrong("a symbol is (element type, name)");
    kernel.symbols.emplace_back(dtype_of(entry[0]), entry[1].cast<std::string>());
  });
  return kernel;
}

Check check_of(const py::handle& item) {
  const auto from = item.cast<py::dict>();
  Check check;
  check.holds = program_of(from["holds"]);
  if (from.contains("found") && !from["found"].is_none()) check.found = program_of(from["found"]);
  check.expected = from["expected"].cast<std::string>();
  check.reads_values = get<bool>(from, "reads_values", false);
  return check;
}

OpRules rules_of(const py::dict& from) {
  OpRules rules;
  each(from, "checks", [&](const py::handle& check) { rules.checks.push_back(check_of(check)); });
  rules.flags = get<uint32_t>(from, "flags", 0);
  rules.cleared = get<uint32_t>(from, "cleared", 0);
  rules.alignment = get<uint64_t>(from, "alignment", 0);
  if ((rules.alignment & (rules.alignment - 1)) != 0) wrong("an alignment that is no power of two");
  each(from, "casts", [&](const py::handle& pair) {
    const auto entry = pair.cast<py::tuple>();
    if (entry.size() != 2) wrong("a cast is (from, to)");
    rules.casts.push_back({dtype_of(entry[0]), dtype_of(entry[1])});
  });
  return rules;
}

void copy_text(char* to, size_t capacity, const std::string& text) {
  std::strncpy(to, text.c_str(), capacity - 1);
  to[capacity - 1] = '\0';
}

fl_device_properties properties_of(const py::dict& from) {
  fl_device_properties p{};
  p.struct_size = sizeof p;
  copy_text(p.name, sizeof p.name, get<std::string>(from, "name", ""));
  copy_text(p.driver_version, sizeof p.driver_version, get<std::string>(from, "driver_version", ""));
  p.total_memory = get<uint64_t>(from, "total_memory", 0);
  p.max_allocation = get<uint64_t>(from, "max_allocation", 0);
  p.alignment = get<uint64_t>(from, "alignment", 0);
  p.size_granularity = get<uint64_t>(from, "granularity", 0);
  p.dtypes = get<uint64_t>(from, "dtypes", 0);
  p.compute_units = get<uint32_t>(from, "compute_units", 0);
  p.clock_mhz = get<uint32_t>(from, "clock_mhz", 0);
  p.peak_flops = get<double>(from, "peak_flops", 0);
  p.peak_bandwidth = get<double>(from, "peak_bandwidth", 0);
  return p;
}

LibraryRuntime runtime_of(const py::dict& from) {
  LibraryRuntime runtime;
  const auto function = [&](const char* key) { return function_of(get<py::dict>(from, key, py::dict())); };
  runtime.count = function("count");
  runtime.init = function("init");
  runtime.alloc = function("alloc");
  runtime.free = function("free");
  runtime.copy = function("copy");
  runtime.synchronize = function("synchronize");
  using Codes = std::vector<int64_t>;
  runtime.status.ok = get<Codes>(from, "ok", Codes{0});
  runtime.status.out_of_memory = get<Codes>(from, "out_of_memory", {});
  runtime.status.device_lost = get<Codes>(from, "device_lost", {});
  runtime.devices = get<int32_t>(from, "devices", 1);
  return runtime;
}

OpFallback fallback_of(const py::dict& from) {
  OpFallback fallback;
  fallback.policy = get<std::string>(from, "policy", "");
  fallback.decompose = get<bool>(from, "decompose", true);
  fallback.python = get<std::string>(from, "python", "");
  fallback.expression = get<std::string>(from, "expression", "");
  return fallback;
}

Described described_of(const py::dict& from) {
  Described d;
  d.name = from["name"].cast<std::string>();
  d.vendor = get<std::string>(from, "vendor", "");
  d.version = get<std::string>(from, "version", "");
  d.device_type = get<std::string>(from, "device_type", "");
  d.policy = get<std::string>(from, "policy", "");
  d.library = from["library"].cast<std::string>();
  d.library_where = get<std::string>(from, "library_where", "");
  d.properties = properties_of(get<py::dict>(from, "properties", py::dict()));
  d.host_coherent = get<bool>(from, "host_coherent", true);
  d.runtime = runtime_of(get<py::dict>(from, "runtime", py::dict()));
  d.defaults = rules_of(get<py::dict>(from, "defaults", py::dict()));
  each(from, "kernels", [&](const py::handle& kernel) { d.kernels.push_back(kernel_of(kernel)); });
  each(from, "overrides", [&](const py::handle& kernel) { d.overrides.push_back(kernel_of(kernel)); });
  each(from, "required_rules", [&](const py::handle& op) { d.required_rules.push_back(op.cast<std::string>()); });
  each(from, "rules", [&](const py::handle& pair) {
    const auto entry = pair.cast<py::tuple>();
    if (entry.size() != 2) wrong("rules are (operator, mapping)");
    d.rules.emplace_back(entry[0].cast<std::string>(), rules_of(entry[1].cast<py::dict>()));
  });
  each(from, "fallbacks", [&](const py::handle& pair) {
    const auto entry = pair.cast<py::tuple>();
    if (entry.size() != 2) wrong("fallbacks are (operator, mapping)");
    d.fallbacks.emplace_back(entry[0].cast<std::string>(), fallback_of(entry[1].cast<py::dict>()));
  });
  return d;
}

void load_described(const py::dict& spec, const std::string& path, const std::string& source) {
  const Described description = described_of(spec);
  const py::gil_scoped_release no_gil;
  guarded([&] {
    Registry::get().load_described(description, {path, source});
    for (const auto& chip : Registry::get().chips()) portable::equip(*chip);
  });
  install_attention();
}

void skip_plugin(const std::string& path, const std::string& source, const std::string& reason) {
  Registry::get().skip({path, source}, reason);
}

// ---- Calls that a test makes up -------------------------------------------------------------------------------------
/// An fl_call of Python's values. A tensor is {"sizes", "strides", "dtype", "address", "flags"}, a type {"type"}.
class MadeUpCall {
 public:
  MadeUpCall(const py::list& args, const py::list& outs, const py::dict& about) {
    for (const py::handle arg : args) values_.push_back(value_of(arg));
    for (const py::handle out : outs) outs_.push_back(out.is_none() ? nullptr : tensor_of(out.cast<py::dict>()));
    call_.struct_size = sizeof call_;
    call_.args = values_.data();
    call_.n_args = static_cast<uint32_t>(values_.size());
    call_.outs = outs_.data();
    call_.n_outs = static_cast<uint32_t>(outs_.size());
    call_.compute_dtype = get<int32_t>(about, "compute_dtype", FL_FLOAT32);
    call_.device_index = get<int32_t>(about, "device", 0);
    call_.stream = reinterpret_cast<fl_stream>(get<uintptr_t>(about, "stream", 0));
  }
  const fl_call& call() const { return call_; }

 private:
  fl_tensor* tensor_of(const py::dict& from) {
    auto& sizes = longs_.emplace_back(from["sizes"].cast<std::vector<int64_t>>());
    auto& strides = longs_.emplace_back(from["strides"].cast<std::vector<int64_t>>());
    if (sizes.size() != strides.size()) wrong("as many strides as sizes");
    fl_tensor& t = tensors_.emplace_back();
    t.struct_size = sizeof t;
    t.ndim = static_cast<int32_t>(sizes.size());
    t.sizes = sizes.data();
    t.strides = strides.data();
    t.numel = 1;
    for (const int64_t size : sizes) t.numel *= size;
    t.dtype = get<int32_t>(from, "dtype", FL_FLOAT32);
    t.flags = get<uint32_t>(from, "flags", 0);
    t.address = get<uint64_t>(from, "address", 0);
    return &t;
  }

  fl_value list_of(const py::list& from) {
    fl_value v{};
    v.count = static_cast<uint32_t>(from.size());
    if (from.size() > 0 && (py::isinstance<py::dict>(from[0]) || from[0].is_none())) {
      auto& list = lists_.emplace_back();
      for (const py::handle item : from) list.push_back(item.is_none() ? nullptr : tensor_of(item.cast<py::dict>()));
      v.kind = FL_TENSORS;
      v.u.tensors = list.data();
    } else if (from.size() > 0 && py::isinstance<py::float_>(from[0])) {
      v.kind = FL_REALS;
      v.u.reals = reals_.emplace_back(from.cast<std::vector<double>>()).data();
    } else {
      v.kind = FL_INTEGERS;
      v.u.ints = longs_.emplace_back(from.cast<std::vector<int64_t>>()).data();
    }
    return v;
  }

  fl_value value_of(const py::handle& from) {
    fl_value v{};
    if (from.is_none()) return v;
    if (py::isinstance<py::dict>(from)) {
      const auto dict = from.cast<py::dict>();
      v.kind = dict.contains("type") ? FL_DTYPE : FL_TENSOR;
      if (v.kind == FL_DTYPE) {
        v.u.i = dict["type"].cast<int64_t>();
      } else {
        v.u.tensor = tensor_of(dict);
      }
    } else if (py::isinstance<py::list>(from)) {
      v = list_of(from.cast<py::list>());
    } else if (py::isinstance<py::str>(from)) {
      v.kind = FL_STRING;
      v.u.s = intern(from.cast<std::string>());
    } else if (py::isinstance<py::bool_>(from)) {
      v.kind = FL_BOOLEAN;
      v.u.i = from.cast<bool>() ? 1 : 0;
    } else if (py::isinstance<py::float_>(from)) {
      v.kind = FL_REAL;
      v.u.d = from.cast<double>();
    } else {
      v.kind = FL_INTEGER;
      v.u.i = from.cast<int64_t>();
    }
    return v;
  }

  std::deque<std::vector<int64_t>> longs_;
  std::deque<std::vector<double>> reals_;
  std::deque<fl_tensor> tensors_;
  std::deque<std::vector<const fl_tensor*>> lists_;
  std::vector<fl_value> values_;
  std::vector<fl_tensor*> outs_;
  fl_call call_{};
};

py::object to_python(const Value& value) {
  switch (value.kind) {
    case Value::Integer:
      return py::int_(value.i);
    case Value::Real:
      return py::float_(value.d);
    case Value::Boolean:
      return py::bool_(value.i != 0);
    case Value::String:
      return py::str(value.s);
    case Value::Type:
      return py::make_tuple("type", value.i);
    case Value::Address:
      return py::make_tuple("address", static_cast<uint64_t>(value.i));
    default:
      return py::none();
  }
}

py::object evaluate_program(const py::list& program, const py::list& args, const py::list& outs,
                            const py::dict& about) {
  const MadeUpCall made_up(args, outs, about);
  return to_python(evaluate(program_of(program), made_up.call()));
}

double thread_nanoseconds() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) * 1e9 + static_cast<double>(now.tv_nsec);
}

/// The first broken rule, and the processor's time in nanoseconds for each of `repeats` evaluations.
std::pair<std::string, double> check_rules(const py::dict& rules, const py::list& args, const py::list& outs,
                                           const py::dict& about, int64_t repeats) {
  const MadeUpCall made_up(args, outs, about);
  const OpRules compiled = rules_of(rules);
  std::string broken;
  const double start = thread_nanoseconds();
  for (int64_t i = 0; i < repeats; ++i) broken = broken_rule(compiled, made_up.call());
  return {broken, (thread_nanoseconds() - start) / static_cast<double>(std::max<int64_t>(repeats, 1))};
}

}  // namespace

void bind_descriptions(py::module_& m) {
  m.def("load_described", torch::wrap_pybind_function(&load_described));
  m.def("skip_plugin", torch::wrap_pybind_function_no_gil(&skip_plugin));
  m.def("evaluate_program", torch::wrap_pybind_function(&evaluate_program));
  m.def("check_rules", torch::wrap_pybind_function(&check_rules));
}

}  // namespace torch_fl::glue
