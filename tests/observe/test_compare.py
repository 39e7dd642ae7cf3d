# SPDX-License-Identifier: Apache-2.0
"""What changed between two runs: the test of times, operators, routes, accuracy, and files that are none."""

from __future__ import annotations

import itertools
import json
import math
import os
import re
import statistics as plain
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.cli.helpers import command
from tests.observe.made_up import CASES, results, slowed
from torch_fl.conformance import report as conformance_report
from torch_fl.conformance.verdict import Row, Verdict
from torch_fl.observe import baseline
from torch_fl.observe.baseline.results import FEWEST_PAIRS, Kind, Results, rounds_of
from torch_fl.observe.compare import (
    BadComparison,
    Comparison,
    Direction,
    Normalize,
    Options,
    Subject,
    compare,
    render,
    statistics,
)

REPEATS = 60


def changed(found: Comparison) -> list[str]:
    return [change.name for change in found.changes]


# ---- The test of times


def judged(*rows: list[float]) -> list[statistics.Tested]:
    return statistics.test([dict(enumerate(row)) for row in rows], alpha=0.02)


def test_p_is_the_share_of_flips_with_as_large_a_maximum() -> None:
    rows = [[0.2, 0.21, 0.19, 0.2], [0.01, -0.02, 0.015, 0.0], [-0.05, 0.04, 0.01, -0.03]]
    floor = plain.median(math.sqrt(sum(x * x for x in row) / 4) for row in rows) / 2 + 0.003

    def statistic(values: list[float]) -> float:
        return abs(plain.mean(values)) / (plain.stdev(values) / 2 + floor)

    maxima = [
        max(statistic([sign * x for sign, x in zip(signs, row)]) for row in rows)
        for signs in itertools.product((1, -1), repeat=4)
    ]
    expected = [sum(m >= statistic(row) - 1e-12 for m in maxima) / 16 for row in rows]
    assert [tested.p for tested in judged(*rows)] == pytest.approx(expected)


@pytest.mark.parametrize("pairs", [1, 2, 8, 20])
def test_no_p_is_below_what_so_many_pairs_can_give(pairs: int) -> None:
    (alone,) = judged([0.5] * pairs)
    assert alone.p == pytest.approx(statistics.smallest_p(pairs))


def test_a_detectable_difference_would_have_been_found() -> None:
    rows = [[0.01, -0.02, 0.015, 0.0, 0.01, -0.01, 0.005, -0.015]] * 9
    least = judged(*rows)[0].detectable
    noise = rows[0]
    mean = plain.mean(noise)
    for factor, wanted in ((1.6, True), (0.4, False)):
        slowed = [value - mean + factor * least for value in noise]
        assert (judged(slowed, *rows[1:])[0].p <= 0.02) is wanted


def test_two_runs_of_one_build_seldom_differ_and_a_slow_kernel_is_named() -> None:
    alarms = named = others = 0
    runs = [results(seed) for seed in range(REPEATS + 1)]
    for repeat, (before, after) in enumerate(itertools.pairwise(runs)):
        alarms += bool(compare(before, after).changes)
        name = f"operators/op{repeat % CASES}"
        found = changed(compare(before, slowed(after, name, 1.2)))
        named += name in found
        others += bool(set(found) - {name})
    assert alarms <= 0.05 * REPEATS
    assert named >= 0.95 * REPEATS
    assert others <= 0.05 * REPEATS


def test_a_small_change_is_none_and_a_faster_kernel_is_better() -> None:
    assert not compare(results(1), results(2, slow={"operators/op3": 1.03})).changes
    (change,) = compare(results(1), results(2, slow={"operators/op3": 0.7})).changes
    assert (change.name, change.direction, change.op) == ("operators/op3", Direction.BETTER, "aten::op3")


@pytest.mark.parametrize("normalize", [Normalize.CASES, Normalize.CPU])
def test_a_slower_machine_is_no_regression(normalize: Normalize) -> None:
    found = compare(results(1), results(2, speed=1.4, loop=1.4), Options(normalize=normalize))
    assert not found.changes
    assert found.speed is not None
    assert found.speed.common == pytest.approx(1.4, rel=0.05)
    assert found.speed.machine == pytest.approx(1.4, rel=0.05)


def test_a_build_that_is_slower_everywhere_is_one() -> None:
    (change,) = compare(results(1), results(2, speed=1.4)).changes
    assert (change.name, change.direction) == ("all cases together", Direction.WORSE)
    without = compare(results(1), results(2, speed=1.4), Options(normalize=Normalize.NONE))
    assert len(without.regressions()) > CASES / 2


def test_few_cases_are_measured_by_the_loop_of_the_cpu() -> None:
    found = compare(results(1, cases=2), results(2, cases=2, speed=1.3, loop=1.3))
    assert not found.changes
    assert found.speed is not None
    assert "CPU" in found.speed.normalized


def test_too_few_pairs_are_told_of() -> None:
    before, after = results(1, processes=1), results(2, processes=1, slow={"operators/op3": 3.0})
    found = compare(before, after)
    assert found.speed is not None
    assert not found.speed.tested
    assert not found.changes
    assert "too few pairs: 4, 7 are needed" in render.about(found.speed)[-1]
    assert [row.p for row in found.speed.rows] == [None] * CASES
    assert "operators/op3" in changed(compare(before, after, Options(alpha=0.13)))


@pytest.mark.parametrize("normalize", list(Normalize))
def test_before_after_and_change_agree(normalize: Normalize) -> None:
    before, after = results(1), results(2, slow={"operators/op3": 1.3}, speed=1.2)
    found = compare(before, after, Options(normalize=normalize))
    assert found.speed is not None
    for row in found.speed.rows:
        assert row.after_ns / row.before_ns == pytest.approx(row.ratio)
        # What is shown was measured: it is among, or between, the best samples of the processes.
        best = [min(s for r in before.case(row.name).rounds if r.process == p for s in r.device_ns) for p in range(8)]
        assert min(best) <= row.before_ns <= max(best)
    slow = next(row for row in found.speed.rows if row.name == "operators/op3")
    assert slow.ratio == pytest.approx(1.3 * (1.0 if normalize is Normalize.CASES else 1.2), rel=0.1)
    line = next(line for line in render.markdown(found, every=True).splitlines() if line.startswith("| operators/op3 "))
    was, now, change = (float(re.sub(r"[^\d.+-]", "", cell)) for cell in line.split("|")[2:5])
    assert now / was - 1 == pytest.approx(change / 100, abs=0.01)


def with_network(seed: int, slow: dict[str, float] | None = None) -> Results:
    """Results of three processes, with a network that took part in one round of each."""
    content = results(seed, slow=slow, processes=3).model_dump(mode="json")
    case = content["cases"][0]
    network = {**case, "name": "network/forward", "kind": "model"}
    network["rounds"] = [round for round in case["rounds"] if round["round"] == 0]
    return Results.model_validate({**content, "cases": [*content["cases"], network]})


def test_networks_of_few_rounds_leave_the_kernels_their_pairs() -> None:
    found = compare(with_network(1), with_network(2, slow={"operators/op3": 1.5}))
    assert "operators/op3" in changed(found)
    assert "network/forward" not in changed(found)
    assert found.speed is not None
    rows = {row.name: row for row in found.speed.rows}
    assert (rows["operators/op3"].pairs, rows["network/forward"].pairs) == (12, 3)
    assert (rows["network/forward"].p, rows["network/forward"].detectable) == (None, None)
    assert found.unjudged == ("network/forward: 3 pairs of times, 7 needed for this alpha",)
    assert "1 could not be judged" in render.verdict(found)
    text = render.markdown(found, every=True)
    assert "3 of 7 pairs" in text
    assert "not judged: network/forward" in text


def test_enough_rounds_for_every_kind_of_case() -> None:
    for processes, rounds in itertools.product(range(1, 12), range(1, 40)):
        networks = rounds_of(Kind.MODEL, rounds, processes)
        assert rounds_of(Kind.KERNEL, rounds, processes) == rounds >= networks >= 1
        assert networks * processes >= min(FEWEST_PAIRS, rounds * processes)
    assert rounds_of(Kind.MODEL, 32, 8) == 8
    needed = statistics.pairs_needed(Options().alpha)
    assert needed is not None
    assert needed <= FEWEST_PAIRS


@pytest.mark.parametrize(
    ("alpha", "pairs"), [(0.5, 2), (0.02, 7), (1 / 64, 7), (0.01, 8), (1 / 4096, 13), (1e-4, None)]
)
def test_how_many_pairs_an_alpha_needs(alpha: float, pairs: int | None) -> None:
    assert statistics.pairs_needed(alpha) == pairs


def test_an_alpha_that_no_number_of_pairs_reaches_is_told_of() -> None:
    found = compare(results(1), results(2), Options(alpha=1e-4))
    assert found.speed is not None
    assert (found.speed.tested, found.speed.pairs_needed) == (False, None)
    assert "at least 0.00024 is possible" in render.about(found.speed)[-1]


def test_runs_without_a_common_process_cannot_be_compared() -> None:
    content = results(2).model_dump(mode="json")
    for round in content["cases"][4]["rounds"]:
        round["process"] += 8
    with pytest.raises(BadComparison, match=r"after: operators/op4: the processes before .* are not the same; run"):
        compare(results(1), Results.model_validate(content))


# ---- Operators and routes


def registered(*rows: tuple[str, str, list[str]]) -> list[dict[str, Any]]:
    return [{"op": op, "route": route, "dtypes": dtypes} for op, route, dtypes in rows]


def test_operators_and_types_that_are_lost_and_gained() -> None:
    before = results(
        1,
        registered=registered(
            ("aten::a", "kernel", ["float32", "int64"]), ("aten::b", "kernel", []), ("aten::c", "kernel", [])
        ),
    )
    after = results(
        2,
        registered=registered(
            ("aten::a", "kernel", ["float32"]), ("aten::b", "kernel", ["float32"]), ("aten::d", "portable", [])
        ),
    )
    found = {(change.name, change.direction.value, change.after) for change in compare(before, after).changes}
    assert found == {
        ("aten::a", "worse", "int64"),
        ("aten::b", "worse", "some: it took any"),
        ("aten::c", "worse", "gone"),
        ("aten::d", "better", "portable"),
    }


def routed(seed: int, *routes: tuple[str, str]) -> Results:
    found = results(seed)
    rows = [{"op": op, "route": route, "reason": "why", "calls": 3} for op, route in routes]
    content = found.model_dump(mode="json")
    content["cases"][0]["routes"] = rows
    return Results.model_validate(content)


@pytest.mark.parametrize(
    ("was", "now", "direction"),
    [
        (["kernel"], ["host"], Direction.WORSE),
        (["kernel"], ["portable"], Direction.WORSE),
        (["kernel"], ["kernel", "host"], Direction.WORSE),
        (["host"], ["decomposed"], Direction.BETTER),
        (["kernel", "host"], ["portable", "host"], Direction.WORSE),
    ],
)
def test_routes_that_changed(was: list[str], now: list[str], direction: Direction) -> None:
    before, after = (routed(seed, *(("aten::x", route) for route in side)) for seed, side in ((1, was), (2, now)))
    (change,) = compare(before, after).of(Subject.ROUTE)
    assert (change.name, change.direction, change.after) == ("aten::x", direction, ", ".join(now))


def test_calls_that_move_to_the_host_are_seen_where_some_were_there_before() -> None:
    def with_calls(seed: int, kernel: int, host: int) -> Results:
        content = routed(seed, ("aten::x", "kernel"), ("aten::x", "host")).model_dump(mode="json")
        for row, calls in zip(content["cases"][0]["routes"], (kernel, host)):
            row["calls"] = calls
        return Results.model_validate(content)

    (change,) = compare(with_calls(1, 9, 1), with_calls(2, 1, 9)).of(Subject.ROUTE)
    assert (change.direction, change.before, change.after) == (
        Direction.WORSE,
        "10% of the calls off the chip",
        "90% of the calls off the chip",
    )
    assert not compare(with_calls(1, 9, 1), with_calls(2, 9, 1)).of(Subject.ROUTE)


def test_a_case_that_is_gone_is_worse() -> None:
    content = results(2).model_dump(mode="json")
    content["cases"].pop(4)
    after = Results.model_validate(content)
    found = compare(results(1), after)
    (change,) = found.changes
    assert (change.subject, change.name, change.before, change.after) == (Subject.CASE, "operators/op4", "ran", "gone")
    assert not found.notes  # it is told once
    back = compare(after, results(1))
    assert (back.changes, back.notes) == ((), ("only after: operators/op4",))


def test_runs_without_a_common_case_cannot_be_compared() -> None:
    first, then = (results(seed) for seed in (1, 2))
    other = [case.model_copy(update={"name": f"other/{case.name}"}) for case in then.cases]
    options = then.options.model_copy(update={"set": "other"})
    with pytest.raises(BadComparison, match=r"after has no case that before has; run .* with the same --set"):
        compare(first, then.model_copy(update={"cases": tuple(other), "options": options}))


def test_cases_without_times_are_not_judged() -> None:
    first, then = (results(seed) for seed in (1, 2))
    empty = then.cases[0].model_copy(update={"rounds": ()})
    found = compare(first, then.model_copy(update={"cases": (empty, *then.cases[1:])}))
    assert found.unjudged == (f"{empty.name}: no times after",)


@pytest.mark.parametrize("series", ["device_ns", "loop_ns"])
def test_times_of_nothing_are_not_judged(series: str) -> None:
    first, then = (results(seed) for seed in (1, 2))
    case = then.cases[0]
    assert series in (case.series, "loop_ns")
    zeros = {series: (0.0,) * len(getattr(case.rounds[0], series))}
    short = case.model_copy(update={"rounds": (case.rounds[0].model_copy(update=zeros), *case.rounds[1:])})
    found = compare(first, then.model_copy(update={"cases": (short, *then.cases[1:])}))
    assert found.unjudged == (f"{short.name}: times of 0 ns after",)
    assert not found.changes
    assert found.speed is not None
    assert short.name not in [row.name for row in found.speed.rows]


@pytest.mark.parametrize(
    ("option", "value"), [("alpha", 2.0), ("alpha", float("nan")), ("min_effect", -1.0), ("min_error", 0.5)]
)
def test_options_that_mean_nothing_are_refused(option: str, value: float) -> None:
    with pytest.raises(ValueError, match=f"{option}: expected a number from . to .*, found {value}"):
        Options(**{option: value})


@pytest.mark.parametrize("samples", [[], [-1.0], [float("nan")], [float("inf")]])
def test_samples_that_are_none_are_refused(before: Path, samples: list[float]) -> None:
    def change(content: dict[str, Any]) -> None:
        content["cases"][0]["rounds"][0]["device_ns"] = samples

    with pytest.raises(BadComparison, match="device_ns"):
        compare(before, damaged(before, change))


@pytest.mark.parametrize(("option", "value"), [("model", "other.py:f"), ("set", "quick")])
def test_cases_of_one_name_and_other_sizes_are_not_compared(before: Path, option: str, value: str) -> None:
    def change(content: dict[str, Any]) -> None:
        content["options"][option] = value

    with pytest.raises(BadComparison, match="cases of one name are not the same"):
        compare(before, damaged(before, change))


def test_an_operator_that_is_called_only_now_and_on_the_host_is_worse() -> None:
    (change,) = compare(routed(1, ("aten::x", "decomposed")), routed(2, ("aten::y", "host"))).of(Subject.ROUTE)
    assert (change.name, change.direction, change.detail) == ("aten::y", Direction.WORSE, "why")


def test_a_case_that_fails_now_is_worse() -> None:
    content = results(2).model_dump(mode="json")
    content["cases"][4] |= {"error": "RuntimeError: no", "rounds": []}
    (change,) = compare(results(1), Results.model_validate(content)).changes
    assert (change.subject, change.name, change.detail) == (Subject.CASE, "operators/op4", "RuntimeError: no")


# ---- Accuracy


def conformance(tmp_path: Path, name: str, *rows: Row, chip: str = "made") -> Path:
    device = {"name": "Made Up", "plugin_version": "1", "driver_version": "1", "vendor": "Nobody"}
    made = conformance_report.make(chip, {"device": device, "plugins": []}, {"mode": "test"}, rows)
    return conformance_report.write(made, tmp_path / name)[0]


def row(op: str, verdict: Verdict = Verdict.STRICT, nmse: float = 1e-15, **more: Any) -> Row:
    return Row(op, "float32", "test", verdict, cases=3, routes={"kernel": 3}, nmse=nmse, bound=1e-14, **more)


def test_conformance_reports_tell_of_accuracy(tmp_path: Path) -> None:
    before = conformance(
        tmp_path,
        "before.json",
        row("aten::a"),
        row("aten::b"),
        row("aten::c", Verdict.BASIC),
        row("aten::d"),
        row("aten::e"),
    )
    after = conformance(
        tmp_path,
        "after.json",
        row("aten::a", nmse=5e-15),
        row("aten::b", Verdict.FAILED, reason="axis"),
        row("aten::c"),
        row("aten::d", Verdict.UNTESTED, reason="no kernel"),
        row("aten::e", nmse=2e-15),
    )
    found = {(c.subject.value, c.name.split()[0], c.direction.value) for c in compare(before, after).changes}
    assert found == {
        ("accuracy", "aten::a", "worse"),
        ("accuracy", "aten::b", "worse"),
        ("accuracy", "aten::c", "better"),
        ("operator", "aten::d", "worse"),
    }


def test_modes_are_told_apart(tmp_path: Path) -> None:
    def both(verdict: Verdict) -> list[Row]:
        return [Row("aten::a", "float32", mode, verdict, cases=3, routes={"kernel": 3}) for mode in ("test", "grad")]

    before = conformance(tmp_path, "before.json", *both(Verdict.STRICT))
    after = conformance(tmp_path, "after.json", *both(Verdict.BASIC))
    assert changed(compare(before, after)) == ["aten::a float32 grad", "aten::a float32 test"]


@pytest.mark.parametrize(
    ("was", "now", "direction"),
    [
        (1e-15, math.nan, Direction.WORSE),
        (math.nan, 1e-15, Direction.BETTER),
        (math.inf, math.nan, Direction.WORSE),
        (1e-15, math.inf, Direction.WORSE),
        (math.nan, math.nan, None),
        (math.inf, math.inf, None),
    ],
)
def test_errors_that_are_no_numbers(tmp_path: Path, was: float, now: float, direction: Direction | None) -> None:
    files = [conformance(tmp_path, f"{i}.json", row("aten::a", nmse=nmse)) for i, nmse in enumerate((was, now))]
    found = compare(*files)
    assert [change.direction for change in found.changes] == ([direction] if direction else [])
    both = math.isnan(was) and math.isnan(now)
    assert found.unjudged == (("aten::a float32 test: its NMSE is NaN before and after",) if both else ())
    assert ("could not be judged" in render.verdict(found)) is both


def test_tables_of_the_conformance_kit_tell_the_same(tmp_path: Path) -> None:
    for name, rows in (("before", [row("aten::a")]), ("after", [row("aten::a", Verdict.BASIC)])):
        conformance_report.write_csv(rows, tmp_path / f"{name}.csv")
    (change,) = compare(tmp_path / "before.csv", tmp_path / "after.csv").changes
    assert (change.subject, change.before, change.after) == (Subject.ACCURACY, "STRICT", "BASIC")


def test_reports_tell_of_routes(tmp_path: Path) -> None:
    for name, route in (("before", "kernel"), ("after", "host")):
        row = {"op": "aten::x", "chip": "made", "route": route, "reason": "why", "calls": 2}
        fallbacks = [row] if route == "host" else []
        read = {**row, "op": "aten::_local_scalar_dense", "route": "copy"}  # a call of item(), anew
        groups = [row, read] if fallbacks else [row]
        content = {"version": 1, "groups": groups, "fallbacks": fallbacks, "candidates": []}
        (tmp_path / f"{name}.json").write_text(json.dumps(content))
    found = compare(tmp_path / "before.json", tmp_path / "after.json")
    assert [str(change) for change in found.changes] == ["route worse: aten::x: kernel -> host"]
    (tmp_path / "after.json").write_text(json.dumps({**content, "version": 2}))
    with pytest.raises(BadComparison, match="expected a report of version 1, found 2"):
        compare(tmp_path / "before.json", tmp_path / "after.json")


# ---- Files


@pytest.fixture
def before(tmp_path: Path) -> Path:
    file = tmp_path / "before.json"
    results(1).write(file)
    return file


def damaged(before: Path, change: Any) -> Path:
    content = json.loads(before.read_text())
    change(content)
    file = before.with_name("damaged.json")
    file.write_text(json.dumps(content))
    return file


def test_a_file_that_was_cut_off_says_so(before: Path, tmp_path: Path) -> None:
    file = tmp_path / "cut.json"
    text = before.read_text()
    for length in (0, 1, len(text) // 2, len(text) - 3):
        file.write_text(text[:length])
        with pytest.raises(BadComparison, match=r"cut\.json, line 1, column \d+: not JSON: it ends in the middle"):
            compare(before, file)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda c: c.update(format="torch-fl baseline 2"), "written by another version of torch-fl"),
        (lambda c: c.pop("format"), "no results of `torch-fl bench`"),
        (
            lambda c: c["cases"][3]["rounds"][2].pop("loop_ns"),
            r"cases\.3\.rounds\.2\.loop_ns: .* value, found nothing;",
        ),
        (lambda c: c["cases"][3].update(kind="kernels"), r"cases\.3\.kind: expected 'kernel', .* found 'kernels'"),
        (lambda c: c["cases"].append(c["cases"][0]), "the case 'operators/op0' stands twice"),
        (lambda c: c.update(chip="other"), "is about the chip 'made', .* about 'other'"),
        (lambda c: c["options"].update(samples=50), "measured with samples 5, .* with 50"),
    ],
)
def test_files_that_cannot_be_compared_say_why(before: Path, change: Any, message: str) -> None:
    with pytest.raises(BadComparison, match=message) as error:
        compare(before, damaged(before, change))
    assert "damaged.json" in str(error.value)


def test_other_files_are_refused(before: Path, tmp_path: Path) -> None:
    report = conformance(tmp_path, "report.json", row("aten::a"))
    with pytest.raises(BadComparison, match="of different kinds: compare files of one command"):
        compare(before, report)
    report.write_text(report.read_text().replace("STRICT", "BASIC"))
    with pytest.raises(BadComparison, match="changed after the run"):
        compare(report, report)
    with pytest.raises(BadComparison, match="No such file"):
        compare(before, tmp_path / "none.json")
    (tmp_path / "x.csv").write_text("a,b\n1,2\n")
    with pytest.raises(BadComparison, match="it has no column 'op'"):
        compare(tmp_path / "x.csv", tmp_path / "x.csv")
    (tmp_path / "bytes.json").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(BadComparison, match="not even text"):
        compare(before, tmp_path / "bytes.json")


def test_circumstances_that_differ_are_told(before: Path) -> None:
    def change(content: dict[str, Any]) -> None:
        content["environment"]["versions"]["plugin"] = "2"
        content["options"]["set"] = "operators"
        content["cases"].pop()

    found = compare(before, damaged(before, change))
    assert found.notes == ("version of plugin: 1 -> 2", "set: standard -> operators", "only before: operators/op19")
    assert not found.changes


# ---- The command


def test_exit_status_and_output_of_the_command(before: Path, tmp_path: Path) -> None:
    after = tmp_path / "after.json"
    results(2, slow={"operators/op3": 1.3}).write(after)
    result = command("compare", before, after, COLUMNS="80")
    assert result.returncode == 1, result.stdout + result.stderr
    assert "operators/op3" in result.stdout
    assert "Westfall-Young" in " ".join(result.stdout.split())
    assert all(len(line) <= 80 for line in result.stdout.splitlines())
    assert "\N{HORIZONTAL ELLIPSIS}" not in result.stdout
    assert command("compare", before, after, "--fail-on", "operator,route").returncode == 0
    assert command("compare", before, before).returncode == 0
    for words in ("", " , ", "speed,nothing"):
        refused = command("compare", before, after, "--fail-on", words)
        assert refused.returncode == 2
        assert f"or nothing alone, found {words!r}" in refused.stderr
    wrong = command("compare", before, after, "--fail-on", "sped")
    assert wrong.returncode == 2
    assert "did you mean 'speed'" in wrong.stderr
    missing = command("compare", before, tmp_path / "none.json")
    assert (missing.returncode, "No such file" in missing.stderr) == (2, True)


def test_json_and_markdown(before: Path, tmp_path: Path) -> None:
    after = tmp_path / "after_1.json"
    results(2, slow={"operators/op3": 1.3}).write(after)
    found = json.loads(command("compare", before, after, "--json").stdout)
    assert [change["op"] for change in found["changes"]] == ["aten::op3"]
    text = command("compare", before, after, "--markdown").stdout
    assert "| worse | speed | operators/op3 |  |" in text
    assert "after\\_1.json" in text


def test_a_run_that_is_too_short_to_tell_is_no_success(tmp_path: Path) -> None:
    for seed in (1, 2):
        results(seed, processes=1).write(tmp_path / f"{seed}.json")
    result = command("compare", tmp_path / "1.json", tmp_path / "2.json")
    assert result.returncode == 2
    assert "speed could not be tested" in result.stderr


def test_comparing_needs_no_chip_and_no_torch(before: Path) -> None:
    result = subprocess.run(
        [sys.executable, "-X", "importtime", "-m", "torch_fl", "compare", before, before],
        env={**os.environ, "TORCH_DEVICE_BACKEND_AUTOLOAD": "0"},
        capture_output=True,
        text=True,
        check=True,
    )
    modules = {line.rpartition("|")[2].strip() for line in result.stderr.splitlines()}
    assert "torch_fl.observe.compare" in modules
    assert "torch" not in modules


# ---- From end to end, on the simulator


def test_the_benchmark_of_comparisons_starts() -> None:
    words = [sys.executable, "-m", "benchmarks.bench_compare", "--help"]
    result = subprocess.run(words, capture_output=True, text=True, check=True, cwd=Path(__file__).parents[2])
    assert "--alpha" in result.stdout


def test_a_kernel_that_takes_three_times_as_long_is_named_and_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"SIMCHIP_THREADS": "1", "SIMCHIP_INLINE": "1", "OMP_NUM_THREADS": "1"}.items():
        monkeypatch.setenv(name, value)
    operators = ("gelu", "exp", "tanh", "sigmoid", "where.self", "argmax", "cumsum", "gather", "_softmax")
    words = ",".join(["quick", *(f"operators/{name}" for name in operators)])

    def measured(percent: int) -> Results:
        monkeypatch.setenv("SIMCHIP_SLOW_KERNEL", f"aten::gelu:{percent}")  # which the measuring process reads
        return baseline.run(set=words, cpu=False, processes=1, repeats=8, samples=4)

    # Beyond what a busy machine does to single kernels: the test is about names, not about how little can be seen.
    found = compare(measured(0), measured(200), Options(min_effect=0.5))
    assert [(change.name, change.direction) for change in found.changes] == [("operators/gelu", Direction.WORSE)]
    assert found.speed is not None
    assert len(found.speed.rows) == len(operators)
    assert not found.unjudged
