// SPDX-License-Identifier: Apache-2.0
// Bodies of the margin losses: MULTI (one class is the target) or MULTILABEL (several), each FORWARD and backward, by
// samples of p.c classes; TOTAL adds up what samples lost.
#define MARGIN_TERM(z) (p.squares ? (z) * (z) : (z))
#if defined(TOTAL)
A total = 0;
for (i64 begin = 0; begin < p.rows; begin += 1024) {
  const i64 end = begin + 1024 < p.rows ? begin + 1024 : p.rows;
  A block = 0;
  for (i64 n = begin; n < end; ++n) block += losses[n];
  total += block;
}
STORE(out, 0, p.mean ? total / (A)p.rows : total);
#else
const i64 last_row = SHARE_END(p.chunk, p.rows);
const A margin = BITS(p.margin);
for (i64 n = item * p.chunk; n < last_row; ++n) {
  const i64 x = n * p.c;
#ifndef FORWARD
  const A scale = LOAD(gradient, p.each ? n : 0) / (A)(p.mean ? p.c * p.rows : p.c);
#endif
#ifdef MULTI
  const i64 t = target[n];
  const int valid = t >= 0 && t < p.c;  // of a class that does not exist comes no number
  const A at_target = valid ? LOAD(in, x + t) : NAN_F;
  const A weight = valid && p.weighted ? LOAD(weights, t) : 1;
  A sum = valid ? 0 : NAN_F;
  for (i64 d = 0; d < p.c; ++d) {
    const A z = margin - at_target + LOAD(in, x + d);
    const int counts = d != t && z > 0;
#ifdef FORWARD
    sum += counts ? MARGIN_TERM(z) * weight : 0;
#else
    const A share = counts ? (p.squares ? 2 * z : 1) * weight * scale : 0;
    sum -= share;
    STORE(out, x + d, share);
#endif
  }
#ifndef FORWARD
  if (valid) STORE(out, x + t, sum);
#endif
#else
  // Targets end at the first that is negative.
  i64 labels = 0;
  while (labels < p.c && target[x + labels] >= 0) ++labels;
#ifdef FORWARD
  A sum = 0;
  for (i64 d = 0; d < p.c; ++d) STORE(is_target, x + d, 0);
  for (i64 k = 0; k < labels; ++k) {
    const i64 t = target[x + k];
    if (t < p.c) {
      STORE(is_target, x + t, 1);
    } else {
      sum = NAN_F;
    }
  }
  for (i64 k = 0; k < labels; ++k) {
    const i64 t = target[x + k];
    if (t >= p.c) continue;
    const A base = 1 - LOAD(in, x + t);
    for (i64 d = 0; d < p.c; ++d) {
      const A z = base + LOAD(in, x + d);
      sum += z > 0 && LOAD(is_target, x + d) == 0 ? z : 0;
    }
  }
#else
  // A label loses a share for every class over its margin, and such a class gains one for every label.
  for (i64 d = 0; d < p.c; ++d) {
    const int labelled = LOAD(is_target, x + d) != 0;
    const A here = LOAD(in, x + d);
    i64 shares = 0;
    for (i64 k = 0; k < labels; ++k) {
      const i64 t = target[x + k];
      if (labelled && t == d) {
        for (i64 e = 0; e < p.c; ++e) shares -= LOAD(is_target, x + e) == 0 && 1 - here + LOAD(in, x + e) > 0;
      } else if (!labelled && t < p.c) {
        shares += 1 - LOAD(in, x + t) + here > 0;
      }
    }
    STORE(out, x + d, (A)shares * scale);
  }
#endif
#endif
#ifdef FORWARD
  STORE_LOSS(n, sum / (A)p.c);
#endif
}
#endif
