# SPDX-License-Identifier: Apache-2.0
"""PyTorch's own samples, where they can be imported: ``--opinfo``.

An OpInfo is a function of PyTorch, which may call several overloads; it counts as tested if one of its calls took a
wanted route.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any

import torch

from torch_fl import _load
from torch_fl.conformance.case import Case, describe
from torch_fl.conformance.compare import compare_outputs
from torch_fl.conformance.execute import Executor, as_list
from torch_fl.conformance.targets import OPINFO
from torch_fl.conformance.verdict import Finding, Verdict

_SAMPLES, _QUICK_SAMPLES = 8, 2
_TERMS = 64  # nobody knows how many; the CPU's own error is the yardstick beside it


# Equal elements may come in any order, and gradients and indices follow it.
_FREE = frozenset(["argsort", "sort", "topk", "kthvalue", "mode", "median", "nanmedian", "msort"])


@functools.cache
def catalogue() -> dict[str, Any]:
    """Return PyTorch's OpInfos by name; ImportError where torch's own test packages are missing."""
    from torch.testing._internal.common_methods_invocations import op_db

    return {info.full_name: info for info in op_db if info.name not in _FREE}


def findings(name: str, dtype: str, executor: Executor, quick: bool, begin: Callable[[str], None]) -> Iterator[Finding]:
    """Yield what became of the samples of one OpInfo in one type; ``begin`` hears of each before it runs."""
    info = catalogue()[name.removeprefix(OPINFO)]
    samples = info.sample_inputs("cpu", getattr(torch, dtype))
    for sample in islice(samples, _QUICK_SAMPLES if quick else _SAMPLES):
        tree = (sample.input, tuple(sample.args), dict(sample.kwargs))
        expected = _on_cpu(info.op, tree)
        if expected is not None:
            begin(_text(name, tree))
            yield _check(name, info.op, tree, expected, executor)


def _on_cpu(function: Any, tree: Any) -> list[Any] | None:
    """The CPU's answer; None where it refuses or draws random numbers."""
    before = torch.default_generator.get_state()
    try:
        outputs = as_list(function(tree[0], *tree[1], **tree[2]))
    except Exception:
        return None
    return outputs if torch.equal(before, torch.default_generator.get_state()) else None


def _text(name: str, tree: Any) -> str:
    words = [*map(describe, (tree[0], *tree[1])), *(f"{key}={describe(value)}" for key, value in tree[2].items())]
    return f"{name}({', '.join(words)})"


def _check(name: str, function: Any, tree: Any, expected: list[Any], executor: Executor) -> Finding:
    case = Case(name, tree[1], tree[2], terms=_TERMS, roundings=16)
    core = _load.core()
    text = _text(name, tree)
    try:
        mine = executor.move(tree)
        core.reset_counters()
        outputs = as_list(function(mine[0], *mine[1], **mine[2]))
        found = [value.cpu() if isinstance(value, torch.Tensor) else value for value in outputs]
        rows = [row for row in core.counters() if row[6]]
        finding = compare_outputs(case, found, expected, None, strides=False)
        if core.check_guards():
            finding = Finding(Verdict.FAILED, "wrote outside a tensor")
    except Exception as error:
        return Finding(Verdict.FAILED, f"{type(error).__name__}: {error}"[:300], case=text)
    wanted = [row[4] for row in rows if row[4] in executor.routes]
    if not wanted:
        return Finding(Verdict.UNTESTED, "no call on a wanted route", case=text)
    finding.route, finding.case = wanted[0], text
    return finding
