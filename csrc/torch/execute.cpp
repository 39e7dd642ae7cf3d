// SPDX-License-Identifier: Apache-2.0
#include "execute.h"

#include <algorithm>
#include <deque>

#include "adapt.h"
#include "copy.h"
#include "device_allocator.h"
#include "random_ops.h"
#include "runtime/scratch.h"
#include "runtime/settings.h"
#include "runtime/timeline.h"
#include "scalars.h"
#include "unsupported.h"

namespace torch_fl::glue {

namespace {

// Its sizes are still to be set.
at::Tensor with_storage(runtime::Device& device, at::ScalarType dtype, uint64_t bytes) {
  auto storage = c10::make_intrusive<c10::StorageImpl>(c10::StorageImpl::use_byte_size_t(), bytes,
                                                       allocate_on(device, bytes), device_allocator(), true);
  return at::detail::make_tensor<c10::TensorImpl>(
      std::move(storage), c10::DispatchKeySet(c10::DispatchKey::PrivateUse1), c10::scalarTypeToTypeMeta(dtype));
}

}  // namespace

at::Tensor allocate_tensor(runtime::Device& device, at::ScalarType dtype, at::IntArrayRef sizes,
                           at::IntArrayRef strides) {
  const uint64_t bytes = at::detail::computeStorageNbytes(sizes, strides, c10::elementSize(dtype));
  at::Tensor tensor = with_storage(device, dtype, bytes);
  tensor.unsafeGetTensorImpl()->set_sizes_and_strides(sizes, strides);
  return tensor;
}

namespace {

at::Tensor allocate(runtime::Device& device, const OutPlan& out) {
  at::Tensor tensor = with_storage(device, out.dtype, out.bytes);
  auto* impl = tensor.unsafeGetTensorImpl();
  const at::IntArrayRef sizes(out.sizes.data(), out.sizes.size());
  if (out.contiguous) {
    if (sizes.size() != 1 || sizes[0] != 0) impl->set_sizes_contiguous(sizes);
  } else {
    impl->set_sizes_and_strides(sizes, at::IntArrayRef(out.strides.data(), out.strides.size()));
  }
  return tensor;
}

at::Tensor temporary(runtime::Device& device, const OutPlan& out, uint64_t alignment) {
  if (C10_LIKELY(alignment == 0)) return allocate(device, out);
  return allocate_aligned(device, out.dtype, {out.sizes.data(), out.sizes.size()},
                          {out.strides.data(), out.strides.size()}, alignment);
}

bool writes_silently(const ArgInfo& argument) { return argument.written && !argument.mutated; }

/// Everything a kernel sees, on the stack for ordinary calls.
class Frame {
 public:
  Frame(Call& call, Plan& plan) : call_(call), plan_(plan) {
    values_.resize(std::max<size_t>(call.n_args, call.entry.kernel_args));
    tensors_.resize(plan.tensors.size());
    outs_.resize(plan.outs.size());
    out_pointers_.resize(plan.outs.size());
  }

  /// Converted inputs and output tensors; `outs` null = addresses of 0 (for supports()).
  void bind_inputs(bool live);
  void bind_outputs(at::Tensor* outs, bool live);
  void finish_outputs(at::Tensor* outs);
  bool fit_scalars();
  fl_call make(runtime::StreamId stream, bool live);

 private:
  const fl_tensor* input(size_t k, const at::Tensor& t, uint32_t argument, int32_t position, fl_value* scalar,
                         bool live);
  const fl_tensor* output_of(uint32_t argument, int32_t position) const;
  void bind_tensor(fl_value& v, size_t& k, uint32_t i, bool live);
  void bind_list(fl_value& v, size_t& k, uint32_t i, bool live);
  void bind_scalars(fl_value& v, const PackedArg& a);
  const at::Tensor& target(const OutPlan& out) const;
  fl_address adapt(const at::Tensor& t, const Adaptation& wanted);
  bool misaligned(const at::Tensor& t) const {
    return C10_UNLIKELY(plan_.alignment != 0) && device_address(t) % plan_.alignment != 0;
  }
  fl_address bind_target(const OutPlan& out);
  fl_address in_place_of(const at::Tensor& t, bool is_read);

  Call& call_;
  Plan& plan_;
  c10::SmallVector<fl_value, 12> values_;
  c10::SmallVector<fl_tensor, 8> tensors_;
  c10::SmallVector<fl_tensor, 4> outs_;
  c10::SmallVector<fl_tensor*, 4> out_pointers_;
  c10::SmallVector<at::Tensor, 2> converted_;
  c10::SmallVector<at::Tensor, 2> temporaries_;
  struct Moved {
    at::Tensor from, to;
  };
  std::vector<Moved> moved_;  ///< outputs at addresses that the kernel cannot write to
  std::vector<std::unique_ptr<const fl_tensor*[]>> lists_;
  std::vector<std::unique_ptr<fl_value[]>> value_lists_;
  std::deque<std::string> strings_;
};

// Where the tensor is as the kernel wants it.
fl_address Frame::adapt(const at::Tensor& t, const Adaptation& wanted) {
  bool fresh = false;
  converted_.push_back(adapted(*plan_.device, t, wanted, &fresh));
  if (fresh) bump(plan_.conversions);
  return device_address(converted_.back());
}

// The output that an argument (or the element of a list, -1: no list) is, for a kernel of a mutating overload.
const fl_tensor* Frame::output_of(uint32_t argument, int32_t position) const {
  if (!plan_.mutation || !call_.entry.args[argument].mutated) return nullptr;
  for (size_t o = 0; o < plan_.outs.size(); ++o) {
    if (plan_.outs[o].argument == static_cast<int32_t>(argument) && plan_.outs[o].list_index == position) {
      return &outs_[o];
    }
  }
  return nullptr;
}

const fl_tensor* Frame::input(size_t k, const at::Tensor& t, uint32_t argument, int32_t position, fl_value* scalar,
                              bool live) {
  TensorPlan& plan = plan_.tensors[k];
  if (plan.source == TensorPlan::Direct || plan.source == TensorPlan::Converted) {
    if (const fl_tensor* output = output_of(argument, position)) return output;
  }
  switch (plan.source) {
    case TensorPlan::Absent:
      return nullptr;
    case TensorPlan::HostScalar:
      *scalar = host_scalar(t);
      return nullptr;
    case TensorPlan::Direct:
      tensors_[k] = plan.view.descriptor;
      if (!live) break;
      if (!misaligned(t)) {
        tensors_[k].address = device_address(t);
      } else if (writes_silently(call_.entry.args[argument])) {
        tensors_[k].address = in_place_of(t, true);
      } else {
        tensors_[k].address = adapt(t, {t.scalar_type(), at::MemoryFormat::Preserve, plan_.alignment});
      }
      break;
    case TensorPlan::Converted:
      tensors_[k] = plan.view.descriptor;
      if (live) tensors_[k].address = adapt(t, {plan.dtype, plan.format, plan_.alignment});
      break;
  }
  return &tensors_[k];
}

void Frame::bind_tensor(fl_value& v, size_t& k, uint32_t i, bool live) {
  const fl_tensor* t = input(k++, *call_.args[i].u.tensor, i, -1, &v, live);
  if (t == nullptr) return;
  v.kind = FL_TENSOR;
  v.u.tensor = t;
}

void Frame::bind_list(fl_value& v, size_t& k, uint32_t i, bool live) {
  const PackedArg& a = call_.args[i];
  lists_.push_back(std::make_unique<const fl_tensor*[]>(a.count));
  fl_value unused{};
  for (uint32_t n = 0; n < a.count; ++n) {
    lists_.back()[n] = input(k++, a.u.tensors[n], i, static_cast<int32_t>(n), &unused, live);
  }
  v.kind = FL_TENSORS;
  v.count = a.count;
  v.u.tensors = lists_.back().get();
}

void Frame::bind_scalars(fl_value& v, const PackedArg& a) {
  value_lists_.push_back(std::make_unique<fl_value[]>(a.count));
  for (uint32_t n = 0; n < a.count; ++n) value_lists_.back()[n] = scalar_value(a.u.scalars[n]);
  v.kind = FL_VALUES;
  v.count = a.count;
  v.u.values = value_lists_.back().get();
}

void Frame::bind_inputs(bool live) {
  size_t k = 0;
  const uint32_t n =
      plan_.mutation ? call_.n_args : std::min<uint32_t>(call_.n_args - call_.entry.n_out_args, call_.n_args);
  for (uint32_t i = 0; i < values_.size(); ++i) {
    fl_value& v = values_[i];
    v.kind = FL_NONE;
    if (i >= n) continue;
    const PackedArg& a = call_.args[i];
    v.count = a.count;
    switch (a.kind) {
      case Kind::None:
        break;
      case Kind::Tensor:
        bind_tensor(v, k, i, live);
        break;
      case Kind::TensorList:
        bind_list(v, k, i, live);
        break;
      case Kind::Scalar:
        v = scalar_value(*a.u.scalar);
        break;
      case Kind::ScalarList:
        bind_scalars(v, a);
        break;
      case Kind::Int:
        v.kind = FL_INTEGER;
        v.u.i = a.u.i;
        break;
      case Kind::Bool:
        v.kind = FL_BOOLEAN;
        v.u.i = a.u.i;
        break;
      case Kind::Real:
        v.kind = FL_REAL;
        v.u.d = a.u.d;
        break;
      case Kind::IntList:
        v.kind = FL_INTEGERS;
        v.u.ints = a.u.ints;
        break;
      case Kind::RealList:
        v.kind = FL_REALS;
        v.u.reals = a.u.reals;
        break;
      case Kind::BoolList:
        v.kind = FL_BOOLEANS;
        v.u.bools = reinterpret_cast<const uint8_t*>(a.u.bools);
        break;
      case Kind::String:
        strings_.emplace_back(a.u.s, a.count);  // NUL-terminated
        v.kind = FL_STRING;
        v.u.s = strings_.back().c_str();
        break;
      case Kind::DType:
        v.kind = FL_DTYPE;
        v.u.i = to_fl_dtype(static_cast<at::ScalarType>(a.u.i));
        break;
      case Kind::Enum:
      case Kind::Generator:
        v.kind = FL_OPAQUE;
        break;
    }
  }
}

const at::Tensor& Frame::target(const OutPlan& out) const {
  const PackedArg& a = call_.args[out.argument];
  return out.list_index < 0 ? *a.u.tensor : a.u.tensors[out.list_index];
}

// An output that is written elsewhere first, with the strides it has.
fl_address Frame::in_place_of(const at::Tensor& t, bool is_read) {
  at::Tensor apart = allocate_aligned(*plan_.device, t.scalar_type(), t.sizes(), t.strides(), plan_.alignment);
  if (is_read) copy_into(apart, t, true);
  moved_.push_back({apart, t});
  return device_address(apart);
}

fl_address Frame::bind_target(const OutPlan& out) {
  const at::Tensor& t = target(out);
  return misaligned(t) ? in_place_of(t, plan_.mutation) : device_address(t);
}

void Frame::bind_outputs(at::Tensor* outs, bool live) {
  for (size_t o = 0; o < plan_.outs.size(); ++o) {
    OutPlan& out = plan_.outs[o];
    if (out.absent) {
      out_pointers_[o] = nullptr;
      continue;
    }
    outs_[o] = out.view.descriptor;
    out_pointers_[o] = &outs_[o];
    if (!live) continue;
    if (out.argument < 0 && out.temporary) {
      temporaries_.push_back(temporary(*plan_.device, out, plan_.alignment));
      outs_[o].address = device_address(temporaries_.back());
    } else if (out.argument < 0) {
      outs[o] = allocate(*plan_.device, out);
      outs_[o].address = misaligned(outs[o]) ? in_place_of(outs[o], false) : device_address(outs[o]);
    } else if (!out.temporary) {
      outs_[o].address = bind_target(out);
    } else {
      temporaries_.push_back(temporary(*plan_.device, out, plan_.alignment));
      if (plan_.mutation) copy_into(temporaries_.back(), target(out), true);
      outs_[o].address = device_address(temporaries_.back());
    }
  }
}

void Frame::finish_outputs(at::Tensor* outs) {
  for (const Moved& moved : moved_) copy_into(moved.to, moved.from, true, true);
  size_t t = 0;
  for (size_t o = 0; o < plan_.outs.size(); ++o) {
    const OutPlan& out = plan_.outs[o];
    if (!out.temporary || out.absent) continue;
    if (out.argument < 0) {
      const at::IntArrayRef strides(out.final_strides.data(), out.final_strides.size());
      outs[o] = allocate_tensor(*plan_.device, out.final_dtype, {out.sizes.data(), out.sizes.size()}, strides);
    }
    const at::Tensor& to = out.argument < 0 ? outs[o] : target(out);
    copy_into(to, temporaries_[t++], true, true);
  }
}

bool all_expressible(const fl_value& list) {
  return std::none_of(list.u.values, list.u.values + list.count, [](const fl_value& v) { return v.kind == FL_OPAQUE; });
}

// PyTorch converts a Scalar to the type it computes in, where it wraps or fails. False: leave the call to the CPU.
bool Frame::fit_scalars() {
  const bool promote = (plan_.flags & FL_KERNEL_PROMOTE) != 0;
  const fl_dtype type = promote || plan_.outs.empty() || plan_.outs[0].absent ? plan_.compute_dtype : outs_[0].dtype;
  const bool fill = plan_.mutation && !call_.entry.random;
  for (uint32_t i = 0; i < call_.n_args; ++i) {
    const Kind kind = call_.args[i].kind;
    fl_value& v = values_[i];
    if (kind == Kind::ScalarList && v.kind == FL_VALUES && !all_expressible(v)) return false;
    if (kind != Kind::Scalar && kind != Kind::Tensor) continue;
    if (v.kind == FL_OPAQUE) return false;
    if (v.kind != FL_INTEGER && v.kind != FL_REAL && v.kind != FL_COMPLEX) continue;
    if (promote && !valid_operand(call_.entry, i, v, type)) return false;
    if (promote || fill || call_.entry.args[i].name == "value") {
      if (!fit_scalar(v, type)) return false;
    }
  }
  return true;
}

fl_call Frame::make(runtime::StreamId stream, bool live) {
  runtime::Device& device = *plan_.device;
  fl_call c{};
  c.struct_size = sizeof(fl_call);
  c.device_index = device.local_index;
  c.device = live ? device.handle() : nullptr;
  c.stream = live ? device.stream(stream) : nullptr;
  c.kernel = plan_.kernel;
  c.args = values_.data();
  c.n_args = plan_.mutation ? call_.n_args : call_.entry.kernel_args;
  c.n_outs = static_cast<uint32_t>(outs_.size());
  c.outs = out_pointers_.data();
  c.compute_dtype = plan_.compute_dtype;
  c.philox_seed = call_.philox_seed;
  c.philox_offset = call_.philox_offset;
  return c;
}

/// The same as running it, for whoever listens for device events. Out of the hot path.
C10_NOINLINE fl_status run_seen(Plan& plan, const fl_call& c, runtime::StreamId stream) {
  auto seen = runtime::Enqueue::kernel(*plan.device, stream, plan.kernel->op, plan.route == Route::Portable);
  const fl_status status = plan.kernel->run(&c);
  if (status != FL_OK) seen.cancel();
  return status;
}

fl_status launch(Plan& plan, const fl_call& c) {
  const runtime::StreamId stream = runtime::current_stream(plan.device->index);
  runtime::ScratchScope scratch(*plan.device, stream);
  if (C10_UNLIKELY(runtime::observed_by(runtime::kTimeline))) return run_seen(plan, c, stream);
  return plan.kernel->run(&c);
}

/// Errors of a kernel surface where something next waits for the device. Here that is its own call, which is named.
void await(const Call& call, runtime::Device& device, runtime::StreamId stream) {
  try {
    device.synchronize_stream(stream);
  } catch (const runtime::Error& error) {
    throw runtime::Error(error.status(), describe_call(call) + ": " + error.what());
  }
}

}  // namespace

bool kernel_supports(Call& call, Plan& plan, const runtime::OpRules* rules, std::string* reason) {
  const bool checked = rules != nullptr && !rules->checks.empty();
  if (plan.kernel->supports == nullptr && !checked) return true;
  Frame frame(call, plan);
  frame.bind_outputs(nullptr, false);
  frame.bind_inputs(false);
  const fl_call c = frame.make(0, false);
  if (checked) *reason = runtime::broken_rule(*rules, c);
  if (!reason->empty()) return false;
  if (plan.kernel->supports == nullptr) return true;
  runtime::take_plugin_message();
  const fl_status status = plan.kernel->supports(&c);
  if (status == FL_OK) return true;
  if (status != FL_UNSUPPORTED) plan.device->fail(status, ("supports() for " + call.entry.name).c_str());
  *reason = runtime::take_plugin_message();
  if (reason->empty()) *reason = "the kernel does not support this call";
  return false;
}

bool execute(Call& call, Plan& plan, at::Tensor* outs, Declined* declined) {
  runtime::Device& device = *plan.device;
  device.handle();
  if ((plan.flags & FL_KERNEL_RANDOM) != 0) reserve_philox(call, plan);
  const uint64_t start = g_timing.load(std::memory_order_relaxed) ? clock_ticks() : 0;
  Frame frame(call, plan);
  frame.bind_outputs(outs, true);
  frame.bind_inputs(true);
  const runtime::StreamId stream = runtime::current_stream(device.index);
  if (C10_UNLIKELY(!frame.fit_scalars())) {
    *declined = {"a scalar argument is out of range for the type computed in", true};
    return false;
  }
  const fl_call c = frame.make(stream, true);
  if (C10_UNLIKELY(plan.value_rules != nullptr)) declined->reason = runtime::broken_rule(*plan.value_rules, c);
  if (C10_UNLIKELY(!declined->reason.empty())) return false;
  fl_status status = launch(plan, c);
  if (status == FL_OUT_OF_MEMORY) {
    drop_all_kept();
    device.allocator().empty_cache();
    status = launch(plan, c);
  }
  if (status == FL_UNSUPPORTED) {
    const std::string why = runtime::take_plugin_message();
    declined->reason = "the kernel declined at run time" + (why.empty() ? why : ": " + why);
    return false;
  }
  if (C10_UNLIKELY(status != FL_OK)) device.fail(status, describe_call(call).c_str());
  if (C10_UNLIKELY(!runtime::settings.async_execution.load(std::memory_order_relaxed))) await(call, device, stream);
  if (!plan.simple) frame.finish_outputs(outs);
  if (start != 0) {
    device.synchronize_stream(stream);
    bump(plan.ticks, clock_ticks() - start);
  }
  return true;
}

}  // namespace torch_fl::glue
