// SPDX-License-Identifier: Apache-2.0
// One device: opening, errors, and the operations on its memory.
#include "device.h"

#include <algorithm>
#include <cstring>
#include <string>

#include "internal.h"
#include "lock.h"
#include "settings.h"
#include "streams.h"
#include "timeline.h"

namespace torch_fl::runtime {
namespace {

constexpr uint64_t kDefaultAlignment = 64;
constexpr uint64_t kMaxStagedFill = 1 << 20;

/// Replaces the zeros that mean "the default".
fl_device_properties with_defaults(fl_device_properties p) {
  if (p.max_allocation == 0) p.max_allocation = p.total_memory;
  if (p.alignment == 0) p.alignment = kDefaultAlignment;
  if (p.size_granularity == 0) p.size_granularity = p.alignment;
  return p;
}

const char* name_of(fl_copy_kind kind) {
  return kind == FL_COPY_HOST_TO_DEVICE   ? "Memcpy HtoD"
         : kind == FL_COPY_DEVICE_TO_HOST ? "Memcpy DtoH"
                                          : "Memcpy DtoD";
}

}  // namespace

Device::Device(Chip& chip, int32_t local_index, int32_t index, const fl_device_properties& given)
    : chip(chip),
      local_index(local_index),
      index(index),
      properties(with_defaults(given)),
      host_coherent((given.capabilities & FL_CAP_HOST_COHERENT) != 0),
      unified((given.capabilities & FL_CAP_UNIFIED) != 0),
      streams_(std::make_unique<Streams>()),
      allocator_(std::make_unique<Allocator>(*this)),
      pinned_(std::make_unique<PinnedPool>(*this)),
      modules_(*this) {}

Device::~Device() = default;

fl_device Device::open() {
  fl_status status = FL_OK;
  if (bad_fork.load(std::memory_order_acquire)) refuse();
  if ((settings.excluded_devices.load(std::memory_order_relaxed) >> index & 1) != 0) {
    throw Error(FL_INVALID_ARGUMENT, chip.name + " device fl:" + std::to_string(index) +
                                         " is excluded: the setting exclude_devices names it or its chip");
  }
  {
    const Lock lock(mutex_);
    if (ready_.load(std::memory_order_relaxed)) return handle_;
    if (!lost_.load(std::memory_order_relaxed) && !closed_.load(std::memory_order_relaxed)) {
      status = chip.device_api.open(local_index, &handle_);
      if (status == FL_OK) {
        opened_.store(true, std::memory_order_release);
        ready_.store(true, std::memory_order_release);
        return handle_;
      }
    }
  }
  if (status != FL_OK) fail(status, "opening the device");
  refuse();
}

void Device::refuse() {
  const std::string who = chip.name + " device fl:" + std::to_string(index);
  if (bad_fork.load(std::memory_order_acquire)) {
    throw Error(FL_INVALID_ARGUMENT,
                "cannot use fl devices in a forked process; use the spawn start method (" + who +
                    " was wanted, and the parent process had already opened an fl device before it forked)");
  }
  const Lock lock(mutex_);
  if (lost_.load(std::memory_order_relaxed)) {
    throw Error(FL_DEVICE_LOST, who + " is lost and can no longer be used: " + lost_reason_ +
                                    ". Its tensors cannot be read any more; restart the process to use it again");
  }
  throw Error(FL_INTERNAL, who + " was closed: the process is exiting");
}

void Device::fail(fl_status status, const char* what) {
  const std::string said = take_message_for(status);
  std::string message = chip.name + " device fl:" + std::to_string(index) + ": " + what + " failed: ";
  const std::string name = status_name(status);
  message += name == "unknown status" ? name + " " + std::to_string(status) : name;
  if (!said.empty()) message += ": " + said;
  if (status == FL_DEVICE_LOST) {
    const Lock lock(mutex_);
    if (!lost_.exchange(true, std::memory_order_acq_rel)) {
      lost_reason_ = std::string(what) + " failed" + (said.empty() ? "" : ": " + said);
    }
    ready_.store(false, std::memory_order_release);
  }
  throw Error(status, message);
}

void Device::close() noexcept {
  if (!usable()) return;
  try {
    synchronize();
    allocator_->empty_cache();
    pinned_->empty_cache();
    timeline_closing(*this);
  } catch (const std::exception& error) {
    log(FL_LOG_WARNING, std::string("while closing devices at exit: ") + error.what());
  }
  const Lock lock(mutex_);
  closed_.store(true, std::memory_order_release);
  ready_.store(false, std::memory_order_release);
  if (!lost() && chip.device_api.close != nullptr) chip.device_api.close(handle_);
}

void Device::synchronize() {
  if (!opened()) return;
  const RuntimeCall seen(*this, -1, "flDeviceSynchronize");
  check(chip.device_api.synchronize(handle()), "synchronising the device");
}

void Device::copy(StreamId id, fl_address dst, fl_address src, uint64_t bytes, fl_copy_kind kind) {
  if (bytes == 0) return;
  const fl_device device = handle();
  {
    const auto seen = Enqueue::copy(*this, id, name_of(kind), bytes);
    check(chip.memory.copy(device, stream(id), dst, src, bytes, kind), "copying memory");
  }
  if (!settings.async_execution.load(std::memory_order_relaxed)) synchronize_stream(id);
}

void Device::fill(StreamId id, fl_address dst, const void* pattern, uint32_t pattern_bytes, uint64_t count) {
  if (count == 0) return;
  const fl_device device = handle();
  if (can_fill()) {
    {
      const auto seen = Enqueue::fill(*this, id, count * pattern_bytes);
      check(chip.memory.fill(device, stream(id), dst, pattern, pattern_bytes, count), "filling memory");
    }
    if (!settings.async_execution.load(std::memory_order_relaxed)) synchronize_stream(id);
    return;
  }
  // Without a fill of its own the chip copies from a piece of pinned memory that holds the pattern many times.
  const uint64_t total = count * pattern_bytes;
  const uint64_t piece = std::min(total, kMaxStagedFill / pattern_bytes * pattern_bytes);
  char* staging = static_cast<char*>(pinned_->allocate(piece));
  for (uint64_t done = 0; done < piece; done += pattern_bytes) std::memcpy(staging + done, pattern, pattern_bytes);
  try {
    for (uint64_t done = 0; done < total; done += piece) {
      copy(id, dst + done, reinterpret_cast<fl_address>(staging), std::min(piece, total - done),
           FL_COPY_HOST_TO_DEVICE);
    }
    if (chip.memory.host_alloc == nullptr) synchronize_stream(id);
    pinned_->record(staging, id);
  } catch (...) {
    pinned_->free(staging);
    throw;
  }
  pinned_->free(staging);
}

void Device::memory_info(uint64_t* free_bytes, uint64_t* total_bytes) {
  if (chip.memory.info != nullptr) {
    return check(chip.memory.info(handle(), free_bytes, total_bytes), "querying free memory");
  }
  const auto used = static_cast<uint64_t>(allocator_->stats().reserved_bytes.current);
  *total_bytes = properties.total_memory;
  *free_bytes = used < properties.total_memory ? properties.total_memory - used : 0;
}

}  // namespace torch_fl::runtime
