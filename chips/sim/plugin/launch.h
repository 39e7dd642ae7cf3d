// SPDX-License-Identifier: Apache-2.0
// From a host's fl_call to work on the simulated chip. A kernel's run() is one line: `return launch(call, body)`.
//
// The body runs on the device: on the calling thread with the borrowed call where streams are inline (a plain function
// call: no lock, no heap), else later on the stream's worker with a copy of the call. Scratch memory inside a body is
// ordinary host memory: it stands for memory on the chip. A body that cannot go on throws KernelError.
#pragma once

#include <span>
#include <stdexcept>
#include <string_view>

#include "simchip.h"
#include "torch_fl/fl_plugin.h"
#include "view.h"

namespace fl_sim {

/// A body that fails; what the SDK is told decides the status that the host gets.
class KernelError : public std::runtime_error {
 public:
  explicit KernelError(const std::string& message, simResult result_ = SIM_ERROR_KERNEL_FAILED)
      : std::runtime_error(message), result(result_) {}
  const simResult result;
};
/// The data break the operator's contract: FL_INVALID_ARGUMENT.
class InvalidArgument : public KernelError {
 public:
  explicit InvalidArgument(const std::string& message) : KernelError(message, SIM_ERROR_KERNEL_ARGUMENT) {}
};
/// An index lies outside its tensor, and the operator calls that an index error: FL_OUT_OF_RANGE.
class OutOfRange : public KernelError {
 public:
  explicit OutOfRange(const std::string& message) : KernelError(message, SIM_ERROR_KERNEL_RANGE) {}
};

/// A call as its body sees it. Arguments are numbered as in the schema.
class Call {
 public:
  Call(const fl_call& call, const simDeviceHead* device) : raw(call), device_(device) {}

  const fl_call& raw;

  uint32_t n_args() const { return raw.n_args; }
  const fl_value& value(uint32_t i) const { return raw.args[i]; }
  bool none(uint32_t i) const { return i >= raw.n_args || raw.args[i].kind == FL_NONE; }
  bool is_tensor(uint32_t i) const { return i < raw.n_args && raw.args[i].kind == FL_TENSOR; }

  View tensor(uint32_t i) const { return view(*raw.args[i].u.tensor); }
  /// Lists of tensors: length, presence and elements.
  uint32_t list_size(uint32_t i) const { return none(i) ? 0 : raw.args[i].count; }
  bool list_has(uint32_t i, uint32_t j) const { return raw.args[i].u.tensors[j] != nullptr; }
  View list_tensor(uint32_t i, uint32_t j) const { return view(*raw.args[i].u.tensors[j]); }

  /// Numbers convert between the scalar kinds, so a Scalar argument can be read as what the kernel needs.
  int64_t integer(uint32_t i, int64_t absent = 0) const { return none(i) ? absent : to_integer(raw.args[i]); }
  double real(uint32_t i, double absent = 0) const { return none(i) ? absent : to_real(raw.args[i]); }
  bool boolean(uint32_t i, bool absent = false) const {
    return none(i) ? absent : (raw.args[i].kind == FL_REAL ? raw.args[i].u.d != 0 : raw.args[i].u.i != 0);
  }
  std::string_view string(uint32_t i, std::string_view absent = "") const {
    return none(i) ? absent : std::string_view(raw.args[i].u.s);
  }
  std::span<const int64_t> ints(uint32_t i) const {
    return none(i) ? std::span<const int64_t>() : std::span<const int64_t>(raw.args[i].u.ints, raw.args[i].count);
  }
  std::span<const uint8_t> booleans(uint32_t i) const {
    return none(i) ? std::span<const uint8_t>() : std::span<const uint8_t>(raw.args[i].u.bools, raw.args[i].count);
  }

  uint32_t n_outs() const { return raw.n_outs; }
  const simDeviceHead* device() const { return device_; }
  bool has_out(uint32_t i) const { return i < raw.n_outs && raw.outs[i] != nullptr; }
  View out(uint32_t i) const { return view(*raw.outs[i]); }

  View view(const fl_tensor& t) const {
    if (device_->checked) [[unlikely]]
      check(t);
    return {simTranslate(device_, t.address), t.dtype, t.ndim, t.sizes, t.strides, t.numel, t.flags};
  }

  static int64_t to_integer(const fl_value& v) {
    return v.kind == FL_REAL      ? static_cast<int64_t>(v.u.d)
           : v.kind == FL_COMPLEX ? static_cast<int64_t>(v.u.c[0])
                                  : v.u.i;
  }
  static double to_real(const fl_value& v) {
    return v.kind == FL_REAL ? v.u.d : v.kind == FL_COMPLEX ? v.u.c[0] : static_cast<double>(v.u.i);
  }

 private:
  void check(const fl_tensor& t) const;
  const simDeviceHead* device_;
};

using Body = void (*)(const Call&);

/// Reports the exception in flight; FL_INTERNAL unless it is a KernelError that says more.
fl_status report_exception() noexcept;
fl_status launch_slow(const fl_call* call, Body body) noexcept;

/// Enqueues the body on the call's stream.
inline fl_status launch(const fl_call* call, Body body) noexcept {
  auto* device = reinterpret_cast<simDevice>(call->device);
  if (simMode(device) != 0) [[unlikely]]
    return launch_slow(call, body);
  try {
    body(Call(*call, device));
    return FL_OK;
  } catch (...) {
    return report_exception();
  }
}

/// The host's set_error(): for supports() and run(). Returns `status`.
fl_status fail(fl_status status, const char* message) noexcept;
inline fl_status unsupported(const char* reason) noexcept { return fail(FL_UNSUPPORTED, reason); }

/// A row of a kernel table.
constexpr fl_kernel row(const char* op, uint32_t flags, fl_kernel_fn run, uint64_t dtypes = 0,
                        fl_supports_fn supports = nullptr, void* user_data = nullptr) {
  return {sizeof(fl_kernel), flags, op, run, supports, user_data, dtypes, 0, 0};
}

/// Tables of the families; each is defined in the family's file and listed in kernels.cpp. Called once, when the plugin
/// is loaded: rows may depend on simGetLimits().
using Family = std::span<const fl_kernel>;

}  // namespace fl_sim
