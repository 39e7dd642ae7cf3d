// SPDX-License-Identifier: Apache-2.0
#include "register.h"

#include <torch/library.h>

#include <algorithm>
#include <mutex>
#include <unordered_set>

#include "decompose.h"
#include "router.h"
#include "tables.h"
#include "trampoline.h"

namespace torch_fl::glue {
namespace {

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  for (const TrampolineRow* row : all_trampolines()) {
    if (!row->composite) row->install(m, row->name);
  }
}

TORCH_LIBRARY_IMPL(_, PrivateUse1, m) { m.fallback(torch::CppFunction::makeFromBoxedFunction<&boxed_fallback>()); }

// "masked_fill_.Scalar" for a kernel row named "aten::masked_fill.Scalar": the same operator's mutating form.
std::string in_place_form(const std::string& op) {
  const auto dot = op.find('.');
  return dot == std::string::npos ? op + "_" : op.substr(0, dot) + "_" + op.substr(dot);
}

// A chip without kernels runs composites that have a CPU kernel, too, on the host in one piece.
bool has_bare_chip() {
  const auto& chips = runtime::Registry::get().chips();
  return std::any_of(chips.begin(), chips.end(), [](const auto& chip) { return is_bare(*chip); });
}
bool has_cpu_kernel(const std::string& op) {
  const auto handle = find_overload(op);
  return handle.has_value() && handle->hasKernelForDispatchKey(c10::DispatchKey::CPU);
}

std::unordered_set<std::string> kernel_names() {
  // PyTorch's composite for this one asks a table of in-tree devices.
  std::unordered_set<std::string> names{"aten::conj_physical_"};
  for (const auto& chip : runtime::Registry::get().chips()) {
    for (const auto* rows : {&chip->kernels, &chip->portable, &chip->overrides}) {
      for (const auto& kernel : *rows) {
        const std::string op = kernel.op;
        names.insert(op);
        names.insert(in_place_form(op));
      }
    }
  }
  return names;
}

// Some chip's descriptor overrides the operator, or this overload of it, in Python.
bool is_overridden(const std::string& op) {
  const auto handle = find_overload(op);
  if (!handle.has_value()) return false;
  const Entry& entry = entry_for(*handle);
  const auto& chips = runtime::Registry::get().chips();
  return std::any_of(chips.begin(), chips.end(), [&](const auto& chip) {
    const runtime::OpFallback* fallback = find_fallback(*chip, entry);
    return fallback != nullptr && has_override(*fallback);
  });
}

// Never destroyed: its destructor would take the kernels away while other threads may still call them.
torch::Library& late_library() {
  static auto* library =
      new torch::Library(torch::Library::IMPL, "aten", c10::DispatchKey::PrivateUse1, __FILE__, __LINE__);
  return *library;
}

}  // namespace

void route_boxed(const std::string& name) {
  late_library().impl(name.c_str(), torch::CppFunction::makeFromBoxedFunction<&boxed_fallback>());
}

void enable_chip_kernels() {
  static std::mutex mutex;
  static std::unordered_set<std::string> installed;
  std::lock_guard<std::mutex> lock(mutex);
  const auto names = kernel_names();
  const bool bare = has_bare_chip();
  const auto& chips = runtime::Registry::get().chips();
  const bool overrides =
      std::any_of(chips.begin(), chips.end(), [](const auto& chip) { return !chip->fallbacks.empty(); });
  for (const TrampolineRow* row : all_trampolines()) {
    const std::string op = std::string("aten::") + row->name;
    if (!row->composite) continue;
    if (names.count(op) == 0 && !(bare && has_cpu_kernel(op)) && !(overrides && is_overridden(op))) continue;
    if (installed.insert(row->name).second) row->install(late_library(), row->name);
  }
  clear_plans();
}

}  // namespace torch_fl::glue
