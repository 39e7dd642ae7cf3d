// SPDX-License-Identifier: Apache-2.0
// Pooling: where windows lie. Sizes and the like are those of depth, height and width (d = 0, 1, 2), strides of tensors
// those of image, channel, depth, height and width. Windows slide, or are ADAPTIVE or FRACTIONAL.
#define AT(stride, n, c, z, y, x) \
  ((n) * stride[0] + (c) * stride[1] + (z) * stride[2] + (y) * stride[3] + (x) * stride[4])

FUNCTION i64 least(i64 a, i64 b) { return a < b ? a : b; }
FUNCTION i64 most(i64 a, i64 b) { return a > b ? a : b; }
// a / b rounded up, and 0 where that is negative.
FUNCTION i64 quotient_up(i64 a, i64 b) { return a <= 0 ? 0 : (a + b - 1) / b; }

#ifdef FL_FLOATING
#define LOWEST (-INF_F)
#else
#define LOWEST ((A) - 1 > 0 ? (A)0 : (A)((u64)1 << (8 * sizeof(A) - 1)))
#endif

// The window of output o along dimension d: from START, before END, every STEP; EXTENT places are averaged over. The
// windows of outputs FIRST_OVER to LAST_OVER hold input i.
#if defined(ADAPTIVE)
#define START(d, o) ((o) * p.in[d] / p.out[d])
#define END(d, o) ((((o) + 1) * p.in[d] + p.out[d] - 1) / p.out[d])
#define STEP(d) 1
#define EXTENT(d, o) (END(d, o) - START(d, o))
#define FIRST_OVER(d, i) ((i) * p.out[d] / p.in[d])
#define LAST_OVER(d, i) ((((i) + 1) * p.out[d] + p.in[d] - 1) / p.in[d] - 1)
#elif defined(FRACTIONAL)
// A sample of its plane shifts it; whatever that is, the window stays inside. Every operation rounds to the element
// type, as PyTorch has it: DROPPED low bits of f32.
#ifdef DROPPED
FUNCTION f32 rounded(f32 x) {
  const u32 word = BITS_OF_FLOAT(x), middle = (u32)1 << (DROPPED - 1);
  return FLOAT_OF_BITS((word + middle - 1 + ((word >> DROPPED) & 1)) & ~(2 * middle - 1));
}
#define ROUND(x) rounded(x)
#else
#define ROUND(x) (x)
#endif
FUNCTION i64 fractional_start(i64 o, i64 in, i64 out, i64 window, A sample) {
  const i64 last = in - window;
  if (o >= out - 1) return last;
  const A alpha = ROUND((A)last / (A)(out - 1));
  const A start = trunc(ROUND(ROUND((A)o + sample) * alpha)) - trunc(ROUND(sample * alpha));
  return start >= 0 ? (start < (A)last ? (i64)start : last) : 0;
}
#define START(d, o) fractional_start(o, p.in[d], p.out[d], p.window[d], shift[d])
#define END(d, o) (START(d, o) + p.window[d])
#define STEP(d) 1
#else
FUNCTION i64 sliding_start(i64 o, i64 stride, i64 pad, i64 dilation) {
  const i64 start = o * stride - pad;
  return start < 0 ? start + (dilation - 1 - start) / dilation * dilation : start;
}
FUNCTION i64 sliding_end(i64 o, i64 stride, i64 pad, i64 dilation, i64 window, i64 in) {
  return least(o * stride - pad + (window - 1) * dilation + 1, in);
}
FUNCTION i64 sliding_extent(i64 o, i64 stride, i64 pad, i64 window, i64 in, i64 with_padding) {
  const i64 start = o * stride - pad, end = least(start + window, in + pad);
  return with_padding ? end - start : least(end, in) - most(start, 0);
}
#define START(d, o) sliding_start(o, p.stride[d], p.pad[d], p.dilation[d])
#define END(d, o) sliding_end(o, p.stride[d], p.pad[d], p.dilation[d], p.window[d], p.in[d])
#define STEP(d) p.dilation[d]
#define EXTENT(d, o) sliding_extent(o, p.stride[d], p.pad[d], p.window[d], p.in[d], p.with_padding)
#define FIRST_OVER(d, i) quotient_up((i) + p.pad[d] - p.window[d] + 1, p.stride[d])
#define LAST_OVER(d, i) least(((i) + p.pad[d]) / p.stride[d], p.out[d] - 1)
#endif

// What a window does with a value: neighbours in tiles, so that the innermost loop is over them.
#ifdef MAXIMUM
#define TAKE(t, v, index)                                 \
  {                                                       \
    const A value = v;                                    \
    const int better = value > best[t] || value != value; \
    best[t] = better ? value : best[t];                   \
    where[t] = better ? (POSITION)(index) : where[t];     \
  }
#else
#define TAKE(t, v, index) best[t] += v;
#endif
