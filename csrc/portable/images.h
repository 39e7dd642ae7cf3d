// SPDX-License-Identifier: Apache-2.0
// Tensors as images with channels.
#pragma once

#include <array>
#include <cstdint>

#include "torch_fl/fl_plugin.h"

namespace torch_fl::portable {

using Triple = std::array<int64_t, 3>;  ///< of depth, height and width; where there are fewer, the first are missing
inline int64_t product(const Triple& t) { return t[0] * t[1] * t[2]; }

/// n images of c channels, each of up to three dimensions. Those that are missing have size 1.
struct Images {
  int64_t n = 1, c = 1;
  Triple size{1, 1, 1};
  std::array<int64_t, 5> stride{};  ///< of image, channel, depth, height, width

  /// False: a tensor of `dims` dimensions for the image needs one for channels, and may have one for images.
  bool read(const fl_tensor& tensor, int dims) {
    const int before = tensor.ndim - dims;
    if (before != 1 && before != 2) return false;
    c = tensor.sizes[before - 1];
    stride[1] = tensor.strides[before - 1];
    if (before == 2) {
      n = tensor.sizes[0];
      stride[0] = tensor.strides[0];
    }
    for (int d = 0; d < dims; ++d) {
      size[static_cast<size_t>(3 - dims + d)] = tensor.sizes[before + d];
      stride[static_cast<size_t>(5 - dims + d)] = tensor.strides[before + d];
    }
    return true;
  }
  int64_t plane() const { return product(size); }
  int64_t numel() const { return n * c * plane(); }
  /// Channels lie side by side.
  bool channels_inside() const { return c > 1 && stride[1] == 1 && (plane() > 1 || c >= 16); }
  /// Steps between one element of a plane and the next, in row-major order; -1: they differ.
  int64_t plane_step() const {
    int64_t step = 1, run = 1;
    for (size_t d = 3; d-- > 0;) {
      if (size[d] == 1) continue;
      if (run == 1) step = stride[2 + d];
      if (stride[2 + d] != step * run) return -1;
      run *= size[d];
    }
    return step;
  }
};

}  // namespace torch_fl::portable
