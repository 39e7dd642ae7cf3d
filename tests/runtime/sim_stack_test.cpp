// SPDX-License-Identifier: Apache-2.0
// The runtime over the SDK of the simulated chip, whose streams are threads and whose memory is the host's: under
// ThreadSanitizer a block that is given out too early, or a copy that is not ordered, is a data race.
#include <gtest/gtest.h>

#include <cstring>
#include <thread>
#include <vector>

#include "device.h"
#include "simchip.h"

namespace torch_fl::runtime {
namespace {

constexpr uint64_t kCount = 300, kBytes = kCount * sizeof(uint32_t);

fl_status status_of(simResult result) {
  switch (result) {
    case SIM_SUCCESS:
      return FL_OK;
    case SIM_ERROR_OUT_OF_MEMORY:
      return FL_OUT_OF_MEMORY;
    case SIM_ERROR_NOT_READY:
      return FL_NOT_READY;
    default:
      host_services().set_error(FL_INTERNAL, simGetLastErrorString());
      return result == SIM_ERROR_DEVICE_LOST ? FL_DEVICE_LOST : FL_INTERNAL;
  }
}

simDevice sim(fl_device device) { return reinterpret_cast<simDevice>(device); }
simStream sim(fl_stream stream) { return reinterpret_cast<simStream>(stream); }
simEvent sim(fl_event event) { return reinterpret_cast<simEvent>(event); }

void fill_device_and_memory(Chip& chip) {
  chip.device_api.open = [](int32_t index, fl_device* device) {
    return status_of(simDeviceOpen(index, reinterpret_cast<simDevice*>(device)));
  };
  chip.device_api.close = [](fl_device device) { simDeviceClose(sim(device)); };
  chip.device_api.synchronize = [](fl_device device) { return status_of(simDeviceSynchronize(sim(device))); };
  chip.memory.alloc = [](fl_device device, uint64_t bytes, fl_address* address) {
    return status_of(simMalloc(sim(device), bytes, address));
  };
  chip.memory.free = [](fl_device device, fl_address address) { return status_of(simFree(sim(device), address)); };
  chip.memory.copy = [](fl_device device, fl_stream stream, fl_address dst, fl_address src, uint64_t bytes,
                        fl_copy_kind kind) {
    return status_of(simMemcpyAsync(sim(device), sim(stream), dst, src, bytes, kind));
  };
  chip.memory.host_alloc = [](fl_device device, uint64_t bytes, void** pointer) {
    return status_of(simHostAlloc(sim(device), bytes, pointer));
  };
  chip.memory.host_free = [](fl_device device, void* pointer) { return status_of(simHostFree(sim(device), pointer)); };
}

fl_status copy_peer(fl_device dst_device, fl_address dst, fl_device src_device, fl_address src, uint64_t bytes,
                    fl_stream stream) {
  return status_of(simMemcpyPeerAsync(sim(dst_device), dst, sim(src_device), src, bytes, sim(stream)));
}

void fill_streams(Chip& chip) {
  chip.has_streams = true;
  chip.stream.create = [](fl_device device, int32_t priority, fl_stream* stream) {
    return status_of(simStreamCreate(sim(device), priority, reinterpret_cast<simStream*>(stream)));
  };
  chip.stream.synchronize = [](fl_device device, fl_stream stream) {
    return status_of(simStreamSynchronize(sim(device), sim(stream)));
  };
  chip.stream.query = [](fl_device device, fl_stream s) { return status_of(simStreamQuery(sim(device), sim(s))); };
  chip.stream.event_create = [](fl_device device, uint32_t, fl_event* event) {
    return status_of(simEventCreate(sim(device), reinterpret_cast<simEvent*>(event)));
  };
  chip.stream.event_destroy = [](fl_device, fl_event event) { return status_of(simEventDestroy(sim(event))); };
  chip.stream.event_record = [](fl_device device, fl_event event, fl_stream stream) {
    return status_of(simEventRecord(sim(device), sim(event), sim(stream)));
  };
  chip.stream.event_wait = [](fl_device device, fl_event event, fl_stream stream) {
    return status_of(simStreamWaitEvent(sim(device), sim(stream), sim(event)));
  };
  chip.stream.event_synchronize = [](fl_device, fl_event event) { return status_of(simEventSynchronize(sim(event))); };
  chip.stream.event_query = [](fl_device, fl_event event) { return status_of(simEventQuery(sim(event))); };
}

struct Packet {
  fl_address data;
  uint32_t value;
};

int32_t add(simDevice device, void* packet) {
  const auto* args = static_cast<const Packet*>(packet);
  auto* values = static_cast<uint32_t*>(simTranslate(device, args->data));
  for (uint64_t i = 0; i < kCount; ++i) values[i] += args->value;
  return 0;
}

void launch_add(Device& device, StreamId stream, fl_address data, uint32_t value) {
  const Packet packet{data, value};
  device.check(
      status_of(simLaunch(sim(device.handle()), sim(device.stream(stream)), "add", &add, &packet, sizeof packet)),
      "launching add");
}

class SimStack : public ::testing::TestWithParam<bool> {  // whether the chip copies between its devices
 protected:
  SimStack() {
    chip.name = "sim";
    fill_device_and_memory(chip);
    fill_streams(chip);
    fl_device_properties properties{};
    properties.total_memory = uint64_t{1} << 30;
    if (GetParam()) {
      chip.memory.copy_peer = &copy_peer;
      properties.capabilities = FL_CAP_PEER_COPY;
    }
    for (int32_t i = 0; i < 2; ++i) chip.devices.push_back(std::make_unique<Device>(chip, i, i, properties));
  }

  Block* upload(Device& device, StreamId stream, uint32_t value) {
    auto* host = static_cast<uint32_t*>(device.pinned().allocate(kBytes));
    for (uint64_t i = 0; i < kCount; ++i) host[i] = value;
    Block* block = device.allocator().allocate(kBytes, stream);
    device.copy(stream, block->address, reinterpret_cast<fl_address>(host), kBytes, FL_COPY_HOST_TO_DEVICE);
    device.pinned().record(host, stream);
    device.pinned().free(host);  // while the copy may still read it
    return block;
  }

  void expect_value(Device& device, StreamId stream, Block* block, uint32_t value) {
    auto* host = static_cast<uint32_t*>(device.pinned().allocate(kBytes));
    device.copy(stream, reinterpret_cast<fl_address>(host), block->address, kBytes, FL_COPY_DEVICE_TO_HOST);
    device.synchronize_stream(stream);
    for (uint64_t i = 0; i < kCount; ++i) ASSERT_EQ(host[i], value) << i;
    device.pinned().free(host);
  }

  void round(Device& mine, Device& other, uint32_t value) {
    const StreamId first = mine.stream_from_pool(0), second = mine.stream_from_pool(-1);
    const StreamId there = other.stream_from_pool(0);
    Block* data = upload(mine, first, value);
    launch_add(mine, first, data->address, 1);
    Block* temporary = mine.allocator().allocate(kBytes, first);
    launch_add(mine, first, temporary->address, 1);
    mine.allocator().free(temporary);  // at once: the next on this stream may have it
    const fl_event event = mine.event_create(false);
    mine.event_record(event, first);
    mine.event_wait(event, second);
    mine.event_destroy(event);
    mine.allocator().record_stream(data, second);
    launch_add(mine, second, data->address, 10);
    Block* copy = other.allocator().allocate(kBytes, there);
    copy_between(other, there, copy->address, mine, second, data->address, kBytes);
    launch_add(mine, second, data->address, 100);
    mine.allocator().free(data);  // while the second stream still works on it
    launch_add(other, there, copy->address, 1000);
    expect_value(other, there, copy, value + 1011);
    other.allocator().free(copy);
  }

  Chip chip;
};

TEST_P(SimStack, ThreadsStreamsEventsAndCopiesBetweenDevices) {
  std::vector<std::thread> threads;
  for (uint32_t i = 0; i < 8; ++i) {
    threads.emplace_back([this, i] {
      for (uint32_t n = 0; n < 40; ++n) round(*chip.devices[i % 2], *chip.devices[1 - i % 2], i * 1000000 + n);
      if (i == 0) chip.devices[0]->allocator().empty_cache();
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (auto& device : chip.devices) {
    device->synchronize();
    device->allocator().empty_cache();
    const MemoryStats stats = device->allocator().stats();
    EXPECT_EQ(stats.active_blocks.current, 0);
    EXPECT_EQ(stats.reserved_bytes.current, 0);
  }
}

INSTANTIATE_TEST_SUITE_P(Copies, SimStack, ::testing::Values(true, false), [](const auto& info) {
  return info.param ? std::string("ByThePeers") : std::string("ThroughTheHost");
});

}  // namespace
}  // namespace torch_fl::runtime
