# SPDX-License-Identifier: Apache-2.0
"""Check one OptimizerInfo in one dtype: several steps, then parameters and state are compared with the CPU's.

Each configuration of optim_inputs runs as a loop, foreach, fused and capturable, where the optimizer has that form. The
capturable form, which the CPU lacks, is compared with the CPU's loop.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

import torch

from tests.harness import compare
from tests.harness.compare import Mismatch
from tests.harness.trees import Mover
from tests.ops.engine import Options
from tests.ops.outcome import Outcome, Recorder

STEPS = 4
VARIANTS = ("loop", "foreach", "fused", "capturable")
_TOLERANCES = {  # several steps add up
    torch.float32: (1e-5, 1e-5),
    torch.float64: (1e-7, 1e-7),
    torch.complex64: (1e-5, 1e-5),
}
# The capturable form keeps its step count, and what it computes from that, in float32 tensors.
_CAPTURABLE = {**_TOLERANCES, torch.float64: (1e-6, 1e-6)}
# Differences of gradients that hardly change any more: rounding errors, in the narrower types.
_LBFGS_HISTORY = ("d", "ro", "old_dirs", "old_stps", "H_diag", "prev_flat_grad")
_Parameters = list[torch.nn.Parameter]


def _parameters(info: Any, dtype: torch.dtype) -> _Parameters:
    matrices_only = info.optim_cls.__name__ == "Muon" or info.only_supports_sparse_grads
    shapes: list[tuple[int, ...]] = [(4, 3), (3, 5)] if matrices_only else [(4, 3), (5,), ()]
    generator = torch.Generator().manual_seed(0)
    working = torch.complex128 if dtype.is_complex else torch.float64
    return [torch.nn.Parameter(torch.randn(shape, dtype=working, generator=generator).to(dtype)) for shape in shapes]


def _kwargs(info: Any, kwargs: dict[str, Any], variant: str) -> dict[str, Any] | None:
    """Constructor arguments for the variant; None when the optimizer has no such form."""
    flags = {flag: False for flag in ("foreach", "fused") if flag in info.supported_impls}
    mine = {**copy.deepcopy(kwargs), **flags}
    if variant in ("foreach", "fused"):
        return {**mine, variant: True} if variant in flags else None
    if variant == "capturable":
        return {**mine, "capturable": True} if info.has_capturable_arg else None
    return mine


def _steps(info: Any, parameters: _Parameters, kwargs: dict[str, Any]) -> dict[str, Any]:
    """Minimise sum |p|^2 + p over a few steps; return parameters and state."""
    optimizer = info.optim_cls(parameters, **kwargs)

    def closure() -> torch.Tensor:
        optimizer.zero_grad()
        terms = [(p * p.conj() + p).real.sum() if p.is_complex() else (p * p + p).sum() for p in parameters]
        loss = torch.stack(terms).sum()
        loss.backward()
        if info.only_supports_sparse_grads:
            for p in parameters:
                p.grad = p.grad.to_sparse()
        return loss

    for _ in range(STEPS):
        if info.step_requires_closure:
            optimizer.step(closure)
        else:
            closure()
            optimizer.step()
    state = {key: dict(value) for key, value in optimizer.state_dict()["state"].items()}
    for mine in state.values():
        for key in () if parameters[0].dtype == torch.float64 else _LBFGS_HISTORY:
            mine.pop(key, None)
        mine.pop("al", None)  # LBFGS' work space: after convergence products with rounding errors
    return {"parameters": [p.detach() for p in parameters], "state": state}


def _configurations(info: Any) -> Iterator[tuple[str, str, dict[str, Any]]]:
    for item in info.optim_inputs_func(device="cpu"):
        for variant in VARIANTS:
            kwargs = _kwargs(info, item.kwargs, variant)
            if kwargs is not None:
                yield variant, item.desc, kwargs


def check_optimizer(info: Any, dtype: torch.dtype, options: Options) -> list[Outcome]:
    """Outcomes of an OptimizerInfo in one dtype."""
    recorder = Recorder(f"optimizer:{info.optim_cls.__name__}", str(dtype).removeprefix("torch."), options.on_begin)
    if dtype.is_complex and not info.supports_complex:
        return []
    for variant, label, kwargs in _configurations(info):
        if variant == "capturable" and torch.device(options.device).type == "cpu":
            continue
        reference = {key: value for key, value in kwargs.items() if variant != "capturable" or key != "capturable"}
        parameters = _parameters(info, dtype)
        try:
            expected = _steps(info, Mover("cpu").move(parameters), copy.deepcopy(reference))
        except Exception:
            continue  # the CPU refuses this combination
        tolerances = _CAPTURABLE if variant == "capturable" else _TOLERANCES
        recorder.check(
            variant,
            (label, kwargs),
            lambda k=kwargs, p=parameters, e=expected, t=tolerances: _check(info, options, p, k, e, t),
        )
    return recorder.outcomes()


def _check(
    info: Any,
    options: Options,
    parameters: _Parameters,
    kwargs: dict[str, Any],
    expected: dict[str, Any],
    tolerances: dict[torch.dtype, compare.Tolerance],
) -> None:
    found = options.call(_steps, info, Mover(options.device).move(parameters), copy.deepcopy(kwargs))
    compare.check_tree(found["parameters"], expected["parameters"], tolerances, True, options.device, "parameter ")
    if set(found["state"]) != set(expected["state"]):
        raise Mismatch(f"state: expected entries {sorted(expected['state'])}, found {sorted(found['state'])}")
    compare.check_tree(found["state"], expected["state"], tolerances, at="state ")
