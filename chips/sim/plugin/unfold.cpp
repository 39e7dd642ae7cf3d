// SPDX-License-Identifier: Apache-2.0
// aten::im2col and aten::col2im: the patches of an image as columns, and the sum of such columns as an image.
#include <algorithm>
#include <array>

#include "nn_families.h"
#include "nn_types.h"
#include "parallel.h"
#include "workspace.h"

namespace fl_sim::nn {
namespace {

using Pair = std::array<int64_t, 2>;

Pair pair_of(std::span<const int64_t> values) { return {values[0], values[values.size() > 1 ? 1 : 0]}; }

// Planes are (image, channel) pairs: in the image H x W, in the columns (kernel positions) x (patches).
struct Patches {
  int64_t planes;
  Pair image, kernel, dilation, padding, stride, grid;
  int64_t image_size() const { return image[0] * image[1]; }
  int64_t column_size() const { return kernel[0] * kernel[1] * grid[0] * grid[1]; }
  double work() const { return 2.0 * static_cast<double>(planes * column_size()); }
};

// kernel, dilation, padding and stride are the arguments from `at` on.
Patches patches(const Call& call, uint32_t at, const View& image) {
  Patches p{};
  p.image = {image.sizes[image.ndim - 2], image.sizes[image.ndim - 1]};
  p.planes = image.ndim == 4 ? image.sizes[0] * image.sizes[1] : image.sizes[0];
  p.kernel = pair_of(call.ints(at));
  p.dilation = pair_of(call.ints(at + 1));
  p.padding = pair_of(call.ints(at + 2));
  p.stride = pair_of(call.ints(at + 3));
  for (size_t d = 0; d < 2; ++d) {
    p.grid[d] = (p.image[d] + 2 * p.padding[d] - p.dilation[d] * (p.kernel[d] - 1) - 1) / p.stride[d] + 1;
  }
  return p;
}

// Calls visit(offset in the column plane, offset in the image plane, or -1 for the padding).
template <class Visit>
void for_each_place(const Patches& p, const Visit& visit) {
  int64_t column = 0;
  for (int64_t ky = 0; ky < p.kernel[0]; ++ky) {
    for (int64_t kx = 0; kx < p.kernel[1]; ++kx) {
      for (int64_t gy = 0; gy < p.grid[0]; ++gy) {
        const int64_t y = gy * p.stride[0] - p.padding[0] + ky * p.dilation[0];
        for (int64_t gx = 0; gx < p.grid[1]; ++gx) {
          const int64_t x = gx * p.stride[1] - p.padding[1] + kx * p.dilation[1];
          const bool inside = y >= 0 && y < p.image[0] && x >= 0 && x < p.image[1];
          visit(column++, inside ? y * p.image[1] + x : int64_t{-1});
        }
      }
    }
  }
}

void im2col_body(const Call& call) {
  const View image = call.tensor(0), columns = call.out(0);
  const Patches p = patches(call, 1, image);
  dispatch_reals(columns.dtype, [&](auto zero) {
    using T = decltype(zero);
    parallel_for(p.planes, p.work(), [&](int64_t plane) {
      const T* from = image.as<const T>() + plane * p.image_size();
      T* to = columns.as<T>() + plane * p.column_size();
      for_each_place(p, [&](int64_t c, int64_t i) { to[c] = i < 0 ? T(0) : from[i]; });
    });
  });
}

void col2im_body(const Call& call) {
  const View columns = call.tensor(0), image = call.out(0);
  const Patches p = patches(call, 2, image);
  dispatch_reals(image.dtype, [&](auto zero) {
    using T = decltype(zero);
    parallel_for(p.planes, p.work(), [&](int64_t plane) {
      const T* from = columns.as<const T>() + plane * p.column_size();
      Acc<T>* sums = workspace<Acc<T>>(Slot::kKernel, std::max<int64_t>(p.image_size(), 1));
      std::fill_n(sums, p.image_size(), Acc<T>(0));
      for_each_place(p, [&](int64_t c, int64_t i) {
        if (i >= 0) sums[i] += static_cast<Acc<T>>(from[c]);
      });
      T* to = image.as<T>() + plane * p.image_size();
      for (int64_t i = 0; i < p.image_size(); ++i) to[i] = static_cast<T>(sums[i]);
    });
  });
}

fl_status im2col_run(const fl_call* call) { return launch(call, im2col_body); }
fl_status col2im_run(const fl_call* call) { return launch(call, col2im_body); }

fl_status supports(const fl_call* call) {
  const uint32_t dims = static_cast<uint32_t>(call->outs[0]->ndim);
  for (uint32_t i = 1; i < call->n_args; ++i) {
    if (call->args[i].count == 0) return unsupported("an empty list of sizes");
  }
  return dims >= 2 && call->args[0].u.tensor->numel != 0 ? FL_OK : unsupported("an empty or flat tensor");
}

constexpr uint32_t kDense = FL_KERNEL_CONTIGUOUS_INPUTS | FL_KERNEL_CONTIGUOUS_OUTPUTS;
constexpr fl_kernel kRows[] = {
    row("aten::im2col", kDense, im2col_run, kReals, supports),
    row("aten::col2im", kDense, col2im_run, kReals, supports),
};

}  // namespace
}  // namespace fl_sim::nn

fl_sim::Family fl_sim::unfold_family() { return nn::kRows; }
