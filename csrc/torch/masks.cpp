// SPDX-License-Identifier: Apache-2.0
#include "masks.h"

#include <vector>

namespace torch_fl::glue {
namespace {

bool is_mask(const at::Tensor& t) { return t.defined() && t.scalar_type() == at::kBool; }

// Each mask stands for as many dimensions as it has, and must have their sizes. uint8 is PyTorch's older spelling of a
// mask; its warning is left to PyTorch.
bool masks_fit(const PackedArg& list, at::IntArrayRef sizes) {
  size_t dim = 0;
  bool any = false;
  for (uint32_t k = 0; k < list.count; ++k) {
    const at::Tensor& index = list.u.tensors[k];
    if (!is_mask(index)) {
      if (index.defined() && index.scalar_type() == at::kByte) return false;
      ++dim;
      continue;
    }
    any = true;
    const auto own = static_cast<size_t>(index.dim());
    if (own == 0 || dim + own > sizes.size() || index.sizes() != sizes.slice(dim, own)) return false;
    dim += own;
  }
  return any;
}

}  // namespace

void expand_masks(Call& call) {
  // The planner knows how to go on with those of aten::index; of others with a shape rule of PyTorch's, it does not.
  if (call.meta != nullptr && call.entry.op_name != "aten::index") return;
  PackedArg& list = call.args[call.entry.indices];
  if (list.kind != Kind::TensorList || !masks_fit(list, call.args[0].u.tensor->sizes())) return;
  const runtime::Chip& chip = call.device->chip;
  if (candidates(chip, call.entry).empty() || !has_kernel(chip, "aten::nonzero")) return;
  std::vector<at::Tensor> expanded;
  for (uint32_t k = 0; k < list.count; ++k) {
    const at::Tensor& index = list.u.tensors[k];
    if (!is_mask(index)) {
      expanded.push_back(index);
      continue;
    }
    const at::Tensor positions = at::nonzero(index);
    for (int64_t d = 0; d < index.dim(); ++d) expanded.push_back(positions.select(1, d));
  }
  auto kept = std::make_unique<at::Tensor[]>(expanded.size());
  std::move(expanded.begin(), expanded.end(), kept.get());
  list.count = static_cast<uint32_t>(expanded.size());
  list.u.tensors = call.store.get().keep(std::move(kept));
}

}  // namespace torch_fl::glue
