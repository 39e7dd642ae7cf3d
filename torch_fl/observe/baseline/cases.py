# SPDX-License-Identifier: Apache-2.0
"""The standard set: operators, products, convolutions, attention, whole networks, copies, and a launch."""

from __future__ import annotations

import fnmatch
import functools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from torch_fl._suggest import did_you_mean
from torch_fl.observe.baseline import models, operators
from torch_fl.observe.baseline.case import Case, Kind, Work, tensors
from torch_fl.observe.target import moved

SIZES = ("standard", "quick")
# A module, and the positional and named arguments of a call.
Build = Callable[[], tuple[nn.Module, tuple[Any, ...], dict[str, Any]]]
_LEARNING_RATE = 1e-4


class UnknownSet(ValueError):
    """A word that names no size, no group and no case."""


def _products(size: str, dtypes: Sequence[str]) -> Iterator[Case]:
    for dtype in dtypes:
        for n in (64, 128, 256, 512, 1024, 2048) if size == "standard" else (64, 128, 256):
            make = functools.partial(_product, n, getattr(torch, dtype))
            yield Case(f"matmul/{n} {dtype}", Kind.KERNEL, make, op="aten::mm", dtype=dtype)


def _product(n: int, dtype: torch.dtype, device: torch.device) -> Work:
    a, b = (torch.randn(n, n).to(dtype).to(device) for _ in range(2))
    return Work(lambda: torch.mm(a, b), (a, b))


# Name: batch, channels in and out, image, kernel, stride, groups.
_CONVOLUTIONS = {
    "stem 7x7/2": (1, 3, 64, 224, 7, 2, 1),
    "3x3 64": (1, 64, 64, 56, 3, 1, 1),
    "3x3 256": (1, 256, 256, 14, 3, 1, 1),
    "1x1 256": (1, 256, 64, 56, 1, 1, 1),
    "depthwise 3x3 128": (1, 128, 128, 28, 3, 1, 128),
}
_SMALL_CONVOLUTIONS = {
    "3x3 16": (1, 16, 16, 28, 3, 1, 1),
    "1x1 64": (1, 64, 64, 14, 1, 1, 1),
    "depthwise 3x3 32": (1, 32, 32, 28, 3, 1, 32),
}


def _convolutions(size: str) -> Iterator[Case]:
    for name, shape in (_CONVOLUTIONS if size == "standard" else _SMALL_CONVOLUTIONS).items():
        make = functools.partial(_convolution, *shape)
        yield Case(f"convolution/{name}", Kind.KERNEL, make, op="aten::convolution")


def _convolution(
    batch: int, inputs: int, outputs: int, image: int, kernel: int, stride: int, groups: int, device: torch.device
) -> Work:
    x = torch.randn(batch, inputs, image, image).to(device)
    weight = torch.randn(outputs, inputs // groups, kernel, kernel).to(device)
    return Work(lambda: F.conv2d(x, weight, None, stride, kernel // 2, 1, groups), (x, weight))


def _attentions(size: str) -> Iterator[Case]:
    lengths = (128, 512) if size == "standard" else (64,)
    for length in lengths:
        for causal in (False, True):
            make = functools.partial(_attention, length, causal)
            name = f"attention/{length}{' causal' if causal else ''}"
            yield Case(name, Kind.KERNEL, make, op="aten::scaled_dot_product_attention")


def _attention(length: int, causal: bool, device: torch.device) -> Work:
    query, key, value = (torch.randn(1, 12, length, 64).to(device) for _ in range(3))
    return Work(
        lambda: F.scaled_dot_product_attention(query, key, value, is_causal=causal),
        (query, key, value),
    )


def _networks(size: str) -> dict[str, tuple[Callable[[], nn.Module], Callable[[], Any]]]:
    if size == "standard":
        return {
            "resnet18": (models.ResNet18, lambda: torch.randn(1, 3, 224, 224)),
            "bert": (models.bert_base, lambda: torch.randint(0, 30522, (1, 128))),
            "gpt2": (models.gpt2_small, lambda: torch.randint(0, 50257, (1, 128))),
        }
    small = functools.partial(models.Transformer, 1000, 64, layers=2, width=64, heads=4)
    return {
        "resnet18": (lambda: models.ResNet18(classes=10, width=8), lambda: torch.randn(1, 3, 64, 64)),
        "bert": (lambda: small(norm_first=False), lambda: torch.randint(0, 1000, (1, 32))),
        "gpt2": (lambda: small(norm_first=True), lambda: torch.randint(0, 1000, (1, 32))),
    }


def _network(size: str, name: str) -> Iterator[Case]:
    build, inputs = _networks(size)[name]
    yield from of_module(name, lambda: (build(), (inputs(),), {}))


def of_module(name: str, build: Build, trains: bool = True) -> Iterator[Case]:
    """Return the cases of a network: its forward pass, and a training step with plain gradient descent."""
    forward, training = (functools.partial(step, build) for step in (_forward, _training))
    yield Case(f"{name}/forward", Kind.MODEL, forward)
    if trains:
        yield Case(f"{name}/training step", Kind.MODEL, training, gradients=True)


def _placed(build: Build, device: torch.device) -> tuple[nn.Module, Callable[[], Any], tuple[Tensor, ...]]:
    """Return a module on a device, its call, and the tensors that it reads."""
    module, args, named = build()
    module.to(device)
    args, named = moved((args, named), device)
    touched = (*module.parameters(), *module.buffers(), *tensors((args, named)))
    return module, lambda: module(*args, **named), touched


def _forward(build: Build, device: torch.device) -> Work:
    module, call, touched = _placed(build, device)
    module.eval()
    return Work(call, touched)


def _training(build: Build, device: torch.device) -> Work:
    module, call, touched = _placed(build, device)
    module.train()
    optimizer = torch.optim.SGD(module.parameters(), _LEARNING_RATE)

    def step() -> None:
        optimizer.zero_grad(set_to_none=True)
        result = next((t for t in tensors(call()) if t.requires_grad), None)
        if result is None:
            raise ValueError("the model returned no tensor that has a gradient")
        result = torch.view_as_real(result) if result.is_complex() else result
        result.square().mean().backward()  # type: ignore[no-untyped-call]
        optimizer.step()

    return Work(step, touched)


def _copies(size: str) -> Iterator[Case]:
    for mebibytes in (1, 16, 64) if size == "standard" else (1, 4):
        for direction in ("h2d", "d2h", "d2d"):
            copied = mebibytes << 20
            yield Case(
                f"copies/{direction} {mebibytes} MiB",
                Kind.COPY,
                functools.partial(_copy, direction, copied),
                dtype="uint8",
                bytes_copied=copied,
                direction=direction,
                on_cpu=direction == "d2d",
            )


def _copy(direction: str, size: int, device: torch.device) -> Work:
    host = torch.device("cpu")
    source, target = (device if letter == "d" else host for letter in (direction[0], direction[2]))
    a, b = torch.ones(size, dtype=torch.uint8).to(source), torch.empty(size, dtype=torch.uint8).to(target)
    return Work(lambda: b.copy_(a), (a,))


def _launches(size: str) -> Iterator[Case]:
    yield Case("launch/add of one element", Kind.LAUNCH, _launch, op="aten::add.Tensor")


def _launch(device: torch.device) -> Work:
    a, b = (torch.ones(1).to(device) for _ in range(2))
    return Work(lambda: torch.add(a, b), (a, b))


def standard(size: str, chip_dtypes: Sequence[str]) -> list[Case]:
    """Return all cases in a size, for a chip that computes in these types."""
    ladder = [dtype for dtype in ("float32", "float16", "bfloat16") if dtype in chip_dtypes or dtype == "float32"]
    return [
        *_launches(size),
        *_copies(size),
        *operators.cases(size),
        *_products(size, ladder),
        *_convolutions(size),
        *_attentions(size),
        *(case for name in ("resnet18", "bert", "gpt2") for case in _network(size, name)),
    ]


def selected(words: str, chip_dtypes: Sequence[str]) -> list[Case]:
    """Return the cases that ``standard``, ``quick``, or names of groups and patterns of cases mean.

    ``quick,matmul,operators/*pool*`` is the group ``matmul`` and some operators, in the quick size.
    """
    named = [word.strip() for word in words.split(",") if word.strip()]
    size = "quick" if "quick" in named else "standard"
    everything = standard(size, chip_dtypes)
    patterns = [word for word in named if word not in SIZES]
    if not patterns:
        return everything
    for word in patterns:
        if not any(_matches(case.name, word) for case in everything):
            known = [*SIZES, *dict.fromkeys(case.name.partition("/")[0] for case in everything)]
            hint = did_you_mean(word, [*known, *(case.name for case in everything)])
            raise UnknownSet(f"no set, group or case {word!r}{hint} (sizes and groups: {', '.join(known)})")
    return [case for case in everything if any(_matches(case.name, word) for word in patterns)]


def _matches(name: str, pattern: str) -> bool:
    return name.partition("/")[0] == pattern or fnmatch.fnmatchcase(name, pattern)
