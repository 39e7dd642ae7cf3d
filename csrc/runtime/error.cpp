// SPDX-License-Identifier: Apache-2.0
#include "error.h"

#include <cstring>
#include <utility>

#include "internal.h"

namespace torch_fl::runtime {
namespace {

constexpr size_t kMaxMessage = 4096;

struct PluginMessage {
  fl_status status = FL_OK;
  std::string text;
};
thread_local PluginMessage plugin_message;

/// The length of the longest prefix of at most `limit` bytes that does not cut a UTF-8 character in two.
size_t cut(const char* text, size_t limit) {
  size_t length = strnlen(text, limit + 1);
  if (length <= limit) return length;
  length = limit;
  while (length > 0 && (static_cast<unsigned char>(text[length]) & 0xC0) == 0x80) --length;
  return length;
}

}  // namespace

const char* status_name(fl_status status) noexcept {
  switch (status) {
    case FL_OK:
      return "ok";
    case FL_UNSUPPORTED:
      return "unsupported";
    case FL_OUT_OF_MEMORY:
      return "out of memory";
    case FL_INVALID_ARGUMENT:
      return "invalid argument";
    case FL_DEVICE_LOST:
      return "device lost";
    case FL_INTERNAL:
      return "internal error";
    case FL_NOT_READY:
      return "not ready";
    case FL_OUT_OF_RANGE:
      return "out of range";
    default:
      return "unknown status";
  }
}

std::string take_plugin_message() {
  plugin_message.status = FL_OK;
  return std::exchange(plugin_message.text, std::string());
}

std::string take_message_for(fl_status status) {
  // A plugin explains many calls that it merely declines; such a text must not turn up in a later, real failure.
  const bool stale = plugin_message.status == FL_UNSUPPORTED && status != FL_UNSUPPORTED;
  std::string text = take_plugin_message();
  return stale ? std::string() : text;
}

void set_plugin_message(fl_status status, const char* message) {
  plugin_message.status = status;
  if (message == nullptr) {
    plugin_message.text.clear();
  } else {
    plugin_message.text.assign(message, cut(message, kMaxMessage));
  }
}

}  // namespace torch_fl::runtime
