// SPDX-License-Identifier: Apache-2.0
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

#include "device.h"

namespace torch_fl::runtime {
namespace {

constexpr const char* kLevelNames[] = {"debug", "info", "warning", "error"};

/// TORCH_FL_LOG=debug|info|warning|error is the least level that reaches stderr.
fl_log_level stderr_level() {
  static const fl_log_level level = [] {
    const char* text = std::getenv("TORCH_FL_LOG");
    for (fl_log_level i = FL_LOG_DEBUG; text != nullptr && i <= FL_LOG_ERROR; ++i) {
      if (std::strcmp(text, kLevelNames[i]) == 0) return i;
    }
    return static_cast<fl_log_level>(FL_LOG_WARNING);
  }();
  return level;
}

void to_stderr(fl_log_level level, const char* message) {
  if (level < stderr_level()) return;
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
