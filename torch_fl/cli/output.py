# SPDX-License-Identifier: Apache-2.0
"""Tables for people, JSON for programs."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterable, Sequence
from typing import Any

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
    print(json.dumps(value, indent=2, default=str))
