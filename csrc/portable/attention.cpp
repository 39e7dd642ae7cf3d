// SPDX-License-Identifier: Apache-2.0
// Fused attention and its gradient (kernels/attention.h), for the operator that returns tensors alone: of PyTorch's own
// ones that is the CPU's.
#include <cmath>

#include "families.h"
#include "function.h"
#include "runtime/internal.h"

namespace torch_fl::portable {
namespace {

constexpr const char* kFile = "attention.h";
constexpr int64_t kTile = 6;        ///< QUERIES of kernels/attention.h
constexpr int64_t kFewQueries = 4;  ///< for which copying keys does not pay
constexpr int64_t kMostDepth = 256;

/// Strides of a tensor of four dimensions; with the last one, or 1 there.
void add_strides(FunctionCall& f, const fl_tensor& t, bool with_last = false) {
  f.words({t.strides[0], t.strides[1], t.strides[2]});
  if (with_last) f.word(t.strides[3]);
}
bool dense_inside(const fl_tensor& t) { return t.sizes[3] <= 1 || t.strides[3] == 1; }

struct Reading {
  const fl_tensor *g = nullptr, *q, *k, *v, *out = nullptr, *logsumexp, *mask;
  const fl_tensor* results[3] = {};  ///< of the gradient: for q, k, v
  int64_t batch, heads, key_heads, queries, keys, depth;
  bool causal;
  double scale;
  int64_t mask_strides[4] = {};

  // Null, or why not.
  const char* read(const fl_call& call, bool backward) {
    const uint32_t first = backward ? 1 : 0, options = backward ? 6 : 3;
    q = input_of(call, first);
    k = input_of(call, first + 1);
    v = input_of(call, first + 2);
    g = backward ? input_of(call, 0) : nullptr;
    out = backward ? input_of(call, 4) : output_of(call, 0);
    logsumexp = backward ? input_of(call, 5) : output_of(call, 1);
    causal = call.args[options + 1].u.i != 0;
    mask = input_of(call, options + 2);
    for (uint32_t i = 0; backward && i < 3; ++i) results[i] = output_of(call, i);
    for (const fl_tensor* t : {q, k, v, out}) {
      if (t == nullptr || t->ndim != 4 || t->dtype != q->dtype) return "tensors of four dimensions and one type";
    }
    batch = q->sizes[0];
    heads = q->sizes[1];
    queries = q->sizes[2];
    depth = q->sizes[3];
    key_heads = k->sizes[1];
    keys = k->sizes[2];
    if (!is_floating(q->dtype)) return "not floating-point";
    if (depth < 1 || depth > kMostDepth || (depth > kMostDepth / 2 && q->dtype == FL_FLOAT64)) {
      return "a head of a size that is too large to be held";
    }
    if (key_heads < 1 || heads % key_heads != 0) return "heads of queries that do not go into those of keys";
    if (!has_sizes(*k, key_heads, keys) || !has_sizes(*v, key_heads, keys) || !has_sizes(*out, heads, queries)) {
      return "shapes that do not fit";
    }
    if (!dense_inside(*q) || !dense_inside(*k) || !dense_inside(*v)) return "heads with gaps between their elements";
    if (logsumexp == nullptr || logsumexp->ndim != 3 || logsumexp->dtype != arithmetic(q->dtype) ||
        logsumexp->sizes[0] != batch || logsumexp->sizes[1] != heads || logsumexp->sizes[2] != queries) {
      return "sums of exponentials that do not fit";
    }
    const fl_value& given_scale = call.args[options + 3];
    scale = given_scale.kind == FL_NONE ? 1 / std::sqrt(static_cast<double>(depth)) : real_of(given_scale);
    if (backward && !gradients_fit()) return "gradients that do not fit";
    return mask == nullptr ? nullptr : read_mask();
  }

  FunctionCall function(const char* name) const {
    FunctionCall f(kFile, name, q->dtype);
    f.type("X", q->dtype).setting("D", static_cast<uint32_t>(depth)).setting("CAUSAL", causal ? 1 : 0);
    return f.setting("HAS_MASK", given(mask));
  }

 private:
  bool has_sizes(const fl_tensor& t, int64_t of_heads, int64_t positions) const {
    return t.sizes[0] == batch && t.sizes[1] == of_heads && t.sizes[2] == positions && t.sizes[3] == depth;
  }
  bool gradients_fit() const {
    if (g == nullptr || g->ndim != 4 || g->dtype != q->dtype || !has_sizes(*g, heads, queries)) return false;
    for (int i = 0; i < 3; ++i) {
      const fl_tensor* t = results[i];
      const bool fits = t != nullptr && t->ndim == 4 && t->dtype == q->dtype && dense_inside(*t) &&
                        has_sizes(*t, i == 0 ? heads : key_heads, i == 0 ? queries : keys);
      if (!fits) return false;
    }
    return true;
  }
  // The last dimensions of batch x heads x queries x keys, each of them or 1.
  const char* read_mask() {
    const int64_t sizes[4] = {batch, heads, queries, keys};
    if (mask->dtype != q->dtype || mask->ndim > 4) return "a mask of another type";
    for (int32_t d = 0; d < mask->ndim; ++d) {
      const int to = 4 - mask->ndim + d;
      if (mask->sizes[d] != 1 && mask->sizes[d] != sizes[to]) return "a mask of another shape";
      mask_strides[to] = mask->sizes[d] == 1 ? 0 : mask->strides[d];
    }
    return nullptr;
  }
};

void add_mask_strides(FunctionCall& f, const Reading& r) {
  for (const int64_t stride : r.mask_strides) f.word(stride);
}

class ForwardRow : public Row {
 public:
  using Row::Row;

  fl_status run(const fl_call& call) {
    Reading r;
    const char* reason = r.read(call, false);
    if (reason == nullptr && real_of(call.args[3]) != 0) reason = "dropout";
    if (reason != nullptr) return decline(reason);
    if (r.out->numel == 0) return FL_OK;
    const bool few = r.queries <= kFewQueries;
    const int64_t at_least = device(call).properties.compute_units, all = r.batch * r.heads;
    int64_t rows = r.depth <= 64 ? 128 : r.depth <= 128 ? 64 : 32;
    if (all * ((r.queries + rows - 1) / rows) < 2 * at_least) rows = 32;
    const int64_t units = all * (few ? r.queries : (r.queries + rows - 1) / rows);
    const Split work = split(device(call), units, 1);
    FunctionCall f = r.function(few ? "attention_rows" : "attention");
    f.setting("FORWARD", 1).setting("KEYS", 64);
    f.setting("ROWS", static_cast<uint32_t>((rows + kTile - 1) / kTile * kTile));
    f.out("X", r.out).out("A", r.logsumexp).in("X", r.q).in("X", r.k).in("X", r.v).in("X", r.mask);
    f.words({units, work.chunk, r.heads, r.heads / r.key_heads, r.queries, r.keys, rows}).real(r.scale);
    add_strides(f, *r.out);
    f.words({r.logsumexp->strides[0], r.logsumexp->strides[1], r.logsumexp->strides[2]});
    for (const fl_tensor* t : {r.q, r.k, r.v}) add_strides(f, *t);
    add_mask_strides(f, r);
    return f.launch(*this, call, work.items);
  }

  static fl_status supports(const fl_call* call) {
    Reading r;
    const char* reason = r.read(*call, false);
    if (reason == nullptr && !dense_inside(*r.out)) reason = "a result with gaps between its elements";
    return reason == nullptr ? FL_OK : decline(reason);
  }
};

class BackwardRow : public Row {
 public:
  using Row::Row;

  fl_status run(const fl_call& call) {
    Reading r;
    const char* reason = r.read(call, true);
    if (reason == nullptr && real_of(call.args[6]) != 0) reason = "dropout";
    if (reason != nullptr) return decline(reason);
    if (r.q->numel == 0 && r.k->numel == 0) return FL_OK;
    const int64_t units = r.batch * r.key_heads;
    const bool narrow = r.q->dtype != arithmetic(r.q->dtype);
    // Of types too narrow to sum up in: the gradient of the queries, until it is complete.
    int64_t dense[4] = {r.heads * r.queries * r.depth, r.queries * r.depth, r.depth, 1};
    fl_tensor total = *r.results[0];
    if (narrow) {
      total.strides = dense;
      const uint64_t bytes = static_cast<uint64_t>(r.q->numel) * bytes_of_arithmetic(arithmetic(r.q->dtype));
      const fl_status status = runtime::host_services().scratch(&call, bytes, &total.address);
      if (status != FL_OK) return status;
    }
    const Split work = split(device(call), units, 1);
    FunctionCall f = r.function("attention_backward");
    f.setting("BACKWARD", 1).setting("KEYS", 32).setting("NARROW", narrow ? 1 : 0);
    for (const fl_tensor* t : r.results) f.out("X", t);
    f.out("A", &total).in("X", r.g);
    for (const fl_tensor* t : {r.q, r.k, r.v, r.out}) f.in("X", t);
    f.in("A", r.logsumexp).in("X", r.mask);
    f.words({units, work.chunk, r.key_heads, r.heads / r.key_heads, r.queries, r.keys}).real(r.scale);
    for (const fl_tensor* t : r.results) add_strides(f, *t);
    add_strides(f, total);
    add_strides(f, *r.g, true);
    for (const fl_tensor* t : {r.q, r.k, r.v}) add_strides(f, *t);
    add_strides(f, *r.out, true);
    f.words({r.logsumexp->strides[0], r.logsumexp->strides[1], r.logsumexp->strides[2]});
    add_mask_strides(f, r);
    return f.launch(*this, call, work.items);
  }

  static fl_status supports(const fl_call* call) {
    Reading r;
    const char* reason = r.read(*call, true);
    return reason == nullptr ? FL_OK : decline(reason);
  }
};

}  // namespace

void add_attention(Rows& rows, runtime::Chip& chip, Language language) {
  rows.push_back(make_row("aten::_scaled_dot_product_flash_attention_for_cpu", 0, run_row<ForwardRow>,
                          ForwardRow::supports, keep<ForwardRow>(chip, language), kFloats));
  rows.push_back(make_row("aten::_scaled_dot_product_flash_attention_for_cpu_backward", 0, run_row<BackwardRow>,
                          BackwardRow::supports, keep<BackwardRow>(chip, language), kFloats));
}

}  // namespace torch_fl::portable
