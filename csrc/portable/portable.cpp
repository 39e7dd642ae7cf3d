// SPDX-License-Identifier: Apache-2.0
#include "portable.h"

#include "families.h"

namespace torch_fl::portable {

void equip(runtime::Chip& chip) {
  if (!chip.has_compiler || !chip.portable.empty()) return;
  const auto language = language_of(chip.compiler.dialect);
  if (!language.has_value()) {
    runtime::log(FL_LOG_WARNING, chip.name + " compiles the dialect '" + chip.compiler.dialect +
                                     "', for which there are no portable kernels (there are for opencl-c and c99)");
    return;
  }
  Rows rows;
  add_pointwise(rows, chip, *language);
  add_reductions(rows, chip, *language);
  add_statistics(rows, chip, *language);
  add_products(rows, chip, *language);
  add_convolutions(rows, chip, *language);
  add_softmax(rows, chip, *language);
  add_pooling(rows, chip, *language);
  add_resampling(rows, chip, *language);
  add_grid_samplers(rows, chip, *language);
  add_margins(rows, chip, *language);
  add_gated(rows, chip, *language);
  add_ctc(rows, chip, *language);
  add_norms(rows, chip, *language);
  add_losses(rows, chip, *language);
  add_optimizers(rows, chip, *language);
  add_attention(rows, chip, *language);
  add_solvers(rows, chip, *language);
  add_decompositions(rows, chip, *language);
  add_random(rows, chip, *language);
  add_indexing(rows, chip, *language);
  add_selecting(rows, chip, *language);
  add_searches(rows, chip, *language);
  add_bags(rows, chip, *language);
  add_shapes(rows, chip, *language);
  add_places(rows, chip, *language);
  add_padding(rows, chip, *language);
  add_scans(rows, chip, *language);
  add_sorting(rows, chip, *language);
  add_distances(rows, chip, *language);
  add_histograms(rows, chip, *language);
  add_transforms(rows, chip, *language);
  chip.portable = std::move(rows);
}

}  // namespace torch_fl::portable
