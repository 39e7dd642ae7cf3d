# SPDX-License-Identifier: Apache-2.0
"""sim with some of its kernels only, and what a descriptor would say of it, in a process of its own."""

from __future__ import annotations

import json
import os
from functools import cache
from pathlib import Path
from typing import Any

from tests.plugins.helpers import ROOT, compile_plugin, succeed

ELEMENTWISE = "sigmoid add.Tensor sub.Tensor mul.Tensor div.Tensor neg reciprocal rsqrt sqrt abs clamp maximum minimum"
EXPONENTIALS = "exp expm1 log log1p tanh pow.Tensor_Scalar"
COMPARISONS = "where.self gt.Scalar lt.Scalar ge.Scalar le.Scalar eq.Scalar ne.Scalar gt.Tensor lt.Tensor isnan"
REDUCTIONS = "sum.dim_IntList amax mean.dim var_mean.correction"
_ALL = f"copy fill_.Scalar {ELEMENTWISE} {EXPONENTIALS} {COMPARISONS} {REDUCTIONS}"
FEW = tuple(f"aten::{op}" for op in _ALL.split())

SETUP = """
import json, os, torch, torch_fl
import torch.nn.functional as F
from torch_fl import _load
from torch_fl.chips.descriptor.expressions import Scope, compile_expression
from torch_fl.routing.decompositions import overload

def check(op, expected, holds, found=None):
    scope = Scope.of_schema(overload(op)._schema, op)
    compiled = compile_expression(holds, scope)
    return {"holds": compiled.program, "reads_values": compiled.reads_values, "expected": expected,
            "found": None if found is None else compile_expression(found, scope).program}

FLAGS = {"channels_last_only": 1 << 8, "contiguous_inputs": 1 << 2, "in_place_safe": 1 << 4}
FLOAT16, FLOAT32, BFLOAT16 = 5, 6, 12
core = _load.core()
SPEC
core.load_described({"name": "few", "library": os.environ["FEW"], **spec}, "few.fl.yaml", "test")
core.enable_chip_kernels()
assert torch.accelerator.device_count() > 0, core.plugin_reports()

def routes(name):
    return {row.route: row.reason for row in torch_fl.counters() if row.op == f"aten::{name}" and row.calls}
"""


@cache
def _library(folder: Path) -> Path:
    return compile_plugin(folder, "few", source="subset_plugin.c")


def run_described(
    folder: Path, code: str, spec: str = "spec = {}", ops: tuple[str, ...] = FEW, **environment: str
) -> Any:
    """Run code on a chip of these kernels that a descriptor speaks for; return what it printed last, as JSON.

    ``spec`` is code that sets ``spec``: what `_C.load_described` takes. Nothing else is loaded.
    """
    nothing = folder / "nothing"
    nothing.mkdir(exist_ok=True)
    sim = os.environ.get("FL_SIM_LIBRARY", str(ROOT / "torch_fl" / "chips" / "sim" / "libfl_sim.so"))
    text = succeed(
        SETUP.replace("SPEC\n", f"{spec}\n") + code,
        FEW=str(_library(folder)),
        FL_SUBSET_OF=sim,
        FL_SUBSET_KERNELS=",".join(ops),
        TORCH_FL_PLUGIN_PATH=str(nothing),
        **environment,
    )
    return json.loads(text.splitlines()[-1])
