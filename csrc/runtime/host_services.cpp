// SPDX-License-Identifier: Apache-2.0
// What every plugin gets from the host. No exception may cross into the plugin.
#include <exception>
#include <string>

#include "internal.h"
#include "scratch.h"

namespace torch_fl::runtime {
namespace {

thread_local constinit ScratchScope* thread_scope = nullptr;

fl_status refuse(fl_status status, const std::string& message) {
  set_plugin_message(status, message.c_str());
  return status;
}

void host_log(fl_log_level level, const char* message) {
  if (message != nullptr) log(level, message);
}

fl_status host_scratch(const fl_call* call, uint64_t bytes, fl_address* address) {
  if (call == nullptr || address == nullptr) {
    return refuse(FL_INVALID_ARGUMENT, "scratch: call and address must not be null");
  }
  ScratchScope* scope = ScratchScope::current();
  if (scope == nullptr || !scope->device().usable() || scope->device().handle() != call->device) {
    return refuse(FL_INVALID_ARGUMENT, "scratch: it may only be asked for inside a kernel's run(), on its own thread");
  }
  *address = 0;
  if (bytes == 0) return FL_OK;
  try {
    *address = scope->take(bytes);
    return FL_OK;
  } catch (const Error& error) {
    return refuse(error.status(), std::string("scratch: ") + error.what());
  } catch (const std::exception& error) {
    return refuse(FL_INTERNAL, std::string("scratch: ") + error.what());
  }
}

fl_status host_current_stream(const char* plugin, int32_t device_index, fl_stream* stream) {
  if (plugin == nullptr || stream == nullptr) {
    return refuse(FL_INVALID_ARGUMENT, "current_stream: plugin and stream must not be null");
  }
  for (const auto& chip : Registry::get().chips()) {
    if (chip->name != plugin) continue;
    const auto count = static_cast<int32_t>(chip->devices.size());
    if (device_index < 0 || device_index >= count) {
      return refuse(FL_INVALID_ARGUMENT, "current_stream: the chip " + chip->name + " has " + std::to_string(count) +
                                             " devices, but device " + std::to_string(device_index) + " was asked for");
    }
    Device& device = *chip->devices[static_cast<size_t>(device_index)];
    try {
      *stream = device.stream(current_stream(device.index));
      return FL_OK;
    } catch (const Error& error) {
      return refuse(error.status(), std::string("current_stream: ") + error.what());
    }
  }
  return refuse(FL_INVALID_ARGUMENT, std::string("current_stream: there is no chip named ") + plugin);
}

}  // namespace

ScratchScope* ScratchScope::current() noexcept { return thread_scope; }

ScratchScope* ScratchScope::enter(ScratchScope* scope) noexcept {
  ScratchScope* outer = thread_scope;
  thread_scope = scope;
  return outer;
}

void ScratchScope::leave(ScratchScope* outer) noexcept { thread_scope = outer; }

fl_address ScratchScope::take(uint64_t bytes) {
  if (count_ >= first_.size()) more_.reserve(more_.size() + 1);
  Block* block = device_.allocator().allocate(bytes, stream_);
  if (count_ < first_.size()) {
    first_[count_] = block;
  } else {
    more_.push_back(block);
  }
  ++count_;
  return block->address;
}

void ScratchScope::give_back() noexcept {
  for (size_t i = 0; i < count_ && i < first_.size(); ++i) device_.allocator().free(first_[i]);
  for (Block* block : more_) device_.allocator().free(block);
}

const fl_host& host_services() {
  static const fl_host host = [] {
    fl_host services{};
    services.struct_size = sizeof services;
    services.abi_major = FL_ABI_MAJOR;
    services.abi_minor = FL_ABI_MINOR;
    services.version = "torch_fl " TORCH_FL_VERSION;
    services.log = &host_log;
    services.set_error = &set_plugin_message;
    services.scratch = &host_scratch;
    services.current_stream = &host_current_stream;
    return services;
  }();
  return host;
}

}  // namespace torch_fl::runtime
