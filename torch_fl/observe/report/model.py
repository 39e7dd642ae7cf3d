# SPDX-License-Identifier: Apache-2.0
"""A model that somebody names: ``package.module:callable`` or ``file.py:callable``, built, run and recorded.

The callable returns a module that knows its inputs (``dummy_inputs``, ``example_input_array``), or (module, inputs).
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
import traceback
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch

WARM_UP = 2
_ATTRIBUTES = ("dummy_inputs", "example_inputs", "example_input_array")  # of transformers, and of Lightning


class ModelError(Exception):
    """What was named is no model, and what to do."""


def is_model(what: str) -> bool:
    """Tell ``file.py:callable`` and ``package.module:callable`` from a script."""
    return bool(what.rpartition(":")[0]) and what.rpartition(":")[2].replace(".", "_").isidentifier()


def load(target: str, given: Any = None) -> tuple[torch.nn.Module, tuple[Any, ...], dict[str, Any]]:
    """Return a module, and the positional and named inputs of a call: those that are given, else its own."""
    import torch

    place, _, name = target.rpartition(":")
    made = _called(_found(_module(place), name, target), target)
    module, inputs = made if isinstance(made, tuple) and len(made) == 2 else (made, None)
    if not isinstance(module, torch.nn.Module):
        kind = type(module).__name__
        raise ModelError(f"{target} gave {kind}, expected a torch.nn.Module, or (module, inputs)")
    inputs = given if given is not None else inputs
    if inputs is None:
        inputs = next((getattr(module, each) for each in _ATTRIBUTES if getattr(module, each, None) is not None), None)
    if inputs is None:
        raise ModelError(f"{target} gave a module without inputs: let it return (module, inputs)")
    return module, *_arguments(inputs)


def _arguments(inputs: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    if isinstance(inputs, dict):
        return (), inputs
    return (tuple(inputs), {}) if isinstance(inputs, (tuple, list)) else ((inputs,), {})


def _module(place: str) -> Any:
    if not place.endswith(".py"):
        sys.path.insert(0, "")
        return importlib.import_module(place)
    path = Path(place)
    if not path.is_file():
        raise ModelError(f"{place}: no such file")
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    sys.path.insert(0, str(path.absolute().parent))
    spec.loader.exec_module(module)
    return module


def _found(module: Any, name: str, target: str) -> Any:
    for part in name.split("."):
        if not hasattr(module, part):
            from torch_fl._suggest import did_you_mean

            names = [word for word in dir(module) if not word.startswith("_")]
            raise ModelError(f"{target}: {module.__name__} has no {part!r}{did_you_mean(part, names)}")
        module = getattr(module, part)
    return module


def _called(found: Any, target: str) -> Any:
    import torch

    if isinstance(found, (torch.nn.Module, tuple)):
        return found
    if not callable(found):
        raise ModelError(f"{target} is {type(found).__name__}, expected a function, a class or a module")
    return found()


def record(target: str, device: str, steps: int) -> Any:
    """Run forward and, where there are parameters, backward passes on a device; return their report."""
    import torch

    from torch_fl import profiler
    from torch_fl.observe.report import data

    module, positional, named = load(target)
    module.to(device)
    positional, named = torch.utils._pytree.tree_map_only(torch.Tensor, lambda t: t.to(device), (positional, named))
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
    from torch_fl.observe.running import write_whole

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
