// SPDX-License-Identifier: Apache-2.0
#include "kernel_planner.h"

#include <ATen/EmptyTensor.h>
#include <ATen/ExpandUtils.h>
#include <ATen/MetaFunctions.h>
#include <ATen/native/Resize.h>
#include <ATen/native/TypeProperties.h>

#include <algorithm>
#include <iterator>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "execute.h"

namespace torch_fl::glue {
namespace {

// Our own shape rule of the functional overload. False: there is none, or it does not know.
bool ask_rule(const Call& call, std::vector<at::Tensor>& metas) {
  if (call.entry.shape_rule == nullptr) return false;
  if (call.entry.shape_rule(RuleArgs(call.args, call.n_args), metas)) return true;
  metas.clear();
  return false;
}

// The first of the two steps of an operator that reads_values (fl_plugin.h, "Two steps"): its outputs' metadata, after
// the elements that count were counted on the device. Waits.
std::vector<at::Tensor> counted_outputs(const Call& call) {
  const at::Tensor& self = *call.args[0].u.tensor;
  const bool by_mask = call.entry.op_name == "aten::masked_select";
  const at::Tensor& counted = by_mask ? *call.args[1].u.tensor : self;
  const auto count = [&] {
    if (counted.numel() == 0) return int64_t{0};
    return at::sum(counted.scalar_type() == at::kBool ? counted : at::ne(counted, 0)).item<int64_t>();
  };
  if (!by_mask) {  // laid out as the CPU does it: one dimension after the other
    const int64_t n = count();
    return {at::detail::empty_strided_meta({n, self.dim()}, {1, n}, at::kLong)};
  }
  const auto sizes = at::infer_size_dimvector(self.sizes(), counted.sizes());
  const int64_t repeats = counted.numel() == 0 ? 0 : c10::multiply_integers(sizes) / counted.numel();
  return {at::detail::empty_meta({count() * repeats}, self.scalar_type())};
}

// The checks that look at values (or those that do not), alone.
runtime::OpRules with_checks(const runtime::OpRules& rules, bool reads_values) {
  runtime::OpRules some;
  std::copy_if(rules.checks.begin(), rules.checks.end(), std::back_inserter(some.checks),
               [&](const runtime::Check& check) { return check.reads_values == reads_values; });
  return some;
}

/// Planning of one kernel candidate. Each step returns false with `reason` set when the kernel cannot serve.
class KernelPlanner {
 public:
  KernelPlanner(Call& call, Signature& signature, const Candidate& candidate, Plan& plan)
      : call_(call),
        entry_(call.entry),
        signature_(signature),
        kernel_(*candidate.kernel),
        rules_(candidate.route == Route::Kernel ? find_rules(call.device->chip, kernel_) : nullptr),
        flags_(rules_ != nullptr ? runtime::flags_under(*rules_, kernel_.flags) : kernel_.flags),
        plan_(plan),
        mutation_kernel_(entry_.form != Form::Functional && entry_.name == kernel_.op) {}

  KernelAnswer plan() {
    plan_.kernel = &kernel_;
    plan_.flags = flags_;
    plan_.alignment = rules_ != nullptr && rules_->alignment > 1 ? rules_->alignment : 0;
    plan_.mutation = mutation_kernel_;
    const bool ok = outputs() && choose_dtype() && plan_outputs() && plan_inputs() && ask();
    return {ok, reason_, for_cpu_, unable_};
  }

 private:
  bool has(uint32_t flag) const { return (flags_ & flag) != 0; }
  bool refuse(std::string why) {
    reason_ = std::move(why);
    return false;
  }
  bool refuse_unable(std::string why) {
    unable_ = true;
    return refuse(std::move(why));
  }

  // ---- What comes out, by PyTorch's own rules ----
  bool outputs() {
    if (!entry_.tensor_returns && entry_.form == Form::Functional) return refuse("its results are not tensors");
    if (mutation_kernel_) return true;
    if (entry_.out_by_cpu) return refuse("its out= form, which the CPU kernel lays out and checks by rules of its own");
    if (empty_extremum()) return refuse("the maximum or minimum of nothing");
    if (empty_statistics()) return refuse("the statistics of nothing");
    // Outside of what follows: it waits, so errors of earlier work surface here and are not this call's.
    if (entry_.reads_values && !count()) return false;
    try {
      return entry_.form == Form::Functional ? functional_outputs() : mutated_outputs();
    } catch (const std::exception& error) {
      // The host route raises the right error, or shows that the rule was too strict.
      std::string text = error.what();
      return refuse("the shape rule refused the call: " + text.substr(0, text.find('\n')));
    }
  }

  // False: counting would be in vain.
  bool count() {
    if (entry_.op_name == "aten::repeat_interleave") return count_repeats();
    const runtime::Chip& chip = call_.device->chip;
    const at::ScalarType type = tensor(0).scalar_type();
    if (kernel_.dtypes != 0 && (kernel_.dtypes & FL_DTYPE_BIT(to_fl_dtype(type))) == 0) {
      return refuse(std::string("the kernel does not compute in ") + dtype_name(type));
    }
    if (!has_kernel(chip, "aten::ne.Scalar") || !has_kernel(chip, "aten::sum")) {
      return refuse("the chip has no kernels to count with (aten::ne.Scalar, aten::sum)");
    }
    if (call_.entry.op_name == "aten::masked_select" && tensor(1).scalar_type() != at::kBool) {
      return refuse("the mask is not bool");
    }
    for (uint32_t m : entry_.mutated) {
      if (tensor(m).dim() != 1 || tensor(m).numel() != 0) return refuse("out= is not fresh");
    }
    signature_.forbid_caching();  // the plan is good for these values only
    bump(plan_.syncs);
    counted_ = counted_outputs(call_);
    return true;
  }

  // How often each is repeated is read itself: the sum would not tell of negative numbers, which are an error.
  bool count_repeats() {
    const at::Tensor& repeats = tensor(0);
    const at::ScalarType type = repeats.scalar_type();
    if (repeats.dim() != 1 || (type != at::kLong && type != at::kInt))
      return refuse("the repeats are no line of integers");
    if (entry_.form != Form::Functional) return refuse("its out= form");
    int64_t total = 0;
    if (call_.args[1].kind == Kind::Int) {
      total = call_.args[1].u.i;
    } else {
      signature_.forbid_caching();
      bump(plan_.syncs);
      const at::Tensor host = repeats.to(at::kCPU, at::kLong).contiguous();
      for (int64_t i = 0; i < host.numel(); ++i) {
        const int64_t n = host.const_data_ptr<int64_t>()[i];
        if (n < 0) return refuse("a negative number of repeats");
        total += n;
      }
    }
    counted_ = {at::detail::empty_meta({total}, type)};
    return true;
  }

  // Not by call_.meta, which knows the indices as they were: masks among them have been expanded (masks.h), and
  // counting them once more may give another number.
  c10::List<std::optional<at::Tensor>> indices() const {
    const PackedArg& packed = call_.args[entry_.indices];
    c10::List<std::optional<at::Tensor>> list;
    for (uint32_t k = 0; k < packed.count; ++k) {
      const at::Tensor& index = packed.u.tensors[k];
      list.push_back(index.defined() ? std::optional(index) : std::nullopt);
    }
    return list;
  }
  bool indexes() const { return entry_.op_name == "aten::index" && call_.meta != nullptr; }

  bool functional_outputs() {
    if (entry_.reads_values) {
      metas_ = counted_;
    } else if (indexes()) {
      metas_.push_back(at::meta::index(tensor(0), indices()));
    } else if (!ask_rule(call_, metas_)) {
      if (call_.meta != nullptr) {
        call_.meta(call_.typed, metas_);
      } else {
        metas_ = dispatcher_meta(call_);
      }
    }
    return metas_.size() == entry_.n_returns ? true : refuse("the shape rule gave no fixed number of outputs");
  }

  // The rule, where it settles a mutating call: PyTorch's checks of targets that do not fit are left to PyTorch.
  bool ask_rule_for_targets(std::vector<at::Tensor>& metas) const {
    if (!ask_rule(call_, metas) || metas.size() != entry_.mutated.size()) return false;
    for (size_t i = 0; i < metas.size(); ++i) {
      const at::Tensor& target = tensor(entry_.mutated[i]);
      if (!metas[i].defined() || metas[i].scalar_type() != target.scalar_type()) return false;
      if (entry_.form == Form::InPlace && metas[i].sizes() != target.sizes()) return false;
    }
    return true;
  }

  bool mutated_outputs() {
    for (uint32_t m : entry_.mutated) {
      if (call_.args[m].kind != Kind::Tensor) return refuse("mutates a list");
    }
    std::vector<at::DimVector> before;
    for (uint32_t m : entry_.mutated) before.emplace_back(tensor(m).sizes());
    if (indexes()) {
      at::Tensor out = tensor(entry_.mutated[0]);
      at::meta::index_outf(tensor(0), indices(), out);
    } else if (call_.meta != nullptr) {
      std::vector<at::Tensor> ignored;
      call_.meta(call_.typed, ignored);  // checks, and resizes out= arguments
    } else {
      std::vector<at::Tensor> metas;
      if (entry_.reads_values) {
        metas = counted_;
      } else if (!ask_rule_for_targets(metas)) {
        metas = dispatcher_meta(call_);
        // An in-place form raises what its sibling does not; only that knows what shape the kernel will give.
        if (entry_.form == Form::InPlace) metas = functional_meta(call_);
      }
      if (!general_mutation(metas)) return false;
    }
    for (size_t i = 0; i < before.size(); ++i) {
      if (tensor(entry_.mutated[i]).sizes() != at::IntArrayRef(before[i])) signature_.forbid_caching();
    }
    return true;
  }

  bool general_mutation(const std::vector<at::Tensor>& metas) {
    if (metas.size() != entry_.mutated.size()) return refuse("the shape rule gave another number of outputs");
    for (size_t i = 0; i < metas.size(); ++i) {
      const at::Tensor& target = tensor(entry_.mutated[i]);
      // Some of these operators cast to the type of out=, others refuse it: the CPU kernel knows.
      const at::ScalarType type = entry_.reads_values      ? metas[i].scalar_type()
                                  : has(FL_KERNEL_PROMOTE) ? promoted()
                                                           : first_dtype();
      if (!entry_.predicate && target.scalar_type() != type) return refuse("out= has another dtype");
      if (metas[i].sizes() == target.sizes()) continue;
      if (entry_.form == Form::InPlace || is_input(target)) {
        for_cpu_ = entry_.form == Form::InPlace;
        return refuse("the shape rule changes the shape of a mutated argument");
      }
      // Of other shapes, the CPU kernel decides whether to resize them, and warns in its own words.
      if (target.dim() != 1 || target.numel() != 0) return refuse("out= must be resized");
      if (!lay_out(target, i, metas[i])) return false;
    }
    return true;
  }

  // A fresh out= becomes what the functional form returns; the out= form's shape rule does not know the strides.
  bool lay_out(const at::Tensor& target, size_t i, const at::Tensor& meta) {
    const at::IntArrayRef sizes = meta.sizes();
    bool dense = true;
    each_input([&](uint32_t, const at::Tensor& t) { dense = dense && (!t.defined() || t.is_contiguous()); });
    if (!dense && !has(FL_KERNEL_BROADCAST) && !entry_.reads_values)
      return refuse("the strides of a fresh out= are the CPU kernel's choice");
    const auto results = entry_.reads_values ? std::vector<at::Tensor>{meta}
                         : dense             ? std::vector<at::Tensor>()
                                             : functional_meta(call_);
    target.resize_(sizes);
    if (i < results.size() && results[i].sizes() == sizes && results[i].is_non_overlapping_and_dense()) {
      target.unsafeGetTensorImpl()->set_sizes_and_strides(sizes, results[i].strides());
    }
    return true;
  }

  const at::Tensor& tensor(uint32_t i) const { return *call_.args[i].u.tensor; }

  // Several elements may share memory: what comes out depends on the order of the writes.
  static bool may_self_overlap(const at::Tensor& t) {
    std::vector<std::pair<int64_t, int64_t>> dims;
    for (int64_t d = 0; d < t.dim(); ++d) {
      if (t.size(d) > 1) dims.emplace_back(t.stride(d), t.size(d));
    }
    std::sort(dims.begin(), dims.end());
    int64_t span = 1;
    for (const auto& [stride, size] : dims) {
      if (stride < span) return true;
      span = stride * (size - 1) + span;
    }
    return false;
  }

  bool is_input(const at::Tensor& target) const {
    bool found = false;
    each_input([&](uint32_t, const at::Tensor& t) { found |= t.defined() && t.is_same(target); });
    return found;
  }

  // Reductions to one value have no identity for these: PyTorch refuses, the shape rule does not know.
  bool empty_extremum() const {
    static const std::string kMax = "aten::max", kMin = "aten::min";
    return (kernel_.op == kMax || kernel_.op == kMin) && call_.args[0].kind == Kind::Tensor && tensor(0).numel() == 0;
  }

  // Means and variances of no elements: the CPU kernel refuses.
  bool empty_statistics() const {
    return entry_.op_name.find("native_batch_norm") != std::string::npos && entry_.args[0].name == "input" &&
           tensor(0).numel() == 0;
  }

  // ---- The type the kernel computes in ----
  bool choose_dtype() {
    at::ScalarType compute = has(FL_KERNEL_PROMOTE) ? promoted() : first_dtype();
    if (has(FL_KERNEL_PROMOTE) && !entry_.predicate && at::isIntegralType(compute, true)) {
      const auto out = functional_dtype();  // floating-point for the likes of sin and true division
      if (out.has_value() && is_inexact(*out)) compute = *out;
    }
    compute_ = cast(compute);
    plan_.compute_dtype = to_fl_dtype(compute);
    const uint64_t bit = FL_DTYPE_BIT(plan_.compute_dtype);
    if (kernel_.dtypes != 0 && (kernel_.dtypes & bit) == 0) {
      return refuse_unable(std::string("the kernel does not compute in ") + dtype_name(compute_));
    }
    const uint64_t device = call_.device->properties.dtypes;
    if (device != 0 && (device & bit) == 0) {
      return refuse_unable(std::string("the device does not compute in ") + dtype_name(compute_));
    }
    return true;
  }

  // The type that the chip's rules compute in where the call says `type`.
  at::ScalarType cast(at::ScalarType type) const {
    if (rules_ == nullptr) return type;
    for (const runtime::Cast& c : rules_->casts) {
      if (c.from == to_fl_dtype(type)) return from_fl_dtype(c.to);
    }
    return type;
  }

  std::optional<at::ScalarType> target_dtype(size_t i) const {
    if (!metas_.empty()) {
      return i < metas_.size() && metas_[i].defined() ? std::optional(metas_[i].scalar_type()) : std::nullopt;
    }
    return i < entry_.mutated.size() && call_.args[entry_.mutated[i]].kind == Kind::Tensor
               ? std::optional(tensor(entry_.mutated[i]).scalar_type())
               : std::nullopt;
  }

  static bool is_inexact(at::ScalarType type) { return at::isFloatingType(type) || at::isComplexType(type); }

  // What the functional form would return. An out= of a wider type does not widen the computation, only its result.
  std::optional<at::ScalarType> functional_dtype() const {
    const auto target = target_dtype(0);
    if (entry_.form != Form::Out || mutation_kernel_ || !target.has_value() || !is_inexact(*target)) return target;
    const auto metas = functional_meta(call_);
    return metas.empty() || !metas[0].defined() ? std::nullopt : std::optional(metas[0].scalar_type());
  }

  template <class F>
  void each_input(F&& f) const {
    const uint32_t n = entry_.n_out_args > 0 ? call_.n_args - entry_.n_out_args : call_.n_args;
    for (uint32_t i = 0; i < n; ++i) {
      const PackedArg& a = call_.args[i];
      if (a.kind == Kind::Tensor) f(i, *a.u.tensor);
      if (a.kind != Kind::TensorList) continue;
      for (uint32_t k = 0; k < a.count; ++k) f(i, a.u.tensors[k]);
    }
  }

  at::ScalarType promoted() const {
    at::native::ResultTypeState state{};
    each_input([&](uint32_t i, const at::Tensor& t) {
      if (t.defined() && !entry_.args[i].unpromoted) state = at::native::update_result_type_state(t, state);
    });
    for (uint32_t i = 0; i < call_.n_args; ++i) {
      if (call_.args[i].kind == Kind::Scalar && entry_.args[i].promotes) {
        state = at::native::update_result_type_state(*call_.args[i].u.scalar, state);
      }
    }
    return at::native::result_type(state);
  }

  at::ScalarType first_dtype() const {
    std::optional<at::ScalarType> first;
    each_input([&](uint32_t i, const at::Tensor& t) {
      if (!first.has_value() && t.defined() && !entry_.args[i].unpromoted) first = t.scalar_type();
    });
    if (!first.has_value()) first = target_dtype(0);
    return first.value_or(at::kFloat);
  }

  // What the kernel's output would be if the functional form had been called.
  at::ScalarType natural(at::ScalarType actual) const {
    if (mutation_kernel_ || !has(FL_KERNEL_PROMOTE)) return cast(actual);
    if (entry_.predicate) return at::kBool;
    if (at::isComplexType(compute_) && !at::isComplexType(actual)) return c10::toRealValueType(compute_);
    return compute_;
  }

  // ---- Where outputs go ----
  bool plan_outputs() {
    if (entry_.form == Form::Functional) {
      for (const auto& m : metas_) plan_.outs.push_back(allocated(m));
      return true;
    }
    const uint32_t first =
        entry_.form == Form::Out ? static_cast<uint32_t>(entry_.mutated.size()) - entry_.n_out_args : 0;
    if (first > 0) return refuse("the out= form also mutates an input");
    if (mutation_kernel_ && inputs_overlap_targets()) return refuse("an argument shares memory with what is written");
    for (uint32_t m : entry_.mutated) {
      const PackedArg& a = call_.args[m];
      // Structured operators have checked this; of the others the CPU kernel knows which forbid it.
      const bool unchecked = entry_.form == Form::Out && call_.meta == nullptr && a.kind == Kind::Tensor;
      if (unchecked && overlaps_inputs(m, tensor(m))) return refuse("out= shares memory with an input");
      if (a.kind == Kind::Tensor) plan_.outs.push_back(target(m, -1, *a.u.tensor));
      if (a.kind != Kind::TensorList) continue;
      for (uint32_t k = 0; k < a.count; ++k) plan_.outs.push_back(target(m, static_cast<int32_t>(k), a.u.tensors[k]));
    }
    for (uint32_t m : entry_.mutated) {
      if (call_.args[m].kind == Kind::Tensor && may_self_overlap(tensor(m)))
        return refuse("writes to overlapping memory");
    }
    for (const auto& out : plan_.outs) {
      if (out.temporary && mutation_kernel_ && out.list_index >= 0) return refuse("a mutated list needs conversion");
    }
    return true;
  }

  at::MemoryFormat wanted_format(int64_t ndim, bool is_channels_last) const {
    const bool only = has(FL_KERNEL_CHANNELS_LAST_ONLY) && (ndim == 4 || ndim == 5);
    const bool keep = has(FL_KERNEL_CHANNELS_LAST_OK) && is_channels_last;
    if (!only && !keep) return at::MemoryFormat::Contiguous;
    return ndim == 4 ? at::MemoryFormat::ChannelsLast : at::MemoryFormat::ChannelsLast3d;
  }

  static std::vector<int64_t> dense_strides(at::IntArrayRef sizes, at::MemoryFormat format) {
    if (format == at::MemoryFormat::ChannelsLast) return c10::get_channels_last_strides_2d(sizes);
    if (format == at::MemoryFormat::ChannelsLast3d) return c10::get_channels_last_strides_3d(sizes);
    std::vector<int64_t> strides(sizes.size());
    int64_t next = 1;
    for (size_t i = sizes.size(); i-- > 0;) {
      strides[i] = next;
      next *= std::max<int64_t>(sizes[i], 1);
    }
    return strides;
  }

  static bool is_channels_last(at::IntArrayRef sizes, at::IntArrayRef strides) {
    return (sizes.size() == 4 && c10::is_channels_last_strides_2d(sizes, strides)) ||
           (sizes.size() == 5 && c10::is_channels_last_strides_3d(sizes, strides));
  }

  bool layout_fits(at::IntArrayRef sizes, at::IntArrayRef strides, bool contiguous, uint32_t required) const {
    const bool four = sizes.size() == 4 || sizes.size() == 5;
    if (has(FL_KERNEL_CHANNELS_LAST_ONLY) && four) return is_channels_last(sizes, strides);
    if (!has(required) || contiguous) return true;
    return has(FL_KERNEL_CHANNELS_LAST_OK) && is_channels_last(sizes, strides);
  }

  static void set_geometry(OutPlan& out, at::ScalarType dtype, at::IntArrayRef sizes, at::IntArrayRef strides) {
    out.dtype = dtype;
    out.sizes.assign(sizes.begin(), sizes.end());
    out.strides.assign(strides.begin(), strides.end());
    out.bytes = at::detail::computeStorageNbytes(sizes, strides, c10::elementSize(dtype));
    out.view.describe(dtype, sizes, strides);
    // Strides of dimensions of size 1 (or of nothing) count as well: they are what the caller will see.
    out.contiguous = strides.equals(dense_strides(sizes, at::MemoryFormat::Contiguous));
  }

  OutPlan allocated(const at::Tensor& meta) const {
    OutPlan out;
    if (!meta.defined()) {
      out.absent = true;
      return out;
    }
    if (meta.layout() != at::kStrided) TORCH_CHECK_NOT_IMPLEMENTED(false, "outputs that are not strided");
    const at::ScalarType dtype = cast(meta.scalar_type());
    const bool fits = dtype == meta.scalar_type() && meta.is_non_overlapping_and_dense() &&
                      layout_fits(meta.sizes(), meta.strides(), meta.is_contiguous(), FL_KERNEL_CONTIGUOUS_OUTPUTS);
    if (fits) {
      set_geometry(out, meta.scalar_type(), meta.sizes(), meta.strides());
    } else {
      const auto format = wanted_format(meta.dim(), is_channels_last(meta.sizes(), meta.strides()));
      set_geometry(out, dtype, meta.sizes(), dense_strides(meta.sizes(), format));
      // The type and layout that PyTorch promises: computed as the kernel can, then cast or laid out.
      if (meta.is_non_overlapping_and_dense() || dtype != meta.scalar_type()) {
        out.temporary = true;
        out.final_dtype = meta.scalar_type();
        const bool dense = meta.is_non_overlapping_and_dense();
        const auto strides = dense ? meta.strides().vec() : dense_strides(meta.sizes(), format);
        out.final_strides.assign(strides.begin(), strides.end());
      }
    }
    return out;
  }

  OutPlan target(uint32_t argument, int32_t list_index, const at::Tensor& t) const {
    OutPlan out;
    const at::ScalarType dtype = natural(t.scalar_type());
    const bool fits = layout_fits(t.sizes(), t.strides(), t.is_contiguous(), FL_KERNEL_CONTIGUOUS_OUTPUTS) &&
                      t.is_non_overlapping_and_dense();
    out.temporary = dtype != t.scalar_type() || t.is_conj() || t.is_neg() || t.device().type() != c10::kPrivateUse1 ||
                    overlaps_inputs(argument, t) ||
                    !(fits || (!has(FL_KERNEL_CONTIGUOUS_OUTPUTS) && !has_zero_stride(t)));
    if (!out.temporary) {
      set_geometry(out, dtype, t.sizes(), t.strides());
    } else {
      const auto format = wanted_format(t.dim(), is_channels_last(t.sizes(), t.strides()));
      set_geometry(out, dtype, t.sizes(), dense_strides(t.sizes(), format));
    }
    out.argument = static_cast<int32_t>(argument);
    out.list_index = list_index;
    return out;
  }

  static bool has_zero_stride(const at::Tensor& t) {
    for (int64_t d = 0; d < t.dim(); ++d) {
      if (t.size(d) > 1 && t.stride(d) == 0) return true;
    }
    return false;
  }

  bool overlaps_inputs(uint32_t argument, const at::Tensor& target) const {
    if (mutation_kernel_ || target.storage().nbytes() == 0) return false;
    bool overlap = false;
    each_input([&](uint32_t i, const at::Tensor& t) {
      if (!t.defined() || !t.has_storage() || !t.storage().is_alias_of(target.storage())) return;
      const bool same = t.storage_offset() == target.storage_offset() && t.sizes() == target.sizes() &&
                        t.strides() == target.strides() && t.scalar_type() == target.scalar_type();
      if (!same || !has(FL_KERNEL_IN_PLACE_SAFE)) overlap = true;
    });
    return overlap;
  }

  // Of operators that exist only as mutations, the CPU kernel knows which forbid it.
  bool inputs_overlap_targets() const {
    bool overlap = false;
    for (uint32_t m : entry_.mutated) {
      if (call_.args[m].kind != Kind::Tensor || tensor(m).storage().nbytes() == 0) continue;
      each_input([&](uint32_t i, const at::Tensor& t) {
        overlap |= i != m && t.defined() && t.has_storage() && t.storage().is_alias_of(tensor(m).storage());
      });
    }
    return overlap;
  }

  // ---- What goes in ----
  bool plan_inputs() {
    const uint32_t n = entry_.form == Form::Out && !mutation_kernel_ ? call_.n_args - entry_.n_out_args : call_.n_args;
    for (uint32_t i = 0; i < n; ++i) {
      const PackedArg& a = call_.args[i];
      if (a.kind == Kind::Tensor && !plan_input(i, *a.u.tensor)) return false;
      if (a.kind != Kind::TensorList) continue;
      for (uint32_t k = 0; k < a.count; ++k) {
        if (!plan_input(i, a.u.tensors[k])) return false;
      }
    }
    bool simple = true;
    for (const auto& t : plan_.tensors) simple = simple && t.source != TensorPlan::Converted;
    for (const auto& o : plan_.outs) simple = simple && !o.temporary;
    plan_.simple = simple && plan_.alignment == 0;
    return true;
  }

  bool plan_input(uint32_t i, const at::Tensor& t) {
    TensorPlan in;
    if (!t.defined()) {
      plan_.tensors.push_back(std::move(in));
      return true;
    }
    const bool host = t.device().type() != c10::kPrivateUse1;
    const bool promote = has(FL_KERNEL_PROMOTE) && !entry_.args[i].unpromoted;
    if (t.layout() != at::kStrided) return refuse("an argument is not strided");
    if (host && t.dim() == 0 && has(FL_KERNEL_PROMOTE) && !at::isComplexType(t.scalar_type())) {
      in.source = TensorPlan::HostScalar;
      in.dtype = t.scalar_type();
      plan_.tensors.push_back(std::move(in));
      return true;
    }
    in.dtype = promote ? compute_ : cast(t.scalar_type());
    const bool fits = layout_fits(t.sizes(), t.strides(), t.is_contiguous(), FL_KERNEL_CONTIGUOUS_INPUTS);
    const bool direct = !host && t.scalar_type() == in.dtype && fits && !t.is_conj() && !t.is_neg();
    in.source = direct ? TensorPlan::Direct : TensorPlan::Converted;
    if (!direct && entry_.args[i].written && !entry_.args[i].mutated) return refuse("running statistics are not dense");
    if (!direct && mutation_kernel_ && entry_.args[i].mutated) in.source = TensorPlan::Direct;  // follows its output
    in.format = wanted_format(t.dim(), is_channels_last(t.sizes(), t.strides()));
    std::vector<int64_t> strides = direct ? t.strides().vec() : dense_strides(t.sizes(), in.format);
    if (in.source == TensorPlan::Direct) strides = t.strides().vec();
    return place_input(std::move(in), t.sizes(), strides);
  }

  bool place_input(TensorPlan in, at::IntArrayRef sizes, at::IntArrayRef strides) {
    if (has(FL_KERNEL_BROADCAST) && !plan_.outs.empty() && !plan_.outs[0].absent) {
      const at::IntArrayRef out_sizes(plan_.outs[0].sizes.data(), plan_.outs[0].sizes.size());
      if (sizes.size() > out_sizes.size()) return refuse("an input has more dimensions than the output");
      for (size_t k = 0; k < sizes.size(); ++k) {
        const int64_t wanted = out_sizes[out_sizes.size() - sizes.size() + k];
        if (sizes[k] != wanted && sizes[k] != 1) return refuse("an input does not broadcast to the output's shape");
      }
      auto expanded = at::inferExpandGeometry_dimvector(sizes, strides, out_sizes);
      in.view.describe(in.dtype, out_sizes, expanded.strides);
    } else {
      in.view.describe(in.dtype, sizes, strides);
    }
    plan_.tensors.push_back(std::move(in));
    return true;
  }

  bool ask() {
    for (const auto& t : plan_.tensors) {
      if (t.source == TensorPlan::Converted && !call_.device->host_coherent &&
          !has_kernel(call_.device->chip, "aten::copy")) {
        return refuse("an input needs conversion and the chip has no kernel for aten::copy");
      }
    }
    if (has(FL_KERNEL_VALUE_DEPENDENT)) signature_.forbid_caching();
    std::string why;
    if (rules_ == nullptr || rules_->checks.empty()) {
      return kernel_supports(call_, plan_, nullptr, &why) ? true : refuse_unable(why);
    }
    auto by_value = with_checks(*rules_, true);
    if (!by_value.checks.empty()) plan_.value_rules = std::make_shared<const runtime::OpRules>(std::move(by_value));
    const auto by_signature = with_checks(*rules_, false);
    return kernel_supports(call_, plan_, &by_signature, &why) ? true : refuse_unable(why);
  }

  Call& call_;
  Entry& entry_;
  Signature& signature_;
  const fl_kernel& kernel_;
  const runtime::OpRules* rules_;  ///< what the chip's descriptor says of the kernel; null: nothing
  const uint32_t flags_;
  Plan& plan_;
  const bool mutation_kernel_;
  std::vector<at::Tensor> metas_, counted_;
  at::ScalarType compute_ = at::kFloat;
  std::string reason_;
  bool for_cpu_ = false, unable_ = false;
};

}  // namespace

KernelAnswer plan_kernel(Call& call, Signature& signature, const Candidate& candidate, Plan& plan) {
  return KernelPlanner(call, signature, candidate, plan).plan();
}

}  // namespace torch_fl::glue
