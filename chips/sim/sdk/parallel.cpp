// SPDX-License-Identifier: Apache-2.0
// The chip's cores: a small pool of threads that splits one large kernel.
#include <algorithm>
#include <cstdlib>
#include <system_error>

#include "internal.h"

namespace simchip {
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
  bool run(int64_t count, simTask task, const void* context);

 private:
  Pool() = default;
  void start();
  void help();
  void drain();

  const int threads_ = configured_threads();
  const double threshold_ = limits().run_inline ? kSmallWorkInline : kSmallWork;
  std::atomic<bool> busy_{false};  // a job is running; also keeps a task that nests jobs from waiting on itself
  std::mutex mutex_;
  std::condition_variable wake_, done_;
  bool started_ = false;
  int helpers_ = 0;
  uint64_t job_ = 0;  // number of the current job
  int pending_ = 0;   // helpers that have not finished the current job
  simTask task_ = nullptr;
  const void* context_ = nullptr;
  int64_t count_ = 0;
  std::atomic<int64_t> next_{0};
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
  for (int64_t i = next_.fetch_add(1); i < count_; i = next_.fetch_add(1)) task_(context_, i);
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

bool Pool::run(int64_t count, simTask task, const void* context) {
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
  busy_.store(false, std::memory_order_release);
  return true;
}

}  // namespace
}  // namespace simchip

int32_t simParallelWidth(double operations) {
  auto& pool = simchip::Pool::instance();
  return operations < pool.threshold() ? 1 : pool.threads();
}

int32_t simParallelRun(int64_t count, double operations, simTask task, const void* context) {
  const int32_t width = count > 1 ? simParallelWidth(operations) : 1;
  if (width > 1 && simchip::Pool::instance().run(count, task, context)) return width;
  for (int64_t i = 0; i < count; ++i) task(context, i);
  return 1;
}
