// SPDX-License-Identifier: Apache-2.0
// What the files compiled once per instruction set offer. isa.cpp picks a set when the plugin is loaded.
#pragma once

#include "kinds.h"

#define FL_SIM_DECLARE_ISA(isa)          \
  namespace fl_sim::isa {                \
  const Converters& converter_table();   \
  PointwiseTable binary_table();         \
  PointwiseTable compare_table();        \
  PointwiseTable unary_table();          \
  PointwiseTable activation_table();     \
  PointwiseTable loss_backward_table();  \
  ElementLossTable element_loss_table(); \
  const ReduceLoops& reduce_loops();     \
  }

namespace fl_sim {
struct ReduceLoops;
struct ElementLossTable;
}  // namespace fl_sim
FL_SIM_DECLARE_ISA(base)
FL_SIM_DECLARE_ISA(avx2)

namespace fl_sim {
/// True where the CPU has AVX2, FMA and F16C and the plugin has loops for them.
bool use_avx2();
}  // namespace fl_sim

#if defined(FL_SIM_HAVE_AVX2)
#define FL_SIM_PICK(function) (fl_sim::use_avx2() ? fl_sim::avx2::function() : fl_sim::base::function())
#else
#define FL_SIM_PICK(function) (fl_sim::base::function())
#endif
