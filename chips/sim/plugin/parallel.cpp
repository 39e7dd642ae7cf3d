// SPDX-License-Identifier: Apache-2.0
#include "parallel.h"

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstdlib>
#include <exception>
#include <mutex>
#include <system_error>
#include <thread>
#include <utility>

namespace fl_sim::nn {
namespace {

constexpr double kSmallWork = 2e6;        // below, waking a thread costs more than it saves
constexpr double kSmallWorkInline = 2e7;  // a host that runs streams inline measures latency: split only big work
constexpr int kMaxThreads = 16;

int configured_threads() {
  const char* text = std::getenv("SIMCHIP_THREADS");
  const int hardware = static_cast<int>(std::thread::hardware_concurrency());
  const int wanted = text ? std::atoi(text) : std::min(hardware, 2);
  return std::clamp(wanted, 1, kMaxThreads);
}

double configured_threshold() {
  const char* text = std::getenv("SIMCHIP_INLINE");
  return text && text[0] == '1' ? kSmallWorkInline : kSmallWork;
}

// One job at a time: a caller that finds the pool busy works alone.
class Pool {
 public:
  // Never destroyed: helpers may still wait on it while the process exits.
  static Pool& instance() {
    static Pool* const pool = new Pool();
    return *pool;
  }
  int threads() const { return threads_; }
  double threshold() const { return threshold_; }
  bool run(int64_t count, void (*task)(const void*, int64_t), const void* context);

 private:
  Pool() = default;
  void start();
  void help();
  void drain();

  const int threads_ = configured_threads();
  const double threshold_ = configured_threshold();
  std::atomic<bool> busy_{false};  // a job is running; also keeps a task that nests parallel_run from waiting on itself
  std::mutex mutex_;
  std::condition_variable wake_, done_;
  bool started_ = false;
  int helpers_ = 0;
  uint64_t job_ = 0;  // number of the current job
  int pending_ = 0;   // helpers that have not finished the current job
  void (*task_)(const void*, int64_t) = nullptr;
  const void* context_ = nullptr;
  int64_t count_ = 0;
  std::atomic<int64_t> next_{0};
  std::exception_ptr error_;  // the first of the current job
};

void Pool::start() {
  if (started_) return;
  started_ = true;
  try {
    for (; helpers_ < threads_ - 1; ++helpers_) std::thread([this] { help(); }).detach();
  } catch (const std::system_error&) {
    // No more threads to be had: the caller works with those there are.
  }
}

void Pool::drain() {
  try {
    for (int64_t i = next_.fetch_add(1); i < count_; i = next_.fetch_add(1)) task_(context_, i);
  } catch (...) {
    next_.store(count_);  // the others stop at their next item
    std::lock_guard<std::mutex> lock(mutex_);
    if (!error_) error_ = std::current_exception();
  }
}

void Pool::help() {
  uint64_t seen = 0;
  std::unique_lock<std::mutex> lock(mutex_);
  while (true) {
    wake_.wait(lock, [&] { return job_ != seen; });
    seen = job_;
    lock.unlock();
    drain();
    lock.lock();
    if (--pending_ == 0) done_.notify_one();
  }
}

bool Pool::run(int64_t count, void (*task)(const void*, int64_t), const void* context) {
  if (busy_.exchange(true, std::memory_order_acquire)) return false;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    start();
    task_ = task;
    context_ = context;
    count_ = count;
    next_.store(0);
    pending_ = helpers_;
    ++job_;
  }
  wake_.notify_all();
  drain();
  {
    std::unique_lock<std::mutex> lock(mutex_);
    done_.wait(lock, [&] { return pending_ == 0; });
  }
  const std::exception_ptr error = std::exchange(error_, nullptr);
  busy_.store(false, std::memory_order_release);
  if (error) std::rethrow_exception(error);
  return true;
}

}  // namespace

int parallel_width(double operations) {
  Pool& pool = Pool::instance();
  return operations < pool.threshold() ? 1 : pool.threads();
}

void parallel_run(int64_t count, double operations, void (*task)(const void*, int64_t), const void* context) {
  const bool split = count > 1 && parallel_width(operations) > 1;
  if (split && Pool::instance().run(count, task, context)) return;
  for (int64_t i = 0; i < count; ++i) task(context, i);
}

}  // namespace fl_sim::nn
