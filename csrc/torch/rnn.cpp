// SPDX-License-Identifier: Apache-2.0
// The fused LSTM and GRU cells. PyTorch's layers always ask an accelerator for them, and only CUDA has kernels; here
// they are composed of operators that every chip can run (or route). A chip that has its own kernel is asked first.
#include <ATen/ATen.h>
#include <torch/library.h>

namespace torch_fl::glue {
namespace {

using at::Tensor;
using OptionalTensor = std::optional<Tensor>;

Tensor value_or_undefined(const OptionalTensor& tensor) { return tensor.value_or(Tensor()); }

/// gates + bias where there is one.
Tensor with_bias(const Tensor& gates, const OptionalTensor& bias) {
  return bias.has_value() && bias->defined() ? gates + *bias : gates;
}

void check_gates(const char* op, const Tensor& input_gates, const Tensor& hidden_gates, const Tensor& state,
                 int64_t factor) {
  TORCH_CHECK(input_gates.dim() == 2 && input_gates.sizes() == hidden_gates.sizes(), op,
              ": expected input and hidden gates of one two-dimensional shape, got ", input_gates.sizes(), " and ",
              hidden_gates.sizes());
  TORCH_CHECK(state.dim() == 2 && state.size(0) == input_gates.size(0) && state.size(1) * factor == input_gates.size(1),
              op, ": expected a state of shape [", input_gates.size(0), ", ", input_gates.size(1) / factor, "], got ",
              state.sizes());
}

void check_workspace(const char* op, const Tensor& workspace, const Tensor& state, int64_t factor) {
  TORCH_CHECK(workspace.dim() == 2 && state.dim() == 2 && workspace.size(0) == state.size(0) &&
                  workspace.size(1) == factor * state.size(1),
              op, ": expected a workspace of ", factor, " times the columns of a two-dimensional state, got ",
              workspace.sizes(), " for a state of shape ", state.sizes());
}

// The workspace keeps the activated gates i, f, g, o side by side.
std::tuple<Tensor, Tensor, Tensor> lstm_cell(const Tensor& input_gates, const Tensor& hidden_gates, const Tensor& cx,
                                             const OptionalTensor& input_bias, const OptionalTensor& hidden_bias) {
  check_gates("_thnn_fused_lstm_cell", input_gates, hidden_gates, cx, 4);
  const Tensor gates = with_bias(input_gates, input_bias) + with_bias(hidden_gates, hidden_bias);
  const auto parts = gates.chunk(4, 1);
  const Tensor in = parts[0].sigmoid();
  const Tensor forget = parts[1].sigmoid();
  const Tensor cell = parts[2].tanh();
  const Tensor out = parts[3].sigmoid();
  Tensor cy = forget * cx + in * cell;
  Tensor hy = out * cy.tanh();
  return {std::move(hy), std::move(cy), at::cat({in, forget, cell, out}, 1)};
}

/// d sigmoid(x) / dx and d tanh(x) / dx from the value.
Tensor through_sigmoid(const Tensor& grad, const Tensor& value) { return at::sigmoid_backward(grad, value); }
Tensor through_tanh(const Tensor& grad, const Tensor& value) { return at::tanh_backward(grad, value); }

std::tuple<Tensor, Tensor, Tensor> lstm_cell_backward(const OptionalTensor& maybe_grad_hy,
                                                      const OptionalTensor& maybe_grad_cy, const Tensor& cx,
                                                      const Tensor& cy, const Tensor& workspace, bool has_bias) {
  const Tensor grad_hy = value_or_undefined(maybe_grad_hy);
  const Tensor grad_cy = value_or_undefined(maybe_grad_cy);
  if (!grad_hy.defined() && !grad_cy.defined()) return {};
  check_workspace("_thnn_fused_lstm_cell_backward_impl", workspace, cx, 4);
  const auto gates = workspace.chunk(4, 1);
  const Tensor &in = gates[0], &forget = gates[1], &cell = gates[2], &out = gates[3];
  const Tensor tanh_cy = cy.tanh();

  Tensor grad_cell_state = grad_cy;
  Tensor grad_out = at::zeros_like(out);
  if (grad_hy.defined()) {
    grad_out = through_sigmoid(grad_hy * tanh_cy, out);
    const Tensor from_hy = through_tanh(grad_hy * out, tanh_cy);
    grad_cell_state = grad_cy.defined() ? grad_cy + from_hy : from_hy;
  }
  const Tensor grad_gates =
      at::cat({through_sigmoid(grad_cell_state * cell, in), through_sigmoid(grad_cell_state * cx, forget),
               through_tanh(grad_cell_state * in, cell), grad_out},
              1);
  return {grad_gates, grad_cell_state * forget, has_bias ? grad_gates.sum(0) : Tensor()};
}

// The workspace keeps r, z, n (activated), the old state, and n's hidden part before the reset gate.
std::tuple<Tensor, Tensor> gru_cell(const Tensor& input_gates, const Tensor& hidden_gates, const Tensor& hx,
                                    const OptionalTensor& input_bias, const OptionalTensor& hidden_bias) {
  check_gates("_thnn_fused_gru_cell", input_gates, hidden_gates, hx, 3);
  const auto input = with_bias(input_gates, input_bias).chunk(3, 1);
  const auto hidden = with_bias(hidden_gates, hidden_bias).chunk(3, 1);
  const Tensor reset = (input[0] + hidden[0]).sigmoid();
  const Tensor update = (input[1] + hidden[1]).sigmoid();
  const Tensor candidate = (input[2] + reset * hidden[2]).tanh();
  Tensor hy = candidate + update * (hx - candidate);
  return {std::move(hy), at::cat({reset, update, candidate, hx, hidden[2]}, 1)};
}

std::tuple<Tensor, Tensor, Tensor, Tensor, Tensor> gru_cell_backward(const Tensor& grad_hy, const Tensor& workspace,
                                                                     bool has_bias) {
  check_workspace("_thnn_fused_gru_cell_backward", workspace, grad_hy, 5);
  const auto saved = workspace.chunk(5, 1);
  const Tensor &reset = saved[0], &update = saved[1], &candidate = saved[2], &hx = saved[3], &hidden_part = saved[4];
  const Tensor grad_update = through_sigmoid(grad_hy * (hx - candidate), update);
  const Tensor grad_candidate = through_tanh(grad_hy * (1 - update), candidate);
  const Tensor grad_reset = through_sigmoid(grad_candidate * hidden_part, reset);
  const Tensor grad_input_gates = at::cat({grad_reset, grad_update, grad_candidate}, 1);
  const Tensor grad_hidden_gates = at::cat({grad_reset, grad_update, grad_candidate * reset}, 1);
  if (!has_bias) return {grad_input_gates, grad_hidden_gates, grad_hy * update, Tensor(), Tensor()};
  return {grad_input_gates, grad_hidden_gates, grad_hy * update, grad_input_gates.sum(0), grad_hidden_gates.sum(0)};
}

// As composite kernels: whatever backend has a kernel of its own keeps it, and shape inference works through them.
TORCH_LIBRARY_IMPL(aten, CompositeExplicitAutograd, m) {
  m.impl("_thnn_fused_lstm_cell", TORCH_FN(lstm_cell));
  m.impl("_thnn_fused_lstm_cell_backward_impl", TORCH_FN(lstm_cell_backward));
  m.impl("_thnn_fused_gru_cell", TORCH_FN(gru_cell));
  m.impl("_thnn_fused_gru_cell_backward", TORCH_FN(gru_cell_backward));
}

}  // namespace
}  // namespace torch_fl::glue
