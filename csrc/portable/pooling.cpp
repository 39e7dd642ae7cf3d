// SPDX-License-Identifier: Apache-2.0
// Maximum and average pooling in two and three dimensions, with sliding, adaptive and fractional windows, and their
// gradients. A two-dimensional image is a three-dimensional one of depth 1.
#include <algorithm>

#include "families.h"
#include "images.h"
#include "launch.h"
#include "runtime/internal.h"
#include "text.h"

namespace torch_fl::portable {
namespace {

enum class Kind : uint8_t { Maximum, Average, Spread, Scatter };
enum class Windows : uint8_t { Sliding, Adaptive, Fractional };

struct Pooling {
  const char* op;
  int dims;
  Kind kind;
  Windows windows;
  int other;  ///< the argument that holds indices or samples
};
const Pooling kOperators[] = {
    {"aten::max_pool2d_with_indices", 2, Kind::Maximum, Windows::Sliding, -1},
    {"aten::max_pool3d_with_indices", 3, Kind::Maximum, Windows::Sliding, -1},
    {"aten::adaptive_max_pool2d", 2, Kind::Maximum, Windows::Adaptive, -1},
    {"aten::adaptive_max_pool3d", 3, Kind::Maximum, Windows::Adaptive, -1},
    {"aten::fractional_max_pool2d", 2, Kind::Maximum, Windows::Fractional, 3},
    {"aten::fractional_max_pool3d", 3, Kind::Maximum, Windows::Fractional, 3},
    {"aten::avg_pool2d", 2, Kind::Average, Windows::Sliding, -1},
    {"aten::avg_pool3d", 3, Kind::Average, Windows::Sliding, -1},
    {"aten::_adaptive_avg_pool2d", 2, Kind::Average, Windows::Adaptive, -1},
    {"aten::_adaptive_avg_pool3d", 3, Kind::Average, Windows::Adaptive, -1},
    {"aten::avg_pool2d_backward", 2, Kind::Spread, Windows::Sliding, -1},
    {"aten::avg_pool3d_backward", 3, Kind::Spread, Windows::Sliding, -1},
    {"aten::_adaptive_avg_pool2d_backward", 2, Kind::Spread, Windows::Adaptive, -1},
    {"aten::_adaptive_avg_pool3d_backward", 3, Kind::Spread, Windows::Adaptive, -1},
    {"aten::max_pool2d_with_indices_backward", 2, Kind::Scatter, Windows::Sliding, 7},
    {"aten::max_pool3d_with_indices_backward", 3, Kind::Scatter, Windows::Sliding, 7},
    {"aten::adaptive_max_pool2d_backward", 2, Kind::Scatter, Windows::Adaptive, 2},
    {"aten::adaptive_max_pool3d_backward", 3, Kind::Scatter, Windows::Adaptive, 2},
    {"aten::fractional_max_pool2d_backward", 2, Kind::Scatter, Windows::Fractional, 4},
    {"aten::fractional_max_pool3d_backward", 3, Kind::Scatter, Windows::Fractional, 4},
};

/// One call, looked through once. `in` and `out` are the sizes before and after pooling, whichever way the call goes.
struct Reading {
  const fl_tensor* from = nullptr;
  const fl_tensor* to = nullptr;
  const fl_tensor* other = nullptr;  ///< indices, read or written, or samples
  Images x, y, z;                    ///< of these
  Triple in, out, kernel{1, 1, 1}, stride{1, 1, 1}, pad{0, 0, 0}, dilation{1, 1, 1};
  int64_t with_padding = 1, divisor = 0, full = 0;
  bool channels = false;  ///< are the neighbours

  bool read(const fl_call& call, const Pooling& line) {
    const bool maximum = line.kind == Kind::Maximum;
    if (call.n_outs != (maximum ? 2 : 1) || call.outs[0] == nullptr || call.args[0].kind != FL_TENSOR) return false;
    from = call.args[0].u.tensor;
    to = call.outs[0];
    if (from->dtype != to->dtype || !x.read(*from, line.dims) || !y.read(*to, line.dims)) return false;
    if (x.n != y.n || x.c != y.c) return false;
    const bool backwards = line.kind != Kind::Maximum && line.kind != Kind::Average;
    in = backwards ? y.size : x.size;
    out = backwards ? x.size : y.size;
    if (maximum) {
      if (call.outs[1] == nullptr || !z.read(*call.outs[1], line.dims) || z.size != out) return false;
      other = call.outs[1];
    } else if (line.kind == Kind::Scatter) {
      other = call.args[line.other].u.tensor;
      if (!z.read(*other, line.dims) || other->dtype != FL_INT64 || z.size != out || z.n != x.n || z.c != x.c)
        return false;
      x.stride[4] = x.plane_step();
      z.stride[4] = z.plane_step();
      if (x.stride[4] < 0 || z.stride[4] < 0) return false;
    }
    channels = x.channels_inside() && y.channels_inside() && (other == nullptr || z.channels_inside());
    return line.kind == Kind::Scatter || read_windows(call, line);
  }

 private:
  bool read_windows(const fl_call& call, const Pooling& line) {
    if (line.windows == Windows::Adaptive) {
      join_rows(line);
      return true;
    }
    const int at = line.kind == Kind::Spread ? 2 : 1;
    if (!take(kernel, call.args[at], line.dims) || *std::min_element(kernel.begin(), kernel.end()) < 1) return false;
    if (line.windows == Windows::Fractional) {
      channels = false;
      const fl_tensor& samples = *call.args[line.other].u.tensor;
      if (samples.dtype != from->dtype || samples.ndim != 3 || samples.sizes[0] < x.n || samples.sizes[1] < x.c ||
          samples.sizes[2] < line.dims) {
        return false;
      }
      for (size_t d = 0; d < 3; ++d) {
        if (kernel[d] > in[d]) return false;
      }
      return true;
    }
    if (!take(stride, call.args[at + 1].count == 0 ? call.args[at] : call.args[at + 1], line.dims) ||
        !take(pad, call.args[at + 2], line.dims)) {
      return false;
    }
    if (line.kind == Kind::Maximum) {
      if (!take(dilation, call.args[at + 3], line.dims)) return false;
    } else {
      with_padding = call.args[at + 4].u.i;
      divisor = call.args[at + 5].kind == FL_INTEGER ? call.args[at + 5].u.i : 0;
    }
    full = 1;
    for (size_t d = 0; d < 3; ++d) {
      if (stride[d] < 1 || dilation[d] < 1 || pad[d] < 0) return false;
      const int64_t end = (out[d] - 1) * stride[d] - pad[d] + kernel[d];
      if (end > in[d] + (with_padding != 0 ? pad[d] : 0) || (with_padding == 0 && pad[d] > 0)) full = 0;
      if (pad[d] >= kernel[d]) full = 0;
    }
    if (full != 0 && divisor == 0) divisor = product(kernel);
    return true;
  }

  // What an adaptive average has one result for along height and width is one long row.
  void join_rows(const Pooling& line) {
    if (line.kind != Kind::Average || channels || out[1] != 1 || out[2] != 1) return;
    Images plane = x;
    plane.size[0] = 1;
    const int64_t step = plane.plane_step();
    if (step < 0) return;
    in[2] *= in[1];
    in[1] = 1;
    x.stride[4] = step;
  }

  static bool take(Triple& triple, const fl_value& v, int dims) {
    if (v.kind != FL_INTEGERS || (v.count != 1 && v.count != static_cast<uint32_t>(dims))) return false;
    for (int d = 0; d < dims; ++d) triple[static_cast<size_t>(3 - dims + d)] = v.u.ints[v.count == 1 ? 0 : d];
    return true;
  }
};

class PoolingRow : public Row {
 public:
  PoolingRow(runtime::Chip& chip, Language language, const Pooling& line) : Row(chip, language), line_(line) {}

  /// Of a tile's neighbours: 1, or whatever it is.
  static int64_t next_of(const Reading& r) { return r.channels ? r.x.stride[1] : r.x.stride[4] * r.stride[2]; }
  bool tiles(const Reading& r) const {
    return r.channels || line_.kind == Kind::Spread || line_.windows == Windows::Sliding;
  }
  bool narrow(const Reading& r) const {
    return line_.kind == Kind::Scatter && (r.to->dtype == FL_FLOAT16 || r.to->dtype == FL_BFLOAT16);
  }
  // Positions in a plane in as few bits as do.
  static bool small(const Reading& r) { return product(r.in) < (int64_t{1} << 31) - 64; }

  std::string next(const Reading& r) const {
    if (line_.kind == Kind::Spread) return r.channels ? "1" : r.x.stride[4] == 1 ? "1" : "p.xs[4]";
    const int64_t step = next_of(r);
    return step == 1 || step == 2 ? std::to_string(step) : "(p.xs[4] * p.stride[2])";
  }

  Source write(const Reading& r) const {
    const fl_dtype dtype = r.to->dtype;
    const std::string type = type_name(dtype), a = arithmetic_name(dtype);
    const char* kinds[] = {"FORWARD 1\n#define MAXIMUM", "FORWARD", "SPREAD", "SCATTER"};
    const char* windows[] = {"SLIDING", "ADAPTIVE", "FRACTIONAL"};
    Source source;
    std::string& head = source.head;
    const auto define = [&](const std::string& text) { head += "#define " + text + "\n"; };
    define("A " + a);
    if (is_floating(dtype)) define("FL_FLOATING 1");
    define("LOAD(p, i) LOAD_" + type + "(p, i)");
    define("STORE(p, i, v) STORE_" + type + "(p, i, v)");
    define(std::string(kinds[static_cast<size_t>(line_.kind)]) + " 1");
    define(std::string(windows[static_cast<size_t>(line_.windows)]) + " 1");
    if (dtype == FL_BFLOAT16) define("DROPPED 16");
    if (dtype == FL_FLOAT16) define("DROPPED 13");
    define(std::string("TILE ") + (tiles(r) ? "32" : "1"));
    define("LANES 16");
    define(std::string("POSITION ") + (tiles(r) && small(r) ? "i32" : "i64"));
    define(r.channels ? "CHANNELS 1\n#define LANE_DIM 1\n#define X_LANE ox" : "LANE_DIM 4\n#define X_LANE (first + t)");
    if (r.channels || !tiles(r)) define("ONE_WINDOW 1");
    if (!tiles(r) && line_.kind == Kind::Average) define("LONG_ROWS 1");
    define("NEXT " + next(r));
    if (narrow(r)) define("NARROW 1");
    define(std::string("PLACE_OF(i) ") +
           (r.y.plane_step() >= 0
                ? "((i) * p.ys[4])"
                : "((i) / (p.in[1] * p.in[2]) * p.ys[2] + (i) / p.in[2] % p.in[1] * p.ys[3] + (i) % p.in[2] * "
                  "p.ys[4])"));
    head += text_of("pooling.h");
    source.members =
        "  i64 rows, chunk, n, c, in[3], out[3], window[3], stride[3], pad[3], dilation[3], xs[5], ys[5], zs[5],\n"
        "      with_padding, divisor, full, blocks, block, ss[3], sample_of[3]";
    source.pointers = {{type, "from"}, {type, "to", true}};
    if (r.other != nullptr) source.pointers.push_back({"i64", "indices", line_.kind == Kind::Maximum});
    if (line_.windows == Windows::Fractional && line_.kind == Kind::Maximum)
      source.pointers.push_back({type, "samples"});
    if (narrow(r)) source.pointers.push_back({"f32", "sum", true});
    source.body = text_of("pooling_body.h");
    return source;
  }

  fl_status run(const fl_call& call) {
    Reading r;
    if (!r.read(call, line_)) return decline("a pooling that the portable kernels do not have");
    if (r.to->numel == 0) return FL_OK;
    VariantKey key;
    const int64_t step = next_of(r);
    const uint32_t flags =
        (r.channels ? 1u : 0u) | (narrow(r) ? 2u : 0u) | (small(r) ? 4u : 0u) | (r.y.plane_step() >= 0 ? 8u : 0u);
    key.add(static_cast<uint32_t>(r.to->dtype));
    key.add(flags);
    key.add(step == 1 || step == 2 ? static_cast<uint32_t>(step) : 0);
    key.add(r.x.stride[4] == 1 ? 1 : 0);
    const fl_module module = variant(call, key, [&] { return write(r); });

    // A gradient by index has planes (or as many neighbouring channels as leave work for everybody), the rest rows.
    int64_t block = 1, rows = 0, each = 1;
    if (line_.kind == Kind::Scatter) {
      const auto units = static_cast<int64_t>(std::max<uint32_t>(device(call).properties.compute_units, 1));
      block = r.channels ? std::clamp<int64_t>(r.x.n * r.x.c / (4 * units), std::min<int64_t>(r.x.c, 16), r.x.c) : 1;
      each = (product(r.in) + product(r.out)) * block;
      rows = r.x.n * ((r.x.c + block - 1) / block);
    } else {
      const Triple& size = line_.kind == Kind::Spread ? r.in : r.out;
      const Triple& other = line_.kind == Kind::Spread ? r.out : r.in;
      rows = r.x.n * size[0] * size[1] * (r.channels ? size[2] : r.x.c);
      const int64_t lanes = r.channels ? r.x.c : size[2];
      each = lanes * (line_.windows == Windows::Adaptive ? std::max<int64_t>(1, product(other) / product(size))
                                                         : product(r.kernel));
    }
    const Split work = split(device(call), rows, std::max<int64_t>(1, 16384 / std::max<int64_t>(each, 1)));
    Members<48> words;
    for (const int64_t word : {rows, work.chunk, r.x.n, r.x.c}) words.add(word);
    for (const Triple& triple : {r.in, r.out, r.kernel, r.stride, r.pad, r.dilation}) {
      for (const int64_t word : triple) words.add(word);
    }
    if (line_.kind == Kind::Scatter && r.y.plane_step() >= 0) r.y.stride[4] = r.y.plane_step();
    for (const Images* images : {&r.x, &r.y, &r.z}) {
      for (const int64_t word : images->stride) words.add(word);
    }
    for (const int64_t word : {r.with_padding, r.divisor, r.full, (r.x.c + block - 1) / block, block}) words.add(word);
    Arguments arguments;
    arguments.add(*r.from);
    arguments.add(*r.to);
    if (r.other != nullptr) arguments.add(*r.other);
    add_samples(call, arguments, words);
    if (narrow(r)) {
      fl_address sum = 0;
      const fl_status status =
          runtime::host_services().scratch(&call, static_cast<uint64_t>(r.to->numel) * sizeof(float), &sum);
      if (status != FL_OK) return status;
      arguments.add_address(sum);
    }
    arguments.add_members(words.data(), words.bytes());
    return arguments.launch(call, device(call), module, work.items);
  }

  static fl_status supports(const fl_call* call) {
    Reading reading;
    return reading.read(*call, row_of<PoolingRow>(*call).line_)
               ? FL_OK
               : decline("a pooling that the portable kernels do not have");
  }

 private:
  template <class Words>
  void add_samples(const fl_call& call, Arguments& arguments, Words& words) const {
    const bool sampled = line_.windows == Windows::Fractional && line_.kind == Kind::Maximum;
    const fl_tensor* samples = sampled ? call.args[line_.other].u.tensor : nullptr;
    for (int d = 0; d < 3; ++d) words.add(sampled ? samples->strides[d] : 0);
    // The first is for the width in two dimensions, for the depth in three.
    for (int64_t d = 0; d < 3; ++d) words.add(line_.dims == 3 ? d : 2 - d == 2 ? -1 : 2 - d);
    if (sampled) arguments.add(*samples);
  }

  const Pooling& line_;
};

}  // namespace

void add_pooling(Rows& rows, runtime::Chip& chip, Language language) {
  for (const Pooling& line : kOperators) {
    // Planes are walked by one step each; the others take any strides.
    const uint32_t flags = line.kind == Kind::Scatter ? FL_KERNEL_CONTIGUOUS_INPUTS | FL_KERNEL_CHANNELS_LAST_OK : 0;
    const bool integers = line.windows == Windows::Sliding && line.kind == Kind::Maximum;
    const uint64_t average =
        line.kind == Kind::Average && line.windows == Windows::Sliding ? FL_DTYPE_BIT(FL_INT64) : 0;
    rows.push_back(make_row(line.op, flags, run_row<PoolingRow>, PoolingRow::supports,
                            keep<PoolingRow>(chip, language, line), kFloats | (integers ? kIntegers : 0) | average));
  }
}

}  // namespace torch_fl::portable
