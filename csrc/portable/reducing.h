// SPDX-License-Identifier: Apache-2.0
// What kernels that reduce dimensions have in common: which dimensions go, the loops over them, how work is shared out.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <string>

#include "launch.h"

namespace torch_fl::portable {

constexpr uint64_t kAll = kFloats | kIntegers | kBool;
constexpr int kMost = 8;  // dimensions of either kind that are left after merging

/// Dimensions walked together: sizes, and strides of the input and (kept ones) of the output.
struct Dims {
  int rank = 0;
  int64_t numel = 1;
  int64_t size[kMost], in[kMost], out[kMost];

  // Row-major order stays. False: too many.
  bool add(int64_t n, int64_t in_stride, int64_t out_stride) {
    numel *= n;
    if (n == 1) return true;
    if (rank > 0 && in[rank - 1] == in_stride * n && out[rank - 1] == out_stride * n) {
      size[rank - 1] *= n;
      in[rank - 1] = in_stride;
      out[rank - 1] = out_stride;
      return true;
    }
    if (rank == kMost) return false;
    size[rank] = n;
    in[rank] = in_stride;
    out[rank++] = out_stride;
    return true;
  }
  void finish() {
    if (rank == 0) {
      size[0] = 1;
      in[0] = out[0] = 0;
      rank = 1;
    }
  }
};

/// How an operator says which dimensions go.
enum class Which : uint8_t { All, List, ListOrAll, One, OneOrAll };  // of ListOrAll, an empty list is none

/// One call, looked through once: what is kept, what goes.
struct Reading {
  const fl_tensor* in = nullptr;
  const fl_tensor* out = nullptr;
  Dims kept, reduced;

  /// False: too many dimensions, or none that the operator knows.
  bool read(const fl_call& call, Which which, int dims_argument);

 private:
  bool mark(const fl_call& call, Which which, int dims_argument, bool (&goes)[64]) const;
};

inline std::string number(int64_t value) { return std::to_string(value); }
/// "p.rin[2]"
std::string member(const char* name, int d);
/// Members of the parameters, in the order of add_members().
std::string members_of(const Reading& reading);
/// Loops over the reduced dimensions but the innermost; `inner` sees `row` (where it starts), `run` (its length) and
/// `count` (elements before it, in row-major order). The outermost goes from r0 to r1.
std::string nest(const Dims& reduced, const std::string& inner);
/// The frame every kernel here has: the outputs of this item, and its share of the outermost reduced dimension. `body`
/// sees `at` and `to`, where input and output of this output begin.
std::string each_output(const Reading& reading, const std::string& body);
/// What a kernel's text begins with: A is the type it computes in, IN that of its input.
std::string head_of(const std::string& a, bool floating, fl_dtype in, bool dense, bool vectors = false);
/// Whether the innermost reduced dimension lies side by side.
inline bool dense_inside(const Reading& reading) { return reading.reduced.in[reading.reduced.rank - 1] == 1; }

/// Where the results lie side by side in the input and what is added up does not, a tile of results is formed at once.
constexpr int64_t kTile = 64;
bool by_tiles(const Reading& reading);

/// What one launch works on.
struct Work {
  int64_t splits = 1, rchunk = 0;
  Split outputs{1, 1};
};

Work plan(const runtime::Device& device, const Reading& reading, bool may_split, bool tiles = false);

using Words = Members<5 + 5 * kMost + 2>;
void add_members(Words& words, const Reading& reading, const Work& work, int64_t count);
void add_shape(VariantKey& key, const Reading& reading);

/// One launch over whole lines, none of them split; `arguments` holds the tensors, `more` what follows the members.
template <class Write>
fl_status launch_whole(Row& row, const fl_call& call, const Reading& reading, Arguments& arguments, const Write& write,
                       std::initializer_list<int64_t> more = {}) {
  VariantKey key;
  add_shape(key, reading);
  const Work work = plan(row.device(call), reading, false);
  const fl_module module = row.variant(call, key, write);
  Words words;
  add_members(words, reading, work, reading.reduced.numel);
  for (const int64_t word : more) words.add(word);
  arguments.add_members(words.data(), words.bytes());
  return arguments.launch(call, row.device(call), module, work.outputs.items);
}

/// Whether two outputs are walked alike, so that one offset serves both.
bool same_strides(const fl_tensor& a, const fl_tensor& b);

}  // namespace torch_fl::portable
