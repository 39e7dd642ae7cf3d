// SPDX-License-Identifier: Apache-2.0
// Compiled source of one device: made once, kept in memory, and on disk for the next process. Torch-free.
#pragma once

#include <future>
#include <mutex>
#include <string>
#include <unordered_map>

#include "torch_fl/fl_plugin.h"

namespace torch_fl::runtime {

class Device;

class Modules {
 public:
  explicit Modules(Device& device) : device_(device) {}

  /// The module of this source. The first call compiles, or reads what an earlier process compiled; others with the
  /// same text wait for it. Modules live as long as the process. Throws Error: the chip has no compiler, or what the
  /// compiler says.
  fl_module get(const std::string& source);

 private:
  struct Key;
  fl_module make(const Key& key, const std::string& source);
  fl_module compile(const std::string& source);
  fl_module from_disk(const Key& key, const std::string& path);
  void to_disk(const Key& key, const std::string& path, fl_module module);
  const std::string& identity();

  Device& device_;
  std::mutex mutex_;
  std::string identity_;
  std::unordered_map<std::string, std::shared_future<fl_module>> made_;
};

/// Where modules are kept: $TORCH_FL_CACHE_DIR/modules, else $XDG_CACHE_HOME/torch-fl/modules, else
/// ~/.cache/torch-fl/modules. Empty: nowhere (the variable is set and empty, or there is no home).
std::string module_folder();

}  // namespace torch_fl::runtime
