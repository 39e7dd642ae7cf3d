// SPDX-License-Identifier: Apache-2.0
#include "generator.h"

#include <ATen/EmptyTensor.h>
#include <c10/core/TensorImpl.h>

#include <array>
#include <cstring>
#include <mutex>

#include "../runtime/device.h"
#include "errors.h"

namespace torch_fl::glue {
namespace {

constexpr uint64_t kWordsPerBlock = 4;

struct PackedState {
  uint64_t seed;
  uint64_t offset;
};
static_assert(sizeof(PackedState) == 16);

void check_offset(uint64_t offset) {
  TORCH_CHECK(offset % kWordsPerBlock == 0, "offset must be a multiple of 4, got ", offset);
}

/// The index with -1 resolved; throws if there is no such device.
c10::DeviceIndex checked_index(c10::DeviceIndex index) {
  const int32_t wanted = index < 0 ? runtime::current_device() : index;
  guarded([&] { runtime::Registry::get().device(wanted); });
  return static_cast<c10::DeviceIndex>(wanted);
}

}  // namespace

GeneratorImpl::GeneratorImpl(c10::DeviceIndex index, uint64_t seed)
    : c10::GeneratorImpl(c10::Device(device_type(), index), c10::DispatchKeySet(c10::DispatchKey::PrivateUse1)),
      seed_(seed) {}

std::pair<uint64_t, uint64_t> GeneratorImpl::reserve(uint64_t blocks) {
  const std::lock_guard<std::mutex> lock(mutex_);
  const uint64_t first = block_;
  block_ += blocks;
  return {seed_, first};
}

void GeneratorImpl::set_current_seed(uint64_t seed) {
  seed_ = seed;
  block_ = 0;
}

void GeneratorImpl::set_offset(uint64_t offset) {
  check_offset(offset);
  block_ = offset / kWordsPerBlock;
}

uint64_t GeneratorImpl::get_offset() const { return block_ * kWordsPerBlock; }

uint64_t GeneratorImpl::current_seed() const { return seed_; }

uint64_t GeneratorImpl::seed() {
  const uint64_t random = c10::detail::getNonDeterministicRandom();
  set_current_seed(random);
  return random;
}

void GeneratorImpl::set_state(const c10::TensorImpl& new_state) {
  at::detail::check_rng_state(new_state);
  TORCH_CHECK(new_state.numel() == static_cast<int64_t>(sizeof(PackedState)),
              "RNG state is wrong size: the state of an ", device(), " generator has ", sizeof(PackedState),
              " bytes (seed and offset), but this one has ", new_state.numel());
  PackedState state;
  std::memcpy(&state, new_state.data(), sizeof(state));
  check_offset(state.offset);
  seed_ = state.seed;
  block_ = state.offset / kWordsPerBlock;
}

c10::intrusive_ptr<c10::TensorImpl> GeneratorImpl::get_state() const {
  const at::TensorBase tensor = at::detail::empty_cpu({static_cast<int64_t>(sizeof(PackedState))}, c10::kByte,
                                                      std::nullopt, std::nullopt, std::nullopt, std::nullopt);
  const PackedState state{seed_, get_offset()};
  std::memcpy(tensor.mutable_data_ptr(), &state, sizeof(state));
  return tensor.getIntrusivePtr();
}

GeneratorImpl* GeneratorImpl::clone_impl() const {
  auto* copy = new GeneratorImpl(device().index(), seed_);
  copy->block_ = block_;
  return copy;
}

const at::Generator& default_generator(c10::DeviceIndex index) {
  // Never destroyed: Python wrappers and threads may use them until the very end of the process.
  struct Slot {
    std::once_flag once;
    at::Generator generator;
  };
  static auto& slots = *new std::array<Slot, 64>();
  const c10::DeviceIndex device = checked_index(index);
  Slot& slot = slots.at(static_cast<size_t>(device));
  std::call_once(slot.once, [&] {
    slot.generator = at::make_generator<GeneratorImpl>(device, c10::detail::getNonDeterministicRandom());
  });
  return slot.generator;
}

at::Generator new_generator(c10::DeviceIndex index) { return at::make_generator<GeneratorImpl>(checked_index(index)); }

GeneratorImpl* generator_for(const std::optional<at::Generator>& generator, int device_index) {
  if (generator.has_value() && generator->defined()) return at::check_generator<GeneratorImpl>(generator);
  return at::check_generator<GeneratorImpl>(default_generator(static_cast<c10::DeviceIndex>(device_index)));
}

}  // namespace torch_fl::glue
