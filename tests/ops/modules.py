# SPDX-License-Identifier: Apache-2.0
"""Check one ModuleInfo in one dtype: forward, backward and buffers, in training and in evaluation mode."""

from __future__ import annotations

import contextlib
import copy
import dataclasses
import functools
from collections.abc import Iterator
from typing import Any

import torch

from tests.harness import compare
from tests.harness.compare import Mismatch
from tests.harness.trees import Mover, Widener, tensors_of
from tests.ops.engine import Options, _direction, spread
from tests.ops.outcome import Outcome, Recorder
from tests.ops.tolerances import tolerances_for


@dataclasses.dataclass
class Case:
    """A module with the arguments of its forward, on the CPU."""

    module: torch.nn.Module
    inputs: tuple[tuple[Any, ...], dict[str, Any]]
    label: str

    def to(self, device: str) -> Case:
        module = copy.deepcopy(self.module)
        return Case(module if device == "cpu" else module.to(device), Mover(device).move(self.inputs), self.label)

    def widened(self) -> Case:
        """A copy on the CPU in the widest floating-point type."""
        module = copy.deepcopy(self.module)
        for tensor in (*module.parameters(), *module.buffers()):
            tensor.data = Widener().move(tensor.data)
        return Case(module, Widener().move(self.inputs), self.label)

    def forward(self) -> Any:
        args, kwargs = self.inputs
        return self.module(*args, **kwargs)

    @property
    def leaves(self) -> list[torch.Tensor]:
        """What gradients are wanted of: parameters and inputs."""
        mine = [*self.module.parameters(), *tensors_of(self.inputs)]
        return [tensor for tensor in mine if tensor.requires_grad]


@dataclasses.dataclass
class Run:
    """What happened: output, state afterwards, gradients (None where the module has none)."""

    output: Any
    state: dict[str, Any]
    gradients: list[torch.Tensor | None] | None
    random: bool
    types: list[torch.dtype]  # of the outputs that require grad


def _run(case: Case, types: list[torch.dtype] | None = None) -> Run:
    """`types`: what the factors of the outputs are rounded to, if not to the outputs' own types."""
    before = torch.default_generator.get_state()
    output = case.forward()
    gradients: list[torch.Tensor | None] | None = None
    outputs = [tensor for tensor in tensors_of(output) if tensor.requires_grad]
    own = [tensor.dtype for tensor in outputs]
    if outputs and case.leaves:
        directions = [_direction(tensor, dtype) for tensor, dtype in zip(outputs, types or own, strict=True)]
        gradients = list(torch.autograd.grad(outputs, case.leaves, directions, allow_unused=True))
    random = not torch.equal(before, torch.default_generator.get_state())
    return Run(output, dict(case.module.state_dict()), gradients, random, own)


def _exact(case: Case, expected: Run) -> compare.Exact:
    """What the CPU would give in the widest type, computed when it is asked for."""

    @functools.cache
    def wider() -> compare.Exact:
        with contextlib.suppress(Exception):  # the CPU may have no such kernel in the wider type
            run = _run(case.widened(), expected.types)
            mine, other = [expected.output, expected.gradients], [run.output, run.gradients]
            if len(list(tensors_of(mine))) == len(list(tensors_of(other))):
                return compare.exact_results(mine, other)
        return lambda tensor: None

    return lambda tensor: wider()(tensor)


def _cases(info: Any, dtype: torch.dtype, options: Options) -> Iterator[Case]:
    for training in (True, False):
        torch.manual_seed(0)  # whatever ran before in this process
        made = info.module_inputs_func(info, device="cpu", dtype=dtype, requires_grad=True, training=training)
        for item in spread(made, options.max_samples):
            if item.forward_input is None:
                continue
            with torch.random.fork_rng(devices=[]):
                torch.manual_seed(0)
                module = info.module_cls(*item.constructor_input.args, **item.constructor_input.kwargs)
            module.train(training).to(dtype)
            case = Case(module, (tuple(item.forward_input.args), dict(item.forward_input.kwargs)), item.desc)
            if info.is_lazy:
                Case(module, Mover("cpu").move(case.inputs), item.desc).forward()  # makes the parameters
            yield case


def check_module(info: Any, dtype: torch.dtype, options: Options) -> list[Outcome]:
    """Outcomes of a ModuleInfo in one dtype."""
    recorder = Recorder(f"module:{info.name}", str(dtype).removeprefix("torch."), options.on_begin)
    tolerances = tolerances_for(info, dtype)
    for case in _cases(info, dtype, options):
        try:
            expected = _run(case.to("cpu"))
        except Exception:
            continue  # the CPU refuses
        _check_case(recorder, case, expected, tolerances, options)
    return recorder.outcomes()


def _check_case(recorder: Recorder, case: Case, expected: Run, tolerances: Any, options: Options) -> None:
    mode = "train" if case.module.training else "eval"
    sample = (type(case.module).__name__, mode, case.label, *case.inputs)
    found: list[Run] = []
    exact = _exact(case, expected)

    def forward() -> None:
        run = options.call(_run, case.to(options.device))
        found.append(run)
        values = not expected.random
        compare.check_tree(run.output, expected.output, tolerances, values, options.device, "output ", exact)
        compare.check_tree(run.state, expected.state, tolerances, values, options.device, "state ")

    def backward() -> None:
        if not found or found[0].gradients is None:
            raise Mismatch("no gradients on the device; the CPU has some")
        values = not expected.random
        compare.check_tree(
            found[0].gradients, expected.gradients, tolerances, values, options.device, "gradient ", exact
        )

    recorder.check("forward", sample, forward)
    if expected.gradients is not None and "backward" in options.variants and found:
        recorder.check("backward", sample, backward)
