# SPDX-License-Identifier: Apache-2.0
"""The table of operators, and how a family adds to it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

import torch

from torch_fl.conformance.case import Case, Settle
from torch_fl.conformance.sampler import Sampler

FLOATS = (torch.float32, torch.float64, torch.float16, torch.bfloat16)
WIDE = (torch.float32, torch.float64)
INTEGERS = (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8)
BOOL = (torch.bool,)
COMPLEX = (torch.complex64, torch.complex128)
REAL = FLOATS + INTEGERS
ALL = REAL + BOOL + COMPLEX

Call = tuple[Any, ...]  # positional arguments, a dict of keyword arguments last where there are any
Generator = Callable[[Sampler], Iterator[Call]]


@dataclass(frozen=True)
class Operator:
    """How to make cases of one overload."""

    name: str
    generate: Generator
    dtypes: tuple[torch.dtype, ...]
    rules: dict[str, Any] = field(default_factory=dict)  # for Case
    perf: Generator | None = None
    flops: Callable[[Call], float] | None = None

    def cases(self, seed: int, dtype: torch.dtype) -> Iterator[Case]:
        """Yield the cases in one type, the plainest first."""
        for call in self.generate(Sampler(seed, self.name, dtype)):
            yield self._case(call)

    def perf_cases(self, seed: int, dtype: torch.dtype) -> Iterator[Case]:
        """Yield cases of a size worth timing."""
        if self.perf is not None:
            for call in self.perf(Sampler(seed, self.name, dtype, big=True)):
                yield self._case(call)

    def _case(self, call: Call) -> Case:
        args, kwargs = (call[:-1], dict(call[-1])) if call and isinstance(call[-1], dict) else (call, {})
        rules = dict(self.rules)
        terms = kwargs.pop("terms", rules.pop("terms", 1))
        exact = kwargs.pop("exact", rules.pop("exact", False))
        flops = self.flops(args) if self.flops is not None else 0.0
        return Case(self.name, args, kwargs, terms=terms, exact=exact, flops=flops, **rules)


OPERATORS: dict[str, Operator] = {}


def add(
    names: str | Iterable[str],
    generate: Generator,
    dtypes: tuple[torch.dtype, ...] = FLOATS,
    perf: Generator | None = None,
    flops: Callable[[Call], float] | None = None,
    *,
    roundings: float = 4.0,
    terms: int = 1,
    exact: bool = False,
    draws: bool = False,
    ignore: Iterable[int] = (),
    settle: Settle | None = None,
    written: Iterable[str] = (),
    oracle: Callable[..., Any] | None = None,
) -> None:
    """Add overloads that share a generator. Names are given without ``aten::``; the rules are those of `Case`.

    A call may carry ``terms`` and ``exact`` among its keyword arguments, for itself.
    """
    rules: dict[str, Any] = {"roundings": roundings, "terms": terms, "exact": exact, "draws": draws, "settle": settle}
    rules |= {"oracle": oracle, "ignore": frozenset(ignore), "written": frozenset(written)}
    for name in names.split() if isinstance(names, str) else names:
        full = f"aten::{name}"
        OPERATORS[full] = Operator(full, generate, dtypes, rules, perf, flops)
