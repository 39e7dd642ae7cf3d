# SPDX-License-Identifier: Apache-2.0
"""The measuring helper: it sees a difference, judges against targets, and refuses to set variables too late."""

from __future__ import annotations

import argparse
import functools
import json
import timeit
from pathlib import Path

import pytest

from benchmarks import common


class Clock:
    """A clock that only moves when told to, so that a busy machine changes nothing."""

    def __init__(self) -> None:
        self.now = 0.0

    def work(self, seconds: float) -> None:
        self.now += seconds


def test_interleave_sees_a_difference(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock()
    monkeypatch.setattr(common.timeit, "Timer", functools.partial(timeit.Timer, timer=lambda: clock.now))
    cases = {"slow": lambda: clock.work(2e-4), "fast": lambda: clock.work(1e-4)}
    times = common.interleave(cases, repeats=5, seconds=2e-3)
    assert common.ratio(times, "slow", "fast") == pytest.approx(2)
    assert common.difference(times, "slow", "fast") == pytest.approx(1e5)
    assert [len(turns) for turns in times.values()] == [5, 5]


@pytest.mark.parametrize(("value", "at_least", "met"), [(0.8, False, True), (1.2, False, False), (1.2, True, True)])
def test_rows_are_judged(value: float, at_least: bool, met: bool) -> None:
    assert common.Row("x", value, "x", 1.0, at_least=at_least).met is met
    assert common.Row("x", value, "x").met


def test_a_missed_target_is_written_printed_and_fails_a_check(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = [common.Row("good", 0.5, "x", 1.0), common.Row("bad", 2.0, "x", 1.0)]
    file = tmp_path / "out.json"
    for check, code in ((True, 1), (False, 0)):
        with pytest.raises(SystemExit) as ended:
            common.finish("title", rows, argparse.Namespace(json=str(file), check=check))
        assert ended.value.code == code
    assert "missed: bad" in capsys.readouterr().out
    assert [row["met"] for row in json.loads(file.read_text())["rows"]] == [True, False]


def test_variables_cannot_be_set_after_torch() -> None:
    import torch  # noqa: F401

    with pytest.raises(RuntimeError, match="before torch"):
        common.environment(SIMCHIP_INLINE="1")
