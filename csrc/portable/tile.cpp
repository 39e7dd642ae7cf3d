// SPDX-License-Identifier: Apache-2.0
#include "tile.h"

#include "text.h"

namespace torch_fl::portable {
namespace {

std::string define(const std::string& name, const std::string& value) { return "#define " + name + " " + value + "\n"; }

}  // namespace

std::vector<TileShare> tile_shares(fl_dtype dtype, bool narrow) {
  struct Shape {
    int rows, vectors;
    double share;
  };
  constexpr Shape kWide[] = {{12, 2, 1.0}, {8, 3, 1.0}, {6, 4, 0.98}, {4, 4, 0.8}, {2, 6, 0.55}, {1, 4, 0.3}};
  constexpr Shape kNarrow[] = {{6, 2, 0.5}, {4, 3, 0.5}, {2, 4, 0.3}, {1, 4, 0.2}};
  std::vector<TileShare> shares;
  if (!is_floating(dtype)) {
    for (const int rows : {4, 2, 1}) shares.push_back({{rows, 4, 1}, rows / 4.0});
    return shares;
  }
  const int width = dtype == FL_FLOAT64 ? 8 : 16;
  for (const Shape& shape : kWide) shares.push_back({{shape.rows, shape.vectors, width}, shape.share});
  if (!narrow) return shares;
  for (const Shape& shape : kNarrow) shares.push_back({{shape.rows, shape.vectors, width / 2}, shape.share});
  return shares;
}

Tile best_tile(const std::vector<TileShare>& shares, int64_t rows) {
  const TileShare* best = nullptr;
  double least = 0;
  for (const TileShare& one : shares) {
    const double cost = static_cast<double>((rows + one.tile.rows - 1) / one.tile.rows * one.tile.rows) / one.share;
    if (best == nullptr || cost < least) least = cost, best = &one;
  }
  return best->tile;
}

std::string tile_head(fl_dtype dtype, const Tile& tile) {
  const std::string type = type_name(dtype), a = arithmetic_name(dtype);
  std::string head = define("A", a) + define("T", type) + define("LOAD(p, i)", "LOAD_" + type + "(p, i)") +
                     define("STORE(p, i, v)", "STORE_" + type + "(p, i, v)") + define("BITS(x)", "BITS_" + a + "(x)") +
                     define("ROWS", std::to_string(tile.rows)) + define("VECTORS", std::to_string(tile.vectors)) +
                     define("WIDTH", std::to_string(tile.width));
  if (tile.width == 1) {
    head += define("VEC", a) + define("VEC_ZERO", "0") + define("VEC_LOAD(p)", "(*(p))") +
            define("VEC_STORE(v, p)", "(*(p) = (v))");
  } else {
    const std::string vector = a + "x" + std::to_string(tile.width);
    head += define("VEC", vector) + define("VEC_ZERO", "ZERO_" + vector) +
            define("VEC_LOAD(p)", "VLOAD_" + vector + "(p)") + define("VEC_STORE(v, p)", "VSTORE_" + vector + "(v, p)");
  }
  std::string rows, vectors;
  for (int r = 0; r < tile.rows; ++r) rows += " F(" + std::to_string(r) + ")";
  for (int v = 0; v < tile.vectors; ++v) vectors += " F(r, " + std::to_string(v) + ")";
  return head + define("EACH_ROW(F)", rows) + define("EACH_VECTOR(F, r)", vectors) + text_of("tile.h");
}

void add_tile(VariantKey& key, const Tile& tile) {
  key.add(static_cast<uint32_t>(tile.rows));
  key.add(static_cast<uint32_t>(tile.vectors));
  key.add(static_cast<uint32_t>(tile.width));
}

}  // namespace torch_fl::portable
