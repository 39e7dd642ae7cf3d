// SPDX-License-Identifier: Apache-2.0
#include "decompose.h"

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/native/Resize.h>
#include <c10/core/DeviceGuard.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <pybind11/stl.h>
#include <torch/csrc/Exceptions.h>
#include <torch/csrc/jit/python/pybind_utils.h>

#include <algorithm>
#include <vector>

#include "copy.h"
#include "host_route.h"
#include "planner.h"

namespace py = pybind11;

namespace torch_fl::glue {
namespace {

/// Calls that Python is serving on this thread, the outermost first.
struct Active {
  const Entry* entry;
  Route route;
};
std::vector<Active>& active() {
  static thread_local std::vector<Active> calls;
  return calls;
}
class ActiveCall {
 public:
  ActiveCall(const Entry& entry, Route route) { active().push_back({&entry, route}); }
  ~ActiveCall() { active().pop_back(); }
  ActiveCall(const ActiveCall&) = delete;
  ActiveCall& operator=(const ActiveCall&) = delete;
};

// A C++ exception that carries Python's, to be thrown with no lock held.
template <class F>
auto in_python(F&& body) {
  py::gil_scoped_acquire gil;
  try {
    return body();
  } catch (py::error_already_set& error) {
    error.restore();
    python_error carried;
    carried.persist();
    throw carried;
  }
}

// Modules are imported once; importing may give the lock away, so no static initialiser may wait for it.
py::object python_function(const char* module, const char* name) { return py::module_::import(module).attr(name); }
constexpr const char* kDecompositions = "torch_fl.routing.decompositions";
constexpr const char* kOverrides = "torch_fl.routing.overrides";

py::object to_python(const c10::IValue& v, const c10::TypePtr& type) {
  if (v.isNone()) return py::none();
  switch (type->kind()) {
    case c10::TypeKind::OptionalType:
      return to_python(v, type->expectRef<c10::OptionalType>().getElementType());
    case c10::TypeKind::ScalarTypeType:
      return py::cast(static_cast<at::ScalarType>(v.toInt()));
    case c10::TypeKind::MemoryFormatType:
      return py::cast(static_cast<at::MemoryFormat>(v.toInt()));
    case c10::TypeKind::LayoutType:
      return py::cast(static_cast<at::Layout>(v.toInt()));
    default:
      return torch::jit::toPyObject(v);
  }
}

const c10::FunctionSchema& functional_schema(const Entry& entry) {
  return entry.kernel_name == entry.name ? entry.op.schema() : find_overload(entry.kernel_name)->schema();
}

// The arguments of the functional form, in the order of its schema.
py::list functional_arguments(Call& call) {
  const Entry& entry = call.entry;
  const auto& schema = functional_schema(entry);
  const Stack& stack = boxed(call);
  const size_t given = entry.args.size() - entry.n_out_args;
  py::list values;
  for (size_t i = 0; i < schema.arguments().size(); ++i) {
    values.append(i < given ? to_python(stack[i], schema.arguments()[i].real_type()) : py::none());
  }
  return values;
}

// ---- What comes out ---------------------------------------------------------------------------------------------

// Of the functional form, by PyTorch's rules. Throws where they refuse the call, or where there are none.
std::vector<at::Tensor> expected_results(Call& call) {
  if (call.entry.form != Form::Functional) return functional_meta(call);
  std::vector<at::Tensor> metas;
  if (call.entry.shape_rule != nullptr && call.entry.shape_rule(RuleArgs(call.args, call.n_args), metas)) return metas;
  metas.clear();
  if (call.meta == nullptr) return dispatcher_meta(call);
  call.meta(call.typed, metas);
  return metas;
}

bool note_results(Call& call, Plan& plan) {
  std::vector<at::Tensor> metas;
  try {
    metas = expected_results(call);
  } catch (const std::exception&) {
    return false;  // the call is wrong, which the override or the CPU says better, or no rule knows
  }
  for (const auto& meta : metas) {
    if (!meta.defined() || meta.layout() != at::kStrided) return false;
  }
  for (const auto& meta : metas) {
    OutPlan out;
    out.dtype = meta.scalar_type();
    out.sizes.assign(meta.sizes().begin(), meta.sizes().end());
    out.strides.assign(meta.strides().begin(), meta.strides().end());
    plan.outs.push_back(std::move(out));
  }
  return true;
}

at::IntArrayRef sizes_of(const OutPlan& out) { return {out.sizes.data(), out.sizes.size()}; }
at::IntArrayRef strides_of(const OutPlan& out) { return {out.strides.data(), out.strides.size()}; }

size_t results_of(const Entry& entry) {
  return entry.form == Form::Functional ? entry.n_returns : entry.mutated.size();
}

std::string described(at::ScalarType dtype, at::IntArrayRef sizes) { return c10::str(dtype_name(dtype), sizes); }

void check_result(const Call& call, const Plan& plan, const std::string& who, size_t i, const at::Tensor& result) {
  const c10::Device device(c10::kPrivateUse1, static_cast<c10::DeviceIndex>(call.device->index));
  TORCH_CHECK(result.defined() && result.device() == device && result.layout() == at::kStrided, who,
              " must give a strided tensor on ", device, ", found ",
              result.defined() ? c10::str("one on ", result.device()) : "none");
  if (plan.outs.empty()) return;
  const OutPlan& out = plan.outs[i];
  TORCH_CHECK(result.scalar_type() == out.dtype && result.sizes() == sizes_of(out), who, " gave ",
              described(result.scalar_type(), result.sizes()), ", expected ", described(out.dtype, sizes_of(out)));
}

bool shares_memory(const Call& call, const at::Tensor& result) {
  const auto shares = [&](const at::Tensor& t) {
    return t.defined() && t.has_storage() && t.storage().is_alias_of(result.storage());
  };
  for (uint32_t i = 0; i < call.n_args; ++i) {
    const PackedArg& a = call.args[i];
    if (a.kind == Kind::Tensor && shares(*a.u.tensor)) return true;
    if (a.kind == Kind::TensorList && std::any_of(a.u.tensors, a.u.tensors + a.count, shares)) return true;
  }
  return false;
}

// A new tensor with the strides that PyTorch promises, whatever the function gave.
at::Tensor settled(const Call& call, const Plan& plan, size_t i, const at::Tensor& given) {
  const at::Tensor result = given.resolve_conj().resolve_neg();
  const bool known = !plan.outs.empty();
  const at::IntArrayRef strides = known ? strides_of(plan.outs[i]) : result.strides();
  if (result.strides() == strides && !shares_memory(call, result)) return result;
  const bool dense =
      at::detail::empty_strided_meta(result.sizes(), strides, result.scalar_type()).is_non_overlapping_and_dense();
  at::Tensor fresh = dense ? allocate_tensor(*call.device, result.scalar_type(), result.sizes(), strides)
                           : at::empty_like(result, at::MemoryFormat::Contiguous);
  copy_into(fresh, result, true);
  return fresh;
}

// The result of the functional form becomes what the caller's tensor holds, as PyTorch's operators do it.
void move_to_target(const Call& call, const at::Tensor& target, const at::Tensor& result) {
  if (call.entry.form == Form::Out) {
    at::native::resize_output(target, result.sizes());
  } else {
    TORCH_CHECK(target.sizes() == result.sizes(), call.entry.name, ": output with shape ", target.sizes(),
                " doesn't match the result's shape ", result.sizes());
  }
  TORCH_CHECK(at::canCast(result.scalar_type(), target.scalar_type()), "result type ",
              c10::toString(result.scalar_type()), " can't be cast to the desired output type ",
              c10::toString(target.scalar_type()));
  copy_into(target, result, true);
}

void deliver(Call& call, const Plan& plan, const std::string& who, const std::vector<at::Tensor>& results,
             at::Tensor* outs) {
  TORCH_CHECK(results.size() == results_of(call.entry), who, " gave ", results.size(), " tensors, expected ",
              results_of(call.entry));
  for (size_t i = 0; i < results.size(); ++i) check_result(call, plan, who, i, results[i]);
  for (size_t i = 0; i < results.size(); ++i) {
    if (call.entry.form == Form::Functional) {
      outs[i] = settled(call, plan, i, results[i]);
    } else {
      move_to_target(call, *call.args[call.entry.mutated[i]].u.tensor, results[i].resolve_conj().resolve_neg());
    }
  }
}

std::vector<at::Tensor> as_tensors(const py::object& given, const std::string& who) {
  std::vector<at::Tensor> tensors;
  const auto add = [&](py::handle item) {
    TORCH_CHECK_TYPE(THPVariable_Check(item.ptr()), who, " must give tensors, found ",
                     py::str(py::type::of(item).attr("__name__")).cast<std::string>());
    tensors.push_back(item.cast<at::Tensor>());
  };
  if (py::isinstance<py::tuple>(given) || py::isinstance<py::list>(given)) {
    for (py::handle item : given) add(item);
  } else {
    add(given);
  }
  return tensors;
}

// ---- Which calls these routes can serve at all ----------------------------------------------------------------------

bool plain(const at::Tensor& t) { return !t.defined() || (t.layout() == at::kStrided && !t.is_conj() && !t.is_neg()); }

bool plain_arguments(const Call& call) {
  for (uint32_t i = 0; i < call.n_args; ++i) {
    const PackedArg& a = call.args[i];
    if (a.kind == Kind::Tensor && !plain(*a.u.tensor)) return false;
    if (a.kind == Kind::TensorList && !std::all_of(a.u.tensors, a.u.tensors + a.count, plain)) return false;
  }
  return true;
}

// It gives tensors, and those it writes to are whole arguments.
bool has_functional_form(const Call& call) {
  const Entry& entry = call.entry;
  if (!entry.tensor_returns || gives_view(entry.op.schema())) return false;
  if (entry.form == Form::Functional) return entry.n_returns > 0;
  const auto whole = [&](uint32_t m) { return call.args[m].kind == Kind::Tensor; };
  return entry.kernel_name != entry.name && std::all_of(entry.mutated.begin(), entry.mutated.end(), whole) &&
         (entry.form == Form::InPlace || entry.mutated.size() == entry.n_out_args);
}

bool overlaps_itself(const at::Tensor& t) {
  return !t.is_non_overlapping_and_dense() && at::has_internal_overlap(t) != at::MemOverlap::No;
}

// Whether the targets need none of the CPU kernel's checks, warnings and layouts.
bool targets_fit(const Call& call, const Plan& plan) {
  if (call.entry.form == Form::Functional) return true;
  for (size_t i = 0; i < call.entry.mutated.size(); ++i) {
    const at::Tensor& target = *call.args[call.entry.mutated[i]].u.tensor;
    const OutPlan& out = plan.outs[i];
    const bool fresh = call.entry.form == Form::Out && target.dim() == 1 && target.numel() == 0;
    if (target.scalar_type() != out.dtype || overlaps_itself(target)) return false;
    if (target.sizes() != sizes_of(out) && !fresh) return false;
  }
  return true;
}

// The type of the first tensor is floating-point. Of other types CPU kernels say which an operator takes, and refuse
// the rest, where a decomposition computes something. Nor is there a decomposition for calls without tensors: a
// factory's functional form would make its result on the CPU.
bool reads_floating(const Call& call) {
  for (uint32_t i = 0; i + call.entry.n_out_args < call.n_args; ++i) {
    const PackedArg& a = call.args[i];
    if (a.kind == Kind::Tensor && a.u.tensor->defined()) return at::isFloatingType(a.u.tensor->scalar_type());
    if (a.kind == Kind::TensorList && a.count > 0) return at::isFloatingType(a.u.tensors[0].scalar_type());
  }
  return false;
}

bool decomposable(const Call& call) {
  const Entry& entry = call.entry;
  return !is_bare(call.device->chip) && !entry.random && !entry.reads_values && entry.host == nullptr &&
         reads_floating(call) && has_functional_form(call) && plain_arguments(call) && Py_IsInitialized() != 0;
}

/// As in a program's outermost code: composites come apart, nothing is cast automatically.
class OutermostDispatch {
 public:
  OutermostDispatch() : guard_(keys()) {}

 private:
  static c10::impl::LocalDispatchKeySet keys() {
    auto tls = c10::impl::tls_local_dispatch_key_set();
    tls.included_ = tls.included_ | c10::default_included_set;
    tls.excluded_ = tls.excluded_ - c10::autograd_dispatch_keyset_with_ADInplaceOrView - c10::python_ks;
    tls.excluded_ = tls.excluded_ | c10::autocast_dispatch_keyset;
    return tls;
  }
  c10::impl::ForceDispatchKeyGuard guard_;
};

std::string override_name(const Call& call, const Plan& plan) {
  const auto& f = *plan.fallback;
  return "the override of " + call.entry.name + " (" + (f.python.empty() ? f.expression : f.python) + ")";
}

}  // namespace

bool plan_override(Call& call, Plan& plan, std::string* refusal) {
  const runtime::OpFallback& fallback = *plan.fallback;
  if (!has_functional_form(call)) {
    *refusal = "its override has no tensors to give: the overload has no functional form";
    return false;
  }
  if (Py_IsInitialized() == 0) {
    *refusal = "its override is Python's, which is not running";
    return false;
  }
  (void)note_results(call, plan);
  if (plan.outs.size() != results_of(call.entry)) plan.outs.clear();
  const auto why = in_python([&] {
    return python_function(kOverrides, "refusal")(fallback.python, fallback.expression, call.entry.kernel_name)
        .cast<std::string>();
  });
  *refusal = why;
  return why.empty();
}

Decomposition plan_decomposition(Call& call, Plan& plan, std::string* what) {
  if (inside_decomposition() || !decomposable(call)) return Decomposition::None;
  const runtime::OpFallback* fallback = find_fallback(call.device->chip, call.entry);
  if (fallback != nullptr && !fallback->decompose) {
    *what = "not decomposed: the chip's descriptor forbids it";
    return Decomposition::Refused;
  }
  const bool listed =
      in_python([&] { return python_function(kDecompositions, "is_listed")(call.entry.kernel_name).cast<bool>(); });
  if (!listed || !note_results(call, plan) || plan.outs.size() != results_of(call.entry)) return Decomposition::None;
  if (!targets_fit(call, plan)) {
    *what = "not decomposed: what it writes to is of another type or shape, or overlaps itself";
    return Decomposition::Refused;
  }
  const OutermostDispatch outermost;
  const ActiveCall inside(call.entry, Route::Decomposed);
  return in_python([&] {
    py::list expected;
    for (const OutPlan& out : plan.outs) {
      expected.append(py::make_tuple(py::cast(out.dtype), std::vector<int64_t>(out.sizes.begin(), out.sizes.end())));
    }
    const py::tuple answer = python_function(kDecompositions, "analyse")(call.entry.kernel_name, call.device->index,
                                                                         functional_arguments(call), expected);
    *what = answer[1].cast<std::string>();
    if (what->empty()) return Decomposition::None;
    return answer[0].cast<bool>() ? Decomposition::Taken : Decomposition::Refused;
  });
}

void run_python_route(Call& call, Plan& plan, at::Tensor* outs) {
  const bool decomposed = plan.route == Route::Decomposed;
  const std::string who = decomposed ? "the decomposition of " + call.entry.name : override_name(call, plan);
  const ActiveCall inside(call.entry, plan.route);
  const c10::DeviceGuard device(c10::Device(c10::kPrivateUse1, static_cast<c10::DeviceIndex>(call.device->index)));
  const at::AutoDispatchBelowADInplaceOrView below;
  const c10::impl::ExcludeDispatchKeyGuard no_casts(c10::autocast_dispatch_keyset);
  const auto results = in_python([&] {
    const py::object given =
        decomposed ? python_function(kDecompositions, "run")(call.entry.kernel_name, functional_arguments(call))
                   : python_function(kOverrides, "run")(plan.fallback->python, plan.fallback->expression,
                                                        call.entry.kernel_name, functional_arguments(call));
    return as_tensors(given, who);
  });
  deliver(call, plan, who, results, outs);
}

std::optional<std::string> recursion(const Call& call, const Plan& plan) {
  for (const Active& outer : active()) {
    if (plan.route == Route::Decomposed && outer.route == Route::Decomposed) {
      return "a part of the decomposition of " + outer.entry->name + ", and not decomposed itself";
    }
    if (outer.route == plan.route && outer.entry->kernel_name == call.entry.kernel_name) {
      return "called by its own override";
    }
  }
  return std::nullopt;
}

bool inside_decomposition() {
  return std::any_of(active().begin(), active().end(), [](const Active& a) { return a.route == Route::Decomposed; });
}

}  // namespace torch_fl::glue
