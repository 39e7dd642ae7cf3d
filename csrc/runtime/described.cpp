// SPDX-License-Identifier: Apache-2.0
// What a descriptor adds to a chip: rules, overrides, policies.
#include "described.h"

#include <sys/stat.h>

#include <algorithm>
#include <memory>

#include "expression.h"
#include "library_chip.h"

namespace torch_fl::runtime {
namespace {

void verify_rules(const std::string& op, const OpRules& rules) {
  for (const Check& check : rules.checks) {
    try {
      verify(check.holds);
      if (!check.found.empty()) verify(check.found);
    } catch (const Error& error) {
      throw Refused("a constraint of " + op + ": " + error.what());
    }
  }
}

bool has_row(const Chip& chip, const std::string& op) {
  return std::any_of(chip.kernels.begin(), chip.kernels.end(), [&](const fl_kernel& row) { return op == row.op; });
}

/// op, or one of its overloads.
bool has_any_row(const Chip& chip, const std::string& op) {
  return std::any_of(chip.kernels.begin(), chip.kernels.end(), [&](const fl_kernel& row) {
    const std::string name = row.op;
    return name == op || name.compare(0, op.size() + 1, op + ".") == 0;
  });
}

void attach_rules(const Described& d, Chip& chip) {
  for (const std::string& op : d.required_rules) {
    if (!has_any_row(chip, op)) {
      throw Refused("there are rules for " + op + ", but the chip " + chip.name +
                    " has no kernel for it; give it an impl, or leave it out");
    }
  }
  for (const auto& [op, rules] : d.rules) {
    verify_rules(op, rules);
    if (has_row(chip, op)) chip.rules[op] = rules;
  }
  const OpRules& all = d.defaults;
  if (all.flags == 0 && all.alignment == 0) return;
  for (const fl_kernel& row : chip.kernels) chip.rules.try_emplace(row.op, all);
}

void add_native_rows(const Described& d, void* library, Chip& chip) {
  for (const fl_kernel& row : native_rows(d.kernels, library)) {
    if (has_row(chip, row.op)) {
      throw Refused(std::string(row.op) +
                    " has a kernel in the plugin's own table; to constrain that one, leave out impl");
    }
    chip.kernels.push_back(row);
  }
}

}  // namespace

void attach_description(const Described& d, void* library, LoadedPlugin& plugin) {
  Chip& chip = *plugin.chip;
  chip.device_type = d.device_type;
  chip.policy = d.policy;
  chip.overrides = native_rows(d.overrides, library);
  for (const auto& [op, fallback] : d.fallbacks) chip.fallbacks[op] = fallback;
  attach_rules(d, chip);
  if (d.properties.dtypes == 0) return;
  for (fl_device_properties& device : plugin.devices) {
    const uint64_t both = (device.dtypes == 0 ? ~uint64_t{0} : device.dtypes) & d.properties.dtypes;
    if (both == 0) throw Refused("capabilities.dtypes has none of the types that the plugin computes in");
    device.dtypes = both;
  }
}

LoadedPlugin load_plugin_described(const Described& d, void* library, const std::string& path) {
  if (std::any_of(d.kernels.begin(), d.kernels.end(), [](const DescribedKernel& k) { return k.plain; })) {
    throw Refused("the library is a Torch-FL plugin, whose functions have the type fl_kernel_fn: leave out signature");
  }
  LoadedPlugin plugin = plugin_of(library, path);
  add_native_rows(d, library, *plugin.chip);
  attach_description(d, library, plugin);
  return plugin;
}

void* open_described(const Described& d) {
  try {
    return open_library(d.library);
  } catch (const Refused& refused) {
    const std::string where = d.library_where.empty() ? "" : d.library_where + ": ";
    throw Refused(where + "the library " + d.library + " cannot be used: " + refused.what());
  }
}

std::pair<uint64_t, uint64_t> identity_of(void* library) {
  struct stat status{};
  const std::string file = file_of(library);
  if (file.empty() || stat(file.c_str(), &status) != 0) return {0, 0};
  return {status.st_dev, status.st_ino};
}

}  // namespace torch_fl::runtime
