// SPDX-License-Identifier: Apache-2.0
// Tiles of results that are summed in registers: what kernels/tile.h is told about one.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "dialect.h"
#include "launch.h"

namespace torch_fl::portable {

struct Tile {
  int rows, vectors, width;
  int columns() const { return vectors * width; }
};

/// The share of the fastest tile's speed that one reaches.
struct TileShare {
  Tile tile;
  double share;
};
/// The tiles to choose from, with what they reach on a CPU with 32 vector registers of 64 bytes; also those with narrow
/// vectors, after the wide ones.
std::vector<TileShare> tile_shares(fl_dtype dtype, bool narrow = false);
/// For `rows` rows: fast, and with few rows computed for nothing.
Tile best_tile(const std::vector<TileShare>& shares, int64_t rows);
inline Tile tile_for(fl_dtype dtype, int64_t rows) { return best_tile(tile_shares(dtype), rows); }

/// Macros for elements of `dtype` (A, T, LOAD, STORE) and for the tile, and kernels/tile.h.
std::string tile_head(fl_dtype dtype, const Tile& tile);

void add_tile(VariantKey& key, const Tile& tile);

}  // namespace torch_fl::portable
