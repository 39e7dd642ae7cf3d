# SPDX-License-Identifier: Apache-2.0
"""What would happen: for an operator, the routes on every chip and the reasons."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from torch_fl import _load
from torch_fl.routing.settings import _checked_op

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True)
class KernelInfo:
    """A kernel in a chip's table, or a portable one that the chip can compile."""

    chip: str
    op: str
    flags: tuple[str, ...]
    dtypes: tuple[str, ...]  # empty: any
    checks_call: bool = False  # it may also decline a call for its sizes, strides or values
    route: str = "kernel"  # or "portable"

    def __str__(self) -> str:
        accepts = ", ".join(self.dtypes) or "any dtype"
        return f"{self.op} ({accepts}{'; checks each call' if self.checks_call else ''})"


@dataclass(frozen=True)
class OpRoutes:
    """The routes of one overload on one chip, the first choice first."""

    op: str
    overload: str
    chip: str
    routes: tuple[str, ...]
    kernel: KernelInfo | None
    portable: KernelInfo | None
    policy: str  # for leaving the chip
    has_host_implementation: bool
    is_view: bool
    is_composite: bool  # PyTorch itself makes it of other operators, before any device is asked

    @property
    def chosen(self) -> str | None:
        """The route of a call that the kernel, if any, accepts; None: no route of its own is needed or left."""
        return None if self.is_view or self.is_composite or not self.routes else self.routes[0]

    @property
    def name(self) -> str:
        """Operator and overload, as in the schema."""
        return f"{self.op}.{self.overload}" if self.overload else self.op

    def __str__(self) -> str:
        return f"{self.name} on {self.chip}: {self._explanation()}"

    def _explanation(self) -> str:
        if self.is_composite:
            return "PyTorch makes it of other operators; each of them is routed on its own"
        if self.is_view:
            return "a view; no data moves, so it needs no route"
        steps = [self._step(route) for route in self.routes]
        if "host" not in self.routes:
            steps.append(f"then {self._end()}" if steps else self._end())
        return "; else ".join(steps)

    def _step(self, route: str) -> str:
        texts = {
            "kernel": f"kernel {self.kernel}",
            "portable": f"portable kernel {self.portable}",
            "decomposed": "decomposed into operators that are routed on their own",
            "host": f"host (fallback: {self.policy})",
        }
        return texts.get(route, route)

    def _end(self) -> str:
        if not self.has_host_implementation:
            return "UnsupportedOpError, for PyTorch has no CPU kernel for it"
        return f"UnsupportedOpError, for the policy is fallback={self.policy}"


@dataclass(frozen=True)
class OpQuery:
    """The answer of `query_op`. ``print()`` it for an explanation."""

    op: str
    rows: tuple[OpRoutes, ...]

    def __str__(self) -> str:
        return "\n".join(map(str, self.rows)) or f"{self.op}: no chip is loaded; python -m torch_fl says why"


@dataclass(frozen=True)
class RegisteredOps:
    """The answer of `registered_ops_summary`: the kernels that each chip registers."""

    chips: Mapping[str, tuple[KernelInfo, ...]]

    def ops(self, chip: str, route: str | None = None) -> list[str]:
        """Return the sorted names of the operators for which a chip has a kernel (of one route, or of any)."""
        return sorted({kernel.op for kernel in self.chips[chip] if route in (None, kernel.route)})

    def __str__(self) -> str:
        texts = []
        for chip, kernels in self.chips.items():
            own, portable = (len(self.ops(chip, route)) for route in ("kernel", "portable"))
            texts.append(f"{chip}: {own} operators" + (f", {portable} portable ones" if portable else ""))
            for kernel in sorted(kernels, key=lambda kernel: (kernel.op, kernel.route)):
                texts[-1] += f"\n  {'portable ' if kernel.route == 'portable' else ''}{kernel}"
        return "\n".join(texts) or "no chip registers a kernel"


def _kernel_info(chip: str, row: Mapping[str, Any]) -> KernelInfo:
    checks_call = row.get("checks_call", False)
    return KernelInfo(chip, row["op"], tuple(row["flags"]), tuple(row["dtypes"]), checks_call, row["route"])


def _op_routes(row: Mapping[str, Any]) -> OpRoutes:
    kernel, portable = (
        None if row[route] is None else _kernel_info(row["chip"], row[route]) for route in ("kernel", "portable")
    )
    return OpRoutes(
        op=row["op"],
        overload=row["overload"],
        chip=row["chip"],
        routes=tuple(row["routes"]),
        kernel=kernel,
        portable=portable,
        policy=row["policy"],
        has_host_implementation=row["has_host_implementation"],
        is_view=row["is_view"],
        is_composite=row["composite_implicit"],
    )


def query_op(name: str | torch._ops.OpOverload | torch._ops.OpOverloadPacket) -> OpQuery:
    """Tell for every chip what would run an operator, and why not the other routes.

    Args:
        name: "aten::softmax" (all overloads), "add.Tensor" (one), or an operator of ``torch.ops``:
            ``torch.ops.aten.softmax``, ``torch.ops.aten.add.Tensor``.

    Raises:
        ConfigError: there is no such operator.
    """
    import torch

    op: Any = name
    overload = None
    if isinstance(op, torch._ops.OpOverload):
        overload = op._schema.overload_name
        op = f"{op._schema.name}.{overload}".removesuffix(".")
    elif isinstance(op, torch._ops.OpOverloadPacket):
        op = op._qualified_op_name
    op = _checked_op(op)
    rows = (_op_routes(row) for row in _load.core().query(op))
    return OpQuery(op, tuple(row for row in rows if overload in (None, row.overload)))


def registered_ops_summary() -> RegisteredOps:
    """Return the kernels that every chip registers, by chip."""
    chips: dict[str, list[KernelInfo]] = {}
    for row in _load.core().registered_ops():
        chips.setdefault(row["chip"], []).append(_kernel_info(row["chip"], row))
    return RegisteredOps({chip: tuple(kernels) for chip, kernels in chips.items()})


def clear_dispatch_cache() -> None:
    """Forget every routing decision made so far; the next call of each signature decides anew."""
    _load.core().clear_cache()
