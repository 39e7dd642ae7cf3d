// SPDX-License-Identifier: Apache-2.0
// Launches of kernels that walk a geometry.
#pragma once

#include <array>
#include <initializer_list>

#include "geometry.h"
#include "launch.h"

namespace torch_fl::portable {

class WalkRow : public Row {
 public:
  using Row::Row;

 protected:
  /// Launches what `write()` gives, made with walk() and walk_members(). `more`: words of `p` behind the walk's own.
  template <size_t n_words, class Write>
  fl_status walk_each(const fl_call& call, VariantKey& key, const Geometry& geometry,
                      std::initializer_list<fl_address> addresses, const std::array<uint64_t, n_words>& more,
                      const Write& write) {
    if (geometry.numel == 0) return FL_OK;
    add_walk_key(key, geometry);
    const fl_module module = variant(call, key, write);
    const Split work = split(device(call), geometry.numel, 16384);
    Members<2 + kMaxRank + kMaxOperands * kMaxRank + n_words> members;
    add_walk_members(members, geometry, work.chunk);
    for (const uint64_t word : more) members.add(static_cast<int64_t>(word));
    Arguments arguments;
    for (const fl_address address : addresses) arguments.add_address(address);
    arguments.add_members(members.data(), members.bytes());
    return arguments.launch(call, device(call), module, work.items);
  }
};

}  // namespace torch_fl::portable
