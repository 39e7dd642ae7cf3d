# SPDX-License-Identifier: Apache-2.0
"""Recurrent layers and cells, forward and backward, against the CPU."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence, pack_sequence, pad_packed_sequence

from tests.framework.helpers import assert_same, assert_same_grads, twin

LAYERS = [nn.RNN, nn.LSTM, nn.GRU]
TOLERANCE = {"rtol": 1e-4, "atol": 1e-5}


def _loss(outputs: Any) -> torch.Tensor:
    tensors = []

    def collect(value: Any) -> None:
        if isinstance(value, torch.Tensor):
            tensors.append(value)
        else:
            for item in value:
                collect(item)

    collect(outputs)
    return sum((tensor * (i + 1)).square().sum() for i, tensor in enumerate(tensors))


@pytest.mark.parametrize("kind", LAYERS)
@pytest.mark.parametrize("bidirectional", [False, True])
@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("batch_first", [False, True])
def test_layers(kind: type[nn.RNNBase], bidirectional: bool, bias: bool, batch_first: bool) -> None:
    """Two stacked layers in every combination of options: outputs, states and gradients."""
    layer = kind(3, 5, 2, bidirectional=bidirectional, bias=bias, batch_first=batch_first)
    device_layer = twin(layer)
    x = torch.randn(4, 6, 3)
    y = x.to("fl").requires_grad_()
    x.requires_grad_()
    expected, state = layer(x)
    actual, device_state = device_layer(y)
    assert_same(actual, expected, **TOLERANCE)
    _loss([expected, state]).backward()
    _loss([actual, device_state]).backward()
    assert_same(y.grad, x.grad, **TOLERANCE)
    assert_same_grads(device_layer, layer, **TOLERANCE)


@pytest.mark.parametrize("kind", LAYERS)
def test_initial_state(kind: type[nn.RNNBase]) -> None:
    """A given initial state takes part, and gets a gradient."""
    layer = kind(3, 4)
    device_layer = twin(layer)
    x, h, c = torch.randn(5, 2, 3), torch.randn(1, 2, 4), torch.randn(1, 2, 4)

    def run(module: nn.Module, device: str) -> tuple[torch.Tensor, torch.Tensor]:
        hidden = h.to(device).requires_grad_()
        state = (hidden, c.to(device)) if kind is nn.LSTM else hidden
        output, _ = module(x.to(device), state)
        output.square().sum().backward()
        return output, hidden.grad

    for actual, expected in zip(run(device_layer, "fl"), run(layer, "cpu"), strict=True):
        assert_same(actual, expected, **TOLERANCE)


@pytest.mark.parametrize("kind", [nn.RNNCell, nn.LSTMCell, nn.GRUCell])
@pytest.mark.parametrize("bias", [False, True])
def test_cells(kind: type[nn.RNNCellBase], bias: bool) -> None:
    """One step of a cell, forward and backward."""
    cell = kind(3, 4, bias=bias)
    device_cell = twin(cell)
    x = torch.randn(2, 3)
    expected, actual = cell(x), device_cell(x.to("fl"))
    _loss(expected).backward()
    _loss(actual).backward()
    assert_same_grads(device_cell, cell, **TOLERANCE)


def test_unused_outputs() -> None:
    """Only the cell state, or only the hidden state, of an LSTM cell contributes to the loss."""
    for used in (0, 1):
        cell = nn.LSTMCell(3, 4)
        device_cell = twin(cell)
        x = torch.randn(2, 3)
        cell(x)[used].square().sum().backward()
        device_cell(x.to("fl"))[used].square().sum().backward()
        assert_same_grads(device_cell, cell, **TOLERANCE)


@pytest.mark.parametrize("kind", LAYERS)
@pytest.mark.parametrize("bidirectional", [False, True])
def test_packed_sequences(kind: type[nn.RNNBase], bidirectional: bool) -> None:
    """Packed sequences of different lengths, in any order."""
    layer = kind(3, 4, bidirectional=bidirectional)
    device_layer = twin(layer)
    sequences = [torch.randn(n, 3) for n in (2, 5, 3)]

    def run(module: nn.Module, device: str) -> torch.Tensor:
        packed = pack_sequence([s.to(device) for s in sequences], enforce_sorted=False)
        output, _ = module(packed)
        padded, _ = pad_packed_sequence(output)
        padded.square().sum().backward()
        return padded

    assert_same(run(device_layer, "fl"), run(layer, "cpu"), **TOLERANCE)
    assert_same_grads(device_layer, layer, **TOLERANCE)


def test_pack_padded() -> None:
    """pack_padded_sequence takes lengths on the CPU and keeps the data on fl."""
    x = torch.randn(5, 3, 2)
    packed = pack_padded_sequence(x.to("fl"), torch.tensor([5, 3, 1]))
    assert packed.data.device.type == "fl"
    assert packed.batch_sizes.device.type == "cpu"
    assert_same(packed.data, pack_padded_sequence(x, torch.tensor([5, 3, 1])).data)


def test_projections() -> None:
    """An LSTM with projections."""
    layer = nn.LSTM(3, 6, 2, proj_size=2)
    device_layer = twin(layer)
    x = torch.randn(4, 2, 3)
    expected, actual = layer(x)[0], device_layer(x.to("fl"))[0]
    assert_same(actual, expected, **TOLERANCE)
    expected.square().sum().backward()
    actual.square().sum().backward()
    assert_same_grads(device_layer, layer, **TOLERANCE)


def test_unbatched_and_dropout() -> None:
    """Input without a batch dimension works, and dropout between layers depends only on the seed."""
    layer = nn.GRU(3, 4, 2, dropout=0.5)
    device_layer = twin(layer)
    x = torch.randn(6, 3)
    assert_same(device_layer.eval()(x.to("fl"))[0], layer.eval()(x)[0], **TOLERANCE)
    device_layer.train()
    torch.manual_seed(1)
    first = device_layer(x.to("fl"))[0]
    torch.manual_seed(1)
    assert torch.equal(device_layer(x.to("fl"))[0], first)


def test_double_precision_gradcheck() -> None:
    """Analytical gradients of the fused cells against numerical ones."""
    for kind in (nn.LSTMCell, nn.GRUCell):
        cell = kind(2, 3, dtype=torch.float64).to("fl")
        x = torch.randn(2, 2, dtype=torch.float64, device="fl", requires_grad=True)
        h = torch.randn(2, 3, dtype=torch.float64, device="fl", requires_grad=True)

        def function(a: torch.Tensor, b: torch.Tensor, cell: nn.Module = cell) -> torch.Tensor:
            output = cell(a, (b, b * 2)) if isinstance(cell, nn.LSTMCell) else cell(a, b)
            return output[0] + output[1] if isinstance(output, tuple) else output

        assert torch.autograd.gradcheck(function, (x, h))


@pytest.mark.parametrize("columns", [3, 18, 21, 0])
def test_workspaces_that_do_not_fit(columns: int) -> None:
    state, workspace = torch.ones(3, 5, device="fl"), torch.ones(3, columns, device="fl")
    with pytest.raises(RuntimeError, match="expected a workspace of 4 times the columns"):
        torch.ops.aten._thnn_fused_lstm_cell_backward_impl(state, None, state, state, workspace, True)
    with pytest.raises(RuntimeError, match="expected a workspace of 5 times the columns"):
        torch.ops.aten._thnn_fused_gru_cell_backward(state, workspace, True)
