// SPDX-License-Identifier: Apache-2.0
// Samples of an image where a grid says, in two and three dimensions, and the gradients of both.
#include <algorithm>

#include "families.h"
#include "images.h"
#include "launch.h"
#include "runtime/internal.h"
#include "text.h"

namespace torch_fl::portable {
namespace {

struct Sampler {
  const char* op;
  int dims;
  bool backward;
};
const Sampler kOperators[] = {
    {"aten::grid_sampler_2d", 2, false},
    {"aten::grid_sampler_3d", 3, false},
    {"aten::grid_sampler_2d_backward", 2, true},
    {"aten::grid_sampler_3d_backward", 3, true},
};

// The coordinates of a grid come last; here they are what channels are.
bool read_grid(Images& images, const fl_tensor& grid, int dims) {
  if (grid.ndim != dims + 2 || grid.sizes[dims + 1] != dims) return false;
  images.n = grid.sizes[0];
  images.c = dims;
  images.stride[0] = grid.strides[0];
  images.stride[1] = grid.strides[dims + 1];
  for (int d = 0; d < dims; ++d) {
    images.size[static_cast<size_t>(3 - dims + d)] = grid.sizes[1 + d];
    images.stride[static_cast<size_t>(5 - dims + d)] = grid.strides[1 + d];
  }
  return true;
}

/// One call, looked through once.
struct Reading {
  const fl_tensor* gradient = nullptr;  ///< of the samples
  const fl_tensor* image = nullptr;
  const fl_tensor* grid = nullptr;
  Images samples, input, points;
  int64_t mode = 0, padding = 0, corners = 0;

  bool read(const fl_call& call, const Sampler& line) {
    const uint32_t first = line.backward ? 1 : 0;
    if (call.n_outs != (line.backward ? 2 : 1)) return false;
    for (uint32_t i = 0; i < first + 2; ++i) {
      if (call.args[i].kind != FL_TENSOR) return false;
    }
    gradient = line.backward ? call.args[0].u.tensor : nullptr;
    image = call.args[first].u.tensor;
    grid = call.args[first + 1].u.tensor;
    mode = call.args[first + 2].u.i;
    padding = call.args[first + 3].u.i;
    corners = call.args[first + 4].u.i;
    const fl_tensor* of_samples = line.backward ? gradient : call.outs[0];
    if (of_samples == nullptr || !input.read(*image, line.dims) || !samples.read(*of_samples, line.dims)) return false;
    if (!read_grid(points, *grid, line.dims) || image->ndim != line.dims + 2) return false;
    if (samples.n != input.n || samples.c != input.c || points.n != input.n || points.size != samples.size)
      return false;
    if (grid->dtype != image->dtype || of_samples->dtype != image->dtype) return false;
    if (mode < 0 || mode > (line.dims == 2 ? 2 : 1) || padding < 0 || padding > 2) return false;
    for (const int64_t size : input.size) {
      if (size < 1 || size >= INT32_MAX / 2) return false;
    }
    return true;
  }
};

enum class Result : uint8_t { Samples, Image, Grid };

class SamplerRow : public Row {
 public:
  SamplerRow(runtime::Chip& chip, Language language, const Sampler& line) : Row(chip, language), line_(line) {}

  static bool narrow(const Reading& r, Result result) {
    return result == Result::Image && (r.image->dtype == FL_FLOAT16 || r.image->dtype == FL_BFLOAT16);
  }

  Source write(const Reading& r, Result result) const {
    const int taps[] = {2, 1, 4};
    const std::string type = type_name(r.image->dtype), a = arithmetic_name(r.image->dtype);
    Source source;
    const auto define = [&](const std::string& text) { source.head += "#define " + text + "\n"; };
    define("A " + a);
    define("LOAD(p, i) LOAD_" + type + "(p, i)");
    define("STORE(p, i, v) STORE_" + type + "(p, i, v)");
    define("MODE " + std::to_string(r.mode));
    define("PADDING " + std::to_string(r.padding));
    define("TAPS " + std::to_string(taps[r.mode]));
    define("DIMS " + std::to_string(line_.dims));
    if (result == Result::Samples) define("FORWARD 1");
    if (result == Result::Grid) define("TO_GRID 1");
    if (narrow(r, result)) define("NARROW 1");
    source.head += text_of("grid.h");
    source.members = "  i64 rows, chunk, blocks, block, c, corners, in[3], out[3], xs[5], gs[5], ys[5], zs[5], ss[5]";
    source.pointers = {{type, "grid"}};
    if (result != Result::Image) source.pointers.push_back({type, "image"});
    if (result != Result::Samples) source.pointers.push_back({type, "gradient"});
    if (result == Result::Image) source.pointers.push_back({a, "sum", true});
    if (result != Result::Image || narrow(r, result)) source.pointers.push_back({type, "to", true});
    source.body = text_of("grid_body.h");
    return source;
  }

  fl_status run_one(const fl_call& call, const Reading& r, Result result, const fl_tensor& to) {
    if (to.numel == 0) return FL_OK;
    Images written;
    if (!(result == Result::Grid ? read_grid(written, to, line_.dims) : written.read(to, line_.dims)))
      return decline(kReason);
    const int64_t positions = r.samples.plane(), tiles = (positions + 15) / 16;
    int64_t rows = r.input.n * tiles, block = 1, least = std::max<int64_t>(1, 256 / std::max<int64_t>(r.input.c, 1));
    if (result == Result::Image) {
      const auto units = static_cast<int64_t>(std::max<uint32_t>(device(call).properties.compute_units, 1));
      block = std::clamp<int64_t>(r.input.n * r.input.c / (4 * units), 1, r.input.c);
      rows = r.input.n * ((r.input.c + block - 1) / block);
      least = 1;
    }
    const Split work = split(device(call), rows, least);
    Images sums = written;
    fl_address sum = to.address;
    if (narrow(r, result)) {
      const fl_status status =
          runtime::host_services().scratch(&call, static_cast<uint64_t>(to.numel) * sizeof(float), &sum);
      if (status != FL_OK) return status;
      const Triple& size = r.input.size;
      sums.stride = {r.input.c * product(size), product(size), size[1] * size[2], size[2], 1};
    }
    VariantKey key;
    key.add(static_cast<uint32_t>(r.image->dtype));
    key.add(static_cast<uint32_t>(r.mode));
    key.add(static_cast<uint32_t>(r.padding));
    key.add(static_cast<uint32_t>(result));
    const fl_module module = variant(call, key, [&] { return write(r, result); });
    Members<40> words;
    for (const int64_t word : {rows, work.chunk, (r.input.c + block - 1) / block, block, r.input.c, r.corners})
      words.add(word);
    for (const Triple& triple : {r.input.size, r.samples.size}) {
      for (const int64_t word : triple) words.add(word);
    }
    const Images& image = result == Result::Image ? written : r.input;
    for (const Images& images : {image, r.points, r.samples, written, sums}) {
      for (const int64_t word : images.stride) words.add(word);
    }
    Arguments arguments;
    arguments.add(*r.grid);
    if (result != Result::Image) arguments.add(*r.image);
    if (result != Result::Samples) arguments.add(*r.gradient);
    if (result == Result::Image) arguments.add_address(sum);
    if (result != Result::Image || narrow(r, result)) arguments.add(to);
    arguments.add_members(words.data(), words.bytes());
    return arguments.launch(call, device(call), module, work.items);
  }

  fl_status run(const fl_call& call) {
    Reading r;
    if (!r.read(call, line_)) return decline(kReason);
    if (!line_.backward) return run_one(call, r, Result::Samples, *call.outs[0]);
    for (const Result result : {Result::Image, Result::Grid}) {
      const fl_tensor* to = call.outs[result == Result::Image ? 0 : 1];
      const fl_status status = to == nullptr ? fl_status{FL_OK} : run_one(call, r, result, *to);
      if (status != FL_OK) return status;
    }
    return FL_OK;
  }

  static fl_status supports(const fl_call* call) {
    Reading reading;
    return reading.read(*call, row_of<SamplerRow>(*call).line_) ? FL_OK : decline(kReason);
  }

 private:
  static constexpr const char* kReason = "a grid sampler that the portable kernels do not have";
  const Sampler& line_;
};

}  // namespace

void add_grid_samplers(Rows& rows, runtime::Chip& chip, Language language) {
  for (const Sampler& line : kOperators) {
    rows.push_back(make_row(line.op, 0, run_row<SamplerRow>, SamplerRow::supports,
                            keep<SamplerRow>(chip, language, line), kFloats));
  }
}

}  // namespace torch_fl::portable
