# SPDX-License-Identifier: Apache-2.0
"""``torch-fl validate`` and ``torch-fl schema``: descriptors."""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from torch_fl.cli import output
from torch_fl.cli.errors import CommandError


def validate(files: Sequence[Path], json: bool) -> int:
    """Print the problems of each file, with their places; return the exit status."""
    check = _descriptor().validate
    found = {str(file): list(check(file)) for file in files}
    if json:
        output.print_json({file: [asdict(problem) for problem in problems] for file, problems in found.items()})
    else:
        for file, problems in found.items():
            for problem in problems:
                print(("warning: " if _is_warning(problem) else "") + str(problem))
            print(f"{file}: {_verdict(problems)}")
    return int(any(not _is_warning(problem) for problems in found.values() for problem in problems))


def print_schema() -> None:
    """Print the JSON Schema."""
    _descriptor()
    output.print_json(importlib.import_module("torch_fl.chips.descriptor.schema").generate())


def _descriptor() -> Any:
    name = "torch_fl.chips.descriptor"
    if importlib.util.find_spec(name) is None:
        raise CommandError(f"this installation has no descriptors ({name})", status=2)
    return importlib.import_module(name)


def _is_warning(problem: Any) -> bool:
    return bool(problem.severity == "warning")


def _verdict(problems: Sequence[Any]) -> str:
    mistakes = sum(not _is_warning(problem) for problem in problems)
    return "valid" if mistakes == 0 else "1 mistake" if mistakes == 1 else f"{mistakes} mistakes"
