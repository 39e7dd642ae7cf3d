/* SPDX-License-Identifier: Apache-2.0
 * A shared library that is no plugin. */
#include "torch_fl/fl_plugin.h"

FL_EXPORT int fl_test_not_a_plugin(void);
int fl_test_not_a_plugin(void) { return 1; }
