// SPDX-License-Identifier: Apache-2.0
// Dense linear algebra: a call read as batches of small problems, one work item (or part of one) for each.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "families.h"
#include "launch.h"

namespace torch_fl::portable {

/// One launch: the operands, the statements that a work item runs for each matrix of the batch, and the numbers and the
/// room that these use. In the statements an operand `a` is a pointer to its matrix with the distances `a_r` and `a_c`
/// between rows and columns (V(a) is all three; a vector has `a_r` only), a number `n` is `p.n`, and `work` is room for
/// `work` elements.
class Problem {
 public:
  Problem(const fl_call& call, const char* body, std::initializer_list<const char*> files = {})
      : body_(body), files_(files), element_(call.compute_dtype) {}

  /// Operands with `dims` dimensions behind those of the batch. `type`: of the elements, where not the matrices'.
  Problem& in(const char* name, const fl_value& value, int dims, fl_dtype type = kElement) {
    return add(name, value.kind == FL_TENSOR ? value.u.tensor : nullptr, dims, type, false);
  }
  Problem& in(const char* name, const fl_tensor* tensor, int dims, fl_dtype type = kElement) {
    return add(name, tensor, dims, type, false);
  }
  Problem& out(const char* name, const fl_tensor* tensor, int dims, fl_dtype type = kElement) {
    return add(name, tensor, dims, type, true);
  }
  /// The real and the imaginary parts of a complex output, as two operands of real ones.
  Problem& out_parts(const char* re, const char* im, const fl_tensor* tensor, int dims);
  /// An operand's matrices are to be seen transposed.
  Problem& transpose(const char* name, bool really = true);
  Problem& number(const char* name, int64_t value);
  Problem& work(int64_t elements) {
    work_ = elements > 0 ? elements : 1;
    return *this;
  }

  int64_t rows(const char* name) const { return extent(name, 2); }
  int64_t columns(const char* name) const { return extent(name, 1); }

  /// Null where a kernel can do it, else why not.
  const char* fault() const;
  bool empty() const;  ///< nothing to write
  Source write() const;
  void add_key(VariantKey& key) const;
  fl_status launch(const fl_call& call, runtime::Device& device, fl_module module) const;

 private:
  static constexpr fl_dtype kElement = FL_DTYPE_OTHER;
  static constexpr size_t kMostBatch = 6;
  struct Operand {
    const char* name;
    const fl_tensor* tensor;
    int dims;
    fl_dtype type;
    bool written, transposed;
    int32_t batch() const { return tensor->ndim - dims; }
    int64_t stride(int from_behind) const {
      return from_behind > dims ? 1 : tensor->strides[tensor->ndim - from_behind];
    }
  };
  struct Number {
    const char* name;
    int64_t value;
  };
  struct Part {
    fl_tensor tensor;
    std::vector<int64_t> strides;
  };

  Problem& add(const char* name, const fl_tensor* tensor, int dims, fl_dtype type, bool written);
  int64_t extent(const char* name, int from_behind) const;
  Operand* find(const char* name);
  std::vector<int64_t> batch() const;  ///< sizes of the batch that all operands broadcast to

  const char* body_;
  std::vector<const char*> files_;
  fl_dtype element_;
  std::vector<Operand> operands_;
  std::vector<Number> numbers_;
  std::vector<std::shared_ptr<Part>> parts_;
  int64_t work_ = 0;
  const char* fault_ = nullptr;
};

/// What a call asks for, in order of the launches. A reason why a kernel cannot do it, or null.
using Problems = std::vector<Problem>;
using ReadProblems = const char* (*)(const fl_call& call, Problems& problems);

struct LinearAlgebra {
  const char* op;
  ReadProblems read;
};

void add_linear_algebra(Rows& rows, runtime::Chip& chip, Language language, const LinearAlgebra& line);

inline bool flag(const fl_value& value) { return value.u.i != 0; }

}  // namespace torch_fl::portable
