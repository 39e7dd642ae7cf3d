# SPDX-License-Identifier: Apache-2.0
"""Runs portable kernels on Oclgrind, which checks every access, and prints as JSON what it said and which kernels ran.

    checked_kernels.py LOG [PATTERN...]

LOG is where Oclgrind writes. Without patterns, every OpInfo that has the name of a portable kernel runs, and CALLS.
"""

from __future__ import annotations

import json
import pathlib
import sys
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import torch
import torch.nn.functional as F

import torch_fl
from tests.ops import catalogue
from tests.ops.engine import Options, PairCheck
from tests.ops.portable import FAMILIES


def ones(dtype: torch.dtype = torch.float32) -> torch.Tensor:
    """Not a multiple of what a work item gets."""
    return torch.ones(11, device="fl", dtype=dtype)


# For kernels that no OpInfo reaches.
CALLS: dict[str, Callable[[], Any]] = {
    "uniform_": lambda: ones().uniform_(),
    "uniform_ float64": lambda: ones(torch.float64).uniform_(),
    "normal_": lambda: ones().normal_(),
    "normal_ float64": lambda: ones(torch.float64).normal_(),
    "exponential_": lambda: ones().exponential_(),
    "bernoulli_": lambda: ones().bernoulli_(0.5),
    "random_": lambda: ones(torch.int32).random_(0, 9),
    "random_ int64": lambda: ones(torch.int64).random_(),
    "dropout": lambda: F.dropout(ones(), 0.5),
    "prelu": lambda: F.prelu(ones(), ones()[:1]),
    "clamp": lambda: ones().clamp(0, 0.5),
    "clamp_min": lambda: ones().clamp_min(2),
    "clamp_max": lambda: ones().clamp_max(0.5),
    "lerp": lambda: torch.lerp(ones(), ones(), ones()),
    "gt": lambda: ones() > 0,
    "lt": lambda: ones() < 0,
    "ne": lambda: ones() != 0,
    "all": lambda: ones().view(1, 11).all((0, 1)),
    "any": lambda: ones().view(1, 11).any((0, 1)),
    "mish_backward": lambda: torch.ops.aten.mish_backward.grad_input(ones(), ones(), grad_input=ones()),
    "silu_backward": lambda: torch.ops.aten.silu_backward.grad_input(ones(), ones(), grad_input=ones()),
}
# Copies show in no counter; these others only run as out= forms, and are counted as such.
NOT_COUNTED = {"aten::copy", "aten::mish_backward", "aten::silu_backward"}


def portable_rows() -> list[str]:
    summary = torch_fl.registered_ops_summary()
    return sorted({op for chip in summary.chips for op in summary.ops(chip, "portable")})


def base_name(row: str) -> str:
    return row.removeprefix("aten::").split(".")[0].rstrip("_")


def tasks(patterns: list[str]) -> list[dict[str, Any]]:
    if patterns:
        return catalogue.tasks(patterns, kinds=("op",))
    listed = {name for family in FAMILIES.values() for name in family}
    rows = {base_name(row) for row in portable_rows()}
    return [
        task
        for task, info in zip(catalogue.tasks(kinds=("op",)), catalogue.items("op"))
        if task["name"] in listed or rows & {info.name, info.aten_name}
    ]


def checks(patterns: list[str]) -> Iterator[tuple[str, Callable[[], Any]]]:
    """Every operator in float32 and in one other type, another for each operator."""
    torch.autograd.set_multithreading_enabled(False)  # Oclgrind wants one thread for all kernels
    for i, task in enumerate(tasks(patterns)):
        info = catalogue.items("op")[task["index"]]
        others = [dtype for dtype in task["dtypes"] if dtype != "float32"]
        for dtype in {"float32", others[i % len(others)]} if others else {"float32"}:
            if dtype not in task["dtypes"]:
                continue
            full = dtype == "float32"
            variants = ("forward", "noncontiguous", "backward") if full else ("forward", "noncontiguous")
            options = Options("fl", variants, 2 if full else 1, 1)
            yield f"{task['name']} {dtype}", PairCheck(info, catalogue.as_dtype(dtype), options).run
    yield from {} if patterns else CALLS.items()


def main() -> None:
    log = pathlib.Path(sys.argv[1])
    log.touch()
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    torch_fl.set_config("fallback", "deny")
    said: dict[str, str] = {}
    count = 0
    with log.open() as lines:
        for name, run in checks(sys.argv[2:]):
            run()
            torch.fl.synchronize()
            count += 1
            if text := lines.read():
                said[name] = text[:2000]
    ran = {row.name for row in torch_fl.counters() if row.route == "portable"}
    print(json.dumps({"checks": count, "said": said, "never_ran": sorted(set(portable_rows()) - ran - NOT_COUNTED)}))


if __name__ == "__main__":
    main()
