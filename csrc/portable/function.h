// SPDX-License-Identifier: Apache-2.0
// A launch of one function from a file of kernels/.
#pragma once

#include <algorithm>
#include <array>
#include <initializer_list>

#include "launch.h"

namespace torch_fl::portable {

/// Says what the function is compiled for (types and settings, which become macros) and called with. The function takes
/// the pointers, then the words and reals, then the number of the work item. `A` is the type computed in. All names are
/// literals. One launch can do several parts, calls that differ in some arguments: what is added before the first
/// part() comes first in each of them (of the pointers, and of the words).
class FunctionCall {
 public:
  FunctionCall(const char* file, const char* function, fl_dtype compute);
  /// Macros: NAME is the element type, LOAD_NAME(p, i) and STORE_NAME(p, i, v) are as in prelude.h.
  FunctionCall& type(const char* name, fl_dtype dtype);
  FunctionCall& setting(const char* name, uint32_t value);
  /// Of elements `type`. A tensor that is absent or empty: another's address, which the function must not touch.
  FunctionCall& in(const char* type, const fl_tensor* tensor) { return pointer(type, address_of(tensor), false); }
  FunctionCall& out(const char* type, const fl_tensor* tensor) { return pointer(type, address_of(tensor), true); }
  FunctionCall& scratch(const char* type, fl_address address) { return pointer(type, address, true); }
  FunctionCall& word(int64_t value) { return argument(value, false); }
  FunctionCall& words(std::initializer_list<int64_t> values);
  FunctionCall& real(double value);
  /// What follows is of a part with so many items, numbered from 0.
  FunctionCall& part(uint64_t items);
  uint64_t items_of_parts() const { return items_of_parts_; }
  fl_status launch(Row& row, const fl_call& call, uint64_t items);

 private:
  static constexpr size_t kMostPointers = 44, kMostDefines = 24, kMostWords = 56, kMostParts = 8;
  struct Define {
    const char* name;
    uint32_t value;
    bool is_type;
  };
  struct Argument {
    const char* type;
    bool written;
  };
  static fl_address address_of(const fl_tensor* tensor) { return tensor == nullptr ? 0 : tensor->address; }
  FunctionCall& pointer(const char* type, fl_address address, bool written);
  FunctionCall& argument(int64_t value, bool is_real);
  struct Part {
    size_t pointer, value;  ///< its first; the value is where its items end
  };
  Source write() const;
  std::string write_call(size_t pointer, size_t pointers_end, size_t value, size_t values_end) const;

  const char *file_, *function_;
  fl_dtype compute_;
  std::array<Define, kMostDefines> defines_;
  std::array<Argument, kMostPointers> pointers_;
  std::array<fl_address, kMostPointers> addresses_;
  std::array<int64_t, kMostWords> values_;
  std::array<bool, kMostWords> is_real_;
  std::array<Part, kMostParts> parts_;
  size_t n_defines_ = 0, n_pointers_ = 0, n_values_ = 0, n_parts_ = 0;
  uint64_t items_of_parts_ = 0;
};

/// The floating-point type that values of this one are computed in.
inline fl_dtype arithmetic(fl_dtype dtype) {
  return dtype == FL_FLOAT16 || dtype == FL_BFLOAT16 ? fl_dtype{FL_FLOAT32} : dtype;
}
inline uint64_t bytes_of_arithmetic(fl_dtype dtype) { return dtype == FL_FLOAT64 ? 8 : 4; }

// Reading a call: null where there is no such tensor.
inline const fl_tensor* input_of(const fl_call& call, uint32_t i) {
  return i < call.n_args && call.args[i].kind == FL_TENSOR ? call.args[i].u.tensor : nullptr;
}
inline const fl_tensor* output_of(const fl_call& call, uint32_t i) { return i < call.n_outs ? call.outs[i] : nullptr; }
inline double real_of(const fl_value& v) { return v.kind == FL_REAL ? v.u.d : static_cast<double>(v.u.i); }
inline uint32_t given(const fl_tensor* tensor) { return tensor != nullptr ? 1 : 0; }
inline bool alike(const fl_tensor* a, const fl_tensor* b) {
  return a != nullptr && b != nullptr && a->dtype == b->dtype && a->numel == b->numel;
}

/// How n parts of so many elements each are shared out. At least one item, even of nothing.
inline Split share(const runtime::Device& device, int64_t n, int64_t elements_each) {
  constexpr int64_t kWorth = 16384;  // elements that are worth an item of their own
  return split(device, n, std::max<int64_t>(1, kWorth / std::max<int64_t>(1, elements_each)));
}

}  // namespace torch_fl::portable
