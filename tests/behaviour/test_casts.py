# SPDX-License-Identifier: Apache-2.0
"""Casts and copies among all element types, layouts and devices."""

from __future__ import annotations

import pytest
import torch

from tests.behaviour.agree import DEVICE, DTYPES, agree, short, values
from tests.harness import compare

FLOAT8 = [torch.float8_e4m3fn, torch.float8_e5m2, torch.float8_e4m3fnuz, torch.float8_e5m2fnuz]


def _source(dtype: torch.dtype) -> torch.Tensor:
    """Values that every type can hold, so that no cast is undefined."""
    return torch.tensor([0, 1, 2, 5, 100, 0, 1, 3]).to(dtype)


@pytest.mark.parametrize("target", DTYPES, ids=short)
@pytest.mark.parametrize("source", DTYPES, ids=short)
def test_casts_among_all_types(source: torch.dtype, target: torch.dtype) -> None:
    x = _source(source)
    agree(lambda a: a.to(target), x)
    agree(lambda a: torch.zeros(8, dtype=target, device=a.device).copy_(a), x)
    agree(lambda a: a[::2].to(target), x)
    agree(lambda a: a.view(2, 4).t().to(target), x)
    agree(lambda a: torch.zeros(3, 8, dtype=target, device=a.device).copy_(a), x)
    agree(lambda a: torch.zeros(8, 2, dtype=target, device=a.device)[:, 1].copy_(a), x)
    agree(lambda a: a[:0].to(target), x)
    agree(lambda a: a[3].to(target), x)


@pytest.mark.parametrize("target", FLOAT8, ids=short)
@pytest.mark.parametrize("source", [torch.float32, torch.float16, torch.bfloat16, torch.int32, torch.bool], ids=short)
def test_casts_to_and_from_float8(source: torch.dtype, target: torch.dtype) -> None:
    x = _source(source)
    agree(lambda a: a.to(target), x)
    agree(lambda a: a.to(target).to(source), x)
    agree(lambda a: a.to(target).clone().view(torch.uint8), x)


@pytest.mark.parametrize("target", DTYPES, ids=short)
def test_special_values(target: torch.dtype) -> None:
    if not target.is_floating_point and not target.is_complex and target != torch.bool:
        pytest.skip("undefined in C")
    x = torch.tensor([float("inf"), -float("inf"), float("nan"), -0.0, 1e30, 1e-30, 65504.0, 65520.0, 3.4e38])
    agree(lambda a: a.to(target), x)
    agree(lambda a: a.double().to(target), x)


@pytest.mark.parametrize("dtype", DTYPES, ids=short)
def test_round_trips_of_layouts(dtype: torch.dtype) -> None:
    x = _source(dtype).repeat(6).view(2, 4, 6)
    for view in (
        lambda a: a,
        lambda a: a.t() if a.dim() == 2 else a.transpose(0, 2),
        lambda a: a[:, ::2, 1:5],
        lambda a: a[..., 3],
        lambda a: a[:1].expand(3, 4, 6),
        lambda a: a[1:1],
        lambda a: a[0, 0, 0],
        lambda a: a.permute(1, 2, 0)[2],
    ):
        there = view(x).to(DEVICE)
        target = torch.zeros(view(x).shape, dtype=dtype)
        target.copy_(view(x.to(DEVICE)))
        assert there.dtype == dtype
        for found in (there.cpu(), view(x.to(DEVICE)).cpu(), target):
            compare.check_tensor(found, view(x), None, True, "")


def test_writing_into_strided_targets_leaves_the_rest() -> None:
    for target in (lambda a: a[:, 1::2], lambda a: a.t()[1:], lambda a: a[2], lambda a: a[:, -1]):
        expected, found = torch.zeros(4, 6), torch.zeros(4, 6, device=DEVICE)
        source = values(tuple(target(expected).shape), torch.float32)
        target(expected).copy_(source)
        target(found).copy_(source)
        assert torch.equal(found.cpu(), expected)
        target(expected).copy_(source.double() + 1)
        target(found).copy_(source.double().to(DEVICE) + 1)
        assert torch.equal(found.cpu(), expected)


def test_copy_broadcasts_and_refuses_what_does_not_fit() -> None:
    agree(lambda a: torch.zeros(3, 4, device=a.device).copy_(a), values((4,), torch.float32))
    agree(lambda a: torch.zeros(3, 4, device=a.device).copy_(a), values((3, 1), torch.float32))
    agree(lambda a: torch.zeros(3, 4, device=a.device).copy_(a), values((), torch.float32))
    agree(lambda a: torch.zeros(3, 4, device=a.device).copy_(a), values((3,), torch.float32))
    assert torch.equal(
        torch.zeros(3, 4).copy_(values((4,), torch.float32).to(DEVICE)), values((4,), torch.float32).expand(3, 4)
    )


def test_to_keeps_identity_where_nothing_changes_and_copies_on_request() -> None:
    x = torch.ones(3, device=DEVICE)
    assert x.to(DEVICE) is x
    assert x.to(torch.float32) is x
    assert x.float() is x
    assert x.to(DEVICE, copy=True) is not x
    assert x.to(torch.ones(1, device=DEVICE)) is x
    assert x.to("cpu").device.type == "cpu"
    assert x.cpu().to(x.device).device == x.device
    assert x.to(torch.float64, non_blocking=True).dtype == torch.float64


def test_type_methods() -> None:
    x = values((2, 3), torch.float32)
    for name in ("half", "bfloat16", "float", "double", "int", "long", "short", "char", "byte", "bool", "cfloat"):
        agree(lambda a, n=name: getattr(a.abs(), n)(), x)
    agree(lambda a: a.type_as(torch.ones(1, dtype=torch.float64, device=a.device)), x)
    agree(lambda a: a.view(torch.uint8), x)
    agree(lambda a: a.to(torch.complex64).real, x)


def test_tensors_become_lists_arrays_and_text() -> None:
    x = values((2, 3), torch.float32)
    assert x.to(DEVICE).tolist() == x.tolist()
    assert (x.to(DEVICE).cpu().numpy() == x.numpy()).all()
    if DEVICE != "cpu":
        with pytest.raises(TypeError):
            x.to(DEVICE).numpy()
    text = repr(x.to(DEVICE))
    assert repr(x)[:-1] in text.replace(f", device='{x.to(DEVICE).device}'", "") or DEVICE == "cpu"
