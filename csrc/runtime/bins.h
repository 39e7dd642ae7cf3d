// SPDX-License-Identifier: Apache-2.0
// Free blocks by size: two-level segregated lists with bitmaps, so that finding, inserting and removing take constant
// time and no memory. Private to the allocator.
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>

namespace torch_fl::runtime {

/// `Node` has members next_free, prev_free and units (its size in quanta, at least 1).
template <typename Node>
class Bins {
 public:
  void insert(Node* node) {
    const Bin bin = bin_of(node->units);
    Node*& head = heads_[bin.level][bin.step];
    node->prev_free = nullptr;
    node->next_free = head;
    if (head != nullptr) head->prev_free = node;
    head = node;
    steps_[bin.level] |= uint32_t{1} << bin.step;
    levels_ |= uint64_t{1} << bin.level;
  }

  void remove(Node* node) {
    const Bin bin = bin_of(node->units);
    if (node->next_free != nullptr) node->next_free->prev_free = node->prev_free;
    if (node->prev_free != nullptr) {
      node->prev_free->next_free = node->next_free;
    } else {
      heads_[bin.level][bin.step] = node->next_free;
      if (node->next_free == nullptr) clear(bin);
    }
    node->next_free = node->prev_free = nullptr;
  }

  /// The smallest node of at least `units` among the first few of the first bin that has one, or null. Not removed.
  Node* find(uint64_t units) const {
    Bin bin = bin_of(units);
    if (Node* node = best(heads_[bin.level][bin.step], units)) return node;
    if (!next(bin)) return nullptr;
    return best(heads_[bin.level][bin.step], units);
  }

 private:
  static constexpr int kStepBits = 4, kSteps = 1 << kStepBits, kLevels = 60;
  static constexpr int kScan = 24;
  struct Bin {
    int level, step;
  };

  /// Below kSteps each size has a bin; above, each doubling has kSteps of them.
  static Bin bin_of(uint64_t units) {
    if (units < kSteps) return {0, static_cast<int>(units)};
    const int top = std::bit_width(units) - 1;
    return {top - kStepBits + 1, static_cast<int>(units >> (top - kStepBits)) & (kSteps - 1)};
  }

  void clear(Bin bin) {
    steps_[bin.level] &= ~(uint32_t{1} << bin.step);
    if (steps_[bin.level] == 0) levels_ &= ~(uint64_t{1} << bin.level);
  }

  /// Moves to the first non-empty bin after `bin`.
  bool next(Bin& bin) const {
    const uint32_t later = bin.step + 1 < kSteps ? steps_[bin.level] & (~uint32_t{0} << (bin.step + 1)) : 0;
    if (later != 0) {
      bin.step = std::countr_zero(later);
      return true;
    }
    const uint64_t above = levels_ & (~uint64_t{0} << (bin.level + 1));
    if (above == 0) return false;
    bin.level = std::countr_zero(above);
    bin.step = std::countr_zero(steps_[bin.level]);
    return true;
  }

  static Node* best(Node* node, uint64_t units) {
    Node* found = nullptr;
    for (int i = 0; node != nullptr && (i < kScan || found == nullptr); ++i, node = node->next_free) {
      if (node->units < units) continue;
      if (node->units == units) return node;
      if (found == nullptr || node->units < found->units) found = node;
    }
    return found;
  }

  uint64_t levels_ = 0;
  std::array<uint32_t, kLevels> steps_{};
  std::array<std::array<Node*, kSteps>, kLevels> heads_{};
};

}  // namespace torch_fl::runtime
