# SPDX-License-Identifier: Apache-2.0
"""Random numbers: from the seed alone, the same on every device and every route, with plausible distributions."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F

from tests.behaviour.agree import DEVICE, HIDDEN_KERNELS, attempt
from tests.harness import device as harness

ROOT = Path(__file__).resolve().parents[2]
Draw = Callable[[str], torch.Tensor]

DRAWS: dict[str, Draw] = {
    "rand": lambda d: torch.rand(1001, device=d),
    "rand float64": lambda d: torch.rand(1001, device=d, dtype=torch.float64),
    "rand float16": lambda d: torch.rand(1001, device=d, dtype=torch.float16),
    "rand bfloat16": lambda d: torch.rand(1001, device=d, dtype=torch.bfloat16),
    "randn": lambda d: torch.randn(1001, device=d),
    "randn float64": lambda d: torch.randn(1001, device=d, dtype=torch.float64),
    "randn complex64": lambda d: torch.randn(1001, device=d, dtype=torch.complex64),
    "randint": lambda d: torch.randint(0, 10, (1001,), device=d),
    "randint large": lambda d: torch.randint(-(2**40), 2**40, (1001,), device=d),
    "randperm": lambda d: torch.randperm(101, device=d),
    "uniform_": lambda d: torch.empty(1001, device=d).uniform_(-2, 3),
    "normal_": lambda d: torch.empty(1001, device=d).normal_(1, 2),
    "normal of tensors": lambda d: torch.normal(torch.zeros(1001, device=d), torch.ones(1001, device=d)),
    "bernoulli": lambda d: torch.bernoulli(torch.full((1001,), 0.3, device=d)),
    "bernoulli_": lambda d: torch.empty(1001, device=d).bernoulli_(0.3),
    "random_": lambda d: torch.empty(1001, device=d, dtype=torch.int32).random_(),
    "exponential_": lambda d: torch.empty(1001, device=d).exponential_(2),
    "geometric_": lambda d: torch.empty(1001, device=d).geometric_(0.3),
    "cauchy_": lambda d: torch.empty(1001, device=d).cauchy_(),
    "log_normal_": lambda d: torch.empty(1001, device=d).log_normal_(),
    "multinomial": lambda d: torch.multinomial(torch.ones(20, device=d), 1001, replacement=True),
    "multinomial without replacement": lambda d: torch.multinomial(torch.ones(20, device=d), 5),
    "poisson": lambda d: torch.poisson(torch.full((1001,), 3.0, device=d)),
    "binomial": lambda d: torch.binomial(torch.full((1001,), 10.0, device=d), torch.full((1001,), 0.3, device=d)),
    "gamma": lambda d: torch._standard_gamma(torch.full((1001,), 2.0, device=d)),
    "dropout": lambda d: F.dropout(torch.ones(1001, device=d), 0.3),
    "alpha_dropout": lambda d: F.alpha_dropout(torch.ones(1001, device=d), 0.3, training=True),
    "dropout2d": lambda d: F.dropout2d(torch.ones(1, 101, 2, 2, device=d), 0.3),
    "rrelu": lambda d: F.rrelu(-torch.ones(1001, device=d), training=True),
    "rand_like of strided": lambda d: torch.rand_like(torch.empty(7, 11, device=d).t()),
    "uniform_ on strided": lambda d: torch.zeros(40, 50, device=d)[:, ::2].uniform_(),
    "gumbel_softmax": lambda d: F.gumbel_softmax(torch.ones(101, 3, device=d), hard=True),
    "kaiming": lambda d: torch.nn.init.kaiming_uniform_(torch.empty(11, 13, device=d)),
    "fractional_max_pool2d": lambda d: F.fractional_max_pool2d(torch.arange(1600.0, device=d).view(4, 1, 20, 20), 2, 9),
}
# What the core and a chip compute with different maths libraries: equal to rounding, not to the bit.
ROUNDED = frozenset(
    [
        "randn", "randn float64", "randn complex64", "normal_", "normal of tensors", "exponential_", "cauchy_",
        "log_normal_", "geometric_", "gumbel_softmax",
    ]
)  # fmt: skip


def _draw(name: str, where: str = DEVICE, seed: int = 7) -> torch.Tensor:
    torch.manual_seed(seed)
    return DRAWS[name](where).cpu()


@pytest.mark.parametrize("name", DRAWS)
def test_the_seed_decides(name: str) -> None:
    first, again = _draw(name), _draw(name)
    assert torch.equal(first, again), "the same seed gave other numbers"
    assert any(not torch.equal(first, _draw(name, seed=seed)) for seed in (8, 9)), "another seed gave the same numbers"


@pytest.mark.parametrize("name", DRAWS)
def test_numbers_go_on(name: str) -> None:
    torch.manual_seed(7)
    draws = [DRAWS[name](DEVICE).cpu() for _ in range(3)]
    assert not (torch.equal(draws[0], draws[1]) and torch.equal(draws[1], draws[2])), "the generator does not advance"


@pytest.mark.skipif(harness.is_stock(), reason="needs two devices of sim")
@pytest.mark.parametrize("name", DRAWS)
def test_both_devices_draw_the_same(name: str) -> None:
    assert torch.equal(_draw(name, "fl:0"), _draw(name, "fl:1"))


@pytest.mark.skipif(harness.is_stock(), reason="the stock CPU has its own generator")
def test_state_is_sixteen_bytes_and_restores() -> None:
    state = torch.fl.get_rng_state()
    assert state.dtype == torch.uint8
    assert state.numel() == 16
    first = torch.rand(5, device=DEVICE).cpu()
    torch.fl.set_rng_state(state)
    assert torch.equal(torch.rand(5, device=DEVICE).cpu(), first)


def test_generators_of_ones_own() -> None:
    generator = torch.Generator(device=DEVICE).manual_seed(3)
    before = torch.rand(4, device=DEVICE, generator=generator).cpu()
    torch.manual_seed(99)
    generator.manual_seed(3)
    for draw in (lambda g: torch.rand(4, device=DEVICE, generator=g),):
        assert torch.equal(draw(generator).cpu(), before)
    for draw in (
        lambda g: torch.randperm(50, device=DEVICE, generator=g),
        lambda g: torch.empty(50, device=DEVICE).normal_(generator=g),
        lambda g: torch.multinomial(torch.ones(50, device=DEVICE), 20, generator=g),
        lambda g: torch.bernoulli(torch.full((50,), 0.5, device=DEVICE), generator=g),
        lambda g: torch.empty(50, device=DEVICE).exponential_(generator=g),
        lambda g: torch.poisson(torch.full((50,), 5.0, device=DEVICE), generator=g),
    ):
        state = generator.get_state()
        first = draw(generator).cpu()
        generator.set_state(state)
        assert torch.equal(draw(generator).cpu(), first)
        assert not torch.equal(draw(generator).cpu(), first)


@pytest.mark.skipif(harness.is_stock(), reason="no second kind of generator")
def test_a_generator_of_the_cpu_is_refused() -> None:
    with pytest.raises(RuntimeError, match=r"(?i)generator"):
        torch.rand(3, device=DEVICE, generator=torch.Generator())


@pytest.mark.parametrize(
    ("name", "mean", "deviation"),
    [
        ("rand", 0.5, 12**-0.5),
        ("rand float64", 0.5, 12**-0.5),
        ("randn", 0.0, 1.0),
        ("randn float64", 0.0, 1.0),
        ("uniform_", 0.5, 5 * 12**-0.5),
        ("normal_", 1.0, 2.0),
        ("bernoulli", 0.3, 0.21**0.5),
        ("bernoulli_", 0.3, 0.21**0.5),
        ("exponential_", 0.5, 0.5),
        ("randint", 4.5, 8.25**0.5),
        ("poisson", 3.0, 3**0.5),
        ("binomial", 3.0, 2.1**0.5),
        ("gamma", 2.0, 2**0.5),
        ("geometric_", 1 / 0.3, (0.7 / 0.09) ** 0.5),
    ],
)
def test_moments(name: str, mean: float, deviation: float) -> None:
    torch.manual_seed(5)
    drawn = torch.cat([DRAWS[name](DEVICE).cpu().double() for _ in range(20)])
    error = deviation / drawn.numel() ** 0.5
    assert abs(drawn.mean().item() - mean) < 5 * error
    assert abs(drawn.std().item() - deviation) < 0.05 * deviation + 5 * error


@pytest.mark.parametrize("p", [0.0, 0.25, 1.0])
def test_dropout_scales_what_it_keeps_and_its_gradient_uses_the_same_mask(p: float) -> None:
    torch.manual_seed(1)
    x = torch.ones(4000, device=DEVICE, requires_grad=True)
    y = F.dropout(x, p)
    y.sum().backward()
    assert torch.equal(x.grad.cpu(), y.detach().cpu())
    kept = (y != 0).float().mean().item()
    assert abs(kept - (1 - p)) < 0.04
    if p < 1:
        assert torch.allclose(y[y != 0].detach().cpu(), torch.tensor(1 / (1 - p)))
    assert torch.equal(F.dropout(x, p, training=False).cpu(), x.cpu())


def test_checkpoint_restores_the_generator() -> None:
    from torch.utils.checkpoint import checkpoint

    gradients = []
    for use in (False, True):
        torch.manual_seed(3)
        x = torch.ones(500, device=DEVICE, requires_grad=True)
        body = lambda a: F.dropout(a * 2, 0.5).square()  # noqa: E731
        y = checkpoint(body, x, use_reentrant=False) if use else body(x)
        y.sum().backward()
        gradients.append(x.grad.cpu())
    assert torch.equal(gradients[0], gradients[1])


def _values_elsewhere(environment: dict[str, str]) -> dict[str, list[float]]:
    code = (
        "import json, tests.behaviour.test_random as t\n"
        "flat = lambda x: (t.torch.view_as_real(x) if x.is_complex() else x).double().flatten().tolist()\n"
        "print('RESULT' + json.dumps({n: flat(t._draw(n)) for n in t.DRAWS}))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=ROOT,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    line = next((line for line in done.stdout.splitlines() if line.startswith("RESULT")), None)
    assert line is not None, done.stderr[-2000:]
    return dict(json.loads(line.removeprefix("RESULT")))


@pytest.mark.skipif(harness.is_stock() or HIDDEN_KERNELS, reason="compares sim with its own emptiest form")
@pytest.mark.parametrize("kernels", ["0", "2"], ids=["its own", "portable"])
def test_kernels_and_the_host_draw_the_same(kernels: str) -> None:
    mine = _values_elsewhere({"SIMCHIP_HIDE_KERNELS": kernels})
    hidden = _values_elsewhere({"SIMCHIP_HIDE_KERNELS": "1"})
    wrong = []
    for name in DRAWS:
        a, b = torch.tensor(mine[name], dtype=torch.float64), torch.tensor(hidden[name], dtype=torch.float64)
        same = torch.allclose(a, b, rtol=1e-4, atol=1e-5, equal_nan=True) if name in ROUNDED else torch.equal(a, b)
        if not same:
            wrong.append(name)
    assert not wrong, f"drawn differently by kernels and by the host: {wrong}"


DRAWN_IN_PLACE = {
    "uniform_": lambda x: x.uniform_(),
    "normal_": lambda x: x.normal_(),
    "exponential_": lambda x: x.exponential_(),
    "bernoulli_": lambda x: x.bernoulli_(0.5),
    "bernoulli_ with a tensor": lambda x: x.bernoulli_(torch.ones(3, device=x.device)),
    "random_": lambda x: x.random_(),
    "random_ to": lambda x: x.random_(1),
    "random_ from": lambda x: x.random_(0, 1),
    "cauchy_": lambda x: x.cauchy_(),
    "geometric_": lambda x: x.geometric_(0.5),
    "log_normal_": lambda x: x.log_normal_(),
}


@pytest.mark.parametrize("dtype", [torch.complex64, torch.bool, torch.uint8, torch.int32, torch.float8_e5m2], ids=str)
@pytest.mark.parametrize("name", DRAWN_IN_PLACE)
def test_draws_are_refused_in_the_types_the_cpu_refuses(name: str, dtype: torch.dtype) -> None:
    errors = [
        attempt(DRAWN_IN_PLACE[name], torch.zeros(3, dtype=torch.uint8).to(dtype).to(device))[1]
        for device in ("cpu", DEVICE)
    ]
    assert type(errors[1]) is type(errors[0]), errors
    assert str(errors[1]).split("\n")[0] == str(errors[0]).split("\n")[0]
    fresh = [torch.zeros(0, dtype=torch.uint8).to(dtype).to(device) for device in ("cpu", DEVICE)]
    if "tensor" not in name:
        errors = [attempt(DRAWN_IN_PLACE[name], empty)[1] for empty in fresh]
        assert type(errors[1]) is type(errors[0]), errors
