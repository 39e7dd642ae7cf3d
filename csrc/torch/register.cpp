// SPDX-License-Identifier: Apache-2.0
#include "register.h"

#include <torch/library.h>

#include <mutex>
#include <unordered_set>

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

std::unordered_set<std::string> kernel_names() {
  // PyTorch's composite for this one asks a table of in-tree devices.
  std::unordered_set<std::string> names{"aten::conj_physical_"};
  for (const auto& chip : runtime::Registry::get().chips()) {
    for (const auto& kernel : chip->kernels) {
      const std::string op = kernel.op;
      names.insert(op);
      names.insert(in_place_form(op));
    }
  }
  return names;
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
  for (const TrampolineRow* row : all_trampolines()) {
    if (!row->composite || names.count(std::string("aten::") + row->name) == 0) continue;
    if (installed.insert(row->name).second) row->install(late_library(), row->name);
  }
  clear_plans();
}

}  // namespace torch_fl::glue
