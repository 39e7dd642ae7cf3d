// SPDX-License-Identifier: Apache-2.0
#include "copy.h"

#include <ATen/ExpandUtils.h>
#include <ATen/MemoryOverlap.h>
#include <c10/util/Exception.h>

#include <cstring>

#include "adapt.h"
#include "device_allocator.h"
#include "errors.h"
#include "host_route.h"
#include "recorder.h"
#include "router.h"
#include "runtime/scratch.h"
#include "runtime/timeline.h"

namespace torch_fl::glue {

uint64_t extent_bytes(const at::Tensor& t) {
  if (t.numel() == 0) return 0;
  int64_t last = 0;
  for (int64_t d = 0; d < t.dim(); ++d) last += (t.size(d) - 1) * t.stride(d);
  return static_cast<uint64_t>(last + 1) * t.dtype().itemsize();
}

namespace {

bool on_fl(const at::Tensor& t) { return t.device().type() == c10::kPrivateUse1; }

bool same_layout(const at::Tensor& a, const at::Tensor& b) {
  if (a.sizes() != b.sizes()) return false;
  if (a.is_contiguous() && b.is_contiguous()) return true;
  if (!a.is_non_overlapping_and_dense() || !b.is_non_overlapping_and_dense()) return false;
  for (int64_t d = 0; d < a.dim(); ++d) {
    if (a.size(d) > 1 && a.stride(d) != b.stride(d)) return false;
  }
  return true;
}

at::Tensor physical(const at::Tensor& t) {
  at::Tensor p = t;
  if (p.is_conj()) p = at::_conj(p);
  if (p.is_neg()) p = at::_neg_view(p);
  return p;
}

runtime::StreamId stream_of(const runtime::Device& device) { return runtime::current_stream(device.index); }

constexpr uint64_t kBounce = 256 << 10;  // up to here a copy through pinned memory beats waiting

bool overlaps(const at::Tensor& a, const at::Tensor& b) {
  if (!a.storage().is_alias_of(b.storage())) return false;
  const fl_address x = device_address(a), y = device_address(b);
  return x < y + extent_bytes(b) && y < x + extent_bytes(a);
}

// One copy kernel: any strides, any dtypes it lists. False: not this copy, or null.
bool copy_with(const fl_kernel* kernel, runtime::Device& device, const at::Tensor& dst, const at::Tensor& src,
               bool portable) {
  if (kernel == nullptr) return false;
  const fl_dtype from = to_fl_dtype(src.scalar_type()), to = to_fl_dtype(dst.scalar_type());
  if (from == FL_DTYPE_OTHER || to == FL_DTYPE_OTHER) return false;
  if (kernel->dtypes != 0 && ((kernel->dtypes & FL_DTYPE_BIT(from)) == 0 || (kernel->dtypes & FL_DTYPE_BIT(to)) == 0)) {
    return false;
  }
  TensorTemplate in, out;
  in.describe(src.scalar_type(), src.sizes(), src.strides());
  out.describe(dst.scalar_type(), dst.sizes(), dst.strides());
  in.descriptor.address = device_address(src);
  out.descriptor.address = device_address(dst);
  fl_value args[3]{};
  args[0].kind = FL_TENSOR;
  args[0].u.tensor = &out.descriptor;
  args[1].kind = FL_TENSOR;
  args[1].u.tensor = &in.descriptor;
  args[2].kind = FL_BOOLEAN;
  fl_tensor* outs[1] = {&out.descriptor};
  fl_call call{};
  call.struct_size = sizeof(call);
  call.device_index = device.local_index;
  call.device = device.handle();
  call.stream = device.stream(stream_of(device));
  call.kernel = kernel;
  call.args = args;
  call.n_args = 3;
  call.outs = outs;
  call.n_outs = 1;
  call.compute_dtype = from;
  if (kernel->supports != nullptr && kernel->supports(&call) != FL_OK) return false;
  runtime::ScratchScope scratch(device, stream_of(device));
  auto seen = runtime::Enqueue::kernel(device, stream_of(device), kernel->op, portable);
  const fl_status status = kernel->run(&call);
  if (status != FL_OK) seen.cancel();
  if (status == FL_UNSUPPORTED) return false;
  device.check(status, "aten::copy");
  return true;
}

bool copy_with_kernel(runtime::Device& device, const at::Tensor& dst, const at::Tensor& src) {
  return copy_with(find_kernel(device.chip, "aten::copy"), device, dst, src, false) ||
         copy_with(find_portable(device.chip, "aten::copy"), device, dst, src, true);
}

// Through the host: what a chip without kernels does.
void copy_on_host(runtime::Device& device, const at::Tensor& dst, const at::Tensor& src) {
  static Entry& entry = entry_for("aten::copy_", "");
  Stack stack{dst, src, false};
  LazyStore store;
  Call call{entry, nullptr, 0, store};
  call.device = &device;
  call.stack = &stack;
  Plan plan;
  plan.device = &device;
  plan.entry = &entry;
  HostCall host{call, stack, device, plan};
  host_route(host);
}

void copy_same_device(const at::Tensor& dst, const at::Tensor& src) {
  runtime::Device& device = runtime_device(dst);
  const bool plain = dst.scalar_type() == src.scalar_type() && same_layout(dst, src);
  if (plain) {
    const fl_address to = device_address(dst), from = device_address(src);
    if (to == from) return;
    if (!overlaps(dst, src)) {
      return device.copy(stream_of(device), to, from, extent_bytes(dst), FL_COPY_DEVICE_TO_DEVICE);
    }
  }
  if (overlaps(dst, src)) {
    at::Tensor apart = converted(device, src, src.scalar_type(), at::MemoryFormat::Contiguous);
    if (!copy_with_kernel(device, dst, apart)) copy_on_host(device, dst, apart);
    return;
  }
  if (!copy_with_kernel(device, dst, src)) copy_on_host(device, dst, src);
}

void copy_from_host(const at::Tensor& dst, const at::Tensor& src, bool non_blocking) {
  runtime::Device& device = runtime_device(dst);
  if (dst.scalar_type() == src.scalar_type() && same_layout(dst, src)) {
    const uint64_t bytes = extent_bytes(dst);
    if (non_blocking && device.pinned().owns(src.const_data_ptr())) {
      const auto stream = stream_of(device);
      device.copy(stream, device_address(dst), reinterpret_cast<fl_address>(src.const_data_ptr()), bytes,
                  FL_COPY_HOST_TO_DEVICE);
      device.pinned().record(const_cast<void*>(src.const_data_ptr()), stream);
      return;
    }
    return upload(device, device_address(dst), src.const_data_ptr(), bytes);
  }
  if (dst.is_non_overlapping_and_dense()) {
    at::Tensor host =
        at::empty_strided(dst.sizes(), dst.strides(), dst.options().device(c10::kCPU).pinned_memory(false));
    host.copy_(src);
    return upload(device, device_address(dst), host.const_data_ptr(), extent_bytes(dst));
  }
  copy_same_device(dst, to_device(device, src.contiguous()));
}

void copy_to_host(const at::Tensor& dst, const at::Tensor& src, bool non_blocking) {
  runtime::Device& device = runtime_device(src);
  if (dst.scalar_type() == src.scalar_type() && same_layout(dst, src)) {
    void* to = dst.mutable_data_ptr();
    if (!non_blocking || !device.pinned().owns(to)) {
      return download_now(device, to, device_address(src), extent_bytes(src));
    }
    download(device, to, device_address(src), extent_bytes(src));
    device.pinned().record(to, stream_of(device));
    return;
  }
  dst.copy_(to_host(src));
}

void copy_across(const at::Tensor& dst, const at::Tensor& src) {
  runtime::Device& to = runtime_device(dst);
  runtime::Device& from = runtime_device(src);
  at::Tensor dense =
      src.is_non_overlapping_and_dense() ? src : converted(from, src, src.scalar_type(), at::MemoryFormat::Contiguous);
  const bool direct = dst.scalar_type() == dense.scalar_type() && same_layout(dst, dense);
  at::Tensor landing = direct ? dst : allocate_tensor(to, dense.scalar_type(), dense.sizes(), dense.strides());
  runtime::copy_between(to, stream_of(to), device_address(landing), from, stream_of(from), device_address(dense),
                        extent_bytes(dense));
  if (!direct) copy_same_device(dst, landing);
}

}  // namespace

void upload(runtime::Device& device, fl_address dst, const void* src, uint64_t bytes) {
  if (bytes == 0) return;
  const auto stream = stream_of(device);
  if (bytes <= kBounce) {
    void* bounce = device.pinned().allocate(bytes);
    {
      const runtime::RuntimeCall seen(device, stream, "flHostStaging", bytes);
      std::memcpy(bounce, src, bytes);
    }
    device.copy(stream, dst, reinterpret_cast<fl_address>(bounce), bytes, FL_COPY_HOST_TO_DEVICE);
    device.pinned().record(bounce, stream);
    device.pinned().free(bounce);
    return;
  }
  device.copy(stream, dst, reinterpret_cast<fl_address>(src), bytes, FL_COPY_HOST_TO_DEVICE);
  device.synchronize_stream(stream);
  note_sync();
}

void download(runtime::Device& device, void* dst, fl_address src, uint64_t bytes) {
  device.copy(stream_of(device), reinterpret_cast<fl_address>(dst), src, bytes, FL_COPY_DEVICE_TO_HOST);
}

void download_now(runtime::Device& device, void* dst, fl_address src, uint64_t bytes) {
  const auto stream = stream_of(device);
  wait_for_earlier_work(device, stream);
  const Measure copied(&Measured::copy_in_ns);
  download(device, dst, src, bytes);
  device.synchronize_stream(stream);
  note_sync();
}

at::Tensor converted(runtime::Device& device, const at::Tensor& src, at::ScalarType dtype, at::MemoryFormat format) {
  at::Tensor meta = at::detail::empty_meta(src.sizes(), dtype, at::kStrided, at::Device(c10::kMeta), false, format);
  at::Tensor dst = allocate_tensor(device, dtype, meta.sizes(), meta.strides());
  copy_into(dst, src, true);
  return dst;
}

at::Tensor to_host(const at::Tensor& t) {
  const at::Tensor src = physical(t);
  runtime::Device& device = runtime_device(src);
  const uint64_t dense_bytes = static_cast<uint64_t>(src.numel()) * src.dtype().itemsize();
  // A thin slice of something big: gather it on the device first.
  if (extent_bytes(src) > 4 * dense_bytes + 4096 && has_kernel(device.chip, "aten::copy")) {
    return to_host(converted(device, t, t.scalar_type(), at::MemoryFormat::Contiguous));
  }
  const auto bytes = static_cast<int64_t>(extent_bytes(src));
  at::Tensor buffer = at::detail::empty_cpu({bytes}, at::kByte);
  download(device, buffer.mutable_data_ptr(), device_address(src), extent_bytes(src));
  device.synchronize_stream(stream_of(device));
  at::Tensor host = at::detail::make_tensor<c10::TensorImpl>(c10::Storage(buffer.storage()),
                                                             c10::DispatchKeySet(c10::DispatchKey::CPU), src.dtype());
  host.unsafeGetTensorImpl()->set_sizes_and_strides(src.sizes(), src.strides());
  if (t.is_conj()) host = host.conj();
  if (t.is_neg()) host = at::_neg_view(host);
  return host;
}

at::Tensor to_device(runtime::Device& device, const at::Tensor& t) {
  at::Tensor src = t.resolve_conj().resolve_neg();
  if (!src.is_non_overlapping_and_dense()) src = src.contiguous();
  at::Tensor dst = allocate_tensor(device, src.scalar_type(), src.sizes(), src.strides());
  upload(device, device_address(dst), src.const_data_ptr(), extent_bytes(src));
  return dst;
}

// The lazy conjugate or negative bits differ: the values must change on the way.
static void copy_bits(const at::Tensor& dst, const at::Tensor& src) {
  if (!on_fl(dst)) {
    dst.copy_(to_host(src));
    return;
  }
  at::Tensor values = src;
  if (dst.is_conj()) values = values.conj();
  if (dst.is_neg()) values = at::_neg_view(values);
  const bool on_chip = on_fl(src) && has_kernel(runtime_device(dst).chip, "aten::conj_physical");
  if (!on_chip)
    return copy_into(physical(dst), (on_fl(values) ? to_host(values) : values).resolve_conj().resolve_neg(), false);
  at::Tensor changed = at::empty_like(physical(values));
  copy_into(changed, physical(values), true);
  if (values.is_conj()) changed.conj_physical_();
  if (values.is_neg()) changed.neg_();
  copy_into(physical(dst), changed, true);
}

static void copy_tensor(const at::Tensor& dst_, const at::Tensor& src_, bool non_blocking, bool may_overlap) {
  if (dst_.is_same(src_)) return;
  if (dst_.is_conj() != src_.is_conj() || dst_.is_neg() != src_.is_neg()) return copy_bits(dst_, src_);
  const at::Tensor dst = physical(dst_);
  at::Tensor src = physical(src_);
  if (dst.numel() == 0) {
    (void)at::infer_size(src.sizes(), dst.sizes());
    return;
  }
  if (src.sizes() != dst.sizes()) src = src.expand(dst.sizes());
  if (!may_overlap) at::assert_no_internal_overlap(dst);
  if (!on_fl(src)) {
    copy_from_host(dst, src, non_blocking);
  } else if (!on_fl(dst)) {
    copy_to_host(dst, src, non_blocking);
  } else if (src.device() == dst.device()) {
    copy_same_device(dst, src);
  } else {
    copy_across(dst, src);
  }
}

void copy_into(const at::Tensor& dst, const at::Tensor& src, bool non_blocking, bool may_overlap) {
  copy_tensor(dst, src, non_blocking, may_overlap);
  tensor_changed(dst);
}

}  // namespace torch_fl::glue
