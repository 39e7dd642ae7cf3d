// SPDX-License-Identifier: Apache-2.0
// Batch, layer and group normalisation, forward and backward. Means and variances are formed in double. Parameters and
// statistics may have another floating-point type than the input.
#include <algorithm>
#include <cmath>

#include "nn_families.h"
#include "nn_types.h"
#include "parallel.h"
#include "workspace.h"

namespace fl_sim::nn {
namespace {

// ---- Vectors of parameters, of any floating-point type -------------------------------------------------------------

template <class A>
const A* load_vector(const Call& call, uint32_t arg, Slot slot) {
  if (call.none(arg)) return nullptr;
  const View view = call.tensor(arg);
  A* values = workspace<A>(slot, std::max<int64_t>(view.numel, 1));
  dispatch_reals(view.dtype, [&](auto zero) {
    using P = decltype(zero);
    for (int64_t i = 0; i < view.numel; ++i) values[i] = static_cast<A>(view.as<const P>()[i]);
  });
  return values;
}

void store_value(const View& view, int64_t i, double value) {
  if (i >= view.numel) return;
  dispatch_reals(view.dtype, [&](auto zero) {
    using P = decltype(zero);
    view.as<P>()[i] = static_cast<P>(value);
  });
}

double load_value(const View& view, int64_t i) {
  double value = 0;
  dispatch_reals(view.dtype, [&](auto zero) { value = static_cast<double>(view.as<const decltype(zero)>()[i]); });
  return value;
}

// ---- Sums over a dense stretch, in double and in lanes that the compiler can vectorise -----------------------------

constexpr int kLanes = 8;

template <class Term>
double lane_sum(int64_t count, const Term& term) {
  double lanes[kLanes] = {};
  int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    for (int l = 0; l < kLanes; ++l) lanes[l] += term(i + l);
  }
  double sum = 0;
  for (; i < count; ++i) sum += term(i);
  for (int l = 0; l < kLanes; ++l) sum += lanes[l];
  return sum;
}

template <class T>
double sum_of(const T* x, int64_t count) {
  return lane_sum(count, [x](int64_t i) { return static_cast<double>(static_cast<Acc<T>>(x[i])); });
}

template <class T>
double squares_of(const T* x, int64_t count, double mean) {
  return lane_sum(count, [x, mean](int64_t i) {
    const double d = static_cast<double>(static_cast<Acc<T>>(x[i])) - mean;
    return d * d;
  });
}

template <class T>
double centred_dot(const T* x, const T* g, int64_t count, double mean) {
  return lane_sum(count, [x, g, mean](int64_t i) {
    return (static_cast<double>(static_cast<Acc<T>>(x[i])) - mean) * static_cast<double>(static_cast<Acc<T>>(g[i]));
  });
}

// out = x * scale + shift
template <class T>
void affine(const T* x, T* out, int64_t count, Acc<T> scale, Acc<T> shift) {
  for (int64_t i = 0; i < count; ++i) out[i] = static_cast<T>(static_cast<Acc<T>>(x[i]) * scale + shift);
}

// out = g * a + x * b + c: the gradient of a normalised stretch.
template <class T>
void affine2(const T* g, const T* x, T* out, int64_t count, Acc<T> a, Acc<T> b, Acc<T> c) {
  for (int64_t i = 0; i < count; ++i) {
    out[i] = static_cast<T>(static_cast<Acc<T>>(g[i]) * a + static_cast<Acc<T>>(x[i]) * b + c);
  }
}

// ---- Batch normalisation -------------------------------------------------------------------------------------------

// A dense (images, channels, points) tensor.
struct Channels {
  int64_t images, channels, points;
  explicit Channels(const View& v) : images(v.sizes[0]), channels(v.ndim > 1 ? v.sizes[1] : 1), points(1) {
    for (int d = 2; d < v.ndim; ++d) points *= v.sizes[d];
  }
  int64_t per_channel() const { return images * points; }
  double work() const { return 8.0 * static_cast<double>(images * channels * points); }
  template <class Visit>
  void for_each_image(int64_t c, const Visit& visit) const {
    for (int64_t n = 0; n < images; ++n) visit((n * channels + c) * points);
  }
};

struct Moments {
  double mean, variance;  // biased
};

template <class T>
Moments channel_moments(const Channels& s, const T* x, int64_t c) {
  double sum = 0, squares = 0;
  s.for_each_image(c, [&](int64_t at) { sum += sum_of(x + at, s.points); });
  const double count = static_cast<double>(s.per_channel()), mean = sum / count;
  s.for_each_image(c, [&](int64_t at) { squares += squares_of(x + at, s.points, mean); });
  return {mean, squares / count};
}

struct BatchNormArguments {
  bool has_running;
  View running_mean, running_var;
  bool training;
  double momentum, eps;
};

void update_running(const BatchNormArguments& a, int64_t c, const Moments& m, int64_t count) {
  if (!a.has_running) return;
  const double unbiased = m.variance * static_cast<double>(count) / static_cast<double>(count - 1);
  const double keep = 1 - a.momentum;
  store_value(a.running_mean, c, a.momentum * m.mean + keep * load_value(a.running_mean, c));
  store_value(a.running_var, c, a.momentum * unbiased + keep * load_value(a.running_var, c));
}

template <class T>
void batch_norm(const Call& call, const BatchNormArguments& a) {
  const View in = call.tensor(0), out = call.out(0), save_mean = call.out(1), save_invstd = call.out(2);
  const Channels s(in);
  const double* weight = load_vector<double>(call, 1, Slot::kKernel);
  const double* bias = load_vector<double>(call, 2, Slot::kKernel2);
  parallel_for(s.channels, s.work(), [&](int64_t c) {
    Moments m{};
    if (a.training) {
      m = channel_moments(s, in.as<const T>(), c);
      update_running(a, c, m, s.per_channel());
    } else {
      m = {load_value(a.running_mean, c), load_value(a.running_var, c)};
    }
    const double invstd = 1 / std::sqrt(m.variance + a.eps);
    store_value(save_mean, c, m.mean);
    store_value(save_invstd, c, invstd);
    const double scale = (weight ? weight[c] : 1) * invstd, shift = (bias ? bias[c] : 0) - m.mean * scale;
    s.for_each_image(c, [&](int64_t at) {
      affine(in.as<const T>() + at, out.as<T>() + at, s.points, static_cast<Acc<T>>(scale), static_cast<Acc<T>>(shift));
    });
  });
}

void batch_norm_with(const Call& call, const BatchNormArguments& a) {
  if (call.tensor(0).numel == 0) return;
  dispatch_reals(call.out(0).dtype, [&](auto zero) { batch_norm<decltype(zero)>(call, a); });
}

void batch_norm_body(const Call& call) {
  BatchNormArguments a{!call.none(3) && !call.none(4), {}, {}, call.boolean(5), call.real(6), call.real(7)};
  if (a.has_running) {
    a.running_mean = call.tensor(3);
    a.running_var = call.tensor(4);
  }
  batch_norm_with(call, a);
}

void batch_norm_no_stats_body(const Call& call) {
  batch_norm_with(call, {false, {}, {}, true, call.real(4), call.real(5)});
}

template <class T>
void batch_norm_backward(const Call& call) {
  const View gradient = call.tensor(0), in = call.tensor(1);
  const bool train = call.boolean(7);
  const double eps = call.real(8);
  const Channels s(in);
  const double* weight = load_vector<double>(call, 2, Slot::kKernel);
  const double* mean = load_vector<double>(call, train ? 5 : 3, Slot::kKernel2);
  const double* spread = load_vector<double>(call, train ? 6 : 4, Slot::kKernel3);
  const double count = static_cast<double>(s.per_channel());
  parallel_for(s.channels, s.work(), [&](int64_t c) {
    const T* g = gradient.as<const T>();
    const T* x = in.as<const T>();
    const double invstd = train ? spread[c] : 1 / std::sqrt(spread[c] + eps);
    double sum = 0, dot = 0;
    s.for_each_image(c, [&](int64_t at) {
      sum += sum_of(g + at, s.points);
      dot += centred_dot(x + at, g + at, s.points, mean[c]);
    });
    if (call.has_out(1)) store_value(call.out(1), c, dot * invstd);
    if (call.has_out(2)) store_value(call.out(2), c, sum);
    if (!call.has_out(0)) return;
    const double scale = invstd * (weight ? weight[c] : 1);
    const double slope = train ? -dot * invstd * invstd / count * scale : 0;
    const double shift = train ? -sum / count * scale - slope * mean[c] : 0;
    T* out = call.out(0).as<T>();
    s.for_each_image(c, [&](int64_t at) {
      if (!train) {  // x has no part in it, be it infinite
        for (int64_t p = at; p < at + s.points; ++p)
          out[p] = static_cast<T>(static_cast<Acc<T>>(g[p]) * static_cast<Acc<T>>(scale));
        return;
      }
      affine2(g + at, x + at, out + at, s.points, static_cast<Acc<T>>(scale), static_cast<Acc<T>>(slope),
              static_cast<Acc<T>>(shift));
    });
  });
}

void clear_out(const Call& call, uint32_t i) {
  if (!call.has_out(i)) return;
  const View out = call.out(i);
  for (int64_t k = 0; k < out.numel; ++k) store_value(out, k, 0);
}

void batch_norm_backward_body(const Call& call) {
  if (call.tensor(1).numel == 0) {
    for (uint32_t i = 0; i < 3; ++i) clear_out(call, i);
    return;
  }
  dispatch_reals(call.tensor(1).dtype, [&](auto zero) { batch_norm_backward<decltype(zero)>(call); });
}

// ---- Layer normalisation -------------------------------------------------------------------------------------------

template <class T>
void layer_norm(const Call& call, int64_t rows, int64_t width) {
  const View in = call.tensor(0), out = call.out(0), means = call.out(1), rstds = call.out(2);
  const Acc<T>* weight = load_vector<Acc<T>>(call, 2, Slot::kKernel);
  const Acc<T>* bias = load_vector<Acc<T>>(call, 3, Slot::kKernel2);
  const double eps = call.real(4);
  parallel_for(rows, 8.0 * static_cast<double>(in.numel), [&](int64_t r) {
    const T* x = in.as<const T>() + r * width;
    T* y = out.as<T>() + r * width;
    const double mean = sum_of(x, width) / static_cast<double>(width);
    const double rstd = 1 / std::sqrt(squares_of(x, width, mean) / static_cast<double>(width) + eps);
    store_value(means, r, mean);
    store_value(rstds, r, rstd);
    // The mean is taken off first, as the CPU does: a row of equal values gives exact zeros.
    const Acc<T> scale = static_cast<Acc<T>>(rstd), centre = static_cast<Acc<T>>(mean);
    for (int64_t i = 0; i < width; ++i) {
      const Acc<T> normal = (static_cast<Acc<T>>(x[i]) - centre) * scale;
      y[i] = static_cast<T>(normal * (weight ? weight[i] : Acc<T>(1)) + (bias ? bias[i] : Acc<T>(0)));
    }
  });
}

int64_t trailing_width(const View& in, size_t dims) {
  int64_t width = 1;
  for (size_t d = 0; d < dims; ++d) width *= in.sizes[in.ndim - 1 - static_cast<int64_t>(d)];
  return width;
}

void layer_norm_body(const Call& call) {
  const View in = call.tensor(0);
  if (in.numel == 0) return;
  const int64_t width = trailing_width(in, call.ints(1).size());
  dispatch_reals(call.out(0).dtype, [&](auto zero) { layer_norm<decltype(zero)>(call, in.numel / width, width); });
}

// One row's gradient with respect to the input.
template <class T>
void layer_norm_row_gradient(const T* g, const T* x, T* out, int64_t width, const Acc<T>* weight, double mean,
                             double rstd) {
  auto weighted = [&](int64_t i) {
    return static_cast<double>(static_cast<Acc<T>>(g[i]) * (weight ? weight[i] : Acc<T>(1)));
  };
  const double sum = lane_sum(width, weighted);
  const double dot =
      lane_sum(width, [&](int64_t i) { return weighted(i) * (static_cast<double>(static_cast<Acc<T>>(x[i])) - mean); });
  const double n = static_cast<double>(width);
  const double slope = -dot * rstd * rstd * rstd / n, shift = -sum / n * rstd - slope * mean;
  const Acc<T> a = static_cast<Acc<T>>(rstd), b = static_cast<Acc<T>>(slope), c = static_cast<Acc<T>>(shift);
  if (!weight) return affine2(g, x, out, width, a, b, c);
  for (int64_t i = 0; i < width; ++i) {
    out[i] = static_cast<T>(static_cast<Acc<T>>(g[i]) * weight[i] * a + static_cast<Acc<T>>(x[i]) * b + c);
  }
}

// Sums over the rows for weight and bias, into dense doubles.
template <class T>
void layer_norm_parameter_sums(const View& gradient, const View& in, int64_t rows, int64_t width, const double* mean,
                               const double* rstd, double* weight_sums, double* bias_sums) {
  std::fill_n(weight_sums, width, 0.0);
  std::fill_n(bias_sums, width, 0.0);
  for (int64_t r = 0; r < rows; ++r) {
    const T* g = gradient.as<const T>() + r * width;
    const T* x = in.as<const T>() + r * width;
    // a * x + b with a and b in the type of sums and one rounding, as the CPU's fused multiply-add has it.
    const Acc<T> a = static_cast<Acc<T>>(rstd[r]), b = -a * static_cast<Acc<T>>(mean[r]);
    for (int64_t i = 0; i < width; ++i) {
      const double value = static_cast<double>(static_cast<Acc<T>>(g[i]));
      const double normal =
          static_cast<double>(static_cast<Acc<T>>(x[i])) * static_cast<double>(a) + static_cast<double>(b);
      bias_sums[i] += value;
      weight_sums[i] += value * static_cast<double>(static_cast<Acc<T>>(normal));
    }
  }
}

void store_vector(const Call& call, uint32_t i, const double* values) {
  if (!call.has_out(i)) return;
  const View out = call.out(i);
  for (int64_t k = 0; k < out.numel; ++k) store_value(out, k, values[k]);
}

template <class T>
void layer_norm_backward(const Call& call, int64_t rows, int64_t width) {
  const View gradient = call.tensor(0), in = call.tensor(1);
  const double* mean = load_vector<double>(call, 3, Slot::kKernel2);
  const double* rstd = load_vector<double>(call, 4, Slot::kKernel3);
  const Acc<T>* weight = load_vector<Acc<T>>(call, 5, Slot::kKernel);
  if (call.has_out(0)) {
    T* out = call.out(0).as<T>();
    parallel_for(rows, 8.0 * static_cast<double>(in.numel), [&](int64_t r) {
      const int64_t at = r * width;
      layer_norm_row_gradient(gradient.as<const T>() + at, in.as<const T>() + at, out + at, width, weight, mean[r],
                              rstd[r]);
    });
  }
  if (!call.has_out(1) && !call.has_out(2)) return;
  double* sums = workspace<double>(Slot::kKernel4, 2 * width);
  layer_norm_parameter_sums<T>(gradient, in, rows, width, mean, rstd, sums, sums + width);
  store_vector(call, 1, sums);
  store_vector(call, 2, sums + width);
}

void layer_norm_backward_body(const Call& call) {
  const View in = call.tensor(1);
  if (in.numel == 0) {
    for (uint32_t i = 0; i < 3; ++i) clear_out(call, i);
    return;
  }
  const int64_t width = trailing_width(in, call.ints(2).size());
  dispatch_reals(in.dtype, [&](auto zero) { layer_norm_backward<decltype(zero)>(call, in.numel / width, width); });
}

// ---- Group normalisation -------------------------------------------------------------------------------------------

// images, channels, points and groups from argument `at` on.
struct Groups {
  int64_t images, channels, points, groups;
  Groups(const Call& call, uint32_t at)
      : images(call.integer(at)),
        channels(call.integer(at + 1)),
        points(call.integer(at + 2)),
        groups(call.integer(at + 3)) {}
  int64_t per_group() const { return channels / groups; }
  int64_t size() const { return per_group() * points; }
  double work() const { return 8.0 * static_cast<double>(images * channels * points); }
};

template <class T>
void group_norm(const Call& call) {
  const View in = call.tensor(0), out = call.out(0), means = call.out(1), rstds = call.out(2);
  const Groups s(call, 3);
  const double* weight = load_vector<double>(call, 1, Slot::kKernel);
  const double* bias = load_vector<double>(call, 2, Slot::kKernel2);
  const double eps = call.real(7), n = static_cast<double>(s.size());
  parallel_for(s.images * s.groups, s.work(), [&](int64_t i) {
    const T* x = in.as<const T>() + i * s.size();
    T* y = out.as<T>() + i * s.size();
    const double mean = sum_of(x, s.size()) / n;
    const double rstd = 1 / std::sqrt(squares_of(x, s.size(), mean) / n + eps);
    store_value(means, i, mean);
    store_value(rstds, i, rstd);
    for (int64_t d = 0; d < s.per_group(); ++d) {
      const int64_t c = i % s.groups * s.per_group() + d, at = d * s.points;
      const double scale = rstd * (weight ? weight[c] : 1), shift = (bias ? bias[c] : 0) - mean * scale;
      affine(x + at, y + at, s.points, static_cast<Acc<T>>(scale), static_cast<Acc<T>>(shift));
    }
  });
}

void group_norm_body(const Call& call) {
  if (call.tensor(0).numel == 0) return;
  dispatch_reals(call.out(0).dtype, [&](auto zero) { group_norm<decltype(zero)>(call); });
}

// Per image and channel: the sums of the gradient and of gradient * (x - mean), for all uses below.
template <class T>
void group_norm_sums(const Groups& s, const View& gradient, const View& in, const double* mean, double* sums,
                     double* dots) {
  parallel_for(s.images * s.channels, s.work(), [&](int64_t i) {
    const T* g = gradient.as<const T>() + i * s.points;
    sums[i] = sum_of(g, s.points);
    dots[i] = centred_dot(in.as<const T>() + i * s.points, g, s.points, mean[i / s.per_group()]);
  });
}

template <class T>
void group_norm_input_gradient(const Groups& s, const View& gradient, const View& in, T* out, const double* mean,
                               const double* rstd, const double* weight, const double* sums, const double* dots) {
  const double n = static_cast<double>(s.size());
  parallel_for(s.images * s.groups, s.work(), [&](int64_t i) {
    double sum = 0, dot = 0;
    auto factor = [&](int64_t d) { return weight ? weight[i % s.groups * s.per_group() + d] : 1.0; };
    for (int64_t d = 0; d < s.per_group(); ++d) {
      sum += factor(d) * sums[i * s.per_group() + d];
      dot += factor(d) * dots[i * s.per_group() + d];
    }
    const double slope = -dot * rstd[i] * rstd[i] * rstd[i] / n, shift = -sum / n * rstd[i] - slope * mean[i];
    for (int64_t d = 0; d < s.per_group(); ++d) {
      const int64_t at = i * s.size() + d * s.points;
      affine2(gradient.as<const T>() + at, in.as<const T>() + at, out + at, s.points,
              static_cast<Acc<T>>(rstd[i] * factor(d)), static_cast<Acc<T>>(slope), static_cast<Acc<T>>(shift));
    }
  });
}

void group_norm_parameter_gradients(const Call& call, const Groups& s, const double* rstd, const double* sums,
                                    const double* dots) {
  for (int64_t c = 0; c < s.channels; ++c) {
    double weight = 0, bias = 0;
    for (int64_t n = 0; n < s.images; ++n) {
      weight += dots[n * s.channels + c] * rstd[n * s.groups + c / s.per_group()];
      bias += sums[n * s.channels + c];
    }
    if (call.has_out(1)) store_value(call.out(1), c, weight);
    if (call.has_out(2)) store_value(call.out(2), c, bias);
  }
}

template <class T>
void group_norm_backward(const Call& call) {
  const View gradient = call.tensor(0), in = call.tensor(1);
  const Groups s(call, 5);
  const double* mean = load_vector<double>(call, 2, Slot::kKernel);
  const double* rstd = load_vector<double>(call, 3, Slot::kKernel2);
  const double* weight = load_vector<double>(call, 4, Slot::kKernel3);
  double* sums = workspace<double>(Slot::kKernel4, 2 * s.images * s.channels);
  double* dots = sums + s.images * s.channels;
  group_norm_sums<T>(s, gradient, in, mean, sums, dots);
  if (call.has_out(0)) {
    group_norm_input_gradient<T>(s, gradient, in, call.out(0).as<T>(), mean, rstd, weight, sums, dots);
  }
  group_norm_parameter_gradients(call, s, rstd, sums, dots);
}

void group_norm_backward_body(const Call& call) {
  if (call.tensor(1).numel == 0) {
    for (uint32_t i = 0; i < 3; ++i) clear_out(call, i);
    return;
  }
  dispatch_reals(call.tensor(1).dtype, [&](auto zero) { group_norm_backward<decltype(zero)>(call); });
}

// ---- The table -----------------------------------------------------------------------------------------------------

template <Body kBody>
fl_status run(const fl_call* call) {
  return launch(call, kBody);
}

bool real_tensor(const fl_value& v) { return v.kind != FL_TENSOR || (FL_DTYPE_BIT(v.u.tensor->dtype) & kReals) != 0; }

// Tensors are floating-point; those that run along the input have its type.
fl_status supports_norm(const fl_call* call) {
  for (uint32_t i = 0; i < call->n_args; ++i) {
    if (!real_tensor(call->args[i])) return unsupported("a parameter is not of a supported floating-point type");
  }
  return FL_OK;
}

fl_status supports_batch_norm(const fl_call* call) {
  const bool training = call->args[5].u.i != 0;
  if (!training && (call->args[3].kind == FL_NONE || call->args[4].kind == FL_NONE)) {
    return unsupported("evaluation without running statistics");
  }
  return supports_norm(call);
}

fl_status supports_backward(const fl_call* call) {
  if (call->args[0].u.tensor->dtype != call->args[1].u.tensor->dtype) {
    return unsupported("the gradient and the input have different element types");
  }
  return supports_norm(call);
}

fl_status supports_batch_norm_backward(const fl_call* call) {
  const uint32_t first = call->args[7].u.i != 0 ? 5 : 3;
  if (call->args[first].kind != FL_TENSOR || call->args[first + 1].kind != FL_TENSOR) {
    return unsupported("the statistics of this mode are absent");
  }
  return supports_backward(call);
}

constexpr uint32_t kDense = FL_KERNEL_CONTIGUOUS_INPUTS | FL_KERNEL_CONTIGUOUS_OUTPUTS;
constexpr fl_kernel kRows[] = {
    row("aten::native_batch_norm", kDense, run<batch_norm_body>, kReals, supports_batch_norm),
    row("aten::_native_batch_norm_legit.no_stats", kDense, run<batch_norm_no_stats_body>, kReals, supports_norm),
    row("aten::native_batch_norm_backward", kDense, run<batch_norm_backward_body>, kReals,
        supports_batch_norm_backward),
    row("aten::native_layer_norm", kDense, run<layer_norm_body>, kReals, supports_norm),
    row("aten::native_layer_norm_backward", kDense, run<layer_norm_backward_body>, kReals, supports_backward),
    row("aten::native_group_norm", kDense, run<group_norm_body>, kReals, supports_norm),
    row("aten::native_group_norm_backward", kDense, run<group_norm_backward_body>, kReals, supports_backward),
};

}  // namespace
}  // namespace fl_sim::nn

fl_sim::Family fl_sim::norm_family() { return nn::kRows; }
