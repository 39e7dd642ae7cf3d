# SPDX-License-Identifier: Apache-2.0
"""What is wrong with a descriptor, and where."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from torch_fl.routing.errors import ConfigError

MAX_PROBLEMS = 50  # of one kind: more than anyone reads


@dataclass(frozen=True)
class Problem:
    """One mistake, or one thing to be warned of."""

    file: str
    line: int  # from 1; 0: the file as a whole
    column: int  # from 1
    key: str  # "supported_ops[2].constraints.ndim"; empty: the file as a whole
    expected: str
    found: str = ""
    suggestion: str = ""  # the nearest valid word
    fix: str = ""  # what to do
    severity: Literal["error", "warning"] = "error"

    def __str__(self) -> str:
        where = f"{self.file}:{self.line}:{self.column}" if self.line else self.file
        text = f"{where}: {self.key}: " if self.key else f"{where}: "
        text += f"expected {self.expected}" + (f", found {self.found}" if self.found else "")
        text += f"; did you mean {self.suggestion!r}?" if self.suggestion else ""
        return text + (f". {self.fix}" if self.fix else "")


class DescriptorError(ConfigError):
    """A descriptor that cannot be used. ``problems`` lists every mistake; the text has one line for each."""

    def __init__(self, problems: Iterable[Problem]):
        self.problems = list(problems)
        super().__init__("\n".join(str(problem) for problem in self.problems))

    def __reduce__(self) -> tuple[type[DescriptorError], tuple[list[Problem]]]:
        return DescriptorError, (self.problems,)
