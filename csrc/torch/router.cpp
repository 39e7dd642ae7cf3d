// SPDX-License-Identifier: Apache-2.0
#include "router.h"

#include <ATen/core/dispatch/Dispatcher.h>
#include <c10/util/Exception.h>

#include "adapt.h"
#include "decompose.h"
#include "device_allocator.h"
#include "errors.h"
#include "execute.h"
#include "host_route.h"
#include "masks.h"
#include "planner.h"
#include "random_ops.h"
#include "recorder.h"
#include "relabelled.h"
#include "storm.h"
#include "unsupported.h"

namespace torch_fl::glue {
namespace {

bool on_fl(const at::Tensor& t) { return t.device().type() == c10::kPrivateUse1; }

[[noreturn]] void mixed_devices(const Call& call, c10::Device a, c10::Device b) {
  TORCH_CHECK(false, "Expected all tensors to be on the same device, but found at least two devices, ", a, " and ", b,
              "! (when running ", call.entry.name, ")");
}

// False: not a device tensor.
bool note_device(Call& call, const at::Tensor& t) {
  if (!on_fl(t)) return false;
  const c10::DeviceIndex index = t.device().index();
  if (call.device == nullptr) {
    call.device = &device_at(index);
  } else if (C10_UNLIKELY(call.device->index != index)) {
    mixed_devices(call, c10::Device(c10::kPrivateUse1, static_cast<c10::DeviceIndex>(call.device->index)), t.device());
  }
  return true;
}

// CPU tensors beside device ones: scalars are welcome, anything else only where PyTorch allows it.
void check_host_tensor(const Call& call, const at::Tensor& t, bool mutated) {
  if (on_fl(t)) return;
  if (!mutated && t.device().is_cpu() && (t.dim() == 0 || call.entry.host_tensors_ok)) return;
  mixed_devices(call, c10::Device(c10::kPrivateUse1, static_cast<c10::DeviceIndex>(call.device->index)), t.device());
}

void sign_tensor(Signature& s, const at::Tensor& t, uint64_t alias) {
  if (!t.defined()) {
    s.add(static_cast<uint64_t>(Kind::None));
    return;
  }
  c10::TensorImpl* impl = t.unsafeGetTensorImpl();
  const auto sizes = impl->sizes();
  uint64_t word = static_cast<uint64_t>(Kind::Tensor) | static_cast<uint64_t>(impl->dtype().toScalarType()) << 8 |
                  static_cast<uint64_t>(sizes.size()) << 16 | alias << 56;
  word |= static_cast<uint64_t>(impl->is_wrapped_number()) << 32;
  word |= static_cast<uint64_t>(static_cast<uint8_t>(impl->device_type())) << 40;
  word |= static_cast<uint64_t>(static_cast<uint8_t>(impl->device().index())) << 48;
  if (t.layout() != at::kStrided || impl->is_conj() || t.is_neg()) s.forbid_caching();
  s.add(word);
  for (int64_t v : sizes) s.add(static_cast<uint64_t>(v));
  if (t.layout() != at::kStrided) return;
  for (int64_t v : impl->strides()) s.add(static_cast<uint64_t>(v));
}

// How a tensor relates to the mutated arguments: 0 apart, 1 exactly the same memory, 2 overlapping some other way.
uint64_t alias_class(const Call& call, uint32_t index, const at::Tensor& t) {
  if (!t.defined() || !t.has_storage()) return 0;
  for (uint32_t m : call.entry.mutated) {
    if (m == index || call.args[m].kind != Kind::Tensor) continue;
    const at::Tensor& other = *call.args[m].u.tensor;
    if (!other.has_storage() || !t.storage().is_alias_of(other.storage()) || t.storage().nbytes() == 0) continue;
    const bool same = t.storage_offset() == other.storage_offset() && t.sizes() == other.sizes() &&
                      t.strides() == other.strides() && t.dtype() == other.dtype();
    return same ? 1 : 2;
  }
  return 0;
}

void sign_scalar(Signature& s, const at::Scalar& v, bool with_value) {
  s.add(static_cast<uint64_t>(Kind::Scalar) | static_cast<uint64_t>(v.type()) << 8);
  if (!with_value) return;
  const double d = v.isComplex() ? v.toComplexDouble().real() : v.toDouble();
  uint64_t bits;
  std::memcpy(&bits, &d, sizeof(bits));
  s.add(bits);
  if (v.isIntegral(true)) s.add(static_cast<uint64_t>(v.toLong()));
}

void sign_list(Signature& s, const PackedArg& a, bool with_value) {
  s.add(static_cast<uint64_t>(a.kind) | static_cast<uint64_t>(a.count) << 8);
  for (uint32_t k = 0; k < a.count; ++k) {
    switch (a.kind) {
      case Kind::IntList:
        s.add(static_cast<uint64_t>(a.u.ints[k]));
        break;
      case Kind::BoolList:
        s.add(a.u.bools[k]);
        break;
      case Kind::String:
        s.add(static_cast<uint64_t>(a.u.s[k]));
        break;
      case Kind::ScalarList:
        sign_scalar(s, a.u.scalars[k], with_value);
        break;
      default:
        break;  // real lists: kinds, not values
    }
  }
}

void sign_argument(Call& call, Signature& s, uint32_t i) {
  const PackedArg& a = call.args[i];
  const bool mutating = !call.entry.mutated.empty();
  switch (a.kind) {
    case Kind::Tensor: {
      const uint64_t alias = mutating ? alias_class(call, i, *a.u.tensor) : 0;
      if (alias == 2) s.forbid_caching();
      sign_tensor(s, *a.u.tensor, alias);
      break;
    }
    case Kind::TensorList:
      s.add(static_cast<uint64_t>(Kind::TensorList) | static_cast<uint64_t>(a.count) << 8);
      for (uint32_t k = 0; k < a.count; ++k) {
        if (mutating && alias_class(call, i, a.u.tensors[k]) != 0) s.forbid_caching();
        sign_tensor(s, a.u.tensors[k], 0);
      }
      break;
    case Kind::Scalar:
      sign_scalar(s, *a.u.scalar, call.entry.scalar_values_matter);
      break;
    case Kind::Int:
    case Kind::Bool:
    case Kind::DType:
    case Kind::Enum:
      s.add(static_cast<uint64_t>(a.kind));
      s.add(static_cast<uint64_t>(a.u.i));
      break;
    case Kind::IntList:
    case Kind::RealList:
    case Kind::BoolList:
    case Kind::String:
    case Kind::ScalarList:
      sign_list(s, a, call.entry.scalar_values_matter);
      break;
    case Kind::None:
    case Kind::Real:
    case Kind::Generator:
      s.add(static_cast<uint64_t>(a.kind));
      break;
  }
}

// No fl tensor at all: a generator's key led here, and PyTorch's own devices refuse a generator of another device.
void refuse_foreign_generator(const Call& call) {
  bool generator = false, host = false;
  for (uint32_t i = 0; i < call.n_args; ++i) {
    generator |= call.args[i].kind == Kind::Generator;
    host |= call.args[i].kind == Kind::Tensor && call.args[i].u.tensor->defined();
  }
  TORCH_CHECK(!(generator && host), "Expected a 'cpu' device type for generator but found 'fl'");
}

// A factory: the device= argument, or the current device.
int32_t requested_device(const Call& call) {
  for (uint32_t i = 0; i < call.n_args; ++i) {
    if (call.args[i].kind != Kind::Enum || call.entry.args[i].name != "device") continue;
    const auto type = static_cast<c10::DeviceType>(call.args[i].u.i >> 8);
    const auto index = static_cast<int8_t>(call.args[i].u.i & 0xff);
    if (type == c10::kPrivateUse1 && index >= 0) return index;
  }
  return runtime::current_device();
}

template <class F>
void each_tensor(const Call& call, F&& f) {
  for (uint32_t i = 0; i < call.n_args; ++i) {
    const PackedArg& a = call.args[i];
    if (a.kind == Kind::Tensor) f(i, *a.u.tensor);
    if (a.kind != Kind::TensorList) continue;
    for (uint32_t k = 0; k < a.count; ++k) {
      if (a.u.tensors[k].defined()) f(i, a.u.tensors[k]);
    }
  }
}

void find_device(Call& call) {
  bool mixed = false;
  each_tensor(call, [&](uint32_t, const at::Tensor& t) { mixed |= !note_device(call, t); });
  if (C10_UNLIKELY(call.device == nullptr)) {
    refuse_foreign_generator(call);
    call.device = &device_at(requested_device(call));
  } else if (C10_UNLIKELY(mixed)) {
    each_tensor(call, [&](uint32_t i, const at::Tensor& t) { check_host_tensor(call, t, call.entry.args[i].mutated); });
  }
}

void sign(Call& call, Signature& s) {
  s.add(call.n_args);
  for (uint32_t i = 0; i < call.n_args; ++i) sign_argument(call, s, i);
}

void run_composite(Call& call) {
  Stack& stack = boxed(call);
  c10::DeviceGuard guard(c10::Device(c10::kPrivateUse1, static_cast<c10::DeviceIndex>(call.device->index)));
  call.entry.op.redispatchBoxed(c10::DispatchKeySet(c10::DispatchKey::PrivateUse2), &stack);
  call.results_on_stack = true;
}

void warn_fallback(Entry& entry, const Plan& plan) {
  if (plan.policy != Policy::Warn || entry.warned.exchange(true)) return;
  TORCH_WARN(entry.name, " runs on the host, not on ", plan.device->chip.name, " (fl:", plan.device->index,
             "): ", plan.reason, ". Shown once per operator; torch_fl.counters() has the totals.");
}

void run_on_host(Call& call, Plan& plan, at::Tensor* outs) {
  if (plan.policy == Policy::Deny) throw_unsupported(call, plan.reason);
  warn_fallback(call.entry, plan);
  const uint64_t start = clock_ticks();
  if (plan.relabelled != nullptr && !plan.relabelled->running() && !stock_fallback()) {
    plan.relabelled->run(call, outs);
    bump(plan.syncs);
  } else {
    HostCall host{call, boxed(call), *call.device, plan};
    call.results_on_stack = true;
    host_route(host);
  }
  bump(plan.ticks, clock_ticks() - start);
  host_call_over();
}

Plan& run_planned(Call& call, PlanCache& cache, Plan& plan, at::Tensor* outs);

// A route declined at run time: take a later one, and count that under its own reason.
Plan& route_on(Call& call, PlanCache& cache, Plan& declined, const Declined& why, at::Tensor* outs) {
  Signature none;
  none.forbid_caching();
  PlanRequest request;
  request.after = declined.route;
  request.reason = why.reason;
  request.by_pytorch = why.by_pytorch || declined.route == Route::Portable;
  request.kernels_only = inside_decomposition();
  Plan* p = cache.insert(call.entry, none, make_plan(call, none, request));
  if (g_counting.load(std::memory_order_relaxed)) {
    bump(p->calls);
    bump(declined.calls, static_cast<uint64_t>(-1));
  }
  return run_planned(call, cache, *p, outs);
}

// An override or a decomposition, in Python. What it calls may not lead back to it.
Plan& run_by_python(Call& call, PlanCache& cache, Plan& plan, at::Tensor* outs) {
  if (const auto reason = recursion(call, plan)) return route_on(call, cache, plan, {*reason}, outs);
  const uint64_t start = clock_ticks();
  run_python_route(call, plan, outs);
  bump(plan.ticks, clock_ticks() - start);
  return plan;
}

/// Returns the plan that served the call: another one when the kernel declined.
Plan& run_planned(Call& call, PlanCache& cache, Plan& plan, at::Tensor* outs) {
  switch (plan.route) {
    case Route::Override:
      if (plan.kernel == nullptr) return run_by_python(call, cache, plan, outs);
      [[fallthrough]];
    case Route::Kernel:
    case Route::Portable: {
      Declined why;
      return execute(call, plan, outs, &why) ? plan : route_on(call, cache, plan, why, outs);
    }
    case Route::Decomposed:
      return run_by_python(call, cache, plan, outs);
    case Route::Composite:
      run_composite(call);
      return plan;
    default:
      run_on_host(call, plan, outs);
      return plan;
  }
}

/// The same while somebody observes. Out of the hot path.
C10_NOINLINE void run_observed(Call& call, PlanCache& cache, Plan& plan, at::Tensor* outs) {
  ObservedCall observed(*call.device);
  observed.about(call, plan);
  observed.served_by(run_planned(call, cache, plan, outs));
  observed.succeed();
}

// Kept conversions of what the call has written, or may have.
C10_NOINLINE void note_writes(const Call& call) {
  each_tensor(call, [&](uint32_t i, const at::Tensor& t) {
    if (call.entry.args[i].written) tensor_changed(t);
  });
}

/// Whatever becomes of the call.
class NoteWrites {
 public:
  explicit NoteWrites(const Call& call) : call_(call) {}
  ~NoteWrites() {
    if (C10_UNLIKELY(g_kept.load(std::memory_order_relaxed) != 0) && call_.entry.writes) note_writes(call_);
  }
  NoteWrites(const NoteWrites&) = delete;
  NoteWrites& operator=(const NoteWrites&) = delete;

 private:
  const Call& call_;
};

}  // namespace

void run(Call& call, at::Tensor* outs) {
  guarded([&] {
    find_device(call);
    if (C10_UNLIKELY(call.entry.indices >= 0)) expand_masks(call);
    Signature signature;
    sign(call, signature);
    PlanCache& cache = PlanCache::mine();
    PlanCache::Scope scope(cache);
    Plan* plan = cache.find(call.entry.id, signature);
    if (plan == nullptr) {
      auto fresh = make_plan(call, signature);
      plan = cache.insert(call.entry, signature, std::move(fresh));
    }
    if (g_counting.load(std::memory_order_relaxed)) bump(plan->calls);
    const NoteWrites note(call);
    if (C10_UNLIKELY(runtime::observing())) return run_observed(call, cache, *plan, outs);
    run_planned(call, cache, *plan, outs);
  });
}

Stack& boxed(Call& call) {
  if (call.stack == nullptr) {
    call.stack = &call.storage;
    call.storage.reserve(call.n_args);
    call.box(call.typed, call.storage);
  }
  return *call.stack;
}

runtime::Device& device_at(int32_t index) {
  TORCH_CHECK(runtime::Registry::get().device_count() > 0,
              "there is no fl device: no plugin was loaded (see torch_fl.list_plugins())");
  return runtime::Registry::get().device(index);
}
runtime::Device& runtime_device(const at::Tensor& tensor) {
  return runtime::Registry::get().at(tensor.device().index());
}

// ---- Boxed fallback ---------------------------------------------------------------------------------------------
namespace {

Entry& cached_entry(const c10::OperatorHandle& op) {
  static thread_local std::unordered_map<const c10::FunctionSchema*, Entry*> cache;
  Entry*& entry = cache[&op.schema()];
  if (entry == nullptr) entry = &entry_for(op);
  return *entry;
}

void push_results(Call& call, Stack& stack, std::vector<at::Tensor>& outs) {
  const Entry& entry = call.entry;
  std::vector<c10::IValue> results;
  if (entry.form == Form::Functional) {
    for (auto& t : outs) results.emplace_back(std::move(t));
  } else {
    const uint32_t first = entry.form == Form::Out ? entry.n_out_args : static_cast<uint32_t>(entry.mutated.size());
    for (uint32_t r = 0; r < entry.n_returns; ++r) {
      results.push_back(stack[entry.mutated[entry.mutated.size() - first + r]]);
    }
  }
  stack.clear();
  for (auto& r : results) stack.push_back(std::move(r));
}

}  // namespace

void boxed_fallback(const c10::OperatorHandle& op, Stack* stack) {
  Entry& entry = cached_entry(op);
  const size_t n = entry.args.size();
  // The stack may hold more than this call's arguments.
  Stack own(std::make_move_iterator(stack->end() - static_cast<int64_t>(n)), std::make_move_iterator(stack->end()));
  stack->resize(stack->size() - n);
  c10::SmallVector<PackedArg, 12> packed(n);
  LazyStore store;
  for (size_t i = 0; i < n; ++i) pack_ivalue(packed[i], store, own[i], entry.args[i].type);
  Call call{entry, packed.data(), static_cast<uint32_t>(n), store};
  call.stack = &own;
  std::vector<at::Tensor> outs(entry.n_returns);
  run(call, outs.data());
  if (!call.results_on_stack) push_results(call, own, outs);
  for (auto& v : own) stack->push_back(std::move(v));
}

}  // namespace torch_fl::glue
