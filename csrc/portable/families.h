// SPDX-License-Identifier: Apache-2.0
// The families of portable kernels; each makes its rows for one chip.
#pragma once

#include <vector>

#include "dialect.h"
#include "runtime/device.h"

namespace torch_fl::portable {

using Rows = std::vector<fl_kernel>;

void add_pointwise(Rows& rows, runtime::Chip& chip, Language language);
void add_reductions(Rows& rows, runtime::Chip& chip, Language language);
void add_statistics(Rows& rows, runtime::Chip& chip, Language language);
void add_products(Rows& rows, runtime::Chip& chip, Language language);
void add_convolutions(Rows& rows, runtime::Chip& chip, Language language);
void add_softmax(Rows& rows, runtime::Chip& chip, Language language);
void add_pooling(Rows& rows, runtime::Chip& chip, Language language);
void add_resampling(Rows& rows, runtime::Chip& chip, Language language);
void add_grid_samplers(Rows& rows, runtime::Chip& chip, Language language);
void add_margins(Rows& rows, runtime::Chip& chip, Language language);
void add_gated(Rows& rows, runtime::Chip& chip, Language language);
void add_ctc(Rows& rows, runtime::Chip& chip, Language language);
void add_norms(Rows& rows, runtime::Chip& chip, Language language);
void add_losses(Rows& rows, runtime::Chip& chip, Language language);
void add_optimizers(Rows& rows, runtime::Chip& chip, Language language);
void add_attention(Rows& rows, runtime::Chip& chip, Language language);
void add_solvers(Rows& rows, runtime::Chip& chip, Language language);
void add_decompositions(Rows& rows, runtime::Chip& chip, Language language);
void add_random(Rows& rows, runtime::Chip& chip, Language language);
void add_indexing(Rows& rows, runtime::Chip& chip, Language language);
void add_selecting(Rows& rows, runtime::Chip& chip, Language language);
void add_searches(Rows& rows, runtime::Chip& chip, Language language);
void add_bags(Rows& rows, runtime::Chip& chip, Language language);
void add_shapes(Rows& rows, runtime::Chip& chip, Language language);
void add_places(Rows& rows, runtime::Chip& chip, Language language);
void add_padding(Rows& rows, runtime::Chip& chip, Language language);
void add_scans(Rows& rows, runtime::Chip& chip, Language language);
void add_sorting(Rows& rows, runtime::Chip& chip, Language language);
void add_distances(Rows& rows, runtime::Chip& chip, Language language);
void add_histograms(Rows& rows, runtime::Chip& chip, Language language);
void add_transforms(Rows& rows, runtime::Chip& chip, Language language);

}  // namespace torch_fl::portable
