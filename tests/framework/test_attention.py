# SPDX-License-Identifier: Apache-2.0
"""Attention and the transformer layers."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.nn.attention import SDPBackend, sdpa_kernel

from tests.framework.helpers import assert_same, assert_same_grads, twin

TOLERANCE = {"rtol": 1e-4, "atol": 1e-5}
fused = torch.ops.aten._scaled_dot_product_fused_attention_overrideable


def _qkv(*lengths: int) -> list[torch.Tensor]:
    return [torch.randn(2, 3, n, 8) for n in lengths]


@pytest.mark.parametrize("mask", ["none", "causal", "bool", "float"])
def test_scaled_dot_product_attention(mask: str) -> None:
    """Forward and backward of every kind of mask."""
    inputs = _qkv(5, 6, 6)
    options: dict[str, object] = {"is_causal": mask == "causal"}
    if mask in ("bool", "float"):
        values = torch.rand(5, 6) > 0.3 if mask == "bool" else torch.randn(5, 6)
        options["attn_mask"] = values
    results = []
    for device in ("cpu", "fl"):
        q, k, v = (t.detach().to(device).requires_grad_() for t in inputs)
        moved = {key: value.to(device) if isinstance(value, torch.Tensor) else value for key, value in options.items()}
        output = nn.functional.scaled_dot_product_attention(q, k, v, **moved)
        output.square().sum().backward()
        results.append((output, q.grad, k.grad, v.grad))
    for expected, actual in zip(*results, strict=True):
        assert_same(actual, expected, **TOLERANCE)


def test_grouped_queries() -> None:
    """enable_gqa shares key and value heads."""
    q, k, v = torch.randn(2, 4, 5, 8), torch.randn(2, 2, 5, 8), torch.randn(2, 2, 5, 8)
    expected = nn.functional.scaled_dot_product_attention(q, k, v, enable_gqa=True)
    actual = nn.functional.scaled_dot_product_attention(q.to("fl"), k.to("fl"), v.to("fl"), enable_gqa=True)
    assert_same(actual, expected, **TOLERANCE)


def test_math_backend_is_available() -> None:
    """The choice of backend can be forced to math."""
    q, k, v = (t.to("fl") for t in _qkv(4, 4, 4))
    with sdpa_kernel(SDPBackend.MATH):
        assert_same(
            nn.functional.scaled_dot_product_attention(q, k, v),
            nn.functional.scaled_dot_product_attention(q.cpu(), k.cpu(), v.cpu()),
            **TOLERANCE,
        )


@pytest.mark.parametrize(("causal", "with_bias"), [(False, False), (False, True), (True, False)])
def test_fused_operator(causal: bool, with_bias: bool) -> None:
    """The fused operator called by name: output, logsumexp and all gradients, bias included."""
    inputs = _qkv(5, 5, 5)
    bias = torch.randn(1, 1, 5, 5) if with_bias else None
    q, k, v = (t.clone().requires_grad_() for t in inputs)
    b = bias.clone().requires_grad_() if bias is not None else None
    expected = nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=b, is_causal=causal)
    expected.square().sum().backward()
    dq, dk, dv = (t.to("fl").requires_grad_() for t in inputs)
    db = bias.to("fl").requires_grad_() if bias is not None else None
    actual = fused(dq, dk, dv, db, 0.0, causal)
    actual[0].square().sum().backward()
    assert_same(actual[0], expected, **TOLERANCE)
    for found, wanted in ((dq, q), (dk, k), (dv, v)):
        assert_same(found.grad, wanted.grad, **TOLERANCE)
    if b is not None:
        assert_same(db.grad, b.grad, **TOLERANCE)
    if not causal:
        scores = inputs[0] @ inputs[1].mT / 8**0.5 + (bias if bias is not None else 0)
        assert_same(actual[1], scores.logsumexp(-1), **TOLERANCE)


def test_fused_operator_with_dropout() -> None:
    """Dropout in the fused operator: forward and backward use one mask."""
    q, k = torch.randn(1, 1, 8, 4, device="fl"), torch.randn(1, 1, 8, 4, device="fl")
    v = torch.eye(8, device="fl")[None, None].requires_grad_()
    output = fused(q, k, v, None, 0.5)[0]  # with v = 1 the output is the dropped attention matrix
    upstream = torch.randn_like(output)
    output.backward(upstream)
    assert_same(v.grad, output.detach().cpu().mT @ upstream.cpu(), **TOLERANCE)
    assert 0 < (output == 0).float().mean().item() < 1


@pytest.mark.parametrize("norm_first", [False, True])
@pytest.mark.parametrize("training", [False, True])
def test_encoder_layer(norm_first: bool, training: bool) -> None:
    """nn.TransformerEncoderLayer in eval (the fast path of PyTorch included) and in training without dropout."""
    layer = nn.TransformerEncoderLayer(16, 4, 32, dropout=0.0, batch_first=True, norm_first=norm_first)
    layer.train(training)
    device_layer = twin(layer)
    x = torch.randn(2, 5, 16)
    with torch.set_grad_enabled(training):
        expected, actual = layer(x), device_layer(x.to("fl"))
    assert_same(actual, expected, **TOLERANCE)
    if training:
        expected.square().sum().backward()
        actual.square().sum().backward()
        assert_same_grads(device_layer, layer, rtol=1e-3, atol=1e-4)


def test_encoder_with_padding() -> None:
    """nn.TransformerEncoder in eval with a padding mask."""
    encoder = nn.TransformerEncoder(
        nn.TransformerEncoderLayer(16, 4, 32, batch_first=True), 2, enable_nested_tensor=False
    ).eval()
    device_encoder = twin(encoder)
    x = torch.randn(2, 5, 16)
    padding = torch.tensor([[False] * 5, [False] * 3 + [True] * 2])
    with torch.no_grad():
        expected = encoder(x, src_key_padding_mask=padding)
        actual = device_encoder(x.to("fl"), src_key_padding_mask=padding.to("fl"))
    assert_same(actual[0], expected[0], **TOLERANCE)
    assert_same(actual[1, :3], expected[1, :3], **TOLERANCE)


def test_multihead_attention_weights() -> None:
    """nn.MultiheadAttention returns averaged weights that agree with the CPU."""
    attention = nn.MultiheadAttention(8, 2, batch_first=True)
    device_attention = twin(attention)
    x = torch.randn(2, 4, 8)
    y = x.to("fl")
    for actual, expected in zip(device_attention(y, y, y), attention(x, x, x), strict=True):
        assert_same(actual, expected, **TOLERANCE)


def test_whole_transformer() -> None:
    """nn.Transformer, encoder and decoder with a causal mask."""
    model = nn.Transformer(16, 4, 1, 1, 32, dropout=0.0, batch_first=True)
    device_model = twin(model)
    source, target = torch.randn(2, 4, 16), torch.randn(2, 3, 16)
    mask = nn.Transformer.generate_square_subsequent_mask(3)
    expected = model(source, target, tgt_mask=mask)
    actual = device_model(source.to("fl"), target.to("fl"), tgt_mask=mask.to("fl"))
    assert_same(actual, expected, **TOLERANCE)
