# SPDX-License-Identifier: Apache-2.0
"""out= arguments, in-place forms, and memory that overlaps: results, warnings and errors are the CPU's."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch

from tests.behaviour.agree import DEVICE, HIDDEN_KERNELS, agree, agree_gradients, values

OUT_CALLS: dict[str, Callable[..., Any]] = {
    "add": lambda x, out: torch.add(x, x, out=out),
    "abs": lambda x, out: torch.abs(x, out=out),
    "mm": lambda x, out: torch.mm(x, x.t(), out=out),
    "sum": lambda x, out: torch.sum(x, 0, out=out),
    "cat": lambda x, out: torch.cat([x, x], out=out),
    "gather": lambda x, out: torch.gather(x, 0, torch.zeros(2, 3, dtype=torch.long, device=x.device), out=out),
    "erfinv on the host": lambda x, out: torch.special.bessel_j0(x, out=out),
    "clamp": lambda x, out: torch.clamp(x, 0, 1, out=out),
    "cumsum": lambda x, out: torch.cumsum(x, 1, out=out),
    "index_select": lambda x, out: torch.index_select(x, 0, torch.tensor([1, 0], device=x.device), out=out),
    "arange": lambda x, out: torch.arange(6, out=out),
    "nonzero": lambda x, out: torch.nonzero(x > 0, out=out.long()),
    "nan_to_num": lambda x, out: torch.nan_to_num(x, out=out),
    "conj_physical": lambda x, out: torch.conj_physical(x, out=out),
    "logsigmoid": lambda x, out: torch._C._nn.log_sigmoid(x, out=out),
    "linspace": lambda x, out: torch.linspace(0, 1, 6, out=out),
    "addr": lambda x, out: torch.addr(x, x[:, 0], x[0], out=out),
}
SHAPES = [(0,), (0, 2), (2, 3), (2, 2), (3,), (4, 3), (7,), (1, 1, 1)]


def _with_warnings(function: Callable[..., Any], *args: Any) -> tuple[Any, list[str]]:
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        result = function(*args)
    return result, [str(item.message).split("(Triggered")[0] for item in seen if "resized" in str(item.message)]


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("name", OUT_CALLS)
def test_out_is_resized_with_the_stock_warning(name: str, shape: tuple[int, ...]) -> None:
    x = values((2, 3), torch.float32)
    expected, texts = _with_warnings(OUT_CALLS[name], x, torch.ones(shape))
    out = torch.ones(shape, device=DEVICE)
    found, found_texts = _with_warnings(OUT_CALLS[name], x.to(DEVICE), out)
    assert found_texts == texts
    assert found.shape == expected.shape
    assert found.stride() == expected.stride()
    torch.testing.assert_close(found.cpu(), expected, rtol=1e-5, atol=1e-5)
    if name != "nonzero":
        assert found is out


@pytest.mark.parametrize("dtype", [torch.float64, torch.float16, torch.int64, torch.bool, torch.complex64])
@pytest.mark.parametrize("name", [name for name in OUT_CALLS if name != "nonzero"])
def test_out_of_another_type(name: str, dtype: torch.dtype) -> None:
    def call(x: torch.Tensor) -> Any:
        return OUT_CALLS[name](x, torch.zeros(0, dtype=dtype, device=x.device))

    agree(call, values((2, 3), torch.float32), tolerance=(1e-2, 1e-2))


WIDER: dict[str, Callable[[torch.Tensor, torch.Tensor], Any]] = {
    "add": lambda x, out: torch.add(x, x, out=out),
    "mul": lambda x, out: torch.mul(x, x, out=out),
    "sub": lambda x, out: torch.sub(x, 3, out=out),
    "square": lambda x, out: torch.pow(x, 2, out=out),
    "div": lambda x, out: torch.div(x, 3, out=out),
    "reciprocal": lambda x, out: torch.reciprocal(x, out=out),
    "rsqrt": lambda x, out: torch.rsqrt(x, out=out),
    "sin": lambda x, out: torch.sin(x, out=out),
    "logical_not": lambda x, out: torch.logical_not(x, out=out),
}


@pytest.mark.parametrize("wide", [torch.float32, torch.float64, torch.complex128])
@pytest.mark.parametrize("dtype", [torch.bool, torch.uint8, torch.int64])
@pytest.mark.parametrize("name", WIDER)
def test_a_wider_out_does_not_widen_the_computation(name: str, dtype: torch.dtype, wide: torch.dtype) -> None:
    """Integers wrap, and what needs a floating-point type computes in the default one, whatever out= could hold."""
    x = torch.tensor([0, 1, 100, 200]).to(dtype)
    agree(lambda a: WIDER[name](a, torch.zeros(4, dtype=wide, device=a.device)), x)


FRESH: dict[str, Callable[[torch.Tensor, torch.Tensor], Any]] = {
    "conj_physical": lambda x, out: torch.conj_physical(x, out=out),
    "abs": lambda x, out: torch.abs(x, out=out),
    "nan_to_num": lambda x, out: torch.nan_to_num(x, out=out),
    "where": lambda x, out: torch.where(x > 0, x, x, out=out),
    "neg": lambda x, out: torch.neg(x, out=out),
    "cumsum": lambda x, out: torch.cumsum(x, 1, out=out),
    "sort": lambda x, out: torch.sort(x, out=(out, torch.zeros(0, dtype=torch.long, device=x.device))),
    "take": lambda x, out: torch.take(x, torch.zeros(3, 2, dtype=torch.long, device=x.device).t(), out=out),
    "ifft": lambda x, out: torch.fft.ifft(x, dim=0, out=out.cfloat()),
}


@pytest.mark.parametrize("name", FRESH)
def test_a_fresh_out_gets_the_strides_of_the_cpu(name: str) -> None:
    agree(lambda x: FRESH[name](x, torch.zeros(0, device=x.device)), values((4, 3), torch.float32).t(), strides=True)


def test_random_out_is_resized_without_a_warning() -> None:
    for device in ("cpu", DEVICE):
        call = lambda out, d=device: torch.bernoulli(torch.ones(3, device=d), out=out)  # noqa: E731
        found, texts = _with_warnings(call, torch.zeros(3, 2, device=device))
        assert found.tolist() == [1, 1, 1]
        assert not texts


def test_out_of_every_layout() -> None:
    def strided(x: torch.Tensor) -> torch.Tensor:
        return torch.add(x, 1, out=torch.zeros(3, 2, device=x.device).t())

    def into_a_slice(x: torch.Tensor) -> torch.Tensor:
        whole = torch.zeros(4, 6, device=x.device)
        torch.mm(x, x.t(), out=whole[1:3, ::3])
        return whole

    def channels_last(x: torch.Tensor) -> torch.Tensor:
        out = torch.zeros(1, 2, 3, 1, device=x.device).to(memory_format=torch.channels_last)
        return torch.mul(x[None, ..., None], 2, out=out)

    def expanded(x: torch.Tensor) -> torch.Tensor:
        return torch.add(x, 1, out=torch.zeros(1, 3, device=x.device).expand(2, 3))

    for function in (strided, into_a_slice, channels_last, expanded):
        agree(function, values((2, 3), torch.float32), strides=True)


def test_out_that_is_an_input() -> None:
    agree(lambda x: torch.add(x, x, out=x), values((2, 3), torch.float32))
    agree(lambda x: torch.cumsum(x, 0, out=x), values((3, 3), torch.float32))
    agree(lambda x: torch.cat([x, x], out=x), values((3, 3), torch.float32))
    for function in (torch.take, torch.index_select, torch.gather):
        dim = () if function is torch.take else (0,)
        index = torch.tensor([1, 0, 2])
        agree(lambda x, i, f=function, d=dim: f(x, *d, i, out=x), values((3,), torch.float32), index)
        agree(lambda x, i, f=function, d=dim: f(x, *d, i, out=i), torch.tensor([5, 6, 7]), index)


@pytest.mark.skipif(HIDDEN_KERNELS, reason="the host does what the CPU does")
def test_products_onto_their_inputs() -> None:
    """What the CPU makes of these depends on the processor: its library writes zeros first on some."""
    x = values((3, 3), torch.float32)
    here = x.to(DEVICE)
    torch.testing.assert_close(torch.mm(here, here, out=here).cpu(), x @ x)
    here = x.to(DEVICE)
    torch.testing.assert_close(here.addmm_(here, here).cpu(), x + x @ x)


def test_out_that_requires_grad_is_refused() -> None:
    agree(
        lambda x: torch.add(x, x, out=torch.zeros(2, 3, device=x.device, requires_grad=True)),
        values((2, 3), torch.float32),
    )


OVERLAPS: dict[str, Callable[[torch.Tensor], Any]] = {
    "shifted add": lambda x: x[1:].add_(x[:-1]),
    "shifted copy": lambda x: x[1:].copy_(x[:-1]),
    "shifted mul out": lambda x: torch.mul(x[:-1], 2, out=x[1:]),
    "expanded in place": lambda x: x[:1].expand(6).add_(1),
    "expanded fill": lambda x: x[:1].expand(6).fill_(1),
    "expanded zero": lambda x: x[:1].expand(6).zero_(),
    "expanded copy": lambda x: x[:1].expand(6).copy_(torch.arange(6.0, device=x.device)),
    "expanded relu_": lambda x: x[:1].expand(6).relu_(),
    "expanded index_put": lambda x: x[:1].expand(6).index_put_((torch.tensor([0], device=x.device),), x[5]),
    "expanded random": lambda x: x[:1].expand(6).uniform_(),
    "expanded masked_fill": lambda x: x[:1].expand(6).masked_fill_(x > 0, 1),
    "expanded scatter": lambda x: x[:1].expand(6).scatter_(0, torch.tensor([1], device=x.device), x[:1]),
    "overlapping as_strided": lambda x: x.as_strided((3, 3), (1, 1)).add_(1),
    "transposed onto itself": lambda x: x[:4].view(2, 2).add_(x[:4].view(2, 2).t()),
    "cat into an input": lambda x: torch.cat([x[:3], x[:3]], out=x),
    "sort out": lambda x: torch.sort(x, out=(x, torch.empty(6, dtype=torch.long, device=x.device))),
    "same tensor": lambda x: x.add_(x),
    "pow of itself": lambda x: x.pow_(x),
    "lerp of itself": lambda x: x.lerp_(x, 0.5),
    "addcmul of itself": lambda x: x.addcmul_(x, x),
    "bernoulli of itself": lambda x: x.abs_().clamp_(0, 1).mul_(0).bernoulli_(x),
}


@pytest.mark.parametrize("name", OVERLAPS)
def test_overlapping_memory(name: str) -> None:
    agree(OVERLAPS[name], torch.arange(1.0, 7.0))


def test_inplace_forms_refuse_what_the_cpu_refuses() -> None:
    x = values((2, 3), torch.int32)
    agree(lambda a: a.add_(2.5), x)
    agree(lambda a: a.div_(2), x)
    agree(lambda a: a.add_(torch.ones(4, 2, 3, dtype=a.dtype, device=a.device)), x)
    agree(lambda a: a.sqrt_(), x)
    agree(lambda a: a.add_(1 + 2j), x)
    agree(lambda a: a.float().requires_grad_().add_(1), x)
    agree(lambda a: a.float().requires_grad_()[0].add_(1), x)


@pytest.mark.skipif(HIDDEN_KERNELS, reason="PyTorch's composite addr_ resizes its argument")
@pytest.mark.parametrize("dtype", [torch.int32, torch.float32])
def test_inplace_forms_do_not_broadcast_their_argument(dtype: torch.dtype) -> None:
    for function in (lambda a: a[0, 0].addr_(a[0], a[0]), lambda a: a[0].addr_(a[:, 0], a[0])):
        agree(function, values((2, 3), dtype))


def test_inplace_changes_versions_and_is_seen_by_autograd() -> None:
    x = torch.ones(3, device=DEVICE, requires_grad=True)
    y = x * 2
    z = y.exp()
    z.add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        z.sum().backward()
    t = torch.zeros(2, device=DEVICE)
    version = t._version
    t.add_(1).bessel = None  # the tensor returned is the tensor itself
    assert t.bessel is None
    assert t._version == version + 1
    torch.special.bessel_j0(t, out=t)
    assert t._version > version + 1
    agree_gradients(lambda a: (a * 2).add_(1).mul_(3).relu_(), values((2, 3), torch.float64))
    agree_gradients(
        lambda a: (
            torch.zeros(4, 3, device=a.device, dtype=a.dtype).index_copy_(0, torch.arange(2, device=a.device), a) * 2
        ),
        values((2, 3), torch.float64),
    )


def test_resize_keeps_what_was_there() -> None:
    x = torch.arange(6.0, device=DEVICE)
    pointer = x.data_ptr()
    x.resize_(2, 2)
    assert x.tolist() == [[0, 1], [2, 3]]
    assert x.data_ptr() == pointer
    x.resize_(9)
    assert x[:6].tolist() == [0, 1, 2, 3, 4, 5]
    x.resize_(0)
    assert x.numel() == 0
    assert x.sum().item() == 0
    agree(lambda a: a.t().resize_(3, 3)[:1], values((3, 3), torch.float32))
    agree(lambda a: a.set_(torch.ones(4, device=a.device)), values((3, 3), torch.float32), views=False)
    agree(lambda a: a.resize_as_(torch.ones(1, 2, device=a.device)), values((3, 3), torch.float32))
    storage = torch.arange(4.0, device=DEVICE).untyped_storage()
    storage.resize_(32)
    assert storage.nbytes() == 32
    assert torch.empty(0, device=DEVICE).set_(storage)[:4].tolist() == [0, 1, 2, 3]
