# SPDX-License-Identifier: Apache-2.0
"""``torch-fl validate`` and ``torch-fl schema``: descriptors."""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from torch_fl.cli import output
from torch_fl.cli.errors import CommandError

_FIELDS = ("file", "line", "column", "key", "message")


def validate(files: Sequence[Path], json: bool) -> int:
    """Print the problems of each file, with their places; return the exit status."""
    check = _descriptor().validate
    found = {str(file): [_row(problem) for problem in check(file)] for file in files}
    if json:
        output.print_json(found)
    else:
        for file, problems in found.items():
            for problem in problems:
                print(_line(problem))
            print(f"{file}: " + (_count(len(problems)) if problems else "valid"))
    return int(any(found.values()))


def print_schema() -> None:
    """Print the JSON Schema."""
    output.print_json(_descriptor().json_schema())


def _descriptor() -> Any:
    name = "torch_fl.chips.descriptor"
    if importlib.util.find_spec(name) is None:
        raise CommandError(f"this installation has no descriptors ({name})", status=2)
    return importlib.import_module(name)


def _row(problem: Any) -> dict[str, Any]:
    return {name: getattr(problem, name) for name in _FIELDS}


def _line(problem: dict[str, Any]) -> str:
    place = ":".join(str(problem[name]) for name in ("file", "line", "column") if problem[name])
    key = f" {problem['key']}:" if problem["key"] else ""
    return f"{place}:{key} {problem['message']}"


def _count(number: int) -> str:
    return "1 problem" if number == 1 else f"{number} problems"
