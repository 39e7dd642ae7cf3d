# SPDX-License-Identifier: Apache-2.0
"""``torch-fl align``: a model on a chip against the CPU."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torch_fl.cli import output as printing
from torch_fl.cli.errors import CommandError
from torch_fl.cli.run import distinct, writable

if TYPE_CHECKING:
    import torch


def main(
    target: str, inputs: list[str], device: str, backward: bool, probe: bool, page: Path | None, json: Path | None
) -> int:
    """Align, show and write what was found; return the exit status."""
    import torch

    import torch_fl
    from torch_fl.observe.target import ModelError, load

    to_stdout = json is not None and str(json) == "-"
    for path in (page, None if to_stdout else json):
        if path is not None:
            writable(path)
    distinct(page, json)
    _check_device(device)
    torch.manual_seed(0)
    try:
        module, args, kwargs = load(target, tuple(map(made_input, inputs)) or None)
        with _progress() as progress:
            report = torch_fl.align(
                module, args, device, backward, kwargs=kwargs, probe=probe, name=target, progress=progress
            )
    except ModelError as error:
        raise CommandError(str(error), status=2) from None
    if page is not None:
        with printing.writing(page):
            report.to_html(page)
    if json is not None and not to_stdout:
        with printing.writing(json):
            report.to_json(json)
    if to_stdout:
        printing.print_json(report.as_dict())
    else:
        _show(report)
    return 0 if report.ok else 1


def _check_device(name: str) -> None:
    import torch_fl

    names = [record.device for record in torch_fl.list_devices()]
    if name not in names and name != "fl":
        found = ", ".join(names) or "none: `torch-fl` tells what became of every plugin"
        raise CommandError(f"no device {name!r}; devices: {found}", status=2)


def made_input(text: str) -> torch.Tensor:
    """Return a tensor of random numbers for ``SHAPE[:DTYPE[:BELOW]]``."""
    import torch

    shape, _, rest = text.partition(":")
    kind, _, below = rest.partition(":")
    dtype = getattr(torch, kind or "float32", None)
    sizes = shape.split("x")
    numbers = [*sizes, below] if below else sizes
    if not all(number.isdecimal() for number in numbers) or not isinstance(dtype, torch.dtype):
        expected = "sizes joined by x, then a type and a bound for whole numbers: 2x3x32x32, 4x16:int64:1000"
        raise CommandError(f"--inputs {text}: expected {expected}", status=2)
    extent = [int(size) for size in sizes]
    try:
        if dtype.is_floating_point or dtype.is_complex:
            return torch.randn(extent).to(dtype)
        return torch.randint(0, int(below or 2), extent).to(dtype)
    except (RuntimeError, ValueError, TypeError) as error:
        raise CommandError(f"--inputs {text}: {error}", status=2) from None


@contextmanager
def _progress() -> Iterator[Callable[[str], None]]:
    from rich.console import Console
    from rich.markup import escape

    console = Console(stderr=True)
    if not console.is_terminal:
        yield lambda text: None
        return
    with console.status("starting") as status:
        yield lambda text: status.update(escape(text))


def _show(report: Any) -> None:
    from rich.console import Console

    from torch_fl.observe.align.console import show

    show(Console(width=None if sys.stdout.isatty() else printing.PIPE_WIDTH), report)
