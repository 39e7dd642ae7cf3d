# SPDX-License-Identifier: Apache-2.0
"""See every operator call of a run on a chip: arguments, results, layer, call site; forward and backward."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from torch_fl.conformance.case import Case, map_tensors, tensors_of
from torch_fl.conformance.execute import Answer, as_list, copy_with_strides
from torch_fl.conformance.forms import written_arguments
from torch_fl.conformance.operators import OPERATORS
from torch_fl.observe.align.draws import Draws, Watching, draws_numbers
from torch_fl.observe.align.reference import base_name, is_copy, rules_for

_UNDEFINED = frozenset(
    "empty new_empty empty_like empty_strided new_empty_strided empty_permuted resize _unsafe_view".split()
)
_NO_OPERATORS = ("prim", "profiler")
_RUNNER = os.path.join(os.path.dirname(__file__), "layers.py")
_SKIPPED_FOLDERS = tuple(
    os.path.dirname(os.path.abspath(path)) + os.sep for path in (torch.__file__, os.path.join(__file__, "..", ".."))
)


@dataclass(frozen=True)
class Place:
    """Where a call comes from."""

    layer: str = ""  # the path of the innermost module, "" outside and in the model itself
    kind: str = ""  # its class
    site: str = ""  # file:line of the innermost Python frame outside torch
    backward: bool = False

    def __str__(self) -> str:
        where = f"{self.layer or 'the model itself'}" + (f" ({self.kind})" if self.kind else "")
        return where + (", backward" if self.backward else "")


@dataclass
class Observed:
    """One call and what it gave, on the CPU."""

    case: Case
    answer: Answer
    place: Place
    route: str
    random: bool = False


class Layers:
    """The modules that are running, by forward hooks; use in a ``with`` statement."""

    def __init__(self, model: torch.nn.Module) -> None:
        self._model = model
        self._stack: list[tuple[str, str]] = []
        self._hooks: list[Any] = []

    @property
    def current(self) -> tuple[str, str]:
        """Path and class of the innermost module that is running."""
        return self._stack[-1] if self._stack else ("", "")

    def __enter__(self) -> Layers:
        for name, module in self._model.named_modules():
            entry = (name, type(module).__name__)
            self._hooks.append(module.register_forward_pre_hook(lambda *_, entry=entry: self._stack.append(entry)))
            self._hooks.append(module.register_forward_hook(lambda *_: self._leave(), always_call=True))
        return self

    def _leave(self) -> None:
        if self._stack:
            self._stack.pop()

    def __exit__(self, *_: object) -> None:
        for hook in self._hooks:
            hook.remove()


class Capture(Watching):  # type: ignore[no-untyped-call]
    """Hands every call on a device to an observer. Random numbers are those that were drawn on the CPU."""

    def __init__(self, device: torch.device, layers: Layers, draws: Draws, observe: Callable[[Observed], None]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._device, self._layers, self._draws, self._observe = device, layers, draws, observe
        self._places: dict[int, Place] = {}  # of forward calls, by autograd's sequence number

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run a call and observe it."""
        kwargs = kwargs or {}
        place = self._place()
        random = draws_numbers(func, args, kwargs)
        if not self._is_judged(func, args, kwargs):
            return self._draws.answer(func, args, kwargs) if random else func(*args, **kwargs)
        before = _to_cpu((args, kwargs))
        with routes_taken() as routes:
            out = self._draws.answer(func, args, kwargs) if random else func(*args, **kwargs)
            torch.fl.synchronize()  # type: ignore[attr-defined]
        if any(t.device.type == "cpu" for t in tensors_of(out)):
            return out
        case = case_of(name_of(func), before)
        answer = _answer(case, before, (args, kwargs), out)
        self._observe(Observed(case, answer, place, route_of(case.op, routes), random))
        return out

    def _is_judged(self, func: Any, args: Any, kwargs: Any) -> bool:
        if func.is_view or func.namespace in _NO_OPERATORS or base_name(name_of(func)) in _UNDEFINED:
            return False
        dense = all(t.layout is torch.strided for t in tensors_of((args, kwargs)))
        if not func._schema.returns or not dense:
            return False
        # The CPU's tensors without dimensions are numbers.
        devices = {t.device.type for t in tensors_of((args, kwargs)) if t.dim() or t.device.type != "cpu"}
        if not devices:
            return kwargs.get("device") is not None and torch.device(kwargs["device"]).type == self._device.type
        target = kwargs.get("device")
        stays = target is None or torch.device(target).type == self._device.type
        return devices == {self._device.type} and stays and not func.name().startswith("aten::_local_scalar")

    def _place(self) -> Place:
        node = torch._C._current_autograd_node()
        if node is not None:
            forward = self._places.get(node._sequence_nr())
            if forward is not None:
                return Place(forward.layer, forward.kind, forward.site, True)
            return Place("", "", node.name(), True)
        place = Place(*self._layers.current, call_site())
        self._places.setdefault(torch._C._autograd._get_sequence_nr() - 1, place)  # calls without a node come later
        return place


def case_of(op: str, tree: Any) -> Case:
    """Return a call as a case of the conformance kit, with what the kit knows of the operator."""
    rules = rules_for(op, OPERATORS)
    rules["exact"] = rules.get("exact", False) or is_copy(op, tree[0])
    return Case(op, tuple(tree[0]), dict(tree[1]), **rules)


def name_of(func: Any) -> str:
    """Return ``aten::add.Tensor`` for an overload."""
    return str(func.name()) if func._overloadname != "default" else func.name().removesuffix(".default")


def call_site() -> str:
    """Return file and line of the innermost Python frame outside torch and torch_fl."""
    frame = sys._getframe(1)
    while frame is not None:
        name = frame.f_code.co_filename
        if name == _RUNNER:  # it runs the model: outside it there is no site
            break
        if not name.startswith("<") and not os.path.abspath(name).startswith(_SKIPPED_FOLDERS):
            return f"{name}:{frame.f_lineno}"
        frame = frame.f_back  # type: ignore[assignment]
    return ""


def _answer(case: Case, before: Any, after: Any, out: Any) -> Answer:
    """What a call on the device gave, on the CPU."""
    schema = case.function._schema
    written = written_arguments(case.function)
    args, kwargs = _to_cpu(after) if written or case.written else before
    if not any(result.alias_info is not None and result.alias_info.is_write for result in schema.returns):
        return Answer(_to_cpu(as_list(out)), args, kwargs)
    places = [(i, argument.name) for i, argument in enumerate(schema.arguments) if argument.name in written]
    return Answer([args[i] if i < len(args) else kwargs.get(name) for i, name in places], args, kwargs)


def _to_cpu(tree: Any) -> Any:
    moved = map_tensors(tree, lambda tensor: copy_with_strides(tensor, "cpu"))
    return _devices_to_cpu(moved)


def _devices_to_cpu(tree: Any) -> Any:
    if isinstance(tree, list | tuple):
        return type(tree)(_devices_to_cpu(item) for item in tree)
    if isinstance(tree, dict):
        return {key: _devices_to_cpu(value) for key, value in tree.items()}
    return torch.device("cpu") if isinstance(tree, torch.device) else tree


@contextlib.contextmanager
def routes_taken() -> Iterator[list[str]]:
    """Collect ``operator route`` of the calls inside, by the counters."""
    found: list[str] = []
    before = _counts()
    yield found
    found.extend(line for line, calls in _counts().items() if calls > before.get(line, 0))


def _counts() -> dict[str, int]:
    import torch_fl

    counts: dict[str, int] = {}
    for row in torch_fl.counters():
        line = f"{row.op} {row.route}"
        counts[line] = counts.get(line, 0) + row.calls
    return counts


def route_of(op: str, routes: Sequence[str]) -> str:
    """Return the route of a call: its own, or that of the calls it was made of."""
    base = base_name(op)
    own = [line.split()[1] for line in routes if base_name(line.split()[0]) == base]
    every = own or [line.split()[1] for line in routes]
    if "host" in every:
        return "host"
    return every[-1] if every else ""
