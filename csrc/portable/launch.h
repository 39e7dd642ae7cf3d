// SPDX-License-Identifier: Apache-2.0
// From a call to a launch: which device, which compiled variant, which arguments.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <shared_mutex>
#include <string>
#include <string_view>
#include <unordered_map>

#include "dialect.h"
#include "runtime/device.h"

namespace torch_fl::portable {

/// What tells variants of one row apart, as bytes. Longer keys than the buffer are cut, which `full()` tells.
class VariantKey {
 public:
  void add(uint32_t byte) {
    if (size_ < bytes_.size()) bytes_[size_++] = static_cast<char>(byte);
  }
  bool full() const { return size_ == bytes_.size(); }
  std::string_view view() const { return {bytes_.data(), size_}; }

 private:
  std::array<char, 96> bytes_;
  size_t size_ = 0;
};

/// One row of one chip, with the variants that were compiled so far. `user_data` of its fl_kernel; lives for ever.
class Row {
 public:
  Row(runtime::Chip& chip, Language language) : chip_(chip), language_(language) {}
  virtual ~Row() = default;
  runtime::Device& device(const fl_call& call) const { return *chip_.devices[static_cast<size_t>(call.device_index)]; }
  /// The module of this key, made from `write()` when first wanted. Throws runtime::Error.
  template <class Write>
  fl_module variant(const fl_call& call, VariantKey& key, const Write& write) {
    key.add(static_cast<uint32_t>(call.device_index));
    const fl_module found = find(key);
    return found != nullptr ? found : make(call, key, write());
  }

 private:
  fl_module find(const VariantKey& key);
  fl_module make(const fl_call& call, const VariantKey& key, const Source& source);
  struct Hash {
    using is_transparent = void;
    size_t operator()(std::string_view text) const { return std::hash<std::string_view>()(text); }
  };
  runtime::Chip& chip_;
  const Language language_;
  std::shared_mutex mutex_;
  std::unordered_map<std::string, fl_module, Hash, std::equal_to<>> variants_;
  std::unordered_map<std::string, std::string, Hash, std::equal_to<>> refused_;  ///< do not compile; why
};

/// The arguments of a composed kernel, in order.
class Arguments {
 public:
  void add(const fl_tensor& tensor) { add_address(tensor.address); }
  void add_address(fl_address address) {
    addresses_[n_addresses_] = address;
    push(&addresses_[n_addresses_++], FL_ARG_ADDRESS);
    push(&kNoOffset, sizeof(kNoOffset));
  }
  void add_members(const void* members, size_t bytes) { push(members, static_cast<uint32_t>(bytes)); }
  /// Enqueues `items` work items.
  fl_status launch(const fl_call& call, runtime::Device& device, fl_module module, uint64_t items) const;

 private:
  static constexpr size_t kMost = 44;
  static constexpr uint64_t kNoOffset = 0;
  void push(const void* value, uint32_t size) {
    values_[n_] = value;
    sizes_[n_++] = size;
  }
  std::array<fl_address, kMost> addresses_;
  std::array<const void*, 2 * kMost + 1> values_;
  std::array<uint32_t, 2 * kMost + 1> sizes_;
  size_t n_ = 0, n_addresses_ = 0;
};

/// The members of a kernel's `p`, in order: words of 64 bits.
template <size_t kMost>
class Members {
 public:
  void add(int64_t word) { words_[n_++] = word; }
  const void* data() const { return words_.data(); }
  size_t bytes() const { return n_ * sizeof(int64_t); }

 private:
  std::array<int64_t, kMost> words_;
  size_t n_ = 0;
};

/// The value as a kernel reads it with BITS_<type>: of f64 where `wide`, else of f32.
uint64_t bits_of(double value, bool wide);
/// Of a number among a call's arguments, in the type that values of `compute` are computed in.
uint64_t bits_of(const fl_value& v, fl_dtype compute);
/// Of either part, where values of `compute` are complex; else of the one number there is, and 0.
std::array<uint64_t, 2> parts_of(const fl_value& v, fl_dtype compute);

/// TORCH_FL_WORK_PER_ITEM: so many elements are enough for a work item, where that is less. Tests let items share small
/// tensors with it.
int64_t enough(int64_t least);

constexpr int64_t kItemsPerUnit = 4;
/// How many work items share `n` elements, and how many each gets.
struct Split {
  uint64_t items;
  int64_t chunk;
};
Split split(const runtime::Device& device, int64_t n, int64_t least, int64_t items_per_unit = kItemsPerUnit);

fl_status status_of_exception(const char* op) noexcept;

/// Runs f() -> fl_status; what it throws becomes a status. A kernel that does not compile leaves the call to the host;
/// it is tried once, with one warning.
template <class F>
fl_status protect(const char* op, const F& f) noexcept {
  try {
    return f();
  } catch (...) {
    return status_of_exception(op);
  }
}

/// A row of a table. `data` is made with keep().
fl_kernel make_row(const char* op, uint32_t flags, fl_kernel_fn run, fl_supports_fn supports, Row* data,
                   uint64_t dtypes);
void keep_row(std::unique_ptr<Row> row);
template <class R>
R& row_of(const fl_call& call) {
  return *static_cast<R*>(static_cast<Row*>(call.kernel->user_data));
}
/// Never destroyed: work in flight refers to it.
template <class R, class... A>
R* keep(A&&... arguments) {
  auto made = std::make_unique<R>(std::forward<A>(arguments)...);
  R* row = made.get();
  keep_row(std::move(made));
  return row;
}

/// run() of a row whose data is an R, as the table wants it.
template <class R>
fl_status run_row(const fl_call* call) {
  return protect(call->kernel->op, [&] { return row_of<R>(*call).run(*call); });
}

/// FL_UNSUPPORTED with this reason.
fl_status decline(const std::string& reason);

}  // namespace torch_fl::portable
