# SPDX-License-Identifier: Apache-2.0
"""Factories and copies: the default device, one that is not, and every way of naming it."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from tests.behaviour.agree import DEVICE, agree, values
from tests.harness import device as harness

two_devices = pytest.mark.skipif(harness.is_stock(), reason="needs two devices of sim")

FACTORIES: dict[str, Callable[..., torch.Tensor]] = {
    "empty": lambda **k: torch.empty(2, 3, **k).fill_(1),
    "empty_strided": lambda **k: torch.empty_strided((2, 3), (1, 2), **k).fill_(1),
    "empty_permuted": lambda **k: torch.empty_permuted((2, 3), (1, 0), **k).fill_(1),
    "zeros": lambda **k: torch.zeros(2, 3, **k),
    "ones": lambda **k: torch.ones(2, 3, **k),
    "full": lambda **k: torch.full((2, 3), 7, **k),
    "arange": lambda **k: torch.arange(7, **k),
    "arange with step": lambda **k: torch.arange(1, 9, 2, **k),
    "linspace": lambda **k: torch.linspace(0, 1, 5, **k),
    "logspace": lambda **k: torch.logspace(0, 1, 5, **k),
    "eye": lambda **k: torch.eye(3, 4, **k),
    "tensor": lambda **k: torch.tensor([[1, 2], [3, 4]], **k),
    "as_tensor": lambda **k: torch.as_tensor([1, 2], **k),
    "scalar_tensor": lambda **k: torch.scalar_tensor(3, **k),
    "tril_indices": lambda **k: torch.tril_indices(3, 3, **{n: v for n, v in k.items() if n != "dtype"}),
    "hann_window": lambda **k: torch.hann_window(5, **k),
    "kaiser_window": lambda **k: torch.kaiser_window(5, **k),
    "vander": lambda **k: torch.vander(torch.tensor([1.0, 2.0], **k)),
    "complex": lambda **k: torch.complex(torch.ones(2, **k), torch.zeros(2, **k)),
    "from list of tensors": lambda **k: torch.stack([torch.ones(2, **k), torch.zeros(2, **k)]),
    "meshgrid": lambda **k: torch.meshgrid(torch.arange(2, **k), torch.arange(3, **k), indexing="ij")[0],
    "randperm": lambda **k: torch.randperm(5, **{n: v for n, v in k.items() if n != "dtype"}).sort()[0],
}


@pytest.mark.parametrize("name", FACTORIES)
@pytest.mark.parametrize("dtype", [None, torch.float64])
def test_factories_agree(name: str, dtype: torch.dtype | None) -> None:
    kwargs = {} if dtype is None else {"dtype": dtype}
    agree(lambda d: FACTORIES[name](device=d, **kwargs), torch.device("cpu"), strides=True)


@pytest.mark.parametrize("length", [0, 1, 2, 3, 400])
@pytest.mark.parametrize("periodic", [True, False])
@pytest.mark.parametrize("beta", [12.0, 3.5, 0.0])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_kaiser_windows(length: int, periodic: bool, beta: float, dtype: torch.dtype) -> None:
    found = torch.kaiser_window(length, periodic, beta, dtype=dtype, device=DEVICE)
    exact = torch.kaiser_window(length, periodic, beta, dtype=torch.float64)
    eps = torch.finfo(dtype).eps
    torch.testing.assert_close(found.cpu(), exact.to(dtype), rtol=8 * eps, atol=length * eps)
    assert found.device.type == torch.device(DEVICE).type


@two_devices
@pytest.mark.parametrize("name", FACTORIES)
def test_factories_on_a_device_that_is_not_current(name: str) -> None:
    before = torch.accelerator.current_device_index()
    made = FACTORIES[name](device="fl:1")
    assert made.device == torch.device("fl:1")
    torch.testing.assert_close(made.cpu(), FACTORIES[name](device="cpu"))
    assert torch.accelerator.current_device_index() == before


@two_devices
@pytest.mark.parametrize("name", FACTORIES)
def test_factories_follow_the_default_device(name: str) -> None:
    with torch.device("fl:1"):
        made = FACTORIES[name]()
    assert made.device == torch.device("fl:1")


@two_devices
def test_like_and_new_factories_stay_on_their_tensors_device() -> None:
    x = torch.ones(2, 3, device="fl:1")
    for made in (
        torch.empty_like(x),
        torch.zeros_like(x),
        torch.ones_like(x),
        torch.full_like(x, 2),
        torch.rand_like(x),
        torch.randn_like(x),
        torch.randint_like(x, 5),
        x.new_empty(2),
        x.new_zeros(2),
        x.new_ones(2),
        x.new_full((2,), 3),
        x.new_tensor([1, 2]),
        x + 1,
        x.double(),
        x.to(torch.float16),
        x.bool(),
        x.clone(),
        x.sum(),
        x @ x.t(),
        x > 0,
        x.to(torch.complex64),
        x[x > 0],
        torch.where(x > 0, 1.0, x),
        torch.cat([x, x]),
        x.nonzero(),
        x.unique(),
        x.sort()[1],
    ):
        assert made.device == torch.device("fl:1")


@two_devices
def test_casts_on_a_device_that_is_not_current_keep_values() -> None:
    x = values((3, 4), torch.float32)
    for dtype in (torch.float64, torch.float16, torch.int32, torch.bool, torch.complex64):
        assert torch.equal(x.to("fl:1").to(dtype).cpu(), x.to(dtype))
        assert torch.equal(x.to("fl:1", dtype).cpu(), x.to(dtype))
        assert torch.equal(x.to("fl:0").to("fl:1", dtype).cpu(), x.to(dtype))


@two_devices
def test_every_way_to_name_a_device() -> None:
    x = torch.arange(3.0)
    for where in ("fl", "fl:0", 0, torch.device("fl"), torch.device("fl", 0), torch.device(0)):
        assert x.to(where).device == torch.device("fl:0"), where
    for where in ("fl:1", 1, torch.device("fl", 1), torch.device(1)):
        assert x.to(where).device == torch.device("fl:1"), where
    assert x.fl().device == torch.device("fl:0")
    assert x.fl(1).device == torch.device("fl:1")
    assert x.fl().is_fl
    assert not x.is_fl
    assert torch.nn.Linear(2, 2).to(1).weight.device == torch.device("fl:1")


@two_devices
def test_the_current_device_is_where_fl_without_an_index_goes() -> None:
    torch.fl.set_device(1)
    try:
        assert torch.ones(1, device="fl").device == torch.device("fl:1")
        assert torch.ones(1).to("fl").device == torch.device("fl:1")
    finally:
        torch.fl.set_device(0)
    with torch.fl.device(1):
        assert torch.ones(1, device="fl").device == torch.device("fl:1")
    assert torch.ones(1, device="fl").device == torch.device("fl:0")


@two_devices
@pytest.mark.parametrize("where", ["fl:2", "fl:99"])
def test_a_device_that_does_not_exist_is_a_clear_error(where: str) -> None:
    with pytest.raises((RuntimeError, ValueError, IndexError), match=r"(?i)device"):
        torch.ones(1, device=where)
    with pytest.raises((RuntimeError, ValueError, IndexError), match=r"(?i)device"):
        torch.ones(1).to(where)
    assert torch.ones(2, device=DEVICE).sum().item() == 2


def test_bad_sizes_raise_what_the_cpu_raises() -> None:
    cpu = torch.device("cpu")
    agree(lambda d: torch.empty(-1, device=d), cpu)
    agree(lambda d: torch.zeros(2, -3, device=d), cpu)
    agree(lambda d: torch.empty_strided((2,), (-1,), device=d), cpu)
    agree(lambda d: torch.arange(5, 1, device=d), cpu)
    agree(lambda d: torch.arange(0, 1, 0, device=d), cpu)
    agree(lambda d: torch.full((2,), 1 + 2j, dtype=torch.float32, device=d), cpu)


def test_deterministic_fill_of_uninitialised_memory() -> None:
    torch.use_deterministic_algorithms(True)
    try:
        assert torch.empty(4, device=DEVICE).isnan().all()
        assert (torch.empty(4, dtype=torch.int32, device=DEVICE) == torch.iinfo(torch.int32).max).all()
        assert torch.empty_strided((2, 2), (1, 2), device=DEVICE).isnan().all()
        grown = torch.ones(2, device=DEVICE).resize_(5)
        assert grown[2:].isnan().all()
        assert (grown[:2] == 1).all()
    finally:
        torch.use_deterministic_algorithms(False)
