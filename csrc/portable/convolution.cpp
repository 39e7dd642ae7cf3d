// SPDX-License-Identifier: Apache-2.0
// aten::convolution and aten::convolution_backward in one, two and three dimensions.
//
// A convolution is a product of the filter with what its taps see of the image, which is never laid out: the image is
// copied into planes once (see kernels/convolution.h), after which each tap's view of it is the planes themselves,
// somewhat further on. A transposed convolution, or the gradient of the input, is the same product for each residue
// of the stride, with that residue's taps. The filter's gradient sums over positions, in the lanes of vectors.
#include <algorithm>
#include <numeric>

#include "families.h"
#include "launch.h"
#include "runtime/internal.h"
#include "text.h"
#include "tuning.h"

namespace torch_fl::portable {
namespace {

using Triple = std::array<int64_t, 3>;

int64_t volume(const Triple& t) { return t[0] * t[1] * t[2]; }

/// A batch of images, or a filter, of one to three dimensions seen as three.
struct Image {
  const fl_tensor* tensor = nullptr;
  Triple sizes{1, 1, 1}, strides{0, 0, 0};

  Image() = default;
  explicit Image(const fl_tensor& t) : tensor(&t) {
    for (int32_t d = 2; d < t.ndim; ++d) {
      const auto place = static_cast<size_t>(3 - t.ndim + d);
      sizes[place] = t.sizes[d];
      strides[place] = t.strides[d];
    }
  }
  int64_t size(int d) const { return tensor->sizes[d]; }
  int64_t stride(int d) const { return tensor->strides[d]; }
};

/// The arguments that forward and backward share.
struct Reading {
  Triple stride{1, 1, 1}, padding{0, 0, 0}, dilation{1, 1, 1};
  bool transposed = false;
  int64_t groups = 1;
  Image large, small, filter;  ///< the filter slides over the large image; the input is small where it is transposed

  bool read(const fl_value* args, const fl_tensor& input, const fl_tensor& weight, const fl_tensor& output) {
    const int32_t dims = input.ndim - 2;
    if (dims < 1 || dims > 3 || weight.ndim != input.ndim || output.ndim != input.ndim) return false;
    if (input.dtype != weight.dtype || input.dtype != output.dtype) return false;
    transposed = args[3].u.i != 0;
    groups = args[5].u.i;
    large = Image(transposed ? output : input);
    small = Image(transposed ? input : output);
    filter = Image(weight);
    const int64_t least[3] = {1, 0, 1};
    Triple* const lists[3] = {&stride, &padding, &dilation};
    for (int i = 0; i < 3; ++i) {  // a list of one value holds for all dimensions
      if (args[i].kind != FL_INTEGERS || args[i].count == 0) return false;
      for (int32_t d = 0; d < dims; ++d) {
        const int64_t value = args[i].u.ints[std::min<uint32_t>(static_cast<uint32_t>(d), args[i].count - 1)];
        if (value < least[i]) return false;
        (*lists[i])[static_cast<size_t>(3 - dims + d)] = value;
      }
    }
    return groups > 0 && small.size(0) == large.size(0) && small.size(1) == filter.size(0) &&
           small.size(1) % groups == 0 && large.size(1) == filter.size(1) * groups;
  }
};

/// Members of every kernel's `p`.
struct Parameters {
  int64_t images = 0, block = 1, groups = 1, channels = 0, rows = 0;
  Triple source{1, 1, 1}, extent{1, 1, 1}, phases{1, 1, 1}, step{1, 1, 1}, shift{0, 0, 0}, dilation{1, 1, 1};
  Triple window{1, 1, 1}, classes{1, 1, 1}, target{1, 1, 1}, stride{1, 1, 1}, padding{0, 0, 0};
  Triple from{0, 0, 0}, to{0, 0, 0}, filter{0, 0, 0};
  int64_t from_image = 0, from_channel = 0, plane_block = 0, plane_channel = 0, small_channel = 0;
  int64_t to_image = 0, to_channel = 0, filter_group = 0, filter_row = 0, filter_channel = 0, bias_step = 0;
  int64_t most_taps = 1, tiles = 0, panels = 0, tiles_first = 1, own = 0;

  Members<80> words(int64_t total, int64_t chunk) const {
    Members<80> words;
    for (const int64_t one : {images, block, groups, channels, rows}) words.add(one);
    for (const Triple* three : {&source, &extent, &phases, &step, &shift, &dilation, &window, &classes, &target,
                                &stride, &padding, &from, &to, &filter}) {
      for (const int64_t one : *three) words.add(one);
    }
    for (const int64_t one :
         {from_image, from_channel, plane_block, plane_channel, small_channel, to_image, to_channel, filter_group,
          filter_row, filter_channel, bias_step, most_taps, tiles, panels, tiles_first, own, total, chunk}) {
      words.add(one);
    }
    return words;
  }
};
constexpr const char* kMembers =
    "  i64 images, block, groups, channels, rows;\n"
    "  i64 source[3], extent[3], phases[3], step[3], shift[3], dilation[3];\n"
    "  i64 window[3], classes[3], target[3], stride[3], padding[3], from[3], to[3], filter[3];\n"
    "  i64 from_image, from_channel, plane_block, plane_channel, small_channel;\n"
    "  i64 to_image, to_channel, filter_group, filter_row, filter_channel, bias_step;\n"
    "  i64 most_taps, tiles, panels, tiles_first, own, total, chunk";

enum class Part : uint8_t { Planes, Strips, Tiles, Filter, Bias };

// Images so small that a panel would hardly find its positions in one are laid out together.
constexpr int64_t kSmallPlane = 512;

class ConvolutionRow : public Row {
 public:
  ConvolutionRow(runtime::Chip& chip, Language language) : Row(chip, language), tuner_(tuner_of(chip, language)) {}

 protected:
  struct Job {
    const fl_call& call;
    const Reading& reading;
    fl_dtype dtype;
    bool to_large;
    Tile tile;
    int64_t per_unit = kItemsPerUnit;
  };

  // small = filter over large, or its transpose: large = filter's transpose over small.
  fl_status convolve(const fl_call& call, const Reading& reading, bool to_large, const fl_tensor* bias,
                     const fl_tensor& out) {
    if (out.numel == 0) return FL_OK;
    const Image& source = to_large ? reading.small : reading.large;
    Parameters p = parameters(reading, source, Image(out), to_large);
    const double multiplications =
        static_cast<double>(out.numel) * static_cast<double>(p.channels) * static_cast<double>(p.most_taps);
    const auto [tile, per_unit] = tuner_.choose(call, out.dtype, p.rows, multiplications);
    const Job job{call, reading, out.dtype, to_large, tile, per_unit};
    fl_address planes = source.tensor->address, strips = 0, places = 0;
    fl_status status = FL_OK;
    if (own_planes(p, source, Image(out))) {
      flatten(p);
    } else {
      status = lay_out(job, p, source, &planes, job.tile.columns());
      if (status != FL_OK) return status;
    }
    p.tiles = (p.rows + job.tile.rows - 1) / job.tile.rows;
    int64_t positions = std::min(p.block, p.images);
    for (size_t d = 0; d < 3; ++d) {
      positions = (positions - 1) * p.extent[d] + (p.target[d] + p.stride[d] - 1) / p.stride[d];
    }
    p.panels = (positions + job.tile.columns() - 1) / job.tile.columns();
    const int64_t filters = volume(p.classes) * p.groups * p.tiles;
    status = scratch(call, filters * p.channels * p.most_taps * job.tile.rows * width_of(job.dtype), &strips);
    if (status == FL_OK) status = scratch(call, volume(p.classes) * (p.most_taps + 1) * 8, &places);
    if (status != FL_OK) return status;
    const fl_tensor& filter = *reading.filter.tensor;
    status = start(job, Part::Strips, p, {strips, places, filter.address}, filters, 1);
    if (status != FL_OK) return status;
    // What is read again and again should be the smaller one of the two.
    p.tiles_first = p.tiles * job.tile.rows <= 4 * p.panels * job.tile.columns() ? 1 : 0;
    const int64_t blocks = (p.images + p.block - 1) / p.block;
    const int64_t total = blocks * volume(p.classes) * p.groups * p.panels * p.tiles;
    std::vector<fl_address> pointers{out.address, planes, strips, places};
    if (bias != nullptr) {
      pointers.push_back(bias->address);
      p.bias_step = bias->strides[0];
    }
    const int64_t work = job.tile.rows * job.tile.columns() * p.channels * p.most_taps;
    return start(job, Part::Tiles, p, pointers, total, 65536 / std::max<int64_t>(work, 1));
  }

  fl_status filter_gradient(const fl_call& call, const Reading& reading, const fl_tensor& out) {
    if (out.numel == 0) return FL_OK;
    Parameters p = parameters(reading, reading.large, reading.small, false);
    Tile tile{p.rows == 1 ? 1 : 4, 6, tile_for(out.dtype, 1).width};
    const Job job{call, reading, out.dtype, false, tile};
    Image result(out);
    p.filter = result.strides;
    set_filter(p, result);
    p.block = std::max<int64_t>(p.images, 1);
    fl_address large = 0, small = 0;
    fl_status status = lay_out(job, p, reading.large, &large, 0);
    if (status != FL_OK) return status;
    Parameters q = p;  // the small image in the same layout
    q.phases = q.step = {1, 1, 1};
    q.shift = {0, 0, 0};
    q.source = reading.small.sizes;
    q.channels = p.rows;
    status = lay_out(job, q, reading.small, &small, 0);
    if (status != FL_OK) return status;
    p.small_channel = q.plane_channel;
    const int64_t columns = (p.channels * volume(p.window) + tile.vectors - 1) / tile.vectors;
    const int64_t total = p.groups * ((p.rows + tile.rows - 1) / tile.rows) * columns;
    return start(job, Part::Filter, p, {out.address, large, small}, total, 1);
  }

  fl_status bias_gradient(const fl_call& call, const Reading& reading, const Image& gradient, const fl_tensor& out) {
    if (out.numel == 0) return FL_OK;
    Parameters p;
    p.images = gradient.size(0);
    p.source = gradient.sizes;
    from_image(p, gradient);
    p.bias_step = out.strides[0];
    const Job job{call, reading, out.dtype, false, {1, 1, 1}};
    return start(job, Part::Bias, p, {out.address, gradient.tensor->address}, out.numel, 1);
  }

 private:
  static int64_t width_of(fl_dtype dtype) { return dtype == FL_FLOAT64 || dtype == FL_INT64 ? 8 : 4; }

  static fl_status scratch(const fl_call& call, int64_t bytes, fl_address* address) {
    return runtime::host_services().scratch(&call, static_cast<uint64_t>(std::max<int64_t>(bytes, 8)), address);
  }

  static void from_image(Parameters& p, const Image& image) {
    p.from_image = image.stride(0);
    p.from_channel = image.stride(1);
    p.from = image.strides;
  }

  static void set_filter(Parameters& p, const Image& filter) {
    p.filter = filter.strides;
    p.filter_group = p.rows * filter.stride(0);
    p.filter_row = filter.stride(0);
    p.filter_channel = filter.stride(1);
  }

  static Parameters parameters(const Reading& reading, const Image& source, const Image& target, bool to_large) {
    Parameters p;
    p.images = source.size(0);
    p.groups = reading.groups;
    p.channels = source.size(1) / p.groups;
    p.rows = target.size(1) / p.groups;
    p.source = source.sizes;
    p.target = target.sizes;
    p.window = reading.filter.sizes;
    p.dilation = reading.dilation;
    p.padding = reading.padding;
    from_image(p, source);
    p.to_image = target.stride(0);
    p.to_channel = target.stride(1);
    p.to = target.strides;
    set_filter(p, reading.filter);
    if (to_large) {
      p.filter_group = p.channels * reading.filter.stride(0);
      std::swap(p.filter_row, p.filter_channel);
    }
    for (size_t d = 0; d < 3; ++d) to_large ? residues(p, d, reading.stride[d]) : phases(p, d, reading.stride[d]);
    return p;
  }

  // Tap k reads, for the first point, place k * dilation / stride of phase k * dilation % stride.
  static void phases(Parameters& p, size_t d, int64_t stride) {
    p.step[d] = stride;
    p.shift[d] = p.padding[d];
    p.phases[d] = std::min(stride / std::gcd(stride, p.dilation[d]), std::max<int64_t>(p.window[d], 1));
    p.extent[d] = p.target[d] + std::max<int64_t>(p.window[d] - 1, 0) * p.dilation[d] / stride;
    p.most_taps *= p.window[d];
  }

  // Point i of the result sees, through tap k, place (i + padding - k * dilation) / stride, where that is whole.
  static void residues(Parameters& p, size_t d, int64_t stride) {
    p.stride[d] = stride;
    p.classes[d] = std::min(stride, p.target[d]);
    const int64_t before = std::max<int64_t>(p.window[d] - 1, 0) * p.dilation[d] - p.padding[d];
    p.shift[d] = before > 0 ? (before + stride - 1) / stride : 0;
    p.extent[d] = 1;
    int64_t most = 0;
    for (int64_t r = 0; r < p.classes[d]; ++r) {
      int64_t taps = 0;
      const int64_t points = (p.target[d] - r + stride - 1) / stride;
      for (int64_t k = 0; k < p.window[d]; ++k) {
        const int64_t distance = r + p.padding[d] - k * p.dilation[d];
        if (distance % stride != 0) continue;
        taps += 1;
        p.extent[d] = std::max(p.extent[d], distance / stride + p.shift[d] + points);
      }
      p.extent[d] = std::max(p.extent[d], points);
      most = std::max(most, taps);
    }
    p.most_taps *= most;
  }

  // A filter of one tap that moves by ones needs no planes where positions of the image follow one another.
  static bool own_planes(const Parameters& p, const Image& source, const Image& target) {
    const fl_dtype dtype = source.tensor->dtype;
    const auto dense = [](const Image& image) {
      const Triple &n = image.sizes, &s = image.strides;
      return (n[2] == 1 || s[2] == 1) && (n[1] == 1 || s[1] == n[2]) && (n[0] == 1 || s[0] == n[1] * n[2]);
    };
    return (dtype == FL_FLOAT32 || dtype == FL_FLOAT64) && volume(p.window) == 1 && volume(p.step) == 1 &&
           volume(p.stride) == 1 && p.padding == Triple{0, 0, 0} && p.source == p.target && volume(p.source) >= 256 &&
           dense(source) && dense(target);
  }

  static void flatten(Parameters& p) {
    p.own = 1;
    p.extent = p.target = p.source = {1, 1, volume(p.source)};
    p.to = {0, 0, 1};
    p.plane_block = p.from_image;
    p.plane_channel = p.from_channel;
  }

  fl_status lay_out(const Job& job, Parameters& p, const Image& source, fl_address* planes, int64_t slack) {
    from_image(p, source);
    const int64_t plane = volume(p.extent);
    if (slack != 0 && plane < kSmallPlane) {
      p.block = std::clamp<int64_t>(kSmallPlane / std::max<int64_t>(plane, 1), 1, std::max<int64_t>(p.images, 1));
    }
    const int64_t blocks = (p.images + p.block - 1) / p.block;
    p.plane_channel = volume(p.phases) * p.block * plane;
    p.plane_block = p.groups * p.channels * p.plane_channel;
    const fl_status status = scratch(job.call, (blocks * p.plane_block + slack) * width_of(job.dtype), planes);
    if (status != FL_OK) return status;
    const int64_t rows = p.extent[2] == 0 ? 0 : blocks * p.plane_block / p.extent[2];
    if (rows == 0) return FL_OK;
    return start(job, Part::Planes, p, {*planes, source.tensor->address}, rows,
                 std::max<int64_t>(1, 8192 / p.extent[2]));
  }

  static Source write(const Job& job, Part part, bool bias, bool one_tap) {
    Source source;
    const std::string type = type_name(job.dtype), a = arithmetic_name(job.dtype);
    source.head = tile_head(job.dtype, job.tile);
    source.members = kMembers;
    source.functions = text_of("convolution.h");
    std::string arguments;
    const auto part_is = [&](const char* macro, const char* function, std::vector<Pointer> pointers) {
      source.head += std::string("#define ") + macro + "\n";
      source.pointers = std::move(pointers);
      source.body = std::string("  ") + function + "(";
      for (const Pointer& pointer : source.pointers) source.body += pointer.name + ", ";
      source.body += "p, item);\n";
    };
    if (job.to_large) source.head += "#define TO_LARGE\n";
    if (part == Part::Planes) {
      part_is("PLANES", "planes_rows", {{a, "planes", true}, {type, "from"}});
    } else if (part == Part::Strips) {
      part_is("STRIPS", "strips_of_filter", {{a, "strips", true}, {"i64", "places", true}, {type, "filter"}});
    } else if (part == Part::Tiles) {
      if (bias) source.head += "#define BIAS\n";
      if (one_tap) source.head += "#define ONE_TAP\n";
      std::vector<Pointer> pointers{{type, "out", true}, {a, "planes"}, {a, "strips"}, {"i64", "places"}};
      if (bias) pointers.push_back({type, "bias"});
      part_is("TILES", "tiles_of_image", std::move(pointers));
    } else if (part == Part::Filter) {
      part_is("FILTER", "tiles_of_filter", {{type, "out", true}, {a, "large"}, {a, "small"}});
    } else {
      part_is("BIAS_GRADIENT", "sums_of_channels", {{type, "out", true}, {type, "from"}});
    }
    return source;
  }

  fl_status start(const Job& job, Part part, const Parameters& p, const std::vector<fl_address>& pointers,
                  int64_t total, int64_t least) {
    const bool bias = pointers.size() == 5, one_tap = !job.to_large && p.most_taps == 1 && p.phases == Triple{1, 1, 1};
    VariantKey key;
    key.add(static_cast<uint32_t>(part));
    key.add(static_cast<uint32_t>(job.dtype));
    key.add((job.to_large ? 1u : 0u) | (bias ? 2u : 0u) | (one_tap ? 4u : 0u));
    add_tile(key, job.tile);
    const fl_module module = variant(job.call, key, [&] { return write(job, part, bias, one_tap); });
    const Split work = split(device(job.call), total, least, job.per_unit);
    const auto words = p.words(total, work.chunk);
    Arguments arguments;
    for (const fl_address address : pointers) arguments.add_address(address);
    arguments.add_members(words.data(), words.bytes());
    return arguments.launch(job.call, device(job.call), module, work.items);
  }

  Tuner& tuner_;
};

class ForwardRow : public ConvolutionRow {
 public:
  using ConvolutionRow::ConvolutionRow;

  static bool read(const fl_call& call, Reading& reading) {
    const fl_value* a = call.args;
    if (call.n_outs != 1 || call.outs[0] == nullptr || a[0].kind != FL_TENSOR || a[1].kind != FL_TENSOR) return false;
    const fl_tensor& out = *call.outs[0];
    const fl_value shared[6] = {a[3], a[4], a[5], a[6], a[7], a[8]};
    if (!reading.read(shared, *a[0].u.tensor, *a[1].u.tensor, out)) return false;
    if (a[2].kind == FL_NONE) return true;
    const fl_tensor& bias = *a[2].u.tensor;
    return bias.ndim == 1 && bias.numel == out.sizes[1] && bias.dtype == out.dtype;
  }

  fl_status run(const fl_call& call) {
    Reading reading;
    if (!read(call, reading)) return decline("a convolution that the portable kernels do not have");
    const fl_tensor* bias = call.args[2].kind == FL_TENSOR ? call.args[2].u.tensor : nullptr;
    return convolve(call, reading, reading.transposed, bias, *call.outs[0]);
  }

  static fl_status supports(const fl_call* call) {
    Reading reading;
    return read(*call, reading) ? FL_OK : decline("a convolution that the portable kernels do not have");
  }
};

class BackwardRow : public ConvolutionRow {
 public:
  using ConvolutionRow::ConvolutionRow;

  static bool read(const fl_call& call, Reading& reading) {
    const fl_value* a = call.args;
    if (call.n_outs != 3) return false;
    for (int i = 0; i < 3; ++i) {
      if (a[i].kind != FL_TENSOR) return false;
    }
    const fl_value shared[6] = {a[4], a[5], a[6], a[7], a[8], a[9]};
    const fl_tensor &gradient = *a[0].u.tensor, &input = *a[1].u.tensor, &weight = *a[2].u.tensor;
    if (!reading.read(shared, input, weight, gradient)) return false;
    const fl_tensor* const like[2] = {&input, &weight};
    for (int i = 0; i < 2; ++i) {
      const fl_tensor* out = call.outs[i];
      if (out == nullptr) continue;
      if (out->dtype != input.dtype || out->ndim != like[i]->ndim) return false;
      if (!std::equal(out->sizes, out->sizes + out->ndim, like[i]->sizes)) return false;
    }
    const fl_tensor* bias = call.outs[2];
    return bias == nullptr || (bias->ndim == 1 && bias->numel == gradient.sizes[1] && bias->dtype == input.dtype);
  }

  fl_status run(const fl_call& call) {
    Reading reading;
    if (!read(call, reading)) return decline("a convolution that the portable kernels do not have");
    fl_status status = FL_OK;
    if (call.outs[0] != nullptr) status = convolve(call, reading, !reading.transposed, nullptr, *call.outs[0]);
    if (status == FL_OK && call.outs[1] != nullptr) status = filter_gradient(call, reading, *call.outs[1]);
    if (status == FL_OK && call.outs[2] != nullptr) {
      status = bias_gradient(call, reading, reading.transposed ? reading.large : reading.small, *call.outs[2]);
    }
    return status;
  }

  static fl_status supports(const fl_call* call) {
    Reading reading;
    return read(*call, reading) ? FL_OK : decline("a convolution that the portable kernels do not have");
  }
};

}  // namespace

void add_convolutions(Rows& rows, runtime::Chip& chip, Language language) {
  rows.push_back(make_row("aten::convolution", 0, run_row<ForwardRow>, ForwardRow::supports,
                          keep<ForwardRow>(chip, language), kFloats | kIntegers));
  rows.push_back(make_row("aten::convolution_backward", 0, run_row<BackwardRow>, BackwardRow::supports,
                          keep<BackwardRow>(chip, language), kFloats));
}

}  // namespace torch_fl::portable
