// SPDX-License-Identifier: Apache-2.0
// Steps that move elements to or from where index tensors point (kernels/indexing.h). Without an index they copy,
// fill and convert.
#pragma once

#include <array>
#include <cstdint>
#include <initializer_list>

#include "geometry.h"
#include "launch.h"

namespace torch_fl::portable {

/// The type that elements of so many bytes are moved as; "Pair" is a struct.
const char* word_of(int64_t bytes);
constexpr const char* kPair = "typedef struct {\n  u64 low, high;\n} Pair;\n";

/// The type of a complex number's two parts; else of the element itself.
inline fl_dtype part_of(fl_dtype dtype) {
  return dtype == FL_COMPLEX64 ? FL_FLOAT32 : dtype == FL_COMPLEX128 ? FL_FLOAT64 : dtype;
}
inline bool has_parts(fl_dtype dtype) { return part_of(dtype) != dtype; }
inline bool is_index(fl_dtype dtype) { return dtype == FL_INT64 || dtype == FL_INT32; }
inline int64_t wrap_dim(int64_t dim, int32_t ndim) { return dim < 0 ? dim + (ndim > 0 ? ndim : 1) : dim; }
inline int64_t size_at(const fl_tensor& t, int64_t dim) { return t.ndim == 0 ? 1 : t.sizes[dim]; }
inline int64_t stride_at(const fl_tensor& t, int64_t dim) { return t.ndim == 0 ? 0 : t.strides[dim]; }
/// Size and stride along dimension `dim` of a space of `ndim` dimensions into which the tensor is broadcast.
int64_t size_in(const fl_tensor& t, int64_t dim, int64_t ndim);
int64_t stride_in(const fl_tensor& t, int64_t dim, int64_t ndim);

/// Memory of a step: an address, or scratch memory (numbered from 1) that run() will get.
struct Place {
  fl_address address = 0;
  int scratch = 0;
  fl_dtype dtype = FL_UINT8;

  Place() = default;
  explicit Place(const fl_tensor& t) : address(t.address), dtype(t.dtype) {}
  Place(int number, fl_dtype type) : scratch(number), dtype(type) {}
};

/// Dimensions with strides of several operands, before they are merged.
class Space {
 public:
  /// A dimension along which nobody moves yet. Its number.
  int add(int64_t size);
  void set(int operand, int dim, int64_t stride) { strides_[static_cast<size_t>(operand)][dim] = stride; }
  bool merge(int operands, Geometry& geometry) const;
  /// Strides of target and source in halves of their elements, which become a dimension of their own where `parts`.
  void halve(bool parts);
  /// The strides of operand 0 as those of a dense tensor of these sizes.
  void order_by_index();

 private:
  int n_ = 0;
  int64_t numel_ = 1;
  int64_t sizes_[64];
  int64_t strides_[kMaxOperands][64];
};

/// What becomes of an element t of the target and one x of the source.
enum class Put : uint8_t { Move, Set, Add, Multiply, Maximum, Minimum, Divide };
/// x: an element of the source, the number `value`, or their product.
enum class Operand : uint8_t { Source, Value, Product };

struct Step {
  static constexpr int kTo = 0, kFrom = 1, kIndex = 2;  ///< operands of the spaces
  static constexpr int kMostIndices = kMaxOperands - kIndex;
  struct Index {
    const fl_tensor* tensor;
    int64_t bound, step;  ///< how many places it may name, and how far apart they are
  };

  bool leads_to_target = false;  ///< the indices do; else to the source
  bool wrap = false;
  Put put = Put::Move;
  Operand operand = Operand::Source;
  Place to, from;
  fl_value value{};
  int64_t skip = -1;  ///< a place that gets nothing
  int n_indices = 0;
  std::array<Index, kMostIndices> indices;
  Geometry free, sequence;

  bool lead(const fl_tensor& index, int64_t bound, int64_t step) {
    if (n_indices == kMostIndices) return false;
    indices[static_cast<size_t>(n_indices++)] = {&index, bound, step};
    return true;
  }
  /// The last thing to be said of a step. Complex numbers are added as two real ones each; one
  /// that is set takes a step for its real parts and one for the others.
  /// `then`: dimensions of which only the indices know where they lead.
  bool walk(Space& over, Space* then = nullptr);
};

/// What a call does, in order.
struct Steps {
  size_t n = 0;
  std::array<Step, 6> list;
  std::array<int64_t, 2> scratch{};  ///< bytes
  Step& add() { return list[n++]; }
};

/// Null, or why the portable kernels cannot do it.
using PlanSteps = const char* (*)(const fl_call& call, Steps& steps);

class StepsRow : public Row {
 public:
  StepsRow(runtime::Chip& chip, Language language, PlanSteps plan) : Row(chip, language), plan_(plan) {}
  fl_status run(const fl_call& call);
  static fl_status supports(const fl_call* call);

 protected:
  fl_status run_steps(const fl_call& call, const Steps& steps);

 private:
  fl_status launch_step(const fl_call& call, const Step& step, const fl_address* scratch);
  const PlanSteps plan_;
};

// ---- Steps that operators begin or end with ---------------------------------------------------------------------

/// to = from, of equal sizes and element types. Nothing where they are the same.
bool add_copy(Steps& steps, const fl_tensor& to, const fl_tensor& from);
/// Every element of a tensor, or of a place laid out like it: t = put(t, value).
bool add_fill(Steps& steps, const fl_tensor& like, const Place& to, const fl_value& value);
/// Adds `source`, rows of `columns` elements (null: the number 1), to the rows of `to` that the indices name, but for
/// row `skip`. All are dense.
bool add_up_rows(Steps& steps, const Place& to, int64_t rows, int64_t columns, const fl_tensor& index,
                 const fl_tensor* source, int64_t skip);
/// to = put(to, from) for a dense matrix; `from` has an element for each row, or is one like it.
bool add_by_row(Steps& steps, Put put, const Place& to, const Place& from, int64_t rows, int64_t columns, bool per_row);
fl_value number_of(double value);

}  // namespace torch_fl::portable
