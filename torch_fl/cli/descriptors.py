# SPDX-License-Identifier: Apache-2.0
"""``torch-fl validate`` and ``torch-fl schema``: descriptors."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from torch_fl._words import counted
from torch_fl.cli import output


def validate(files: Sequence[Path], json: bool) -> int:
    """Print the problems of each file, with their places; return the exit status."""
    from torch_fl.chips import descriptor

    found = {str(file): descriptor.validate(file) for file in files}
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
    from torch_fl.chips.descriptor import schema

    output.print_json(schema.generate())


def _is_warning(problem: Any) -> bool:
    return bool(problem.severity == "warning")


def _verdict(problems: Sequence[Any]) -> str:
    mistakes = sum(not _is_warning(problem) for problem in problems)
    return counted(mistakes, "mistake") if mistakes else "valid"
