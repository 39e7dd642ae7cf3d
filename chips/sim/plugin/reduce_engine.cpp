// SPDX-License-Identifier: Apache-2.0
#include "reduce_engine.h"

#include <algorithm>
#include <cstring>

namespace fl_sim {
namespace {

struct Dim {
  int64_t size;
  int64_t in;      // strides: input,
  int64_t out[3];  // targets and shift (kept dimensions only)
};

// An odometer over some dimensions that moves an input pointer; `body(pointer, dims' index offsets)`.
class Engine {
 public:
  Engine(const Reduced& g, Kind kind, const Reduction& loops, const Target* targets, int n_targets, const Target* shift,
         const Params& params)
      : g_(g), kind_(kind), loops_(loops), n_targets_(n_targets), params_(params), in_bytes_(dtype_size(g.in.dtype)) {
    for (int t = 0; t < n_targets; ++t) at_[t] = targets[t];
    for (int t = n_targets; t < 2; ++t) at_[t].data = nullptr;
    if (shift)
      at_[2] = *shift;
    else
      at_[2].data = nullptr;
    load_ = converters().load[kind][g.in.dtype];
    native_ = g.in.dtype == native_dtype(kind);
    // Places count in row-major order; other reductions may take the values in any order.
    ordered_ = loops.out[1] != kNoKind;
    collect();
  }

  void run() {
    int inner = 0;
    if (kept_n_ && (gone_n_ == 0 || inner_is_kept())) {
      for (int d = 1; d < kept_n_; ++d)
        if (kept_[d].in < kept_[inner].in || kept_[inner].in == 0) inner = d;
      std::swap(kept_[0], kept_[inner]);
      columns();
    } else {
      rows();
    }
  }

 private:
  void collect() {
    for (int k = g_.n_kept; k-- > 0;) {
      const int d = g_.kept[k];
      if (g_.size(d) == 1) continue;
      Dim dim{g_.size(d), g_.in.strides[d], {}};
      for (int t = 0; t < 3; ++t) dim.out[t] = at_[t].data ? at_[t].strides[k] : 0;
      kept_[kept_n_++] = dim;
    }
    for (int k = g_.n_gone; k-- > 0;) {
      const int d = g_.gone[k];
      if (g_.size(d) != 1) gone_[gone_n_++] = {g_.size(d), g_.in.strides[d], {}};
    }
    if (!ordered_) std::stable_sort(gone_, gone_ + gone_n_, [](const Dim& a, const Dim& b) { return a.in < b.in; });
    merge(gone_, gone_n_);
  }

  static void merge(Dim* dims, int& n) {
    int m = 0;
    for (int d = 1; d < n; ++d) {
      if (dims[d].in == dims[m].in * dims[m].size)
        dims[m].size *= dims[d].size;
      else
        dims[++m] = dims[d];
    }
    if (n) n = m + 1;
  }

  // Runs along a kept dimension are better when memory is dense along it and not along a reduced one.
  bool inner_is_kept() const {
    int64_t kept = INT64_MAX;
    for (int d = 0; d < kept_n_; ++d)
      if (kept_[d].in > 0) kept = std::min(kept, kept_[d].in);
    return kept < gone_[0].in;
  }

  const void* values(const char* memory, int64_t stride, int64_t n) {
    if (native_ && stride == 1) return memory;
    load_(buffer_, memory, stride, n);
    return buffer_;
  }

  // Advances an odometer over dims[first..n); false when it is through.
  static bool advance(const Dim* dims, int first, int n, int64_t* index, int64_t& in, int64_t* out) {
    for (int d = first; d < n; ++d) {
      in += dims[d].in;
      if (out)
        for (int t = 0; t < 3; ++t) out[t] += dims[d].out[t];
      if (++index[d] < dims[d].size) return true;
      in -= dims[d].in * dims[d].size;
      if (out)
        for (int t = 0; t < 3; ++t) out[t] -= dims[d].out[t] * dims[d].size;
      index[d] = 0;
    }
    return false;
  }

  void store(void* const* results, int64_t n, const int64_t* offsets) {
    for (int t = 0; t < n_targets_; ++t) {
      if (!at_[t].data) continue;
      const int64_t stride = n > 1 ? kept_[0].out[t] : 1;
      converters().store[loops_.out[t]][at_[t].dtype](at_[t].data + offsets[t] * dtype_size(at_[t].dtype), stride,
                                                      results[t], n);
    }
  }

  void finish(const void* accs, int64_t n, const double* shift, const int64_t* offsets) {
    alignas(16) static thread_local char results[2][kChunk * 16];
    void* outs[2] = {at_[0].data ? results[0] : nullptr, at_[1].data ? results[1] : nullptr};
    loops_.finish(outs, accs, n, shift, params_);
    store(outs, n, offsets);
  }

  // Each result from runs along the innermost reduced dimension.
  void rows() {
    alignas(16) char acc[32];
    int64_t index[kMaxDims] = {}, out[3] = {}, base = 0;
    do {
      loops_.init(acc, 1);
      const double* shift = at_[2].data ? reinterpret_cast<const double*>(at_[2].data) + out[2] : nullptr;
      fold_all(acc, g_.in.as<char>() + base * in_bytes_, shift);
      finish(acc, 1, shift, out);
    } while (advance(kept_, 0, kept_n_, index, base, out));
  }

  void fold_all(void* acc, const char* memory, const double* shift) {
    if (g_.count == 0) return;
    const int64_t length = gone_n_ ? gone_[0].size : 1, stride = gone_n_ ? gone_[0].in : 1;
    const int64_t step = native_ && stride == 1 ? length : kChunk;
    int64_t index[kMaxDims] = {}, base = 0;
    do {
      for (int64_t i = 0; i < length; i += step) {
        const int64_t n = std::min(step, length - i);
        loops_.fold(acc, values(memory + (base + i * stride) * in_bytes_, stride, n), n, shift, params_);
      }
    } while (advance(gone_, 1, gone_n_, index, base, nullptr));
  }

  // Many results at once, along the innermost kept dimension.
  void columns() {
    alignas(16) static thread_local char accs[kChunk * 32];
    alignas(16) static thread_local double shifts[kChunk];
    int64_t index[kMaxDims] = {}, out[3] = {}, base = 0;
    const Dim inner = kept_[0];
    do {
      for (int64_t i = 0; i < inner.size; i += kChunk) {
        const int64_t n = std::min(kChunk, inner.size - i);
        int64_t offsets[3];
        for (int t = 0; t < 3; ++t) offsets[t] = out[t] + i * inner.out[t];
        const double* shift = nullptr;
        if (at_[2].data) {
          const auto* from = reinterpret_cast<const double*>(at_[2].data) + offsets[2];
          for (int64_t k = 0; k < n; ++k) shifts[k] = from[k * inner.out[2]];
          shift = shifts;
        }
        loops_.init(accs, n);
        fold_columns(accs, g_.in.as<char>() + (base + i * inner.in) * in_bytes_, inner.in, n, shift);
        finish(accs, n, shift, offsets);
      }
    } while (advance(kept_, 1, kept_n_, index, base, out));
  }

  void fold_columns(void* accs, const char* memory, int64_t stride, int64_t n, const double* shift) {
    if (g_.count == 0) return;
    int64_t index[kMaxDims] = {}, base = 0;
    do {
      loops_.fold_many(accs, values(memory + base * in_bytes_, stride, n), n, shift, params_);
    } while (advance(gone_, 0, gone_n_, index, base, nullptr));
  }

  const Reduced& g_;
  Kind kind_;
  const Reduction& loops_;
  Target at_[3];
  int n_targets_;
  const Params& params_;
  int64_t in_bytes_;
  LoadFn load_;
  bool native_, ordered_;
  int kept_n_ = 0, gone_n_ = 0;
  Dim kept_[kMaxDims], gone_[kMaxDims];
  alignas(64) char buffer_[kChunk * 16];
};

}  // namespace

Reduced reduce_dims(const View& in, std::span<const int64_t> dims, bool all_when_empty) {
  Reduced g;
  g.in = in;
  bool gone[kMaxDims] = {};
  if (dims.empty() && all_when_empty) std::fill_n(gone, in.ndim, true);
  for (const int64_t d : dims)
    if (in.ndim) gone[d < 0 ? d + in.ndim : d] = true;
  for (int d = 0; d < in.ndim; ++d) {
    if (gone[d])
      g.gone[g.n_gone++] = d, g.count *= in.sizes[d];
    else
      g.kept[g.n_kept++] = d, g.results *= in.sizes[d];
  }
  return g;
}

Target target_of(const View& out, const Reduced& g) {
  Target t;
  t.data = out.as<char>();
  t.dtype = out.dtype;
  const bool kept_as_one = out.ndim == g.in.ndim;
  for (int k = 0; k < g.n_kept; ++k) t.strides[k] = out.strides[kept_as_one ? g.kept[k] : k];
  return t;
}

Target target_of(double* buffer, const Reduced& g) {
  Target t;
  t.data = reinterpret_cast<char*>(buffer);
  t.dtype = FL_FLOAT64;
  int64_t stride = 1;
  for (int k = g.n_kept; k-- > 0;) {
    t.strides[k] = stride;
    stride *= g.size(g.kept[k]);
  }
  return t;
}

void reduce(const Reduced& geometry, Kind kind, const Reduction& loops, const Target* targets, int n_targets,
            const Target* shift, Params params) {
  if (geometry.results == 0) return;
  params.i[3] = geometry.count;
  Engine(geometry, kind, loops, targets, n_targets, shift, params).run();
}

}  // namespace fl_sim
