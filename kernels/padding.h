// SPDX-License-Identifier: Apache-2.0
// Padding by the tensor's own elements, and patches of images. T: an element as stored. Sizes come as p.in and p.out
// (of the padded dimensions, outermost first), p.pad is what lies before. Of patches: p.image, p.window, p.grid,
// p.stride, p.dilation, p.pad.

#ifdef REFLECT
// Which element an element at i, counted from the first, shows.
FUNCTION i64 shown(const i64 i, const i64 n) { return i < 0 ? -i : i >= n ? 2 * (n - 1) - i : i; }
#else
FUNCTION i64 shown(const i64 i, const i64 n) { return i < 0 ? 0 : i >= n ? n - 1 : i; }
#endif

// The places of the padded dimension (of size `out`) that show element i: first to last, and two more or -1.
typedef struct {
  i64 first, last, more[2];
} Places;
FUNCTION Places places_of(const i64 i, const i64 n, const i64 pad, const i64 out) {
  Places s;
  s.first = s.last = i + pad;
  s.more[0] = s.more[1] = -1;
#ifdef REFLECT
  if (i > 0 && pad - i >= 0 && pad - i < out) s.more[0] = pad - i;
  const i64 mirrored = pad + 2 * (n - 1) - i;
  if (i < n - 1 && mirrored >= 0 && mirrored < out) s.more[1] = mirrored;
#else
  if (i == 0) s.first = 0;
  if (i == n - 1) s.last = out - 1;
#endif
  if (s.first < 0) s.first = 0;
  if (s.last >= out) s.last = out - 1;
  return s;
}
FUNCTION i64 count_of(const Places s) {
  return (s.last >= s.first ? s.last - s.first + 1 : 0) + (s.more[0] >= 0) + (s.more[1] >= 0);
}
FUNCTION i64 place(const Places s, const i64 k) {
  const i64 run = s.last >= s.first ? s.last - s.first + 1 : 0;
  return k < run ? s.first + k : k == run && s.more[0] >= 0 ? s.more[0] : s.more[1];
}

#define PAD                                                                                            \
  const i64 end = SHARE_END(p.chunk, p.lines);                                                         \
  for (i64 line = item * p.chunk; line < end; ++line) {                                                \
    const i64 h = line % p.out[1], d = line / p.out[1] % p.out[0], plane = line / p.out[1] / p.out[0]; \
    const i64 row = (plane * p.in[0] + shown(d - p.pad[0], p.in[0])) * p.in[1];                        \
    const i64 at = line * p.out[2], from = (row + shown(h - p.pad[1], p.in[1])) * p.in[2];             \
    const i64 edge = p.pad[2] + p.in[2], high = edge < 0 ? 0 : edge < p.out[2] ? edge : p.out[2];      \
    const i64 low = p.pad[2] < 0 ? 0 : p.pad[2] < high ? p.pad[2] : high;                              \
    for (i64 j = 0; j < low; ++j) out[at + j] = x[from + shown(j - p.pad[2], p.in[2])];                \
    VECTOR_LOOP                                                                                        \
    for (i64 j = low; j < high; ++j) out[at + j] = x[from + j - p.pad[2]];                             \
    for (i64 j = high; j < p.out[2]; ++j) out[at + j] = x[from + shown(j - p.pad[2], p.in[2])];        \
  }

// Every element sums the gradients of where it was shown.
#define PAD_BACKWARD                                                                                    \
  const i64 end = SHARE_END(p.chunk, p.lines);                                                          \
  for (i64 line = item * p.chunk; line < end; ++line) {                                                 \
    const i64 h = line % p.in[1], d = line / p.in[1] % p.in[0], plane = line / p.in[1] / p.in[0];       \
    const Places in_d = places_of(d, p.in[0], p.pad[0], p.out[0]);                                      \
    const Places in_h = places_of(h, p.in[1], p.pad[1], p.out[1]);                                      \
    const i64 n_d = count_of(in_d), n_h = count_of(in_h);                                               \
    for (i64 w = 0; w < p.in[2]; ++w) {                                                                 \
      const Places in_w = places_of(w, p.in[2], p.pad[2], p.out[2]);                                    \
      const i64 n_w = count_of(in_w);                                                                   \
      A sum = 0;                                                                                        \
      for (i64 a = 0; a < n_d; ++a) {                                                                   \
        for (i64 b = 0; b < n_h; ++b) {                                                                 \
          const i64 row = ((plane * p.out[0] + place(in_d, a)) * p.out[1] + place(in_h, b)) * p.out[2]; \
          for (i64 c = 0; c < n_w; ++c) sum += LOAD(x, row + place(in_w, c));                           \
        }                                                                                               \
      }                                                                                                 \
      STORE(out, line * p.in[2] + w, sum);                                                              \
    }                                                                                                   \
  }

// A line: one row of patches at one place of the kernel. Outside of the image: 0.
#define IM2COL                                                                                          \
  const i64 end = SHARE_END(p.chunk, p.lines);                                                          \
  const T zero = {0};                                                                                   \
  for (i64 line = item * p.chunk; line < end; ++line) {                                                 \
    const i64 gy = line % p.grid[0], kx = line / p.grid[0] % p.window[1];                               \
    const i64 ky = line / p.grid[0] / p.window[1] % p.window[0];                                        \
    const i64 plane = line / p.grid[0] / p.window[1] / p.window[0];                                     \
    const i64 y = gy * p.stride[0] - p.pad[0] + ky * p.dilation[0], x0 = kx * p.dilation[1] - p.pad[1]; \
    const int inside = y >= 0 && y < p.image[0];                                                        \
    const i64 at = line * p.grid[1], from = (plane * p.image[0] + y) * p.image[1] + x0;                 \
    for (i64 j = 0; j < p.grid[1]; ++j) {                                                               \
      const i64 step = j * p.stride[1];                                                                 \
      out[at + j] = inside && x0 + step >= 0 && x0 + step < p.image[1] ? x[from + step] : zero;         \
    }                                                                                                   \
  }

// A line: one row of the image. Every pixel sums the places of patches that hold it.
#define COL2IM                                                                     \
  const i64 end = SHARE_END(p.chunk, p.lines);                                     \
  for (i64 line = item * p.chunk; line < end; ++line) {                            \
    const i64 y = line % p.image[0] + p.pad[0], plane = line / p.image[0];         \
    for (i64 j = 0; j < p.image[1]; ++j) {                                         \
      A sum = 0;                                                                   \
      for (i64 ky = 0; ky < p.window[0]; ++ky) {                                   \
        const i64 dy = y - ky * p.dilation[0], gy = dy / p.stride[0];              \
        if (dy < 0 || dy % p.stride[0] != 0 || gy >= p.grid[0]) continue;          \
        for (i64 kx = 0; kx < p.window[1]; ++kx) {                                 \
          const i64 dx = j + p.pad[1] - kx * p.dilation[1], gx = dx / p.stride[1]; \
          if (dx < 0 || dx % p.stride[1] != 0 || gx >= p.grid[1]) continue;        \
          const i64 patch = (plane * p.window[0] + ky) * p.window[1] + kx;         \
          sum += LOAD(x, (patch * p.grid[0] + gy) * p.grid[1] + gx);               \
        }                                                                          \
      }                                                                            \
      STORE(out, line * p.image[1] + j, sum);                                      \
    }                                                                              \
  }

// A line: an index along the dimension that was unfolded. Every element sums its places in the windows that hold it.
#define UNFOLD_BACKWARD                                                         \
  const i64 end = SHARE_END(p.chunk, p.lines);                                  \
  for (i64 line = item * p.chunk; line < end; ++line) {                         \
    const i64 i = line % p.n, before = line / p.n * p.windows;                  \
    const i64 first = i < p.size ? 0 : (i - p.size) / p.step + 1;               \
    const i64 last = i / p.step < p.windows ? i / p.step : p.windows - 1;       \
    for (i64 j = 0; j < p.inner; ++j) {                                         \
      A sum = 0;                                                                \
      for (i64 w = first; w <= last; ++w) {                                     \
        sum += LOAD(x, ((before + w) * p.inner + j) * p.size + i - w * p.step); \
      }                                                                         \
      STORE(out, line * p.inner + j, sum);                                      \
    }                                                                           \
  }
