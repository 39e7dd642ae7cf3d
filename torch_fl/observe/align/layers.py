# SPDX-License-Identifier: Apache-2.0
"""Layer by layer: each module on the chip with the CPU's inputs, so that its own fault shows, not what it inherits."""

from __future__ import annotations

import contextlib
import copy
import functools
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from typing import Any

import torch
from torch.utils._python_dispatch import _disable_current_modes

from torch_fl.conformance.bounds import unit_roundoff
from torch_fl.conformance.case import map_tensors, tensors_of
from torch_fl.conformance.compare import normalised_error, parts
from torch_fl.conformance.execute import direction
from torch_fl.observe.align.draws import RecordedDraws, ReplayedDraws, Watching
from torch_fl.observe.align.judge import Judgement, Verdict, judge
from torch_fl.observe.align.reference import Reference, is_copy

_RUNS = 9  # that rounding is given to show what it can do to a layer
_Mode = contextlib.AbstractContextManager[Any]
_NO_MODE: _Mode = contextlib.nullcontext()


@dataclass
class Seen:
    """One call of one module in the CPU's run."""

    name: str
    kind: str
    args: Any = ()
    kwargs: Any = field(default_factory=dict)
    buffers: dict[str, torch.Tensor] = field(default_factory=dict)  # as they were before
    draws: list[torch.Tensor] = field(default_factory=list)
    outputs: list[torch.Tensor] = field(default_factory=list)
    gradients: list[torch.Tensor | None] = field(default_factory=list)  # with respect to the outputs
    first_draw: int = 0
    finished: bool = False  # a checkpoint leaves the last module that it repeats in the middle
    autocast: torch.dtype | None = None


@dataclass
class Layer:
    """The verdict on one module in one direction."""

    name: str
    kind: str
    phase: str
    judgement: Judgement = field(default_factory=Judgement)
    drift: float | None = None  # NMSE of the whole run against the CPU's, inherited errors included

    @property
    def verdict(self) -> Verdict:
        """The layer's own verdict."""
        return self.judgement.verdict

    def as_dict(self) -> dict[str, Any]:
        """Return plain values, ready for JSON."""
        return {**asdict(self), "judgement": self.judgement.as_dict()}


class Run:
    """One run of a model, forward and backward, whose modules are watched."""

    def __init__(self, model: torch.nn.Module) -> None:
        self.model = model
        self.calls: list[Seen] = []
        self.outputs: list[torch.Tensor] = []
        self.recorder = RecordedDraws()

    def go(self, inputs: tuple[Any, dict[str, Any]], backward: bool, keep_inputs: bool) -> None:
        """Run the model on positional and named inputs; keep those of each module if it is to be repeated alone."""
        with self._watched(keep_inputs):
            outputs = self.model(*inputs[0], **inputs[1])
            self.outputs = [t for t in tensors_of(_plain(outputs)) if t.is_floating_point()]
            if backward:
                _go_back([t for t in self.outputs if t.requires_grad])

    @contextlib.contextmanager
    def _watched(self, keep_inputs: bool) -> Iterator[None]:
        hooks = []
        for name, module in self.model.named_modules():
            hooks += list(self._watch(name, module, keep_inputs))
        try:
            yield
        finally:
            for hook in hooks:
                hook.remove()

    def _watch(self, name: str, module: torch.nn.Module, keep_inputs: bool) -> Iterator[Any]:
        stack: list[Seen] = []

        def enter(_: Any, args: Any, kwargs: Any) -> None:
            with _disable_current_modes():
                note(args, kwargs)

        def note(args: Any, kwargs: Any) -> None:
            seen = Seen(name, type(module).__name__, first_draw=len(self.recorder.draws))
            if torch.is_autocast_enabled("cpu"):
                seen.autocast = torch.get_autocast_dtype("cpu")
            if keep_inputs:
                seen.args, seen.kwargs = _copies(args), _copies(kwargs)
                seen.buffers = {key: value.detach().clone() for key, value in module.named_buffers()}
            self.calls.append(seen)
            stack.append(seen)

        def leave(_: Any, args: Any, kwargs: Any, outputs: Any) -> None:
            seen = stack.pop()
            tensors = [t for t in tensors_of(_plain(outputs)) if t.is_floating_point()]
            if not all(map(_has_values, tensors)):
                return
            seen.finished = True
            seen.draws = self.recorder.draws[seen.first_draw :]
            seen.outputs = [_on_cpu(t) for t in tensors]
            seen.gradients = [None] * len(tensors)
            for i, tensor in enumerate(tensors):
                if tensor.requires_grad:
                    keep = functools.partial(_keep, seen.gradients, i)
                    tensor.register_hook(keep)  # type: ignore[no-untyped-call]

        yield module.register_forward_pre_hook(enter, with_kwargs=True)
        yield module.register_forward_hook(leave, with_kwargs=True)


def _has_values(tensor: torch.Tensor) -> bool:
    """Whether a tensor can be compared: not what vmap() and the like pass through a module, nor nested or sparse."""
    inside = torch._C._functorch.is_functorch_wrapped_tensor(tensor)
    return tensor.layout is torch.strided and not tensor.is_nested and not inside


def _keep(gradients: list[torch.Tensor | None], i: int, gradient: torch.Tensor | None) -> None:
    if gradient is not None:  # as of the last state of a recurrent cell, which nothing reads
        gradients[i] = _on_cpu(gradient)


def _on_cpu(tensor: torch.Tensor) -> torch.Tensor:
    """A copy that whoever watches the run does not see being made."""
    with _disable_current_modes():
        return tensor.detach().to("cpu", copy=True)


def _go_back(outputs: list[torch.Tensor]) -> None:
    if outputs:
        with _disable_current_modes():
            directions = [_loss_direction(t.detach()) for t in outputs]
        torch.autograd.backward(outputs, directions)


def _loss_direction(tensor: torch.Tensor) -> torch.Tensor:
    """The gradient that starts the backward pass: a loss's own, else a fixed direction as a mean would have it."""
    if tensor.dim() == 0:
        return torch.ones_like(tensor)
    return direction(tensor) / max(1, tensor.numel() // max(1, tensor.shape[0]))


def _plain(value: Any) -> Any:
    """Lists and dicts of what a module returned: dataclasses and named outputs too."""
    if isinstance(value, dict):
        return dict(value)
    return list(value) if isinstance(value, list | tuple) else value


def _copies(tree: Any) -> Any:
    return map_tensors(tree, lambda t: t.detach().clone())


class Rounding(Watching):  # type: ignore[no-untyped-call]
    """Has a run in float64 round what every operator gives: by a unit of roundoff, up or down at random."""

    def __init__(self, unit: float, seed: int) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._unit, self._generator = unit, torch.Generator().manual_seed(seed)

    def moved(self, tensor: torch.Tensor) -> torch.Tensor:
        """Return a tensor in float64, moved."""
        return _double(tensor) * self._factors(tensor) if _is_real(tensor) else tensor

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run a call, and move its results."""
        out = func(*args, **(kwargs or {}))
        if not func.is_view and not is_copy(func.name(), args):
            read = set() if func._schema.is_mutable else {_memory(t) for t in tensors_of((args, kwargs))}
            for tensor in tensors_of(out):
                if _is_real(tensor) and _memory(tensor) not in read:
                    tensor.mul_(self._factors(tensor))
        return out

    def _factors(self, tensor: torch.Tensor) -> torch.Tensor:
        signs = torch.randint(0, 2, tensor.shape, generator=self._generator).double() * 2 - 1
        return 1 + self._unit * signs


def _memory(tensor: torch.Tensor) -> int:
    return tensor.untyped_storage().data_ptr()


class LayerJudge:
    """Repeats the modules of a run alone: on the CPU, in float64, and on the chip."""

    def __init__(self, model: torch.nn.Module, device: torch.device, backward: bool) -> None:
        self._cpu, self._chip = copy.deepcopy(model), copy.deepcopy(model).to(device)
        try:
            self._wide: torch.nn.Module | None = copy.deepcopy(model).double()
        except Exception:  # a module that cannot be widened
            self._wide = None
        self._device, self._backward = device, backward

    def judge(self, seen: Seen) -> list[Layer]:
        """Return the verdicts on one module's call, forward and backward."""
        expected = self._quietly(self._cpu, seen, lambda t: t)
        if expected is None:
            return [Layer(seen.name, seen.kind, "forward", Judgement(Verdict.UNJUDGED, "it does not run alone"))]
        wide = self._quietly(self._wide, seen, _double)
        spread = Spread(lambda seed: self._moved(seen, seed) if wide is not None else None, wide or {})
        try:
            found = self._alone(self._chip, seen, lambda t: t.to(self._device))
        except Exception as error:  # as where an argument is an object that holds tensors, or a device
            reason = f"alone, on the chip, it raises {type(error).__name__}: {error}"[:300]
            return [Layer(seen.name, seen.kind, "forward", Judgement(Verdict.UNJUDGED, reason))]
        layers = []
        for phase in ("forward", "backward"):
            names = [name for name in expected if name.startswith("grad") == (phase == "backward")]
            if names:
                layers.append(Layer(seen.name, seen.kind, phase, _judge(names, found, expected, wide, spread)))
        return layers

    def _moved(self, seen: Seen, seed: int) -> dict[str, torch.Tensor] | None:
        """The results in float64 with inputs, and what every operator gives, moved by their rounding."""
        rounding = Rounding(_unit(seen), seed)
        return self._quietly(self._wide, seen, rounding.moved, rounding)

    def _quietly(
        self, model: torch.nn.Module | None, seen: Seen, change: Any, mode: _Mode = _NO_MODE
    ) -> dict[str, torch.Tensor] | None:
        if model is None:
            return None
        try:
            return self._alone(model, seen, change, mode)
        except Exception:  # it makes tensors of a type of its own
            return None

    def _alone(
        self,
        model: torch.nn.Module,
        seen: Seen,
        change: Callable[[torch.Tensor], torch.Tensor],
        mode: _Mode = _NO_MODE,
    ) -> dict[str, torch.Tensor]:
        module = model.get_submodule(seen.name)
        for key, buffer in module.named_buffers():
            buffer.data.copy_(seen.buffers[key])
        leaves: list[tuple[str, torch.Tensor]] = []

        def enter(tensor: torch.Tensor) -> torch.Tensor:
            tensor = change(tensor.detach().clone())
            if not (self._backward and _is_real(tensor)):
                return tensor
            tensor.requires_grad_()
            leaves.append((f"grad of input {len(leaves)}", tensor))
            return tensor.clone()  # modules may write to their inputs

        args, kwargs = map_tensors((seen.args, seen.kwargs), enter)
        leaves += [(f"grad of {name}", p) for name, p in module.named_parameters() if p.requires_grad]
        replay = ReplayedDraws(seen.draws)
        with mode, replay, torch.set_grad_enabled(self._backward), _autocast(seen, args, kwargs):
            outputs = [t for t in tensors_of(_plain(module(*args, **kwargs))) if t.is_floating_point()]
        results = {f"output {i}": t.detach().clone() for i, t in enumerate(outputs)}
        results |= {f"{key} afterwards": b.detach().clone() for key, b in module.named_buffers() if _is_real(b)}
        if self._backward:
            starts = _starts(outputs, seen, change)
            replay.draws.rewind()  # checkpoints draw again what they drew
            with mode, replay:
                results |= _gradients(starts, leaves)
        if replay.draws.parted:
            raise RuntimeError("it draws numbers of its own")
        return results


def _autocast(seen: Seen, args: Any, kwargs: Any) -> contextlib.AbstractContextManager[Any]:
    """The autocast that a module ran in, on the device of its arguments."""
    if seen.autocast is None:
        return contextlib.nullcontext()
    kind = next((t.device.type for t in tensors_of((args, kwargs))), "cpu")
    return torch.autocast(kind, seen.autocast)


_Starts = list[tuple[torch.Tensor, torch.Tensor]]  # outputs with their gradients


def _starts(outputs: list[torch.Tensor], seen: Seen, change: Any) -> _Starts:
    pairs = zip(outputs, seen.gradients, strict=True)
    return [(t, change(g.detach().clone()).reshape(t.shape)) for t, g in pairs if g is not None and t.requires_grad]


def _gradients(starts: _Starts, leaves: list[tuple[str, torch.Tensor]]) -> dict[str, torch.Tensor]:
    if not starts or not leaves:
        return {}
    outputs, directions = zip(*starts, strict=True)
    found = torch.autograd.grad(outputs, [t for _, t in leaves], directions, allow_unused=True)
    return {name: grad for (name, _), grad in zip(leaves, found, strict=True) if grad is not None}


class Spread:
    """How far rounding moves the results of a layer: the most of some runs, more of them where that decides."""

    def __init__(self, moved: Callable[[int], dict[str, torch.Tensor] | None], wide: dict[str, torch.Tensor]) -> None:
        self._moved, self._wide, self._runs = moved, wide, 0
        self.most: dict[str, torch.Tensor] = {}

    def draw(self, runs: int) -> bool:
        """Make runs until there are so many; return whether there were fewer."""
        fewer = self._runs < runs
        for seed in range(self._runs, runs):
            moved = self._moved(seed) or {}
            for name in (name for name in self._wide if _is_like(moved, name, self._wide[name])):
                change = (moved[name] - self._wide[name]).abs().nan_to_num(0.0, 0.0, 0.0)
                self.most[name] = torch.maximum(self.most[name], change) if name in self.most else change
        self._runs = max(runs, self._runs)
        return fewer


def _judge(names: list[str], found: Any, expected: Any, wide: Any, spread: Spread) -> Judgement:
    pairs = {name: _alike(found[name].detach().cpu(), expected[name]) for name in names if name in found}
    mine = {name: pair[0] for name, pair in pairs.items()}
    theirs = {name: pairs[name][1] if name in pairs else expected[name] for name in names}
    reference = Reference(theirs, merged=True, spread=spread.most)
    if wide is not None:
        reference.wide = {name: wide[name] for name in names if _is_like(wide, name, expected[name])}
    spread.draw(1)
    verdict = judge(mine, reference, whole=True)
    # What rounding seldom does, as to turn the sign of what ReLU is given, one run need not show.
    if verdict.verdict.bad and spread.draw(_RUNS):
        verdict = judge(mine, reference, whole=True)
    return verdict


def _alike(found: torch.Tensor, expected: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Two results in the narrower of their types: which operators autocast leaves in float32 differs by device."""
    if found.dtype == expected.dtype or not (_is_real(found) and _is_real(expected)):
        return found, expected
    kind = max(found.dtype, expected.dtype, key=unit_roundoff)
    return found.to(kind), expected.to(kind)


def _is_like(found: dict[str, torch.Tensor], name: str, tensor: torch.Tensor) -> bool:
    return name in found and _is_real(found[name]) and found[name].shape == tensor.shape


def compare_runs(mine: Run, theirs: Run) -> dict[tuple[str, str], float]:
    """Return how far the chip's run has drifted from the CPU's, by module and direction (NMSE, the worst call)."""
    drift: dict[tuple[str, str], float] = {}
    for found, expected in zip(mine.calls, theirs.calls, strict=False):
        if found.name != expected.name:
            break
        for phase, left, right in (
            ("forward", found.outputs, expected.outputs),
            ("backward", found.gradients, expected.gradients),
        ):
            pairs = [(a, b) for a, b in zip(left, right, strict=False) if a is not None and b is not None]
            errors = [_difference(a, b) for a, b in pairs if a.shape == b.shape]
            if errors:
                key = (found.name, phase)
                drift[key] = max(drift.get(key, 0.0), *errors)
    return drift


def _difference(found: torch.Tensor, expected: torch.Tensor) -> float:
    mine, theirs = parts(found.detach().cpu()), parts(expected.detach())
    finite = mine.isfinite() & theirs.isfinite()
    return normalised_error(mine[finite], theirs[finite], expected.dtype)[0]


def _is_real(tensor: torch.Tensor) -> bool:
    return tensor.is_floating_point()


def _double(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.double() if _is_real(tensor) else tensor


def _unit(seen: Seen) -> float:
    kinds = {t.dtype for t in (*tensors_of((seen.args, seen.kwargs)), *seen.outputs) if _is_real(t)}
    if seen.autocast is not None:
        kinds.add(seen.autocast)
    return max([unit_roundoff(kind) for kind in kinds], default=unit_roundoff(torch.float32))
