// SPDX-License-Identifier: Apache-2.0
// The kernel tables of the neural-network, matrix and indexing families; kernels.cpp joins them to the chip's table.
#pragma once

#include "launch.h"

namespace fl_sim {

Family matmul_family();
Family convolution_family();
Family pooling_family();
Family norm_family();
Family softmax_family();
Family loss_family();
Family embedding_family();
Family index_family();
Family select_family();
Family scatter_family();
Family cat_family();
Family resample_family();
Family unfold_family();
Family sort_family();
Family optimizer_family();

}  // namespace fl_sim
