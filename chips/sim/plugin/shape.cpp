// SPDX-License-Identifier: Apache-2.0
// Triangles, ranges, and rearrangements that copy.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <utility>

#include "families.h"
#include "pointwise.h"

namespace fl_sim {
namespace {

// A view with geometry of its own, for copies with other strides.
struct Shaped {
  View view;
  int64_t sizes[kMaxDims], strides[kMaxDims];
  explicit Shaped(const View& v) : view(v) {
    std::copy_n(v.sizes, v.ndim, sizes);
    std::copy_n(v.strides, v.ndim, strides);
    bind();
  }
  Shaped(const Shaped&) = delete;
  void bind() { view.sizes = sizes, view.strides = strides, view.flags = 0; }
  void shift(int64_t elements) { view.data = view.as<char>() + elements * dtype_size(view.dtype); }
  void resize(int dim, int64_t size) {
    sizes[dim] = size;
    view.numel = 1;
    for (int d = 0; d < view.ndim; ++d) view.numel *= sizes[d];
  }
};

int wrap(int64_t dim, int ndim) { return static_cast<int>(dim < 0 ? dim + ndim : dim); }

// ---- tril, triu
template <class T>
void triangle(const View& out, const View& in, int64_t diagonal, bool upper) {
  const int rows = out.ndim - 2, columns = out.ndim - 1;
  int64_t index[kMaxDims] = {}, to = 0, from = 0;
  for (;;) {
    for (int64_t r = 0; r < out.sizes[rows]; ++r) {
      // Columns [first, last) are kept.
      const int64_t edge = std::clamp<int64_t>(upper ? r + diagonal : r + diagonal + 1, 0, out.sizes[columns]);
      const int64_t first = upper ? edge : 0, last = upper ? out.sizes[columns] : edge;
      T* row = out.as<T>() + to + r * out.strides[rows];
      const T* source = in.as<const T>() + from + r * in.strides[rows];
      for (int64_t c = 0; c < out.sizes[columns]; ++c)
        row[c * out.strides[columns]] = c >= first && c < last ? source[c * in.strides[columns]] : T();
    }
    int d = rows - 1;
    for (; d >= 0; --d) {
      to += out.strides[d], from += in.strides[d];
      if (++index[d] < out.sizes[d]) break;
      to -= out.strides[d] * out.sizes[d], from -= in.strides[d] * out.sizes[d];
      index[d] = 0;
    }
    if (d < 0) return;
  }
}

struct Wide {
  uint64_t low = 0, high = 0;
};

template <bool kUpper>
void triangle_body(const Call& call) {
  const View out = call.out(0), in = call.tensor(0);
  if (out.numel == 0) return;
  const int64_t diagonal = call.integer(1);
  switch (dtype_size(out.dtype)) {
    case 1:
      return triangle<uint8_t>(out, in, diagonal, kUpper);
    case 2:
      return triangle<uint16_t>(out, in, diagonal, kUpper);
    case 4:
      return triangle<uint32_t>(out, in, diagonal, kUpper);
    case 8:
      return triangle<uint64_t>(out, in, diagonal, kUpper);
    default:
      return triangle<Wide>(out, in, diagonal, kUpper);
  }
}

// ---- flip, roll, repeat
void flip_body(const Call& call) {
  const View out = call.out(0), in = call.tensor(0);
  if (out.numel == 0) return;
  Shaped source(in);
  for (const int64_t dim : call.ints(1)) {
    if (in.ndim == 0) continue;
    const int d = wrap(dim, in.ndim);
    source.shift((in.sizes[d] - 1) * in.strides[d]);
    source.strides[d] = -in.strides[d];
  }
  copy_view(out, source.view);
}

// The two halves of each rolled dimension, recursively.
void roll_copy(const View& out, const View& in, std::span<const int64_t> shifts, std::span<const int64_t> dims) {
  if (dims.empty()) return copy_view(out, in);
  const int d = wrap(dims[0], in.ndim);
  const int64_t size = in.sizes[d], shift = ((shifts[0] % size) + size) % size;
  for (const bool tail : {false, true}) {  // the last `shift` come first
    const int64_t length = tail ? size - shift : shift;
    if (length == 0) continue;
    Shaped to(out), from(in);
    to.resize(d, length), from.resize(d, length);
    to.shift((tail ? shift : 0) * out.strides[d]);
    from.shift((tail ? 0 : size - shift) * in.strides[d]);
    roll_copy(to.view, from.view, shifts.subspan(1), dims.subspan(1));
  }
}
void roll_body(const Call& call) {
  const View out = call.out(0), in = call.tensor(0);
  if (out.numel == 0) return;
  const auto shifts = call.ints(1), dims = call.ints(2);
  if (!dims.empty() && in.ndim) return roll_copy(out, in, shifts, dims);
  // Without dimensions the tensor rolls as if flat: both are contiguous.
  const int64_t size = in.numel, one = 1, zero = 0;
  View flat_out = out, flat_in = in;
  flat_out.ndim = flat_in.ndim = 1;
  flat_out.sizes = flat_in.sizes = &size;
  flat_out.strides = flat_in.strides = &one;
  roll_copy(flat_out, flat_in, shifts.first(1), {&zero, 1});
}

void repeat_body(const Call& call) {
  const View out = call.out(0), in = call.tensor(0);
  if (out.numel == 0) return;
  const int extra = out.ndim - in.ndim;
  int64_t sizes[kMaxDims], to[kMaxDims], from[kMaxDims];
  int n = 0;
  for (int d = 0; d < out.ndim; ++d) {
    const int64_t size = d < extra ? 1 : in.sizes[d - extra];
    if (out.sizes[d] != size) sizes[n] = out.sizes[d] / size, to[n] = out.strides[d] * size, from[n] = 0, ++n;
    if (size != 1) sizes[n] = size, to[n] = out.strides[d], from[n] = in.strides[d - extra], ++n;
  }
  View target = out, source = in;
  target.ndim = source.ndim = n;
  target.sizes = source.sizes = sizes;
  target.strides = to, source.strides = from;
  source.numel = out.numel;
  target.flags = source.flags = 0;
  copy_view(target, source);
}
fl_status supports_repeat(const fl_call* call) {
  return call->outs[0]->ndim * 2 <= kMaxDims ? FL_OK : unsupported("repeat of more than 32 dimensions");
}

// ---- Ranges: computed in double or int64 and stored by chunk.
template <class F>
void generate(const View& out, Kind kind, F&& value) {
  int64_t at = 0;
  const int64_t stride = out.ndim ? out.strides[0] : 1;
  alignas(16) char buffer[kChunk * 8];
  for (; at < out.numel; at += kChunk) {
    const int64_t n = std::min(kChunk, out.numel - at);
    for (int64_t i = 0; i < n; ++i) {
      if (kind == kF64)
        reinterpret_cast<double*>(buffer)[i] = static_cast<double>(value(at + i));
      else
        reinterpret_cast<int64_t*>(buffer)[i] = static_cast<int64_t>(value(at + i));
    }
    converters().store[kind][out.dtype](out.as<char>() + at * stride * dtype_size(out.dtype), stride, buffer, n);
  }
}

void arange_body(const Call& call) {
  const View out = call.out(0);
  const bool integers = is_integer(out.dtype);
  if (integers) {  // the bounds are cast first, as PyTorch does
    const int64_t start = call.integer(0), step = call.none(2) ? 1 : call.integer(2);
    return generate(out, kI64, [=](int64_t i) { return start + step * i; });
  }
  const double start = call.real(0), step = call.real(2, 1);
  generate(out, kF64, [=](int64_t i) { return start + step * static_cast<double>(i); });
}

void linspace_body(const Call& call) {
  const View out = call.out(0);
  const int64_t steps = call.integer(2);
  if (is_integer(out.dtype)) {
    const int64_t start = call.integer(0), end = call.integer(1);
    const float step = steps > 1 ? static_cast<float>(end - start) / static_cast<float>(steps - 1) : 0;
    return generate(out, kI64, [=](int64_t i) {
      return i < steps / 2 || steps == 1
                 ? static_cast<int64_t>(static_cast<float>(start) + step * static_cast<float>(i))
                 : static_cast<int64_t>(static_cast<float>(end) - step * static_cast<float>(steps - i - 1));
    });
  }
  const double start = call.real(0), end = call.real(1);
  const double step = steps > 1 ? (end - start) / static_cast<double>(steps - 1) : 0;
  generate(out, kF64, [=](int64_t i) {
    return i < steps / 2 || steps == 1 ? start + step * static_cast<double>(i)
                                       : end - step * static_cast<double>(steps - i - 1);
  });
}

// eye(n), eye.m(n, m)
void eye_body(const Call& call) {
  const View out = call.out(0);
  fl_value value = {};
  value.kind = FL_INTEGER;
  fill_view(out, value);
  const int64_t length = std::min(out.sizes[0], out.sizes[1]), stride = out.strides[0] + out.strides[1];
  View diagonal = out;
  diagonal.ndim = 1;
  diagonal.sizes = &length;
  diagonal.strides = &stride;
  diagonal.numel = length;
  diagonal.flags = 0;
  value.u.i = 1;
  fill_view(diagonal, value);
}

// complex(real, imag): the output's two halves are real tensors of twice the stride.
void complex_body(const Call& call) {
  const View out = call.out(0);
  if (out.numel == 0) return;
  for (uint32_t part = 0; part < 2; ++part) {
    Shaped half(out);
    half.view.dtype = call.tensor(part).dtype;
    for (int d = 0; d < out.ndim; ++d) half.strides[d] = 2 * out.strides[d];
    half.shift(part);
    copy_view(half.view, call.tensor(part));
  }
}
fl_status supports_complex(const fl_call* call) {
  return call->args[1].kind == FL_TENSOR && call->args[1].u.tensor->dtype == call->compute_dtype
             ? FL_OK
             : unsupported("parts of two element types");
}

template <void (*body)(const Call&)>
fl_status run(const fl_call* call) {
  return launch(call, body);
}
fl_status supports_range(const fl_call* call) {
  const fl_dtype dtype = call->outs[0]->dtype;
  if (!is_real_float(dtype) && !is_integer(dtype)) return unsupported("a range of this element type");
  for (uint32_t i = 0; i < 2; ++i)
    if (call->args[i].kind == FL_COMPLEX || call->args[i].kind == FL_TENSOR)
      return unsupported("bounds that are not real numbers");
  return FL_OK;
}

const fl_kernel kRows[] = {
    row("aten::tril", 0, run<triangle_body<false>>, kKnown),
    row("aten::triu", 0, run<triangle_body<true>>, kKnown),
    row("aten::flip", 0, run<flip_body>, kKnown),
    row("aten::roll", FL_KERNEL_CONTIGUOUS_INPUTS | FL_KERNEL_CONTIGUOUS_OUTPUTS, run<roll_body>, kKnown),
    row("aten::repeat", 0, run<repeat_body>, kKnown, supports_repeat),
    row("aten::arange.start_step", 0, run<arange_body>, 0, supports_range),
    row("aten::eye", 0, run<eye_body>, kKnown),
    row("aten::eye.m", 0, run<eye_body>, kKnown),
    row("aten::complex", FL_KERNEL_BROADCAST, run<complex_body>,
        FL_DTYPE_BIT(FL_FLOAT16) | FL_DTYPE_BIT(FL_FLOAT32) | FL_DTYPE_BIT(FL_FLOAT64), supports_complex),
    row("aten::linspace", 0, run<linspace_body>, 0, supports_range),
};

}  // namespace

Family shape_family() { return kRows; }

}  // namespace fl_sim
