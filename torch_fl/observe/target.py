# SPDX-License-Identifier: Apache-2.0
"""A model that somebody names: ``package.module:callable`` or ``file.py:callable``.

What is called returns a module that knows its inputs (``dummy_inputs``, ``example_inputs``,
``example_input_array``), or (module, inputs). Inputs are a tensor, a tuple or list of positional arguments, or a dict
of named ones.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
import sys
import traceback
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

import torch_fl
from torch_fl._suggest import did_you_mean

if TYPE_CHECKING:
    from torch import nn

    Target = tuple[nn.Module, tuple[Any, ...], dict[str, Any]]
    """With the positional and named arguments of a call."""

_ATTRIBUTES = ("dummy_inputs", "example_inputs", "example_input_array")  # of transformers, and of Lightning


class ModelError(ValueError):
    """What was named is no model, and what to do."""


def is_model(what: str) -> bool:
    """Tell ``file.py:callable`` and ``package.module:callable`` from a script."""
    place, _, name = what.rpartition(":")
    return bool(place) and name.replace(".", "_").isidentifier()


def load(name: str, given: Any = None) -> Target:
    """Call what a name means; return the module, and the arguments of a call: those that are given, else its own.

    Raises:
        ModelError: there is nothing of that name, or it gives no module, or a module without inputs.
    """
    from torch import nn

    if not is_model(name):
        raise ModelError(f"{name!r}: expected package.module:callable or file.py:callable")
    place, _, attribute = name.rpartition(":")
    made = _called(_found(_module(place), attribute, place), name)
    module, inputs = made if isinstance(made, tuple) and len(made) == 2 else (made, None)
    if not isinstance(module, nn.Module):
        raise ModelError(f"{name} gave {type(module).__name__}, expected a torch.nn.Module, or (module, inputs)")
    inputs = given if given is not None else inputs
    if inputs is None:
        inputs = next((found for key in _ATTRIBUTES if (found := getattr(module, key, None)) is not None), None)
    if inputs is None:
        raise ModelError(f"{name} gave a module without inputs: have it return (module, inputs)")
    return module, *_arguments(inputs, name)


def _module(place: str) -> ModuleType:
    """Import a module by its dotted name or its file, with what is beside the file importable, as for a script."""
    if not place.endswith(".py"):
        sys.path.insert(0, "")
        try:
            return importlib.import_module(place)
        except ModuleNotFoundError as error:
            if error.name is None or not (place == error.name or place.startswith(f"{error.name}.")):
                raise broken(place, error) from error
            raise ModelError(f"{place}: {error}; a file is named with its .py") from error
        except (Exception, SystemExit) as error:
            raise broken(place, error) from error
    path = Path(place)
    if not path.is_file():
        raise ModelError(f"{path}: no such file")
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    sys.path.insert(0, str(path.absolute().parent))
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:
        raise broken(place, error) from error
    return module


def broken(place: str, error: BaseException) -> ModelError:
    """Say what somebody's own code raised, and in which of its lines."""
    import torch

    ours = *(str(Path(file).parent) + os.sep for file in (torch.__file__, torch_fl.__file__)), importlib.__file__, "<"
    own = [f for f in traceback.extract_tb(error.__traceback__) if not f.filename.startswith(ours)]
    line = f" ({own[-1].filename}:{own[-1].lineno})" if own else ""
    return ModelError(f"{place} raised {type(error).__name__}: {error}{line}")


def _found(module: Any, attribute: str, place: str) -> Any:
    for part in attribute.split("."):
        if not hasattr(module, part):
            public = [word for word in dir(module) if not word.startswith("_")]
            raise ModelError(f"{place} has no {part!r}{did_you_mean(part, public)}")
        module = getattr(module, part)
    return module


def _called(found: Any, name: str) -> Any:
    from torch import nn

    if isinstance(found, (nn.Module, tuple)):
        return found
    if not callable(found):
        raise ModelError(f"{name} is {type(found).__name__}, expected a function, a class or a torch.nn.Module")
    try:
        return found()
    except (Exception, SystemExit) as error:
        raise broken(name, error) from error


def _arguments(inputs: Any, name: str) -> tuple[tuple[Any, ...], dict[str, Any]]:
    from torch import Tensor
    from torch.utils._pytree import tree_leaves

    if not any(isinstance(leaf, Tensor) for leaf in tree_leaves(inputs)):
        raise ModelError(f"{name}: there is no tensor among the inputs")
    if isinstance(inputs, dict):
        return (), inputs
    return (tuple(inputs), {}) if isinstance(inputs, (tuple, list)) else ((inputs,), {})


def moved(inputs: Any, device: Any) -> Any:
    """Return arguments on a device; those of packed sequences keep their sizes on the host."""
    from torch import Tensor
    from torch.nn.utils.rnn import PackedSequence
    from torch.utils._pytree import tree_map_only

    kinds = Tensor, PackedSequence
    return tree_map_only(kinds, lambda value: value.to(device), inputs, is_leaf=lambda value: isinstance(value, kinds))
