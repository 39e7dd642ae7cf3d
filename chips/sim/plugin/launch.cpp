// SPDX-License-Identifier: Apache-2.0
#include "launch.h"

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

#include "plugin.h"
#include "wrong.h"

namespace fl_sim {
namespace {

struct Packet {
  fl_call call;
  Body body;
  WrongBody wrong;  ///< instead of the body, where a fault is in force
};

// Lays a deep copy of a call into one block. Run twice: without a block it only counts bytes.
class Packer {
 public:
  explicit Packer(char* block) : block_(block) {}
  size_t bytes() const { return used_; }

  template <class T>
  T* take(const T* source, size_t count) {
    const size_t at = used_;
    used_ += (count * sizeof(T) + 15) / 16 * 16;
    if (!block_) return nullptr;
    auto* copy = reinterpret_cast<T*>(block_ + at);
    if (count) std::memcpy(static_cast<void*>(copy), source, count * sizeof(T));
    return copy;
  }

  fl_tensor* tensor(const fl_tensor* t) {
    if (!t) return nullptr;
    fl_tensor* copy = take(t, 1);
    const int64_t* sizes = take(t->sizes, static_cast<size_t>(t->ndim));
    const int64_t* strides = take(t->strides, static_cast<size_t>(t->ndim));
    if (copy) copy->sizes = sizes, copy->strides = strides;
    return copy;
  }

  void value(const fl_value& v, fl_value* copy) {
    const void* data = nullptr;
    switch (v.kind) {
      case FL_TENSOR:
        data = tensor(v.u.tensor);
        break;
      case FL_STRING:
        data = take(v.u.s, std::strlen(v.u.s) + 1);
        break;
      case FL_INTEGERS:
        data = take(v.u.ints, v.count);
        break;
      case FL_REALS:
        data = take(v.u.reals, v.count);
        break;
      case FL_BOOLEANS:
        data = take(v.u.bools, v.count);
        break;
      case FL_TENSORS:
        data = tensors(v.u.tensors, v.count);
        break;
      case FL_VALUES:
        data = values(v.u.values, v.count);
        break;
      default:
        return;
    }
    if (copy) copy->u.s = static_cast<const char*>(data);
  }

  fl_tensor** tensors(const fl_tensor* const* list, uint32_t count) {
    auto** copy = const_cast<fl_tensor**>(take(list, count));
    for (uint32_t i = 0; i < count; ++i) {
      fl_tensor* element = tensor(list[i]);
      if (copy) copy[i] = element;
    }
    return copy;
  }

  fl_value* values(const fl_value* list, uint32_t count) {
    fl_value* copy = take(list, count);
    for (uint32_t i = 0; i < count; ++i) value(list[i], copy ? copy + i : nullptr);
    return copy;
  }

  void call(const fl_call& c, Body body, WrongBody wrong) {
    const Packet head{c, body, wrong};
    Packet* copy = take(&head, 1);
    const fl_value* args = values(c.args, c.n_args);
    fl_tensor* const* outs = tensors(c.outs, c.n_outs);
    if (copy) copy->call.args = args, copy->call.outs = outs;
  }

 private:
  char* block_;
  size_t used_ = 0;
};

simResult run_packet(simDevice device, void* memory) {
  const auto& packet = *static_cast<const Packet*>(memory);
  try {
    if (packet.wrong)
      packet.wrong(Call(packet.call, device), packet.body);
    else
      packet.body(Call(packet.call, device));
    return SIM_SUCCESS;
  } catch (const KernelError& e) {
    simKernelError(e.what());
    return e.result;
  } catch (const std::exception& e) {
    simKernelError(e.what());
  } catch (...) {
    simKernelError("unknown exception");
  }
  return SIM_ERROR_KERNEL_FAILED;
}

}  // namespace

fl_status fail(fl_status status, const char* message) noexcept {
  if (host()) host()->set_error(status, message);
  return status;
}

namespace {

fl_status status_of(simResult result) {
  switch (result) {
    case SIM_SUCCESS:
      return FL_OK;
    case SIM_ERROR_INVALID_VALUE:
    case SIM_ERROR_KERNEL_ARGUMENT:
    case SIM_ERROR_SOURCE:
      return FL_INVALID_ARGUMENT;
    case SIM_ERROR_NO_COMPILER:
    case SIM_ERROR_BINARY:
      return FL_UNSUPPORTED;
    case SIM_ERROR_KERNEL_RANGE:
      return FL_OUT_OF_RANGE;
    case SIM_ERROR_OUT_OF_MEMORY:
      return FL_OUT_OF_MEMORY;
    case SIM_ERROR_DEVICE_LOST:
      return FL_DEVICE_LOST;
    case SIM_ERROR_NOT_READY:
      return FL_NOT_READY;
    default:
      return FL_INTERNAL;
  }
}

}  // namespace

fl_status check(simResult result) noexcept {
  const fl_status status = status_of(result);
  return status == FL_OK || status == FL_NOT_READY ? status : fail(status, simGetLastErrorString());
}

fl_status report_exception() noexcept {
  try {
    throw;
  } catch (const KernelError& e) {
    return fail(status_of(e.result), e.what());
  } catch (const std::exception& e) {
    return fail(FL_INTERNAL, e.what());
  } catch (...) {
    return fail(FL_INTERNAL, "unknown exception in a kernel");
  }
}

fl_status launch_slow(const fl_call* call, Body body) noexcept {
  auto* device = reinterpret_cast<simDevice>(call->device);
  auto* stream = reinterpret_cast<simStream>(call->stream);
  WrongBody wrong = nullptr;
  if (simMode(device) & SIM_MODE_ATTENTION) {
    check_limits(*call);
    wrong = wrong_body(*call);
  }
  if (!(simMode(device) & SIM_MODE_QUEUED)) {
    Packet packet{*call, body, wrong};
    // An activity knows its stream; the packet that is copied borrows what this one does.
    return check(simMode(device) & SIM_MODE_PROFILING
                     ? simLaunch(device, stream, call->kernel->op, run_packet, &packet, sizeof packet)
                     : simLaunchInline(device, call->kernel->op, run_packet, &packet));
  }
  Packer counter(nullptr);
  counter.call(*call, body, wrong);
  void* block = simPacketCreate(counter.bytes());
  if (!block) return fail(FL_OUT_OF_MEMORY, "the host has no memory for a launch packet");
  Packer(static_cast<char*>(block)).call(*call, body, wrong);
  return check(simPacketSubmit(device, stream, call->kernel->op, run_packet, block));
}

void Call::check(const fl_tensor& t) const {
  if (t.numel) simCheckRange(device_, t.address, extent_bytes(t), raw.kernel ? raw.kernel->op : "kernel argument");
}

}  // namespace fl_sim
