// SPDX-License-Identifier: Apache-2.0
#include "entry.h"

#include <ATen/core/dispatch/Dispatcher.h>

#include <algorithm>
#include <deque>
#include <mutex>
#include <unordered_map>
#include <unordered_set>

#include "random_ops.h"

namespace torch_fl::glue {
namespace {

// Scalars by these names take part in promotion; the others (alpha, value, weight, ...) do not.
const std::unordered_set<std::string> kPromotingScalars = {"other", "exponent", "self", "min", "max"};
const std::unordered_set<std::string> kUnpromotedTensors = {"condition", "mask"};
const std::unordered_set<std::string> kPredicates = {
    "eq",          "ne",          "lt",    "le",    "gt",       "ge",       "logical_and", "logical_or",
    "logical_xor", "logical_not", "isnan", "isinf", "isfinite", "isposinf", "isneginf",    "signbit"};
const std::unordered_set<std::string> kDivisions = {"remainder", "fmod", "floor_divide", "div"};
const std::unordered_set<std::string> kScalarValuesMatter = {"arange", "range", "linspace", "logspace"};
// Operators that PyTorch allows to mix device tensors with CPU tensors of one dimension or more.
const std::unordered_set<std::string> kHostTensorsOk = {"index",
                                                        "index_put",
                                                        "_index_put_impl",
                                                        "_unsafe_index",
                                                        "_unsafe_index_put",
                                                        "_ctc_loss",
                                                        "_ctc_loss_backward",
                                                        "_pack_padded_sequence",
                                                        "ctc_loss",
                                                        "_copy_from",
                                                        "_copy_from_and_resize",
                                                        "segment_reduce"};
// Their composite kernels lead back to the overload that sent us here.
const std::unordered_set<std::string> kNeverComposite = {"aten::convolution", "aten::convolution_backward",
                                                         "aten::native_dropout", "aten::conj_physical_",
                                                         "aten::mode.values"};

std::string base_name(const std::string& op_name) {
  std::string base = op_name.substr(op_name.find("::") + 2);
  if (base.size() > 1 && base.back() == '_') base.pop_back();
  return base;
}

std::string full_name(const c10::OperatorName& n) {
  return n.overload_name.empty() ? n.name : n.name + "." + n.overload_name;
}

bool is_tensor_options(const c10::Argument& a) {
  return a.name() == "dtype" || a.name() == "layout" || a.name() == "device" || a.name() == "pin_memory" ||
         a.name() == "memory_format";
}

const std::vector<c10::OperatorName>& overloads_of(const std::string& op_name) {
  using Map = std::unordered_map<std::string, std::vector<c10::OperatorName>>;
  static const Map& overloads = *[] {
    auto* map = new Map();
    for (const auto& n : c10::Dispatcher::singleton().getAllOpNames()) {
      if (n.name.rfind("aten::", 0) == 0) (*map)[n.name].push_back(n);
    }
    return map;
  }();
  static const std::vector<c10::OperatorName> none;
  const auto found = overloads.find(op_name);
  return found == overloads.end() ? none : found->second;
}

bool same_first_arguments(size_t n, const c10::FunctionSchema& a, const c10::FunctionSchema& b) {
  if (a.arguments().size() < n || b.arguments().size() < n) return false;
  for (size_t i = 0; i < n; ++i) {
    const c10::Argument &x = a.arguments()[i], &y = b.arguments()[i];
    if (x.name() != y.name() || *x.type() != *y.type()) return false;
  }
  return true;
}

bool same_inputs(const c10::FunctionSchema& derived, size_t n_inputs, const c10::FunctionSchema& functional) {
  const auto& f = functional.arguments();
  if (!same_first_arguments(n_inputs, derived, functional)) return false;
  for (size_t i = n_inputs; i < f.size(); ++i) {
    if (!is_tensor_options(f[i])) return false;
  }
  return true;
}

// These update their running statistics although their schemas do not say so.
bool writes_silently(const std::string& op, const std::string& argument) {
  static const std::unordered_set<std::string> kOps{
      "aten::native_batch_norm",       "aten::batch_norm_update_stats",
      "aten::batch_norm_gather_stats", "aten::batch_norm_gather_stats_with_counts",
      "aten::cudnn_batch_norm",        "aten::miopen_batch_norm"};
  return kOps.count(op) > 0 && (argument == "running_mean" || argument == "running_var");
}

bool mutates(const c10::FunctionSchema& schema) {
  for (const auto& a : schema.arguments()) {
    if (a.alias_info() != nullptr && a.alias_info()->isWrite()) return true;
  }
  return false;
}

Form form_of(const c10::FunctionSchema& schema, uint32_t* n_out) {
  *n_out = 0;
  for (const auto& a : schema.arguments()) {
    if (a.is_out()) ++*n_out;
  }
  if (*n_out > 0) return Form::Out;
  return mutates(schema) ? Form::InPlace : Form::Functional;
}

std::mutex g_mutex;
std::deque<Entry>& entries() {
  static auto* list = new std::deque<Entry>();
  return *list;
}
std::unordered_map<std::string, Entry*>& by_name() {
  static auto* map = new std::unordered_map<std::string, Entry*>();
  return *map;
}
std::atomic<uint32_t> g_next_id{0};

}  // namespace

std::optional<c10::OperatorHandle> find_overload(const std::string& name) {
  const auto dot = name.find('.');
  return c10::Dispatcher::singleton().findSchema(
      {name.substr(0, dot), dot == std::string::npos ? "" : name.substr(dot + 1)});
}

std::optional<c10::OperatorHandle> out_form(const c10::OperatorHandle& op) {
  const auto& functional = op.schema();
  const size_t n = functional.arguments().size();
  for (const auto& name : overloads_of(op.operator_name().name)) {
    auto candidate = c10::Dispatcher::singleton().findSchema(name);
    if (!candidate.has_value()) continue;
    const auto& out = candidate->schema();
    if (out.arguments().size() != n + functional.returns().size() || !same_first_arguments(n, functional, out))
      continue;
    const auto is_out = [](const c10::Argument& a) { return a.is_out(); };
    if (std::all_of(out.arguments().begin() + static_cast<int64_t>(n), out.arguments().end(), is_out)) return candidate;
  }
  return std::nullopt;
}

std::string functional_sibling(const c10::OperatorHandle& op, Form form, uint32_t n_out_args) {
  const auto& name = op.operator_name();
  if (form == Form::Functional) return full_name(name);
  std::string base = name.name;
  if (form == Form::InPlace && base.back() == '_') base.pop_back();
  const size_t n_inputs = op.schema().arguments().size() - n_out_args;
  for (const auto& n : overloads_of(base)) {
    auto candidate = c10::Dispatcher::singleton().findSchema(n);
    if (!candidate.has_value() || mutates(candidate->schema())) continue;
    if (same_inputs(op.schema(), n_inputs, candidate->schema())) return full_name(n);
  }
  return full_name(name);
}

Entry::Entry(c10::OperatorHandle handle) : op(handle), id(g_next_id.fetch_add(1)) {
  const auto& schema = op.schema();
  name = full_name(op.operator_name());
  op_name = op.operator_name().name;
  overload = op.operator_name().overload_name;
  form = form_of(schema, &n_out_args);
  const std::string base = base_name(op_name);
  for (const auto& a : schema.arguments()) {
    ArgInfo info;
    info.name = a.name();
    info.type = a.type();
    info.mutated = a.alias_info() != nullptr && a.alias_info()->isWrite();
    info.written = info.mutated || writes_silently(op_name, info.name);
    writes |= info.written;
    info.promotes = kPromotingScalars.count(info.name) > 0;
    info.unpromoted = kUnpromotedTensors.count(info.name) > 0;
    if (info.mutated) mutated.push_back(static_cast<uint32_t>(args.size()));
    args.push_back(std::move(info));
  }
  n_returns = static_cast<uint32_t>(schema.returns().size());
  tensor_returns = true;
  for (const auto& r : schema.returns()) {
    if (r.type()->kind() != c10::TypeKind::TensorType) tensor_returns = false;
  }
  kernel_name = functional_sibling(op, form, n_out_args);
  kernel_args = static_cast<uint32_t>(args.size()) - n_out_args;
  shape_rule = find_shape_rule(kernel_name);
  if (kernel_name != name) {
    const auto sibling = find_overload(kernel_name);
    if (sibling.has_value()) kernel_args = static_cast<uint32_t>(sibling->schema().arguments().size());
  }
  cpu_kernel = op.hasKernelForDispatchKey(c10::DispatchKey::CPU);
  // A structured operator's NonFunctional kernel calls its out= form; the others' are compositions.
  composite = (op.hasKernelForDispatchKey(c10::DispatchKey::CompositeExplicitAutograd) ||
               op.hasKernelForDispatchKey(c10::DispatchKey::PrivateUse2) ||
               (!cpu_kernel && form == Form::Functional &&
                op.hasKernelForDispatchKey(c10::DispatchKey::CompositeExplicitAutogradNonFunctional))) &&
              kNeverComposite.count(name) == 0;
  if (kDivisions.count(base) > 0) integer_rule = IntegerRule::Divisor;
  if (base == "pow") integer_rule = IntegerRule::Exponent;
  predicate = kPredicates.count(base) > 0;
  scalar_values_matter = kScalarValuesMatter.count(base) > 0;
  host_tensors_ok = kHostTensorsOk.count(base) > 0;
  reads_values = base == "masked_select" || base == "nonzero" || name == "aten::repeat_interleave.Tensor";
  static const std::unordered_set<std::string> kOutByCpu{
      "angle", "frexp", "geqrf", "linalg_eig", "linalg_householder_product", "linalg_lstsq", "linalg_solve_triangular"};
  out_by_cpu = form == Form::Out && kOutByCpu.count(base) > 0;
  for (size_t i = 0; i < args.size(); ++i) {
    if (args[i].name == "indices" && args[i].type->kind() == c10::TypeKind::ListType) indices = static_cast<int32_t>(i);
  }
  describe_random(*this);
}

Entry& entry_for(const c10::OperatorHandle& op) {
  const std::string name = full_name(op.operator_name());
  std::lock_guard<std::mutex> lock(g_mutex);
  auto found = by_name().find(name);
  if (found != by_name().end()) return *found->second;
  entries().emplace_back(op);
  by_name()[name] = &entries().back();
  return entries().back();
}

Entry& entry_for(const char* name, const char* overload) {
  return entry_for(c10::Dispatcher::singleton().findSchemaOrThrow(name, overload));
}

std::vector<Entry*> all_entries() {
  std::lock_guard<std::mutex> lock(g_mutex);
  std::vector<Entry*> list;
  for (auto& e : entries()) list.push_back(&e);
  return list;
}

}  // namespace torch_fl::glue
