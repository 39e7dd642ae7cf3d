# SPDX-License-Identifier: Apache-2.0
"""What a comparison found."""

from __future__ import annotations

import enum
from dataclasses import asdict, dataclass, field
from typing import Any


class Subject(str, enum.Enum):
    """What changed."""

    OPERATOR = "operator"  # lost, or gained
    ROUTE = "route"
    ACCURACY = "accuracy"
    SPEED = "speed"
    CASE = "case"  # fails, or works again


class Direction(str, enum.Enum):
    """Whether that is welcome."""

    WORSE = "worse"
    BETTER = "better"
    OTHER = "other"  # different, and neither


@dataclass(frozen=True)
class Change:
    """One thing that is not as it was."""

    subject: Subject
    direction: Direction
    name: str  # of the operator or the case
    before: str
    after: str
    detail: str = ""
    op: str = ""  # the operator, where the name is a case's

    def __str__(self) -> str:
        return f"{self.subject.value} {self.direction.value}: {self.name}: {self.before} -> {self.after}"


@dataclass(frozen=True)
class SpeedRow:
    """One case's times: of the pair whose change is the median. The ratio is after / before: 1.2 is 20 % slower."""

    name: str
    op: str
    before_ns: float
    after_ns: float  # without what all cases have in common, where that was taken out
    ratio: float
    pairs: int
    p: float | None  # adjusted for all cases; None: too few pairs to judge
    detectable: float | None  # the least ratio above 1 that would have been significant
    changed: bool


@dataclass(frozen=True)
class Speed:
    """The times of all cases, and how they were tested."""

    rows: tuple[SpeedRow, ...]
    test: str  # in words
    normalized: str  # what was taken out of every case
    common: float  # ratio of all cases together, as measured
    machine: float  # ratio of the CPU's loop: below 1, the machine itself was faster
    common_changed: bool  # all cases together changed, beyond the machine
    common_p: float
    pairs_needed: int | None  # for alpha; None: no number of pairs is enough
    tested: bool = True  # False: no case has enough

    @property
    def unjudged(self) -> list[SpeedRow]:
        """The cases that have too few pairs."""
        return [row for row in self.rows if row.p is None]


@dataclass(frozen=True)
class Comparison:
    """Everything that changed between two files."""

    chip: str
    kind: str  # of the files: "baseline", "conformance", "report"
    before: str
    after: str
    changes: tuple[Change, ...]
    notes: tuple[str, ...] = ()  # differences of the circumstances
    unjudged: tuple[str, ...] = ()  # what could not be compared, and why
    speed: Speed | None = None
    compared: dict[str, int] = field(default_factory=dict)  # how many operators, cases, ... were looked at

    def of(self, subject: Subject | None = None, direction: Direction | None = None) -> list[Change]:
        """Return the changes of a subject, of a direction, or both."""
        return [c for c in self.changes if subject in (None, c.subject) and direction in (None, c.direction)]

    def regressions(self, subjects: frozenset[Subject] = frozenset(Subject)) -> list[Change]:
        """Return what became worse, of some subjects."""
        return [c for c in self.changes if c.direction is Direction.WORSE and c.subject in subjects]

    def as_dict(self) -> dict[str, Any]:
        """Return plain values, ready for JSON."""
        changes = [{**asdict(c), "subject": c.subject.value, "direction": c.direction.value} for c in self.changes]
        return {"format": "torch-fl comparison 1", **asdict(self), "changes": changes}
