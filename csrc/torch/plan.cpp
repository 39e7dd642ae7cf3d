// SPDX-License-Identifier: Apache-2.0
#include "plan.h"

#include <chrono>
#include <cstring>
#include <map>
#include <mutex>
#include <optional>
#include <tuple>
#include <unordered_map>
#include <unordered_set>

namespace torch_fl::glue {

std::atomic<bool> g_counting{true};
std::atomic<bool> g_timing{false};

const char* route_name(Route route) {
  switch (route) {
    case Route::Kernel:
      return "kernel";
    case Route::Portable:
      return "portable";
    case Route::Override:
      return "override";
    case Route::Decomposed:
      return "decomposed";
    case Route::Host:
      return "host";
    case Route::Composite:
      return "composite";
    case Route::Denied:
      return "denied";
  }
  return "?";
}

fl_dtype to_fl_dtype(at::ScalarType type) {
  switch (type) {
    case at::kByte:
      return FL_UINT8;
    case at::kChar:
      return FL_INT8;
    case at::kShort:
      return FL_INT16;
    case at::kInt:
      return FL_INT32;
    case at::kLong:
      return FL_INT64;
    case at::kHalf:
      return FL_FLOAT16;
    case at::kFloat:
      return FL_FLOAT32;
    case at::kDouble:
      return FL_FLOAT64;
    case at::kComplexHalf:
      return FL_COMPLEX32;
    case at::kComplexFloat:
      return FL_COMPLEX64;
    case at::kComplexDouble:
      return FL_COMPLEX128;
    case at::kBool:
      return FL_BOOL;
    case at::kBFloat16:
      return FL_BFLOAT16;
    case at::kUInt16:
      return FL_UINT16;
    case at::kUInt32:
      return FL_UINT32;
    case at::kUInt64:
      return FL_UINT64;
    case at::kFloat8_e5m2:
      return FL_FLOAT8_E5M2;
    case at::kFloat8_e4m3fn:
      return FL_FLOAT8_E4M3FN;
    case at::kFloat8_e5m2fnuz:
      return FL_FLOAT8_E5M2FNUZ;
    case at::kFloat8_e4m3fnuz:
      return FL_FLOAT8_E4M3FNUZ;
    case at::kFloat8_e8m0fnu:
      return FL_FLOAT8_E8M0FNU;
    default:
      return FL_DTYPE_OTHER;
  }
}

at::ScalarType from_fl_dtype(fl_dtype type) {
  for (int i = 0; i < static_cast<int>(at::ScalarType::NumOptions); ++i) {
    if (to_fl_dtype(static_cast<at::ScalarType>(i)) == type) return static_cast<at::ScalarType>(i);
  }
  return at::ScalarType::Undefined;
}

const char* dtype_name(at::ScalarType type) {
  switch (type) {
    case at::kByte:
      return "uint8";
    case at::kChar:
      return "int8";
    case at::kShort:
      return "int16";
    case at::kInt:
      return "int32";
    case at::kLong:
      return "int64";
    case at::kHalf:
      return "float16";
    case at::kFloat:
      return "float32";
    case at::kDouble:
      return "float64";
    case at::kComplexHalf:
      return "complex32";
    case at::kComplexFloat:
      return "complex64";
    case at::kComplexDouble:
      return "complex128";
    case at::kBool:
      return "bool";
    case at::kBFloat16:
      return "bfloat16";
    case at::kUInt16:
      return "uint16";
    case at::kUInt32:
      return "uint32";
    case at::kUInt64:
      return "uint64";
    default:
      return c10::toString(type);
  }
}

void TensorTemplate::describe(at::ScalarType dtype, at::IntArrayRef sizes_, at::IntArrayRef strides_) {
  sizes.assign(sizes_.begin(), sizes_.end());
  strides.assign(strides_.begin(), strides_.end());
  descriptor.struct_size = sizeof(fl_tensor);
  descriptor.dtype = to_fl_dtype(dtype);
  descriptor.ndim = static_cast<int32_t>(sizes.size());
  descriptor.sizes = sizes.data();
  descriptor.strides = strides.data();
  descriptor.numel = c10::multiply_integers(sizes_);
  uint32_t flags = 0;
  int64_t expected = 1;
  bool contiguous = true;
  for (size_t i = sizes.size(); i-- > 0;) {
    if (sizes[i] != 1 && strides[i] != expected) contiguous = false;
    expected *= sizes[i];
  }
  if (contiguous || descriptor.numel == 0) flags |= FL_TENSOR_CONTIGUOUS;
  if ((sizes.size() == 4 && c10::is_channels_last_strides_2d(sizes_, strides_)) ||
      (sizes.size() == 5 && c10::is_channels_last_strides_3d(sizes_, strides_))) {
    flags |= FL_TENSOR_CHANNELS_LAST;
  }
  descriptor.flags = flags;
}

// ---- Cache ------------------------------------------------------------------------------------------------------
namespace {

std::atomic<uint64_t> g_generation{1};

struct CounterKey {
  std::string op, overload, chip;
  int32_t device;
  Route route;
  std::string reason;
  bool operator<(const CounterKey& o) const {
    return std::tie(op, overload, chip, device, route, reason) <
           std::tie(o.op, o.overload, o.chip, o.device, o.route, o.reason);
  }
};
struct CounterSum {
  uint64_t calls = 0, bytes = 0, syncs = 0, ticks = 0, conversions = 0;
};

// Guards the list of caches, the buckets' chains against a concurrent reader (insert and drop take it; find, on the
// owner's thread, need not), and the sums of plans that are gone.
std::mutex g_mutex;
std::unordered_set<PlanCache*>& caches() {
  static auto* set = new std::unordered_set<PlanCache*>();
  return *set;
}
std::map<CounterKey, CounterSum>& retired() {
  static auto* map = new std::map<CounterKey, CounterSum>();
  return *map;
}

void add_to(std::map<CounterKey, CounterSum>& sums, const Plan& plan) {
  const uint64_t calls = plan.calls.load(std::memory_order_relaxed);
  if (calls == 0 || plan.route == Route::Composite) return;
  CounterKey key{plan.entry->op_name,
                 plan.entry->overload,
                 plan.device != nullptr ? plan.device->chip.name : "",
                 plan.device != nullptr ? plan.device->index : -1,
                 plan.route,
                 plan.reason};
  auto& sum = sums[key];
  sum.calls += calls;
  sum.bytes += plan.bytes.load(std::memory_order_relaxed);
  sum.syncs += plan.syncs.load(std::memory_order_relaxed);
  sum.ticks += plan.ticks.load(std::memory_order_relaxed);
  sum.conversions += plan.conversions.load(std::memory_order_relaxed);
}

constexpr size_t kMaxPlansPerEntry = 4096;

}  // namespace

void clear_plans() { g_generation.fetch_add(1, std::memory_order_acq_rel); }
uint64_t plan_generation() { return g_generation.load(std::memory_order_acquire); }

PlanCache& PlanCache::mine() {
  static thread_local PlanCache cache;
  return cache;
}

PlanCache::PlanCache() {
  std::lock_guard<std::mutex> lock(g_mutex);
  caches().insert(this);
}

PlanCache::~PlanCache() {
  drop_all();
  sweep();
  std::lock_guard<std::mutex> lock(g_mutex);
  caches().erase(this);
}

Plan* PlanCache::find(uint32_t entry_id, const Signature& signature) {
  const uint64_t generation = plan_generation();
  if (generation != generation_) {
    drop_all();
    generation_ = generation;
  }
  if (entry_id >= slots_.size() || !signature.cacheable()) return nullptr;
  Slot& slot = slots_[entry_id];
  auto matches = [&](const Plan* plan) {
    return plan->hash == signature.hash() && plan->key.size() == signature.size() &&
           std::memcmp(plan->key.data(), signature.words(), signature.size() * sizeof(uint64_t)) == 0;
  };
  if (slot.last != nullptr && matches(slot.last)) return slot.last;
  if (slot.buckets.empty()) return nullptr;
  for (Plan* plan = slot.buckets[signature.hash() & (slot.buckets.size() - 1)]; plan != nullptr; plan = plan->next) {
    if (matches(plan)) return slot.last = plan;
  }
  return nullptr;
}

Plan* PlanCache::insert(Entry& entry, const Signature& signature, std::unique_ptr<Plan> plan) {
  std::lock_guard<std::mutex> lock(g_mutex);
  plan->entry = &entry;
  plan->hash = signature.hash();
  if (!signature.cacheable()) {
    dirty_ = true;
    graveyard_.push_back(std::move(plan));
    return graveyard_.back().get();
  }
  if (entry.id >= slots_.size()) slots_.resize(entry.id + 64);
  Slot& slot = slots_[entry.id];
  if (slot.count >= kMaxPlansPerEntry) drop(slot);
  if (slot.count >= slot.buckets.size()) {
    std::vector<Plan*> grown(slot.buckets.empty() ? 8 : slot.buckets.size() * 4, nullptr);
    for (Plan* head : slot.buckets) {
      while (head != nullptr) {
        Plan* next = head->next;
        Plan*& bucket = grown[head->hash & (grown.size() - 1)];
        head->next = bucket;
        bucket = head;
        head = next;
      }
    }
    slot.buckets = std::move(grown);
  }
  plan->key.assign(signature.words(), signature.words() + signature.size());
  Plan*& bucket = slot.buckets[plan->hash & (slot.buckets.size() - 1)];
  plan->next = bucket;
  bucket = plan.release();
  ++slot.count;
  return slot.last = bucket;
}

void PlanCache::drop(Slot& slot) {
  for (Plan* head : slot.buckets) {
    while (head != nullptr) {
      Plan* next = head->next;
      graveyard_.emplace_back(head);
      head = next;
    }
  }
  slot = Slot{};
  dirty_ = true;
}

void PlanCache::drop_all() {
  std::lock_guard<std::mutex> lock(g_mutex);
  for (auto& slot : slots_) {
    if (slot.count > 0) drop(slot);
  }
}

void PlanCache::sweep() {
  std::lock_guard<std::mutex> lock(g_mutex);
  for (auto& plan : graveyard_) add_to(retired(), *plan);
  graveyard_.clear();
  dirty_ = false;
}

// ---- Counters ---------------------------------------------------------------------------------------------------
struct CounterAccess {
  template <class F>
  static void each_plan(F&& f) {
    for (PlanCache* cache : caches()) {
      for (auto& slot : cache->slots_) {
        for (Plan* plan : slot.buckets) {
          for (; plan != nullptr; plan = plan->next) f(*plan);
        }
      }
      for (auto& plan : cache->graveyard_) f(*plan);
    }
  }
};

namespace {

struct ClockPair {
  std::chrono::steady_clock::time_point time = std::chrono::steady_clock::now();
  uint64_t ticks = clock_ticks();
};
const ClockPair g_loaded;

// Over the time since this library was loaded: long against the error of one reading, even in the first call.
double nanoseconds_per_tick() {
  const ClockPair now;
  const std::chrono::duration<double, std::nano> passed = now.time - g_loaded.time;
  const uint64_t ticks = now.ticks - g_loaded.ticks;
  return ticks > 0 ? passed.count() / static_cast<double>(ticks) : 1;
}

}  // namespace

std::vector<CounterRow> collect_counters() {
  std::lock_guard<std::mutex> lock(g_mutex);
  auto sums = retired();
  CounterAccess::each_plan([&](Plan& plan) { add_to(sums, plan); });
  std::vector<CounterRow> rows;
  const double period = nanoseconds_per_tick();
  for (auto& [k, s] : sums) {
    const auto nanoseconds = static_cast<uint64_t>(static_cast<double>(s.ticks) * period);
    rows.push_back(
        {k.op, k.overload, k.chip, k.device, k.route, k.reason, s.calls, s.bytes, s.syncs, nanoseconds, s.conversions});
  }
  return rows;
}

void reset_counters() {
  std::lock_guard<std::mutex> lock(g_mutex);
  retired().clear();
  CounterAccess::each_plan([](Plan& plan) {
    for (auto* c : {&plan.calls, &plan.bytes, &plan.syncs, &plan.ticks, &plan.conversions}) {
      c->store(0, std::memory_order_relaxed);
    }
  });
}

// ---- Policies ---------------------------------------------------------------------------------------------------
namespace {
std::mutex g_policy_mutex;
std::optional<Policy> g_policy;
std::unordered_map<std::string, Policy>& op_policies() {
  static auto* map = new std::unordered_map<std::string, Policy>();
  return *map;
}
}  // namespace

namespace {
Policy parse_policy(const std::string& policy) {
  return policy == "deny" ? Policy::Deny : policy == "warn" ? Policy::Warn : Policy::Allow;
}
std::optional<Policy> process_policy(const Entry& entry) {
  std::lock_guard<std::mutex> lock(g_policy_mutex);
  for (const std::string& key : {entry.name, entry.op_name}) {
    auto found = op_policies().find(key);
    if (found != op_policies().end()) return found->second;
  }
  return g_policy;
}
}  // namespace

void set_policy(const std::string& op, const std::string& policy) {
  std::lock_guard<std::mutex> lock(g_policy_mutex);
  TORCH_CHECK_VALUE(policy == "allow" || policy == "warn" || policy == "deny" || policy.empty(),
                    "fallback policy must be 'allow', 'warn' or 'deny', found '", policy, "'");
  const Policy value = parse_policy(policy);
  if (op.empty()) {
    g_policy = policy.empty() ? std::nullopt : std::optional(value);
  } else if (policy.empty()) {
    op_policies().erase(op);
  } else {
    op_policies()[op] = value;
  }
  clear_plans();
}

const runtime::OpFallback* find_fallback(const runtime::Chip& chip, const Entry& entry) {
  if (chip.fallbacks.empty()) return nullptr;
  for (const std::string& key :
       {entry.name, entry.op_name, entry.kernel_name, entry.kernel_name.substr(0, entry.kernel_name.find('.'))}) {
    auto found = chip.fallbacks.find(key);
    if (found != chip.fallbacks.end()) return &found->second;
  }
  return nullptr;
}

ChosenPolicy choose_policy(const Entry& entry, const runtime::Chip& chip) {
  if (const auto said = process_policy(entry)) return {*said, false};
  const runtime::OpFallback* fallback = find_fallback(chip, entry);
  if (fallback != nullptr && !fallback->policy.empty()) return {parse_policy(fallback->policy), true};
  return {parse_policy(chip.policy), !chip.policy.empty()};
}

}  // namespace torch_fl::glue
