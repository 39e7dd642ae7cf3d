// SPDX-License-Identifier: Apache-2.0
// fl_plugin.h compiles as C++11, and its macros work there.
#include "torch_fl/fl_plugin.h"

bool fl_test_header_cxx11(const fl_plugin* plugin);
bool fl_test_header_cxx11(const fl_plugin* plugin) {
  return FL_HAS(plugin, tuning) && (FL_DTYPE_BIT(FL_FLOAT8_E8M0FNU) >> FL_FLOAT8_E8M0FNU) == 1;
}
