# SPDX-License-Identifier: Apache-2.0
"""A model that somebody names, built, run and recorded."""

from __future__ import annotations

import sys
import traceback
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torch_fl.observe.target import ModelError, load, moved

if TYPE_CHECKING:
    import torch

WARM_UP = 2


def record(target: str, device: str, steps: int) -> Any:
    """Run forward and, where there are parameters, backward passes on a device; return their report."""
    import torch

    from torch_fl import profiler
    from torch_fl.observe.report import data

    module, positional, named = load(target)
    module.to(device)
    positional, named = moved((positional, named), device)
    failure = ""
    for _ in range(WARM_UP):
        failure = failure or _guarded(module, positional, named)
    torch.accelerator.synchronize()
    with profiler.profile(layers=module) as profile:
        for _ in range(steps):
            failure = failure or _guarded(module, positional, named)
        torch.accelerator.synchronize()
    return data.collect(profile, target, failure)


def _guarded(module: Any, positional: Any, named: Any) -> str:
    try:
        step(module, positional, named)
    except Exception:
        return traceback.format_exc()
    return ""


def step(module: torch.nn.Module, positional: tuple[Any, ...], named: dict[str, Any]) -> None:
    """Call a model and derive the sum of what it returns."""
    import torch

    module.zero_grad()
    results = torch.utils._pytree.tree_leaves(module(*positional, **named))
    wanted = [leaf for leaf in results if isinstance(leaf, torch.Tensor) and leaf.requires_grad]
    if wanted:
        torch.stack([leaf.float().sum() for leaf in wanted]).sum().backward()  # type: ignore[no-untyped-call]


def main(target: str, output: str, device: str, steps: str) -> int:
    """Write the report's data; the process that ``torch-fl report`` starts."""
    import torch_fl
    from torch_fl._files import write_whole

    if device:
        torch_fl.set_preferred_device(device)
    from torch_fl.configuration.devices import preferred_device

    try:
        report = record(target, str(preferred_device()), int(steps))
    except ModelError as error:
        print(f"torch-fl report: {error}", file=sys.stderr)
        return 2
    write_whole(Path(output), report.to_json())
    if report.failure:
        print(report.failure, file=sys.stderr)
    return int(bool(report.failure))


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
