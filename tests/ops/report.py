# SPDX-License-Identifier: Apache-2.0
"""Turn outcomes into the figures: pairs passed, native share, causes of failures, exemptions that are stale."""

from __future__ import annotations

import collections
import dataclasses
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from tests.harness.device import native_share
from tests.ops.engine import FORWARD_VARIANTS
from tests.ops.exceptions import EXEMPTIONS, LIMIT, Exemption, exemption_for
from tests.ops.outcome import Outcome, cause_of
from tests.ops.pool import Results


@dataclasses.dataclass
class Report:
    """A run, judged."""

    results: Results
    table: tuple[Exemption, ...] = EXEMPTIONS

    def failures(self) -> list[Outcome]:
        """Failures that no exemption covers."""
        return [o for o in self.results.outcomes if not o.passed and exemption_for(o.key, self.table) is None]

    def exempted(self) -> list[Outcome]:
        return [o for o in self.results.outcomes if not o.passed and exemption_for(o.key, self.table) is not None]

    def stale(self) -> list[Exemption]:
        """Exemptions whose entry was run in full and had no failure to excuse."""
        ran = {o.op for o in self.results.outcomes}
        used = [o.key for o in self.exempted()]
        covered = {o.key for o in self.results.outcomes}
        return [
            row
            for row in self.table
            if row.op in ran and any(row.matches(key) for key in covered) and not any(row.matches(key) for key in used)
        ]

    def pairs(self, forward: bool) -> tuple[int, int, int]:
        """(pairs with samples, of them without any failure, of them exempted)."""
        group: dict[tuple[str, str], list[Outcome]] = collections.defaultdict(list)
        for outcome in self.results.outcomes:
            if (outcome.variant in FORWARD_VARIANTS) if forward else (outcome.variant == "backward"):
                group[outcome.op, outcome.dtype].append(outcome)
        passed = sum(all(o.passed for o in outcomes) for outcomes in group.values())
        excused = sum(
            any(not o.passed for o in outcomes) and all(o.passed or exemption_for(o.key, self.table) for o in outcomes)
            for outcomes in group.values()
        )
        return len(group), passed, excused

    def calls(self) -> dict[tuple[str, str], int]:
        total: collections.Counter[tuple[str, str]] = collections.Counter()
        for calls in self.results.calls.values():
            total.update(calls)
        return dict(total)

    def within_limit(self) -> bool:
        """The exemptions cover at most LIMIT of the pairs."""
        total, _, excused = self.pairs(forward=True)
        total_backward, _, excused_backward = self.pairs(forward=False)
        return excused + excused_backward <= LIMIT * max(1, total + total_backward)

    # ---- as text ------------------------------------------------------------------------------------------------

    def by_variant(self) -> list[str]:
        rows = []
        for variant in sorted({o.variant for o in self.results.outcomes}):
            mine = [o for o in self.results.outcomes if o.variant == variant]
            good = sum(o.passed for o in mine)
            rate, checks = 100 * good / len(mine), sum(o.samples for o in mine)
            rows.append(f"  {variant:14} {good:6} of {len(mine):6}  {rate:6.2f} %  {checks:7} checks")
        return rows

    def summary(self) -> str:
        lines = [f"{len(self.results.calls)} entries in {self.results.seconds:.0f} s"]
        for label, forward in (("forward", True), ("backward", False)):
            total, passed, excused = self.pairs(forward)
            if total:
                lines.append(
                    f"{label} pairs: {passed} of {total} pass ({100 * passed / total:.2f} %), {excused} exempted"
                )
        lines += self.by_variant()
        calls = self.calls()
        if calls:
            lines.append(f"native share of operator calls: {100 * native_share(calls):.1f} % of {sum(calls.values())}")
        lines += [f"stale exemption: {row}" for row in self.stale()]
        return "\n".join(lines)

    def causes(self) -> str:
        """Failures grouped by cause, the most frequent first."""
        group: dict[str, list[Outcome]] = collections.defaultdict(list)
        for outcome in self.failures():
            group[cause_of(outcome.error)].append(outcome)
        lines = []
        for cause, outcomes in sorted(group.items(), key=lambda item: -len(item[1])):
            names = sorted({o.op for o in outcomes})
            lines.append(f"{len(outcomes):5}x in {len(names)} entries: {cause}")
            lines.append(f"       entries: {', '.join(names[:12])}{', ...' if len(names) > 12 else ''}")
            first = outcomes[0]
            lines.append(f"       e.g. {first.op} {first.dtype} {first.variant}: {first.error[:300]}")
            lines.append(f"            with {first.sample[:200]}")
        return "\n".join(lines)

    def host_operators(self, count: int = 40) -> list[tuple[str, int]]:
        """The operators that went to the host most."""
        host = collections.Counter({op: n for (op, route), n in self.calls().items() if route == "host"})
        return host.most_common(count)

    def as_json(self) -> dict[str, Any]:
        calls = self.calls()
        total, passed, excused = self.pairs(True)
        total_backward, passed_backward, excused_backward = self.pairs(False)
        return {
            "seconds": round(self.results.seconds, 1),
            "forward": {"pairs": total, "passed": passed, "exempted": excused},
            "backward": {"pairs": total_backward, "passed": passed_backward, "exempted": excused_backward},
            "native_share": native_share(calls),
            "native_share_by_entry": {name: native_share(mine) for name, mine in self.results.calls.items() if mine},
            "calls_by_route": _by_route(calls),
            "host_operators": self.host_operators(),
            "failures": [o.as_dict() for o in self.failures()],
            "exempted": [o.as_dict() for o in self.exempted()],
            "stale": [row._asdict() for row in self.stale()],
        }

    def write(self, path: str | Path) -> None:
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        Path(path).write_text(json.dumps(self.as_json(), indent=1))


def _by_route(calls: dict[tuple[str, str], int]) -> dict[str, int]:
    routes: collections.Counter[str] = collections.Counter()
    for (_, route), count in calls.items():
        routes[route] += count
    return dict(routes)


def lines_of(outcomes: Iterable[Outcome]) -> list[str]:
    """One line per failure."""
    return [
        f"FAIL {o.op} {o.dtype} {o.variant} [{o.failures}/{o.samples}] {o.error[:300]}  <- {o.sample[:160]}"
        for o in outcomes
        if not o.passed
    ]
