// SPDX-License-Identifier: Apache-2.0
#include "geometry.h"

#include <algorithm>
#include <string>

namespace torch_fl::portable {

bool Geometry::merge(const fl_tensor* const* tensors, int count) {
  std::array<const int64_t*, kMaxOperands> steps;
  for (int o = 0; o < count; ++o) steps[static_cast<size_t>(o)] = tensors[o]->strides;
  return merge(tensors[0]->ndim, tensors[0]->sizes, steps.data(), count);
}

bool Geometry::merge(int ndim, const int64_t* of_sizes, const int64_t* const* steps, int count) {
  operands = count;
  numel = 1;
  for (int d = 0; d < ndim; ++d) numel *= of_sizes[d];
  rank = 0;
  std::array<int, 64> order;
  int dims = 0;
  for (int d = 0; d < ndim; ++d) {
    if (of_sizes[d] != 1) order[static_cast<size_t>(dims++)] = d;
  }
  std::stable_sort(order.begin(), order.begin() + dims, [&](int a, int b) { return steps[0][a] > steps[0][b]; });
  for (int k = 0; k < dims; ++k) {
    const int d = order[static_cast<size_t>(k)];
    const int64_t size = of_sizes[d];
    bool merges = rank > 0;
    for (int o = 0; merges && o < count; ++o) {
      merges = strides[static_cast<size_t>(o)][static_cast<size_t>(rank - 1)] == steps[o][d] * size;
    }
    if (!merges && rank == kMaxRank) return false;
    if (!merges) sizes[static_cast<size_t>(rank++)] = 1;
    sizes[static_cast<size_t>(rank - 1)] *= size;
    for (int o = 0; o < count; ++o) strides[static_cast<size_t>(o)][static_cast<size_t>(rank - 1)] = steps[o][d];
  }
  if (rank == 0) {  // a single element
    rank = 1;
    sizes[0] = 1;
    for (int o = 0; o < count; ++o) strides[static_cast<size_t>(o)][0] = 0;
    strides[0][0] = 1;
  }
  return true;
}

// How an operand is stepped along the innermost dimension: known to the compiler where it is 0 or 1.
uint32_t step_class(int64_t stride) { return stride == 0 || stride == 1 ? static_cast<uint32_t>(stride) : 2; }

std::string operand_name(int operand) { return operand == 0 ? "out" : "x" + std::to_string(operand); }

namespace {
std::string stride_of(const Geometry& g, int operand, int dim) {
  return "p.stride[" + std::to_string(operand * g.rank + dim) + "]";
}

std::string step_of(const Geometry& g, int operand) {
  const uint32_t step = step_class(g.strides[static_cast<size_t>(operand)][static_cast<size_t>(g.rank - 1)]);
  return step == 2 ? stride_of(g, operand, g.rank - 1) : std::to_string(step);
}

}  // namespace

// An element of the operand at `j` steps from the current row's start.
std::string element(const Geometry& g, int operand) {
  return operand_name(operand) + ", at" + std::to_string(operand) + " + j * " + step_of(g, operand);
}

// Walks the items' share of the output row by row; `statement` handles the element at j.
std::string walk(const Geometry& g, const std::string& statement) {
  const std::string last = std::to_string(g.rank - 1);
  std::string start, advance, carry_reset, carry_step;
  for (int k = 0; k < g.operands; ++k) {
    const std::string at = "at" + std::to_string(k);
    start += "  i64 " + at + " = 0;\n";
    advance += "    " + at + " += run * " + step_of(g, k) + ";\n";
  }
  std::string text =
      "  const i64 begin = item * p.chunk;\n"
      "  const i64 end = begin + p.chunk < p.numel ? begin + p.chunk : p.numel;\n" +
      start;
  if (g.rank == 1) {
    for (int k = 0; k < g.operands; ++k) text += "  at" + std::to_string(k) + " = begin * " + step_of(g, k) + ";\n";
    return text + "  const i64 run = end - begin;\n  VECTOR_LOOP\n  for (i64 j = 0; j < run; ++j) {\n" + statement +
           "  }\n";
  }
  text += "  i64 c[" + std::to_string(g.rank) + "], rest = begin;\n";
  for (int d = g.rank - 1; d >= 0; --d) {
    const std::string c = "c[" + std::to_string(d) + "]", size = "p.size[" + std::to_string(d) + "]";
    text += d > 0 ? "  " + c + " = rest % " + size + ";\n  rest /= " + size + ";\n" : "  c[0] = rest;\n";
    for (int k = 0; k < g.operands; ++k)
      text += "  at" + std::to_string(k) + " += " + c + " * " + stride_of(g, k, d) + ";\n";
  }
  text += "  for (i64 i = begin; i < end;) {\n    const i64 left = p.size[" + last + "] - c[" + last +
          "];\n    const i64 run = left < end - i ? left : end - i;\n    VECTOR_LOOP\n    for (i64 j = 0; j < run; "
          "++j) {\n" +
          statement + "    }\n    i += run;\n    c[" + last + "] += run;\n" + advance;
  for (int d = g.rank - 1; d > 0; --d) {
    const std::string c = "c[" + std::to_string(d) + "]", size = "p.size[" + std::to_string(d) + "]";
    text +=
        "    if (" + c + " == " + size + ") {\n      " + c + " = 0;\n      c[" + std::to_string(d - 1) + "] += 1;\n";
    for (int k = 0; k < g.operands; ++k) {
      text += "      at" + std::to_string(k) + " += " + stride_of(g, k, d - 1) + " - " + size + " * " +
              stride_of(g, k, d) + ";\n";
    }
    text += "    }\n";
  }
  return text + "  }\n";
}

std::string walk_members(const Geometry& g) {
  std::string text = "  i64 numel, chunk";
  if (g.rank > 1) text += ", size[" + std::to_string(g.rank) + "]";
  return text + ", stride[" + std::to_string(g.operands * g.rank) + "]";
}

}  // namespace torch_fl::portable
