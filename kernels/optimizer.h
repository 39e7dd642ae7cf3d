// SPDX-License-Identifier: Apache-2.0
// Steps of optimizers, and the scaling of gradients of automatic mixed precision. X: parameters, gradients and states;
// RATE: a learning rate that is a tensor.
#if HAS_RATE
#define LEARNING_RATE LOAD_RATE(rate, 0)
#else
#define LEARNING_RATE lr
#endif
#define SHARE                     \
  const i64 begin = item * chunk; \
  const i64 end = begin + chunk < n ? begin + chunk : n;
// Nothing happens after an overflow; gradients are divided by *scale, in place.
#if HAS_FOUND
#define SKIPPED (found[0] == 1.0f)
#else
#define SKIPPED 0
#endif
#if HAS_SCALE
#define TAKE_GRADIENT(name)                   \
  A name = LOAD_X(gradient, i) / (A)scale[0]; \
  STORE_X(gradient, i, name);                 \
  if (MAXIMIZE) name = -name;
#else
#define TAKE_GRADIENT(name) A name = MAXIMIZE ? -LOAD_X(gradient, i) : LOAD_X(gradient, i);
#endif

#ifdef ADAM
// 1 - beta^t is taken as -(e^(t log beta) - 1): exact also where beta^t is close to 1.
FUNCTION void adam(GLOBAL const f32* scale, GLOBAL const f32* found, GLOBAL const RATE* rate, GLOBAL X* parameter,
                   GLOBAL X* gradient, GLOBAL X* average, GLOBAL X* square, GLOBAL X* largest, GLOBAL const f32* step,
                   const i64 chunk, const A lr, const A beta1, const A beta2, const A decay, const A eps,
                   const A log_beta1, const A log_beta2, const A weight1, const A weight2, const i64 n,
                   const i64 item) {
  SHARE
  if (SKIPPED) return;
  const A learning_rate = (A)LEARNING_RATE, t = (A)step[0];
  const A step_size = learning_rate / -m_expm1(t * log_beta1);
  const A correction = sqrt(-m_expm1(t * log_beta2));
  VECTOR_LOOP
  for (i64 i = begin; i < end; ++i) {
    A p = LOAD_X(parameter, i);
    TAKE_GRADIENT(g)
#if DECOUPLED
    p -= learning_rate * decay * p;
#else
    g += decay * p;
#endif
    const A old = LOAD_X(average, i);
    const A mean = weight1 < (A)0.5 ? old + weight1 * (g - old) : g - (g - old) * beta1;
    const A variance = LOAD_X(square, i) * beta2 + weight2 * g * g;
    STORE_X(average, i, mean);
    STORE_X(square, i, variance);
    A top = variance;
#if AMSGRAD
    const A before = LOAD_X(largest, i);
    top = before > variance || before != before ? before : variance;
    STORE_X(largest, i, top);
#endif
    STORE_X(parameter, i, p - step_size * mean / (sqrt(top) / correction + eps));
  }
}
#endif

#ifdef SGD
FUNCTION void sgd(GLOBAL const f32* scale, GLOBAL const f32* found, GLOBAL const RATE* rate, GLOBAL X* parameter,
                  GLOBAL X* gradient, GLOBAL X* buffer, const i64 chunk, const A lr, const A decay, const A momentum,
                  const A undamped, const i64 n, const i64 item) {
  SHARE
  if (SKIPPED) return;
  const A learning_rate = (A)LEARNING_RATE;
  VECTOR_LOOP
  for (i64 i = begin; i < end; ++i) {
    const A p = LOAD_X(parameter, i);
    TAKE_GRADIENT(g)
    g += p * decay;
#if HAS_MOMENTUM
    const A velocity = FIRST ? g : momentum * LOAD_X(buffer, i) + undamped * g;
    STORE_X(buffer, i, velocity);
    g = NESTEROV ? g + momentum * velocity : velocity;
#endif
    STORE_X(parameter, i, p - learning_rate * g);
  }
}
#endif

#ifdef ADAGRAD
FUNCTION void adagrad(GLOBAL const f32* scale, GLOBAL const f32* found, GLOBAL const RATE* rate, GLOBAL X* parameter,
                      GLOBAL X* gradient, GLOBAL X* sum, GLOBAL const f32* step, const i64 chunk, const A lr,
                      const A lr_decay, const A decay, const A eps, const i64 n, const i64 item) {
  SHARE
  if (SKIPPED) return;
  const A size = (A)LEARNING_RATE / (1 + ((A)step[0] - 1) * lr_decay);
  VECTOR_LOOP
  for (i64 i = begin; i < end; ++i) {
    const A p = LOAD_X(parameter, i);
    TAKE_GRADIENT(g)
    g += decay * p;
    const A total = LOAD_X(sum, i) + g * g;
    STORE_X(sum, i, total);
    STORE_X(parameter, i, p - size * g / (sqrt(total) + eps));
  }
}
#endif

#ifdef UNSCALE
// flags[item]: whether there was a number that is not finite.
FUNCTION void unscale(GLOBAL const f32* inverse, GLOBAL X* gradient, GLOBAL u8* flags, const i64 chunk, const i64 n,
                      const i64 item) {
  SHARE
  const A factor = (A)inverse[0];
  i32 bad = 0;
  for (i64 i = begin; i < end; ++i) {
    const A g = LOAD_X(gradient, i);
    bad |= !(g - g == 0);
    STORE_X(gradient, i, factor == 1 ? g : g * factor);
  }
  flags[item] = (u8)bad;
}
FUNCTION void any_flag(GLOBAL f32* found, GLOBAL const u8* flags, const i64 n, const i64 item) {
  i32 bad = 0;
  for (i64 i = 0; i < n; ++i) bad |= flags[i];
  if (bad) found[0] = 1;
}
FUNCTION void update_scale(GLOBAL f32* scale, GLOBAL i32* tracker, GLOBAL const f32* found, const i64 interval,
                           const A growth, const A backoff, const i64 item) {
  const i32 successes = tracker[0] + 1;
  const f32 grown = scale[0] * growth;
  if (found[0] != 0) {
    scale[0] *= backoff;
    tracker[0] = 0;
  } else if (successes == interval) {
    if (grown - grown == 0) scale[0] = grown;
    tracker[0] = 0;
  } else {
    tracker[0] = successes;
  }
}
#endif
