// SPDX-License-Identifier: Apache-2.0
// Splits one large kernel over the chip's cores (the SDK's pool of threads), exceptions included.
#pragma once

#include <cstdint>

namespace fl_sim::nn {

// Runs task(context, i) for i in [0, count), on the calling thread and, when `operations` (multiply-adds or similar) is
// large enough and the pool is free, on helper threads. Returns when all are done; the first
// exception of a task is thrown on.
void parallel_run(int64_t count, double operations, void (*task)(const void* context, int64_t i), const void* context);

// How many threads parallel_run would use for that much work: for choosing how to cut it.
int parallel_width(double operations);

template <class Body>
void parallel_for(int64_t count, double operations, const Body& body) {
  parallel_run(
      count, operations, [](const void* context, int64_t i) { (*static_cast<const Body*>(context))(i); }, &body);
}

}  // namespace fl_sim::nn
