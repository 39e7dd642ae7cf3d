// SPDX-License-Identifier: Apache-2.0
#include "reducing.h"

#include <algorithm>

#include "runtime/internal.h"

namespace torch_fl::portable {

bool Reading::read(const fl_call& call, Which which, int dims_argument) {
  if (call.n_outs == 0 || call.outs[0] == nullptr || call.args[0].kind != FL_TENSOR) return false;
  in = call.args[0].u.tensor;
  out = call.outs[0];
  bool goes[64] = {};
  if (!mark(call, which, dims_argument, goes)) return false;
  const bool keepdim = out->ndim == in->ndim;
  int32_t o = 0;
  for (int32_t d = 0; d < in->ndim; ++d) {
    if (goes[d]) {
      if (!reduced.add(in->sizes[d], in->strides[d], 0)) return false;
      o += keepdim ? 1 : 0;
    } else {
      if (o >= out->ndim || !kept.add(in->sizes[d], in->strides[d], out->strides[o])) return false;
      ++o;
    }
  }
  kept.finish();
  reduced.finish();
  return true;
}

bool Reading::mark(const fl_call& call, Which which, int dims_argument, bool (&goes)[64]) const {
  const int64_t ndim = in->ndim;
  const fl_value* v = dims_argument < 0 ? nullptr : &call.args[dims_argument];
  const bool listed = v != nullptr && v->kind == FL_INTEGERS && v->count > 0;
  const bool one = v != nullptr && v->kind == FL_INTEGER;
  if (!listed && !one) {
    if (which == Which::One) return false;
    if (which == Which::ListOrAll && v->kind == FL_INTEGERS) return true;
    for (int64_t d = 0; d < ndim; ++d) goes[d] = true;
    return true;
  }
  for (uint32_t k = 0; k < (listed ? v->count : 1); ++k) {
    int64_t d = listed ? v->u.ints[k] : v->u.i;
    d += d < 0 ? std::max<int64_t>(ndim, 1) : 0;
    if (d < 0 || d >= std::max<int64_t>(ndim, 1)) return false;
    goes[d] = true;
  }
  return true;
}

std::string member(const char* name, int d) { return std::string("p.") + name + "[" + number(d) + "]"; }

namespace {

// `at` (and `to`) of output number `o`.
std::string locate(const Dims& kept) {
  std::string text = "    i64 at = 0, to = 0, rest = o;\n";
  for (int d = kept.rank - 1; d >= 0; --d) {
    const std::string c = d > 0 ? "rest % " + member("ksize", d) : std::string("rest");
    text +=
        "    { const i64 c = " + c + "; at += c * " + member("kin", d) + "; to += c * " + member("kout", d) + "; }\n";
    if (d > 0) text += "    rest /= " + member("ksize", d) + ";\n";
  }
  return text;
}

}  // namespace

std::string nest(const Dims& reduced, const std::string& inner) {
  const int last = reduced.rank - 1;
  std::string text;
  if (last == 0) {
    return "    { const i64 row = at + r0 * " + member("rin", 0) + ", run = r1 - r0, count = r0;\n" + inner + "    }\n";
  }
  std::string row = "at", count = "0";
  for (int d = 0; d < last; ++d) {
    const std::string i = "i" + number(d);
    text += "    for (i64 " + i + " = " + (d == 0 ? "r0" : "0") + "; " + i + " < " +
            (d == 0 ? "r1" : member("rsize", d)) + "; ++" + i + ")\n";
    row += " + " + i + " * " + member("rin", d);
    count = "(" + count + " * " + member("rsize", d) + " + " + i + ")";
  }
  return text + "    { const i64 row = " + row + ", run = " + member("rsize", last) + ", count = " + count +
         " * run;\n" + inner + "    }\n";
}

std::string members_of(const Reading& reading) {
  const std::string k = number(reading.kept.rank), r = number(reading.reduced.rank);
  return "  i64 outputs, chunk, splits, rchunk, count, ksize[" + k + "], kin[" + k + "], kout[" + k + "], rsize[" + r +
         "], rin[" + r + "]";
}

std::string each_output(const Reading& reading, const std::string& body) {
  return "  const i64 split = item % p.splits, unit = item / p.splits;\n"
         "  const i64 r0 = split * p.rchunk;\n"
         "  const i64 r1 = r0 + p.rchunk < p.rsize[0] ? r0 + p.rchunk : p.rsize[0];\n"
         "  const i64 end = (unit + 1) * p.chunk < p.outputs ? (unit + 1) * p.chunk : p.outputs;\n"
         "  for (i64 o = unit * p.chunk; o < end; ++o) {\n" +
         locate(reading.kept) + body + "  }\n";
}

bool by_tiles(const Reading& reading) {
  const Dims& kept = reading.kept;
  const int last = kept.rank - 1;
  return kept.in[last] == 1 && kept.out[last] == 1 && kept.size[last] >= 16 &&
         reading.reduced.in[reading.reduced.rank - 1] != 1;
}

std::string head_of(const std::string& a, bool floating, fl_dtype in, bool dense, bool vectors) {
  return std::string("#define VECTORS ") + (vectors ? "1" : "0") + "\n#define V_LOAD(p, i) VECTOR_LOAD_" +
         element_name(in) + "(p, i)\n" + "#define A " + a + "\n" + (floating ? "#define FL_FLOATING 1\n" : "") +
         "#define IN " + element_name(in) + "\n#define LOAD(p, i) LOAD_" + element_name(in) + "(p, i)\n#define STEP " +
         (dense ? "1" : "0") + "\n";
}

namespace {

int64_t units_of(const Reading& reading) {
  if (!by_tiles(reading)) return reading.kept.numel;
  const int64_t row = reading.kept.size[reading.kept.rank - 1];
  return reading.kept.numel / row * ((row + kTile - 1) / kTile);
}

constexpr int64_t kWorthSplitting = 32768;

}  // namespace

Work plan(const runtime::Device& device, const Reading& reading, bool may_split, bool tiles) {
  Work work;
  const int64_t worth = enough(kWorthSplitting);
  const int64_t units = device.properties.compute_units == 0 ? 8 : device.properties.compute_units;
  const int64_t outputs = tiles ? units_of(reading) : reading.kept.numel, outer = reading.reduced.size[0];
  const int64_t each = std::max<int64_t>(reading.reduced.numel, 1) * (tiles ? kTile : 1);
  work.outputs = split(device, outputs, std::max<int64_t>(1, 16384 / each));
  work.rchunk = std::max<int64_t>(outer, 1);
  if (may_split && static_cast<int64_t>(work.outputs.items) < units &&
      reading.reduced.numel * (tiles ? kTile : 1) >= worth) {
    const int64_t wanted = std::min<int64_t>({2 * units, outer, each / std::max<int64_t>(1, worth / 4)});
    if (wanted > 1) {
      work.rchunk = (outer + wanted - 1) / wanted;
      work.splits = (outer + work.rchunk - 1) / work.rchunk;
    }
  }
  return work;
}

void add_members(Words& words, const Reading& reading, const Work& work, int64_t count) {
  const Dims &k = reading.kept, &r = reading.reduced;
  for (const int64_t word : {k.numel, work.outputs.chunk, work.splits, work.rchunk, count}) words.add(word);
  for (const int64_t* list : {k.size, k.in, k.out}) {
    for (int d = 0; d < k.rank; ++d) words.add(list[d]);
  }
  for (const int64_t* list : {r.size, r.in}) {
    for (int d = 0; d < r.rank; ++d) words.add(list[d]);
  }
}

void add_shape(VariantKey& key, const Reading& reading) {
  key.add(static_cast<uint32_t>(reading.in->dtype));
  key.add(static_cast<uint32_t>(reading.out->dtype));
  key.add(static_cast<uint32_t>(reading.kept.rank));
  key.add(static_cast<uint32_t>(reading.reduced.rank));
  key.add(reading.reduced.in[reading.reduced.rank - 1] == 1 ? 1 : 0);
}

bool same_strides(const fl_tensor& a, const fl_tensor& b) {
  for (int32_t d = 0; d < a.ndim; ++d) {
    if (a.sizes[d] > 1 && a.strides[d] != b.strides[d]) return false;
  }
  return true;
}

}  // namespace torch_fl::portable
