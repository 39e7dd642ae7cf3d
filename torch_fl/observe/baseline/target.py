# SPDX-License-Identifier: Apache-2.0
"""A model that somebody names: ``pkg.module:callable`` or ``file.py:callable``."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

from torch import nn

from torch_fl._suggest import did_you_mean
from torch_fl.observe.baseline.case import tensors

Target = tuple[nn.Module, tuple[Any, ...], dict[str, Any]]  # with the positional and named arguments of a call
_ATTRIBUTES = ("dummy_inputs", "example_inputs", "example_input_array")  # of transformers, and of Lightning


class BadModel(ValueError):
    """A model that cannot be had, and why."""


def load(name: str) -> Target:
    """Call what a name means; return the module and its arguments."""
    place, colon, attribute = name.rpartition(":")
    if not colon or not place or not attribute:
        raise BadModel(f"{name!r}: expected pkg.module:callable or file.py:callable")
    module = _module(place)
    if not hasattr(module, attribute):
        public = [key for key in vars(module) if not key.startswith("_")]
        raise BadModel(f"{place} has no {attribute!r}{did_you_mean(attribute, public)}")
    return _checked(name, getattr(module, attribute))


def _module(place: str) -> ModuleType:
    """Import a module by its dotted name or its file, with what is beside the file importable, as for a script."""
    path = Path(place)
    if not place.endswith(".py"):
        sys.path.insert(0, "")
        try:
            return importlib.import_module(place)
        except ModuleNotFoundError as error:
            raise BadModel(f"{place}: {error}; a file is named with its .py") from error
    if not path.is_file():
        raise BadModel(f"{path}: no such file")
    sys.path.insert(0, str(path.resolve().parent))
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    spec.loader.exec_module(module)
    return module


def _checked(name: str, found: Any) -> Target:
    made = found() if callable(found) and not isinstance(found, nn.Module) else found
    module, inputs = made if isinstance(made, tuple) and len(made) == 2 else (made, None)
    if not isinstance(module, nn.Module):
        raise BadModel(f"{name} gave {type(module).__name__}, expected an nn.Module or (nn.Module, inputs)")
    if inputs is None:
        inputs = next((found for name in _ATTRIBUTES if (found := getattr(module, name, None)) is not None), None)
    if inputs is None:
        raise BadModel(f"{name} gave a module without inputs: have it return (module, inputs)")
    args, named = ((), inputs) if isinstance(inputs, dict) else (inputs, {})
    if next(tensors((args, named)), None) is None:
        raise BadModel(f"{name}: there is no tensor among the inputs")
    return module, tuple(args) if isinstance(args, tuple | list) else (args,), named
