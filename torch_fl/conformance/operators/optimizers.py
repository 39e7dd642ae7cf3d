# SPDX-License-Identifier: Apache-2.0
"""Fused optimizer steps, and the gradient scaler's parts."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch

from torch_fl.conformance.operators.table import FLOATS, Call, Generator, add
from torch_fl.conformance.sampler import Sampler

_SHAPES = ((5, 7), (33,), (3, 3, 4))


def _list(s: Sampler, low: float = -1.0, high: float = 1.0) -> list[torch.Tensor]:
    return [s.tensor(*shape, low=low, high=high) for shape in _SHAPES]


def _steps() -> list[torch.Tensor]:
    return [torch.tensor(3.0) for _ in _SHAPES]


def _rate(value: float, as_tensor: bool) -> Any:
    return torch.tensor(value) if as_tensor else value


def _adam(as_tensor: bool) -> Generator:
    def generate(s: Sampler) -> Iterator[Call]:
        for amsgrad, decay in ((False, 0.0), (True, 0.1)):
            largest = _list(s, 0.1) if amsgrad else []
            named = {"beta1": 0.9, "beta2": 0.99, "weight_decay": decay, "eps": 1e-6}
            named |= {"amsgrad": amsgrad, "maximize": False}
            state = (_list(s), _list(s), _list(s), _list(s, 0.1), largest, _steps())
            yield (*state, {"lr": _rate(0.01, as_tensor), **named})

    return generate


def _sgd(as_tensor: bool) -> Generator:
    def generate(s: Sampler) -> Iterator[Call]:
        for momentum, nesterov in ((0.0, False), (0.9, True)):
            named = {"weight_decay": 0.1, "momentum": momentum, "dampening": 0.0, "nesterov": nesterov}
            buffers = _list(s) if momentum else []
            rate = {"lr": _rate(0.01, as_tensor), "maximize": False, "is_first_step": False}
            yield _list(s), _list(s), buffers, {**named, **rate}

    return generate


def _adagrad(as_tensor: bool) -> Generator:
    def generate(s: Sampler) -> Iterator[Call]:
        named = {"lr_decay": 0.01, "weight_decay": 0.1, "eps": 1e-6, "maximize": False}
        yield _list(s), _list(s), _list(s, 0.1), _steps(), {"lr": _rate(0.01, as_tensor), **named}

    return generate


for _suffix, _as_tensor in (("", False), (".tensor_lr", True)):
    add(f"_fused_adam_{_suffix} _fused_adamw_{_suffix}", _adam(_as_tensor), FLOATS, roundings=32)
    add(f"_fused_sgd_{_suffix}", _sgd(_as_tensor), FLOATS, roundings=32)
    add(f"_fused_adagrad_{_suffix}", _adagrad(_as_tensor), FLOATS, roundings=32)


def _unscale(s: Sampler) -> Iterator[Call]:
    yield _list(s), torch.zeros(1), torch.tensor([0.25])
    bad = _list(s)
    bad[1][3] = float("inf")
    yield bad, torch.zeros(1), torch.tensor([0.25])


def _update(s: Sampler) -> Iterator[Call]:
    for found in (0.0, 1.0):
        tracker = torch.tensor([1], dtype=torch.int32)
        yield torch.tensor([1024.0]), tracker, torch.tensor([found]), 2.0, 0.5, 2


add("_amp_foreach_non_finite_check_and_unscale_", _unscale, (torch.float32,))
add("_amp_update_scale_", _update, (torch.float32,))
