// SPDX-License-Identifier: Apache-2.0
// The extension module torch_fl._C: loading, devices, generators, memory. The router binds the rest.
#include <torch/csrc/Exceptions.h>
#include <torch/csrc/utils/device_lazy_init.h>
#include <torch/csrc/utils/pybind.h>
#include <torch/version.h>

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "../runtime/device.h"
#include "attention.h"
#include "device_allocator.h"
#include "device_names.h"
#include "dtypes.h"
#include "errors.h"
#include "generator.h"
#include "guards.h"
#include "portable/portable.h"
#include "python_chip.h"

namespace torch_fl::glue {

void bind_router(py::module_& module);
void bind_descriptions(py::module_& module);  // describe.cpp
void bind_python_chips(py::module_& module);
void bind_settings(py::module_& module);

namespace {

using Strings = std::vector<std::string>;

void load_plugins(const std::vector<std::pair<std::string, std::string>>& candidates) {
  std::vector<runtime::Candidate> list;
  list.reserve(candidates.size());
  for (const auto& [path, source] : candidates) list.push_back({path, source});
  guarded([&] {
    runtime::Registry::get().load(list);
    for (const auto& chip : runtime::Registry::get().chips()) portable::equip(*chip);
  });
  install_attention();
}

std::vector<py::dict> plugin_reports() {
  std::vector<py::dict> rows;
  for (const runtime::PluginReport& report : runtime::Registry::get().reports()) {
    py::dict row;
    row["path"] = report.path;
    row["source"] = report.source;
    row["loaded"] = report.loaded;
    row["reason"] = report.reason;
    row["chip"] = report.chip;
    rows.push_back(std::move(row));
  }
  return rows;
}

Strings capability_names(uint32_t capabilities) {
  static constexpr std::pair<uint32_t, const char*> kNames[] = {{FL_CAP_HOST_COHERENT, "host_coherent"},
                                                                {FL_CAP_UNIFIED, "unified"},
                                                                {FL_CAP_PEER_COPY, "peer_copy"},
                                                                {FL_CAP_TIMED_EVENTS, "timed_events"}};
  Strings names;
  for (const auto& [bit, name] : kNames) {
    if ((capabilities & bit) != 0) names.emplace_back(name);
  }
  return names;
}

Strings dtype_names(uint64_t dtypes) {
  Strings names;
  for (const DtypeRow& row : kDtypes) {
    if (dtypes == 0 || (dtypes & FL_DTYPE_BIT(row.fl)) != 0) names.emplace_back(row.name);
  }
  return names;
}

// The vendors' names for devices, and the devices of each.
std::map<std::string, std::vector<int32_t>> device_types() {
  std::map<std::string, std::vector<int32_t>> types;
  for (const auto& chip : runtime::Registry::get().chips()) {
    if (chip->device_type.empty()) continue;
    for (const auto& device : chip->devices) types[chip->device_type].push_back(device->index);
  }
  return types;
}

py::dict device_row(const runtime::Device& device) {
  const fl_device_properties properties = described_properties(device);
  py::dict row;
  row["index"] = device.index;
  row["local_index"] = device.local_index;
  row["chip"] = device.chip.name;
  row["vendor"] = device.chip.vendor;
  row["device_type"] = device.chip.device_type;
  row["plugin_version"] = device.chip.version;
  row["name"] = std::string(properties.name);
  row["driver_version"] = std::string(properties.driver_version);
  row["total_memory"] = properties.total_memory;
  row["max_allocation"] = properties.max_allocation != 0 ? properties.max_allocation : properties.total_memory;
  row["alignment"] = properties.alignment != 0 ? properties.alignment : 64;
  row["capabilities"] = capability_names(properties.capabilities);
  row["dtypes"] = dtype_names(properties.dtypes);
  row["compute_units"] = properties.compute_units;
  row["clock_mhz"] = properties.clock_mhz;
  row["peak_flops"] = properties.peak_flops;
  row["peak_bandwidth"] = properties.peak_bandwidth;
  row["opened"] = device.opened();
  row["lost"] = device.lost();
  return row;
}

std::vector<py::dict> devices() {
  auto& registry = runtime::Registry::get();
  std::vector<py::dict> rows;
  for (int32_t i = 0, n = registry.device_count(); i < n; ++i) rows.push_back(device_row(registry.at(i)));
  return rows;
}

bool initialized() {
  auto& registry = runtime::Registry::get();
  for (int32_t i = 0, n = registry.device_count(); i < n; ++i) {
    if (registry.at(i).opened()) return true;
  }
  return false;
}

std::pair<uint64_t, uint64_t> memory_info(int32_t index) {
  uint64_t free_bytes = 0, total_bytes = 0;
  guarded([&] { checked_device(index).memory_info(&free_bytes, &total_bytes); });
  return {free_bytes, total_bytes};
}

std::vector<py::dict> damaged_guards() {
  std::vector<DamagedGuard> damaged;
  {
    const py::gil_scoped_release release;
    damaged = check_guards();
  }
  std::vector<py::dict> rows;
  for (const DamagedGuard& guard : damaged) {
    py::dict row;
    row["device"] = guard.device;
    row["address"] = guard.address;
    row["bytes"] = guard.bytes;
    row["first"] = guard.first;
    row["changed"] = guard.n_changed;
    row["freed"] = guard.freed;
    rows.push_back(std::move(row));
  }
  return rows;
}

uintptr_t native_stream(int32_t index, int64_t stream_id) {
  const c10::Device device(c10::kPrivateUse1, static_cast<c10::DeviceIndex>(checked_device(index).index));
  return reinterpret_cast<uintptr_t>(c10::Stream(c10::Stream::UNSAFE, device, stream_id).native_handle());
}

/// After a fork PyTorch calls torch.fl._lazy_init() before the next use of a device, which says what is wrong. Until
/// then there is nothing to initialise, and PyTorch need not look the module up at every factory call.
void guard_against_fork() {
  torch::utils::register_fork_handler_for_device_init(c10::kPrivateUse1);
  torch::utils::set_requires_device_init(c10::kPrivateUse1, false);
}

template <typename Function>
auto free_of_gil(Function function) {
  return torch::wrap_pybind_function_no_gil(function);
}
template <typename Function>
auto checked(Function function) {
  return torch::wrap_pybind_function(function);
}

}  // namespace

void bind_devices(py::module_& m) {
  m.attr("TORCH_VERSION") = TORCH_VERSION;
  m.def("load_plugins", free_of_gil(&load_plugins));
  m.def("plugin_reports", checked(&plugin_reports));
  m.def("shutdown", free_of_gil(+[] { runtime::Registry::get().shutdown(); }));
  m.def("devices", checked(&devices));
  m.def("device_count", [] { return runtime::Registry::get().device_count(); });
  m.def("device_types", checked(&device_types));
  m.def("name_devices", checked(&name_devices), py::arg("name"), py::arg("devices"));
  m.def("initialized", &initialized);
  m.def("in_bad_fork", [] { return runtime::Registry::get().in_bad_fork(); });
  m.def("default_generator", checked(+[](int32_t index) {
          return default_generator(static_cast<c10::DeviceIndex>(checked_device(index).index));
        }));
  m.def("set_memory_fraction",
        free_of_gil(+[](int32_t index, double fraction) { set_memory_fraction(fraction, index); }));
  m.def("memory_info", free_of_gil(&memory_info));
  m.def("set_guard_bytes", &set_guard_bytes);
  m.def("check_guards", checked(&damaged_guards));
  m.def("native_stream", checked(&native_stream));
}

}  // namespace torch_fl::glue

PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {
  m.doc() = "The core of Torch-FL";
  torch_fl::glue::guard_against_fork();
  torch_fl::glue::bind_devices(m);
  torch_fl::glue::bind_router(m);
  torch_fl::glue::bind_descriptions(m);
  torch_fl::glue::bind_python_chips(m);
  torch_fl::glue::bind_settings(m);
}
