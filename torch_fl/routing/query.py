# SPDX-License-Identifier: Apache-2.0
"""What would happen: for an operator, the routes on every chip and the reasons; for a call, which of them it takes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from torch_fl import _load
from torch_fl._words import counted
from torch_fl.configuration.operators import checked_op

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
    route: str = "kernel"  # or "portable", "override"
    rules: tuple[str, ...] = ()  # of the chip's descriptor: what a call must meet
    casts: tuple[tuple[str, str], ...] = ()  # types of calls, and what the kernel computes in instead
    alignment: int = 0  # bytes, of every tensor; 0: any

    def __str__(self) -> str:
        return f"{self.op} ({'; '.join(self._terms())})"

    def _terms(self) -> list[str]:
        terms = [", ".join(self.dtypes) or "any dtype"]
        if self.rules:
            terms.append(f"only when {', and '.join(self.rules)}")
        if "channels_last_only" in self.flags:
            terms.append("channels-last: the host converts")
        terms += [f"{source} computed in {target}" for source, target in self.casts]
        if self.alignment > 1:
            terms.append(f"aligned to {self.alignment} bytes: the host copies")
        return [*terms, "checks each call"] if self.checks_call else terms


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
    override: str = ""  # what the chip's descriptor has in its place, in words
    decomposition: str = ""  # the operators that PyTorch's tables make it of, or why that route is closed
    policy_by_chip: bool = False  # the chip's descriptor sets it, and the process nothing

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
            "override": self.override,
            "composite": "composed by PyTorch of operators that are routed on their own",
            "decomposed": self.decomposition,
            "host": f"host (fallback: {self._policy()})" + (f"; {self.decomposition}" if self._is_closed() else ""),
        }
        return texts.get(route, route)

    def _is_closed(self) -> bool:
        return bool(self.decomposition) and "decomposed" not in self.routes

    def _policy(self) -> str:
        return f"{self.policy}, by the chip's descriptor" if self.policy_by_chip else self.policy

    def _end(self) -> str:
        if not self.has_host_implementation:
            return "UnsupportedOpError, for PyTorch has no CPU kernel for it"
        closed = f" ({self.decomposition})" if self._is_closed() else ""
        return f"UnsupportedOpError, for the policy is fallback={self._policy()}{closed}"


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
            texts.append(
                f"{chip}: {counted(own, 'operator')}" + (f", {counted(portable, 'portable one')}" if portable else "")
            )
            for kernel in sorted(kernels, key=lambda kernel: (kernel.op, kernel.route)):
                texts[-1] += f"\n  {'portable ' if kernel.route == 'portable' else ''}{kernel}"
        return "\n".join(texts) or "no chip registers a kernel"


def _kernel_info(chip: str, row: Mapping[str, Any]) -> KernelInfo:
    return KernelInfo(
        chip=chip,
        op=row["op"],
        flags=tuple(row["flags"]),
        dtypes=tuple(row["dtypes"]),
        checks_call=row.get("checks_call", False),
        route=row["route"],
        rules=tuple(_rule_text(rule) for rule in row.get("rules", ())),
        casts=tuple(map(tuple, row.get("casts", ()))),
        alignment=row.get("alignment", 0),
    )


def _rule_text(rule: str) -> str:
    """Without the places that a failing call would fill in."""
    return rule.replace("{item}", "").replace("{position}", "each")


def _override_text(row: Mapping[str, Any]) -> str:
    if row["override"] is not None:
        return f"override {_kernel_info(row['chip'], row['override'])}"
    if row["override_expression"]:
        return f"override {row['override_expression']}"
    if not row["override_python"]:
        return ""
    from torch_fl.routing import overrides

    why_not = overrides.refusal(row["override_python"], "", row["op"])
    return f"override {row['override_python']} (a Python function{', which is not registered' if why_not else ''})"


def _decomposition(row: Mapping[str, Any]) -> tuple[bool, str]:
    """Tell whether the route is open, and into what or why not; ``""`` where there is no such thing."""
    served = any(route in row["routes"] for route in ("kernel", "portable", "composite"))
    if row["is_view"] or row["composite_implicit"] or row["device"] < 0 or served or not row["may_decompose"]:
        return False, ""
    from torch_fl.routing import decompositions

    if not row["decompose"]:
        return False, "not decomposed: the chip's descriptor forbids it"
    found = decompositions.summary(row["functional"], row["device"])
    return found or (False, "")


def _op_routes(row: Mapping[str, Any]) -> OpRoutes:
    kernel, portable = (
        None if row[route] is None else _kernel_info(row["chip"], row[route]) for route in ("kernel", "portable")
    )
    routes = list(row["routes"])
    opens, decomposition = _decomposition(row)
    if opens:
        routes.insert(len(routes) - (routes[-1:] == ["host"]), "decomposed")
    return OpRoutes(
        op=row["op"],
        overload=row["overload"],
        chip=row["chip"],
        routes=tuple(routes),
        kernel=kernel,
        portable=portable,
        policy=row["policy"],
        has_host_implementation=row["has_host_implementation"],
        is_view=row["is_view"],
        is_composite=row["composite_implicit"],
        override=_override_text(row),
        decomposition=decomposition,
        policy_by_chip=row["policy_by_chip"],
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
    op = checked_op(op)
    rows = (_op_routes(row) for row in _load.core().query(op))
    return OpQuery(op, tuple(row for row in rows if overload in (None, row.overload)))


@dataclass(frozen=True)
class ExplainedCall:
    """The route that one operator call would take."""

    op: str
    device: int
    chip: str
    route: str | None  # None: it depends on values
    reason: str
    refused: tuple[tuple[str, str], ...]  # the routes before it, and why each was not taken

    def __str__(self) -> str:
        lines = [f"{self.op} on {self.chip} (fl:{self.device}): {self.route or 'unknown'}: {self.reason}"]
        return "\n".join([*lines, *(f"  not {route}: {why}" for route, why in self.refused)])


@dataclass(frozen=True)
class Explanation:
    """The answer of `explain`: the operator calls that a function makes, in order. ``print()`` it."""

    calls: tuple[ExplainedCall, ...]

    def __str__(self) -> str:
        return "\n".join(map(str, self.calls)) or "no operator is called on an fl device"


def explain(function: Callable[..., Any] | str, *args: Any, **kwargs: Any) -> Explanation:
    """Tell for a call which route each of its operators would take, and why not the routes before.

    ``explain(torch.nn.functional.gelu, x)``, ``explain(model, x)``, ``explain("aten::gelu", x)``. A function is run;
    operators given by name, or from ``torch.ops.aten``, are not.

    Raises:
        ConfigError: there is no such operator.
    """
    import torch

    if isinstance(function, torch._ops.OpOverloadPacket):
        function = function._qualified_op_name
    called = _resolved(function, args, kwargs) if isinstance(function, str) else function
    if isinstance(called, torch._ops.OpOverload):
        call = _explain_call(called, args, kwargs)
        return Explanation((call,) if call else ())
    return Explanation(tuple(_explained_calls(called, args, kwargs)))


def _resolved(name: str, args: Any, kwargs: Any) -> Any:
    """Return the overload of a name that takes these arguments."""
    import torch

    from torch_fl.routing import decompositions

    name = checked_op(name)
    if "." in name:
        return decompositions.overload(name)
    overload = torch._C._jit_resolve_packet(name, *args, **kwargs)
    return decompositions.overload(f"{name}.{overload}".removesuffix(".default"))


def _explained_calls(function: Callable[..., Any], args: Any, kwargs: Any) -> list[ExplainedCall]:
    from torch_fl.routing import decompositions

    calls: list[ExplainedCall] = []

    def see(op: Any, args: Any, kwargs: Any, mode: Any) -> Any:
        call = _explain_call(op, args, kwargs)
        if call is not None:
            calls.append(call)
        return op(*args, **kwargs)

    with decompositions.watching(see):
        function(*args, **kwargs)
    return calls


def _explain_call(op: Any, args: Any, kwargs: Any) -> ExplainedCall | None:
    """Return None for what is no routed call: views, factories, copies, calls on other devices."""
    import torch
    from torch.utils import _pytree

    from torch_fl.routing import decompositions

    tensors = [leaf for leaf in _pytree.tree_leaves((args, kwargs)) if isinstance(leaf, torch.Tensor)]
    device = next((tensor.device.index for tensor in tensors if tensor.device.type == "fl"), None)
    if device is None or op.is_view or not decompositions.is_routed(op):
        return None
    phantoms = decompositions.Phantoms(device)
    route, reason, refused = decompositions.probe(op, device, False, phantoms.all(args), phantoms.all(kwargs))
    chip = next(row["chip"] for row in _load.core().devices() if row["index"] == device)
    return ExplainedCall(decompositions.full_name(op), device, chip, route, reason, tuple(refused))


def registered_ops_summary() -> RegisteredOps:
    """Return the kernels that every chip registers, by chip."""
    chips: dict[str, list[KernelInfo]] = {}
    for row in _load.core().registered_ops():
        chips.setdefault(row["chip"], []).append(_kernel_info(row["chip"], row))
    return RegisteredOps({chip: tuple(kernels) for chip, kernels in chips.items()})


def clear_dispatch_cache() -> None:
    """Forget every routing decision made so far; the next call of each signature decides anew."""
    _load.core().clear_cache()
