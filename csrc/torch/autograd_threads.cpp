// SPDX-License-Identifier: Apache-2.0
#include "autograd_threads.h"

#include <torch/csrc/autograd/engine.h>

#include <memory>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

namespace torch_fl::glue {
namespace {

using torch::autograd::Engine;
using torch::autograd::ReadyQueue;
using Queues = std::vector<std::shared_ptr<ReadyQueue>>;

constexpr size_t kMaxDevices = 64;

/// The way to a protected member.
struct Access : Engine {
  static Queues& queues(Engine& engine) { return engine.*&Access::device_ready_queues_; }
};

void grow(Engine& engine, Queues& queues, size_t needed) {
  // Threads of other devices read the vector without a lock: its memory stays where it was, so they find their queue.
  static auto& former = *new std::vector<Queues>();
  if (queues.capacity() < kMaxDevices) {
    Queues grown;
    grown.reserve(kMaxDevices);
    grown = queues;
    queues.swap(grown);
    former.push_back(std::move(grown));
  }
  while (queues.size() < needed) {
    auto queue = std::make_shared<ReadyQueue>();
    const auto index = static_cast<int>(queues.size());
    queues.push_back(queue);
    std::thread([&engine, index, queue] { engine.thread_init(index, queue, true); }).detach();
  }
}

}  // namespace

void ensure_autograd_thread(int32_t device_index) {
  static std::mutex mutex;
  const std::lock_guard lock(mutex);
  Engine& engine = Engine::get_default_engine();
  Queues& queues = Access::queues(engine);
  if (queues.empty()) {
    if (!told_no_devices.load(std::memory_order_relaxed)) return;  // the first pass is still to come
    try {
      engine.initialize_device_threads_pool();
    } catch (const c10::Error&) {  // a forked child, in which autograd refuses every pass and says so
      return;
    }
  }
  const auto needed = static_cast<size_t>(device_index) + 1;
  if (queues.size() < needed) grow(engine, queues, needed);
}

}  // namespace torch_fl::glue
