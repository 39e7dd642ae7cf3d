// SPDX-License-Identifier: Apache-2.0
// The simulator is strict: work that the device's limits forbid is the host's mistake, and ends the process as a driver
// that was not made for it would, only with a message.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

#include "plugin.h"

namespace fl_sim {
namespace {

[[noreturn]] void broken(const fl_call& call, const std::string& what) {
  std::fprintf(stderr, "fl_sim: %s %s\n", call.kernel->op, what.c_str());
  std::abort();
}

void check_dtype(const fl_call& call) {
  const uint64_t mask = device_dtypes();
  const fl_dtype dtype = call.compute_dtype;
  if (mask == 0 || (dtype >= 0 && dtype < 64 && (mask & FL_DTYPE_BIT(dtype)) != 0)) return;
  broken(call, "asked for element type " + std::to_string(dtype) +
                   ", which this device (SIMCHIP_DTYPES=" + simGetLimits()->dtypes + ") has not");
}

template <class F>
void each_tensor(const fl_call& call, F&& f) {
  for (uint32_t i = 0; i < call.n_args; ++i) {
    const fl_value& v = call.args[i];
    if (v.kind == FL_TENSOR) f(*v.u.tensor);
    for (uint32_t k = 0; v.kind == FL_TENSORS && k < v.count; ++k) {
      if (v.u.tensors[k] != nullptr) f(*v.u.tensors[k]);
    }
  }
  for (uint32_t i = 0; i < call.n_outs; ++i) {
    if (call.outs[i] != nullptr) f(*call.outs[i]);
  }
}

void check_alignment(const fl_call& call) {
  const uint64_t alignment = simGetLimits()->alignment;
  each_tensor(call, [&](const fl_tensor& t) {
    if (t.numel != 0 && t.address % alignment != 0) {
      broken(call, "was given an operand that is not aligned to " + std::to_string(alignment) + " bytes");
    }
  });
}

bool is_one_of(const fl_call& call, std::initializer_list<std::string_view> ops) {
  for (const std::string_view op : ops) {
    if (op == call.kernel->op) return true;
  }
  return false;
}

void check_matrices(const fl_call& call) {
  const int64_t multiple = simGetLimits()->matmul_multiple;
  if (multiple <= 1 || !is_one_of(call, {"aten::mm", "aten::addmm", "aten::bmm", "aten::baddbmm"})) return;
  const fl_tensor& out = *call.outs[0];
  const fl_tensor& left = *call.args[is_one_of(call, {"aten::mm", "aten::bmm"}) ? 0 : 1].u.tensor;
  for (const int64_t size : {out.sizes[out.ndim - 2], out.sizes[out.ndim - 1], left.sizes[left.ndim - 1]}) {
    if (size % multiple != 0) {
      broken(call,
             "was given a matrix size of " + std::to_string(size) + ", no multiple of " + std::to_string(multiple));
    }
  }
}

const std::vector<int64_t>& allowed_strides() {
  static const std::vector<int64_t> allowed = [] {
    std::vector<int64_t> list;
    for (const char* text = simGetLimits()->conv_strides; *text != '\0';) {
      char* end = nullptr;
      list.push_back(std::strtoll(text, &end, 10));
      if (end == text) break;
      text = *end == ',' ? end + 1 : end;
    }
    return list;
  }();
  return allowed;
}

// Strides of one of the two dense channels-last layouts; dimensions of size 1 may have any.
bool is_channels_last(const fl_tensor& t) {
  int64_t expected = 1;
  for (int32_t k = 0; k < t.ndim; ++k) {
    const int32_t d = k == 0 ? 1 : k == t.ndim - 1 ? 0 : t.ndim - k;
    if (t.sizes[d] != 1 && t.strides[d] != expected) return false;
    expected *= t.sizes[d];
  }
  return true;
}

void check_convolution(const fl_call& call) {
  if (!is_one_of(call, {"aten::convolution", "aten::convolution_backward"})) return;
  if (simGetLimits()->conv_channels_last != 0) {
    each_tensor(call, [&](const fl_tensor& t) {
      if (t.numel != 0 && (t.ndim == 3 || (t.ndim >= 4 && !is_channels_last(t)))) {
        broken(call, "was given an image that is not channels-last");
      }
    });
  }
  const std::vector<int64_t>& allowed = allowed_strides();
  const fl_value& stride = call.args[is_one_of(call, {"aten::convolution"}) ? 3 : 4];
  for (uint32_t k = 0; !allowed.empty() && k < stride.count; ++k) {
    if (std::find(allowed.begin(), allowed.end(), stride.u.ints[k]) == allowed.end()) {
      broken(call, "was given a stride of " + std::to_string(stride.u.ints[k]));
    }
  }
}

}  // namespace

void check_limits(const fl_call& call) {
  if (is_data_movement(*call.kernel)) return;
  check_dtype(call);
  if (!simGetLimits()->trusting) return;
  check_alignment(call);
  check_matrices(call);
  check_convolution(call);
}

}  // namespace fl_sim
