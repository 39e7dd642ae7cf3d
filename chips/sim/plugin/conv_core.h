// SPDX-License-Identifier: Apache-2.0
// Convolution as a matrix product whose operand panels are gathered straight from the image (no im2col buffer).
//
// Everything is expressed on a lattice of points in up to three dimensions. A "tap" is one position of the filter: it
// contributes source[point * step + tap.offset] * weight. A plain convolution is one lattice (the output); its gradient
// with respect to the input, and a transposed convolution, are one lattice per residue of the stride.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <vector>

#include "gemm.h"

namespace fl_sim::nn {

using Triple = std::array<int64_t, 3>;
inline int64_t product(const Triple& t) { return t[0] * t[1] * t[2]; }

struct ConvTap {
  Triple offset;
  int64_t weight_offset;
};

struct ConvLattice {
  int64_t images = 0;
  Triple points{};              // extent of the lattice
  Triple step{1, 1, 1};         // source coordinates per point
  Triple source{};              // extent of the source image
  int64_t source_channels = 0;  // of all groups: the stride of an image
  std::vector<ConvTap> taps;
};

// A stretch of points along the last dimension within one image.
struct PointRun {
  int64_t image;
  Triple at;
  int64_t first;  // position within the panel
  int64_t length;
};

// Calls visit(run) for the stretches that make up points [start, start + count) of all images.
template <class Visit>
void for_each_run(const Triple& points, int64_t start, int64_t count, const Visit& visit) {
  int64_t rest = start;
  PointRun run{};
  run.at[2] = rest % points[2];
  rest /= points[2];
  run.at[1] = rest % points[1];
  rest /= points[1];
  run.at[0] = rest % points[0];
  run.image = rest / points[0];
  while (count > 0) {
    run.length = std::min(count, points[2] - run.at[2]);
    visit(static_cast<const PointRun&>(run));
    count -= run.length;
    run.first += run.length;
    run.at[2] = 0;
    if (++run.at[1] < points[1]) continue;
    run.at[1] = 0;
    if (++run.at[0] < points[0]) continue;
    run.at[0] = 0;
    ++run.image;
  }
}

// What one tap reads for one run: elements [low, high) of the run come from source + offset + element * step, the rest
// lies outside the image.
struct TapSpan {
  int64_t offset;
  int32_t first, length, low, high;
};

inline TapSpan tap_span(const ConvLattice& lattice, const ConvTap& tap, const PointRun& run) {
  TapSpan span{0, static_cast<int32_t>(run.first), static_cast<int32_t>(run.length), 0, 0};
  const Triple& size = lattice.source;
  const int64_t z = run.at[0] * lattice.step[0] + tap.offset[0];
  const int64_t y = run.at[1] * lattice.step[1] + tap.offset[1];
  if (z < 0 || z >= size[0] || y < 0 || y >= size[1]) return span;
  const int64_t x = run.at[2] * lattice.step[2] + tap.offset[2], step = lattice.step[2];
  const int64_t low = x >= 0 ? 0 : ceil_div(-x, step);
  const int64_t high = x >= size[2] ? 0 : std::min(run.length, ceil_div(size[2] - x, step));
  if (low >= high) return span;
  span.low = static_cast<int32_t>(low);
  span.high = static_cast<int32_t>(high);
  span.offset = (run.image * lattice.source_channels * size[0] + z) * size[1] * size[2] + y * size[2] + x;
  return span;
}

// Panels of the gathered image: index = point, k = channel * taps + tap.
template <class T, class Acc>
struct ConvColumns {
  const ConvLattice* lattice;
  const T* source;  // of the first channel of the group

  void operator()(Acc* target, int64_t j0, int64_t count, int64_t k0, int64_t depth, int64_t width) const {
    thread_local std::vector<TapSpan> spans;
    const int64_t taps = static_cast<int64_t>(lattice->taps.size());
    const int64_t runs = find_spans(spans, j0, count, k0, depth);
    const int64_t channel_stride = product(lattice->source), step = lattice->step[2];
    int64_t tap = k0 % taps;
    const T* channel = source + k0 / taps * channel_stride;
    for (int64_t k = 0; k < depth; ++k, target += width) {
      const TapSpan* span = spans.data() + tap * runs;
      for (int64_t r = 0; r < runs; ++r) copy_span(target + span[r].first, span[r], channel, step);
      for (int64_t i = count; i < width; ++i) target[i] = Acc(0);
      if (++tap == taps) {
        tap = 0;
        channel += channel_stride;
      }
    }
  }

 private:
  int64_t find_spans(std::vector<TapSpan>& spans, int64_t j0, int64_t count, int64_t k0, int64_t depth) const {
    const int64_t taps = static_cast<int64_t>(lattice->taps.size());
    std::array<PointRun, 64> list;  // a panel is at most 64 wide
    int64_t runs = 0;
    for_each_run(lattice->points, j0, count, [&](const PointRun& run) { list[runs++] = run; });
    spans.resize(static_cast<size_t>(taps * runs));
    for (int64_t i = 0; i < std::min(taps, depth); ++i) {
      const int64_t tap = (k0 + i) % taps;
      for (int64_t r = 0; r < runs; ++r) spans[tap * runs + r] = tap_span(*lattice, lattice->taps[tap], list[r]);
    }
    return runs;
  }

  static void copy_span(Acc* target, const TapSpan& span, const T* channel, int64_t step) {
    const T* from = channel + span.offset;
    for (int32_t i = 0; i < span.low; ++i) target[i] = Acc(0);
    if (step == 1) {
      for (int32_t i = span.low; i < span.high; ++i) target[i] = static_cast<Acc>(from[i]);
    } else {
      for (int32_t i = span.low; i < span.high; ++i) target[i] = static_cast<Acc>(from[i * step]);
    }
    for (int32_t i = span.high; i < span.length; ++i) target[i] = Acc(0);
  }
};

// Panels of the filter: index = target channel, k = source channel * taps + tap.
template <class T, class Acc>
struct ConvFilterRows {
  const ConvLattice* lattice;
  const T* weight;
  int64_t row_stride, channel_stride;

  void operator()(Acc* target, int64_t i0, int64_t count, int64_t k0, int64_t depth, int64_t width) const {
    const int64_t taps = static_cast<int64_t>(lattice->taps.size());
    int64_t tap = k0 % taps;
    const T* channel = weight + i0 * row_stride + k0 / taps * channel_stride;
    for (int64_t k = 0; k < depth; ++k, target += width) {
      const T* from = channel + lattice->taps[tap].weight_offset;
      for (int64_t i = 0; i < count; ++i) target[i] = static_cast<Acc>(from[i * row_stride]);
      for (int64_t i = count; i < width; ++i) target[i] = Acc(0);
      if (++tap == taps) {
        tap = 0;
        channel += channel_stride;
      }
    }
  }
};

// Writes a tile of (channel, point) into a dense target image at the lattice's places.
template <class T, class Acc>
struct ConvStore {
  const ConvLattice* lattice;
  T* target;  // of the first channel of the group and the first point of the lattice
  Triple target_size;
  Triple target_step;
  int64_t target_channels;
  const T* bias;  // of the first channel of the group; may be null

  void operator()(const Acc* tile, int64_t si, int64_t sj, int64_t i0, int64_t rows, int64_t j0, int64_t count) const {
    const int64_t plane = product(target_size), step = target_step[2];
    for_each_run(lattice->points, j0, count, [&](const PointRun& run) {
      const int64_t z = run.at[0] * target_step[0], y = run.at[1] * target_step[1], x = run.at[2] * step;
      T* out = target + (run.image * target_channels + i0) * plane + (z * target_size[1] + y) * target_size[2] + x;
      for (int64_t i = 0; i < rows; ++i, out += plane) {
        const Acc* from = tile + i * si + run.first * sj;
        const Acc add = bias ? static_cast<Acc>(bias[i0 + i]) : Acc(0);
        for (int64_t l = 0; l < run.length; ++l) out[l * step] = static_cast<T>(from[l * sj] + add);
      }
    });
  }
};

// Rows for the filter's gradient: index = channel, k = point of all images; the image is as large as the lattice.
template <class T, class Acc>
struct PointRows {
  const T* base;  // of the first channel of the group
  int64_t channels, points;

  void operator()(Acc* target, int64_t i0, int64_t count, int64_t k0, int64_t depth, int64_t width) const {
    int64_t image = k0 / points, point = k0 % points;
    while (depth > 0) {
      const int64_t length = std::min(depth, points - point);
      const T* from = base + (image * channels + i0) * points + point;
      for (int64_t k = 0; k < length; ++k, target += width) {
        for (int64_t i = 0; i < count; ++i) target[i] = static_cast<Acc>(from[i * points + k]);
        for (int64_t i = count; i < width; ++i) target[i] = Acc(0);
      }
      depth -= length;
      point = 0;
      ++image;
    }
  }
};

// Columns for the filter's gradient: index = channel * taps + tap, k = point of all images.
template <class T, class Acc>
struct ConvTransposedColumns {
  const ConvLattice* lattice;
  const T* source;  // of the first channel of the group

  void operator()(Acc* target, int64_t j0, int64_t count, int64_t k0, int64_t depth, int64_t width) const {
    const int64_t taps = static_cast<int64_t>(lattice->taps.size()), step = lattice->step[2];
    const int64_t channel_stride = product(lattice->source);
    for_each_run(lattice->points, k0, depth, [&](const PointRun& run) {
      Acc* rows = target + run.first * width;
      for (int64_t j = 0; j < count; ++j) {
        const int64_t channel = (j0 + j) / taps;
        const TapSpan span = tap_span(*lattice, lattice->taps[(j0 + j) % taps], run);
        const T* from = source + channel * channel_stride + span.offset;
        for (int64_t k = 0; k < span.low; ++k) rows[k * width + j] = Acc(0);
        for (int64_t k = span.low; k < span.high; ++k) rows[k * width + j] = static_cast<Acc>(from[k * step]);
        for (int64_t k = span.high; k < span.length; ++k) rows[k * width + j] = Acc(0);
      }
    });
    for (int64_t k = 0; k < depth; ++k) {
      for (int64_t j = count; j < width; ++j) target[k * width + j] = Acc(0);
    }
  }
};

// The geometry of one convolution, as the forward one sees it: `large` is the image that the filter slides over,
// `small` the image with one point per position of the filter. They trade places in a transposed convolution.
struct ConvGeometry {
  int64_t images = 0, groups = 1;
  int64_t small_channels = 0, large_channels = 0;  // of all groups
  Triple small{1, 1, 1}, large{1, 1, 1}, filter{1, 1, 1};
  Triple stride{1, 1, 1}, padding{0, 0, 0}, dilation{1, 1, 1};
  // The filter is [small channel][large channel of the group][taps] in both cases.
  int64_t filter_taps() const { return product(filter); }
  int64_t small_per_group() const { return small_channels / groups; }
  int64_t large_per_group() const { return large_channels / groups; }
};

template <class Visit>
void for_each_tap(const Triple& filter, const Visit& visit) {
  int64_t index = 0;
  for (int64_t z = 0; z < filter[0]; ++z) {
    for (int64_t y = 0; y < filter[1]; ++y) {
      for (int64_t x = 0; x < filter[2]; ++x) visit(Triple{z, y, x}, index++);
    }
  }
}

// The lattice of the small image, read from the large one. A filter of one tap without stride and padding is flattened
// so that runs are whole images.
inline ConvLattice small_lattice(const ConvGeometry& g) {
  ConvLattice lattice{g.images, g.small, g.stride, g.large, g.large_channels, {}};
  for_each_tap(g.filter, [&](const Triple& at, int64_t index) {
    Triple offset;
    for (int d = 0; d < 3; ++d) offset[d] = at[d] * g.dilation[d] - g.padding[d];
    lattice.taps.push_back({offset, index});
  });
  if (g.filter_taps() == 1 && product(g.stride) == 1 && g.padding == Triple{0, 0, 0} && g.small == g.large) {
    lattice.points = lattice.source = {1, 1, product(g.small)};
  }
  return lattice;
}

inline int64_t floor_mod(int64_t a, int64_t b) { return ((a % b) + b) % b; }
inline int64_t floor_div(int64_t a, int64_t b) { return (a - floor_mod(a, b)) / b; }

// The points of the large image whose coordinates are `residue` modulo the stride, read from the small image.
inline ConvLattice large_lattice(const ConvGeometry& g, const Triple& residue) {
  ConvLattice lattice{g.images, {}, {1, 1, 1}, g.small, g.small_channels, {}};
  for (int d = 0; d < 3; ++d) lattice.points[d] = std::max<int64_t>(0, ceil_div(g.large[d] - residue[d], g.stride[d]));
  for_each_tap(g.filter, [&](const Triple& at, int64_t index) {
    Triple offset;
    for (int d = 0; d < 3; ++d) {
      const int64_t shift = residue[d] + g.padding[d] - at[d] * g.dilation[d];
      if (floor_mod(shift, g.stride[d]) != 0) return;
      offset[d] = floor_div(shift, g.stride[d]);
    }
    lattice.taps.push_back({offset, index});
  });
  return lattice;
}

// small = filter applied to large (+ bias): a convolution, or the input's gradient of a transposed one.
template <class T, class Acc>
void conv_to_small(const ConvGeometry& g, const T* large, const T* weight, const T* bias, T* small) {
  const ConvLattice lattice = small_lattice(g);
  const int64_t mg = g.small_per_group(), cg = g.large_per_group(), taps = g.filter_taps();
  const bool flat = lattice.points != g.small;
  for (int64_t group = 0; group < g.groups; ++group) {
    const T* w = weight + group * mg * cg * taps;
    ConvFilterRows<T, Acc> rows{&lattice, w, cg * taps, taps};
    ConvColumns<T, Acc> columns{&lattice, large + group * cg * product(g.large)};
    ConvStore<T, Acc> store{
        &lattice,         small + group * mg * product(g.small), flat ? lattice.points : g.small, {1, 1, 1},
        g.small_channels, bias ? bias + group * mg : nullptr};
    gemm<Acc>(mg, g.images * product(g.small), cg * taps, rows, columns, store);
  }
}

// large = transposed filter applied to small (+ bias): the input's gradient of a convolution, or a transposed one.
template <class T, class Acc>
void conv_to_large(const ConvGeometry& g, const T* small, const T* weight, const T* bias, T* large) {
  const int64_t mg = g.small_per_group(), cg = g.large_per_group(), taps = g.filter_taps();
  for_each_tap(g.stride, [&](const Triple& residue, int64_t) {
    const ConvLattice lattice = large_lattice(g, residue);
    if (product(lattice.points) == 0) return;
    const int64_t start = (residue[0] * g.large[1] + residue[1]) * g.large[2] + residue[2];
    for (int64_t group = 0; group < g.groups; ++group) {
      ConvFilterRows<T, Acc> rows{&lattice, weight + group * mg * cg * taps, taps, cg * taps};
      ConvColumns<T, Acc> columns{&lattice, small + group * mg * product(g.small)};
      ConvStore<T, Acc> store{&lattice,         large + group * cg * product(g.large) + start,
                              g.large,          g.stride,
                              g.large_channels, bias ? bias + group * cg : nullptr};
      const int64_t depth = mg * static_cast<int64_t>(lattice.taps.size());
      gemm<Acc>(cg, g.images * product(lattice.points), depth, rows, columns, store);
    }
  });
}

// The filter's gradient.
template <class T, class Acc>
void conv_filter_gradient(const ConvGeometry& g, const T* small, const T* large, T* weight) {
  const ConvLattice lattice = small_lattice(g);
  const int64_t mg = g.small_per_group(), cg = g.large_per_group(), taps = g.filter_taps();
  for (int64_t group = 0; group < g.groups; ++group) {
    PointRows<T, Acc> rows{small + group * mg * product(g.small), g.small_channels, product(g.small)};
    ConvTransposedColumns<T, Acc> columns{&lattice, large + group * cg * product(g.large)};
    MatrixStore<T, Acc> store{weight + group * mg * cg * taps, cg * taps, 1};
    gemm<Acc>(mg, cg * taps, g.images * product(g.small), rows, columns, store);
  }
}

// The bias' gradient: the sum over images and points of each channel.
template <class T>
void conv_bias_gradient(int64_t images, int64_t channels, int64_t points, const T* gradient, T* bias) {
  for (int64_t c = 0; c < channels; ++c) {
    double sum = 0;
    for (int64_t n = 0; n < images; ++n) {
      const T* from = gradient + (n * channels + c) * points;
      for (int64_t p = 0; p < points; ++p) sum += static_cast<double>(from[p]);
    }
    bias[c] = static_cast<T>(sum);
  }
}

}  // namespace fl_sim::nn
