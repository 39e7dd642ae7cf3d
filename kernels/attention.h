// SPDX-License-Identifier: Apache-2.0
// Attention without the matrix of scores: keys in blocks of KEYS, and per query the largest score so far and the sum of
// exponentials. X: the tensors; D: the size of a head. Tensors are batch x head x position x D; of each come the
// strides of the first three dimensions (the fourth is dense unless there is one for it). V: a vector of WIDE numbers
// of type A. ROUNDED: D up to a multiple of WIDE.
#ifdef FL_F32
#define V f32x16
#define WIDE 16
#define ZERO_V ZERO_f32x16
#define VLOAD VLOAD_f32x16
#define VSTORE VSTORE_f32x16
#else
#define V f64x8
#define WIDE 8
#define ZERO_V ZERO_f64x8
#define VLOAD VLOAD_f64x8
#define VSTORE VSTORE_f64x8
#endif
#define ROUNDED ((D + WIDE - 1) / WIDE * WIDE)
// Queries are worked on QUERIES at once: as many vectors as most chips have registers for.
#define QUERIES 6
#define EACH_QUERY(DO) DO(0) DO(1) DO(2) DO(3) DO(4) DO(5)
#if HAS_MASK
#define BIAS(q, k) LOAD_X(mask, mask_at + (q) * mq + (k) * mk)
#else
#define BIAS(q, k) ((A)0)
#endif

// Rows [position][D] of a tensor, as type A; missing ones are zeros.
FUNCTION void load_rows(A* to, GLOBAL const X* from, const i64 at, const i64 stride, const i64 step, const int there,
                        const int rows, const A scale) {
  for (int r = 0; r < rows; ++r) {
    for (int d = 0; d < ROUNDED; ++d) to[r * ROUNDED + d] = 0;
    if (r >= there) continue;
    VECTOR_LOOP
    for (int d = 0; d < D; ++d) to[r * ROUNDED + d] = LOAD_X(from, at + r * stride + d * step) * scale;
  }
}
// The same as [D][KEYS].
FUNCTION void load_columns(A* to, GLOBAL const X* from, const i64 at, const i64 stride, const int there) {
  for (int r = 0; r < KEYS; ++r) {
    for (int d = 0; d < D; ++d) to[d * KEYS + r] = r < there ? LOAD_X(from, at + r * stride + d) : 0;
  }
}
// scores[query][key] of QUERIES rows and KEYS columns
FUNCTION void products(A* scores, const A* rows, const A* columns) {
  for (int c = 0; c < KEYS; c += WIDE) {
#define DO(i) V a##i = ZERO_V;
    EACH_QUERY(DO)
#undef DO
    for (int d = 0; d < D; ++d) {
      const V key = VLOAD(columns + d * KEYS + c);
#define DO(i) a##i += rows[i * ROUNDED + d] * key;
      EACH_QUERY(DO)
#undef DO
    }
#define DO(i) VSTORE(a##i, scores + i * KEYS + c);
    EACH_QUERY(DO)
#undef DO
  }
}
// sums[query][d] = sums * factor[query] + the rows [key][D] weighted with weights[query][key]
FUNCTION void add_weighted(A* sums, const A* factor, const A* weights, const A* rows) {
  for (int c = 0; c < ROUNDED; c += WIDE) {
#define DO(i) V a##i = VLOAD(sums + i * ROUNDED + c) * factor[i];
    EACH_QUERY(DO)
#undef DO
    for (int k = 0; k < KEYS; ++k) {
      const V row = VLOAD(rows + k * ROUNDED + c);
#define DO(i) a##i += weights[i * KEYS + k] * row;
      EACH_QUERY(DO)
#undef DO
    }
#define DO(i) VSTORE(a##i, sums + i * ROUNDED + c);
    EACH_QUERY(DO)
#undef DO
  }
}
// sums[key][d] += the rows [query][D] weighted with weights[query][key]
FUNCTION void add_transposed(A* sums, const A* weights, const A* rows) {
  for (int c = 0; c < ROUNDED; c += WIDE) {
#define DO(i) const V r##i = VLOAD(rows + i * ROUNDED + c);
    EACH_QUERY(DO)
#undef DO
    for (int k = 0; k < KEYS; ++k) {
      V a = VLOAD(sums + k * ROUNDED + c);
#define DO(i) a += weights[i * KEYS + k] * r##i;
      EACH_QUERY(DO)
#undef DO
      VSTORE(a, sums + k * ROUNDED + c);
    }
  }
}
// Scores become exponentials; *top, *sum and the factor for what was summed before are brought up to date.
FUNCTION A take_block(A* s, A* top, A* sum) {
  A lane[LANES];
  for (int l = 0; l < LANES; ++l) lane[l] = s[l];
  for (int k = LANES; k < KEYS; k += LANES) {
    for (int l = 0; l < LANES; ++l) lane[l] = s[k + l] > lane[l] || s[k + l] != s[k + l] ? s[k + l] : lane[l];
  }
  A high = *top;
  for (int l = 0; l < LANES; ++l) high = lane[l] > high || lane[l] != lane[l] ? lane[l] : high;
  const A shift = high == -INF_F ? 0 : high;  // nothing but masked keys so far
  for (int l = 0; l < LANES; ++l) lane[l] = 0;
  for (int k = 0; k < KEYS; k += LANES) {
    for (int l = 0; l < LANES; ++l) {
      const A e = m_exp(s[k + l] - shift);
      s[k + l] = e;
      lane[l] += e;
    }
  }
  const A factor = m_exp(*top - shift);
  *sum = *sum * factor + fold(lane);
  *top = high;
  return factor;
}

#ifdef FORWARD
// A unit: `rows` (at most ROWS) queries of one head.
FUNCTION void attention(GLOBAL X* out, GLOBAL A* logsumexp, GLOBAL const X* q, GLOBAL const X* k, GLOBAL const X* v,
                        GLOBAL const X* mask, const i64 units, const i64 chunk, const i64 heads, const i64 group,
                        const i64 queries, const i64 keys, const i64 rows, const A scale, const i64 ob, const i64 oh,
                        const i64 os, const i64 lb, const i64 lh, const i64 ls, const i64 qb, const i64 qh,
                        const i64 qs, const i64 kb, const i64 kh, const i64 ks, const i64 vb, const i64 vh,
                        const i64 vs, const i64 mb, const i64 mh, const i64 mq, const i64 mk, const i64 item) {
  A asked[ROWS * ROUNDED], answer[ROWS * ROUNDED], top[ROWS], sum[ROWS];
  A columns[D * KEYS], values[KEYS * ROUNDED], scores[QUERIES * KEYS];
  const i64 blocks = (queries + rows - 1) / rows;
  EACH(unit, units) {
    const i64 first = unit % blocks * rows, h = unit / blocks % heads, b = unit / blocks / heads;
    const int there = (int)(queries - first < rows ? queries - first : rows);
    const int tiles = (there + QUERIES - 1) / QUERIES;
    const i64 mask_at = b * mb + h * mh;
    load_rows(asked, q, b * qb + h * qh + first * qs, qs, 1, there, tiles * QUERIES, scale);
    for (int i = 0; i < tiles * QUERIES * ROUNDED; ++i) answer[i] = 0;
    for (int i = 0; i < tiles * QUERIES; ++i) {
      top[i] = -INF_F;
      sum[i] = 0;
    }
    const i64 visible = CAUSAL && first + there < keys ? first + there : keys;
    for (i64 k0 = 0; k0 < visible; k0 += KEYS) {
      const int here = (int)(keys - k0 < KEYS ? keys - k0 : KEYS);
      load_columns(columns, k, b * kb + h / group * kh + k0 * ks, ks, here);
      load_rows(values, v, b * vb + h / group * vh + k0 * vs, vs, 1, here, KEYS, 1);
      for (int t = 0; t < tiles; ++t) {
        const int r0 = t * QUERIES;
        if (CAUSAL && first + r0 + QUERIES <= k0) continue;
        products(scores, asked + r0 * ROUNDED, columns);
        A factor[QUERIES];
        for (int i = 0; i < QUERIES; ++i) {
          A* s = scores + i * KEYS;
          const i64 query = first + r0 + i;
          const i64 seen = CAUSAL && query + 1 - k0 < here ? query + 1 - k0 : here;
          if (HAS_MASK && r0 + i < there) {
            for (int j = 0; j < here; ++j) s[j] += BIAS(query, k0 + j);
          }
          if (seen < KEYS) {
            for (int j = 0; j < KEYS; ++j) s[j] = j < seen ? s[j] : -INF_F;
          }
          factor[i] = take_block(s, top + r0 + i, sum + r0 + i);
        }
        add_weighted(answer + r0 * ROUNDED, factor, scores, values);
      }
    }
    for (int r = 0; r < there; ++r) {
      const A share = sum[r] == 0 ? 0 : 1 / sum[r];
      const i64 at = b * ob + h * oh + (first + r) * os;
      VECTOR_LOOP
      for (int d = 0; d < D; ++d) STORE_X(out, at + d, answer[r * ROUNDED + d] * share);
      logsumexp[b * lb + h * lh + (first + r) * ls] = sum[r] == 0 ? 0 : top[r] + m_log(sum[r]);
    }
  }
}
// Few queries: nothing is worth copying. A unit is one query of one head.
FUNCTION void attention_rows(GLOBAL X* out, GLOBAL A* logsumexp, GLOBAL const X* q, GLOBAL const X* k,
                             GLOBAL const X* v, GLOBAL const X* mask, const i64 units, const i64 chunk, const i64 heads,
                             const i64 group, const i64 queries, const i64 keys, const i64 rows, const A scale,
                             const i64 ob, const i64 oh, const i64 os, const i64 lb, const i64 lh, const i64 ls,
                             const i64 qb, const i64 qh, const i64 qs, const i64 kb, const i64 kh, const i64 ks,
                             const i64 vb, const i64 vh, const i64 vs, const i64 mb, const i64 mh, const i64 mq,
                             const i64 mk, const i64 item) {
  A asked[ROUNDED], answer[ROUNDED], s[KEYS];
  EACH(unit, units) {
    const i64 query = unit % queries, h = unit / queries % heads, b = unit / queries / heads;
    const i64 mask_at = b * mb + h * mh, visible = CAUSAL && query + 1 < keys ? query + 1 : keys;
    load_rows(asked, q, b * qb + h * qh + query * qs, 0, 1, 1, 1, scale);
    for (int d = 0; d < ROUNDED; ++d) answer[d] = 0;
    A top = -INF_F, sum = 0;
    for (i64 k0 = 0; k0 < visible; k0 += KEYS) {
      const int here = (int)(visible - k0 < KEYS ? visible - k0 : KEYS);
      for (int j = 0; j < KEYS; ++j) s[j] = -INF_F;
      for (int j = 0; j < here; ++j) {
        const i64 at = b * kb + h / group * kh + (k0 + j) * ks;
        A lane[LANES], dot = 0;
        for (int l = 0; l < LANES; ++l) lane[l] = 0;
        for (int d = 0; d + LANES <= D; d += LANES) {
          for (int l = 0; l < LANES; ++l) lane[l] += asked[d + l] * LOAD_X(k, at + d + l);
        }
        for (int d = D / LANES * LANES; d < D; ++d) dot += asked[d] * LOAD_X(k, at + d);
        s[j] = dot + fold(lane) + BIAS(query, k0 + j);
      }
      const A factor = take_block(s, &top, &sum);
      for (int d = 0; d < D; ++d) answer[d] *= factor;
      for (int j = 0; j < here; ++j) {
        const i64 at = b * vb + h / group * vh + (k0 + j) * vs;
        const A weight = s[j];
        VECTOR_LOOP
        for (int d = 0; d < D; ++d) answer[d] += weight * LOAD_X(v, at + d);
      }
    }
    const A share = sum == 0 ? 0 : 1 / sum;
    for (int d = 0; d < D; ++d) STORE_X(out, b * ob + h * oh + query * os + d, answer[d] * share);
    logsumexp[b * lb + h * lh + query * ls] = sum == 0 ? 0 : top + m_log(sum);
  }
}
#endif

#ifdef BACKWARD
// A unit: one head of keys and all the queries that see it. The gradient of the queries is summed up in `total`: dense,
// or (NARROW 0) the result itself.
FUNCTION void attention_backward(GLOBAL X* gq, GLOBAL X* gk, GLOBAL X* gv, GLOBAL A* total, GLOBAL const X* g,
                                 GLOBAL const X* q, GLOBAL const X* k, GLOBAL const X* v, GLOBAL const X* out,
                                 GLOBAL const A* logsumexp, GLOBAL const X* mask, const i64 units, const i64 chunk,
                                 const i64 key_heads, const i64 group, const i64 queries, const i64 keys, const A scale,
                                 const i64 gqb, const i64 gqh, const i64 gqs, const i64 gkb, const i64 gkh,
                                 const i64 gks, const i64 gvb, const i64 gvh, const i64 gvs, const i64 tb, const i64 th,
                                 const i64 ts, const i64 gb, const i64 gh, const i64 gs, const i64 gd, const i64 qb,
                                 const i64 qh, const i64 qs, const i64 kb, const i64 kh, const i64 ks, const i64 vb,
                                 const i64 vh, const i64 vs, const i64 ob, const i64 oh, const i64 os, const i64 od,
                                 const i64 lb, const i64 lh, const i64 ls, const i64 mb, const i64 mh, const i64 mq,
                                 const i64 mk, const i64 item) {
  A key_columns[D * KEYS], key_rows[KEYS * ROUNDED], value_columns[D * KEYS];
  A for_key[KEYS * ROUNDED], for_value[KEYS * ROUNDED];
  A asked[QUERIES * ROUNDED], upstream[QUERIES * ROUNDED], answer[QUERIES * ROUNDED], for_query[QUERIES * ROUNDED];
  A weights[QUERIES * KEYS], slopes[QUERIES * KEYS], ones[QUERIES], norm[QUERIES], delta[QUERIES];
  for (int i = 0; i < QUERIES; ++i) ones[i] = 1;
  EACH(unit, units) {
    const i64 kv = unit % key_heads, b = unit / key_heads;
    for (i64 k0 = 0; k0 < keys; k0 += KEYS) {
      const int here = (int)(keys - k0 < KEYS ? keys - k0 : KEYS);
      load_columns(key_columns, k, b * kb + kv * kh + k0 * ks, ks, here);
      load_columns(value_columns, v, b * vb + kv * vh + k0 * vs, vs, here);
      load_rows(key_rows, k, b * kb + kv * kh + k0 * ks, ks, 1, here, KEYS, scale);
      for (int i = 0; i < KEYS * ROUNDED; ++i) for_key[i] = for_value[i] = 0;
      for (i64 h = kv * group; h < (kv + 1) * group; ++h) {
        const i64 mask_at = b * mb + h * mh;
        for (i64 first = 0; first < queries; first += QUERIES) {
          const int there = (int)(queries - first < QUERIES ? queries - first : QUERIES);
          if (CAUSAL && k0 > 0 && first + QUERIES <= k0) continue;
          load_rows(asked, q, b * qb + h * qh + first * qs, qs, 1, there, QUERIES, scale);
          load_rows(upstream, g, b * gb + h * gh + first * gs, gs, gd, there, QUERIES, 1);
          load_rows(answer, out, b * ob + h * oh + first * os, os, od, there, QUERIES, 1);
          for (int i = 0; i < QUERIES; ++i) {
            A dot = 0;
            for (int d = 0; d < D; ++d) dot += upstream[i * ROUNDED + d] * answer[i * ROUNDED + d];
            delta[i] = dot;
            norm[i] = i < there ? logsumexp[b * lb + h * lh + (first + i) * ls] : 0;
          }
          products(weights, asked, key_columns);
          products(slopes, upstream, value_columns);
          for (int i = 0; i < QUERIES; ++i) {
            const i64 query = first + i;
            const i64 seen = CAUSAL && query + 1 - k0 < here ? query + 1 - k0 : here;
            if (HAS_MASK && i < there) {
              for (int j = 0; j < here; ++j) weights[i * KEYS + j] += BIAS(query, k0 + j);
            }
            const A shift = norm[i];
            const int known = i < there && shift != -INF_F;
            for (int j = 0; j < KEYS; ++j) {
              const A e = m_exp(weights[i * KEYS + j] - shift), w = known && j < seen ? e : 0;
              weights[i * KEYS + j] = w;
              slopes[i * KEYS + j] = w == 0 ? 0 : w * (slopes[i * KEYS + j] - delta[i]);
            }
          }
          add_transposed(for_value, weights, upstream);
          add_transposed(for_key, slopes, asked);
          const i64 at = b * tb + h * th + first * ts;
          for (int i = 0; i < QUERIES; ++i) {
            for (int d = 0; d < D; ++d) {
              for_query[i * ROUNDED + d] = k0 > 0 && i < there ? total[at + i * ts + d] : 0;
            }
          }
          add_weighted(for_query, ones, slopes, key_rows);
          for (int i = 0; i < there; ++i) {
            for (int d = 0; d < D; ++d) total[at + i * ts + d] = for_query[i * ROUNDED + d];
          }
        }
      }
      for (int r = 0; r < here; ++r) {
        for (int d = 0; d < D; ++d) {
          STORE_X(gk, b * gkb + kv * gkh + (k0 + r) * gks + d, for_key[r * ROUNDED + d]);
          STORE_X(gv, b * gvb + kv * gvh + (k0 + r) * gvs + d, for_value[r * ROUNDED + d]);
        }
      }
    }
#if NARROW
    for (i64 h = kv * group; h < (kv + 1) * group; ++h) {
      for (i64 i = 0; i < queries; ++i) {
        for (int d = 0; d < D; ++d) {
          STORE_X(gq, b * gqb + h * gqh + i * gqs + d, total[b * tb + h * th + i * ts + d]);
        }
      }
    }
#endif
  }
}
#endif
