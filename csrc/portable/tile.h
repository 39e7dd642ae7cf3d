// SPDX-License-Identifier: Apache-2.0
// Tiles of results that are summed in registers: what kernels/tile.h is told about one.
#pragma once

#include <cstdint>
#include <string>

#include "dialect.h"
#include "launch.h"

namespace torch_fl::portable {

struct Tile {
  int rows, vectors, width;
  int columns() const { return vectors * width; }
};

/// For products with `rows` rows: as few rows as possible are computed for nothing.
Tile tile_for(fl_dtype dtype, int64_t rows);

/// Macros for elements of `dtype` (A, T, LOAD, STORE) and for the tile, and kernels/tile.h.
std::string tile_head(fl_dtype dtype, const Tile& tile);

void add_tile(VariantKey& key, const Tile& tile);

}  // namespace torch_fl::portable
