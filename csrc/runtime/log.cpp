// SPDX-License-Identifier: Apache-2.0
#include <atomic>
#include <cstdio>
#include <string>

#include "device.h"
#include "settings.h"

namespace torch_fl::runtime {
namespace {

constexpr const char* kLevelNames[] = {"debug", "info", "warning", "error"};

void to_stderr(fl_log_level level, const char* message) {
  if (level < settings.log_level.load(std::memory_order_relaxed)) return;
  const fl_log_level known = level < FL_LOG_DEBUG ? FL_LOG_DEBUG : level > FL_LOG_ERROR ? FL_LOG_ERROR : level;
  std::fprintf(stderr, "torch_fl %s: %s\n", kLevelNames[known], message);
}

std::atomic<void (*)(fl_log_level, const char*)> sink{&to_stderr};

}  // namespace

void set_log_sink(void (*new_sink)(fl_log_level, const char*)) {
  sink.store(new_sink != nullptr ? new_sink : &to_stderr, std::memory_order_release);
}

void log(fl_log_level level, const std::string& message) {
  sink.load(std::memory_order_acquire)(level, message.c_str());
}

}  // namespace torch_fl::runtime
