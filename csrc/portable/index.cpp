// SPDX-License-Identifier: Apache-2.0
// Operators that read or write where index tensors point. Those that return a changed copy begin with the copy.
#include <algorithm>
#include <cmath>
#include <string_view>

#include "arguments.h"
#include "families.h"
#include "indexing.h"

namespace torch_fl::portable {
namespace {

constexpr uint64_t kNumbers = kFloats | kIntegers;
constexpr uint64_t kAddable = kNumbers | kBool | FL_DTYPE_BIT(FL_COMPLEX64) | FL_DTYPE_BIT(FL_COMPLEX128);
constexpr const char* kTooMany = "more dimensions or index tensors than the portable kernels walk";
constexpr const char* kShapes = "shapes that do not fit";
constexpr const char* kNotIndex = "an index that is neither int64 nor int32";

bool movable(const fl_tensor& t) { return element_bytes(t.dtype) > 0; }
bool typed(const fl_tensor& t) { return type_name(t.dtype) != nullptr; }
bool addable(const fl_tensor& t) { return type_name(part_of(t.dtype)) != nullptr; }

// ---- Reading ----------------------------------------------------------------------------------------------------

Step& add_read(Steps& steps, const fl_tensor& out, const fl_tensor& from) {
  Step& step = steps.add();
  step.to = Place(out);
  step.from = Place(from);
  return step;
}

const char* index_select(const fl_call& call, Steps& steps) {
  const fl_tensor &self = tensor(call, 0), &index = tensor(call, 2), &out = *call.outs[0];
  if (!is_index(index.dtype) || index.ndim > 1) return kNotIndex;
  if (!movable(self) || out.ndim != self.ndim) return kShapes;
  const int64_t dim = wrap_dim(call.args[1].u.i, self.ndim);
  Step& step = add_read(steps, out, self);
  Space over;
  for (int32_t d = 0; d < self.ndim; ++d) {
    const int at = over.add(out.sizes[d]);
    over.set(Step::kTo, at, out.strides[d]);
    if (d == dim) {
      over.set(Step::kIndex, at, stride_at(index, 0));
    } else {
      over.set(Step::kFrom, at, self.strides[d]);
    }
  }
  step.lead(index, size_at(self, dim), stride_at(self, dim));
  return step.walk(over) ? nullptr : kTooMany;
}

const char* embedding(const fl_call& call, Steps& steps) {
  const fl_tensor &weight = tensor(call, 0), &index = tensor(call, 1), &out = *call.outs[0];
  if (!is_index(index.dtype)) return kNotIndex;
  if (!movable(weight) || weight.ndim != 2 || out.ndim != index.ndim + 1) return kShapes;
  Step& step = add_read(steps, out, weight);
  Space over;
  for (int32_t d = 0; d < out.ndim; ++d) {
    const int at = over.add(out.sizes[d]);
    over.set(Step::kTo, at, out.strides[d]);
    if (d < index.ndim) {
      over.set(Step::kIndex, at, index.strides[d]);
    } else {
      over.set(Step::kFrom, at, weight.strides[1]);
    }
  }
  step.lead(index, weight.sizes[0], weight.strides[0]);
  return step.walk(over) ? nullptr : kTooMany;
}

// An index of the dimensions of `self`, as gather and scatter want it. A scalar is a line of one.
const char* check_along(const fl_tensor& self, int64_t dim, const fl_tensor& index) {
  if (index.numel == 0) return nullptr;  // of any element type
  if (!is_index(index.dtype)) return kNotIndex;
  if (index.ndim != self.ndim && (index.ndim > 1 || self.ndim > 1)) return kShapes;
  for (int32_t d = 0; d < index.ndim && self.ndim == index.ndim; ++d) {
    if (d != dim && index.sizes[d] > self.sizes[d]) return kShapes;
  }
  return nullptr;
}

const char* gather(const fl_call& call, Steps& steps) {
  const fl_tensor &self = tensor(call, 0), &index = tensor(call, 2), &out = *call.outs[0];
  const int64_t dim = wrap_dim(call.args[1].u.i, self.ndim);
  if (const char* reason = check_along(self, dim, index); reason != nullptr) return reason;
  if (!movable(self) || out.numel != index.numel) return kShapes;
  if (out.numel == 0) return nullptr;
  Step& step = add_read(steps, out, self);
  Space over;
  for (int32_t d = 0; d < index.ndim; ++d) {
    const int at = over.add(index.sizes[d]);
    over.set(Step::kTo, at, stride_at(out, d));
    over.set(Step::kIndex, at, index.strides[d]);
    if (d != dim && self.ndim > 0) over.set(Step::kFrom, at, self.strides[d]);
  }
  step.lead(index, size_at(self, dim), stride_at(self, dim));
  return step.walk(over) ? nullptr : kTooMany;
}

const char* take(const fl_call& call, Steps& steps) {
  const fl_tensor &self = tensor(call, 0), &index = tensor(call, 1), &out = *call.outs[0];
  if (!is_index(index.dtype)) return kNotIndex;
  if (!movable(self) || out.numel != index.numel) return kShapes;
  Step& step = add_read(steps, out, self);
  step.wrap = true;
  Space over;
  const int at = over.add(index.numel);  // all are dense
  over.set(Step::kTo, at, 1);
  over.set(Step::kIndex, at, 1);
  step.lead(index, self.numel, 1);
  return step.walk(over) ? nullptr : kTooMany;
}

// ---- Indexing with a list of tensors ----------------------------------------------------------------------------

/// The indices of a call, broadcast against each other: dimensions next to each other give way to those of the
/// indices; otherwise these come first.
struct Selection {
  int64_t ndim = 0;  ///< of the indices
  int64_t sizes[64];
  bool indexed[64] = {};
  int64_t place = 0;  ///< before which dimension of self those of the indices come
  int64_t total = 0;  ///< dimensions of what is selected

  const char* read(const fl_tensor& self, const fl_value& list) {
    if (list.kind != FL_TENSORS || list.count > static_cast<uint32_t>(self.ndim)) return kShapes;
    int64_t first = -1, last = -1, count = 0;
    for (uint32_t j = 0; j < list.count; ++j) {
      const fl_tensor* index = list.u.tensors[j];
      if (index == nullptr) continue;
      if (!is_index(index->dtype)) return kNotIndex;
      if (!widen(*index)) return kShapes;
      indexed[j] = true;
      if (first < 0) first = j;
      last = j;
      ++count;
    }
    if (count == 0 || count > Step::kMostIndices || self.ndim - count + ndim > 64) return kTooMany;
    place = last - first + 1 == count ? first : 0;
    total = self.ndim - count + ndim;
    return nullptr;
  }
  // visit(size, dimension of self or -1, dimension of the indices or -1), in the order of what is selected.
  template <class Visit>
  void each(const fl_tensor& self, const Visit& visit) const {
    for (int64_t d = 0; d < self.ndim; ++d) {
      for (int64_t b = 0; d == place && b < ndim; ++b) visit(sizes[b], int64_t{-1}, b);
      if (!indexed[d]) visit(self.sizes[d], d, int64_t{-1});
    }
  }
  void lead(const fl_tensor& self, const fl_value& list, Step& step) const {
    step.wrap = true;
    for (uint32_t j = 0; j < list.count; ++j) {
      if (indexed[j]) step.lead(*list.u.tensors[j], self.sizes[j], self.strides[j]);
    }
  }
  void set(const fl_value& list, Space& space, int at, int64_t b) const {
    int k = 0;
    for (uint32_t j = 0; j < list.count; ++j) {
      if (indexed[j]) space.set(Step::kIndex + k++, at, stride_in(*list.u.tensors[j], b, ndim));
    }
  }

 private:
  bool widen(const fl_tensor& index) {
    const int64_t grown = std::max<int64_t>(ndim, index.ndim);
    int64_t merged[64];
    for (int64_t d = 0; d < grown; ++d) {
      const int64_t own = d - (grown - ndim), a = own < 0 ? 1 : sizes[own], b = size_in(index, d, grown);
      if (a != b && a != 1 && b != 1) return false;
      merged[d] = a == 1 ? b : a;
    }
    std::copy_n(merged, grown, sizes);
    ndim = grown;
    return true;
  }
};

const char* index(const fl_call& call, Steps& steps) {
  const fl_tensor &self = tensor(call, 0), &out = *call.outs[0];
  const fl_value& list = call.args[1];
  Selection selection;
  if (const char* reason = selection.read(self, list); reason != nullptr) return reason;
  if (!movable(self) || out.ndim != selection.total) return kShapes;
  Step& step = add_read(steps, out, self);
  Space over;
  bool fits = true;
  selection.each(self, [&](int64_t size, int64_t d, int64_t b) {
    const int at = over.add(size);
    fits &= out.sizes[at] == size;
    over.set(Step::kTo, at, out.strides[at]);
    if (d >= 0) {
      over.set(Step::kFrom, at, self.strides[d]);
    } else {
      selection.set(list, over, at, b);
    }
  });
  if (!fits) return kShapes;
  selection.lead(self, list, step);
  return step.walk(over) ? nullptr : kTooMany;
}

const char* index_put(const fl_call& call, Steps& steps) {
  const fl_tensor &self = *call.outs[0], &values = tensor(call, 2);
  const fl_value& list = call.args[1];
  const bool adds = call.args[3].u.i != 0;
  Selection selection;
  if (const char* reason = selection.read(self, list); reason != nullptr) return reason;
  if (values.dtype != self.dtype) return "values of another element type";
  if (adds ? !addable(self) : !movable(self)) return "an element type that the portable kernels do not add up";
  if (values.ndim > selection.total) return kShapes;
  Step& step = steps.add();
  step.leads_to_target = true;
  step.put = adds ? Put::Add : Put::Move;
  step.to = Place(self);
  step.from = Place(values);
  Space free, sequence;
  bool fits = true;
  int64_t nth = 0;
  selection.each(self, [&](int64_t size, int64_t d, int64_t b) {
    const int64_t there = size_in(values, nth, selection.total), stride = stride_in(values, nth, selection.total);
    fits &= there == 1 || there == size;
    ++nth;
    Space& space = d >= 0 ? free : sequence;
    const int at = space.add(size);
    space.set(Step::kFrom, at, stride);
    if (d >= 0) {
      space.set(Step::kTo, at, self.strides[d]);
    } else {
      selection.set(list, space, at, b);
    }
  });
  if (!fits) return kShapes;
  selection.lead(self, list, step);
  return step.walk(free, &sequence) ? nullptr : kTooMany;
}

// self (dense), index, source, accumulate
const char* put(const fl_call& call, Steps& steps) {
  const fl_tensor &self = tensor(call, 0), &index = tensor(call, 1), &source = tensor(call, 2), &out = *call.outs[0];
  const bool adds = call.args[3].kind != FL_NONE && call.args[3].u.i != 0;
  if (!is_index(index.dtype)) return kNotIndex;
  if (source.dtype != self.dtype || source.numel != index.numel) return kShapes;
  if (adds ? !addable(self) : !movable(self)) return "an element type that the portable kernels do not add up";
  if (!add_copy(steps, out, self)) return kTooMany;
  Step& step = steps.add();
  step.leads_to_target = step.wrap = true;
  step.put = adds ? Put::Add : Put::Move;
  step.to = Place(out);
  step.from = Place(source);
  Space free, sequence;
  const int at = sequence.add(index.numel);
  sequence.set(Step::kFrom, at, 1);
  sequence.set(Step::kIndex, at, 1);
  step.lead(index, out.numel, 1);
  return step.walk(free, &sequence) ? nullptr : kTooMany;
}

// ---- Writing along a dimension ----------------------------------------------------------------------------------

/// self, dim, index and perhaps a source: the index has self's dimensions (scatter), or is a line and whole slices are
/// meant.
struct Along {
  const fl_tensor &self, &index, &out;
  const fl_tensor* source;  ///< or null
  int64_t dim;
  bool slices;

  Along(const fl_call& call, bool whole_slices)
      : self(tensor(call, 0)),
        index(tensor(call, 2)),
        out(*call.outs[0]),
        source(call.n_args > 3 && call.args[3].kind == FL_TENSOR ? call.args[3].u.tensor : nullptr),
        dim(wrap_dim(call.args[1].u.i, self.ndim)),
        slices(whole_slices) {}

  const char* check() const {
    if (source != nullptr && source->dtype != self.dtype) return "a source of another element type";
    if (!slices) {
      if (const char* reason = check_along(self, dim, index); reason != nullptr) return reason;
      if (source == nullptr || index.numel == 0) return nullptr;
      if (source->ndim != index.ndim && (source->ndim > 1 || index.ndim > 1)) return kShapes;
      for (int32_t d = 0; d < index.ndim && source->ndim == index.ndim; ++d) {
        if (index.sizes[d] > source->sizes[d]) return kShapes;
      }
      return nullptr;
    }
    if (!is_index(index.dtype) || index.ndim > 1) return kNotIndex;
    if (self.ndim == 0 && index.numel != 1) return kShapes;
    if (source == nullptr) return nullptr;
    if (source->ndim != self.ndim) return source->numel == 1 && self.numel == 1 && index.numel == 1 ? nullptr : kShapes;
    for (int32_t d = 0; d < self.ndim; ++d) {
      if (source->sizes[d] != (d == dim ? index.numel : self.sizes[d])) return kShapes;
    }
    return nullptr;
  }

  // A step that writes where the index points, into `to`, which is laid out like out. Null: too many dimensions.
  Step* write(Steps& steps, const Place& to, Put put, Operand operand) const {
    Step& step = steps.add();
    step.leads_to_target = true;
    step.put = put;
    step.operand = operand;
    step.to = step.from = to;
    if (operand != Operand::Value) step.from = Place(*source);
    Space free, sequence;
    if (index.numel == 0) {  // of any shape
      free.add(0);
      return step.walk(free) ? &step : nullptr;
    }
    for (int32_t d = 0; d < std::max(self.ndim, 1); ++d) {
      const bool along = d == dim;
      Space& space = along ? sequence : free;
      const int64_t size = slices ? (along ? index.numel : out.sizes[d]) : size_at(index, d);
      const int at = space.add(size);
      if (!along) space.set(Step::kTo, at, out.strides[d]);
      if (along || !slices) space.set(Step::kIndex, at, stride_at(index, slices ? 0 : d));
      if (operand != Operand::Value) space.set(Step::kFrom, at, stride_at(*source, d));
    }
    step.lead(index, size_at(out, dim), stride_at(out, dim));
    return step.walk(free, &sequence) ? &step : nullptr;
  }
};

/// How the operators of this section differ.
struct Manner {
  bool slices;
  bool wraps = false;
};

const char* overwrite(const fl_call& call, Steps& steps, Manner manner) {
  const Along along(call, manner.slices);
  if (const char* reason = along.check(); reason != nullptr) return reason;
  const bool by_value = along.source == nullptr, parts = has_parts(along.self.dtype);
  const fl_value& value = call.args[3];
  if (by_value ? !addable(along.self) || (value.kind == FL_COMPLEX && !parts) : !movable(along.self)) {
    return "an element type that the portable kernels do not write";
  }
  if (!add_copy(steps, along.out, along.self)) return kTooMany;
  for (int part = 0; part < (by_value && parts ? 2 : 1); ++part) {
    Step* step = along.write(steps, Place(along.out), by_value ? Put::Set : Put::Move,
                             by_value ? Operand::Value : Operand::Source);
    if (step == nullptr) return kTooMany;
    step->wrap = manner.wraps;
    step->value = value;
    if (!by_value || !parts) continue;
    const double real = value.kind == FL_REAL ? value.u.d : static_cast<double>(value.u.i);
    const double whole[] = {value.kind == FL_COMPLEX ? value.u.c[0] : real,
                            value.kind == FL_COMPLEX ? value.u.c[1] : 0};
    step->value = number_of(whole[part]);
    step->to.address += static_cast<fl_address>(part * element_bytes(step->to.dtype));
  }
  return nullptr;
}
const char* scatter(const fl_call& call, Steps& steps) { return overwrite(call, steps, {false}); }
const char* index_copy(const fl_call& call, Steps& steps) { return overwrite(call, steps, {true}); }
const char* index_fill(const fl_call& call, Steps& steps) { return overwrite(call, steps, {true, true}); }
// The value is a tensor of no dimensions: a source that stands still.
const char* index_fill_tensor(const fl_call& call, Steps& steps) {
  const fl_tensor& value = tensor(call, 3);
  Along along(call, true);
  along.source = nullptr;
  if (const char* reason = along.check(); reason != nullptr) return reason;
  const bool same = value.dtype == along.self.dtype;
  if (value.ndim != 0 || !movable(along.self) || (!same && (!typed(along.self) || !typed(value)))) return kShapes;
  if (!add_copy(steps, along.out, along.self)) return kTooMany;
  Step* step = along.write(steps, Place(along.out), same ? Put::Move : Put::Set, Operand::Value);
  if (step == nullptr) return kTooMany;
  step->operand = Operand::Source;
  step->from = Place(value);
  step->wrap = true;
  return nullptr;
}

bool put_named(const fl_value& name, Put& put, bool& mean) {
  const std::string_view text = name.kind == FL_STRING ? name.u.s : "";
  mean = text == "mean";
  if (text == "add" || text == "sum" || mean) {
    put = Put::Add;
  } else if (text == "multiply" || text == "prod") {
    put = Put::Multiply;
  } else if (text == "amax") {
    put = Put::Maximum;
  } else if (text == "amin") {
    put = Put::Minimum;
  } else {
    return false;
  }
  return true;
}

const char* combine(const fl_call& call, Steps& steps, bool slices, Put put, const fl_value* factor) {
  const Along along(call, slices);
  if (const char* reason = along.check(); reason != nullptr) return reason;
  const bool by_value = along.source == nullptr;
  if (put == Put::Add && !by_value ? !addable(along.self) : !typed(along.self)) {
    return "an element type that the portable kernels do not compute with";
  }
  if ((by_value && call.args[3].kind == FL_COMPLEX) || (factor != nullptr && factor->kind == FL_COMPLEX)) {
    return "a complex number";
  }
  if (!add_copy(steps, along.out, along.self)) return kTooMany;
  Step* step = along.write(steps, Place(along.out), put,
                           by_value            ? Operand::Value
                           : factor != nullptr ? Operand::Product
                                               : Operand::Source);
  if (step == nullptr) return kTooMany;
  step->value = by_value ? call.args[3] : factor != nullptr ? *factor : fl_value{};
  return nullptr;
}

const char* scatter_add(const fl_call& call, Steps& steps) { return combine(call, steps, false, Put::Add, nullptr); }
const char* scatter_reduce_old(const fl_call& call, Steps& steps) {
  Put put = Put::Add;
  bool mean = false;
  if (!put_named(call.args[4], put, mean)) return "an unknown reduction";
  return combine(call, steps, false, put, nullptr);
}
const char* index_add(const fl_call& call, Steps& steps) {
  const fl_value& alpha = call.args[4];
  const bool one = alpha.kind == FL_NONE || (alpha.kind == FL_REAL ? alpha.u.d == 1 : alpha.u.i == 1);
  return combine(call, steps, true, Put::Add, one && alpha.kind != FL_COMPLEX ? nullptr : &alpha);
}

// What a reduction that leaves out what was there before starts from.
fl_value neutral(Put put, fl_dtype dtype) {
  if (put == Put::Add || put == Put::Multiply) return number_of(put == Put::Multiply ? 1 : 0);
  const bool high = put == Put::Minimum;
  if (is_floating(dtype)) return number_of(high ? INFINITY : -INFINITY);
  fl_value v{};
  v.kind = FL_INTEGER;
  const int64_t bits = 8 * element_bytes(dtype);
  const int64_t top = dtype == FL_BOOL    ? 1
                      : dtype == FL_UINT8 ? 255
                                          : static_cast<int64_t>(~uint64_t{0} >> (65 - bits));
  v.u.i = high ? top : dtype == FL_BOOL || dtype == FL_UINT8 ? 0 : -top - 1;
  return v;
}

// self (dense), dim, index, source, reduce, include_self
const char* reduce_into(const fl_call& call, Steps& steps, bool slices) {
  const Along along(call, slices);
  Put put = Put::Add;
  bool mean = false;
  if (!put_named(call.args[4], put, mean)) return "an unknown reduction";
  if (const char* reason = along.check(); reason != nullptr) return reason;
  if (!typed(along.self)) return "an element type that the portable kernels do not compute with";
  const bool includes = call.args[5].kind == FL_NONE || call.args[5].u.i != 0;
  const fl_tensor& out = along.out;
  if (!add_copy(steps, out, along.self)) return kTooMany;
  if (!includes) {
    Step* step = along.write(steps, Place(out), Put::Set, Operand::Value);
    if (step == nullptr) return kTooMany;
    step->value = neutral(put, out.dtype);
  }
  if (along.write(steps, Place(out), put, Operand::Source) == nullptr) return kTooMany;
  if (!mean) return nullptr;
  const Place counts(1, FL_INT64);
  steps.scratch[0] = out.numel * 8;
  if (!add_fill(steps, out, counts, number_of(includes ? 1 : 0))) return kTooMany;
  Step* step = along.write(steps, counts, Put::Add, Operand::Value);
  if (step == nullptr) return kTooMany;
  step->value = number_of(1);
  Step& divide = steps.add();
  divide.put = Put::Divide;
  divide.to = Place(out);
  divide.from = counts;
  Space over;
  const int at = over.add(out.numel);
  over.set(Step::kTo, at, 1);
  over.set(Step::kFrom, at, 1);
  return divide.walk(over) ? nullptr : kTooMany;
}
const char* scatter_reduce(const fl_call& call, Steps& steps) { return reduce_into(call, steps, false); }
const char* index_reduce(const fl_call& call, Steps& steps) { return reduce_into(call, steps, true); }

// ---- Gradients and pooling --------------------------------------------------------------------------------------

// grad_output, indices, num_weights, padding_idx, scale_grad_by_freq; all dense. 16-bit sums are formed in float32.
const char* embedding_backward(const fl_call& call, Steps& steps) {
  const fl_tensor &grad = tensor(call, 0), &index = tensor(call, 1), &out = *call.outs[0];
  if (!is_index(index.dtype)) return kNotIndex;
  if (out.ndim != 2 || !is_floating(out.dtype) || grad.dtype != out.dtype) return kShapes;
  const int64_t rows = out.sizes[0], width = out.sizes[1];
  if (index.numel * width != grad.numel) return kShapes;
  const bool narrow = element_bytes(out.dtype) == 2, scaled = call.args[4].u.i != 0;
  const Place sums = narrow ? Place(1, FL_FLOAT32) : Place(out);
  if (narrow) steps.scratch[0] = out.numel * 4;
  const int64_t skip = call.args[3].u.i;
  if (!add_fill(steps, out, sums, number_of(0)) || !add_up_rows(steps, sums, rows, width, index, &grad, skip)) {
    return kTooMany;
  }
  if (scaled) {
    const Place counts(2, FL_INT64);
    steps.scratch[1] = rows * 8;
    fl_tensor line = out;
    line.ndim = 1;
    line.strides = out.strides + 1;
    if (!add_fill(steps, line, counts, number_of(0)) || !add_up_rows(steps, counts, rows, 1, index, nullptr, skip) ||
        !add_by_row(steps, Put::Divide, sums, counts, rows, width, true)) {
      return kTooMany;
    }
  }
  return !narrow || add_by_row(steps, Put::Set, Place(out), sums, rows, width, false) ? nullptr : kTooMany;
}

// self and indices of equal shape: (..., spatial dimensions). Indices count the places of a plane in row-major order.
const char* unpool(const fl_call& call, Steps& steps, int32_t spatial) {
  const fl_tensor &self = tensor(call, 0), &index = tensor(call, 1), &out = *call.outs[0];
  if (!is_index(index.dtype)) return kNotIndex;
  if (!typed(self) || index.ndim != self.ndim || self.ndim < spatial || out.ndim != self.ndim) return kShapes;
  int64_t places = 1;
  const int64_t step_to = out.strides[out.ndim - 1];
  for (int32_t d = out.ndim - 1; d >= out.ndim - spatial; --d) {
    if (out.sizes[d] > 1 && out.strides[d] != places * step_to) return "an output whose planes have gaps";
    places *= out.sizes[d];
  }
  if (!add_fill(steps, out, Place(out), number_of(0))) return kTooMany;
  Step& step = steps.add();
  step.leads_to_target = true;
  step.to = Place(out);
  step.from = Place(self);
  Space free, sequence;
  for (int32_t d = 0; d < self.ndim; ++d) {
    const bool plane = d >= self.ndim - spatial;
    if (index.sizes[d] != self.sizes[d] || (!plane && out.sizes[d] != self.sizes[d])) return kShapes;
    Space& space = plane ? sequence : free;
    const int at = space.add(self.sizes[d]);
    if (!plane) space.set(Step::kTo, at, out.strides[d]);
    space.set(Step::kFrom, at, self.strides[d]);
    space.set(Step::kIndex, at, index.strides[d]);
  }
  step.lead(index, places, step_to);
  return step.walk(free, &sequence) ? nullptr : kTooMany;
}
const char* unpool_2d(const fl_call& call, Steps& steps) { return unpool(call, steps, 2); }
const char* unpool_3d(const fl_call& call, Steps& steps) { return unpool(call, steps, 3); }

struct Line {
  const char* op;
  PlanSteps plan;
  uint32_t flags;
  uint64_t types;
};
constexpr uint32_t kDenseOut = FL_KERNEL_CONTIGUOUS_OUTPUTS;
constexpr uint32_t kDense = FL_KERNEL_CONTIGUOUS_INPUTS | kDenseOut;
constexpr uint32_t kInPlace = FL_KERNEL_IN_PLACE_SAFE;
constexpr uint32_t kByValue = FL_KERNEL_VALUE_DEPENDENT;
const Line kLines[] = {
    {"aten::index_select", index_select, 0, 0},
    {"aten::embedding", embedding, 0, 0},
    {"aten::gather", gather, 0, 0},
    {"aten::take", take, kDense, 0},
    {"aten::index.Tensor", index, 0, 0},
    {"aten::_index_put_impl_", index_put, 0, 0},
    {"aten::put", put, kDense, 0},
    {"aten::scatter.src", scatter, kInPlace, 0},
    {"aten::scatter.value", scatter, kInPlace | kByValue, kAddable},
    {"aten::scatter.reduce", scatter_reduce_old, kInPlace, kAddable},
    {"aten::scatter.value_reduce", scatter_reduce_old, kInPlace | kByValue, kNumbers | kBool},
    {"aten::scatter_add", scatter_add, kInPlace, kAddable},
    {"aten::scatter_reduce.two", scatter_reduce, kInPlace | kDenseOut, kNumbers | kBool},
    {"aten::index_add", index_add, kInPlace | kByValue, kAddable},
    {"aten::index_copy", index_copy, kInPlace, 0},
    {"aten::index_fill.int_Scalar", index_fill, kInPlace | kByValue, kAddable},
    {"aten::index_fill.int_Tensor", index_fill_tensor, kInPlace, 0},
    {"aten::index_reduce", index_reduce, kInPlace | kDenseOut, kNumbers},
    {"aten::embedding_dense_backward", embedding_backward, kDense, kFloats},
    {"aten::max_unpool2d", unpool_2d, 0, kNumbers},
    {"aten::max_unpool3d", unpool_3d, 0, kNumbers},
};

}  // namespace

void add_indexing(Rows& rows, runtime::Chip& chip, Language language) {
  for (const Line& line : kLines) {
    rows.push_back(make_row(line.op, line.flags, run_row<StepsRow>, StepsRow::supports,
                            keep<StepsRow>(chip, language, line.plan), line.types));
  }
}

}  // namespace torch_fl::portable
