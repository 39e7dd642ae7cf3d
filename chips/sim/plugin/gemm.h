// SPDX-License-Identifier: Apache-2.0
// The blocked matrix product, independent of where operands come from: callers supply how a panel of an operand is
// packed and how a finished tile is stored, so matrices of any strides and types and implicit convolutions share it.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "gemm_micro.h"
#include "parallel.h"
#include "workspace.h"

namespace fl_sim::nn {

constexpr int64_t kGemmDepth = 256;        // k block: a packed B panel stays in the L1 cache
constexpr int64_t kGemmColumns = 512;      // n block
constexpr int64_t kGemmRows = 504;         // m block: its packed k block stays in the L2 cache
constexpr int64_t kGemmPackedA = 4 << 20;  // elements of A that may be packed at once

inline int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

// Packs operand element (index, k) = base[index * index_stride + k * k_stride] into panels of `width` indices:
// target[(k - k0) * width + (index - i0)], zero beyond `count`.
template <class T, class Acc>
struct StridedPanels {
  const T* base;
  int64_t index_stride;
  int64_t k_stride;
  void operator()(Acc* target, int64_t i0, int64_t count, int64_t k0, int64_t depth, int64_t width) const {
    const T* source = base + i0 * index_stride + k0 * k_stride;
    for (int64_t k = 0; k < depth; ++k, source += k_stride, target += width) {
      if (index_stride == 1) {
        for (int64_t i = 0; i < count; ++i) target[i] = static_cast<Acc>(source[i]);
      } else {
        for (int64_t i = 0; i < count; ++i) target[i] = static_cast<Acc>(source[i * index_stride]);
      }
      for (int64_t i = count; i < width; ++i) target[i] = Acc(0);
    }
  }
};

// Stores out = alpha * product + beta * self; self is not read when beta is 0.
template <class T, class Acc>
struct MatrixStore {
  T* out;
  int64_t row_stride, column_stride;
  Acc alpha = Acc(1);
  Acc beta = Acc(0);
  const T* self = nullptr;
  int64_t self_row_stride = 0, self_column_stride = 0;
  void operator()(const Acc* tile, int64_t si, int64_t sj, int64_t i0, int64_t rows, int64_t j0,
                  int64_t columns) const {
    const bool plain = column_stride == 1 && sj == 1 && beta == Acc(0);
    for (int64_t i = 0; i < rows; ++i) {
      const Acc* t = tile + i * si;
      T* o = out + (i0 + i) * row_stride + j0 * column_stride;
      if (plain) {
        for (int64_t j = 0; j < columns; ++j) o[j] = static_cast<T>(alpha * t[j]);
        continue;
      }
      const T* s = self + (i0 + i) * self_row_stride + j0 * self_column_stride;
      for (int64_t j = 0; j < columns; ++j) {
        Acc value = alpha * t[j * sj];
        if (beta != Acc(0)) value += beta * static_cast<Acc>(s[j * self_column_stride]);
        o[j * column_stride] = static_cast<T>(value);
      }
    }
  }
};

// One product, with the operands possibly swapped so that the columns are the long side.
template <class Acc, class Rows, class Columns, class Store>
class GemmRun {
 public:
  GemmRun(int64_t m, int64_t n, int64_t k, const Rows& rows, const Columns& columns, const Store& store)
      : m_(m), n_(n), k_(k), rows_(rows), columns_(columns), store_(store), micro_(micro_kernel<Acc>()) {}

  void run() const {
    const double work =
        static_cast<double>(m_) * static_cast<double>(n_) * static_cast<double>(std::max<int64_t>(k_, 1));
    const int64_t nr = micro_.nr, mr = micro_.mr;
    const int64_t per_thread = ceil_div(ceil_div(n_, parallel_width(work)), nr) * nr;
    const int64_t nc = std::min(kGemmColumns, per_thread);
    const int64_t mb = std::min(ceil_div(kGemmRows, mr), ceil_div(m_, mr)) * mr;
    const bool packed = mb * k_ <= kGemmPackedA;
    for (int64_t i0 = 0; i0 < m_; i0 += mb) {
      const int64_t rows = std::min(mb, m_ - i0);
      const Acc* panels = packed ? pack_all_rows(i0, rows, work) : nullptr;
      parallel_for(ceil_div(n_, nc), work, [&](int64_t block) {
        const int64_t j0 = block * nc;
        run_block(panels, i0, rows, j0, std::min(nc, n_ - j0));
      });
    }
  }

 private:
  int64_t padded(int64_t rows) const { return ceil_div(rows, micro_.mr) * micro_.mr; }

  void pack_rows(Acc* target, int64_t i0, int64_t rows, int64_t k0, int64_t depth) const {
    for (int64_t i = 0; i < rows; i += micro_.mr, target += depth * micro_.mr) {
      rows_(target, i0 + i, std::min<int64_t>(micro_.mr, rows - i), k0, depth, micro_.mr);
    }
  }

  // All of k, one block of depth after the other.
  const Acc* pack_all_rows(int64_t i0, int64_t rows, double work) const {
    Acc* panels = workspace<Acc>(Slot::kPanelsA, padded(rows) * k_);
    parallel_for(ceil_div(k_, kGemmDepth), work / 64, [&](int64_t block) {
      const int64_t k0 = block * kGemmDepth;
      pack_rows(panels + k0 * padded(rows), i0, rows, k0, std::min(kGemmDepth, k_ - k0));
    });
    return panels;
  }

  void run_block(const Acc* packed, int64_t i0, int64_t rows, int64_t j0, int64_t columns) const {
    const int64_t nr = micro_.nr, mr = micro_.mr, row_panels = ceil_div(rows, mr);
    Acc* tiles = workspace<Acc>(Slot::kTiles, padded(rows) * ceil_div(columns, nr) * nr);
    Acc* b = workspace<Acc>(Slot::kPanelsB, kGemmDepth * (nr + (packed ? 0 : padded(rows))));
    Acc* own_a = b + kGemmDepth * nr;
    if (k_ == 0) std::memset(tiles, 0, sizeof(Acc) * padded(rows) * ceil_div(columns, nr) * nr);
    for (int64_t k0 = 0; k0 < k_; k0 += kGemmDepth) {
      const int64_t depth = std::min(kGemmDepth, k_ - k0);
      if (!packed) pack_rows(own_a, i0, rows, k0, depth);
      const Acc* a = packed ? packed + k0 * padded(rows) : own_a;
      for (int64_t j = 0, panel = 0; j < columns; j += nr, ++panel) {
        columns_(b, j0 + j, std::min(nr, columns - j), k0, depth, nr);
        Acc* tile = tiles + panel * row_panels * mr * nr;
        for (int64_t i = 0; i < row_panels; ++i, tile += mr * nr) {
          micro_.run(depth, a + i * mr * depth, b, tile, k0 != 0);
        }
      }
    }
    store_tiles(tiles, i0, rows, j0, columns);
  }

  void store_tiles(const Acc* tile, int64_t i0, int64_t rows, int64_t j0, int64_t columns) const {
    const int64_t nr = micro_.nr, mr = micro_.mr;
    for (int64_t j = 0; j < columns; j += nr) {
      for (int64_t i = 0; i < rows; i += mr, tile += mr * nr) {
        store_(tile, nr, 1, i0 + i, std::min(mr, rows - i), j0 + j, std::min(nr, columns - j));
      }
    }
  }

  const int64_t m_, n_, k_;
  const Rows& rows_;
  const Columns& columns_;
  const Store& store_;
  const MicroKernel<Acc>& micro_;
};

// product[i][j] = sum over k of rows(i, k) * columns(j, k), handed to store() tile by tile.
template <class Acc, class Rows, class Columns, class Store>
void gemm(int64_t m, int64_t n, int64_t k, const Rows& rows, const Columns& columns, const Store& store) {
  if (m == 0 || n == 0) return;
  if (m <= 2 * n || m <= 256) {
    GemmRun<Acc, Rows, Columns, Store>(m, n, k, rows, columns, store).run();
    return;
  }
  auto flipped = [&store](const Acc* tile, int64_t si, int64_t sj, int64_t i0, int64_t rows_, int64_t j0,
                          int64_t columns_) { store(tile, sj, si, j0, columns_, i0, rows_); };
  GemmRun<Acc, Columns, Rows, decltype(flipped)>(n, m, k, columns, rows, flipped).run();
}

}  // namespace fl_sim::nn
