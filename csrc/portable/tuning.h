// SPDX-License-Identifier: Apache-2.0
// Which tile is fast on a device: measured once, remembered on disk. See docs/design/tuning.md.
#pragma once

#include <map>
#include <mutex>
#include <utility>
#include <vector>

#include "launch.h"
#include "tile.h"

namespace torch_fl::portable {

/// Of one chip. A row, for its compiled variants.
class Tuner : public Row {
 public:
  using Row::Row;

  struct Choice {
    Tile tile;
    int64_t items_per_unit;
  };
  /// For a problem with `rows` rows and so many multiplications. Measures first, where there are enough of them.
  Choice choose(const fl_call& call, fl_dtype dtype, int64_t rows, double multiplications);

 private:
  struct Known {
    std::vector<TileShare> shares;
    int64_t items_per_unit = kItemsPerUnit;
  };
  Known find_out(const fl_call& call, fl_dtype dtype);
  Known measure(const fl_call& call, fl_dtype dtype);
  struct Trial {
    Tile tile;
    int64_t items_per_unit;
    fl_module module;
    double speed;  ///< multiplications per nanosecond
  };
  class Progress;
  Trial prepare(const fl_call& call, fl_dtype dtype, const Tile& tile, Progress& progress);
  void race(const fl_call& call, fl_dtype dtype, std::vector<Trial>& trials, Progress& progress);

  void wait(const fl_call& call);

  std::mutex mutex_;
  std::map<std::pair<int32_t, fl_dtype>, Known> known_;
};

/// The one of this chip.
Tuner& tuner_of(runtime::Chip& chip, Language language);

}  // namespace torch_fl::portable
