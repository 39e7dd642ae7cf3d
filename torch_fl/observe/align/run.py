# SPDX-License-Identifier: Apache-2.0
"""Run a model on the CPU and on a chip, and say where they part."""

from __future__ import annotations

import copy
import gc
from collections.abc import Callable
from dataclasses import asdict
from typing import Any

import torch

from torch_fl.conformance.case import map_tensors
from torch_fl.conformance.operators import OPERATORS
from torch_fl.observe.align.capture import Capture, Layers
from torch_fl.observe.align.draws import Draws
from torch_fl.observe.align.judge import Verdict
from torch_fl.observe.align.layers import Layer, LayerJudge, Run, compare_runs
from torch_fl.observe.align.operators import Op, OpJudge
from torch_fl.observe.align.reference import rules_for
from torch_fl.observe.align.result import AlignReport, PrecisionChange, is_inside
from torch_fl.observe.report import environment
from torch_fl.observe.target import ModelError, broken

Progress = Callable[[str], None]
_CHANGED = 2.0  # times the squared error: less is another order of sums


def align(
    model: torch.nn.Module,
    inputs: Any = (),
    device: str | torch.device = "fl:0",
    backward: bool = True,
    *,
    kwargs: dict[str, Any] | None = None,
    probe: bool = True,
    precision: bool = True,
    name: str = "",
    seed: int = 0,
    progress: Progress = lambda text: None,
) -> AlignReport:
    """Compare a model on a chip with the same model on the CPU: every layer, and every operator that it calls.

    Args:
        model: on any device; it is copied, and neither moved nor changed.
        inputs: one tensor, or a tuple of arguments.
        device: the chip's device.
        backward: compare gradients too.
        kwargs: named arguments.
        probe: also try each operator with other data, sizes and layouts.
        precision: also run with ``set_precision("high")`` and tell what it changes.
        name: what to call the model in reports; default: its class.
        seed: for what the model draws at random.
        progress: called with what is being done.

    Raises:
        ValueError: the device is no fl device.
        ModelError: the model does not run on the CPU, cannot be moved to the chip, or is TorchScript.
    """
    if isinstance(model, torch.jit.ScriptModule):
        raise ModelError(
            "align: expected a torch.nn.Module, found TorchScript, whose layers nobody can watch; "
            "give the module that it was made of"
        )
    target = torch.device(device)
    if target.type == "cpu" or target.type != torch.empty(0, device=target).device.type:
        raise ValueError(f"align: expected a chip's device such as 'fl:0', found {str(device)!r}")
    given = tuple(inputs) if isinstance(inputs, list | tuple) else (inputs,)
    report = AlignReport(name or type(model).__name__, str(target), _chip(target), backward)
    progress("running on the CPU")
    try:
        original = copy.deepcopy(model).to("cpu")
        arguments = map_tensors((given, dict(kwargs or {})), lambda t: t.detach().to("cpu").clone())
        cpu = Run(copy.deepcopy(original))
        torch.manual_seed(seed)
        with cpu.recorder:
            cpu.go(map_tensors(arguments, torch.clone), backward, keep_inputs=True)
    except Exception as error:
        raise broken(f"{report.model}: the model, on the CPU,", error) from error

    judge = OpJudge(target, probe, progress)
    chip = _on_chip(original, arguments, target, backward, cpu, judge, progress, report)
    drift = {} if report.failure else compare_runs(chip, cpu)
    del chip
    report.layers = _layers(original, cpu, target, backward, drift, progress)
    judge.probe()
    report.ops, report.calls = list(judge.ops.values()), judge.calls
    _excuse(report)
    if precision and not report.failure:
        report.precision = _precision(original, arguments, target, backward, cpu, report.ops, progress)
    report.environment = [asdict(fact) for fact in environment.facts()]
    return report


def _on_chip(
    original: torch.nn.Module,
    arguments: Any,
    device: torch.device,
    backward: bool,
    cpu: Run,
    judge: OpJudge,
    progress: Progress,
    report: AlignReport | None,
) -> Run:
    """Run the model on the chip, every call judged; random numbers are the CPU's."""
    try:
        model = copy.deepcopy(original).to(device)
        moved = map_tensors(arguments, lambda t: t.clone().to(device))
    except Exception as error:
        raise broken(f"moving the model and its inputs to {device}", error) from error
    run, draws = Run(model), Draws(cpu.recorder.draws)

    def observe(seen: Any) -> None:
        progress(f"{seen.case.op} in {seen.place}")
        judge.observe(seen)

    with Layers(model) as layers, Capture(device, layers, draws, observe):
        try:
            run.go(moved, backward, keep_inputs=False)
        except Exception as error:
            if report is None:
                raise
            report.failure = f"{type(error).__name__}: {error}".strip().splitlines()[0]
    if draws.parted and report is not None:
        report.notes.append("the chip's run drew other random numbers than the CPU's: whole runs are not comparable")
    return run


def _layers(
    original: torch.nn.Module,
    cpu: Run,
    device: torch.device,
    backward: bool,
    drift: dict[tuple[str, str], float],
    progress: Progress,
) -> list[Layer]:
    judge = LayerJudge(original, device, backward)
    found: dict[tuple[str, str], Layer] = {}
    for seen in (call for call in cpu.calls if call.finished):
        progress(f"layer {seen.name or type(original).__name__}")
        for layer in judge.judge(seen):
            known = found.setdefault((layer.name, layer.phase), layer)
            if known is not layer:
                known.judgement.merge(layer.judgement)
            known.drift = drift.get((layer.name, layer.phase))
    gc.collect()
    forward = [layer for layer in found.values() if layer.phase == "forward"]
    return forward + [layer for layer in reversed(list(found.values())) if layer.phase == "backward"]


def _excuse(report: AlignReport) -> None:
    """Leave layers alone that differ and hold an operator with several right results; the operator was judged."""
    open_ops = [(op, layer) for op in report.ops if rules_for(op.op, OPERATORS).get("settle") for layer in op.layers]
    for layer in report.layers:
        inside = [op.op for op, name in open_ops if name == layer.name or is_inside(name, layer.name)]
        if layer.verdict.bad and inside:
            layer.judgement.verdict = Verdict.UNJUDGED
            layer.judgement.reason = f"it differs, and {inside[0]} in it has several right results"


def _precision(
    original: torch.nn.Module,
    arguments: Any,
    device: torch.device,
    backward: bool,
    cpu: Run,
    ops: list[Op],
    progress: Progress,
) -> list[PrecisionChange]:
    """Return the operators whose accuracy or route the precise setting changes."""
    import torch_fl

    before = torch_fl.get_config()["precision"]
    judge = OpJudge(device, probing=False)
    torch_fl.set_precision("high")
    try:
        progress('running with set_precision("high")')
        _on_chip(original, arguments, device, backward, cpu, judge, progress, None)
    finally:
        torch_fl.set_precision(before)
    changes = []
    for op in ops:
        high = judge.ops.get((op.op, op.dtype))
        if high is None or op.verdict is Verdict.RANDOM:
            continue
        figures = sorted((op.chip.nmse, high.chip.nmse))
        if figures[1] > _CHANGED * figures[0] or high.routes != op.routes:
            routes = (op.routes, high.routes)
            changes.append(PrecisionChange(op.op, op.dtype, op.chip.nmse, high.chip.nmse, *routes))
    return changes


def _chip(device: torch.device) -> str:
    import torch_fl

    index = device.index or 0
    return next((record.chip for record in torch_fl.list_devices() if record.index == index), "")
