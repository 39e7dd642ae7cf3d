// SPDX-License-Identifier: Apache-2.0
// The chip's kernel table: all families in one list.
#include <vector>

#include "families.h"
#include "nn_families.h"
#include "plugin.h"

namespace fl_sim {

std::span<const fl_kernel* const> all_kernels() {
  static const std::vector<const fl_kernel*> table = [] {
    std::vector<const fl_kernel*> rows;
    for (const Family family :
         {copy_family(),   pointwise_family(), element_loss_family(), shape_family(),       reduce_family(),
          scan_family(),   random_family(),    matmul_family(),       convolution_family(), pooling_family(),
          norm_family(),   softmax_family(),   loss_family(),         embedding_family(),   index_family(),
          select_family(), scatter_family(),   cat_family(),          sort_family(),        resample_family(),
          unfold_family(), optimizer_family()})
      for (const fl_kernel& kernel : family) rows.push_back(&kernel);
    return rows;
  }();
  return table;
}

}  // namespace fl_sim
