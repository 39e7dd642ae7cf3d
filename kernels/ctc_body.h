// SPDX-License-Identifier: Apache-2.0
// Bodies of the connectionist temporal classification loss, by samples: FORWARD and its gradient. State s of a sample
// stands for a blank where it is even, else for its target s / 2. `states` has one row of log probabilities per step.
#define LABEL(s) ((s) % 2 == 0 ? p.blank : (i64)targets[start + (s) / 2])
// A label that does not exist is never said.
#define SAID(t, label) ((label) >= 0 && (label) < p.c ? probabilities[((t) * p.n + sample) * p.c + (label)] : -INF_F)
#define STATE(t, s) states[(sample * p.steps + (t)) * p.width + (s)]
const i64 sample = p.first + item, length = p.lengths[item], labels = p.labels[item], start = p.starts[item];
const i64 last = 2 * labels;
#ifdef FORWARD
if (length == 0) {
  loss[sample] = labels == 0 ? 0 : INF_F;
  return;
}
for (i64 s = 0; s <= last; ++s) STATE(0, s) = s < 2 ? SAID(0, LABEL(s)) : -INF_F;
for (i64 t = 1; t < length; ++t) {
  for (i64 s = 0; s <= last; ++s) {
    const i64 label = LABEL(s);
    const A stay = STATE(t - 1, s), step = s > 0 ? STATE(t - 1, s - 1) : -INF_F;
    const A leap = s > 1 && LABEL(s - 2) != label ? STATE(t - 1, s - 2) : -INF_F;
    STATE(t, s) = log_of_sum(stay, step, leap) + SAID(t, label);
  }
}
loss[sample] = -log_of_sum(STATE(length - 1, last), last > 0 ? STATE(length - 1, last - 1) : -INF_F, -INF_F);
#else
const A lost = loss[sample], scale = gradient[sample];
const int nothing = p.zero_infinity && lost == INF_F;
for (i64 t = 0; t < p.steps; ++t) {
  for (i64 c = 0; c < p.c; ++c) out[(t * p.n + sample) * p.c + c] = nothing || t >= length ? 0 : -INF_F;
}
if (nothing) return;
for (i64 t = length - 1; t >= 0; --t) {
  const i64 at = (t * p.n + sample) * p.c;
  // What comes after this step, from each state; of two steps in turn.
  GLOBAL A* now = after + (sample * 2 + t % 2) * p.width;
  GLOBAL const A* next = after + (sample * 2 + 1 - t % 2) * p.width;
  for (i64 s = last; s >= 0; --s) {
    const i64 label = LABEL(s);
    A value = s >= last - 1 ? 0 : -INF_F;
    if (t < length - 1) {
      const A step = s < last ? next[s + 1] : -INF_F;
      const A leap = s < last - 1 && LABEL(s + 2) != label ? next[s + 2] : -INF_F;
      value = log_of_sum(next[s], step, leap);
    }
    now[s] = value + SAID(t, label);
    if (label >= 0 && label < p.c) out[at + label] = log_of_sum(out[at + label], STATE(t, s) + now[s], -INF_F);
  }
  for (i64 c = 0; c < p.c; ++c) {
    const A said = probabilities[at + c];
    out[at + c] = (exp(said) - exp(out[at + c] + lost - said)) * scale;
  }
}
#endif
