// SPDX-License-Identifier: Apache-2.0
#include "planner.h"

#include <algorithm>
#include <iterator>

#include "decompose.h"
#include "kernel_planner.h"
#include "python_chip.h"
#include "relabelled.h"
#include "settings.h"

namespace torch_fl::glue {
namespace {

bool writes_to_an_input(const Call& call) {
  const auto& mutated = call.entry.mutated;
  for (uint32_t i = 0; i + call.entry.n_out_args < call.n_args; ++i) {
    const PackedArg& a = call.args[i];
    for (uint32_t m : mutated) {
      if (a.kind == Kind::Tensor && call.args[m].kind == Kind::Tensor && a.u.tensor->is_same(*call.args[m].u.tensor)) {
        return true;
      }
    }
  }
  return false;
}

// A composite whose CPU kernel serves better. A chip without kernels would send every operator of the composition to
// the host, one by one; what does not fit an out= is the CPU kernel's to decide, unless it is an input: CPU kernels
// learn that by comparing references, which a boxed call cannot show them.
bool runs_whole(const Call& call) {
  const bool out = call.entry.form == Form::Out;
  return call.entry.cpu_kernel && (out ? !writes_to_an_input(call) : is_bare(call.device->chip));
}

// What a refusal says of a route, in words.
std::string refused_text(const std::string& before, Route route, const std::string& refusal) {
  switch (route) {
    case Route::Kernel:
      return portable_first() ? before + "; the chip's kernel: " + refusal : refusal;
    case Route::Portable:
      return before + "; the portable kernel: " + refusal;
    default:
      return before + "; " + refusal;
  }
}

std::string chosen_text(Route route, const std::string& reason) {
  switch (route) {
    case Route::Kernel:
      return "the chip's kernel";
    case Route::Portable:
      return "the portable kernel: " + reason;
    case Route::Override:
      return "the override that the chip's descriptor names: " + reason;
    default:
      return reason;
  }
}

/// The routes of one call, in order, beginning after one that declined.
class Routes {
 public:
  Routes(Call& call, Signature& signature, const PlanRequest& request)
      : call_(call),
        signature_(signature),
        request_(request),
        reason_(request.reason),
        by_pytorch_(request.by_pytorch) {
    if (reason_.empty()) reason_ = forced_reason(call.device->chip, call.entry);
    if (reason_.empty()) reason_ = "the chip has no kernel for " + call.entry.kernel_name;
  }

  std::unique_ptr<Plan> choose() {
    for (const Candidate& candidate : candidates(call_.device->chip, call_.entry)) {
      if (!allowed(candidate.route)) continue;
      if (auto plan = by_kernel(candidate)) return plan;
    }
    if (auto plan = by_override()) return plan;
    if (allowed(Route::Composite) && call_.entry.composite && !for_cpu_ && !runs_whole(call_)) {
      return finish(fresh(), Route::Composite);
    }
    if (auto plan = by_decomposition()) return plan;
    auto plan = finish(fresh(), Route::Host);
    if (!request_.probe) plan->relabelled = Relabelled::make(call_);
    return plan;
  }

 private:
  // In the order of their choice; a composition of PyTorch's comes before a decomposition of its tables.
  static int rank(Route route) {
    static constexpr Route kOrder[] = {Route::Kernel, Route::Portable, Route::Override, Route::Composite,
                                       Route::Decomposed};
    return static_cast<int>(std::find(std::begin(kOrder), std::end(kOrder), route) - std::begin(kOrder));
  }
  bool allowed(Route route) const {
    if (route > Route::Portable && route != Route::Composite && route < first_route(call_.entry)) return false;
    if (route == Route::Composite && forced_to_host(call_.entry)) return false;
    if (request_.kernels_only && route != Route::Kernel && route != Route::Portable && route != Route::Composite) {
      return false;
    }
    return !request_.after.has_value() || rank(route) > rank(*request_.after);
  }

  std::unique_ptr<Plan> fresh() const {
    auto plan = std::make_unique<Plan>();
    plan->device = call_.device;
    return plan;
  }
  std::unique_ptr<Plan> finish(std::unique_ptr<Plan> plan, Route route) const {
    plan->route = route;
    plan->reason = chosen_text(route, reason_);
    plan->policy = policy_for(call_.entry, call_.device->chip);
    return plan;
  }
  void refused(Route route, const std::string& why) {
    reason_ = refused_text(reason_, route, why);
    if (request_.refusals != nullptr) request_.refusals->emplace_back(route, why);
  }

  std::unique_ptr<Plan> by_kernel(const Candidate& candidate) {
    auto plan = fresh();
    const KernelAnswer answer = plan_kernel(call_, signature_, candidate, *plan);
    if (answer.serves) return finish(std::move(plan), candidate.route);
    for_cpu_ |= answer.for_cpu;
    // Portable kernels can do what PyTorch describes; what they decline is the CPU's to decide.
    by_pytorch_ |= candidate.route == Route::Portable || !answer.unable;
    refused(candidate.route, answer.refusal);
    return nullptr;
  }

  std::unique_ptr<Plan> by_override() {
    const runtime::OpFallback* fallback = find_fallback(call_.device->chip, call_.entry);
    if (fallback == nullptr || !allowed(Route::Override) || !has_override(*fallback)) return nullptr;
    auto plan = fresh();
    plan->fallback = fallback;
    std::string refusal;
    if (plan_override(call_, *plan, &refusal)) return finish(std::move(plan), Route::Override);
    refused(Route::Override, refusal);
    return nullptr;
  }

  std::unique_ptr<Plan> by_decomposition() {
    if (!allowed(Route::Decomposed) || for_cpu_ || by_pytorch_) return nullptr;
    auto plan = fresh();
    std::string what;
    switch (plan_decomposition(call_, *plan, &what)) {
      case Decomposition::Taken:
        reason_ += "; " + what;
        return finish(std::move(plan), Route::Decomposed);
      case Decomposition::Refused:
        refused(Route::Decomposed, what);
        return nullptr;
      case Decomposition::None:
        return nullptr;
    }
    return nullptr;
  }

  Call& call_;
  Signature& signature_;
  const PlanRequest& request_;
  std::string reason_;
  bool for_cpu_ = false;
  bool by_pytorch_;  ///< a kernel there is was kept from the call by PyTorch's rules
};

}  // namespace

std::unique_ptr<Plan> make_plan(Call& call, Signature& signature, const PlanRequest& request) {
  return Routes(call, signature, request).choose();
}

}  // namespace torch_fl::glue
