// SPDX-License-Identifier: Apache-2.0
// Resampling of images in one to three dimensions, and its gradient: nearest, linear and cubic interpolation, and
// filters against aliasing. It is separable: a first launch makes a table for each dimension of which inputs an output
// reads and with what weight, a second one uses the tables.
#include <algorithm>
#include <array>
#include <cmath>
#include <optional>

#include "families.h"
#include "images.h"
#include "launch.h"
#include "runtime/internal.h"
#include "text.h"

namespace torch_fl::portable {
namespace {

struct Mode {
  const char* defines;
  int taps;           ///< 0: as many as the filter is wide
  double half_width;  ///< of the filter
  bool corners;       ///< has align_corners
};
constexpr Mode kNearest{"NEAREST 1", 1, 0, false};
constexpr Mode kNearestExact{"NEAREST_EXACT 1", 1, 0, false};
constexpr Mode kLinear{"LINEAR 1", 2, 0, true};
constexpr Mode kCubic{"CUBIC 1", 4, 0, true};
constexpr Mode kLinearFilter{"ANTIALIAS 1\n#define HALF_WIDTH 1\n#define FILTER linear_filter", 0, 1, true};
constexpr Mode kCubicFilter{"ANTIALIAS 1\n#define HALF_WIDTH 2\n#define FILTER cubic_filter", 0, 2, true};
constexpr Mode kLanczosFilter{"ANTIALIAS 1\n#define HALF_WIDTH 3\n#define FILTER lanczos_filter", 0, 3, true};

struct Resampling {
  const char* op;
  const Mode& mode;
  int dims;
  bool backward;
};
const Resampling kOperators[] = {
    {"aten::upsample_nearest1d", kNearest, 1, false},
    {"aten::upsample_nearest2d", kNearest, 2, false},
    {"aten::upsample_nearest3d", kNearest, 3, false},
    {"aten::upsample_nearest1d_backward", kNearest, 1, true},
    {"aten::upsample_nearest2d_backward", kNearest, 2, true},
    {"aten::upsample_nearest3d_backward", kNearest, 3, true},
    {"aten::_upsample_nearest_exact1d", kNearestExact, 1, false},
    {"aten::_upsample_nearest_exact2d", kNearestExact, 2, false},
    {"aten::_upsample_nearest_exact3d", kNearestExact, 3, false},
    {"aten::_upsample_nearest_exact1d_backward", kNearestExact, 1, true},
    {"aten::_upsample_nearest_exact2d_backward", kNearestExact, 2, true},
    {"aten::_upsample_nearest_exact3d_backward", kNearestExact, 3, true},
    {"aten::upsample_linear1d", kLinear, 1, false},
    {"aten::upsample_bilinear2d", kLinear, 2, false},
    {"aten::upsample_trilinear3d", kLinear, 3, false},
    {"aten::upsample_linear1d_backward", kLinear, 1, true},
    {"aten::upsample_bilinear2d_backward", kLinear, 2, true},
    {"aten::upsample_trilinear3d_backward", kLinear, 3, true},
    {"aten::upsample_bicubic2d", kCubic, 2, false},
    {"aten::upsample_bicubic2d_backward", kCubic, 2, true},
    {"aten::_upsample_bilinear2d_aa", kLinearFilter, 2, false},
    {"aten::_upsample_bilinear2d_aa_backward", kLinearFilter, 2, true},
    {"aten::_upsample_bicubic2d_aa", kCubicFilter, 2, false},
    {"aten::_upsample_bicubic2d_aa_backward", kCubicFilter, 2, true},
    {"aten::_upsample_lanczos2d_aa", kLanczosFilter, 2, false},
    {"aten::_upsample_lanczos2d_aa_backward", kLanczosFilter, 2, true},
};

// In the type that positions are computed in, as PyTorch does it.
template <class T>
double scale_of(int64_t in, int64_t out, double given, bool corners) {
  if (corners) return out > 1 ? static_cast<T>(in - 1) / static_cast<T>(out - 1) : T(0);
  return given > 0 ? static_cast<T>(1.0 / given) : static_cast<T>(in) / static_cast<T>(out);
}
// Where the size stays or (nearest) doubles, some of the CPU's kernels do not look at the scale factor that was asked
// for: those of linear interpolation, of nearest all but the forward ones of lines and volumes, and the gradient of
// bicubic interpolation where no size changes.
std::optional<double> settled_scale(const Resampling& line, const Triple& in, const Triple& out, size_t k) {
  const bool nearest = &line.mode == &kNearest;
  if (nearest && !line.backward && line.dims != 2) return std::nullopt;
  if (nearest && out[k] == 2 * in[k]) return 0.5;
  const bool stays = &line.mode == &kCubic ? line.backward && in == out : in[k] == out[k];
  const bool copies = nearest || &line.mode == &kLinear || &line.mode == &kCubic;
  return copies && stays ? std::optional(1.0) : std::nullopt;
}
template <class T>
int64_t taps_of(double scale, double half_width) {
  return static_cast<int64_t>(std::ceil(static_cast<T>(half_width) * static_cast<T>(std::max(scale, 1.0)))) * 2 + 1;
}

/// One call, looked through once. `in` and `out` are the sizes before and after resampling, whichever way the call
/// goes.
struct Reading {
  const fl_tensor* from = nullptr;
  const fl_tensor* to = nullptr;
  Images x, y;  ///< of these
  Triple in, out, taps{1, 1, 1};
  std::array<double, 3> scale{};
  bool corners = false, wide = false, channels = false;

  bool read(const fl_call& call, const Resampling& line) {
    if (call.n_outs != 1 || call.outs[0] == nullptr || call.args[0].kind != FL_TENSOR) return false;
    from = call.args[0].u.tensor;
    to = call.outs[0];
    if (from->dtype != to->dtype || !x.read(*from, line.dims) || !y.read(*to, line.dims)) return false;
    if (x.n != y.n || x.c != y.c) return false;
    in = line.backward ? y.size : x.size;
    out = line.backward ? x.size : y.size;
    channels = x.channels_inside() && y.channels_inside();
    wide = from->dtype == FL_FLOAT64;
    uint32_t at = line.backward ? 3 : 2;
    if (line.mode.corners) corners = call.args[at++].u.i != 0;
    for (int d = 0; d < 3; ++d) {
      const auto k = static_cast<size_t>(d);
      if (in[k] < 1 || in[k] >= INT32_MAX / 2 || out[k] >= INT32_MAX) return false;
      if (d < 3 - line.dims || out[k] == 0) continue;
      const fl_value& v = call.args[at++];
      const double given = v.kind == FL_REAL ? v.u.d : v.kind == FL_INTEGER ? static_cast<double>(v.u.i) : 0;
      scale[k] = settled_scale(line, in, out, k)
                     .value_or(wide ? scale_of<double>(in[k], out[k], given, corners)
                                    : scale_of<float>(in[k], out[k], given, corners));
      taps[k] = line.mode.taps != 0 ? line.mode.taps
                : wide              ? taps_of<double>(scale[k], line.mode.half_width)
                                    : taps_of<float>(scale[k], line.mode.half_width);
    }
    return true;
  }
};

class ResamplingRow : public Row {
 public:
  ResamplingRow(runtime::Chip& chip, Language language, const Resampling& line) : Row(chip, language), line_(line) {}

  static std::string step(int64_t stride, const char* member) { return stride == 1 ? "1" : member; }
  bool moves() const { return line_.mode.taps == 1 && !line_.backward; }

  Source write(const Reading& r, bool table) const {
    Source source;
    std::string& head = source.head;
    const auto define = [&](const std::string& text) { head += "#define " + text + "\n"; };
    const std::string type = type_name(r.from->dtype), a = r.wide ? "f64" : "f32";
    define("A " + a);
    define("BITS(x) BITS_" + a + "((u64)(x))");
    define("LOAD(p, i) LOAD_" + type + "(p, i)");
    define("STORE(p, i, v) STORE_" + type + "(p, i, v)");
    define("TILE 32");
    define(table ? "TABLE 1" : line_.backward ? "BACKWARD 1" : "FORWARD 1");
    define(line_.mode.defines);
    define(line_.mode.taps == 0
               ? "K(d) p.taps[d]"
               : "K(d) ((d) < " + std::to_string(3 - line_.dims) + " ? 1 : " + std::to_string(line_.mode.taps) + ")");
    if (r.channels) define("CHANNELS 1");
    if (moves()) define("MOVE 1");
    const size_t lane = r.channels ? 1 : 4;
    define("NEXT_IN " + step(r.x.stride[lane], r.channels ? "p.xs[1]" : "p.xs[4]"));
    define("NEXT_OUT " + step(r.y.stride[lane], r.channels ? "p.ys[1]" : "p.ys[4]"));
    head += text_of("resample.h");
    source.members =
        "  i64 rows, chunk, tables, n, c, in[3], out[3], taps[3], starts[3], weights[3], missing[3], scale[3], xs[5],\n"
        "      ys[5], corners";
    if (table) {
      source.pointers = {{"i32", "starts", true}, {a, "weights", true}};
    } else {
      source.pointers = {{type, "from"}, {type, "to", true}, {"i32", "starts"}, {a, "weights"}};
    }
    source.body = text_of("resample_body.h");
    return source;
  }

  fl_status run(const fl_call& call) {
    Reading r;
    if (!r.read(call, line_)) return decline("a resampling that the portable kernels do not have");
    if (r.to->numel == 0) return FL_OK;
    int64_t starts = 0, weights = 0;
    Triple first_start{}, first_weight{}, missing{};
    for (size_t d = 0; d < 3; ++d) {
      first_start[d] = starts;
      first_weight[d] = weights;
      missing[d] = static_cast<int>(d) < 3 - line_.dims ? 1 : 0;
      starts += r.out[d];
      weights += r.out[d] * r.taps[d];
    }
    const auto start_bytes = static_cast<uint64_t>((starts * 4 + 63) / 64 * 64);
    fl_address table = 0;
    const fl_status status = runtime::host_services().scratch(
        &call, start_bytes + static_cast<uint64_t>(weights) * (r.wide ? 8 : 4), &table);
    if (status != FL_OK) return status;

    const Triple& size = line_.backward ? r.in : r.out;
    const Triple& other = line_.backward ? r.out : r.in;
    const int64_t rows = r.x.n * size[0] * size[1] * (r.channels ? size[2] : r.x.c);
    const int64_t each = (r.channels ? r.x.c : size[2]) *
                         (line_.backward ? std::max<int64_t>(1, product(other) / product(size)) : product(r.taps));
    const Split work = split(device(call), rows, std::max<int64_t>(1, 16384 / std::max<int64_t>(each, 1)));
    const Split tables = split(device(call), std::max({r.out[0], r.out[1], r.out[2]}), 1024);
    Members<48> words;
    for (const int64_t word : {rows, work.chunk, static_cast<int64_t>(tables.items), r.x.n, r.x.c}) words.add(word);
    for (const Triple& triple : {r.in, r.out, r.taps, first_start, first_weight, missing}) {
      for (const int64_t word : triple) words.add(word);
    }
    for (const double scale : r.scale) words.add(static_cast<int64_t>(bits_of(scale, r.wide)));
    for (const Images* images : {&r.x, &r.y}) {
      for (const int64_t word : images->stride) words.add(word);
    }
    words.add(r.corners ? 1 : 0);

    for (const bool making : {true, false}) {
      VariantKey key;
      const size_t lane = r.channels ? 1 : 4;
      key.add(static_cast<uint32_t>(r.from->dtype));
      key.add((making ? 1u : 0u) | (r.channels ? 2u : 0u) | (r.x.stride[lane] == 1 ? 4u : 0u) |
              (r.y.stride[lane] == 1 ? 8u : 0u));
      const fl_module module = variant(call, key, [&] { return write(r, making); });
      Arguments arguments;
      if (!making) {
        arguments.add(*r.from);
        arguments.add(*r.to);
      }
      arguments.add_address(table);
      arguments.add_address(table + start_bytes);
      arguments.add_members(words.data(), words.bytes());
      const fl_status done = arguments.launch(call, device(call), module, making ? tables.items : work.items);
      if (done != FL_OK) return done;
    }
    return FL_OK;
  }

  static fl_status supports(const fl_call* call) {
    Reading reading;
    return reading.read(*call, row_of<ResamplingRow>(*call).line_)
               ? FL_OK
               : decline("a resampling that the portable kernels do not have");
  }

 private:
  const Resampling& line_;
};

}  // namespace

void add_resampling(Rows& rows, runtime::Chip& chip, Language language) {
  for (const Resampling& line : kOperators) {
    const bool moves = line.mode.taps == 1 && !line.backward;
    rows.push_back(make_row(line.op, 0, run_row<ResamplingRow>, ResamplingRow::supports,
                            keep<ResamplingRow>(chip, language, line), kFloats | (moves ? FL_DTYPE_BIT(FL_UINT8) : 0)));
  }
}

}  // namespace torch_fl::portable
