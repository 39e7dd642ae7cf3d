// SPDX-License-Identifier: Apache-2.0
// Convolution in three dimensions (fewer are of size 1), between a small image, with one point per position of the
// filter, and the large one that the filter slides over. See csrc/portable/convolution.cpp.
//
// The image that is read is copied first into planes, with zeros around it and one plane for each phase of the
// stride. Then what one tap of the filter reads, for points that follow one another, follows one another too: the
// planes' rows are one long line of positions, of which those at the end of each row belong to no point.

#ifdef PLANES
// planes[block of images][channel][phase][image in the block][z][y][x]; a work item copies some rows.
FUNCTION void planes_rows(GLOBAL A* planes, GLOBAL const T* from, const Params p, const i64 item) {
  const i64 end = SHARE_END(p.chunk, p.total);
  const i64 channels = p.groups * p.channels, extent = p.extent[2];
  for (i64 t = item * p.chunk; t < end; ++t) {
    i64 rest = t, at[3], in = 1;
    at[1] = rest % p.extent[1], rest /= p.extent[1];
    at[0] = rest % p.extent[0], rest /= p.extent[0];
    const i64 image_in_block = rest % p.block;
    rest /= p.block, at[2] = 0;
    i64 source[3];
    for (int d = 2; d >= 0; --d) {
      source[d] = rest % p.phases[d] * p.dilation[d] % p.step[d] + at[d] * p.step[d] - p.shift[d];
      rest /= p.phases[d];
    }
    const i64 channel = rest % channels, image = rest / channels * p.block + image_in_block;
    for (int d = 0; d < 2; ++d) in &= source[d] >= 0 && source[d] < p.source[d];
    in &= image < p.images;
    // Points first <= x < last lie in the image.
    const i64 step = p.step[2];
    i64 first = source[2] < 0 ? (step - 1 - source[2]) / step : 0;
    i64 last = p.source[2] > source[2] ? (p.source[2] - source[2] + step - 1) / step : 0;
    if (last > extent) last = extent;
    if (in == 0 || last < first) first = last = 0;
    GLOBAL A* to = planes + t * extent;
    const i64 from_step = step * p.from[2];
    const i64 base = image * p.from_image + channel * p.from_channel + source[0] * p.from[0] + source[1] * p.from[1] +
                     source[2] * p.from[2];
    for (i64 x = 0; x < first; ++x) to[x] = 0;
    if (from_step == 1) {
      for (i64 x = first; x < last; ++x) to[x] = LOAD(from, base + x);
    } else {
      for (i64 x = first; x < last; ++x) to[x] = LOAD(from, base + x * from_step);
    }
    for (i64 x = last; x < extent; ++x) to[x] = 0;
  }
}
#endif

// Where the planes hold what tap k reads for the first point of a class; negative: the tap is not of that class.
FUNCTION i64 place_of_tap(const Params p, const i64 class_z, const i64 class_y, const i64 class_x, const i64 k) {
  const i64 classes[3] = {class_z, class_y, class_x};
  const i64 taps[3] = {k / p.window[2] / p.window[1], k / p.window[2] % p.window[1], k % p.window[2]};
  i64 phase = 0, place = 0;
  for (int d = 0; d < 3; ++d) {
    i64 q;
#ifdef TO_LARGE
    const i64 distance = classes[d] + p.padding[d] - taps[d] * p.dilation[d];
    if (distance % p.stride[d] != 0) return -1;
    q = distance / p.stride[d] + p.shift[d];
#else
    q = taps[d] * p.dilation[d] / p.step[d];
    phase = phase * p.phases[d] + taps[d] % p.phases[d];
#endif
    place = place * p.extent[d] + q;
  }
  return phase * p.block * p.extent[0] * p.extent[1] * p.extent[2] + place;
}

#ifdef STRIPS
// strips[class][group][tile of rows][channel][tap of the class][ROWS], and for each class the places of its taps after
// their number.
FUNCTION void strips_of_filter(GLOBAL A* strips, GLOBAL i64* places, GLOBAL const T* filter, const Params p,
                               const i64 item) {
  const i64 end = SHARE_END(p.chunk, p.total);
  const i64 all = p.window[0] * p.window[1] * p.window[2];
  for (i64 t = item * p.chunk; t < end; ++t) {
    const i64 tile = t % p.tiles, group = t / p.tiles % p.groups, at = t / p.tiles / p.groups;
    const i64 x = at % p.classes[2], y = at / p.classes[2] % p.classes[1], z = at / p.classes[2] / p.classes[1];
    i64 count = 0, n = 0;
    for (i64 k = 0; k < all; ++k) count += place_of_tap(p, z, y, x, k) >= 0;
    for (i64 k = 0; k < all; ++k) {
      const i64 place = place_of_tap(p, z, y, x, k);
      if (place < 0) continue;
      const i64 from = group * p.filter_group + k / p.window[2] / p.window[1] * p.filter[0] +
                       k / p.window[2] % p.window[1] * p.filter[1] + k % p.window[2] * p.filter[2];
      for (int r = 0; r < ROWS; ++r) {
        const i64 row = tile * ROWS + r < p.rows ? tile * ROWS + r : p.rows - 1;
        GLOBAL A* to = strips + (t * p.channels * p.most_taps + n) * ROWS + r;
        for (i64 c = 0; c < p.channels; ++c) {
          to[c * count * ROWS] = LOAD(filter, from + row * p.filter_row + c * p.filter_channel);
        }
      }
      n += 1;
      if (t == at * p.tiles * p.groups) places[at * (p.most_taps + 1) + n] = place;
    }
    if (t == at * p.tiles * p.groups) places[at * (p.most_taps + 1)] = count;
  }
}
#endif

#ifdef TILES
// Points of one class (those of the result that lie `stride` apart) in panels of COLUMNS positions, by ROWS channels.
FUNCTION void tiles_of_image(GLOBAL T* out, GLOBAL const A* planes, GLOBAL const A* strips, GLOBAL const i64* places,
#ifdef BIAS
                             GLOBAL const T* bias,
#endif
                             const Params p, const i64 item) {
  const i64 end = SHARE_END(p.chunk, p.total);
  for (i64 t = item * p.chunk; t < end; ++t) {
    const i64 inner = p.tiles_first ? p.tiles : p.panels, outer = p.tiles_first ? p.panels : p.tiles;
    const i64 one = t % inner, other = t / inner % outer;
    const i64 tile = p.tiles_first ? one : other, first = (p.tiles_first ? other : one) * COLUMNS;
    i64 rest = t / inner / outer;
    const i64 group = rest % p.groups;
    rest /= p.groups;
    i64 class[3], points[3], all = 1, which = 0;
    for (int d = 2; d >= 0; --d) {
      class[d] = rest % p.classes[d], rest /= p.classes[d];
      points[d] = (p.target[d] - class[d] + p.stride[d] - 1) / p.stride[d];
    }
    for (int d = 0; d < 3; ++d) which = which * p.classes[d] + class[d];
    const i64 image = rest * p.block, left = p.images - image;
    all = left < p.block ? left : p.block;
    for (int d = 0; d < 3; ++d) all = (all - 1) * p.extent[d] + points[d];
    if (first >= all) continue;
    // Planes that are the caller's own end where they end: the last panel begins earlier.
    const i64 start = p.own == 0 || first + COLUMNS <= all ? first : all - COLUMNS;
    places += which * (p.most_taps + 1);
    GLOBAL const A* from = planes + rest * p.plane_block + group * p.channels * p.plane_channel + start;
    GLOBAL const A* strip = strips + ((which * p.groups + group) * p.tiles + tile) * p.channels * p.most_taps * ROWS;
    EACH_ROW(TILE_ZERO)
#ifdef ONE_TAP
    for (i64 c = 0; c < p.channels; ++c) {
      GLOBAL const A* at = from + c * p.plane_channel;
      TILE_STEP
    }
#else
    const i64 count = places[0];
    for (i64 c = 0; c < p.channels; ++c) {
      for (i64 k = 1; k <= count; ++k) {
        GLOBAL const A* at = from + places[k];
        TILE_STEP
      }
      from += p.plane_channel;
    }
#endif
    places -= which * (p.most_taps + 1);
    A lines[ROWS * COLUMNS];
    EACH_ROW(TILE_KEEP)
    const i64 row = group * p.rows + tile * ROWS, rows = p.rows - tile * ROWS < ROWS ? p.rows - tile * ROWS : ROWS;
    for (i64 i = first - start; i < COLUMNS && start + i < all;) {
      i64 at = start + i, run, to;
      const i64 x = at % p.extent[2];
      at /= p.extent[2];
      const i64 y = at % p.extent[1];
      at /= p.extent[1];
      const i64 z = at % p.extent[0];
      run = COLUMNS - i < p.extent[2] - x ? COLUMNS - i : p.extent[2] - x;
      const i64 next = i + run;
      if (x + run > points[2]) run = points[2] - x;
      if (y >= points[1] || z >= points[0]) run = 0;
      to = (image + at / p.extent[0]) * p.to_image + row * p.to_channel + (class[0] + z * p.stride[0]) * p.to[0] +
           (class[1] + y * p.stride[1]) * p.to[1] + (class[2] + x * p.stride[2]) * p.to[2];
      const i64 step = p.stride[2] * p.to[2];
      for (i64 r = 0; r < rows; ++r, to += p.to_channel) {
#ifdef BIAS
        const A add = LOAD(bias, (row + r) * p.bias_step);
#else
        const A add = 0;
#endif
        if (step == 1) {
          for (i64 c = 0; c < run; ++c) STORE(out, to + c, lines[r * COLUMNS + i + c] + add);
        } else {
          for (i64 c = 0; c < run; ++c) STORE(out, to + c * step, lines[r * COLUMNS + i + c] + add);
        }
      }
      i = next;
    }
  }
}
#endif

#ifdef FILTER
// The filter's gradient: ROWS channels of the small image by VECTORS taps of channels of the large one, each a sum over
// all positions, in WIDTH lanes. The small image's planes are 0 where there is no point.
#define FILTER_COLUMN(r, v)                                                                                      \
  const i64 j##v = column + v < columns ? column + v : columns - 1;                                              \
  const i64 o##v = (group * p.channels + j##v / taps) * p.plane_channel + place_of_tap(p, 0, 0, 0, j##v % taps); \
  place[v] = o##v;
#define FILTER_ROW(r)                                         \
  const i64 i##r = row + r < p.rows ? row + r : p.rows - 1;   \
  const i64 s##r = (group * p.rows + i##r) * p.small_channel; \
  own[r] = s##r;
#define FILTER_LOAD(r, v) const VEC b##v = VEC_LOAD(large + o##v + i);
#define FILTER_ADD(r)                         \
  {                                           \
    const VEC a = VEC_LOAD(small + s##r + i); \
    EACH_VECTOR(TILE_ADD_ONE, r)              \
  }
FUNCTION void tiles_of_filter(GLOBAL T* out, GLOBAL const A* large, GLOBAL const A* small, const Params p,
                              const i64 item) {
  const i64 end = SHARE_END(p.chunk, p.total);
  const i64 taps = p.window[0] * p.window[1] * p.window[2], columns = p.channels * taps;
  const i64 down = (p.rows + ROWS - 1) / ROWS, across = (columns + VECTORS - 1) / VECTORS;
  i64 all = p.images;
  for (int d = 0; d < 3; ++d) all = (all - 1) * p.extent[d] + p.target[d];
  if (p.images == 0) all = 0;
  for (i64 t = item * p.chunk; t < end; ++t) {
    const i64 column = t % across * VECTORS, row = t / across % down * ROWS, group = t / across / down;
    i64 place[VECTORS], own[ROWS], i = 0;
    EACH_VECTOR(FILTER_COLUMN, 0)
    EACH_ROW(FILTER_ROW)
    EACH_ROW(TILE_ZERO)
    for (; i + WIDTH <= all; i += WIDTH) {
      EACH_VECTOR(FILTER_LOAD, 0)
      EACH_ROW(FILTER_ADD)
    }
    A lines[ROWS * COLUMNS];
    EACH_ROW(TILE_KEEP)
    for (int r = 0; r < ROWS && row + r < p.rows; ++r) {
      for (int v = 0; v < VECTORS && column + v < columns; ++v) {
        A* line = lines + (r * VECTORS + v) * WIDTH;
        for (i64 rest = i; rest < all; ++rest) line[rest - i] += small[own[r] + rest] * large[place[v] + rest];
        for (int part = WIDTH / 2; part > 0; part /= 2) {
          for (int l = 0; l < part; ++l) line[l] += line[l + part];
        }
        const i64 k = (column + v) % taps;
        STORE(out,
              group * p.filter_group + (row + r) * p.filter_row + (column + v) / taps * p.filter_channel +
                  k / p.window[2] / p.window[1] * p.filter[0] + k / p.window[2] % p.window[1] * p.filter[1] +
                  k % p.window[2] * p.filter[2],
              line[0]);
      }
    }
  }
}
#endif

#ifdef BIAS_GRADIENT
// The sum of each channel over all images and points.
FUNCTION void sums_of_channels(GLOBAL T* out, GLOBAL const T* from, const Params p, const i64 item) {
  const i64 end = SHARE_END(p.chunk, p.total);
  for (i64 channel = item * p.chunk; channel < end; ++channel) {
    A lane[16];
    for (int l = 0; l < 16; ++l) lane[l] = 0;
    for (i64 row = 0; row < p.images * p.source[0] * p.source[1]; ++row) {
      const i64 y = row % p.source[1], z = row / p.source[1] % p.source[0], image = row / p.source[1] / p.source[0];
      const i64 at = image * p.from_image + channel * p.from_channel + z * p.from[0] + y * p.from[1];
      i64 x = 0;
      for (; x + 16 <= p.source[2]; x += 16) {
        for (int l = 0; l < 16; ++l) lane[l] += LOAD(from, at + (x + l) * p.from[2]);
      }
      for (; x < p.source[2]; ++x) lane[x % 16] += LOAD(from, at + x * p.from[2]);
    }
    for (int part = 8; part > 0; part /= 2) {
      for (int l = 0; l < part; ++l) lane[l] += lane[l + part];
    }
    STORE(out, channel * p.bias_step, lane[0]);
  }
}
#endif
