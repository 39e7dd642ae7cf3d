# SPDX-License-Identifier: Apache-2.0
"""Damaged files: whatever is wrong with one, a comparison succeeds or says so in one line; it never breaks down."""

from __future__ import annotations

import contextlib
import copy
import io
import json
import math
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from rich.console import Console

from tests.observe.made_up import results
from torch_fl.cli import compare as command
from torch_fl.cli.errors import CommandError
from torch_fl.conformance import report as conformance_report
from torch_fl.conformance.verdict import Row, Verdict
from torch_fl.observe.compare import BadComparison, Options, compare, render

HUGE = "HUGE"  # stands for a number of 5001 digits
VALUES = st.one_of(
    st.sampled_from([None, True, False, [], {}, [[]], [None], {"x": None}, "", "x", "\ud800", "0", "nan"]),
    st.sampled_from([HUGE, f"-{HUGE}", 10**400, 2**63, 2**53 + 1, -1, 0, 1, 0.5, -0.5, 1e-320, 1e18, 1e308, -1e308]),
    st.sampled_from([math.nan, math.inf, -math.inf]),
    st.text(max_size=5),
)


def baseline_file() -> Any:
    content = results(1, processes=2, cases=3).model_dump(mode="json")
    case = content["cases"][0]
    network = {"name": "network/forward", "kind": "model", "routes": [{"op": "aten::x", "route": "host", "calls": 3}]}
    content["cases"].append(copy.deepcopy({**case, **network, "rounds": case["rounds"][:2], "cpu_ns": [5.0, 6.0]}))
    for case in content["cases"]:  # small, so that a change hits something that matters
        for round in case["rounds"]:
            for series in ("device_ns", "host_ns", "total_ns", "loop_ns"):
                round[series] = round[series][:2]
    return content


def conformance_file() -> Any:
    device = {"name": "Made Up", "plugin_version": "1", "driver_version": "1", "vendor": "Nobody"}
    rows = [
        Row(op, "float32", "test", Verdict.STRICT, cases=3, routes={"kernel": 3}, nmse=1e-15, bound=1e-14)
        for op in ("aten::a", "aten::b")
    ]
    return conformance_report.make("made", {"device": device, "plugins": []}, {"mode": "test", "routes": ["x"]}, rows)


def report_file() -> Any:
    rows = [
        {"op": "aten::x", "chip": "made", "route": route, "reason": "why", "calls": 2} for route in ("kernel", "host")
    ]
    return {"version": 1, "groups": rows, "fallbacks": rows[1:], "candidates": []}


def sealed(value: Any) -> Any:
    """A report whose checksum is right, whatever it says."""
    with contextlib.suppress(ValueError, TypeError, KeyError):
        value["sha256"] = conformance_report.checksum(value["content"])
    return value


def as_is(value: Any) -> Any:
    return value


WHOLE: dict[str, tuple[Any, Callable[[Any], Any]]] = {
    "bench": (baseline_file(), as_is),
    "check": (conformance_file(), sealed),
    "report": (report_file(), as_is),
}


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Every node of a JSON value."""
    yield path
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in items:
        yield from places(item, (*path, key))


def changed(value: Any, path: tuple[Any, ...], new: Any, remove: bool) -> Any:
    """A copy with one node replaced or removed."""
    if not path:
        return new
    value = copy.deepcopy(value)
    inner = value
    for key in path[:-1]:
        inner = inner[key]
    if remove:
        del inner[path[-1]]
    else:
        inner[path[-1]] = new
    return value


def text_of(value: Any) -> str:
    """JSON, with whole numbers that Python itself refuses to write."""
    return re.sub(r'"(-?)HUGE"', r"\g<1>1" + "0" * 5000, json.dumps(value))


def judge(before: Path, after: Path, damaged: Path) -> None:
    """Compare; what is found can be shown in every form, and what is wrong is one line that names the file."""
    try:
        found = compare(before, after, Options(alpha=0.5))
    except BadComparison as error:
        message = str(error)
        assert str(damaged) in message
        assert len(message) < 600
        assert all(sign.isprintable() for sign in message)
        with pytest.raises(CommandError) as told:
            command.main(before, after, Options(), "nothing", "tables", every=False)
        assert (told.value.status, str(told.value)) == (2, message)
        return
    screen = io.StringIO()
    render.show(Console(file=screen, width=80), found, every=True)
    (screen.getvalue() + render.markdown(found, every=True)).encode()
    json.dumps(found.as_dict(), allow_nan=False)
    for row in found.speed.rows if found.speed else ():
        assert row.after_ns == pytest.approx(row.before_ns * row.ratio)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("files")
    for kind, (content, _) in WHOLE.items():
        (place / f"{kind}.json").write_text(json.dumps(content))
    return place


QUICK = settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


@pytest.mark.parametrize("kind", WHOLE)
@QUICK
@given(data=st.data())
def test_any_node_may_be_anything(folder: Path, kind: str, data: st.DataObject) -> None:
    content, seal = WHOLE[kind]
    path = data.draw(st.sampled_from(sorted(places(content), key=str)))
    value = seal(changed(content, path, data.draw(VALUES), data.draw(st.booleans())))
    file = folder / "damaged.json"
    file.write_text(text_of(value))
    judge(folder / f"{kind}.json", file, file)
    judge(file, file, file)  # what both lack is lacking, too


@pytest.mark.parametrize("kind", WHOLE)
@QUICK
@given(data=st.data())
def test_a_file_may_end_anywhere_and_hold_any_bytes(folder: Path, kind: str, data: st.DataObject) -> None:
    whole = json.dumps(WHOLE[kind][0]).encode()
    start = data.draw(st.integers(0, len(whole)))
    end = data.draw(st.integers(start, len(whole)))
    file = folder / "bytes.json"
    file.write_bytes(whole[:start] + data.draw(st.binary(max_size=3)) + whole[end:])
    judge(file, folder / f"{kind}.json", file)


CSV = "op,dtype,mode,verdict,reason,case,cases,routes,nmse,bound,chip_us,cpu_us,gb_per_s,gflop_per_s\n" + (
    "aten::a,float32,test,STRICT,,,3,kernel:3,1e-15,1e-14,0,0,0,0\n" * 2
)


@QUICK
@given(st.integers(0, len(CSV)), st.integers(0, 20), st.text(max_size=5))
@example(100, 0, "\0")
@example(0, 0, '"' + "x" * 200_000)
@example(len(CSV), 0, "aten::b,float32,test,STRICT\n")
@example(len(CSV), 0, "aten::b,float32,test,STRICT,,,3,kernel:3,nan,inf,0,0,0,0,0,0\n")
@example(CSV.index("kernel:3"), 8, "kernel:" + "9" * 5000)
@example(CSV.index("kernel:3"), 8, "kernel:-3")
def test_tables_may_be_damaged_anywhere(folder: Path, place: int, length: int, new: str) -> None:
    whole, file = folder / "check.csv", folder / "damaged.csv"
    whole.write_text(CSV)
    file.write_bytes((CSV[:place] + new + CSV[place + length :]).encode(errors="surrogatepass"))
    judge(whole, file, file)
    judge(file, file, file)


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        ("environment.versions", None, "expected an object, found null"),
        ("options.samples", ..., "expected a value, found nothing"),
        ("options.repeats", "8", "expected a valid integer, found '8'"),
        ("cases.0.flops", HUGE, "expected a valid integer, found a number of 5001 digits"),
        ("cases.0.rounds.1.device_ns.1", math.nan, "expected a valid number, found NaN"),
        ("cases.0.rounds.1.loop_ns", {}, "expected a list, found an object of 0"),
        ("device.peak_flops", -1, "expected greater than or equal to 0, found -1"),
        ("cases.0.rounds.1.total_ns", [], "expected at least one item, found a list of 0"),
        ("chip", ["x" * 100], "expected a valid string, found a list of 1"),
    ],
)
def test_what_is_wrong_is_told_with_its_place(folder: Path, path: str, value: Any, message: str) -> None:
    keys = tuple(int(key) if key.isdecimal() else key for key in path.split("."))
    file = folder / "wrong.json"
    file.write_text(text_of(changed(baseline_file(), keys, value, remove=value is ...)))
    with pytest.raises(BadComparison) as error:
        compare(folder / "bench.json", file)
    assert str(error.value) == f"{file}: {path}: {message}; not as `torch-fl bench -o` writes it: run it anew"
