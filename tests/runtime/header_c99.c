/* SPDX-License-Identifier: Apache-2.0
 * fl_plugin.h compiles as strict C99, twice, and its macros work there. */
#include "torch_fl/fl_plugin.h"

int fl_test_header_c99(const fl_plugin* plugin);
int fl_test_header_c99(const fl_plugin* plugin) {
  return FL_HAS(plugin, tuning) && (FL_DTYPE_BIT(FL_FLOAT8_E8M0FNU) >> FL_FLOAT8_E8M0FNU) == 1;
}
