# SPDX-License-Identifier: Apache-2.0
"""Run a case on the CPU and on the chip, and judge it."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from torch_fl import _load
from torch_fl.conformance.case import Case, map_tensors, tensors_of
from torch_fl.conformance.compare import compare_draws, compare_outputs
from torch_fl.conformance.forms import out_siblings, written_arguments
from torch_fl.conformance.verdict import Finding, Verdict

_WIDER = {
    torch.float16: torch.float64,
    torch.bfloat16: torch.float64,
    torch.float32: torch.float64,
    torch.complex64: torch.complex128,
}


@dataclass
class Answer:
    """What a call did: its outputs, and its arguments afterwards."""

    outputs: list[Any]
    args: tuple[Any, ...]
    kwargs: dict[str, Any]


class Executor:
    """Runs cases on one device. ``routes``: those that count as the chip's own."""

    def __init__(self, device: torch.device, routes: Sequence[str]) -> None:
        self.device, self.routes = device, frozenset(routes)
        self._core = _load.core()

    def check(self, case: Case, expected: Answer | None = None) -> Finding:
        """Run a case and compare it with the CPU's answer."""
        expected = expected or on_cpu(case)
        if expected is None:
            return Finding(Verdict.UNTESTED, "the CPU refuses the case", case=str(case))
        finding = self._guarded(lambda: self._judge(case, expected))
        finding.case = str(case)
        return finding

    def check_gradient(self, case: Case) -> Finding | None:
        """Compare the gradients of a case; None where the CPU has none."""
        expected = gradients(case, None)
        if expected is None:
            return None
        case = dataclasses.replace(case, form="grad", roundings=4 * case.roundings, exact=False, ignore=frozenset())
        finding = self._guarded(lambda: self._judge_gradient(case, expected))
        finding.case = str(case)
        return finding

    def try_out(self, case: Case) -> Finding:
        """Tell which route a case takes, and why not the chip's own."""
        if on_cpu(case) is None:
            return Finding(Verdict.UNTESTED, "the CPU refuses the case", case=str(case))
        finding = self._guarded(lambda: self._route_finding(case))
        refused = finding.verdict is Verdict.UNTESTED or finding.verdict is Verdict.FAILED
        finding.verdict = Verdict.REFUSED if refused else Verdict.SUPPORTED
        return finding

    def _guarded(self, body: Callable[[], Finding]) -> Finding:
        """Run a judgement; what is raised is its finding, and so are guard bytes that changed."""
        try:
            finding = body()
        except Exception as error:  # whatever the chip raises is the finding
            finding = _raised(error)
        try:
            damaged = self._core.check_guards()
        except Exception as error:  # the device is lost
            return _raised(error)
        if damaged:
            return Finding(Verdict.FAILED, _describe_damage(damaged), route=finding.route)
        return finding

    def _judge(self, case: Case, expected: Answer) -> Finding:
        route, reason, answer = self._call(case)
        if route not in self.routes:
            return Finding(Verdict.UNTESTED, reason, route=route)
        finding = self._compare_draws(case, expected, answer) if case.draws else _compare(case, expected, answer)
        finding.route = route
        return finding

    def _route_finding(self, case: Case) -> Finding:
        route, reason, _ = self._call(case)
        return Finding(Verdict.SUPPORTED if route in self.routes else Verdict.UNTESTED, reason, route=route)

    def _call(self, case: Case) -> tuple[str, str, Answer]:
        args, kwargs = self.move((case.args, case.kwargs))
        torch.fl.synchronize()  # type: ignore[attr-defined]
        torch.manual_seed(7)
        self._core.reset_counters()
        outputs = case.function(*args, **kwargs)
        torch.fl.synchronize()  # type: ignore[attr-defined]
        # PyTorch makes some functional calls of their out= siblings, which are what is counted then.
        route, reason = self._route({case.called, case.op, *out_siblings(case.op)})
        return route, reason, Answer(as_list(outputs), args, kwargs)

    def _route(self, names: set[str]) -> tuple[str, str]:
        """The route that a call took by the counters, and the reason of an unwanted one."""
        mine = [row for row in self._core.counters() if row[6] and f"{row[0]}.{row[1]}".rstrip(".") in names]
        wanted = [row for row in mine if row[4] in self.routes]
        if wanted and not any(row[4] == "host" for row in mine):
            return wanted[0][4], ""
        if not mine:
            return "uncounted", "no routed call: PyTorch or the core did it without this kernel"
        unwanted = next((row for row in mine if row[4] not in self.routes), mine[0])
        where = "ran on the host" if unwanted[4] == "host" else f"took the route {unwanted[4]}"
        return unwanted[4], f"{where}: {unwanted[5]}" if unwanted[5] else where

    def _compare_draws(self, case: Case, expected: Answer, answer: Answer) -> Finding:
        _, _, again = self._call(case)
        first, second = (on_host(item.outputs) for item in (answer, again))
        if not all(torch.equal(a, b) for a, b in zip(first, second, strict=True)):
            return Finding(Verdict.FAILED, "the same seed gave other numbers")
        return compare_draws(first, expected.outputs)

    def _judge_gradient(self, case: Case, expected: list[torch.Tensor | None]) -> Finding:
        self._core.reset_counters()
        found = gradients(case, self.move)
        torch.fl.synchronize()  # type: ignore[attr-defined]
        rows = [row for row in self._core.counters() if row[6]]
        wanted = sum(row[6] for row in rows if row[4] in self.routes)
        host = sorted({f"{row[0]}: {row[5]}" for row in rows if row[4] == "host"})
        if not wanted:
            return Finding(Verdict.UNTESTED, f"ran on the host: {'; '.join(host[:3])}" if host else "no routed call")
        if found is None:
            return Finding(Verdict.FAILED, "the output requires no gradient; on the CPU it does", route="grad")
        wide = gradients(widened(case), None)
        if wide is not None and len(wide) != len(expected):
            wide = None
        finding = compare_outputs(case, on_host(found), list(expected), wide, strides=False)
        finding.route = "grad with host" if host else "grad"
        return finding

    def move(self, tree: Any) -> Any:
        """Return a copy of a tree on the device, each tensor with its strides; ``device=`` arguments name it."""
        moved = map_tensors(tree, lambda tensor: copy_with_strides(tensor, self.device))
        return _replace(moved, lambda value: self.device if isinstance(value, torch.device) else value)


def as_list(outputs: Any) -> list[Any]:
    """Return the outputs of a call as a list."""
    if outputs is None:
        return []
    return list(outputs) if isinstance(outputs, list | tuple) else [outputs]


def copy_with_strides(tensor: torch.Tensor, device: torch.device | str) -> torch.Tensor:
    """Copy a tensor and what lies between its elements."""
    tensor = tensor.resolve_conj().resolve_neg()
    if tensor.is_contiguous() or not tensor.numel():
        return tensor.detach().clone().to(device)
    extent = 1 + sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True))
    flat = tensor.detach().as_strided((extent,), (1,), tensor.storage_offset()).clone().to(device)
    return flat.as_strided(tensor.shape, tensor.stride())


def on_cpu(case: Case) -> Answer | None:
    """Return the CPU's answer; None where it refuses."""
    args, kwargs = map_tensors((case.args, case.kwargs), lambda tensor: copy_with_strides(tensor, "cpu"))
    torch.manual_seed(3)
    try:
        return Answer(as_list((case.oracle or case.function)(*args, **kwargs)), args, kwargs)
    except Exception:
        return None


def on_cpu_strided(case: Case, plain: Answer) -> Answer | None:
    """Return the CPU's answer to strided arguments: its strides, and the values of the plain case.

    Some of the CPU's kernels take strided arguments for dense ones; what is right does not depend on strides.
    """
    answer = on_cpu(case)
    if answer is None or len(answer.outputs) != len(plain.outputs):
        return answer
    for mine, theirs in zip(answer.outputs, plain.outputs, strict=True):
        if isinstance(mine, torch.Tensor) and mine.shape == theirs.shape:
            mine.copy_(theirs)
    return answer


def widened(case: Case) -> Case:
    """Return the case in the widest floating-point type."""
    args, kwargs = map_tensors(
        (case.args, case.kwargs),
        lambda tensor: copy_with_strides(tensor, "cpu").to(_WIDER.get(tensor.dtype, tensor.dtype)),
    )
    change = lambda value: _WIDER.get(value, value) if isinstance(value, torch.dtype) else value  # noqa: E731
    return dataclasses.replace(case, args=_replace(args, change), kwargs=_replace(kwargs, change))


def dense(case: Case) -> Case:
    """Return a case of strided arguments with dense ones; others as they are."""
    if case.form not in ("strided", "transposed"):
        return case
    args, kwargs = map_tensors((case.args, case.kwargs), torch.Tensor.contiguous)
    return dataclasses.replace(case, args=args, kwargs=kwargs)


def _replace(tree: Any, change: Callable[[Any], Any]) -> Any:
    if isinstance(tree, list | tuple):
        return type(tree)(_replace(item, change) for item in tree)
    if isinstance(tree, dict):
        return {key: _replace(value, change) for key, value in tree.items()}
    return change(tree)


def on_host(values: Sequence[Any]) -> list[Any]:
    """Return copies of tensors on the CPU, with their strides."""
    return [copy_with_strides(value, "cpu") if isinstance(value, torch.Tensor) else value for value in values]


def _compare(case: Case, expected: Answer, answer: Answer) -> Finding:
    wide = on_cpu(widened(dense(case))) if not case.exact else None
    found, theirs = on_host(answer.outputs), expected.outputs
    reference = wide.outputs if wide is not None and len(wide.outputs) == len(theirs) else None
    strides = case.settle is None and case.form != "out="
    if case.settle is not None:
        found, theirs = case.settle(case.args, found), case.settle(case.args, theirs)
        reference = case.settle(widened(case).args, reference) if reference is not None else None
    finding = compare_outputs(case, found, theirs, reference, strides)
    if finding.verdict is Verdict.FAILED:
        return finding
    return _compare_arguments(case, expected, answer, wide) or finding


def _compare_arguments(case: Case, expected: Answer, answer: Answer, wide: Answer | None) -> Finding | None:
    """What is wrong with the arguments afterwards; those that the operator does not change must be as they were."""
    written = written_arguments(case.function) | case.written
    worst: Finding | None = None
    for name, mine, theirs, widest in _arguments(case, answer, expected, wide):
        judged = case if name in written else dataclasses.replace(case, exact=True)
        judged = dataclasses.replace(judged, ignore=frozenset())
        found = compare_outputs(judged, on_host(mine), theirs, widest if name in written else None, strides=False)
        if found.verdict is Verdict.STRICT:
            continue
        if name not in written:
            return Finding(Verdict.FAILED, f"the argument {name}, which is only read, was changed", found.nmse)
        found.reason = f"argument {name} afterwards: {found.reason}"
        if worst is None or found.verdict is Verdict.FAILED:
            worst = found
    return worst


def _arguments(case: Case, answer: Answer, expected: Answer, wide: Answer | None) -> list[tuple[str, Any, Any, Any]]:
    names = [(i, arg.name) for i, arg in enumerate(case.function._schema.arguments) if not arg.is_out]
    rows = []
    for i, name in names:  # what out= names is among the outputs
        values = [
            None if item is None else item.args[i] if i < len(item.args) else item.kwargs.get(name)
            for item in (answer, expected, wide)
        ]
        mine, theirs, widest = (list(tensors_of(value)) for value in values)
        if theirs:
            rows.append((name, mine, theirs, widest if len(widest) == len(theirs) else None))
    return rows


def gradients(case: Case, move: Callable[[Any], Any] | None) -> list[torch.Tensor | None] | None:
    """Return the gradients of a fixed combination of the outputs; None where there are none."""
    move = move or (lambda tree: map_tensors(tree, lambda tensor: copy_with_strides(tensor, "cpu")))
    args, kwargs = move((case.args, case.kwargs))
    leaves = [t for t in tensors_of((args, kwargs)) if t.is_floating_point() or t.is_complex()]
    on_host = not leaves or leaves[0].device.type == "cpu"
    try:
        for leaf in leaves:
            leaf.requires_grad_()
        with torch.enable_grad():
            outputs = [t for t in tensors_of(as_list(case.function(*args, **kwargs))) if t.requires_grad]
            if not outputs or not leaves:
                return None
            return list(torch.autograd.grad(outputs, leaves, [direction(t) for t in outputs], allow_unused=True))
    except Exception:
        if on_host:
            return None
        raise


def direction(tensor: torch.Tensor) -> torch.Tensor:
    """Return a fixed direction of the tensor's size, the same on every device and exact in every type."""
    steps = (torch.arange(tensor.numel()) * 7 % 11 - 5) / 4
    return steps.reshape(tensor.shape).to(tensor.dtype).to(tensor.device)


def _raised(error: Exception) -> Finding:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    text = f"{type(error).__name__}: {' | '.join(lines[:2])}"[:400]
    unsupported = type(error).__name__ == "UnsupportedOpError"
    return Finding(Verdict.UNTESTED if unsupported else Verdict.FAILED, text)


def _describe_damage(damaged: list[dict[str, int]]) -> str:
    first = damaged[0]
    if first["first"] < 0:
        where = f"{-first['first']} bytes before its start"
    else:
        where = f"{first['first'] - first['bytes']} bytes behind its end"
    text = f"wrote outside a tensor of {first['bytes']} bytes: {first['changed']} guard bytes changed, from {where}"
    return text + (f" (and {len(damaged) - 1} more places)" if len(damaged) > 1 else "")
