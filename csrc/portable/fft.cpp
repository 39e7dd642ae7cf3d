// SPDX-License-Identifier: Apache-2.0
// Fourier transforms of any size: _fft_c2c, _fft_r2c, _fft_c2r.
//
// The numbers go into dense scratch memory first and come out of it last; in between, each dimension is transformed in
// stages of one radix each (Stockham's order: no bit reversal, reading and writing another buffer). What lies inside
// the dimension is carried along as if it were its innermost part. Sizes with a large prime factor become a convolution
// with a chirp (Bluestein), of a power of two. Roots of unity come from tables that are made for the call.
#include <algorithm>
#include <cmath>
#include <map>
#include <utility>
#include <vector>

#include "families.h"
#include "geometry.h"
#include "launch.h"
#include "runtime/internal.h"
#include "text.h"

namespace torch_fl::portable {
namespace {

enum class Kind : uint8_t { ComplexToComplex, RealToComplex, ComplexToReal };

struct Transform {
  const char* op;
  Kind kind;
};
const Transform kTransforms[] = {
    {"aten::_fft_c2c", Kind::ComplexToComplex},
    {"aten::_fft_r2c", Kind::RealToComplex},
    {"aten::_fft_c2r", Kind::ComplexToReal},
};

constexpr int64_t kLargestRadix = 61;

/// One call, looked through once.
struct Problem {
  const fl_tensor* in = nullptr;
  const fl_tensor* out = nullptr;
  fl_dtype complex = FL_COMPLEX64;
  std::vector<size_t> dims;  ///< in the order of the call
  bool forward = true, onesided = false;
  double scale = 1;
};

bool mark_dims(const fl_value& v, int32_t ndim, std::vector<size_t>& dims) {
  bool seen[kMaxRank] = {};
  if (v.kind != FL_INTEGERS && v.count != 0) return false;
  for (uint32_t k = 0; k < v.count; ++k) {
    const int64_t d = v.u.ints[k] + (v.u.ints[k] < 0 ? ndim : 0);
    if (d < 0 || d >= ndim || seen[d]) return false;
    seen[d] = true;
    dims.push_back(static_cast<size_t>(d));
  }
  return true;
}

// Null, or why not.
const char* read(const fl_call& call, Kind kind, Problem& p) {
  if (call.n_outs != 1 || call.outs[0] == nullptr || call.args[0].kind != FL_TENSOR) return "not one tensor";
  p.in = call.args[0].u.tensor;
  p.out = call.outs[0];
  const bool from_real = kind == Kind::RealToComplex, to_real = kind == Kind::ComplexToReal;
  p.complex = from_real ? p.out->dtype : p.in->dtype;
  const fl_dtype part = p.complex == FL_COMPLEX128 ? FL_FLOAT64 : FL_FLOAT32;
  if (!is_complex(p.complex) || p.in->dtype != (from_real ? part : p.complex) ||
      p.out->dtype != (to_real ? part : p.complex))
    return "element types that the portable transforms do not have";
  if (p.in->ndim > kMaxRank || p.in->ndim != p.out->ndim) return "more dimensions than a portable transform takes";
  if (!mark_dims(call.args[1], p.in->ndim, p.dims)) return "dimensions that are not there, or twice";
  if (kind == Kind::ComplexToComplex) p.forward = call.args[3].u.i != 0;
  if (from_real) p.onesided = call.args[3].u.i != 0;
  if (to_real) p.forward = false;
  if ((from_real || to_real) && p.dims.empty()) return "no dimensions";
  double signal = 1;
  for (int32_t d = 0; d < p.in->ndim; ++d) {
    const bool last = !p.dims.empty() && static_cast<int32_t>(p.dims.back()) == d;
    const int64_t in = p.in->sizes[d], out = p.out->sizes[d];
    const int64_t expected = from_real && last && p.onesided ? in / 2 + 1 : in;
    if (to_real && last ? in != out / 2 + 1 : out != expected) return "sizes that do not belong together";
    if (std::find(p.dims.begin(), p.dims.end(), static_cast<size_t>(d)) != p.dims.end())
      signal *= static_cast<double>(to_real ? out : in);
  }
  const int64_t normalization = call.args[2].u.i;
  p.scale = normalization == 0 || signal == 0 ? 1 : normalization == 1 ? 1 / std::sqrt(signal) : 1 / signal;
  return nullptr;
}

// Ascending radices whose product is n, fours for pairs of twos; the last may be a prime that is too large.
std::vector<int64_t> radices_of(int64_t n) {
  std::vector<int64_t> radices;
  for (; n % 4 == 0; n /= 4) radices.push_back(4);
  for (int64_t f = 2; f * f <= n; ++f) {
    for (; n % f == 0; n /= f) radices.push_back(f);
  }
  if (n > 1) radices.push_back(n);
  return radices;
}

int64_t chirp_length(int64_t n) {
  int64_t length = 1;
  while (length < 2 * n - 1) length *= 2;
  return length;
}

bool needs_chirp(int64_t n) {
  const auto radices = radices_of(n);
  return !radices.empty() && radices.back() > kLargestRadix;
}

/// Element t = (o * m + k) * inner + c of the result, from x (rows of n elements of `inner`) and a table y.
enum Map : uint8_t { Roots, Crop, Mirror, ChirpIn, Filter, Multiply, ChirpOut };
const char* const kMaps[] = {
    "p.forward ? c_conj(root_of_unity(t, p.n)) : root_of_unity(t, p.n)",
    "x[at]",
    // Of a real signal's transform: what was left out is the conjugate of what is there.
    "2 * k == p.m || k == 0 ? MAKE(RE(x[at]), 0) : k < p.n ? x[at] : c_conj(x[at + (p.m - 2 * k) * p.inner])",
    "k < p.n ? c_mul(x[at], y[k * k % (2 * p.n)]) : MAKE(0, 0)",
    "k < p.n ? c_conj(y[k * k % (2 * p.n)]) : p.m - k < p.n ? c_conj(y[(p.m - k) * (p.m - k) % (2 * p.n)]) : MAKE(0, "
    "0)",
    "c_conj(c_mul(x[t], y[k]))",
    "c_mul(c_scale(c_conj(x[at]), BITS(p.scale)), y[k * k % (2 * p.m)])",
};

constexpr const char* kMembers = "  i64 total, chunk, m, n, inner, span, roots, forward;\n  u64 scale";
constexpr const char* kFrame = "  const i64 end = SHARE_END(p.chunk, p.total);\n";

std::string head_of(fl_dtype complex) {
  return std::string("#define A ") + element_name(complex) + "\n#define BITS(x) BITS_" +
         (complex == FL_COMPLEX128 ? "f64" : "f32") + "(x)\n" + complex_defines(complex) + text_of("complex.h");
}

Source map_source(fl_dtype complex, Map map) {
  const std::string a = element_name(complex);
  Source source;
  source.head = head_of(complex) + text_of("fft.h");
  source.members = kMembers;
  source.pointers = {{a, "out", true}, {a, "x"}, {a, "y"}};
  source.body = std::string(kFrame) +
                "  for (i64 t = item * p.chunk; t < end; ++t) {\n"
                "    const i64 c = t % p.inner, k = t / p.inner % p.m, o = t / p.inner / p.m;\n"
                "    const i64 at = (o * p.n + k) * p.inner + c;\n    out[t] = " +
                kMaps[map] + ";\n  }\n";
  return source;
}

// Butterflies of one stage: m of them `span` elements wide, in each of the outer rows.
Source stage_source(fl_dtype complex, int64_t radix) {
  const std::string a = element_name(complex);
  Source source;
  source.head = head_of(complex) + "#define RADIX " + std::to_string(radix) + "\n" + text_of("fft.h");
  source.members = kMembers;
  source.pointers = {{a, "out", true}, {a, "x"}, {a, "roots"}};
  source.body = std::string(kFrame) +
                "  for (i64 t = item * p.chunk; t < end;) {\n"
                "    const i64 q = t % p.span, j = t / p.span % p.m, o = t / p.span / p.m;\n"
                "    const i64 run = p.span - q < end - t ? p.span - q : end - t, row = o * p.m * RADIX * p.span + q;\n"
                "    A w[RADIX];\n"
                "    for (int k = 0; k < RADIX; ++k) w[k] = roots[j * k * (p.span / p.inner)];\n"
                "    GLOBAL const A* from = x + row + j * p.span;\n"
                "    GLOBAL A* to = out + row + j * RADIX * p.span;\n"
                "    VECTOR_LOOP\n"
                "    for (i64 c = 0; c < run; ++c)\n"
                "      butterfly(from + c, p.span * p.m, to + c, p.span, w, roots, p.roots / RADIX);\n"
                "    t += run;\n  }\n";
  return source;
}

// Between a tensor of any strides and dense numbers.
Source move_source(fl_dtype complex, fl_dtype tensor, int rank, bool load) {
  const std::string a = element_name(complex), type = element_name(tensor), dims = std::to_string(rank);
  Source source;
  source.head = head_of(complex);
  source.members = std::string(kMembers) + ";\n  i64 size[" + dims + "], stride[" + dims + "]";
  source.pointers = {{load ? a : type, "out", true}, {load ? type : a, "x"}};
  source.body = std::string(kFrame) +
                "  for (i64 t = item * p.chunk; t < end; ++t) {\n    i64 at = 0, rest = t;\n"
                "    for (int d = " +
                dims +
                " - 1; d >= 0; --d) {\n      at += rest % p.size[d] * p.stride[d];\n      rest /= p.size[d];\n    }\n";
  if (load) {
    source.body += std::string("    out[t] = ") + (is_complex(tensor) ? "x[at]" : "MAKE(x[at], 0)") + ";\n  }\n";
  } else {
    source.body += std::string("    out[at] = ") +
                   (is_complex(tensor) ? "c_scale(x[t], BITS(p.scale))" : "RE(x[t]) * BITS(p.scale)") + ";\n  }\n";
  }
  return source;
}

class TransformRow : public Row {
 public:
  TransformRow(runtime::Chip& chip, Language language, const Transform& transform)
      : Row(chip, language), transform_(transform) {}

  static fl_status supports(const fl_call* call) {
    Problem p;
    const char* reason = read(*call, row_of<TransformRow>(*call).transform_.kind, p);
    return reason == nullptr ? FL_OK : decline(reason);
  }

  fl_status run(const fl_call& call) {
    Problem p;
    if (const char* reason = read(call, transform_.kind, p)) return decline(reason);
    if (p.out->numel == 0 || p.in->numel == 0) return FL_OK;
    return Work(*this, call, p).run(transform_.kind);
  }

 private:
  /// One call at work.
  class Work {
   public:
    Work(TransformRow& row, const fl_call& call, const Problem& problem)
        : row_(row), call_(call), p_(problem), sizes_(problem.in->sizes, problem.in->sizes + problem.in->ndim) {}

    fl_status run(Kind kind) {
      const uint64_t most = largest();
      front_ = scratch(most);
      back_ = scratch(most);
      move(*p_.in, true);
      if (kind == Kind::RealToComplex) {
        const size_t last = p_.dims.back();
        transform(last);
        if (p_.onesided) resize(last, p_.out->sizes[last], Crop);
      }
      const size_t others = p_.dims.size() - (kind == Kind::ComplexToComplex ? 0 : 1);
      for (size_t i = others; i-- > 0;) transform(p_.dims[i]);
      if (kind == Kind::ComplexToReal) {
        const size_t last = p_.dims.back();
        resize(last, p_.out->sizes[last], Mirror);
        transform(last);
      }
      move(*p_.out, false);
      return status_;
    }

   private:
    struct Words {
      int64_t total = 0, m = 1, n = 1, inner = 1, span = 1, roots = 1;
      double scale = 1;
    };

    // Of a dimension: how many rows of it there are, and how many elements lie inside one step of it.
    std::pair<int64_t, int64_t> around(size_t d) const {
      int64_t outer = 1, inner = 1;
      for (size_t k = 0; k < sizes_.size(); ++k) (k < d ? outer : inner) *= k == d ? 1 : sizes_[k];
      return {outer, inner};
    }

    // Elements that either buffer must hold.
    uint64_t largest() const {
      double most = 1;
      const auto numel = static_cast<double>(std::max(p_.in->numel, p_.out->numel));
      for (const size_t d : p_.dims) {
        const int64_t n = std::max(p_.in->sizes[d], p_.out->sizes[d]);
        if (needs_chirp(n)) most = std::max(most, static_cast<double>(chirp_length(n)) / static_cast<double>(n));
      }
      return static_cast<uint64_t>(numel * most) + 64;
    }

    fl_address scratch(uint64_t elements) {
      fl_address address = 0;
      const uint64_t bytes = elements * (p_.complex == FL_COMPLEX128 ? 16 : 8);
      if (status_ == FL_OK) status_ = runtime::host_services().scratch(&call_, bytes, &address);
      return address;
    }

    template <class Write>
    void launch(VariantKey& key, std::initializer_list<fl_address> addresses, const Words& w, const Write& write,
                const fl_tensor* shape = nullptr) {
      if (status_ != FL_OK || w.total == 0) return;
      key.add(static_cast<uint32_t>(p_.complex));
      const fl_module module = row_.variant(call_, key, write);
      runtime::Device& device = row_.device(call_);
      const Split work = split(device, w.total, 2048);
      Members<9 + 2 * kMaxRank> members;
      for (const int64_t word : {w.total, work.chunk, w.m, w.n, w.inner, w.span, w.roots, int64_t{p_.forward}})
        members.add(word);
      members.add(static_cast<int64_t>(bits_of(w.scale, p_.complex == FL_COMPLEX128)));
      for (const bool strides : {false, true}) {
        for (int32_t d = 0; shape != nullptr && d < shape->ndim; ++d)
          members.add(strides ? shape->strides[d] : shape->sizes[d]);
      }
      Arguments arguments;
      for (const fl_address address : addresses) arguments.add_address(address);
      arguments.add_members(members.data(), members.bytes());
      status_ = arguments.launch(call_, device, module, work.items);
    }

    void map(Map map, fl_address out, fl_address x, fl_address y, const Words& words) {
      VariantKey key;
      key.add(map);
      launch(key, {out, x, y}, words, [&] { return map_source(p_.complex, map); });
    }

    void move(const fl_tensor& tensor, bool load) {
      fl_tensor shape = tensor;
      const int64_t one = 1;
      if (shape.ndim == 0) {
        shape.ndim = 1;
        shape.sizes = shape.strides = &one;
      }
      Words words;
      words.total = tensor.numel;
      words.scale = p_.scale;
      VariantKey key;
      key.add(load ? 0x81 : 0x80);
      key.add(static_cast<uint32_t>(tensor.dtype));
      key.add(static_cast<uint32_t>(shape.ndim));
      const fl_address out = load ? front_ : tensor.address, x = load ? tensor.address : front_;
      launch(key, {out, x}, words, [&] { return move_source(p_.complex, tensor.dtype, shape.ndim, load); }, &shape);
    }

    // Another size of dimension d, by Crop or Mirror.
    void resize(size_t d, int64_t size, Map how) {
      const auto [outer, inner] = around(d);
      Words words;
      words.total = outer * size * inner;
      words.m = size;
      words.n = sizes_[d];
      words.inner = inner;
      map(how, back_, front_, front_, words);
      std::swap(front_, back_);
      sizes_[d] = size;
    }

    fl_address roots_of(int64_t n) {
      const auto [at, fresh] = roots_.try_emplace(n, 0);
      if (!fresh) return at->second;
      at->second = scratch(static_cast<uint64_t>(n));
      Words words;
      words.total = words.m = words.n = n;
      map(Roots, at->second, front_, front_, words);
      return at->second;
    }

    // `from` holds the result in the end, or `to` does: whichever is returned.
    fl_address stages(fl_address from, fl_address to, int64_t outer, int64_t n, int64_t inner) {
      const fl_address roots = roots_of(n);
      int64_t left = n, span = inner;
      for (const int64_t radix : radices_of(n)) {
        left /= radix;
        Words words;
        words.total = outer * left * span;
        words.m = left;
        words.inner = inner;
        words.span = span;
        words.roots = n;
        VariantKey key;
        key.add(0x82);
        key.add(static_cast<uint32_t>(radix));
        launch(key, {to, from, roots}, words, [&] { return stage_source(p_.complex, radix); });
        std::swap(from, to);
        span *= radix;
      }
      return from;
    }

    void transform(size_t d) {
      const auto [outer, inner] = around(d);
      const int64_t n = sizes_[d];
      const fl_address result = needs_chirp(n) ? chirped(outer, n, inner) : stages(front_, back_, outer, n, inner);
      if (result != front_) std::swap(front_, back_);
    }

    // sum over j of x[j] w^(jk) = c[k] * sum over j of (x[j] c[j]) * conj(c[k - j]) with c[j] = w^(j^2 / 2).
    fl_address chirped(int64_t outer, int64_t n, int64_t inner) {
      const int64_t m = chirp_length(n);
      const fl_address chirp = roots_of(2 * n);
      Words words;
      words.m = m;
      words.n = n;
      words.total = m;
      fl_address filter = scratch(static_cast<uint64_t>(m)), other = scratch(static_cast<uint64_t>(m));
      map(Filter, filter, chirp, chirp, words);
      filter = stages(filter, other, 1, m, 1);
      words.total = outer * m * inner;
      words.inner = inner;
      map(ChirpIn, back_, front_, chirp, words);
      fl_address at = stages(back_, front_, outer, m, inner);
      fl_address free = at == back_ ? front_ : back_;
      map(Multiply, free, at, filter, words);
      // Back by the same transform: conjugated before and after.
      at = stages(free, at, outer, m, inner);
      free = at == back_ ? front_ : back_;
      words.total = outer * n * inner;
      words.m = n;
      words.n = m;
      words.scale = 1 / static_cast<double>(m);
      map(ChirpOut, free, at, chirp, words);
      return free;
    }

    TransformRow& row_;
    const fl_call& call_;
    const Problem& p_;
    std::vector<int64_t> sizes_;  ///< of what the front buffer holds
    fl_address front_ = 0, back_ = 0;
    std::map<int64_t, fl_address> roots_;
    fl_status status_ = FL_OK;
  };

  const Transform& transform_;
};

}  // namespace

void add_transforms(Rows& rows, runtime::Chip& chip, Language language) {
  for (const Transform& transform : kTransforms) {
    const uint64_t reals = FL_DTYPE_BIT(FL_FLOAT32) | FL_DTYPE_BIT(FL_FLOAT64);
    rows.push_back(make_row(transform.op, 0, run_row<TransformRow>, TransformRow::supports,
                            keep<TransformRow>(chip, language, transform),
                            transform.kind == Kind::RealToComplex ? reals : kComplex));
  }
}

}  // namespace torch_fl::portable
