// SPDX-License-Identifier: Apache-2.0
// From a file to a validated chip. Private to the runtime.
#pragma once

#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "device.h"

namespace torch_fl::runtime {

/// Why a plugin is skipped: what was expected and what was found.
class Refused : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

struct LoadedPlugin {
  std::unique_ptr<Chip> chip;
  std::vector<fl_device_properties> devices;
  std::string note;  ///< what does not work although the plugin was loaded
};

/// Throws Refused. Whatever the file is, nothing crashes; what a plugin's own code does while it runs is its affair.
LoadedPlugin load_plugin(const std::string& path);

/// Opens a library: a file after it was checked, or a bare name by the dynamic linker's own rules. Throws Refused.
void* open_library(const std::string& path_or_name);
/// Whether it has the entry point of a plugin.
bool is_plugin(void* library);
/// Throws Refused, as load_plugin() does.
LoadedPlugin plugin_of(void* library, const std::string& path);
/// The file that a library was loaded from; empty if unknown.
std::string file_of(void* library);

/// Copies and checks everything reachable from `plugin`. Throws Refused.
LoadedPlugin validate_plugin(const fl_plugin* plugin);

// The struct sizes of ABI 1.0, frozen: no plugin may declare less. Bounds of what a sane plugin declares.
namespace abi_1_0 {
constexpr uint32_t kKernel = 56, kDeviceApi = 48, kMemoryApi = 104, kStreamApi = 104, kCompilerApi = 64;
constexpr uint32_t kGraphApi = 64, kCollectivesApi = 96, kProfilerApi = 48, kTuningApi = 24, kPlugin = 112;
}  // namespace abi_1_0
constexpr uint32_t kMaxStructSize = 64 << 10;
constexpr uint32_t kMaxKernels = 100000;

}  // namespace torch_fl::runtime
