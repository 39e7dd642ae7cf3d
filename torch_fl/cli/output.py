# SPDX-License-Identifier: Apache-2.0
"""Tables for people, JSON for programs."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from torch_fl import _json
from torch_fl.cli.errors import CommandError

PIPE_WIDTH = 200  # columns, where the output is no terminal


def print_table(columns: Sequence[str], rows: Iterable[Sequence[object]], title: str | None = None) -> None:
    """Print rows under column heads."""
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False)
    for column in columns:
        table.add_column(column, overflow="fold")
    for row in rows:
        table.add_row(*(Text(str(cell)) for cell in row))  # as Text: brackets in it are no markup
    Console(width=None if sys.stdout.isatty() else PIPE_WIDTH).print(table)


def pipe_width() -> int:
    """Return the columns of output that is no terminal: COLUMNS, or many."""
    columns = os.environ.get("COLUMNS", "")
    return int(columns) if columns.isdigit() and int(columns) >= 40 else PIPE_WIDTH


def print_json(value: Any) -> None:
    """Print a value as JSON."""
    print(_json.text(value))


@contextmanager
def writing(file: Path) -> Iterator[None]:
    """Say which file could not be written, and why."""
    try:
        yield
    except OSError as error:
        raise CommandError(f"{file}: cannot be written: {error.strerror}", status=2) from None
