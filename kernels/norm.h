// SPDX-License-Identifier: Apache-2.0
// Layer, root-mean-square, group and batch normalisation. X: input and output, W: weight and bias, S: saved statistics,
// R: running statistics. Variances are formed about the mean, in a second pass. Terms and steps with a V are as in
// sums.h, about the row or stretch that begins `at`.
#if HAS_WEIGHT
#define FACTOR(i) LOAD_W(weight, i)
#define VFACTOR(i) VLOAD_W(weight, i)
#else
#define FACTOR(i) ((A)1)
#define VFACTOR(i) ((A)1)
#endif
#if HAS_BIAS
#define SHIFT(i) LOAD_W(bias, i)
#define VSHIFT(i) VLOAD_W(bias, i)
#else
#define SHIFT(i) ((A)0)
#define VSHIFT(i) ((A)0)
#endif
#define VALUE(V, j) V##LOAD_X(x, at + (j))
#define CENTRED_VALUE(V, j) (VALUE(V, j) - mean)
#define SQUARE_OF(V, j) SQUARE(CENTRED_VALUE(V, j))
#define GRADIENT(V, j) V##LOAD_X(g, at + (j))
#define GRADIENT_DOT(V, j) GRADIENT(V, j) * CENTRED_VALUE(V, j)
// of a tile of columns that begins at c0
#define COLUMN(V, r, c) V##LOAD_X(x, (r) * channels + c0 + (c))

// out = x * scale + shift
#define STEP(V, j) V##STORE_X(out, at + (j), VALUE(V, j) * scale + shift)
FUNCTION void affine(GLOBAL X* out, GLOBAL const X* x, const i64 at, const i64 n, const A scale, const A shift) {
  FOR_ALL(n, STEP);
}
#undef STEP
// out = g * a + x * b + c: the gradient of a stretch that was normalised
#define STEP(V, j) V##STORE_X(out, at + (j), GRADIENT(V, j) * a + (VALUE(V, j) * b + c))
FUNCTION void affine_gradient(GLOBAL X* out, GLOBAL const X* g, GLOBAL const X* x, const i64 at, const i64 n, const A a,
                              const A b, const A c) {
  FOR_ALL(n, STEP);
}
#undef STEP
#define STEP(V, j) V##STORE_X(out, at + (j), GRADIENT(V, j) * a)
FUNCTION void scaled_gradient(GLOBAL X* out, GLOBAL const X* g, const i64 at, const i64 n, const A a) {
  FOR_ALL(n, STEP);
}
#undef STEP

#ifdef LAYER
// CENTRED 0: the root of the mean square, nothing about a mean.
FUNCTION void layer_norm(GLOBAL X* out, GLOBAL S* means, GLOBAL S* rstds, GLOBAL const X* x, GLOBAL const W* weight,
                         GLOBAL const W* bias, const i64 rows, const i64 chunk, const i64 width, const A eps,
                         const i64 item) {
  EACH(r, rows) {
    const i64 at = r * width;
    A mean = 0, squares = 0;
#if CENTRED
    SUM_OF(mean, width, VALUE)
    mean /= (A)width;
    STORE_S(means, r, mean);
#endif
    SUM_OF(squares, width, SQUARE_OF)
    const A rstd = 1 / sqrt(squares / (A)width + eps);
    STORE_S(rstds, r, rstd);
    // The mean is taken off first: a row of equal values gives exact zeros.
#define STEP(V, j) V##STORE_X(out, at + (j), CENTRED_VALUE(V, j) * rstd * V##FACTOR(j) + V##SHIFT(j))
    FOR_ALL(width, STEP)
#undef STEP
  }
}
// With PARAMETERS, this item's sums for the weight's gradient and the bias's go to `partial`, for column_sums.
FUNCTION void layer_norm_backward(GLOBAL X* out, GLOBAL A* partial, GLOBAL const X* g, GLOBAL const X* x,
                                  GLOBAL const S* means, GLOBAL const S* rstds, GLOBAL const W* weight, const i64 rows,
                                  const i64 chunk, const i64 width, const i64 item) {
#if PARAMETERS
  GLOBAL A* for_weight = partial + item * 2 * width;
  GLOBAL A* for_bias = for_weight + width;
  for (i64 j = 0; j < 2 * width; ++j) for_weight[j] = 0;
#endif
  EACH(r, rows) {
    const i64 at = r * width;
    const A mean = CENTRED ? LOAD_S(means, r) : 0, rstd = LOAD_S(rstds, r);
#if INPUT
    A sum = 0, dot = 0;
#define WEIGHTED(V, j) GRADIENT(V, j) * V##FACTOR(j)
#define WEIGHTED_DOT(V, j) WEIGHTED(V, j) * CENTRED_VALUE(V, j)
    SUM_TWO_OF(sum, dot, width, WEIGHTED, WEIGHTED_DOT)
    const A slope = -dot * rstd * rstd * rstd / (A)width;
    const A shift = CENTRED ? -sum / (A)width * rstd : 0;
#define STEP(V, j) V##STORE_X(out, at + (j), WEIGHTED(V, j) * rstd + (CENTRED_VALUE(V, j) * slope + shift))
    FOR_ALL(width, STEP)
#undef STEP
#endif
#if PARAMETERS
#define STEP(V, j)                                                                             \
  V##PUT(for_weight, j, V##OF(for_weight, j) + GRADIENT(V, j) * (CENTRED_VALUE(V, j) * rstd)), \
      V##PUT(for_bias, j, V##OF(for_bias, j) + GRADIENT(V, j))
    FOR_ALL(width, STEP)
#undef STEP
#endif
  }
}
// The sums of all items, tile by tile.
FUNCTION void column_sums(GLOBAL W* for_weight, GLOBAL W* for_bias, GLOBAL const A* partial, const i64 tiles,
                          const i64 chunk, const i64 width, const i64 items, const i64 item) {
  EACH(t, tiles) {
    const i64 c0 = t * TILE, there = width - c0 < TILE ? width - c0 : TILE;
    A total[TILE];
#if HAS_WEIGHT
#define TERM(V, r, c) V##OF(partial, (r) * 2 * width + c0 + (c))
    COLUMN_SUMS(total, there, items, TERM)
#undef TERM
    for (int c = 0; c < there; ++c) STORE_W(for_weight, c0 + c, total[c]);
#endif
#if HAS_BIAS
#define TERM(V, r, c) V##OF(partial, ((r) * 2 + 1) * width + c0 + (c))
    COLUMN_SUMS(total, there, items, TERM)
#undef TERM
    for (int c = 0; c < there; ++c) STORE_W(for_bias, c0 + c, total[c]);
#endif
  }
}
#endif

#ifdef GROUP
// Stretches of `points` elements, `depth` of them (channels) in a group, `groups` groups in an image.
FUNCTION void group_norm(GLOBAL X* out, GLOBAL S* means, GLOBAL S* rstds, GLOBAL const X* x, GLOBAL const W* weight,
                         GLOBAL const W* bias, const i64 all, const i64 chunk, const i64 groups, const i64 depth,
                         const i64 points, const A eps, const i64 item) {
  EACH(i, all) {
    const i64 n = depth * points, at = i * n;
    A mean = 0, squares = 0;
    SUM_OF(mean, n, VALUE)
    mean /= (A)n;
    SUM_OF(squares, n, SQUARE_OF)
    const A rstd = 1 / sqrt(squares / (A)n + eps);
    STORE_S(means, i, mean);
    STORE_S(rstds, i, rstd);
    for (i64 d = 0; d < depth; ++d) {
      const i64 channel = i % groups * depth + d;
      const A scale = rstd * FACTOR(channel);
      affine(out, x, at + d * points, points, scale, SHIFT(channel) - mean * scale);
    }
  }
}
// Per image and channel: the sums of the gradient, then those of gradient * (x - mean).
FUNCTION void group_norm_sums(GLOBAL A* sums, GLOBAL const X* g, GLOBAL const X* x, GLOBAL const S* means,
                              const i64 all, const i64 chunk, const i64 depth, const i64 points, const i64 item) {
  EACH(i, all) {
    const i64 at = i * points;
    const A mean = LOAD_S(means, i / depth);
    A sum = 0, dot = 0;
    SUM_TWO_OF(sum, dot, points, GRADIENT, GRADIENT_DOT)
    sums[i] = sum;
    sums[all + i] = dot;
  }
}
FUNCTION void group_norm_input(GLOBAL X* out, GLOBAL const A* sums, GLOBAL const X* g, GLOBAL const X* x,
                               GLOBAL const S* means, GLOBAL const S* rstds, GLOBAL const W* weight, const i64 all,
                               const i64 chunk, const i64 groups, const i64 depth, const i64 points, const i64 item) {
  EACH(i, all) {
    const A mean = LOAD_S(means, i), rstd = LOAD_S(rstds, i), n = (A)(depth * points);
    const i64 channel = i % groups * depth;
    A sum = 0, dot = 0;
    for (i64 d = 0; d < depth; ++d) {
      sum += FACTOR(channel + d) * sums[i * depth + d];
      dot += FACTOR(channel + d) * sums[(all + i) * depth + d];
    }
    const A slope = -dot * rstd * rstd * rstd / n, shift = -sum / n * rstd - slope * mean;
    for (i64 d = 0; d < depth; ++d) {
      affine_gradient(out, g, x, (i * depth + d) * points, points, rstd * FACTOR(channel + d), slope, shift);
    }
  }
}
FUNCTION void group_norm_parameters(GLOBAL W* for_weight, GLOBAL W* for_bias, GLOBAL const A* sums,
                                    GLOBAL const S* rstds, const i64 channels, const i64 chunk, const i64 images,
                                    const i64 depth, const i64 item) {
  EACH(c, channels) {
    A sum = 0, dot = 0;
    for (i64 n = 0; n < images; ++n) {
      sum += sums[n * channels + c];
      dot += sums[(images + n) * channels + c] * LOAD_S(rstds, (n * channels + c) / depth);
    }
#if WANTS_WEIGHT
    STORE_W(for_weight, c, dot);
#endif
#if WANTS_BIAS
    STORE_W(for_bias, c, sum);
#endif
  }
}
#endif

#ifdef BATCH
// images x channels x points. Where points are few, the loops run over channels instead: a tile of them at once.
FUNCTION void batch_statistics(GLOBAL S* means, GLOBAL S* rstds, GLOBAL R* running_mean, GLOBAL R* running_var,
                               const i64 c, const A mean, const A squares, const A rstd, const A count,
                               const A momentum) {
  STORE_S(means, c, mean);
  STORE_S(rstds, c, rstd);
#if HAS_RUNNING_MEAN
  STORE_R(running_mean, c, momentum * mean + (1 - momentum) * LOAD_R(running_mean, c));
#endif
#if HAS_RUNNING_VAR
  STORE_R(running_var, c, momentum * (squares / (count - 1)) + (1 - momentum) * LOAD_R(running_var, c));
#endif
}
FUNCTION void batch_norm(GLOBAL X* out, GLOBAL S* means, GLOBAL S* rstds, GLOBAL R* running_mean, GLOBAL R* running_var,
                         GLOBAL const X* x, GLOBAL const W* weight, GLOBAL const W* bias, const i64 channels,
                         const i64 chunk, const i64 images, const i64 points, const A eps, const A momentum,
                         const i64 item) {
  const A count = (A)(images * points);
  EACH(c, channels) {
    A mean = 0, squares = 0;
    for (i64 n = 0; n < images; ++n) {
      const i64 at = (n * channels + c) * points;
      SUM_OF(mean, points, VALUE)
    }
    mean /= count;
    for (i64 n = 0; n < images; ++n) {
      const i64 at = (n * channels + c) * points;
      SUM_OF(squares, points, SQUARE_OF)
    }
    const A rstd = 1 / sqrt(squares / count + eps), scale = rstd * FACTOR(c);
    batch_statistics(means, rstds, running_mean, running_var, c, mean, squares, rstd, count, momentum);
    for (i64 n = 0; n < images; ++n) {
      affine(out, x, (n * channels + c) * points, points, scale, SHIFT(c) - mean * scale);
    }
  }
}
#define COLUMN_SQUARE(V, r, c) SQUARE(COLUMN(V, r, c) - V##OF(mean, c))
// rows r0 .. r1-1 of a tile of channels: out = x * scale + shift
FUNCTION void affine_columns(GLOBAL X* out, GLOBAL const X* x, const i64 r0, const i64 r1, const i64 channels,
                             const i64 c0, const i64 there, const A* scale, const A* shift) {
#define STEP(V, c) V##STORE_X(out, at + (c), VALUE(V, c) * V##OF(scale, c) + V##OF(shift, c))
  for (i64 r = r0; r < r1; ++r) {
    const i64 at = r * channels + c0;
    FOR_ALL(there, STEP)
  }
#undef STEP
}
FUNCTION void batch_norm_columns(GLOBAL X* out, GLOBAL S* means, GLOBAL S* rstds, GLOBAL R* running_mean,
                                 GLOBAL R* running_var, GLOBAL const X* x, GLOBAL const W* weight, GLOBAL const W* bias,
                                 const i64 tiles, const i64 chunk, const i64 rows, const i64 channels, const A eps,
                                 const A momentum, const i64 item) {
  const A count = (A)rows;
  EACH(t, tiles) {
    const i64 c0 = t * TILE, there = channels - c0 < TILE ? channels - c0 : TILE;
    A mean[TILE], squares[TILE], scale[TILE], shift[TILE];
    COLUMN_SUMS(mean, there, rows, COLUMN)
    for (int c = 0; c < TILE; ++c) mean[c] /= count;
    COLUMN_SUMS(squares, there, rows, COLUMN_SQUARE)
    for (int c = 0; c < there; ++c) {
      const A rstd = 1 / sqrt(squares[c] / count + eps);
      scale[c] = rstd * FACTOR(c0 + c);
      shift[c] = SHIFT(c0 + c) - mean[c] * scale[c];
      batch_statistics(means, rstds, running_mean, running_var, c0 + c, mean[c], squares[c], rstd, count, momentum);
    }
    affine_columns(out, x, 0, rows, channels, c0, there, scale, shift);
  }
}
// With given statistics: by stretches of one channel, or (points 1) by rows of all.
FUNCTION void batch_norm_fixed(GLOBAL X* out, GLOBAL const X* x, GLOBAL const R* running_mean,
                               GLOBAL const R* running_var, GLOBAL const W* weight, GLOBAL const W* bias,
                               const i64 stretches, const i64 chunk, const i64 channels, const i64 points, const A eps,
                               const i64 item) {
  EACH(s, stretches) {
    const i64 c = s % channels;
    const A scale = 1 / sqrt(LOAD_R(running_var, c) + eps) * FACTOR(c);
    affine(out, x, s * points, points, scale, SHIFT(c) - LOAD_R(running_mean, c) * scale);
  }
}
FUNCTION void batch_norm_fixed_rows(GLOBAL X* out, GLOBAL const X* x, GLOBAL const R* running_mean,
                                    GLOBAL const R* running_var, GLOBAL const W* weight, GLOBAL const W* bias,
                                    const i64 rows, const i64 chunk, const i64 channels, const A eps, const i64 item) {
  for (i64 c0 = 0; c0 < channels; c0 += TILE) {
    const i64 there = channels - c0 < TILE ? channels - c0 : TILE;
    A scale[TILE], shift[TILE];
    for (int c = 0; c < there; ++c) {
      scale[c] = 1 / sqrt(LOAD_R(running_var, c0 + c) + eps) * FACTOR(c0 + c);
      shift[c] = SHIFT(c0 + c) - LOAD_R(running_mean, c0 + c) * scale[c];
    }
    affine_columns(out, x, item * chunk, SHARE_END(chunk, rows), channels, c0, there, scale, shift);
  }
}
#endif

#ifdef BATCH_BACKWARD
// S: the statistics used: saved mean and 1 / deviation with TRAIN, else running mean and variance.
#if TRAIN
#define SPREAD(c) LOAD_S(spread, c)
#else
#define SPREAD(c) (1 / sqrt(LOAD_S(spread, c) + eps))
#endif
FUNCTION void batch_parameters(GLOBAL W* for_weight, GLOBAL W* for_bias, const i64 c, const A sum, const A dot,
                               const A rstd) {
#if WANTS_WEIGHT
  STORE_W(for_weight, c, dot * rstd);
#endif
#if WANTS_BIAS
  STORE_W(for_bias, c, sum);
#endif
}
FUNCTION void batch_norm_backward(GLOBAL X* out, GLOBAL W* for_weight, GLOBAL W* for_bias, GLOBAL const X* g,
                                  GLOBAL const X* x, GLOBAL const W* weight, GLOBAL const S* means,
                                  GLOBAL const S* spread, const i64 channels, const i64 chunk, const i64 images,
                                  const i64 points, const A eps, const i64 item) {
  EACH(c, channels) {
    const A mean = LOAD_S(means, c), rstd = SPREAD(c), scale = rstd * FACTOR(c), count = (A)(images * points);
    A sum = 0, dot = 0;
    for (i64 n = 0; n < images; ++n) {
      const i64 at = (n * channels + c) * points;
      SUM_TWO_OF(sum, dot, points, GRADIENT, GRADIENT_DOT)
    }
    batch_parameters(for_weight, for_bias, c, sum, dot, rstd);
#if INPUT
#if TRAIN
    const A slope = -dot * rstd * rstd / count * scale, shift = -sum / count * scale - slope * mean;
#endif
    for (i64 n = 0; n < images; ++n) {
#if TRAIN
      affine_gradient(out, g, x, (n * channels + c) * points, points, scale, slope, shift);
#else  // x has no part in it, be it infinite
      scaled_gradient(out, g, (n * channels + c) * points, points, scale);
#endif
    }
#endif
  }
}
FUNCTION void batch_norm_backward_columns(GLOBAL X* out, GLOBAL W* for_weight, GLOBAL W* for_bias, GLOBAL const X* g,
                                          GLOBAL const X* x, GLOBAL const W* weight, GLOBAL const S* means,
                                          GLOBAL const S* spread, const i64 tiles, const i64 chunk, const i64 rows,
                                          const i64 channels, const A eps, const i64 item) {
  EACH(t, tiles) {
    const i64 c0 = t * TILE, there = channels - c0 < TILE ? channels - c0 : TILE;
    A mean[TILE], sum[TILE], dot[TILE], scale[TILE], slope[TILE], shift[TILE];
    for (int c = 0; c < TILE; ++c) mean[c] = c < there ? LOAD_S(means, c0 + c) : 0;
#define TERM(V, r, c) V##LOAD_X(g, (r) * channels + c0 + (c))
#define DOT(V, r, c) TERM(V, r, c) * (COLUMN(V, r, c) - V##OF(mean, c))
    COLUMN_SUMS(sum, there, rows, TERM)
    COLUMN_SUMS(dot, there, rows, DOT)
#undef TERM
#undef DOT
    for (int c = 0; c < there; ++c) {
      const A rstd = SPREAD(c0 + c);
      scale[c] = rstd * FACTOR(c0 + c);
      slope[c] = TRAIN ? -dot[c] * rstd * rstd / (A)rows * scale[c] : 0;
      shift[c] = TRAIN ? -sum[c] / (A)rows * scale[c] - slope[c] * mean[c] : 0;
      batch_parameters(for_weight, for_bias, c0 + c, sum[c], dot[c], rstd);
    }
#if INPUT
    for (i64 r = 0; r < rows; ++r) {
      const i64 at = r * channels + c0;
#if TRAIN
#define STEP(V, c) \
  V##STORE_X(out, at + (c), GRADIENT(V, c) * V##OF(scale, c) + (VALUE(V, c) * V##OF(slope, c) + V##OF(shift, c)))
#else
#define STEP(V, c) V##STORE_X(out, at + (c), GRADIENT(V, c) * V##OF(scale, c))
#endif
      FOR_ALL(there, STEP)
#undef STEP
    }
#endif
  }
}
#endif
