// SPDX-License-Identifier: Apache-2.0
#include "parallel.h"

#include <atomic>
#include <exception>
#include <mutex>

#include "simchip.h"

namespace fl_sim::nn {
namespace {

// The SDK is C and knows no exceptions: the first of a job is kept, and its other items are skipped.
struct Job {
  void (*task)(const void*, int64_t);
  const void* context;
  mutable std::atomic<bool> failed{false};
  mutable std::mutex mutex;
  mutable std::exception_ptr error;
};

void run_item(const void* memory, int64_t i) {
  const auto& job = *static_cast<const Job*>(memory);
  if (job.failed.load(std::memory_order_relaxed)) return;
  try {
    job.task(job.context, i);
  } catch (...) {
    std::lock_guard<std::mutex> lock(job.mutex);
    if (!job.error) job.error = std::current_exception();
    job.failed.store(true, std::memory_order_relaxed);
  }
}

}  // namespace

int parallel_width(double operations) { return simParallelWidth(operations); }

void parallel_run(int64_t count, double operations, void (*task)(const void*, int64_t), const void* context) {
  if (count <= 1 || simParallelWidth(operations) <= 1) {
    for (int64_t i = 0; i < count; ++i) task(context, i);
    return;
  }
  const Job job{task, context, {}, {}, {}};
  simParallelRun(count, operations, run_item, &job);
  if (job.error) std::rethrow_exception(job.error);
}

}  // namespace fl_sim::nn
