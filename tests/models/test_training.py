# SPDX-License-Identifier: Apache-2.0
"""Whole networks: one training step gives the CPU's loss and gradients, on the chip, and training goes down."""

from __future__ import annotations

import copy
import io
from collections.abc import Callable
from typing import Any

import pytest
import torch

from tests.harness import device
from tests.harness.device import DEVICE
from tests.models.gpt import GPT, Config
from tests.models.resnet import ResNet18

device.load()
NATIVE_SHARE = 0.95
Batch = Any


def _gpt(fused: bool = False) -> tuple[torch.nn.Module, Batch]:
    torch.manual_seed(0)
    return GPT(Config(fused_attention=fused)), torch.randint(0, 64, (4, 33))


def _resnet() -> tuple[torch.nn.Module, Batch]:
    torch.manual_seed(0)
    return ResNet18(width=16), (torch.randn(8, 3, 32, 32), torch.randint(0, 10, (8,)))


MODELS: dict[str, Callable[[], tuple[torch.nn.Module, Batch]]] = {
    "resnet18": _resnet,
    "gpt": _gpt,
    "gpt-fused-attention": lambda: _gpt(True),
}


def _to(batch: Batch, where: str) -> Batch:
    return tuple(item.to(where) for item in batch) if isinstance(batch, tuple) else batch.to(where)


def _pair(name: str) -> tuple[torch.nn.Module, Batch, torch.nn.Module, Batch]:
    """The model and its batch on the CPU and copies of both on the device."""
    model, batch = MODELS[name]()
    return model, batch, copy.deepcopy(model).to(DEVICE), _to(batch, DEVICE)


def _step(model: torch.nn.Module, batch: Batch, optimizer: torch.optim.Optimizer) -> float:
    optimizer.zero_grad()
    loss = model.loss(batch)
    loss.backward()
    optimizer.step()
    return loss.item()


def _sgd(model: torch.nn.Module) -> torch.optim.Optimizer:
    return torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)


@pytest.mark.parametrize("name", MODELS)
def test_one_step_equals_the_cpu(name: str) -> None:
    cpu, batch, other, moved = _pair(name)
    expected, found = cpu.loss(batch), other.loss(moved)
    assert found.device.type == torch.device(DEVICE).type
    assert abs(found.item() - expected.item()) < 1e-4
    expected.backward()
    found.backward()
    for (label, mine), theirs in zip(other.named_parameters(), cpu.parameters(), strict=True):
        assert mine.grad is not None, label
        assert mine.grad.device.type == torch.device(DEVICE).type, label
        scale = float(theirs.grad.abs().max()) + 1e-6
        torch.testing.assert_close(
            mine.grad.cpu(), theirs.grad, rtol=1e-3, atol=1e-3 * scale, msg=lambda m, n=label: f"{n}: {m}"
        )
    for (label, mine), theirs in zip(other.named_buffers(), cpu.buffers(), strict=True):
        torch.testing.assert_close(mine.cpu(), theirs, rtol=1e-4, atol=1e-4, msg=lambda m, n=label: f"{n}: {m}")


@pytest.mark.skipif(device.is_stock(), reason="a stock device has no counters")
@pytest.mark.parametrize("name", MODELS)
def test_a_training_step_runs_on_the_chip(name: str) -> None:
    _, _, model, batch = _pair(name)
    optimizer = _sgd(model)
    _step(model, batch, optimizer)
    device.reset_counters()
    _step(model, batch, optimizer)
    calls = device.route_calls()
    host = {op: count for (op, route), count in calls.items() if route == "host"}
    share = device.native_share(calls)
    print(f"{name}: native share {100 * share:.1f} % of {sum(calls.values())} calls; host: {host}")
    assert sum(calls.values()) > 100, "the counters saw no training step"
    assert share >= NATIVE_SHARE, f"native share {share:.3f}, on the host: {host}"


@pytest.mark.parametrize("name", MODELS)
def test_several_steps_stay_with_the_cpu_and_go_down(name: str) -> None:
    cpu, batch, other, moved = _pair(name)
    cpu_optimizer, optimizer = _sgd(cpu), _sgd(other)
    expected = [_step(cpu, batch, cpu_optimizer) for _ in range(6)]
    found = [_step(other, moved, optimizer) for _ in range(6)]
    torch.testing.assert_close(torch.tensor(found[:3]), torch.tensor(expected[:3]), rtol=1e-3, atol=1e-3)
    assert found[-1] < 0.9 * found[0], f"the loss does not go down: {found}"


@pytest.mark.parametrize("optimizer", ["SGD", "Adam", "AdamW", "RMSprop", "Adagrad"])
@pytest.mark.parametrize("form", ["foreach", "fused", "loop"])
def test_optimizers_train_the_gpt(optimizer: str, form: str) -> None:
    if form == "fused" and optimizer == "RMSprop":
        pytest.skip("PyTorch has no fused RMSprop")
    cpu, batch, other, moved = _pair("gpt")
    kwargs = {"lr": 1e-3, **({} if form == "loop" else {form: True})}
    if form == "loop":
        kwargs["foreach"] = False
    make = getattr(torch.optim, optimizer)
    expected = [_step(cpu, batch, opt) for opt in [make(cpu.parameters(), **kwargs)] for _ in range(3)]
    found = [_step(other, moved, opt) for opt in [make(other.parameters(), **kwargs)] for _ in range(3)]
    torch.testing.assert_close(torch.tensor(found), torch.tensor(expected), rtol=1e-3, atol=1e-3)


@pytest.mark.skipif(device.is_stock(), reason="needs two devices of sim")
@pytest.mark.parametrize("name", MODELS)
def test_both_devices_give_the_same_loss(name: str) -> None:
    model, batch = MODELS[name]()
    losses = []
    for where in ("fl:0", "fl:1"):
        copied = copy.deepcopy(model).to(where)
        loss = copied.loss(_to(batch, where))
        loss.backward()
        assert loss.device == torch.device(where)
        losses.append(loss.item())
    assert losses[0] == losses[1]


@pytest.mark.skipif(device.is_stock(), reason="needs two devices of sim")
def test_a_model_split_over_two_devices_trains() -> None:
    torch.manual_seed(0)
    first, second = torch.nn.Linear(8, 16), torch.nn.Linear(16, 4)
    x, y = torch.randn(5, 8), torch.randn(5, 4)
    reference = torch.nn.functional.mse_loss(second(first(x).relu()), y)
    reference.backward()
    expected = first.weight.grad.clone()
    here, there = copy.deepcopy(first).to("fl:0"), copy.deepcopy(second).to("fl:1")
    here.zero_grad()
    loss = torch.nn.functional.mse_loss(there(here(x.to("fl:0")).relu().to("fl:1")), y.to("fl:1"))
    loss.backward()
    assert here.weight.grad.device == torch.device("fl:0")
    assert there.weight.grad.device == torch.device("fl:1")
    torch.testing.assert_close(loss.item(), reference.item(), rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(here.weight.grad.cpu(), expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", MODELS)
def test_saving_and_loading_keeps_the_model(name: str) -> None:
    cpu, batch, other, moved = _pair(name)
    _step(other, moved, _sgd(other))
    file = io.BytesIO()
    torch.save(other.state_dict(), file)
    file.seek(0)
    cpu.load_state_dict(torch.load(file, map_location="cpu", weights_only=True))
    again = copy.deepcopy(cpu).to(DEVICE)
    for model in (cpu, other, again):
        model.eval()
    expected = other.loss(moved).item()
    assert abs(cpu.loss(batch).item() - expected) < 1e-4
    assert again.loss(moved).item() == expected


def test_generation_equals_the_cpu() -> None:
    cpu, batch, other, moved = _pair("gpt")
    cpu.eval(), other.eval()
    assert torch.equal(other.generate(moved[:, :8], 12).cpu(), cpu.generate(batch[:, :8], 12))


def test_dropout_in_training_draws_from_the_seed() -> None:
    torch.manual_seed(0)
    model, tokens = GPT(Config(dropout=0.2)).to(DEVICE), torch.randint(0, 64, (2, 17)).to(DEVICE)
    losses = []
    for seed in (1, 1, 2):
        torch.manual_seed(seed)
        losses.append(model.loss(tokens).item())
    assert losses[0] == losses[1] != losses[2]
