# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import json

import pytest

from torch_fl import CallCount, Counters

ROWS = Counters(
    [
        CallCount("aten::add", "Tensor", "sim", 0, "kernel", "", 90, 0, 0, 0),
        CallCount("aten::sort", "", "sim", 0, "host", "no kernel", 9, 4096, 9, 2_000_000),
        CallCount("aten::sort", "stable", "other", 1, "host", "float64 not in float32", 1, 8, 1, 500_000),
    ]
)


def test_names() -> None:
    assert [row.name for row in ROWS] == ["aten::add.Tensor", "aten::sort", "aten::sort.stable"]


def test_sums() -> None:
    assert ROWS.total() == (100, 4104, 10, 2_500_000)
    assert ROWS.by("route") == {"kernel": (90, 0, 0, 0), "host": (10, 4104, 10, 2_500_000)}
    assert list(ROWS.by("op")) == ["aten::add", "aten::sort"]


@pytest.mark.parametrize(("route", "share"), [("kernel", 0.9), ("host", 0.1), ("denied", 0.0)])
def test_share(route: str, share: float) -> None:
    assert ROWS.share(route) == pytest.approx(share)


def test_share_of_nothing() -> None:
    assert Counters().share("kernel") == 0.0


def test_where() -> None:
    assert [row.calls for row in ROWS.where(route="host", chip="sim")] == [9]


@pytest.mark.parametrize("rows", [ROWS, Counters()])
def test_words_that_do_not_exist_are_explained(rows: Counters) -> None:
    with pytest.raises(ValueError, match=r"counters: no field 'rout'; did you mean 'route'\? \(fields: op, overload, "):
        rows.where(rout="host")
    with pytest.raises(ValueError, match="counters: no field 'nope'"):
        rows.by("nope")
    routes = r"counters: no route 'hst'; did you mean 'host'\? \(routes: kernel, portable, override, .*, denied\)"
    with pytest.raises(ValueError, match=routes):
        rows.where(route="hst")
    with pytest.raises(ValueError, match=routes):
        rows.share("hst")


def test_names_are_a_field_too() -> None:
    assert list(ROWS.by("name")) == ["aten::add.Tensor", "aten::sort", "aten::sort.stable"]
    assert [row.calls for row in ROWS.where(name="aten::sort")] == [9]


def test_table_shows_the_most_frequent_first_with_the_reason() -> None:
    lines = str(Counters(reversed(ROWS))).splitlines()
    assert lines[0].split() == ["calls", "operator", "device", "route", "bytes", "syncs", "ms", "reason"]
    assert [line.split()[0] for line in lines[1:]] == ["90", "9", "1"]
    assert lines[3].endswith("0.50  float64 not in float32")


def test_rows_are_ready_for_json() -> None:
    assert json.loads(json.dumps(ROWS.as_dicts()))[1]["reason"] == "no kernel"
