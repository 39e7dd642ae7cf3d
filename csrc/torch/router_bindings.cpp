// SPDX-License-Identifier: Apache-2.0
// The router's side of torch_fl._C.
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>
#include <torch/csrc/jit/python/pybind_utils.h>

#include <algorithm>
#include <atomic>
#include <chrono>

#include "decompose.h"
#include "device_allocator.h"
#include "entry.h"
#include "errors.h"
#include "host_route.h"
#include "plan.h"
#include "register.h"
#include "router.h"
#include "unsupported.h"

namespace py = pybind11;

namespace torch_fl::glue {

void bind_probe(py::module_& module);
void bind_recorder(py::module_& module);
void bind_storm(py::module_& module);

namespace {

py::list dtype_list(uint64_t mask) {
  static const char* const kNames[] = {"uint8",         "int8",          "int16",           "int32",
                                       "int64",         "float16",       "float32",         "float64",
                                       "complex32",     "complex64",     "complex128",      "bool",
                                       "bfloat16",      "uint16",        "uint32",          "uint64",
                                       "float8_e5m2",   "float8_e4m3fn", "float8_e5m2fnuz", "float8_e4m3fnuz",
                                       "float8_e8m0fnu"};
  py::list names;
  for (size_t i = 0; i < std::size(kNames); ++i) {
    if ((mask >> i & 1) != 0) names.append(kNames[i]);
  }
  return names;
}

py::list flag_list(uint32_t flags) {
  static const char* const kNames[] = {
      "promote",         "broadcast", "contiguous_inputs", "contiguous_outputs", "in_place_safe",
      "value_dependent", "random",    "channels_last_ok",  "channels_last_only"};
  py::list names;
  for (size_t i = 0; i < std::size(kNames); ++i) {
    if ((flags >> i & 1) != 0) names.append(kNames[i]);
  }
  return names;
}

py::list counters() {
  py::list rows;
  for (const auto& r : collect_counters()) {
    rows.append(py::make_tuple(r.op, r.overload, r.chip, r.device, route_name(r.route), r.reason, r.calls, r.bytes,
                               r.syncs, r.nanoseconds, r.conversions));
  }
  return rows;
}

py::list registered_ops() {
  py::list rows;
  const auto add = [&](const runtime::Chip& chip, const std::vector<fl_kernel>& kernels, Route route) {
    for (const auto& k : kernels) {
      py::dict row;
      row["chip"] = chip.name;
      row["op"] = k.op;
      row["route"] = route_name(route);
      row["flags"] = flag_list(k.flags);
      row["dtypes"] = dtype_list(k.dtypes);
      rows.append(row);
    }
  };
  for (const auto& chip : runtime::Registry::get().chips()) {
    add(*chip, chip->kernels, Route::Kernel);
    add(*chip, chip->portable, Route::Portable);
    add(*chip, chip->overrides, Route::Override);
  }
  return rows;
}

const char* policy_name(Policy policy) {
  return policy == Policy::Allow ? "allow" : policy == Policy::Warn ? "warn" : "deny";
}

// What the chip's descriptor asks of calls of a row.
void describe_rules(const runtime::OpRules& rules, py::dict& row) {
  py::list checks, casts;
  for (const auto& check : rules.checks) checks.append(check.expected);
  for (const auto& cast : rules.casts) {
    casts.append(py::make_tuple(dtype_name(from_fl_dtype(cast.from)), dtype_name(from_fl_dtype(cast.to))));
  }
  row["rules"] = checks;
  row["casts"] = casts;
  row["alignment"] = rules.alignment;
}

py::dict describe_row(const runtime::Chip& chip, const fl_kernel& kernel, Route route) {
  py::dict row;
  row["op"] = kernel.op;
  row["route"] = route_name(route);
  row["dtypes"] = dtype_list(kernel.dtypes);
  row["checks_call"] = kernel.supports != nullptr;
  const runtime::OpRules* rules = route == Route::Kernel ? find_rules(chip, kernel) : nullptr;
  row["flags"] = flag_list(rules != nullptr ? runtime::flags_under(*rules, kernel.flags) : kernel.flags);
  if (rules != nullptr) describe_rules(*rules, row);
  return row;
}

void describe_routes(const Entry& entry, const runtime::Chip& chip, py::dict& row) {
  py::list routes;
  for (const char* route : {"kernel", "portable", "override"}) row[route] = py::none();
  for (const auto& [kernel, route] : candidates(chip, entry)) {
    routes.append(route_name(route));
    row[route_name(route)] = describe_row(chip, *kernel, route);
  }
  const runtime::OpFallback* fallback = find_fallback(chip, entry);
  const bool overridden = fallback != nullptr && has_override(*fallback);
  if (overridden && row["override"].is_none()) routes.append("override");
  row["override_python"] = fallback != nullptr ? fallback->python : "";
  row["override_expression"] = fallback != nullptr ? fallback->expression : "";
  row["decompose"] = fallback == nullptr || fallback->decompose;
  row["functional"] = entry.kernel_name;
  row["may_decompose"] = !is_bare(chip) && !entry.random && !entry.reads_values && entry.host == nullptr &&
                         entry.tensor_returns && !gives_view(entry.op.schema());
  if (entry.composite) routes.append("composite");
  const bool cpu = entry.host != nullptr || entry.op.hasComputedKernelForDispatchKey(c10::DispatchKey::CPU);
  const auto [policy, by_chip] = choose_policy(entry, chip);
  if (cpu && !gives_view(entry.op.schema()) && policy != Policy::Deny) routes.append("host");
  row["routes"] = routes;
  row["policy"] = policy_name(policy);
  row["policy_by_chip"] = by_chip;
  row["device"] = chip.devices.empty() ? -1 : chip.devices[0]->index;
  row["has_host_implementation"] = cpu;
}

// One row per overload and chip. `name`: "aten::add", "aten::add.Tensor" or without the namespace.
py::list query(std::string name) {
  if (name.find("::") == std::string::npos) name = "aten::" + name;
  const std::string op_name = name.substr(0, name.find('.'));
  py::list rows;
  for (const auto& n : c10::Dispatcher::singleton().getAllOpNames()) {
    if (n.name != op_name) continue;
    const auto op = c10::Dispatcher::singleton().findSchema(n);
    if (!op.has_value()) continue;
    const Entry& entry = entry_for(*op);
    if (name != op_name && entry.name != name) continue;
    for (const auto& chip : runtime::Registry::get().chips()) {
      py::dict row;
      row["op"] = entry.op_name;
      row["overload"] = entry.overload;
      row["chip"] = chip->name;
      row["is_view"] = gives_view(op->schema());
      row["composite_implicit"] = op->hasKernelForDispatchKey(c10::DispatchKey::CompositeImplicitAutograd);
      describe_routes(entry, *chip, row);
      rows.append(row);
    }
  }
  return rows;
}

// The outputs' metadata by our own shape rule, for a call on tensors of any device. None: no rule, or it does not know.
py::object shape_rule(const std::string& name, const std::string& overload, const py::args& args,
                      const py::kwargs& kwargs) {
  const Entry& entry = entry_for(name.c_str(), overload.c_str());
  if (entry.shape_rule == nullptr) return py::none();
  const Stack stack = torch::jit::createStackForSchema(entry.op.schema(), args, kwargs, std::nullopt);
  std::vector<PackedArg> packed(stack.size());
  LazyStore store;
  for (size_t i = 0; i < stack.size(); ++i) pack_ivalue(packed[i], store, stack[i], entry.args[i].type);
  std::vector<at::Tensor> outputs;
  if (!entry.shape_rule(RuleArgs(packed.data(), static_cast<uint32_t>(packed.size())), outputs)) return py::none();
  return py::cast(outputs);
}

// Nanoseconds of one cached allocation and its release, median of 32 runs of `count` each.
double bench_allocation(int64_t count, uint64_t bytes) {
  runtime::Device& device = device_at(runtime::current_device());
  device.handle();
  std::vector<double> runs;
  for (int run = 0; run < 33; ++run) {
    const auto start = std::chrono::steady_clock::now();
    for (int64_t i = 0; i < count; ++i) (void)allocate_on(device, bytes);
    const std::chrono::duration<double, std::nano> spent = std::chrono::steady_clock::now() - start;
    if (run > 0) runs.push_back(spent.count() / static_cast<double>(count));  // the first run fills the cache
  }
  std::nth_element(runs.begin(), runs.begin() + 16, runs.end());
  return runs[16];
}

std::atomic<uint64_t> g_counter_resets{0};  // so that differences of counters know that they began anew

}  // namespace

void bind_router(py::module_& m) {
  bind_probe(m);
  bind_recorder(m);
  bind_storm(m);
  m.def("enable_chip_kernels", &enable_chip_kernels);
  m.def("route_boxed", &route_boxed, py::arg("name"));
  m.def("set_policy", &set_policy, py::arg("op"), py::arg("policy"));
  m.def("clear_cache", &clear_plans);
  m.def("counters", &counters);
  m.def("reset_counters", [] {
    reset_counters();
    ++g_counter_resets;
  });
  m.def("counter_resets", [] { return g_counter_resets.load(); });
  m.def("query", &query, py::arg("op"));
  m.def("registered_ops", &registered_ops);
  m.def("set_unsupported_error", [](py::object type) {
    type.inc_ref();  // lives as long as the process
    set_unsupported_error(type.ptr());
  });
  m.def("set_counting", [](bool on) { g_counting.store(on); });
  m.def("set_timing", [](bool on) { g_timing.store(on); });
  m.def("set_stock_fallback", &set_stock_fallback);
  m.def("python_meta_calls", &python_meta_calls);
  m.def("shape_rule", &shape_rule, py::arg("name"), py::arg("overload"));
  m.def("shape_rules", &shape_rule_names);
  m.def("bench_allocation", &bench_allocation, py::arg("count"), py::arg("bytes"));
}

}  // namespace torch_fl::glue
