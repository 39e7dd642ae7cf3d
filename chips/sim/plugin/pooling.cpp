// SPDX-License-Identifier: Apache-2.0
// Maximum, average and adaptive average pooling in two and three dimensions, forward and backward. A two-dimensional
// image is a three-dimensional one of depth 1. Tensors are dense: `planes` images of in[0] x in[1] x in[2].
#include <algorithm>
#include <array>
#include <string>

#include "nn_families.h"
#include "nn_types.h"
#include "parallel.h"
#include "workspace.h"

namespace fl_sim::nn {
namespace {

using Triple = std::array<int64_t, 3>;
int64_t product(const Triple& t) { return t[0] * t[1] * t[2]; }

struct PoolGeometry {
  int64_t planes = 1;
  Triple in{1, 1, 1}, out{1, 1, 1}, kernel{1, 1, 1}, stride{1, 1, 1}, padding{0, 0, 0}, dilation{1, 1, 1};
};

void set_trailing(Triple& triple, std::span<const int64_t> values, int dims) {
  for (int d = 0; d < dims && !values.empty(); ++d) {
    triple[3 - dims + d] = values[std::min<size_t>(static_cast<size_t>(d), values.size() - 1)];
  }
}

std::span<const int64_t> last_sizes(const View& view, int dims) {
  return {view.sizes + view.ndim - dims, static_cast<size_t>(dims)};
}

PoolGeometry base_geometry(const View& in, const View& out, int dims) {
  PoolGeometry g;
  for (int d = 0; d < in.ndim - dims; ++d) g.planes *= in.sizes[d];
  set_trailing(g.in, last_sizes(in, dims), dims);
  set_trailing(g.out, last_sizes(out, dims), dims);
  return g;
}

// kernel, stride and padding are the arguments from `at` on; an empty stride means the kernel's size.
PoolGeometry window_geometry(const Call& call, uint32_t at, const View& in, const View& out, int dims) {
  PoolGeometry g = base_geometry(in, out, dims);
  set_trailing(g.kernel, call.ints(at), dims);
  set_trailing(g.stride, call.ints(at + 1).empty() ? call.ints(at) : call.ints(at + 1), dims);
  set_trailing(g.padding, call.ints(at + 2), dims);
  return g;
}

template <class Visit>
void for_each_point(const Triple& size, const Visit& visit) {
  int64_t index = 0;
  for (int64_t z = 0; z < size[0]; ++z) {
    for (int64_t y = 0; y < size[1]; ++y) {
      for (int64_t x = 0; x < size[2]; ++x) visit(Triple{z, y, x}, index++);
    }
  }
}

// The part of the image under one output point, and how many places it covers with the padding.
struct Window {
  Triple start, end, step;
  int64_t padded = 1;
  bool empty() const { return start[0] >= end[0] || start[1] >= end[1] || start[2] >= end[2]; }
  int64_t count() const { return empty() ? 0 : (end[0] - start[0]) * (end[1] - start[1]) * (end[2] - start[2]); }
};

Window sliding_window(const PoolGeometry& g, const Triple& at) {
  Window w{{}, {}, g.dilation, 1};
  for (int d = 0; d < 3; ++d) {
    int64_t start = at[d] * g.stride[d] - g.padding[d];
    const int64_t end = start + (g.kernel[d] - 1) * g.dilation[d] + 1;
    w.padded *= std::min(end, g.in[d] + g.padding[d]) - start;
    if (start < 0) start += (-start + g.dilation[d] - 1) / g.dilation[d] * g.dilation[d];
    w.start[d] = start;
    w.end[d] = std::min(end, g.in[d]);
  }
  return w;
}

Window adaptive_window(const PoolGeometry& g, const Triple& at) {
  Window w{{}, {}, {1, 1, 1}, 1};
  for (int d = 0; d < 3; ++d) {
    w.start[d] = at[d] * g.in[d] / g.out[d];
    w.end[d] = ((at[d] + 1) * g.in[d] + g.out[d] - 1) / g.out[d];
  }
  return w;
}

template <class Visit>
void for_each_in_window(const PoolGeometry& g, const Window& w, const Visit& visit) {
  for (int64_t z = w.start[0]; z < w.end[0]; z += w.step[0]) {
    for (int64_t y = w.start[1]; y < w.end[1]; y += w.step[1]) {
      const int64_t row = (z * g.in[1] + y) * g.in[2];
      for (int64_t x = w.start[2]; x < w.end[2]; x += w.step[2]) visit(row + x);
    }
  }
}

double work(const PoolGeometry& g) {
  return static_cast<double>(g.planes) * (product(g.out) * product(g.kernel) + product(g.in));
}

// ---- Maximum -------------------------------------------------------------------------------------------------------

template <class T, class MakeWindow>
void max_plane(const PoolGeometry& g, const MakeWindow& window, const T* in, T* out, int64_t* indices) {
  for_each_point(g.out, [&](const Triple& at, int64_t o) {
    const Window w = window(g, at);
    int64_t best_index = (w.start[0] * g.in[1] + w.start[1]) * g.in[2] + w.start[2];
    T best = w.empty() ? T(0) : in[best_index];
    for_each_in_window(g, w, [&](int64_t i) {
      if (in[i] > best || is_nan(in[i])) {
        best = in[i];
        best_index = i;
      }
    });
    out[o] = best;
    indices[o] = best_index;
  });
}

template <class MakeWindow>
void max_forward(const Call& call, const PoolGeometry& g, const MakeWindow& window) {
  const View in = call.tensor(0), out = call.out(0), indices = call.out(1);
  dispatch_numbers(in.dtype, [&](auto zero) {
    using T = decltype(zero);
    parallel_for(g.planes, work(g), [&](int64_t p) {
      max_plane(g, window, in.as<const T>() + p * product(g.in), out.as<T>() + p * product(g.out),
                indices.as<int64_t>() + p * product(g.out));
    });
  });
}

template <int kDims>
void max_body(const Call& call) {
  PoolGeometry g = window_geometry(call, 1, call.tensor(0), call.out(0), kDims);
  set_trailing(g.dilation, call.ints(4), kDims);
  max_forward(call, g, sliding_window);
}

template <int kDims>
void adaptive_max_body(const Call& call) {
  max_forward(call, base_geometry(call.tensor(0), call.out(0), kDims), adaptive_window);
}

// Sums of a plane are formed in Acc<T>: in the output itself where that is its type.
template <class T, class Fill>
void accumulate_plane(T* out, int64_t count, const Fill& fill) {
  if constexpr (std::is_same_v<T, Acc<T>>) {
    std::fill_n(out, count, T(0));
    fill(out);
  } else {
    Acc<T>* sums = workspace<Acc<T>>(Slot::kKernel, count);
    std::fill_n(sums, count, Acc<T>(0));
    fill(sums);
    for (int64_t i = 0; i < count; ++i) out[i] = static_cast<T>(sums[i]);
  }
}

[[noreturn]] void bad_index(int64_t index, int64_t size) {
  throw InvalidArgument("max pooling backward: index " + std::to_string(index) + " is out of bounds for a plane of " +
                        std::to_string(size) + " elements");
}

void check_indices(const View& indices, int64_t size) {
  const int64_t* index = indices.as<const int64_t>();
  for (int64_t i = 0; i < indices.numel; ++i) {
    if (index[i] < 0 || index[i] >= size) bad_index(index[i], size);
  }
}

template <int kDims, uint32_t kIndices>
void max_backward_body(const Call& call) {
  const View gradient = call.tensor(0), in = call.tensor(1), indices = call.tensor(kIndices), out = call.out(0);
  const PoolGeometry g = base_geometry(in, gradient, kDims);
  const int64_t count = product(g.out), size = product(g.in);
  check_indices(indices, size);
  dispatch_reals(out.dtype, [&](auto zero) {
    using T = decltype(zero);
    parallel_for(g.planes, work(g), [&](int64_t p) {
      const T* from = gradient.as<const T>() + p * count;
      const int64_t* index = indices.as<const int64_t>() + p * count;
      accumulate_plane(out.as<T>() + p * size, size, [&](Acc<T>* sums) {
        for (int64_t i = 0; i < count; ++i) sums[index[i]] += static_cast<Acc<T>>(from[i]);
      });
    });
  });
}

// ---- Average -------------------------------------------------------------------------------------------------------

struct SlidingMean {
  bool count_padding;
  int64_t divisor_override;  // 0: none
  Window window(const PoolGeometry& g, const Triple& at) const { return sliding_window(g, at); }
  int64_t divisor(const Window& w) const {
    return divisor_override != 0 ? divisor_override : count_padding ? w.padded : w.count();
  }
};

struct AdaptiveMean {
  Window window(const PoolGeometry& g, const Triple& at) const { return adaptive_window(g, at); }
  int64_t divisor(const Window& w) const { return w.count(); }
};

template <class Mean>
void mean_forward(const PoolGeometry& g, const View& in, const View& out, const Mean& mean) {
  dispatch_reals(in.dtype, [&](auto zero) {
    using T = decltype(zero);
    parallel_for(g.planes, work(g), [&](int64_t p) {
      const T* from = in.as<const T>() + p * product(g.in);
      T* to = out.as<T>() + p * product(g.out);
      for_each_point(g.out, [&](const Triple& at, int64_t o) {
        const Window w = mean.window(g, at);
        Acc<T> sum(0);
        for_each_in_window(g, w, [&](int64_t i) { sum += static_cast<Acc<T>>(from[i]); });
        to[o] = static_cast<T>(w.empty() ? Acc<T>(0) : sum / static_cast<Acc<T>>(mean.divisor(w)));
      });
    });
  });
}

template <class Mean>
void mean_backward(const PoolGeometry& g, const View& gradient, const View& out, const Mean& mean) {
  dispatch_reals(out.dtype, [&](auto zero) {
    using T = decltype(zero);
    parallel_for(g.planes, work(g), [&](int64_t p) {
      const T* from = gradient.as<const T>() + p * product(g.out);
      accumulate_plane(out.as<T>() + p * product(g.in), product(g.in), [&](Acc<T>* sums) {
        for_each_point(g.out, [&](const Triple& at, int64_t o) {
          const Window w = mean.window(g, at);
          if (w.empty()) return;
          const Acc<T> share = static_cast<Acc<T>>(from[o]) / static_cast<Acc<T>>(mean.divisor(w));
          for_each_in_window(g, w, [&](int64_t i) { sums[i] += share; });
        });
      });
    });
  });
}

// kernel, stride, padding, ceil_mode, count_include_pad, divisor_override from argument `at` on.
SlidingMean sliding_mean(const Call& call, uint32_t at) {
  return {call.boolean(at + 4, true), call.integer(at + 5, 0)};
}

template <int kDims>
void average_body(const Call& call) {
  const View in = call.tensor(0), out = call.out(0);
  mean_forward(window_geometry(call, 1, in, out, kDims), in, out, sliding_mean(call, 1));
}

template <int kDims>
void average_backward_body(const Call& call) {
  const View gradient = call.tensor(0), in = call.tensor(1), out = call.out(0);
  mean_backward(window_geometry(call, 2, in, gradient, kDims), gradient, out, sliding_mean(call, 2));
}

template <int kDims>
void adaptive_body(const Call& call) {
  const View in = call.tensor(0), out = call.out(0);
  mean_forward(base_geometry(in, out, kDims), in, out, AdaptiveMean{});
}

template <int kDims>
void adaptive_backward_body(const Call& call) {
  const View gradient = call.tensor(0), in = call.tensor(1), out = call.out(0);
  mean_backward(base_geometry(in, gradient, kDims), gradient, out, AdaptiveMean{});
}

template <Body kBody>
fl_status run(const fl_call* call) {
  return launch(call, kBody);
}

fl_status supports_backward(const fl_call* call) {
  if (call->args[1].u.tensor->dtype != call->args[0].u.tensor->dtype) {
    return unsupported("the gradient and the input have different element types");
  }
  return FL_OK;
}

// The CPU averages volumes of the 16-bit types less exactly, or not at all: those go to the host.
constexpr uint64_t kVolumes = FL_DTYPE_BIT(FL_FLOAT32) | FL_DTYPE_BIT(FL_FLOAT64);
constexpr uint32_t kDense = FL_KERNEL_CONTIGUOUS_INPUTS | FL_KERNEL_CONTIGUOUS_OUTPUTS;
constexpr fl_kernel kRows[] = {
    row("aten::max_pool2d_with_indices", kDense, run<max_body<2>>, kReals | kInts),
    row("aten::max_pool3d_with_indices", kDense, run<max_body<3>>, kReals | kInts),
    row("aten::max_pool2d_with_indices_backward", kDense, run<max_backward_body<2, 7>>, kReals, supports_backward),
    row("aten::max_pool3d_with_indices_backward", kDense, run<max_backward_body<3, 7>>, kReals, supports_backward),
    row("aten::adaptive_max_pool2d", kDense, run<adaptive_max_body<2>>, kReals),
    row("aten::adaptive_max_pool3d", kDense, run<adaptive_max_body<3>>, kReals),
    row("aten::adaptive_max_pool2d_backward", kDense, run<max_backward_body<2, 2>>, kReals, supports_backward),
    row("aten::adaptive_max_pool3d_backward", kDense, run<max_backward_body<3, 2>>, kReals, supports_backward),
    row("aten::avg_pool2d", kDense, run<average_body<2>>, kReals),
    row("aten::avg_pool3d", kDense, run<average_body<3>>, kVolumes),
    row("aten::avg_pool2d_backward", kDense, run<average_backward_body<2>>, kReals, supports_backward),
    row("aten::avg_pool3d_backward", kDense, run<average_backward_body<3>>, kVolumes, supports_backward),
    row("aten::_adaptive_avg_pool2d", kDense, run<adaptive_body<2>>, kReals),
    row("aten::_adaptive_avg_pool3d", kDense, run<adaptive_body<3>>, kVolumes),
    row("aten::_adaptive_avg_pool2d_backward", kDense, run<adaptive_backward_body<2>>, kReals, supports_backward),
    row("aten::_adaptive_avg_pool3d_backward", kDense, run<adaptive_backward_body<3>>, kVolumes, supports_backward),
};

}  // namespace
}  // namespace fl_sim::nn

fl_sim::Family fl_sim::pooling_family() { return nn::kRows; }
