// SPDX-License-Identifier: Apache-2.0
#include "settings.h"

#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <mutex>
#include <optional>
#include <unordered_map>

#include "errors.h"
#include "router.h"
#include "runtime/settings.h"

namespace py = pybind11;

namespace torch_fl::glue {
namespace {

using runtime::settings;

std::mutex g_mutex;
std::unordered_map<std::string, Route>& routes() {
  static auto* map = new std::unordered_map<std::string, Route>();
  return *map;
}

struct Forced {
  std::string key;
  Route route;
};
std::optional<Forced> forced(const Entry& entry) {
  const std::lock_guard lock(g_mutex);
  if (routes().empty()) return std::nullopt;
  for (const std::string* key : {&entry.name, &entry.op_name}) {
    const auto found = routes().find(*key);
    if (found != routes().end()) return Forced{*key, found->second};
  }
  return std::nullopt;
}

Route route_of(const std::string& name) {
  for (const Route route : {Route::Kernel, Route::Portable, Route::Override, Route::Decomposed, Route::Host}) {
    if (name == route_name(route)) return route;
  }
  TORCH_CHECK_VALUE(false, "expected kernel, portable, override, decomposed or host, found '", name, "'");
}

/// Empty: the operator takes its routes in order again.
void set_route(const std::string& op, const std::string& route) {
  {
    const std::lock_guard lock(g_mutex);
    if (route.empty()) {
      routes().erase(op);
    } else {
      routes()[op] = route_of(route);
    }
  }
  clear_plans();
}

void set_full_precision(bool on) {
  settings.full_precision.store(on);
  clear_plans();
}

/// Devices that hold more give up what nobody uses.
void set_memory_pool_size(uint64_t bytes) {
  settings.pool_bytes.store(bytes);
  auto& registry = runtime::Registry::get();
  for (int32_t i = 0, n = registry.device_count(); bytes != 0 && i < n; ++i) {
    runtime::Device& device = registry.at(i);
    const auto held = static_cast<uint64_t>(device.allocator().stats().reserved_bytes.current);
    if (device.usable() && held > bytes) guarded([&] { device.allocator().empty_cache(); });
  }
}

}  // namespace

Route first_route(const Entry& entry) {
  const auto found = forced(entry);
  return found.has_value() ? found->route : Route::Kernel;
}

bool portable_first() { return settings.full_precision.load(std::memory_order_relaxed); }

std::string forced_reason(const runtime::Chip& chip, const Entry& entry) {
  const auto found = forced(entry);
  if (found.has_value() && found->route != Route::Kernel) {
    return "the setting route." + found->key + " is " + route_name(found->route);
  }
  if (portable_first() && find_kernel(chip, entry.kernel_name) != nullptr) return "the setting precision is high";
  return "";
}

void bind_settings(py::module_& m) {
  m.def("set_route", &set_route, py::arg("op"), py::arg("route"));
  m.def("set_full_precision", &set_full_precision);
  m.def("set_memory_pool_size", &set_memory_pool_size, py::call_guard<py::gil_scoped_release>());
  m.def("set_async_execution", [](bool on) { settings.async_execution.store(on); });
  m.def("set_log_level", [](int level) { settings.log_level.store(static_cast<fl_log_level>(level)); });
  m.def("set_default_device", [](int32_t index) {
    guarded([&] {
      const int32_t checked = runtime::Registry::get().device(index).index;
      settings.default_device.store(checked);
      runtime::set_current_device(checked);  // guards leave a thread with what they found, as if it had chosen that
    });
  });
  m.def("set_excluded_devices", [](uint64_t bits) { settings.excluded_devices.store(bits); });
  m.def("renumber_devices", [](const std::vector<int32_t>& order, const std::string& why) {
    guarded([&] { runtime::Registry::get().renumber(order, why); });
  });
}

}  // namespace torch_fl::glue
