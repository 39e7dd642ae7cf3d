// SPDX-License-Identifier: Apache-2.0
#include "random_ops.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Operators.h>
#include <ATen/native/DistributionTemplates.h>
#include <ATen/native/Resize.h>
#include <torch/library.h>

#include <cmath>
#include <limits>
#include <unordered_map>

#include "copy.h"
#include "generator.h"
#include "host_route.h"
#include "router.h"
#include "runtime/philox.h"
#include "trampoline.h"

namespace torch_fl::glue {
namespace {

using runtime::philox_blocks;

struct Draw {
  uint64_t seed, offset;
};

Draw draw(const std::optional<at::Generator>& generator, int32_t device, int64_t numel, bool wide) {
  const auto [seed, offset] = generator_for(generator, device)->reserve(philox_blocks(numel, wide));
  return {seed, offset};
}

std::optional<at::Generator> generator_of(const c10::IValue& v) {
  return v.isGenerator() ? std::optional(v.toGenerator()) : std::nullopt;
}

std::optional<at::Generator> generator_in(const Call& call) {
  for (uint32_t i = 0; i < call.n_args; ++i) {
    const PackedArg& a = call.args[i];
    if (a.kind != Kind::Generator) continue;
    if (a.u.generator != nullptr) return *a.u.generator;
    if (call.stack != nullptr) return generator_of((*call.stack)[i]);
  }
  return std::nullopt;
}

// The types PyTorch draws in, and its words for the others.
bool is_drawn_real(at::ScalarType type) {
  return type == at::kDouble || type == at::kFloat || type == at::kHalf || type == at::kBFloat16;
}
bool is_drawn_number(at::ScalarType type) {
  return is_drawn_real(type) || (at::isIntegralType(type, false) && !c10::isBarebonesUnsignedType(type));
}
void check_type(const char* kernel, const at::Tensor& t, bool known) {
  TORCH_CHECK_NOT_IMPLEMENTED(known, "\"", kernel, "\" not implemented for '", t.scalar_type(), "'");
}
void check_drawn(const char* kernel, const at::Tensor& t, bool known) {
  check_type(kernel, t, known || t.numel() == 0);  // no kernel, no complaint
}
void check_bernoulli(const char* kernel, const at::Tensor& t) {
  check_drawn(kernel, t, is_drawn_number(t.scalar_type()) || t.scalar_type() == at::kBool);
}

bool wide_range(uint64_t range) { return range == 0 || range > (uint64_t{1} << 32); }

// ---- Host implementations: numbers in row-major order, then one copy to wherever the tensor is --------------------
template <class Fill>
at::Tensor fill_floating(const at::Tensor& like, const std::optional<at::Generator>& generator, Fill&& fill) {
  const bool wide = like.scalar_type() == at::kDouble;
  const int32_t device = like.device().index();
  at::Tensor values = at::detail::empty_cpu(like.sizes(), wide ? at::kDouble : at::kFloat);
  const Draw d = draw(generator, device, like.numel(), wide);
  if (wide) {
    fill(values.mutable_data_ptr<double>(), like.numel(), d);
  } else {
    fill(values.mutable_data_ptr<float>(), like.numel(), d);
  }
  return values;
}

void finish_in_place(HostCall& host, const at::Tensor& self, const at::Tensor& values) {
  copy_into(self, values, false);
  bump(host.plan.bytes, extent_bytes(self));
  at::Tensor result = self;
  host.stack.clear();
  host.stack.emplace_back(std::move(result));
}

void host_uniform(HostCall& host) {
  const at::Tensor self = host.stack[0].toTensor();
  const double from = host.stack[1].toDouble(), to = host.stack[2].toDouble();
  const at::Tensor drawn = fill_floating(self, generator_of(host.stack[3]), [&](auto* out, int64_t n, Draw d) {
    runtime::philox_uniform(out, n, d.seed, d.offset, from, to);
  });
  if (drawn.scalar_type() != self.scalar_type()) {  // 16 bits may round up to `to`
    drawn.masked_fill_(drawn.to(self.scalar_type()).to(drawn.scalar_type()).ge(to), from);
  }
  finish_in_place(host, self, drawn);
}

void host_normal(HostCall& host) {
  const at::Tensor self = host.stack[0].toTensor();
  const double mean = host.stack[1].toDouble(), std = host.stack[2].toDouble();
  finish_in_place(host, self, fill_floating(self, generator_of(host.stack[3]), [&](auto* out, int64_t n, Draw d) {
                    runtime::philox_normal(out, n, d.seed, d.offset, mean, std);
                  }));
}

void host_exponential(HostCall& host) {
  const at::Tensor self = host.stack[0].toTensor();
  const double lambda = host.stack[1].toDouble();
  finish_in_place(host, self, fill_floating(self, generator_of(host.stack[2]), [&](auto* out, int64_t n, Draw d) {
                    runtime::philox_exponential(out, n, d.seed, d.offset, lambda);
                  }));
}

// The others are transforms of one uniform (or normal) draw per element, in double precision.
template <class Transform>
void host_transformed(HostCall& host, size_t generator, Transform&& transform) {
  const at::Tensor self = host.stack[0].toTensor();
  at::Tensor unit = fill_floating(self, generator_of(host.stack[generator]), [&](auto* out, int64_t n, Draw d) {
    runtime::philox_uniform(out, n, d.seed, d.offset, 0.0, 1.0);
  });
  at::Tensor values = unit.to(at::kDouble).contiguous();
  double* p = values.mutable_data_ptr<double>();
  for (int64_t i = 0; i < values.numel(); ++i) p[i] = transform(p[i]);
  finish_in_place(host, self, values);
}

void check_continuous(const char* name, const at::Tensor& t) {
  TORCH_CHECK(
      at::isFloatingType(t.scalar_type()), name,
      " distribution is a continuous probability distribution. dtype must be a floating point but you specified ",
      t.dtype());
}

void host_cauchy(HostCall& host) {
  const double median = host.stack[1].toDouble(), sigma = host.stack[2].toDouble();
  host_transformed(host, 3, [=](double u) { return median + sigma * std::tan(M_PI * (u - 0.5)); });
}

void host_geometric(HostCall& host) {
  const double p = host.stack[1].toDouble();
  host_transformed(
      host, 2, [=](double u) { return p >= 1.0 ? 1.0 : std::max(1.0, std::ceil(std::log1p(-u) / std::log1p(-p))); });
}

void host_log_normal(HostCall& host) {
  const at::Tensor self = host.stack[0].toTensor();
  const double mean = host.stack[1].toDouble(), std = host.stack[2].toDouble();
  at::Tensor values = fill_floating(self, generator_of(host.stack[3]), [&](auto* out, int64_t n, Draw d) {
    runtime::philox_normal(out, n, d.seed, d.offset, mean, std);
  });
  finish_in_place(host, self, values.exp());
}

at::Tensor unit32(const at::Tensor& like, const std::optional<at::Generator>& generator) {
  at::Tensor unit = at::detail::empty_cpu(like.sizes(), at::kFloat);
  const Draw d = draw(generator, like.device().index(), like.numel(), false);
  runtime::philox_unit32(unit.mutable_data_ptr<float>(), like.numel(), d.seed, d.offset);
  return unit;
}

void host_bernoulli_float(HostCall& host) {
  const at::Tensor self = host.stack[0].toTensor();
  const auto p = static_cast<float>(host.stack[1].toDouble());
  finish_in_place(host, self, unit32(self, generator_of(host.stack[2])).lt(p));
}

// Waits, where p is on a device.
void check_probabilities(const at::Tensor& self, const at::Tensor& p) {
  check_bernoulli("bernoulli_tensor_cpu_self_", self);
  TORCH_CHECK(at::isFloatingType(p.scalar_type()), "expected probabilities tensor to have floating type, got ",
              p.scalar_type());
  TORCH_CHECK(p.numel() == 0 || p.ge(0).logical_and_(p.le(1)).all().item<bool>(), "Expected p_in >= 0 && p_in <= 1");
}

void host_bernoulli_tensor(HostCall& host) {
  const at::Tensor self = host.stack[0].toTensor();
  const at::Tensor p_any = host.stack[1].toTensor();
  const at::Tensor p = p_any.device().is_cpu() ? p_any : to_host(p_any);
  check_probabilities(self, p);
  finish_in_place(host, self, unit32(self, generator_of(host.stack[2])).lt(p.to(at::kFloat).expand(self.sizes())));
}

void host_random(HostCall& host) {
  const at::Tensor self = host.stack[0].toTensor();
  const int64_t from = host.stack[1].toInt();
  const uint64_t range =
      host.stack[2].isNone() ? 0 : static_cast<uint64_t>(host.stack[2].toInt()) - static_cast<uint64_t>(from);
  at::Tensor values = at::detail::empty_cpu(self.sizes(), at::kLong);
  const Draw d = draw(generator_of(host.stack[3]), self.device().index(), self.numel(), wide_range(range));
  runtime::philox_integers(values.mutable_data_ptr<int64_t>(), self.numel(), d.seed, d.offset, from, range);
  finish_in_place(host, self, values);
}

void host_dropout(HostCall& host) {
  const at::Tensor input = host.stack[0].toTensor();
  const double p = host.stack[1].toDouble();
  const at::Tensor keep = to_device(host.device, unit32(input, std::nullopt).ge(static_cast<float>(p)));
  const double scale = p >= 1.0 ? 0.0 : 1.0 / (1.0 - p);
  at::Tensor out = input.mul(keep).mul_(scale);
  host.stack.clear();
  host.stack.emplace_back(std::move(out));
  host.stack.emplace_back(keep);
}

// ---- What PyTorch checks before any backend's kernel -----------------------------------------------------------
using Generator = std::optional<at::Generator>;

at::Tensor& checked_uniform_(at::Tensor& self, double from, double to, Generator g) {
  if (self.is_complex()) {
    auto parts = at::view_as_real(self);
    checked_uniform_(parts, from, to, std::move(g));
    return self;
  }
  check_type("check_uniform_bounds", self, is_drawn_real(self.scalar_type()));
  TORCH_CHECK(from <= to, "uniform_ expects to return a [from, to) range, but found from=", from, " > to=", to);
  const double limit = self.scalar_type() == at::kHalf       ? 65504.0
                       : self.scalar_type() == at::kDouble   ? std::numeric_limits<double>::max()
                       : self.scalar_type() == at::kBFloat16 ? 3.3895313892515355e38
                                                             : std::numeric_limits<float>::max();
  TORCH_CHECK(from >= -limit && from <= limit, "from", " is out of bounds for ", self.dtype());
  TORCH_CHECK(to >= -limit && to <= limit, "to", " is out of bounds for ", self.dtype());
  TORCH_CHECK((to - from) <= limit, "uniform_ expects to-from <= std::numeric_limits<", toString(self.scalar_type()),
              ">::max(), but found to=", to, " and from=", from, " which result in to-from to exceed the limit");
  if (self.numel() == 0) return self;
  return Trampoline<at::_ops::uniform_, NoMeta>::call(self, from, to, std::move(g));
}

at::Tensor& checked_normal_(at::Tensor& self, double mean, double std, Generator g) {
  TORCH_CHECK(std >= 0.0, "normal expects std >= 0.0, but found std ", std);
  if (self.is_complex()) {
    auto parts = at::view_as_real(self);
    checked_normal_(parts, 0.0, std / std::sqrt(2.0), std::move(g));
    if (mean != 0.0) self.add_(mean);
    return self;
  }
  check_drawn("normal_kernel_cpu", self, is_drawn_real(self.scalar_type()));
  if (self.numel() == 0) return self;
  return Trampoline<at::_ops::normal_, NoMeta>::call(self, mean, std, std::move(g));
}

at::Tensor& checked_exponential_(at::Tensor& self, double lambda, Generator g) {
  TORCH_CHECK(lambda > 0.0, "exponential_ expects lambda > 0.0, but found lambda=", lambda);
  if (self.numel() == 0) return self;
  TORCH_CHECK(
      at::isFloatingType(self.scalar_type()),
      "Exponential distribution is a continuous probability distribution. dtype must be a floating point but you "
      "specified ",
      self.scalar_type());
  check_drawn("exponential_cpu", self, is_drawn_real(self.scalar_type()));
  return Trampoline<at::_ops::exponential_, NoMeta>::call(self, lambda, std::move(g));
}

at::Tensor& checked_cauchy_(at::Tensor& self, double median, double sigma, Generator g) {
  TORCH_CHECK(sigma > 0.0, "cauchy_ expects sigma > 0.0, but found sigma=", sigma);
  check_continuous("Cauchy", self);
  check_drawn("cauchy_cpu", self, is_drawn_real(self.scalar_type()));
  if (self.numel() == 0) return self;
  return Trampoline<at::_ops::cauchy_, NoMeta>::call(self, median, sigma, std::move(g));
}

at::Tensor& checked_geometric_(at::Tensor& self, double p, Generator g) {
  TORCH_CHECK(0 < p && p < 1, "geometric_ expects p to be in (0, 1), but got p=", p);
  check_drawn("geometric_cpu", self, is_drawn_number(self.scalar_type()));
  if (self.numel() == 0) return self;
  return Trampoline<at::_ops::geometric_, NoMeta>::call(self, p, std::move(g));
}

at::Tensor& checked_log_normal_(at::Tensor& self, double mean, double std, Generator g) {
  TORCH_CHECK(std > 0, "log_normal_ expects std > 0.0, but found std=", std);
  check_drawn("log_normal_cpu", self, is_drawn_real(self.scalar_type()));
  if (self.numel() == 0) return self;
  return Trampoline<at::_ops::log_normal_, NoMeta>::call(self, mean, std, std::move(g));
}

at::Tensor& checked_bernoulli_(at::Tensor& self, double p, Generator g) {
  TORCH_CHECK(0 <= p && p <= 1, "bernoulli_ expects p to be in [0, 1], but got p=", p);
  check_bernoulli("bernoulli_scalar_cpu_", self);
  if (self.numel() == 0) return self;
  return Trampoline<at::_ops::bernoulli__float, NoMeta>::call(self, p, std::move(g));
}

// A probability for each element. Kernels cannot raise, so the host reads whether these are probabilities.
at::Tensor& checked_bernoulli_tensor_(at::Tensor& self, const at::Tensor& p, Generator g) {
  if (p.device() != self.device() || !has_kernel(runtime_device(self).chip, "aten::lt.Tensor")) {
    return Trampoline<at::_ops::bernoulli__Tensor, NoMeta>::call(self, p, std::move(g));
  }
  check_probabilities(self, p);
  const at::Tensor chances = p.to(at::kFloat).expand(self.sizes());
  const at::Tensor unit = at::empty(self.sizes(), self.options().dtype(at::kFloat)).uniform_(0, 1, std::move(g));
  return self.copy_(unit.lt(chances));
}

void check_multinomial(const at::Tensor& self, int64_t n, bool replacement, const at::Tensor& out) {
  constexpr int64_t kMostCategories = 1 << 24;
  TORCH_CHECK(out.device() == self.device(), "multinomial arguments must have the same device");
  TORCH_CHECK(self.dim() == 1 || self.dim() == 2, "prob_dist must be 1 or 2 dim");
  TORCH_CHECK(at::isFloatingType(self.scalar_type()),
              "multinomial only supports floating-point dtypes for input, got: ", self.scalar_type());
  TORCH_CHECK(out.scalar_type() == at::kLong, "multinomial expects Long tensor out, got: ", out.scalar_type());
  TORCH_CHECK(n > 0, "cannot sample n_sample <= 0 samples");
  TORCH_CHECK(replacement || n <= self.size(-1),
              "cannot sample n_sample > prob_dist.size(-1) samples without replacement");
  TORCH_CHECK(self.size(-1) <= kMostCategories, "number of categories cannot exceed 2^24");
}

// In one read; the texts are those of either algorithm of the CPU.
void check_weights(const at::Tensor& p, bool many) {
  const at::Tensor finite = p.lt(std::numeric_limits<double>::infinity()).all();
  const at::Tensor state = at::stack({p.ge(0).all(), finite, p.sum(-1).gt(0).all()}).to(at::kCPU);
  const bool* const holds = state.const_data_ptr<bool>();
  TORCH_CHECK(many || (holds[0] && holds[1]), "probability tensor contains either `inf`, `nan` or element < 0");
  TORCH_CHECK(holds[0], "invalid multinomial distribution (encountering probability entry < 0)");
  TORCH_CHECK(holds[1], "invalid multinomial distribution (encountering probability entry = infinity or NaN)");
  TORCH_CHECK(holds[2], "invalid multinomial distribution (sum of probabilities <= 0)");
}

// Of draws of other operators, so that a seed gives the same numbers on every chip. Waits: weights are checked.
at::Tensor& multinomial_out(const at::Tensor& self, c10::SymInt samples, bool replacement, Generator g,
                            at::Tensor& out) {
  const int64_t n = samples.guard_int(__FILE__, __LINE__);
  check_multinomial(self, n, replacement, out);
  out.resize_(self.dim() == 1 ? at::DimVector{n} : at::DimVector{self.size(0), n});  // without a warning
  if (out.numel() == 0) return out;
  at::Tensor p = self.to(self.scalar_type() == at::kDouble ? at::kDouble : at::kFloat).contiguous();
  check_weights(p, replacement && n > 1);
  p = p.div(p.amax(-1, /*keepdim=*/true));  // sums and quotients of large ones would overflow
  if (replacement && n > 1) {
    const at::Tensor sums = p.cumsum(-1);
    at::Tensor at_sum = at::empty(out.sizes(), p.options()).uniform_(0, 1, std::move(g)).mul_(sums.narrow(-1, -1, 1));
    return out.copy_(at::searchsorted(sums, at_sum, false, /*right=*/true).clamp_max_(p.size(-1) - 1));
  }
  // The first of races whose rates are the weights. No time is 0: a weight of 0 would win by 0 / 0.
  at::Tensor times = at::empty(p.sizes(), p.options()).exponential_(1, std::move(g));
  const at::Tensor speeds = p.div(times.clamp_min_(std::numeric_limits<float>::min()));
  return out.copy_(n == 1 ? speeds.argmax(-1, /*keepdim=*/true) : std::get<1>(speeds.topk(n)));
}

at::Tensor multinomial(const at::Tensor& self, c10::SymInt samples, bool replacement, Generator g) {
  at::Tensor out = at::empty({0}, self.options().dtype(at::kLong));
  return multinomial_out(self, std::move(samples), replacement, std::move(g), out);
}

struct Range {
  int64_t from;
  std::optional<int64_t> to;
};

// The whole range of a dtype, as random_() without bounds draws it.
Range whole_range(at::ScalarType dtype) {
  switch (dtype) {
    case at::kDouble:
      return {0, (int64_t{1} << 53) + 1};
    case at::kFloat:
      return {0, (int64_t{1} << 24) + 1};
    case at::kHalf:
      return {0, (int64_t{1} << 11) + 1};
    case at::kBFloat16:
      return {0, (int64_t{1} << 8) + 1};
    case at::kBool:
      return {0, 2};
    case at::kByte:
      return {0, 256};
    case at::kChar:
      return {0, 128};
    case at::kShort:
      return {0, 1 << 15};
    case at::kInt:
      return {0, int64_t{1} << 31};
    case at::kLong:
      return {0, std::numeric_limits<int64_t>::max()};
    case at::kUInt16:
      return {0, 1 << 16};
    case at::kUInt32:
      return {0, int64_t{1} << 32};
    case at::kUInt64:
      return {0, std::nullopt};
    default:
      TORCH_CHECK_NOT_IMPLEMENTED(false, "\"random_kernel_cpu\" not implemented for '", dtype, "'");
  }
}

void check_in_range(at::ScalarType dtype, int64_t value, const char* name) {
  double low, high;
  switch (dtype) {
    case at::kBool:
      low = 0, high = 1;
      break;
    case at::kByte:
      low = 0, high = 255;
      break;
    case at::kChar:
      low = -128, high = 127;
      break;
    case at::kShort:
      low = -32768, high = 32767;
      break;
    case at::kInt:
      low = -2147483648.0, high = 2147483647.0;
      break;
    case at::kUInt16:
      low = 0, high = 65535;
      break;
    case at::kUInt32:
      low = 0, high = 4294967295.0;
      break;
    case at::kHalf:
      low = -65504, high = 65504;
      break;
    default:
      return;
  }
  TORCH_CHECK(static_cast<double>(value) >= low && static_cast<double>(value) <= high, name, " is out of bounds for ",
              dtype_name(dtype));
}

at::Tensor& checked_random_from(at::Tensor& self, int64_t from, std::optional<int64_t> to, Generator g) {
  TORCH_CHECK(!self.is_complex(), "check_random_bounds handles only integral, floating-point and boolean types");
  check_type("random_update_from_to", self,
             is_drawn_real(self.scalar_type()) || at::isIntegralType(self.scalar_type(), true));
  if (to.has_value()) {
    TORCH_CHECK(from < *to, "random_ expects 'from' to be less than 'to', but got from=", from, " >= to=", *to);
    check_in_range(self.scalar_type(), from, "from");
    check_in_range(self.scalar_type(), *to - 1, "to - 1");
  } else if (self.scalar_type() != at::kLong && self.scalar_type() != at::kUInt64) {
    to = whole_range(self.scalar_type()).to;
    TORCH_CHECK(from < *to,
                "random_ expects 'from' casted to dtype to be less than or equal to 'to_inc' casted to dtype");
  } else if (from != std::numeric_limits<int64_t>::min()) {
    // from .. the largest int64, inclusive: one more than `to` can say unless the range is shifted.
    to = std::numeric_limits<int64_t>::max();
  }
  if (self.numel() == 0) return self;
  return Trampoline<at::_ops::random__from, NoMeta>::call(self, from, to, std::move(g));
}

at::Tensor& checked_random_to(at::Tensor& self, int64_t to, Generator g) {
  return checked_random_from(self, 0, to, std::move(g));
}

at::Tensor& checked_random_(at::Tensor& self, Generator g) {
  if (self.numel() == 0) return self;
  const Range range = whole_range(self.scalar_type());
  return Trampoline<at::_ops::random__from, NoMeta>::call(self, range.from, range.to, std::move(g));
}

std::tuple<at::Tensor, at::Tensor> checked_native_dropout(const at::Tensor& input, double p,
                                                          std::optional<bool> train) {
  if (train.has_value() && !*train) {
    return {input.clone(), at::ones_like(input, input.options().dtype(at::kBool))};
  }
  if (input.numel() == 0) return {at::empty_like(input), at::empty_like(input, input.options().dtype(at::kBool))};
  return Trampoline<at::_ops::native_dropout, NoMeta>::call(input, p, train);
}

at::Tensor& bernoulli_out(const at::Tensor& self, Generator g, at::Tensor& out) {
  out.resize_(self.sizes());  // without a warning, as on the CPU
  return out.bernoulli_(self, std::move(g));
}

// Means and deviations for each element: PyTorch's own composition, of a fill that every chip has.
template <class>
struct NormalFill {
  void operator()(at::Tensor& self, double mean, double std, const std::optional<at::Generator>& g) const {
    self.normal_(mean, std, g);
  }
};
template <class Mean, class Std>
at::Tensor normal_each(Mean mean, Std std, Generator g) {
  return at::native::templates::normal_impl<NormalFill, void>(mean, std, std::move(g));
}
template <class Mean, class Std>
at::Tensor& normal_each_out(Mean mean, Std std, Generator g, at::Tensor& out) {
  return at::native::templates::normal_out_impl<NormalFill, void>(out, mean, std, std::move(g));
}
using T = const at::Tensor&;

// A slope for every element in training, and their mean afterwards.
at::Tensor rrelu_with_noise(const at::Tensor& self, at::Tensor& noise, const at::Scalar& lower, const at::Scalar& upper,
                            bool training, Generator g) {
  TORCH_CHECK(self.sym_sizes() == noise.sym_sizes(),
              "noise tensor shape must match self tensor shape. Got self.shape = ", self.sym_sizes(),
              " noise.shape = ", noise.sym_sizes());
  if (!training) return at::leaky_relu(self, (lower.to<double>() + upper.to<double>()) / 2);
  at::Tensor slopes = at::empty_like(self).uniform_(lower.to<double>(), upper.to<double>(), std::move(g));
  noise.copy_(at::where(self.le(0), slopes, at::ones({}, self.options())));
  return self.mul(noise);
}

struct Special {
  void (*host)(HostCall&);
};
const std::unordered_map<std::string, Special>& specials() {
  static const auto* map = new std::unordered_map<std::string, Special>{
      {"aten::uniform_", {host_uniform}},
      {"aten::normal_", {host_normal}},
      {"aten::exponential_", {host_exponential}},
      {"aten::cauchy_", {host_cauchy}},
      {"aten::geometric_", {host_geometric}},
      {"aten::log_normal_", {host_log_normal}},
      {"aten::bernoulli_.float", {host_bernoulli_float}},
      {"aten::bernoulli_.Tensor", {host_bernoulli_tensor}},
      {"aten::random_.from", {host_random}},
      {"aten::native_dropout", {host_dropout}},
  };
  return *map;
}

}  // namespace

void describe_random(Entry& entry) {
  auto found = specials().find(entry.name);
  if (found == specials().end()) return;
  entry.random = true;
  entry.host = found->second.host;
}

void reserve_philox(Call& call, const Plan& plan) {
  int64_t numel = 0;
  for (const auto& out : plan.outs) {
    if (!out.absent) numel = std::max(numel, out.view.descriptor.numel);
  }
  bool wide = plan.compute_dtype == FL_FLOAT64;
  if (call.entry.name == "aten::random_.from") {
    const bool bounded = call.args[2].kind == Kind::Int;
    wide = wide_range(bounded ? static_cast<uint64_t>(call.args[2].u.i) - static_cast<uint64_t>(call.args[1].u.i) : 0);
  } else if (call.entry.op_name == "aten::bernoulli_" || call.entry.name == "aten::native_dropout") {
    wide = false;
  }
  const Draw d = draw(generator_in(call), call.device->index, numel, wide);
  call.philox_seed = d.seed;
  call.philox_offset = d.offset;
}

c10::IValue host_generator(const c10::IValue& generator, runtime::Device& device) {
  const auto given = generator_of(generator);
  if (given.has_value() && given->device().is_cpu()) {
    (void)generator_for(given, device.index);  // raises PyTorch's error for a generator of another device
  }
  const Draw d = draw(given, device.index, 4, false);
  const auto block = runtime::philox(d.seed, d.offset);
  const uint64_t seed = static_cast<uint64_t>(block.word[1]) << 32 | block.word[0];
  return at::make_generator<at::CPUGeneratorImpl>(seed);
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("uniform_", TORCH_FN(checked_uniform_));
  m.impl("normal_", TORCH_FN(checked_normal_));
  m.impl("exponential_", TORCH_FN(checked_exponential_));
  m.impl("cauchy_", TORCH_FN(checked_cauchy_));
  m.impl("geometric_", TORCH_FN(checked_geometric_));
  m.impl("log_normal_", TORCH_FN(checked_log_normal_));
  m.impl("bernoulli_.float", TORCH_FN(checked_bernoulli_));
  m.impl("bernoulli_.Tensor", TORCH_FN(checked_bernoulli_tensor_));
  m.impl("multinomial", TORCH_FN(multinomial));
  m.impl("multinomial.out", TORCH_FN(multinomial_out));
  m.impl("random_", TORCH_FN(checked_random_));
  m.impl("random_.from", TORCH_FN(checked_random_from));
  m.impl("random_.to", TORCH_FN(checked_random_to));
  m.impl("native_dropout", TORCH_FN(checked_native_dropout));
  m.impl("bernoulli.out", TORCH_FN(bernoulli_out));
  m.impl("normal.Tensor_float", TORCH_FN((normal_each<T, double>)));
  m.impl("normal.float_Tensor", TORCH_FN((normal_each<double, T>)));
  m.impl("normal.Tensor_Tensor", TORCH_FN((normal_each<T, T>)));
  m.impl("normal.Tensor_float_out", TORCH_FN((normal_each_out<T, double>)));
  m.impl("normal.float_Tensor_out", TORCH_FN((normal_each_out<double, T>)));
  m.impl("normal.Tensor_Tensor_out", TORCH_FN((normal_each_out<T, T>)));
  m.impl("rrelu_with_noise", TORCH_FN(rrelu_with_noise));
}

}  // namespace torch_fl::glue
