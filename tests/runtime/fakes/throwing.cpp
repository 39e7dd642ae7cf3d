// SPDX-License-Identifier: Apache-2.0
// A plugin that breaks the rule that no exception crosses the boundary.
#include <stdexcept>

#include "torch_fl/fl_plugin.h"

#ifdef THROW_IN_CONSTRUCTOR
namespace {
struct Thrower {
  Thrower() { throw std::runtime_error("the constructor is broken"); }
};
Thrower thrower;
}  // namespace
#endif

extern "C" const fl_plugin* fl_plugin_get(const fl_host*) {
#ifdef THROW_IN_GET
  throw std::runtime_error("get is broken");
#endif
  return nullptr;
}
