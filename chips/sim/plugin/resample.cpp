// SPDX-License-Identifier: Apache-2.0
// Resampling of images in one to three dimensions: nearest and linear interpolation, reflecting and replicating
// padding, forward and backward. Each is separable: a position of the result reads one or two positions of the input
// along every dimension, with weights, so that a table per dimension describes it.
#include <algorithm>
#include <array>
#include <cmath>
#include <vector>

#include "nn_families.h"
#include "nn_types.h"
#include "parallel.h"
#include "workspace.h"

namespace fl_sim::nn {
namespace {

struct Tap {
  int64_t first, second;
  double first_weight, second_weight;  // a second weight of 0 with second == first: a single tap
};

struct Axis {
  int64_t in = 1, out = 1;
  std::vector<Tap> taps = {{0, 0, 1, 0}};
};

struct Resampling {
  int64_t planes = 1;
  std::array<Axis, 3> axes;
  int64_t in_size() const { return axes[0].in * axes[1].in * axes[2].in; }
  int64_t out_size() const { return axes[0].out * axes[1].out * axes[2].out; }
  double work() const { return 8.0 * static_cast<double>(planes * std::max(in_size(), out_size())); }
};

// Calls visit(out index, in index, weight) for every pair that is connected.
template <class Visit>
void for_each_pair(const Resampling& r, const Visit& visit) {
  int64_t o = 0;
  auto along = [](const Tap& t, const auto& next) {
    next(t.first, t.first_weight);
    if (t.second_weight != 0) next(t.second, t.second_weight);
  };
  for (const Tap& tz : r.axes[0].taps) {
    for (const Tap& ty : r.axes[1].taps) {
      for (const Tap& tx : r.axes[2].taps) {
        along(tz, [&](int64_t z, double wz) {
          along(ty, [&](int64_t y, double wy) {
            const int64_t row = (z * r.axes[1].in + y) * r.axes[2].in;
            along(tx, [&](int64_t x, double wx) { visit(o, row + x, wz * wy * wx); });
          });
        });
        ++o;
      }
    }
  }
}

// to[o] = sum of weight * from[i]; kForward false: to[i] = sum of weight * from[o].
template <bool kForward>
void resample(const Resampling& r, const View& from, const View& to) {
  const int64_t from_size = kForward ? r.in_size() : r.out_size(), to_size = kForward ? r.out_size() : r.in_size();
  dispatch_reals(to.dtype, [&](auto zero) {
    using T = decltype(zero);
    parallel_for(r.planes, r.work(), [&](int64_t p) {
      const T* source = from.as<const T>() + p * from_size;
      Acc<T>* sums = workspace<Acc<T>>(Slot::kKernel, std::max<int64_t>(to_size, 1));
      std::fill_n(sums, to_size, Acc<T>(0));
      for_each_pair(r, [&](int64_t o, int64_t i, double weight) {
        sums[kForward ? o : i] += static_cast<Acc<T>>(weight) * static_cast<Acc<T>>(source[kForward ? i : o]);
      });
      for (int64_t k = 0; k < to_size; ++k) to.as<T>()[p * to_size + k] = static_cast<T>(sums[k]);
    });
  });
}

// `image`: the tensor of the input's shape. Its last `dims` dimensions are resampled to those of `result`.
template <class MakeTap>
Resampling make_resampling(const View& image, const View& result, int dims, const MakeTap& make_tap) {
  Resampling r;
  for (int d = 0; d < image.ndim - dims; ++d) r.planes *= image.sizes[d];
  for (int d = 0; d < dims; ++d) {
    Axis& axis = r.axes[static_cast<size_t>(3 - dims + d)];
    axis.in = image.sizes[image.ndim - dims + d];
    axis.out = result.sizes[result.ndim - dims + d];
    axis.taps.clear();
    for (int64_t o = 0; o < axis.out; ++o) axis.taps.push_back(make_tap(axis, d, o));
  }
  return r;
}

// ---- Interpolation: positions are computed in float, or in double for double tensors, as the CPU does --------------

enum class Mode { kNearest, kNearestExact, kLinear };

// Where the size stays or (nearest) doubles, some of the CPU's kernels do not look at the scale factor that was asked
// for: those of linear interpolation, and of nearest all but the forward ones of lines and volumes.
template <class A>
A scale_of(Mode mode, bool settles, const Axis& axis, double given, bool align_corners) {
  if (settles && mode == Mode::kNearest && axis.out == 2 * axis.in) return A(0.5);
  if (settles && axis.out == axis.in) return A(1);
  if (align_corners) return axis.out > 1 ? static_cast<A>(axis.in - 1) / static_cast<A>(axis.out - 1) : A(0);
  return given > 0 ? static_cast<A>(1.0 / given) : static_cast<A>(axis.in) / static_cast<A>(axis.out);
}

template <class A>
Tap interpolation_tap(Mode mode, bool settles, const Axis& axis, double given, bool align_corners, int64_t o) {
  const A scale = scale_of<A>(mode, settles, axis, given, align_corners), at = static_cast<A>(o);
  const A centred = std::max(A(0), scale * (at + A(0.5)) - A(0.5));
  if (mode != Mode::kLinear) {
    const A position = mode == Mode::kNearest ? scale * at : centred + A(0.5);
    const int64_t i = std::min(static_cast<int64_t>(std::floor(static_cast<float>(position))), axis.in - 1);
    return {i, i, 1, 0};
  }
  const A position = align_corners ? scale * at : centred;
  const int64_t first = std::min(static_cast<int64_t>(position), axis.in - 1);
  const int64_t second = first + (first < axis.in - 1 ? 1 : 0);
  const A weight = std::clamp(position - static_cast<A>(first), A(0), A(1));
  return {first, second, static_cast<double>(A(1) - weight), static_cast<double>(weight)};
}

// Scale factors are the arguments from `scales` on.
Resampling interpolation(const Call& call, Mode mode, bool backward, int dims, const View& image, const View& result,
                         bool align, uint32_t scales) {
  const bool settles = mode == Mode::kLinear || (mode == Mode::kNearest && (backward || dims == 2));
  return make_resampling(image, result, dims, [&](const Axis& axis, int d, int64_t o) {
    const double given = call.real(scales + static_cast<uint32_t>(d), 0);
    return image.dtype == FL_FLOAT64 ? interpolation_tap<double>(mode, settles, axis, given, align, o)
                                     : interpolation_tap<float>(mode, settles, axis, given, align, o);
  });
}

// self, output_size, (align_corners,) scales...
template <Mode kMode, int kDims>
void upsample_body(const Call& call) {
  constexpr bool kLinear = kMode == Mode::kLinear;
  const View in = call.tensor(0), out = call.out(0);
  resample<true>(interpolation(call, kMode, false, kDims, in, out, kLinear && call.boolean(2), kLinear ? 3 : 2), in,
                 out);
}

// grad_output, output_size, input_size, (align_corners,) scales...
template <Mode kMode, int kDims>
void upsample_backward_body(const Call& call) {
  constexpr bool kLinear = kMode == Mode::kLinear;
  const View gradient = call.tensor(0), out = call.out(0);
  const bool align = kLinear && call.boolean(3);
  resample<false>(interpolation(call, kMode, true, kDims, out, gradient, align, kLinear ? 4 : 3), gradient, out);
}

// ---- Padding -------------------------------------------------------------------------------------------------------

// `padding` lists the amounts before and after, from the last dimension backwards.
template <bool kReflect>
Resampling padding(const View& image, const View& result, int dims, std::span<const int64_t> amounts) {
  return make_resampling(image, result, dims, [&](const Axis& axis, int d, int64_t o) {
    int64_t i = o - amounts[static_cast<size_t>(2 * (dims - 1 - d))];
    if (kReflect && i < 0) i = -i;
    if (kReflect && i >= axis.in) i = 2 * (axis.in - 1) - i;
    i = std::clamp<int64_t>(i, 0, axis.in - 1);
    return Tap{i, i, 1, 0};
  });
}

template <bool kReflect, int kDims>
void pad_body(const Call& call) {
  const View in = call.tensor(0), out = call.out(0);
  resample<true>(padding<kReflect>(in, out, kDims, call.ints(1)), in, out);
}

template <bool kReflect, int kDims>
void pad_backward_body(const Call& call) {
  const View gradient = call.tensor(0), out = call.out(0);
  resample<false>(padding<kReflect>(out, gradient, kDims, call.ints(2)), gradient, out);
}

// ---- The table -----------------------------------------------------------------------------------------------------

template <Body kBody>
fl_status run(const fl_call* call) {
  return launch(call, kBody);
}

// Every image has at least one element along each resampled dimension.
template <int kDims>
fl_status supports(const fl_call* call) {
  const fl_tensor &in = *call->args[0].u.tensor, &out = *call->outs[0];
  if (in.dtype != out.dtype || in.ndim < kDims || out.ndim != in.ndim) return unsupported("the result does not fit");
  for (int d = 1; d <= kDims; ++d) {
    if (in.sizes[in.ndim - d] == 0 || out.sizes[out.ndim - d] == 0) return unsupported("an empty image");
  }
  return FL_OK;
}

template <int kDims>
fl_status supports_padding(const fl_call* call) {
  for (uint32_t i = 0; i < 3 && i < call->n_args; ++i) {
    if (call->args[i].kind == FL_INTEGERS && call->args[i].count != 2 * kDims) return unsupported("padding's length");
  }
  return supports<kDims>(call);
}

constexpr uint32_t kDense = FL_KERNEL_CONTIGUOUS_INPUTS | FL_KERNEL_CONTIGUOUS_OUTPUTS;

// The CPU rounds linear weights to the 16-bit types, so that its results there are not ours.
constexpr uint64_t mode_dtypes(Mode mode) {
  return mode == Mode::kLinear ? FL_DTYPE_BIT(FL_FLOAT32) | FL_DTYPE_BIT(FL_FLOAT64) : kReals;
}

template <Mode kMode, int kDims>
constexpr fl_kernel forward_row(const char* op) {
  return row(op, kDense, run<upsample_body<kMode, kDims>>, mode_dtypes(kMode), supports<kDims>);
}
template <Mode kMode, int kDims>
constexpr fl_kernel backward_row(const char* op) {
  return row(op, kDense, run<upsample_backward_body<kMode, kDims>>, mode_dtypes(kMode), supports<kDims>);
}
template <bool kReflect, int kDims>
constexpr fl_kernel pad_row(const char* op) {
  return row(op, kDense, run<pad_body<kReflect, kDims>>, kReals, supports_padding<kDims>);
}
template <bool kReflect, int kDims>
constexpr fl_kernel pad_backward_row(const char* op) {
  return row(op, kDense, run<pad_backward_body<kReflect, kDims>>, kReals, supports_padding<kDims>);
}

constexpr fl_kernel kRows[] = {
    forward_row<Mode::kNearest, 1>("aten::upsample_nearest1d"),
    forward_row<Mode::kNearest, 2>("aten::upsample_nearest2d"),
    forward_row<Mode::kNearest, 3>("aten::upsample_nearest3d"),
    backward_row<Mode::kNearest, 1>("aten::upsample_nearest1d_backward"),
    backward_row<Mode::kNearest, 2>("aten::upsample_nearest2d_backward"),
    backward_row<Mode::kNearest, 3>("aten::upsample_nearest3d_backward"),
    forward_row<Mode::kNearestExact, 1>("aten::_upsample_nearest_exact1d"),
    forward_row<Mode::kNearestExact, 2>("aten::_upsample_nearest_exact2d"),
    forward_row<Mode::kNearestExact, 3>("aten::_upsample_nearest_exact3d"),
    backward_row<Mode::kNearestExact, 1>("aten::_upsample_nearest_exact1d_backward"),
    backward_row<Mode::kNearestExact, 2>("aten::_upsample_nearest_exact2d_backward"),
    backward_row<Mode::kNearestExact, 3>("aten::_upsample_nearest_exact3d_backward"),
    forward_row<Mode::kLinear, 1>("aten::upsample_linear1d"),
    forward_row<Mode::kLinear, 2>("aten::upsample_bilinear2d"),
    forward_row<Mode::kLinear, 3>("aten::upsample_trilinear3d"),
    backward_row<Mode::kLinear, 1>("aten::upsample_linear1d_backward"),
    backward_row<Mode::kLinear, 2>("aten::upsample_bilinear2d_backward"),
    backward_row<Mode::kLinear, 3>("aten::upsample_trilinear3d_backward"),
    pad_row<true, 1>("aten::reflection_pad1d"),
    pad_row<true, 2>("aten::reflection_pad2d"),
    pad_row<true, 3>("aten::reflection_pad3d"),
    pad_row<false, 1>("aten::replication_pad1d"),
    pad_row<false, 2>("aten::replication_pad2d"),
    pad_row<false, 3>("aten::replication_pad3d"),
    pad_backward_row<true, 1>("aten::reflection_pad1d_backward"),
    pad_backward_row<true, 2>("aten::reflection_pad2d_backward"),
    pad_backward_row<true, 3>("aten::reflection_pad3d_backward"),
    pad_backward_row<false, 1>("aten::replication_pad1d_backward"),
    pad_backward_row<false, 2>("aten::replication_pad2d_backward"),
    pad_backward_row<false, 3>("aten::replication_pad3d_backward"),
};

}  // namespace
}  // namespace fl_sim::nn

fl_sim::Family fl_sim::resample_family() { return nn::kRows; }
