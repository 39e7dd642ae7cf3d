// SPDX-License-Identifier: Apache-2.0
#include "host_route.h"

#include <ATen/native/CPUFallback.h>
#include <ATen/native/Resize.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <unordered_set>

#include "copy.h"
#include "device_allocator.h"
#include "random_ops.h"
#include "recorder.h"
#include "unsupported.h"

namespace torch_fl::glue {
namespace {

std::atomic<bool> g_stock{false};

bool on_fl(const at::Tensor& t) { return t.defined() && t.device().type() == c10::kPrivateUse1; }

// Results that live on the CPU on every device.
bool stays_on_host(const Entry& entry, size_t result) {
  return entry.op_name == "aten::_pack_padded_sequence" && result == 1;
}

/// The device tensors of one call and their counterparts on the host.
class Staging {
 public:
  explicit Staging(HostCall& host) : host_(host), device_(host.device) {}
  ~Staging() {
    if (pending_) settle();  // an exception on the way: copies may still be writing into our buffers
  }

  void add_all();
  void bring();
  void replace_arguments();
  void write_back();
  /// The device tensor that a CPU tensor stands for, if it is one of ours.
  const at::Tensor* original(const at::Tensor& cpu) const;

 private:
  struct Item {
    at::Tensor device, host;
    bool mutated = false;
    fl_address base = 0;  ///< device address of the host storage's first byte
  };
  void add(const at::Tensor& t, bool mutated);
  void add_value(const c10::IValue& v, bool mutated);
  void relabel(Item& item);
  void stage(Item& item);
  void stage_shared(size_t first);
  bool shared_and_mutated(size_t i) const;
  at::Tensor view_of(const c10::Storage& storage, const at::Tensor& like, int64_t offset_bytes) const;
  const at::Tensor& host_of(const at::Tensor& t) const;
  c10::IValue replaced(const c10::IValue& v) const;
  void store(Item& item);
  void settle() noexcept;
  bool moved(const Item& item) const;

  HostCall& host_;
  runtime::Device& device_;
  c10::SmallVector<Item, 6> items_;
  bool pending_ = false;
};

void Staging::add(const at::Tensor& t, bool mutated) {
  if (!on_fl(t)) return;
  for (auto& item : items_) {
    if (item.device.is_same(t)) {
      item.mutated |= mutated;
      return;
    }
  }
  items_.push_back({t, {}, mutated, 0});
}

void Staging::add_value(const c10::IValue& v, bool mutated) {
  if (v.isTensor()) {
    add(v.toTensor(), mutated);
  } else if (v.isTensorList() || v.isOptionalTensorList()) {
    for (const auto& e : v.toListRef()) {
      if (e.isTensor()) add(e.toTensor(), mutated);
    }
  }
}

void Staging::add_all() {
  const auto& args = host_.call.entry.args;
  for (size_t i = 0; i < args.size(); ++i) add_value(host_.stack[i], args[i].written);
}

at::Tensor Staging::view_of(const c10::Storage& storage, const at::Tensor& like, int64_t offset_bytes) const {
  at::Tensor host = at::detail::make_tensor<c10::TensorImpl>(c10::Storage(storage),
                                                             c10::DispatchKeySet(c10::DispatchKey::CPU), like.dtype());
  auto* impl = host.unsafeGetTensorImpl();
  impl->set_sizes_and_strides(like.sizes(), like.strides());
  impl->set_storage_offset(offset_bytes / static_cast<int64_t>(like.dtype().itemsize()));
  return host;
}

void Staging::relabel(Item& item) {
  for (auto& other : items_) {
    if (&other == &item || !other.host.defined()) continue;
    if (!other.device.storage().is_alias_of(item.device.storage())) continue;
    item.host = view_of(other.host.storage(), item.device,
                        item.device.storage_offset() * static_cast<int64_t>(item.device.dtype().itemsize()));
    item.base = other.base;
    return;
  }
  const auto& storage = item.device.storage();
  void* data = const_cast<void*>(storage.data());
  item.base = reinterpret_cast<fl_address>(data);
  c10::Storage host(c10::Storage::use_byte_size_t(), storage.nbytes(), c10::DataPtr(data, c10::kCPU),
                    c10::GetCPUAllocator(), true);
  item.host =
      view_of(host, item.device, item.device.storage_offset() * static_cast<int64_t>(item.device.dtype().itemsize()));
}

void Staging::stage(Item& item) {
  const at::Tensor& t = item.device;
  const uint64_t bytes = extent_bytes(t);
  const uint64_t dense = static_cast<uint64_t>(t.numel()) * t.dtype().itemsize();
  if (!item.mutated && bytes > 4 * dense + 4096 && has_kernel(device_.chip, "aten::copy")) {
    Item gathered{converted(device_, t, t.scalar_type(), at::MemoryFormat::Contiguous), {}, false, 0};
    stage(gathered);
    item.host = gathered.host;
    return;
  }
  item.base = device_address(t);
  at::Tensor buffer;
  if (item.mutated) {  // may be resized by the operator
    buffer = at::detail::empty_cpu({static_cast<int64_t>(bytes)}, at::kByte);
  } else {
    void* memory = bytes > 0 ? device_.pinned().allocate(bytes) : nullptr;
    runtime::Device* device = &device_;
    struct Owner {
      runtime::Device* device;
      void* memory;
    };
    auto* owner = memory != nullptr ? new Owner{device, memory} : nullptr;
    c10::DataPtr data(
        memory, owner,
        [](void* context) {
          auto* o = static_cast<Owner*>(context);
          if (o == nullptr) return;
          o->device->pinned().free(o->memory);
          delete o;
        },
        c10::kCPU);
    buffer = at::detail::make_tensor<c10::TensorImpl>(
        c10::Storage(c10::Storage::use_byte_size_t(), bytes, std::move(data), nullptr, false),
        c10::DispatchKeySet(c10::DispatchKey::CPU), c10::scalarTypeToTypeMeta(at::kByte));
  }
  item.host = view_of(buffer.storage(), t, 0);
  if (bytes == 0) return;
  download(device_, const_cast<void*>(buffer.storage().data()), item.base, bytes);
  bump(host_.plan.bytes, bytes);
  pending_ = true;
}

bool Staging::shared_and_mutated(size_t i) const {
  bool shared = false, mutated = items_[i].mutated;
  for (size_t k = 0; k < items_.size(); ++k) {
    if (k == i || !items_[k].device.storage().is_alias_of(items_[i].device.storage())) continue;
    shared = true;
    mutated |= items_[k].mutated;
  }
  return shared && mutated && items_[i].device.storage().nbytes() > 0;
}

// Several arguments on one storage, one of them written: one copy of the range they span.
void Staging::stage_shared(size_t first) {
  fl_address low = UINT64_MAX, high = 0;
  std::vector<size_t> members;
  for (size_t k = first; k < items_.size(); ++k) {
    const at::Tensor& t = items_[k].device;
    if (!t.storage().is_alias_of(items_[first].device.storage())) continue;
    members.push_back(k);
    if (t.numel() == 0) continue;
    low = std::min(low, device_address(t));
    high = std::max(high, device_address(t) + extent_bytes(t));
  }
  if (low == UINT64_MAX) low = high = 0;
  low = low / 16 * 16;  // keeps the offsets multiples of every element size
  at::Tensor buffer = at::detail::empty_cpu({static_cast<int64_t>(high - low)}, at::kByte);
  if (high > low) {
    download(device_, buffer.mutable_data_ptr(), low, high - low);
    bump(host_.plan.bytes, high - low);
    pending_ = true;
  }
  for (size_t k : members) {
    const at::Tensor& t = items_[k].device;
    items_[k].base = low;
    items_[k].host = view_of(buffer.storage(), t, t.numel() == 0 ? 0 : static_cast<int64_t>(device_address(t) - low));
  }
}

void Staging::bring() {
  if (items_.empty()) return;
  wait_for_earlier_work(device_, runtime::current_stream(device_.index));
  const Measure copied(&Measured::copy_in_ns);
  if (device_.host_coherent) {
    for (auto& item : items_) relabel(item);
    pending_ = true;
  } else {
    for (size_t i = 0; i < items_.size(); ++i) {
      if (items_[i].host.defined()) continue;
      if (shared_and_mutated(i)) {
        stage_shared(i);
      } else {
        stage(items_[i]);
      }
    }
  }
  for (auto& item : items_) {
    auto* impl = item.host.unsafeGetTensorImpl();
    if (item.device.unsafeGetTensorImpl()->is_wrapped_number()) impl->set_wrapped_number(true);
    if (item.device.is_conj()) impl->_set_conj(true);
    if (item.device.is_neg()) impl->_set_neg(true);
  }
  if (!pending_) return;
  device_.synchronize_stream(runtime::current_stream(device_.index));
  pending_ = false;
  bump(host_.plan.syncs);
}

void Staging::settle() noexcept {
  try {
    device_.synchronize_stream(runtime::current_stream(device_.index));
  } catch (const std::exception& error) {
    runtime::log(FL_LOG_WARNING, std::string("while unwinding the host route: ") + error.what());
  }
}

const at::Tensor& Staging::host_of(const at::Tensor& t) const {
  for (const auto& item : items_) {
    if (item.device.is_same(t)) return item.host;
  }
  return t;
}

c10::IValue Staging::replaced(const c10::IValue& v) const {
  if (v.isTensor()) return on_fl(v.toTensor()) ? c10::IValue(host_of(v.toTensor())) : v;
  if (v.isTensorList()) {
    c10::List<at::Tensor> list;
    for (const at::Tensor& t : v.toTensorList()) list.push_back(host_of(t));
    return list;
  }
  if (v.isOptionalTensorList()) {
    c10::List<std::optional<at::Tensor>> list;
    for (const std::optional<at::Tensor>& t : v.toOptionalTensorList()) {
      list.push_back(t.has_value() && on_fl(*t) ? std::optional(host_of(*t)) : t);
    }
    return list;
  }
  if (v.isDevice() && v.toDevice().type() == c10::kPrivateUse1) return c10::Device(c10::kCPU);
  return v;
}

void Staging::replace_arguments() {
  for (auto& v : host_.stack) v = replaced(v);
}

const at::Tensor* Staging::original(const at::Tensor& cpu) const {
  for (const auto& item : items_) {
    if (item.host.is_same(cpu)) return &item.device;
  }
  return nullptr;
}

bool Staging::moved(const Item& item) const {
  return item.host.sizes() != item.device.sizes() || item.host.strides() != item.device.strides();
}

void Staging::store(Item& item) {
  const at::Tensor& t = item.device;
  if (moved(item)) {
    take_over(t, item.host);
    bump(host_.plan.bytes, extent_bytes(t));
    return;
  }
  const uint64_t bytes = extent_bytes(t);
  if (bytes == 0) return;
  if (device_.host_coherent && item.host.const_data_ptr() == reinterpret_cast<void*>(device_address(t))) return;
  const char* data = static_cast<const char*>(item.host.storage().data()) +
                     item.host.storage_offset() * static_cast<int64_t>(item.host.dtype().itemsize());
  upload(device_, device_address(t), data, bytes);
  bump(host_.plan.bytes, bytes);
}

void Staging::write_back() {
  for (auto& item : items_) {
    if (item.mutated) store(item);
  }
}

// ---- Results ----------------------------------------------------------------------------------------------------

struct Adopted {
  runtime::Device& device;
  c10::Storage storage;
};

// Whoever frees the memory next does so at once, and work that was enqueued may still use it.
void give_up(void* context) {
  const std::unique_ptr<Adopted> adopted(static_cast<Adopted*>(context));
  try {
    if (adopted->device.usable()) adopted->device.synchronize();
  } catch (const std::exception& error) {
    runtime::log(FL_LOG_WARNING, error.what());
  }
}

// The memory of a CPU result, seen as memory of a chip that can address all of the host's.
at::Tensor adopt(runtime::Device& device, const at::Tensor& cpu) {
  auto* keep = new Adopted{device, cpu.storage()};
  c10::DataPtr data(const_cast<void*>(cpu.storage().data()), keep, give_up,
                    c10::Device(c10::kPrivateUse1, static_cast<c10::DeviceIndex>(device.index)));
  auto storage = c10::make_intrusive<c10::StorageImpl>(c10::StorageImpl::use_byte_size_t(), cpu.storage().nbytes(),
                                                       std::move(data), device_allocator(), true);
  at::Tensor t = at::detail::make_tensor<c10::TensorImpl>(
      std::move(storage), c10::DispatchKeySet(c10::DispatchKey::PrivateUse1), cpu.dtype());
  t.unsafeGetTensorImpl()->set_sizes_and_strides(cpu.sizes(), cpu.strides());
  t.unsafeGetTensorImpl()->set_storage_offset(cpu.storage_offset());
  return t;
}

at::Tensor copy_by_host(runtime::Device& device, const at::Tensor& cpu) {
  at::Tensor t = allocate_tensor(device, cpu.scalar_type(), cpu.sizes(), cpu.strides());
  if (cpu.numel() == 0) return t;
  // After allocating: a block that has just been freed may still be in use by work that was enqueued before.
  device.synchronize_stream(runtime::current_stream(device.index));
  std::memcpy(reinterpret_cast<void*>(device_address(t)), cpu.const_data_ptr(), extent_bytes(cpu));
  return t;
}

at::Tensor result_to_device(HostCall& host, const at::Tensor& cpu) {
  TORCH_CHECK_NOT_IMPLEMENTED(cpu.layout() == at::kStrided && !cpu.is_quantized(), host.call.entry.name,
                              " gives a result that is not a strided tensor, which fl devices do not hold");
  if (host.device.host_coherent && host.device.unified && !cpu.is_conj() && !cpu.is_neg()) {
    return adopt(host.device, cpu);
  }
  bump(host.plan.bytes, extent_bytes(cpu));
  if (host.device.host_coherent && cpu.is_non_overlapping_and_dense() && !cpu.is_conj() && !cpu.is_neg()) {
    return copy_by_host(host.device, cpu);
  }
  return to_device(host.device, cpu);
}

c10::IValue bring_result(HostCall& host, const Staging& staging, c10::IValue v) {
  if (v.isTensor()) {
    const at::Tensor& t = v.toTensor();
    if (!t.defined()) return v;
    if (const at::Tensor* original = staging.original(t)) return *original;
    return t.device().is_cpu() ? c10::IValue(result_to_device(host, t)) : v;
  }
  if (v.isTensorList()) {
    c10::List<at::Tensor> list;
    for (const at::Tensor& t : v.toTensorList()) list.push_back(bring_result(host, staging, t).toTensor());
    return list;
  }
  return v;
}

// ---- Random operators without a Philox form of their own: the CPU's algorithm, seeded from ours ----------------
void seed_generator(HostCall& host) {
  const auto& args = host.call.entry.args;
  for (size_t i = 0; i < args.size(); ++i) {
    if (args[i].name != "generator") continue;
    host.stack[i] = host_generator(host.stack[i], host.device);
  }
}

void check_has_cpu_kernel(HostCall& host) {
  if (host.call.entry.op.hasComputedKernelForDispatchKey(c10::DispatchKey::CPU)) return;
  TORCH_CHECK_NOT_IMPLEMENTED(
      false, host.call.entry.name, " is not implemented for chip '", host.device.chip.name, "' (fl:", host.device.index,
      "): ", host.plan.reason,
      ", and PyTorch has no CPU kernel that could run instead.\n  call: ", describe_call(host.call));
}

// Operators whose result IS a view of an argument must not come here: a copy would silently lose the aliasing.
void check_not_view(const HostCall& host) {
  TORCH_CHECK_NOT_IMPLEMENTED(!gives_view(host.call.entry.op.schema()), host.call.entry.name,
                              " returns a view; it is not implemented for fl devices and ",
                              "cannot run on the host without losing the aliasing");
}

}  // namespace

bool gives_view(const c10::FunctionSchema& schema) {
  const auto& returns = schema.returns();
  return std::any_of(returns.begin(), returns.end(),
                     [](const c10::Argument& r) { return r.alias_info() != nullptr && !r.alias_info()->isWrite(); });
}

void take_over(const at::Tensor& target, const at::Tensor& host) {
  target.resize_(host.sizes());  // dispatched: at::native::resize_ would take memory of the current device
  target.unsafeGetTensorImpl()->set_sizes_and_strides(host.sizes(), host.strides());
  copy_into(target, host, false);
}

bool stock_fallback() { return g_stock.load(std::memory_order_relaxed); }
void set_stock_fallback(bool on) { g_stock.store(on); }

void host_route(HostCall& host) {
  Entry& entry = host.call.entry;
  if (stock_fallback()) return at::native::cpu_fallback(entry.op, &host.stack, true);
  check_not_view(host);
  if (entry.host != nullptr) {
    wait_for_earlier_work(host.device, runtime::current_stream(host.device.index));
    const Measure computed(&Measured::compute_ns);
    return entry.host(host);
  }
  check_has_cpu_kernel(host);
  Staging staging(host);
  staging.add_all();
  staging.bring();
  staging.replace_arguments();
  seed_generator(host);
  {
    const Measure computed(&Measured::compute_ns);
    entry.op.redispatchBoxed(c10::DispatchKeySet(c10::DispatchKey::CPU), &host.stack);
  }
  const Measure copied(&Measured::copy_out_ns);
  staging.write_back();
  for (size_t i = 0; i < host.stack.size(); ++i) {
    if (!stays_on_host(entry, i)) host.stack[i] = bring_result(host, staging, std::move(host.stack[i]));
  }
}

}  // namespace torch_fl::glue
