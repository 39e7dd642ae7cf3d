# SPDX-License-Identifier: Apache-2.0
"""Runs portable kernels on Oclgrind, which checks every access, and prints as JSON what it said and which never ran.

    checked_kernels.py LOG [PATTERN...]

LOG is where Oclgrind writes. The calls are those of kernel_calls.py; with patterns, those of the OpInfos that match and
have the name of a portable kernel.
"""

from __future__ import annotations

import json
import pathlib
import sys
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import kernel_calls
import torch

import torch_fl
from tests.ops import catalogue
from tests.ops.engine import Options, PairCheck
from tests.ops.portable import FAMILIES

# Copies and zeros show in no counter. PyTorch takes the others apart before they get here.
NOT_COUNTED = {"copy", "zero", "mish_backward", "_fused_rms_norm", "_fused_rms_norm_backward"}


def portable_rows() -> list[str]:
    summary = torch_fl.registered_ops_summary()
    return sorted({op for chip in summary.chips for op in summary.ops(chip, "portable")})


def base_name(row: str) -> str:
    return row.removeprefix("aten::").split(".")[0].rstrip("_")


def tasks(patterns: list[str]) -> list[dict[str, Any]]:
    listed = {name for family in FAMILIES.values() for name in family}
    rows = {base_name(row) for row in portable_rows()}
    infos = catalogue.items("op")
    return [
        task
        for task in catalogue.tasks(patterns, kinds=("op",))
        if task["name"] in listed or rows & {infos[task["index"]].name, infos[task["index"]].aten_name}
    ]


def checks(patterns: list[str]) -> Iterator[tuple[str, Callable[[], Any]]]:
    """With patterns: operators in float32 and in one other type, another for each operator."""
    if not patterns:
        yield from ((family.__name__, family) for family in kernel_calls.FAMILIES)
        return
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


def main() -> None:
    log = pathlib.Path(sys.argv[1])
    log.touch()
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    torch.autograd.set_multithreading_enabled(False)  # Oclgrind wants one thread for all kernels
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
    ran = {base_name(row.name) for row in torch_fl.counters() if row.route == "portable"}
    never_ran = {base_name(row) for row in portable_rows()} - ran - NOT_COUNTED
    print(json.dumps({"checks": count, "said": said, "never_ran": sorted(never_ran)}))


if __name__ == "__main__":
    main()
