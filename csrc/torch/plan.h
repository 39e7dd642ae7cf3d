// SPDX-License-Identifier: Apache-2.0
// Signatures, plans and the per-thread plan cache. See docs/design/core.md.
#pragma once

#include <ATen/ATen.h>
#include <c10/util/ApproximateClock.h>
#include <c10/util/SmallVector.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "entry.h"
#include "packed.h"
#include "runtime/device.h"

namespace torch_fl::glue {

class Relabelled;

enum class Route : uint8_t { Kernel, Portable, Override, Decomposed, Host, Composite, Denied };
const char* route_name(Route route);

enum class Policy : uint8_t { Allow, Warn, Deny };

fl_dtype to_fl_dtype(at::ScalarType type);
at::ScalarType from_fl_dtype(fl_dtype type);
const char* dtype_name(at::ScalarType type);

/// What decides a plan, as 64-bit words. Longer signatures than the buffer are planned anew on each call.
class Signature {
 public:
  static constexpr size_t kCapacity = 256;
  void add(uint64_t word) {
    if (size_ == kCapacity) {
      overflow_ = true;
      return;
    }
    words_[size_++] = word;
    hash_ = mix(hash_ ^ word);
  }
  void forbid_caching() { overflow_ = true; }
  bool cacheable() const { return !overflow_; }
  uint64_t hash() const { return hash_; }
  const uint64_t* words() const { return words_; }
  size_t size() const { return size_; }

 private:
  static uint64_t mix(uint64_t x) {
    const __uint128_t product = static_cast<__uint128_t>(x) * 0x9E3779B97F4A7C15ull;
    return static_cast<uint64_t>(product) ^ static_cast<uint64_t>(product >> 64);
  }
  size_t size_ = 0;
  uint64_t hash_ = 0x243F6A8885A308D3ull;
  bool overflow_ = false;
  uint64_t words_[kCapacity];
};

/// A tensor as a kernel will see it; `sizes` and `strides` own what the descriptor points to.
struct TensorTemplate {
  fl_tensor descriptor{};
  c10::SmallVector<int64_t, 6> sizes, strides;
  TensorTemplate() = default;
  // The descriptor points into the vectors' inline memory, so a copy (which a move is, too) must point into its own.
  TensorTemplate(const TensorTemplate& other) { *this = other; }
  TensorTemplate& operator=(const TensorTemplate& other) {
    descriptor = other.descriptor;
    sizes = other.sizes;
    strides = other.strides;
    descriptor.sizes = sizes.data();
    descriptor.strides = strides.data();
    return *this;
  }
  void describe(at::ScalarType dtype, at::IntArrayRef sizes_, at::IntArrayRef strides_);
};

/// What happens to one tensor argument before the kernel sees it.
struct TensorPlan {
  enum Source : uint8_t {
    Absent,      ///< undefined
    Direct,      ///< its own memory
    HostScalar,  ///< a 0-dim CPU tensor that becomes a scalar
    Converted,   ///< copied into a temporary: cast, made contiguous or channels-last, uploaded
  } source = Absent;
  at::ScalarType dtype = at::kFloat;                       ///< of the temporary
  at::MemoryFormat format = at::MemoryFormat::Contiguous;  ///< of the temporary
  TensorTemplate view;
};

struct OutPlan {
  int32_t argument = -1;    ///< index of the caller's tensor it goes to (out=, in-place), or -1: allocated
  int32_t list_index = -1;  ///< within a mutated TensorList
  bool absent = false;      ///< a masked-out return
  bool temporary = false;   ///< computed into a temporary and copied over
  at::ScalarType dtype = at::kFloat;
  at::ScalarType final_dtype = at::kFloat;      ///< of a returned tensor that was computed into a temporary
  c10::SmallVector<int64_t, 6> sizes, strides;  ///< of the allocation (or temporary)
  c10::SmallVector<int64_t, 6> final_strides;   ///< of a returned tensor that was computed into a temporary
  uint64_t bytes = 0;
  bool contiguous = true;
  TensorTemplate view;
};

struct Plan {
  Route route = Route::Host;
  Policy policy = Policy::Allow;
  std::string reason;
  runtime::Device* device = nullptr;
  const fl_kernel* kernel = nullptr;  ///< the chip's row, which outlives all work that refers to it
  fl_dtype compute_dtype = FL_FLOAT32;
  bool simple = false;     ///< no conversions, no temporaries
  uint32_t flags = 0;      ///< FL_KERNEL_*: of the kernel, under the chip's rules
  uint64_t alignment = 0;  ///< of every tensor's address, in bytes; 0: any
  /// Of a Python function or an expression that overrides the operator; the chip's, as long-lived as it.
  const runtime::OpFallback* fallback = nullptr;
  std::shared_ptr<const runtime::OpRules> value_rules;  ///< checks that each call must meet; null: none
  bool mutation = false;            ///< the kernel is of the mutating overload itself: outs are the mutated arguments
  std::vector<TensorPlan> tensors;  ///< in order of appearance, lists flattened
  std::vector<OutPlan> outs;
  std::shared_ptr<Relabelled> relabelled;  ///< of the host route, where it can go the short way
  // Counters: written by the owning thread only, read by others.
  std::atomic<uint64_t> calls{0}, bytes{0}, syncs{0}, ticks{0}, conversions{0};

  // Cache bookkeeping.
  Entry* entry = nullptr;
  uint64_t hash = 0;
  std::vector<uint64_t> key;
  Plan* next = nullptr;
  uint32_t recording = 0, subject = 0;  ///< of its records (recorder.h), in the recording of this number
};

/// Now, on the cheapest clock of the machine: reading the system's would cost more than the rest of what is counted.
inline uint64_t clock_ticks() { return static_cast<uint64_t>(c10::getApproximateTime()); }

inline void bump(std::atomic<uint64_t>& counter, uint64_t by = 1) {
  counter.store(counter.load(std::memory_order_relaxed) + by, std::memory_order_relaxed);
}

/// Plans of one thread. Pointers stay valid while a Scope is alive.
class PlanCache {
 public:
  static PlanCache& mine();
  Plan* find(uint32_t entry_id, const Signature& signature);
  /// Takes ownership; a plan with a non-cacheable signature lives until the outermost Scope ends.
  Plan* insert(Entry& entry, const Signature& signature, std::unique_ptr<Plan> plan);

  class Scope {
   public:
    explicit Scope(PlanCache& cache) : cache_(cache) { ++cache_.depth_; }
    ~Scope() {
      if (--cache_.depth_ == 0 && cache_.dirty_) cache_.sweep();
    }

   private:
    PlanCache& cache_;
  };

  PlanCache();
  ~PlanCache();

 private:
  struct Slot {
    Plan* last = nullptr;
    std::vector<Plan*> buckets;
    size_t count = 0;
  };
  void drop_all();
  void drop(Slot& slot);
  void sweep();
  friend class Scope;
  friend struct CounterAccess;

  std::vector<Slot> slots_;
  std::vector<std::unique_ptr<Plan>> graveyard_;
  uint64_t generation_ = 0;
  uint32_t depth_ = 0;
  bool dirty_ = false;
};

/// Drops every thread's plans (each at its next call). Counters are kept.
void clear_plans();
uint64_t plan_generation();

struct CounterRow {
  std::string op, overload, chip;
  int32_t device;
  Route route;
  std::string reason;
  uint64_t calls, bytes, syncs, nanoseconds, conversions;
};
std::vector<CounterRow> collect_counters();
void reset_counters();

extern std::atomic<bool> g_counting;
extern std::atomic<bool> g_timing;

/// The process's policy for an operator ("aten::add": all overloads, or "aten::add.Tensor"), or (op "") for all others.
/// An empty policy takes back what was set.
void set_policy(const std::string& op, const std::string& policy);

struct ChosenPolicy {
  Policy policy = Policy::Allow;
  bool by_chip = false;  ///< its descriptor says so, and the process says nothing
};
/// What the process says of the operator, else by default; else what the chip's descriptor says; else Allow.
ChosenPolicy choose_policy(const Entry& entry, const runtime::Chip& chip);
inline Policy policy_for(const Entry& entry, const runtime::Chip& chip) { return choose_policy(entry, chip).policy; }
/// What the chip's descriptor says of an overload, of its operator, or of its functional sibling; null: nothing.
const runtime::OpFallback* find_fallback(const runtime::Chip& chip, const Entry& entry);

}  // namespace torch_fl::glue
