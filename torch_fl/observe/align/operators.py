# SPDX-License-Identifier: Apache-2.0
"""Op by op: judge each call that a run made, and try each kind of call with other data, sizes and layouts."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import torch

from torch_fl.conformance.case import Case, dtype_name, map_tensors, tensors_of
from torch_fl.conformance.compare import compare_draws
from torch_fl.conformance.execute import Answer, Executor, as_list, dense, on_cpu, on_host
from torch_fl.conformance.forms import written_arguments
from torch_fl.conformance.verdict import Verdict as KitVerdict
from torch_fl.observe.align.capture import Observed, Place, route_of, routes_taken
from torch_fl.observe.align.judge import Accuracy, Judgement, Verdict, judge, worse
from torch_fl.observe.align.probes import MOST_ELEMENTS, changed_data, probes
from torch_fl.observe.align.reference import base_name, reference_of, results_of

PROBED_KINDS = 2  # signatures of one operator and type that are probed


@dataclass
class Call:
    """One call of the run, judged on the model's own data."""

    index: int  # in the order of execution
    op: str
    place: Place
    judgement: Judgement
    route: str = ""


@dataclass
class Op:
    """All calls of one operator in one element type."""

    op: str
    dtype: str
    phase: str  # "forward", "backward" or "both"
    calls: int = 0
    routes: list[str] = field(default_factory=list)
    verdict: Verdict = Verdict.EXACT
    reason: str = ""
    probe: str = ""  # what had to be changed for the fault to show; "": the model's own data show it
    place: Place = field(default_factory=Place)  # of the first wrong call; of the first call where none is wrong
    case: str = ""
    first: int = -1  # the first wrong call's number
    chip: Accuracy = field(default_factory=Accuracy)
    cpu: Accuracy = field(default_factory=Accuracy)
    probed: Accuracy | None = None  # of the probe that shows the fault
    probes: int = 0
    layers: list[str] = field(default_factory=list)  # where it is called

    def as_dict(self) -> dict[str, Any]:
        """Return plain values, ready for JSON."""
        return {**asdict(self), "verdict": self.verdict.value}


class OpJudge:
    """Takes the calls of a run, one after the other."""

    def __init__(
        self, device: torch.device, probing: bool = True, progress: Callable[[str], None] = lambda text: None
    ) -> None:
        self._executor, self._probing, self._progress = Executor(device, ()), probing, progress
        self.calls: list[Call] = []
        self.ops: dict[tuple[str, str], Op] = {}
        self._waiting: list[tuple[Op, Observed, int]] = []
        self._probed: dict[tuple[str, str], set[str]] = {}

    def observe(self, seen: Observed) -> None:
        """Judge a call on its own data; keep it for probes if it is the first of its kind."""
        index = len(self.calls)
        judgement = self._draws(seen) if seen.random else judge_answer(seen)
        self.calls.append(Call(index, seen.case.op, seen.place, judgement, seen.route))
        op = self._row(seen)
        op.calls += 1
        if seen.route and seen.route not in op.routes:
            op.routes.append(seen.route)
        if seen.place.layer not in op.layers:
            op.layers.append(seen.place.layer)
        op.phase = _joined(op.phase, seen.place)
        op.chip.merge(judgement.chip)
        op.cpu.merge(judgement.cpu)
        self._note(op, judgement.verdict, judgement.reason, "", seen, index)
        if self._probing and not seen.random and seen.route != "host" and self._is_new(seen):
            self._waiting.append((op, seen, index))

    def probe(self) -> None:
        """Make the calls again with other data, sizes and layouts."""
        for op, seen, index in self._waiting:
            if op.verdict.bad:
                continue
            self._progress(f"{op.op} {op.dtype}")
            for name, judgement in self._probe(seen.case):
                op.probes += 1
                if judgement.verdict.bad:
                    self._note(op, judgement.verdict, judgement.reason, name, seen, index)
                    op.probed = judgement.chip
                    break

    def _row(self, seen: Observed) -> Op:
        key = (seen.case.op, _dtype(seen))
        if key not in self.ops:
            self.ops[key] = Op(*key, "", place=seen.place, case=str(seen.case))
        return self.ops[key]

    def _note(self, op: Op, verdict: Verdict, reason: str, probe: str, seen: Observed, index: int) -> None:
        if op.verdict.bad or not worse(verdict, op.verdict):
            return
        op.verdict, op.reason, op.probe = verdict, reason, probe
        if verdict.bad:
            op.place, op.case, op.first = seen.place, str(seen.case), index

    def _is_new(self, seen: Observed) -> bool:
        elements = sum(t.numel() for t in tensors_of((seen.case.args, seen.case.kwargs)))
        if elements > MOST_ELEMENTS or not elements:
            return False
        known = self._probed.setdefault((seen.case.op, _dtype(seen)), set())
        signature = str(seen.case)
        if signature in known or len(known) >= PROBED_KINDS:
            return False
        known.add(signature)
        return True

    def _draws(self, seen: Observed) -> Judgement:
        """Random numbers: those of the chip's own generator must be distributed as the CPU's are."""
        expected = on_cpu(seen.case)
        if expected is None:
            return Judgement(Verdict.UNJUDGED, "the CPU refuses the call")
        try:
            found = on_host(self._run(seen.case).outputs)
        except Exception as error:
            return _failed(error)
        finding = compare_draws(found, expected.outputs)
        if finding.verdict is KitVerdict.FAILED:
            return Judgement(Verdict.WRONG, finding.reason)
        return Judgement(Verdict.RANDOM, "random numbers: distribution compared; the run used the CPU's")

    def _run(self, case: Case) -> Answer:
        """Make a call on the chip; `_OnHost` if it leaves it, for then the CPU would be judged."""
        args, kwargs = self._executor.move((case.args, case.kwargs))
        return self._run_there(case, args, kwargs)

    def _run_there(self, case: Case, args: Any, kwargs: Any) -> Answer:
        with routes_taken() as routes:
            outputs = case.function(*args, **kwargs)
            torch.fl.synchronize()  # type: ignore[attr-defined]
        if route_of(case.op, routes) == "host":
            raise _OnHost
        return Answer(as_list(outputs), args, kwargs)

    def _probe(self, case: Case) -> Any:
        changed = changed_data(case)  # first: what stale data do to the other probes would mislead
        if changed is not None:
            yield "other data at the same addresses", self._stale(case, changed)
        for name, probe in probes(case):
            yield name, self._guarded(probe, case)

    def _guarded(self, probe: Case, original: Case) -> Judgement:
        if probe.form == "out=":
            return self._into(probe, original)
        same_data = probe.form != "forward" and probe.form != original.form
        special = not same_data and not probe.exact
        reference = reference_of(probe, dense(probe) if probe.form in ("strided", "transposed") else None)
        if reference is None:
            return Judgement(Verdict.UNJUDGED)
        reference.merged = special
        try:
            answer = self._run(probe)
        except Exception as error:
            return _failed(error)
        return self._with_arguments(probe, answer, judge(_host(results_of(probe, answer)), reference))

    def _into(self, probe: Case, original: Case) -> Judgement:
        """The ``out=`` form gives what the plain call gives; not all of the CPU's own do."""
        reference = reference_of(original)
        if reference is None:
            return Judgement(Verdict.UNJUDGED)
        try:
            answer = self._run(probe)
        except Exception as error:
            return _failed(error)
        found = results_of(original, Answer(answer.outputs, answer.args, {}))
        return self._with_arguments(probe, answer, judge(_host(found), reference))

    def _with_arguments(self, case: Case, answer: Answer, judgement: Judgement) -> Judgement:
        """Arguments that are only read must be as they were."""
        written = written_arguments(case.function) | case.written
        arguments = case.function._schema.arguments
        pairs = [(argument.name, value) for argument, value in zip(arguments, answer.args, strict=False)]
        ours = {id(t) for name, value in pairs if name in written for t in tensors_of(value)}  # x.mul_(x)
        for i, argument in enumerate(arguments):
            if argument.name in written or i >= len(answer.args):
                continue
            for mine, theirs in zip(tensors_of(answer.args[i]), tensors_of(case.args[i]), strict=True):
                if id(mine) not in ours and not torch.allclose(mine.cpu(), theirs, rtol=0, atol=0, equal_nan=True):
                    return Judgement(Verdict.WRONG, f"the argument {argument.name}, which is only read, was changed")
        return judgement

    def _stale(self, case: Case, changed: Case) -> Judgement:
        """Call twice with the same memory, whose contents change in between."""
        reference = reference_of(changed)
        if reference is None:
            return Judgement(Verdict.UNJUDGED)
        try:
            args, kwargs = self._executor.move((case.args, case.kwargs))
            case.function(*args, **kwargs)
            pairs = zip(tensors_of((args, kwargs)), tensors_of((changed.args, changed.kwargs)), strict=True)
            for mine, new in pairs:
                if mine.is_floating_point():
                    _once(mine, mine).copy_(_once(mine, new))
            answer = self._run_there(changed, args, kwargs)
        except Exception as error:
            return _failed(error)
        return judge(_host(results_of(changed, answer)), reference)


def _once(like: torch.Tensor, tensor: torch.Tensor) -> torch.Tensor:
    """What is broadcast in one tensor cut to its one element: memory cannot be written to twice."""
    for dim, (size, stride) in enumerate(zip(like.shape, like.stride(), strict=True)):
        if stride == 0 and size > 1:
            tensor = tensor.narrow(dim, 0, 1)
    return tensor


def judge_answer(seen: Observed) -> Judgement:
    """Judge what a call gave on the model's own data."""
    plain = _contiguous(seen.case) if seen.route != "host" else None
    reference = reference_of(seen.case, plain)
    if reference is None:
        return Judgement(Verdict.UNJUDGED, "the CPU refuses the call")
    return judge(results_of(seen.case, seen.answer), reference)


def _contiguous(case: Case) -> Case | None:
    """The case with dense arguments, where some are not and none is written: CPU kernels may take one for another."""
    if all(t.is_contiguous() for t in tensors_of((case.args, case.kwargs))) or written_arguments(case.function):
        return None
    args, kwargs = map_tensors((case.args, case.kwargs), lambda t: t.contiguous())
    return replace(case, args=args, kwargs=kwargs)


def _host(results: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    return {name: tensor.detach().cpu() for name, tensor in results.items()}


def _dtype(seen: Observed) -> str:
    case = seen.case
    kinds = [t.dtype for t in tensors_of((case.args, case.kwargs))]
    floating = [kind for kind in kinds if kind.is_floating_point or kind.is_complex]
    target = [value for value in (*case.args, *case.kwargs.values()) if isinstance(value, torch.dtype)]
    names = [dtype_name(kind) for kind in (floating or kinds)[:1]]
    if target and base_name(case.op) == "_to_copy" and names:
        return f"{names[0]} to {dtype_name(target[0])}"
    return names[0] if names else ", ".join(dict.fromkeys(dtype_name(t.dtype) for t in tensors_of(seen.answer.outputs)))


def _joined(phase: str, place: Place) -> str:
    mine = "backward" if place.backward else "forward"
    return mine if phase in ("", mine) else "both"


class _OnHost(Exception):
    """A call left the chip."""


def _failed(error: Exception) -> Judgement:
    if isinstance(error, _OnHost):
        return Judgement(Verdict.UNJUDGED, "it ran on the host")
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return Judgement(Verdict.WRONG, f"{type(error).__name__}: {' | '.join(lines[:2])}"[:300])
