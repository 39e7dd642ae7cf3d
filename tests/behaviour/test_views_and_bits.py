# SPDX-License-Identifier: Apache-2.0
"""Views alias, lazy conj and neg bits are applied, strided arguments are read in their own order."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F

from tests.behaviour.agree import COMPLEXES, DEVICE, FLOATS, agree, agree_gradients, short, values

VIEWS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "view": lambda x: x.view(3, 8),
    "reshape": lambda x: x.reshape(6, 4),
    "transpose": lambda x: x.t(),
    "permute": lambda x: x.view(2, 3, 4).permute(2, 0, 1),
    "select": lambda x: x[1],
    "slice": lambda x: x[:, 1:5:2],
    "narrow": lambda x: x.narrow(1, 2, 3),
    "narrow to nothing": lambda x: x.narrow(1, 0, 0),
    "unsqueeze": lambda x: x.unsqueeze(1),
    "squeeze": lambda x: x[:1].squeeze(0),
    "expand": lambda x: x[:, None].expand(4, 5, 6),
    "diagonal": lambda x: x.diagonal(1),
    "as_strided": lambda x: x.as_strided((2, 3), (1, 2), 4),
    "unfold": lambda x: x.unfold(1, 3, 3),
    "overlapping unfold": lambda x: x.unfold(1, 3, 2),
    "view_as_real of complex": lambda x: torch.view_as_real(torch.view_as_complex(x.view(4, 3, 2))),
    "view dtype": lambda x: x.view(torch.int32),
    "split": lambda x: x.split([1, 5], dim=1)[1],
    "chunk": lambda x: x.chunk(2)[1],
    "unbind": lambda x: x.unbind(1)[2],
    "swapaxes": lambda x: x.swapaxes(0, 1),
    "movedim": lambda x: x.view(2, 3, 4).movedim(0, 2),
    "detach": lambda x: x.detach(),
    "T of slice": lambda x: x[1:3].T,
    "view_as": lambda x: x.view_as(torch.empty(2, 12)),
    "tensor_split": lambda x: x.tensor_split(3)[1],
    "flatten": lambda x: x.flatten(),
    "unflatten": lambda x: x.unflatten(1, (2, 3)),
    "real": lambda x: torch.view_as_complex(x.view(4, 3, 2)).real,
    "imag": lambda x: torch.view_as_complex(x.view(4, 3, 2)).imag,
}


@pytest.mark.parametrize("name", VIEWS)
def test_views_alias_and_read_right(name: str) -> None:
    agree(VIEWS[name], values((4, 6), torch.float32), strides=True, may_raise=False)


@pytest.mark.parametrize("name", [name for name in VIEWS if name not in ("view dtype", "expand", "overlapping unfold")])
def test_writes_through_views_reach_the_base(name: str) -> None:
    def write(x: torch.Tensor) -> torch.Tensor:
        VIEWS[name](x).mul_(3).add_(1)
        return x

    agree(write, values((4, 6), torch.float32), may_raise=False)


@pytest.mark.parametrize(
    "name", ["transpose", "slice", "expand", "unfold", "as_strided", "diagonal", "narrow to nothing"]
)
def test_gradients_through_views(name: str) -> None:
    agree_gradients(lambda x: VIEWS[name](x) * 2, values((4, 6), torch.float64))


@pytest.mark.parametrize("shape", [(3,), (3, 4), (2, 3, 4)])
def test_backward_of_a_narrow_to_zero_size(shape: tuple[int, ...]) -> None:
    agree_gradients(lambda x: x.narrow(len(shape) - 1, 0, 0), torch.ones(shape))
    agree_gradients(lambda x: x[:0], torch.ones(shape))
    agree_gradients(lambda x: torch.cat([x[:0], x]), torch.ones(shape))


@pytest.mark.parametrize("dtype", COMPLEXES, ids=short)
def test_lazy_conjugates(dtype: torch.dtype) -> None:
    x, y = values((3, 4), dtype), values((3, 4), dtype, 1)
    for function in (
        lambda a: a.conj().resolve_conj(),
        lambda a: a.conj(),
        lambda a: a.conj().clone(),
        lambda a: a.conj() + 1,
        lambda a: a.conj().imag,
        lambda a: a.imag,
        lambda a: a.conj().t().contiguous(),
        lambda a: a.conj().conj(),
        lambda a: a.mH,
        lambda a: a.conj().to(torch.complex128),
        lambda a: torch.empty_like(a).copy_(a.conj()),
        lambda a: torch.view_as_real(a.conj().resolve_conj()),
        lambda a: a.conj().sum(0),
        lambda a: a.conj().abs(),
        lambda a: torch.stack([a.conj(), a]),
    ):
        agree(function, x, views=False, may_raise=False)
    for function in (lambda a, b: a.conj() * b, lambda a, b: a @ b.mH, lambda a, b: torch.vdot(a[0], b[0])):
        agree(function, x, y, tolerance=(1e-5, 1e-5), may_raise=False)


@pytest.mark.parametrize("dtype", COMPLEXES, ids=short)
def test_writing_through_lazy_conjugates(dtype: torch.dtype) -> None:
    def add(a: torch.Tensor) -> torch.Tensor:
        a.conj().add_(1 + 2j)
        return a

    def copy(a: torch.Tensor) -> torch.Tensor:
        a.conj().copy_(torch.full_like(a, 3 - 1j))
        return a

    def imaginary(a: torch.Tensor) -> torch.Tensor:
        a.conj().imag.zero_()
        return a

    for function in (add, copy, imaginary):
        agree(function, values((3, 4), dtype), may_raise=False)


@pytest.mark.parametrize("dtype", [*FLOATS, *COMPLEXES], ids=short)
def test_lazy_negatives(dtype: torch.dtype) -> None:
    for function in (
        lambda a: torch._neg_view(a).resolve_neg(),
        lambda a: torch._neg_view(a) * 2,
        lambda a: torch._neg_view(a).clone(),
        lambda a: torch.empty_like(a).copy_(torch._neg_view(a)),
        lambda a: torch._neg_view(a)[1:].sum(),
        lambda a: torch._neg_view(a).to(torch.float64 if not a.is_complex() else torch.complex128),
    ):
        agree(function, values((3, 4), dtype), views=False, may_raise=False)


def test_conjugates_keep_their_bit_on_the_way_to_the_host_and_back() -> None:
    x = torch.tensor([1 + 2j, 3 - 4j])
    assert torch.equal(x.to(DEVICE).conj().cpu(), x.conj())
    assert torch.equal(x.conj().to(DEVICE).cpu(), x.conj())
    assert x.to(DEVICE).conj()[0].item() == 1 - 2j
    assert x.to(DEVICE).conj().tolist() == [1 - 2j, 3 + 4j]


@pytest.mark.parametrize("function", [F.softmax, F.log_softmax, torch.logsumexp, torch.argmax, torch.sum, torch.cumsum])
def test_reductions_of_views(function: Callable[..., torch.Tensor]) -> None:
    logits = values((2, 5, 7), torch.float32)
    for view in (
        lambda x: x[:, -1, :],
        lambda x: x.transpose(1, 2),
        lambda x: x[:1].expand(3, 5, 7),
        lambda x: x[:, ::2, 1:],
        lambda x: x.permute(2, 0, 1),
        lambda x: x[..., 0],
        lambda x: x[:, :0],
    ):
        agree(lambda x, v=view: function(v(x), -1), logits, tolerance=(1e-5, 1e-5))


@pytest.mark.parametrize("function", [F.softmax, F.log_softmax, torch.cumsum])
def test_gradients_of_reductions_of_views(function: Callable[..., torch.Tensor]) -> None:
    agree_gradients(lambda x: function(x[:, -1, :], -1).square(), values((2, 5, 7), torch.float64))
    agree_gradients(lambda x: function(x.transpose(1, 2), -1).square(), values((2, 5, 7), torch.float64))


@pytest.mark.parametrize("norm", ["layer", "batch", "group"])
def test_normalisation_of_views(norm: str) -> None:
    functions = {
        "layer": lambda x: F.layer_norm(x.transpose(1, 2), (x.shape[1],)),
        "batch": lambda x: F.batch_norm(x.transpose(0, 1), None, None, training=True),
        "group": lambda x: F.group_norm(x[:, ::2], 2),
    }
    agree(functions[norm], values((3, 8, 6), torch.float32), tolerance=(1e-4, 1e-5), may_raise=False)


@pytest.mark.parametrize("repeats", [(2,), (1, 1), (2, 3), (0, 2), (2, 1, 3)])
def test_repeat(repeats: tuple[int, ...]) -> None:
    agree(lambda x: x.repeat(*repeats), values((3,) if len(repeats) == 1 else (2, 3), torch.int64))
    agree(lambda x: x.t().repeat(*repeats), values((2, 3), torch.float32))


def test_repeat_interleave_tile_and_roll() -> None:
    x = values((3, 4), torch.float32)
    for function in (
        lambda a: a.repeat_interleave(2),
        lambda a: a.repeat_interleave(3, dim=1),
        lambda a: torch.tile(a, (2, 2)),
        lambda a: a.roll(1, 0),
        lambda a: a.flip(0, 1),
        lambda a: a.rot90(),
    ):
        agree(function, x, may_raise=False)


@pytest.mark.parametrize(("size", "step"), [(1, 1), (2, 1), (3, 2), (5, 1), (6, 1)])
def test_unfold(size: int, step: int) -> None:
    agree(lambda x: x.unfold(0, size, step), values((5, 2), torch.float32), strides=True)
    agree(lambda x: F.unfold(x, (2, 2), stride=step), values((1, 2, 4, 4), torch.float32))


def test_as_strided_overlapping_offset_and_out_of_bounds() -> None:
    x = torch.arange(10.0)
    agree(lambda a: a.as_strided((3, 3), (1, 1)), x)
    agree(lambda a: a.as_strided((2, 2), (4, 1), 3), x)
    agree(lambda a: a[2:].as_strided((2,), (2,)), x)
    agree(lambda a: a.as_strided((2,), (1,), 20) + 0, x)
    agree(lambda a: torch.as_strided_copy(a, (2, 2), (1, 3), 1), x)
    agree(lambda a: a.as_strided_scatter(torch.zeros(2, device=a.device), (2,), (3,), 1), x)


def test_channels_last_is_kept() -> None:
    x = values((2, 3, 4, 5), torch.float32).to(memory_format=torch.channels_last)
    for function in (
        lambda a: a + 1,
        lambda a: a.relu(),
        lambda a: a.to(memory_format=torch.contiguous_format),
        lambda a: a.contiguous(memory_format=torch.channels_last),
        lambda a: F.max_pool2d(a, 2),
        lambda a: F.conv2d(a, torch.ones(2, 3, 3, 3, device=a.device), padding=1),
        lambda a: torch.empty_like(a).fill_(1),
        lambda a: a.clone(),
    ):
        agree(function, x, strides=True, tolerance=(1e-5, 1e-5), may_raise=False)


COPIES: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "as_strided_copy": lambda x: torch.as_strided_copy(x, (2, 3), (7, 1), 3),
    "as_strided_copy at the start": lambda x: torch.as_strided_copy(x, (1,), (1,), 0),
    "as_strided_scatter": lambda x: torch.as_strided_scatter(x, x[0, :2] * 2, (2,), (3,), 4),
    "slice_scatter": lambda x: torch.slice_scatter(x, x[:1] * 2, 0, 1, 2),
    "select_scatter": lambda x: torch.select_scatter(x, x[0] * 2, 0, 1),
    "diagonal_scatter": lambda x: torch.diagonal_scatter(x, x[0] * 2),
    "select_backward": lambda x: torch.ops.aten.select_backward(x[0], (3, 2), 0, 1),
    "diag_embed": lambda x: torch.diag_embed(x),
    "permute_copy": lambda x: torch.permute_copy(x, (1, 0)),
    "expand_copy": lambda x: torch.expand_copy(x[:, :1], (3, 4)),
    "unfold_copy": lambda x: torch.unfold_copy(x, 0, 2, 1),
    "slice_copy": lambda x: torch.slice_copy(x, 1, 0, 1),
    "view_as_real_copy": lambda x: torch.view_as_real_copy(torch.complex(x, x)),
    "new_empty_strided": lambda x: x.new_empty_strided((2, 3), (7, 8)).fill_(1),
}


@pytest.mark.parametrize("name", COPIES)
def test_copies_of_views_see_the_whole_storage(name: str) -> None:
    """The argument has gaps and an offset; what lies around it can be read through a copy of another view."""

    def call(whole: torch.Tensor) -> torch.Tensor:
        return COPIES[name](whole[1:4, 1::2])

    agree(call, values((5, 5), torch.float32), strides=True, may_raise=False)
