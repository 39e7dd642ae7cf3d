// SPDX-License-Identifier: Apache-2.0
// The random number generator of an fl device: a counter (Philox) that lives in the core, so every chip draws the same.
#pragma once

#include <ATen/core/Generator.h>

#include <cstdint>
#include <optional>
#include <utility>

namespace torch_fl::glue {

/// State: the seed and the number of Philox blocks (4 words of 32 bits) drawn so far. What PyTorch sees as the offset
/// counts words, always a multiple of 4, as on stock devices; DTensor computes shard offsets in that unit. The state
/// tensor is 16 bytes: {uint64 seed, uint64 offset in words}.
class GeneratorImpl final : public c10::GeneratorImpl {
 public:
  explicit GeneratorImpl(c10::DeviceIndex index, uint64_t seed = c10::default_rng_seed_val);

  /// (seed, first block), and moves the counter on by `blocks`. Locks the generator's mutex.
  std::pair<uint64_t, uint64_t> reserve(uint64_t blocks);

  // As for stock generators, callers of these hold mutex_.
  void set_current_seed(uint64_t seed) override;
  void set_offset(uint64_t offset) override;
  uint64_t get_offset() const override;
  uint64_t current_seed() const override;
  uint64_t seed() override;
  void set_state(const c10::TensorImpl& new_state) override;
  c10::intrusive_ptr<c10::TensorImpl> get_state() const override;

  static c10::DeviceType device_type() { return c10::DeviceType::PrivateUse1; }

 private:
  GeneratorImpl* clone_impl() const override;

  uint64_t seed_;
  uint64_t block_ = 0;
};

/// The default generator of a device; index -1 means the current device. Throws for an index that does not exist.
const at::Generator& default_generator(c10::DeviceIndex index);
/// A generator of its own; index -1 means the current device.
at::Generator new_generator(c10::DeviceIndex index);
/// `generator`, or the default one of the device. Throws if it belongs to another device type.
GeneratorImpl* generator_for(const std::optional<at::Generator>& generator, int device_index);

}  // namespace torch_fl::glue
