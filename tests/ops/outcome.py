# SPDX-License-Identifier: Apache-2.0
"""What a check of one (operator, dtype, variant) found."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable
from typing import Any

from tests.harness.trees import describe


@dataclasses.dataclass
class Outcome:
    """Result of one variant of one (operator, dtype) pair over all its samples."""

    op: str
    dtype: str
    variant: str
    samples: int = 0
    failures: int = 0
    error: str = ""  # of the first failure
    sample: str = ""  # the arguments of the first failure
    unsupported: int = 0  # samples that ended in UnsupportedOpError, counted apart when the policy is deny

    @property
    def key(self) -> tuple[str, str, str]:
        return (self.op, self.dtype, self.variant)

    @property
    def passed(self) -> bool:
        return self.failures == 0

    def as_dict(self) -> dict[str, Any]:
        return dataclasses.asdict(self)

    @classmethod
    def from_dict(cls, row: dict[str, Any]) -> Outcome:
        return cls(**row)


def error_text(error: BaseException, limit: int = 400) -> str:
    """One line: the class and the start of the message."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    text = " | ".join(lines[:3])
    name = "" if type(error).__name__ == "Mismatch" else type(error).__name__ + ": "
    return (name + text)[:limit]


def cause_of(error: str) -> str:
    """The error with its particulars removed, so that equal causes group together."""
    text = re.sub(r"\(rtol .*", "", error)
    text = re.sub(r"0x[0-9a-f]+", "ADDR", text)
    text = re.sub(r"\[[\d, ]*\]|\([\d, ]*\)", "[]", text)
    text = re.sub(r"-?\d+(\.\d+)?(e[-+]?\d+)?", "N", text)
    return text[:200]


class Recorder:
    """Collects the outcomes of one (operator, dtype) pair."""

    def __init__(self, op: str, dtype: str, on_begin: Callable[[str, str, str], None] | None = None) -> None:
        self.op, self.dtype = op, dtype
        self._on_begin = on_begin
        self._outcomes: dict[str, Outcome] = {}

    def outcomes(self) -> list[Outcome]:
        return list(self._outcomes.values())

    def check(self, variant: str, sample: Any, check: Callable[[], Any]) -> bool:
        """Run one check of one sample; record whether it raised. Returns whether it passed."""
        if self._on_begin is not None:
            self._on_begin(self.op, self.dtype, variant)
        outcome = self._outcomes.setdefault(variant, Outcome(self.op, self.dtype, variant))
        outcome.samples += 1
        try:
            check()
            return True
        except Exception as error:  # whatever the device raises is the finding
            self._record_failure(outcome, sample, error)
            return False

    @staticmethod
    def _record_failure(outcome: Outcome, sample: Any, error: Exception) -> None:
        if type(error).__name__ == "UnsupportedOpError":
            outcome.unsupported += 1
        if outcome.failures == 0:
            outcome.error, outcome.sample = error_text(error), describe(sample)[:300]
        outcome.failures += 1
