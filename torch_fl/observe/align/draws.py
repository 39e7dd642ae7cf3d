# SPDX-License-Identifier: Apache-2.0
"""Random numbers that a run on the CPU drew, for other runs to use: generators of different devices never agree."""

from __future__ import annotations

from typing import Any

import torch
from torch.nn import functional
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode


def draws_numbers(func: Any, args: Any, kwargs: Any) -> bool:
    """Tell whether a call draws random numbers: attention without dropout does not, though its tag says so."""
    if torch.Tag.nondeterministic_seeded not in func.tags:
        return False
    for i, argument in enumerate(func._schema.arguments):
        if argument.name == "dropout_p":
            return bool(args[i] if i < len(args) else kwargs.get(argument.name, argument.default_value))
    return True


class _PlainLengths(TorchFunctionMode):
    """Gives ctc_loss its lengths as numbers.

    Given tensors, PyTorch makes numbers of them itself, but not while a dispatch mode is on: then it calls an operator
    that it otherwise never calls on this device, and divides by lengths of the CPU on the device, which is an error.
    """

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Call a function."""
        named = dict(kwargs or {})
        if func in (functional.ctc_loss, torch.ctc_loss):
            args = [_numbers(value) if i in (2, 3) else value for i, value in enumerate(args)]
            named |= {key: _numbers(named[key]) for key in ("input_lengths", "target_lengths") if key in named}
        return func(*args, **named)


def _numbers(value: Any) -> Any:
    return value.tolist() if isinstance(value, torch.Tensor) else value


class Watching(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """A mode whose handler Dynamo may look at: to tell it not to would import it, which takes seconds."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._lengths = _PlainLengths()

    def __enter__(self) -> Watching:
        super().__enter__()  # type: ignore[no-untyped-call]
        self._lengths.__enter__()  # type: ignore[no-untyped-call]
        return self

    def __exit__(self, *error: Any) -> None:
        self._lengths.__exit__(*error)  # type: ignore[no-untyped-call]
        super().__exit__(*error)  # type: ignore[no-untyped-call]

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False


class RecordedDraws(Watching):  # type: ignore[no-untyped-call]
    """Keeps what each random operator gave."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.draws: list[torch.Tensor] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run a call, and keep its numbers if it draws some."""
        out = func(*args, **(kwargs or {}))
        if draws_numbers(func, args, kwargs or {}):
            first = out[0] if isinstance(out, tuple | list) else out
            mask = out[1] if isinstance(out, tuple | list) and len(out) > 1 else first
            self.draws.append(mask.detach().clone())
        return out


class Draws:
    """Answers random operators, in order, with recorded numbers."""

    def __init__(self, draws: list[torch.Tensor]) -> None:
        self._draws, self._next = draws, 0
        self.parted = False  # the run asked for other numbers than the recorded one

    def rewind(self) -> None:
        """Begin again with the first numbers."""
        self._next = 0

    def answer(self, func: Any, args: Any, kwargs: Any) -> Any:
        """Return what an operator that draws numbers returns."""
        target = args[0] if args and isinstance(args[0], torch.Tensor) else None
        numbers = self._pop(target)
        name = func.name().partition(".")[0]
        if numbers is None or target is None:
            self.parted = True
            return func(*args, **kwargs)
        if name == "aten::native_dropout":
            mask = numbers.to(target.device) != 0
            return target * mask * (1.0 / (1.0 - args[1])), mask
        if name.endswith("_"):
            return target.copy_(numbers)
        first = func._schema.returns[0]
        if len(func._schema.returns) == 1 and str(first.type) == "Tensor":
            return numbers.to(target.device, target.dtype)
        self.parted = True
        return func(*args, **kwargs)

    def _pop(self, target: torch.Tensor | None) -> torch.Tensor | None:
        if self._next >= len(self._draws) or target is None:
            return None
        numbers = self._draws[self._next]
        if numbers.shape != target.shape:
            return None
        self._next += 1
        return numbers


class ReplayedDraws(Watching):  # type: ignore[no-untyped-call]
    """Has a run use recorded numbers."""

    def __init__(self, draws: list[torch.Tensor]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.draws = Draws(draws)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run a call, with recorded numbers if it draws some."""
        if draws_numbers(func, args, kwargs or {}):
            return self.draws.answer(func, args, kwargs or {})
        return func(*args, **(kwargs or {}))
