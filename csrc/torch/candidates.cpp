// SPDX-License-Identifier: Apache-2.0
// Which rows of a chip's tables could serve an overload.
#include <map>
#include <mutex>
#include <string>
#include <unordered_map>
#include <utility>

#include "python_chip.h"
#include "router.h"
#include "settings.h"

namespace torch_fl::glue {

namespace {

using Index = std::unordered_map<std::string, const fl_kernel*>;

const fl_kernel* find_row(const std::vector<fl_kernel>& rows, const std::string& name) {
  static std::mutex mutex;
  static auto* indices = new std::map<const std::vector<fl_kernel>*, Index>();
  std::lock_guard<std::mutex> lock(mutex);
  auto [at, fresh] = indices->try_emplace(&rows);
  if (fresh) {
    for (const auto& k : rows) at->second.emplace(k.op, &k);
  }
  auto found = at->second.find(name);
  return found == at->second.end() ? nullptr : found->second;
}

}  // namespace

const fl_kernel* find_kernel(const runtime::Chip& chip, const std::string& name) {
  return find_row(chip.kernels, name);
}
const fl_kernel* find_portable(const runtime::Chip& chip, const std::string& name) {
  return find_row(chip.portable, name);
}

c10::SmallVector<Candidate, 2> candidates(const runtime::Chip& chip, const Entry& entry) {
  c10::SmallVector<Candidate, 2> found;
  const auto add = [&](const std::vector<fl_kernel>& rows, Route route) {
    const fl_kernel* row = find_row(rows, entry.name);
    if (row == nullptr && entry.kernel_name != entry.name) row = find_row(rows, entry.kernel_name);
    if (row != nullptr) found.push_back({row, route});
  };
  const Route first = first_route(entry);
  if (first <= Route::Kernel) add(chip.kernels, Route::Kernel);
  if (first <= Route::Portable) add(chip.portable, Route::Portable);
  if (found.size() == 2 && portable_first()) std::swap(found[0], found[1]);
  const bool asks_python = found.empty() && first <= Route::Kernel;
  if (const fl_kernel* row = asks_python ? python_row(chip, entry) : nullptr) found.push_back({row, Route::Kernel});
  if (first <= Route::Override) add(chip.overrides, Route::Override);
  return found;
}

const runtime::OpRules* find_rules(const runtime::Chip& chip, const fl_kernel& kernel) {
  if (chip.rules.empty()) return nullptr;
  const auto found = chip.rules.find(kernel.op);
  return found == chip.rules.end() ? nullptr : &found->second;
}

}  // namespace torch_fl::glue
