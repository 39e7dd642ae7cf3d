# SPDX-License-Identifier: Apache-2.0
"""Layers of models that nobody named, and what is advised about reasons."""

from __future__ import annotations

import pytest
import torch

from torch_fl import profiler
from torch_fl.observe.report.advice import fix
from torch_fl.observe.report.scopes import layers_of_all


class Net(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Tanh())

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.body(x).exp()


class Failing(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        raise ZeroDivisionError


def layers(profile: profiler.Profile, op: str) -> list[str]:
    return [record.layer for record in profile.records if record.op == op]


def test_names_are_those_of_the_first_model_others_start_with_their_class() -> None:
    net, loss, x = Net().to("fl"), torch.nn.MSELoss(), torch.randn(3, 4, device="fl")
    with layers_of_all(), profiler.profile() as profile:
        for _ in range(2):
            loss(net(x), x)
        x.sin()
    assert layers(profile, "aten::addmm") == ["body.0"] * 2
    assert layers(profile, "aten::tanh") == ["body.1"] * 2
    assert layers(profile, "aten::exp") == [""] * 2
    assert layers(profile, "aten::mse_loss") == ["MSELoss"] * 2
    assert layers(profile, "aten::sin") == [""]


def test_a_layer_that_raises_ends() -> None:
    x = torch.randn(3, device="fl")
    with layers_of_all(), profiler.profile() as profile:
        with pytest.raises(ZeroDivisionError):
            torch.nn.Sequential(torch.nn.ReLU(), Failing())(x)
        x.sin()
        torch.nn.Tanh()(x)
    assert layers(profile, "aten::sin") == [""]
    assert layers(profile, "aten::tanh") == ["Tanh"]


def test_hooks_are_gone_afterwards() -> None:
    from torch.nn.modules import module

    before = len(module._global_forward_hooks), len(module._global_forward_pre_hooks)
    with layers_of_all():
        assert (len(module._global_forward_hooks), len(module._global_forward_pre_hooks)) != before
    assert (len(module._global_forward_hooks), len(module._global_forward_pre_hooks)) == before


@pytest.mark.parametrize(
    "reason, advice",
    [
        ("the chip has no kernel for aten::sort", "Give the chip a kernel for it"),
        ("the setting route.aten::sort is host", "A setting sends it there"),
        ("the kernel does not compute in float64", "Let the kernel take float64"),
        ("an argument is not strided", "to_dense()"),
        ("out= shares memory with an input", "without out="),
        ("an input needs conversion and the chip has no kernel for aten::copy", "Give the chip a kernel"),
        ("something unheard of {0}", "torch_fl.explain('aten::sort', ...)"),
        ("", "torch_fl.explain('aten::sort', ...)"),
    ],
)
def test_advice(reason: str, advice: str) -> None:
    assert advice in fix("aten::sort", reason)
