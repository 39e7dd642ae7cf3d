# SPDX-License-Identifier: Apache-2.0
"""What a kernel is given, and what becomes of its answers."""

from __future__ import annotations

import json
from pathlib import Path

from tests.plugins.helpers import compile_plugin, succeed

PROLOGUE = """
import json, torch, torch_fl
x = torch.ones(3, device="fl")
"""


def test_every_form_gives_a_kernel_the_arguments_of_the_functional_schema(tmp_path: Path) -> None:
    plugin = compile_plugin(tmp_path, "counting")
    code = (
        PROLOGUE
        + """
x + x, x.add_(x), torch.add(x, x, out=torch.empty_like(x)), torch.add(x, x, alpha=2), torch._foreach_add([x], [x])
print(json.dumps(torch_fl.counters().where(route="kernel").total().calls))
"""
    )
    assert json.loads(succeed(code, TORCH_FL_PLUGIN_PATH=str(plugin))) == 5


def test_a_call_that_the_kernel_declines_is_counted_once_where_it_ran(tmp_path: Path) -> None:
    plugin = compile_plugin(tmp_path, "declining", ["KERNELS_DECLINE"])
    code = (
        PROLOGUE
        + """
with torch_fl.profiler.profile() as p:
    y = [x.relu() for _ in range(3)][0]
rows = [(row.route, row.calls, row.reason) for row in torch_fl.counters().where(op="aten::relu") if row.calls]
print(json.dumps([y.tolist(), rows, [(r.route, r.bytes) for r in p.records if r.op == "aten::relu"]]))
"""
    )
    values, rows, log = json.loads(succeed(code, TORCH_FL_PLUGIN_PATH=str(plugin)))
    assert values == [1, 1, 1]
    assert [row[:2] for row in rows] == [["host", 3]]
    assert rows[0][2].startswith("the kernel declined at run time; not decomposed: needs aten::le")
    assert log == [["host", 24]] * 3


def test_supports_that_fails_is_an_error_and_not_a_refusal(tmp_path: Path) -> None:
    plugin = compile_plugin(tmp_path, "unsure", ["SUPPORTS_FAILS"])
    code = (
        PROLOGUE
        + """
try:
    x.relu()
except RuntimeError as error:
    print(error)
"""
    )
    text = succeed(code, TORCH_FL_PLUGIN_PATH=str(plugin))
    assert "supports() for aten::relu" in text
    assert "supports() blew up" in text
