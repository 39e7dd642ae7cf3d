// SPDX-License-Identifier: Apache-2.0
// From a descriptor's meaning to a chip. Private to the runtime.
#pragma once

#include <cstdint>
#include <string>
#include <utility>

#include "description.h"
#include "loader.h"

namespace torch_fl::runtime {

/// The library that it names. Throws Refused.
void* open_described(const Described& description);
/// Device and inode of the file; zeros if unknown.
std::pair<uint64_t, uint64_t> identity_of(void* library);
/// A plugin with what its descriptor says of it. Throws Refused, or Error.
LoadedPlugin load_plugin_described(const Described& description, void* library, const std::string& path);
/// Rules, overrides, fallbacks and policies. Throws Refused, or Error.
void attach_description(const Described& description, void* library, LoadedPlugin& plugin);

}  // namespace torch_fl::runtime
