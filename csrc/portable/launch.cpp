// SPDX-License-Identifier: Apache-2.0
#include "launch.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <mutex>

#include "runtime/error.h"

namespace torch_fl::portable {

fl_module Row::find(const VariantKey& key) {
  const std::shared_lock lock(mutex_);
  const auto found = variants_.find(key.view());
  return found == variants_.end() ? nullptr : found->second;
}

fl_module Row::make(const fl_call& call, const VariantKey& key, const Source& source) {
  if (key.full()) throw runtime::Error(FL_INTERNAL, "the key of a kernel's variant is too long");
  runtime::Device& on = device(call);
  const uint64_t dtypes = on.properties.dtypes;
  const bool has_f64 = dtypes == 0 || (dtypes & FL_DTYPE_BIT(FL_FLOAT64)) != 0;
  {
    const std::shared_lock lock(mutex_);
    const auto refused = refused_.find(key.view());
    if (refused != refused_.end()) throw runtime::Error(FL_INVALID_ARGUMENT, refused->second);
  }
  try {
    const fl_module module = on.modules().get(compose(language_, has_f64, source));
    const std::unique_lock lock(mutex_);
    return variants_.emplace(std::string(key.view()), module).first->second;
  } catch (const runtime::Error& error) {
    if (error.status() != FL_INVALID_ARGUMENT) throw;
    runtime::log(FL_LOG_WARNING,
                 std::string("the portable kernel of ") + call.kernel->op + " does not compile: " + error.what());
    const std::unique_lock lock(mutex_);
    refused_.emplace(std::string(key.view()), error.what());
    throw;
  }
}

fl_status Arguments::launch(const fl_call& call, runtime::Device& device, fl_module module, uint64_t items) const {
  fl_launch launch{};
  launch.struct_size = sizeof(launch);
  launch.work_dim = 1;
  launch.global_size[0] = items;
  launch.local_size[0] = 1;  // some compilers make a variant for every size they choose
  launch.n_args = static_cast<uint32_t>(n_);
  launch.args = values_.data();
  launch.arg_sizes = sizes_.data();
  return device.chip.compiler.launch(call.device, call.stream, module, kEntry, &launch);
}

int64_t enough(int64_t least) {
  static const char* const text = std::getenv("TORCH_FL_WORK_PER_ITEM");
  static const int64_t most = text == nullptr ? INT64_MAX : std::atoll(text);
  return std::max<int64_t>(1, std::min(least, most));
}

Split split(const runtime::Device& device, int64_t n, int64_t least, int64_t items_per_unit) {
  if (n == 0) return {1, 1};  // an item that finds nothing to do
  const int64_t units = device.properties.compute_units == 0 ? 8 : device.properties.compute_units;
  const int64_t items = std::clamp<int64_t>(n / enough(least), 1, items_per_unit * units);
  const int64_t chunk = (n + items - 1) / items;
  return {static_cast<uint64_t>((n + chunk - 1) / chunk), chunk};
}

uint64_t bits_of(double value, bool wide) {
  uint64_t bits = 0;
  const auto narrow = static_cast<float>(value);
  if (wide) {
    std::memcpy(&bits, &value, sizeof(value));
  } else {
    std::memcpy(&bits, &narrow, sizeof(narrow));
  }
  return bits;
}

uint64_t bits_of(const fl_value& v, fl_dtype compute) {
  const bool real = v.kind == FL_REAL;
  if (is_floating(compute)) return bits_of(real ? v.u.d : static_cast<double>(v.u.i), compute == FL_FLOAT64);
  return static_cast<uint64_t>(real ? static_cast<int64_t>(v.u.d) : v.u.i);
}

std::array<uint64_t, 2> parts_of(const fl_value& v, fl_dtype compute) {
  if (!is_complex(compute)) return {bits_of(v, compute), 0};
  const fl_dtype part = compute == FL_COMPLEX128 ? FL_FLOAT64 : FL_FLOAT32;
  if (v.kind != FL_COMPLEX) return {bits_of(v, part), 0};
  return {bits_of(v.u.c[0], part == FL_FLOAT64), bits_of(v.u.c[1], part == FL_FLOAT64)};
}

fl_kernel make_row(const char* op, uint32_t flags, fl_kernel_fn run, fl_supports_fn supports, Row* data,
                   uint64_t dtypes) {
  fl_kernel kernel{};
  kernel.struct_size = sizeof(kernel);
  kernel.flags = flags;
  kernel.op = op;
  kernel.run = run;
  kernel.supports = supports;
  kernel.user_data = data;
  kernel.dtypes = dtypes;
  return kernel;
}

void keep_row(std::unique_ptr<Row> row) {
  static auto* rows = new std::deque<std::unique_ptr<Row>>();
  static std::mutex mutex;
  const std::lock_guard lock(mutex);
  rows->push_back(std::move(row));
}

fl_status status_of_exception(const char* op) noexcept {
  try {
    throw;
  } catch (const runtime::Error& error) {
    runtime::set_plugin_message(error.status(), error.what());
    if (error.status() != FL_INVALID_ARGUMENT) return error.status();
    return decline(std::string("the portable kernel of ") + op + " does not compile: " + error.what());
  } catch (const std::exception& error) {
    runtime::set_plugin_message(FL_INTERNAL, error.what());
    return FL_INTERNAL;
  }
}

fl_status decline(const std::string& reason) {
  runtime::set_plugin_message(FL_UNSUPPORTED, reason.c_str());
  return FL_UNSUPPORTED;
}

}  // namespace torch_fl::portable
