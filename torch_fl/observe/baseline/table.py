# SPDX-License-Identifier: Apache-2.0
"""Results as tables for people: one for each group of cases, with units, in 80 columns or more."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from rich import box
from rich.console import Console
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

from torch_fl._words import counted
from torch_fl.observe.baseline.results import CaseResult, Kind, Results, Spread
from torch_fl.observe.baseline.roofline import roof

_ANY_WIDTH = 10_000
Cell = Callable[[CaseResult], str]


def show(console: Console, results: Results) -> None:
    """Print what was measured, where, and how."""
    console.print(_head(results), highlight=False, soft_wrap=False)
    groups: dict[str, list[CaseResult]] = {}
    for case in results.cases:
        groups.setdefault(case.name.partition("/")[0], []).append(case)
    for name, cases in groups.items():
        ran = [case for case in cases if not case.error]
        for table in _fitting(console, name, ran, _columns(ran, results)) if ran else ():
            console.print(table)
    failed = [case for case in results.cases if case.error]
    for case in failed:
        console.print(Text(f"failed: {case.name}: {case.error}", style="red"))
    console.print(Text(_legend(results)), style="dim")


def _head(results: Results) -> Text:
    device, environment = results.device, results.environment
    torch, ours, plugin = (environment.versions.get(name) or "unknown" for name in ("torch", "torch_fl", "plugin"))
    threads, cores = (environment.threads.get(name) or "?" for name in ("torch", "allowed_cores"))
    host = f"{environment.cpu or 'CPU'}, {threads} threads on {cores} cores"
    lines = [
        f"{results.chip}: {device.name} ({device.vendor}), driver {device.driver_version or 'unknown'}",
        f"torch {torch}, torch-fl {ours}, plugin {plugin}; {host}",
    ]
    if device.peak_flops or device.peak_bandwidth:
        peaks = (rate(device.peak_flops, "FLOP/s"), rate(device.peak_bandwidth, "B/s"))
        lines.append(f"peaks that the chip names: {' and '.join(filter(None, peaks))}")
    return Text("\n".join(lines))


def _legend(results: Results) -> str:
    rounds = results.options
    text = (
        f"Medians of {counted(rounds.repeats, 'round')} (processes: {rounds.processes}; networks have fewer rounds); "
        f"+-: half the distance between the quartiles. Kernels are timed by {results.timer}. GB/s counts each argument "
        "and result once"
    )
    within = any(case.direction == "d2d" for case in results.cases)
    text += ", of a copy within the device what it reads and what it writes." if within else "."
    has_roof = any(roof(case, results).share is not None for case in results.cases)
    return text + (" Of roof: of the named peak that bounds the case (c: compute, m: memory)." if has_roof else "")


def _fitting(console: Console, name: str, cases: Sequence[CaseResult], columns: dict[str, Cell]) -> Iterator[Table]:
    """Return one table, or several with some of the columns each where the console is too narrow."""
    table = _table(name, cases, columns)
    head, *rest = columns.items()
    wanted = Measurement.get(console, console.options.update(width=_ANY_WIDTH), table).maximum
    if len(rest) < 2 or wanted <= console.width:
        yield table
        return
    half = (len(rest) + 1) // 2
    yield from _fitting(console, name, cases, dict([head, *rest[:half]]))
    yield from _fitting(console, f"{name}, continued", cases, dict([head, *rest[half:]]))


def _table(name: str, cases: Sequence[CaseResult], columns: dict[str, Cell]) -> Table:
    table = Table(title=name, title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False, title_style="bold")
    for title in columns:
        first = title == "case"
        table.add_column(title, overflow="fold", justify="left" if first else "right", no_wrap=not first)
    for case in cases:
        table.add_row(*(Text(cell(case)) for cell in columns.values()))
    return table


def _columns(cases: Sequence[CaseResult], results: Results) -> dict[str, Cell]:
    """Return the columns of which at least one case has something to say."""
    kind = cases[0].kind
    columns: dict[str, Cell] = {
        "case": lambda case: case.name.partition("/")[2],
        {Kind.LAUNCH: "until it returns", Kind.KERNEL: "device"}.get(kind, "end to end"): lambda case: with_spread(
            case.time()
        ),
    }
    if kind in (Kind.LAUNCH, Kind.KERNEL):
        columns["end to end"] = lambda case: duration(case.time("total_ns").median)
    if kind is Kind.MODEL:
        columns["device"] = lambda case: duration(case.time("device_ns").median)
    columns |= {
        "CPU": lambda case: duration(case.cpu_time().median),
        "x CPU": _times,
        "GFLOP/s": lambda case: _number(roof(case, results).flops / 1e9),
        "GB/s": lambda case: _number(roof(case, results).bandwidth / 1e9) if kind in (Kind.KERNEL, Kind.COPY) else "",
        "of roof": lambda case: _roof(case, results),
        "host calls": lambda case: _percent(case.host_share_of_calls()),
        "host time": lambda case: _percent(case.host_share_of_time),
        "peak": lambda case: size(case.memory_peak) if kind is Kind.MODEL else "",
    }
    return {title: cell for title, cell in columns.items() if any(cell(case) for case in cases)}


def _times(case: CaseResult) -> str:
    """How many times as fast as the CPU, end to end."""
    mine, there = case.time("total_ns").median, case.cpu_time().median
    return f"{there / mine:.2f}" if mine and there else ""


def _roof(case: CaseResult, results: Results) -> str:
    found = roof(case, results)
    return "" if found.share is None else f"{found.share:.0%} {found.bound[0]}"


def _percent(share: float) -> str:
    return f"{share:.0%}" if share else ""


def _number(value: float) -> str:
    if not value:
        return ""
    return f"{value:.2f}" if value < 10 else f"{value:.0f}"


def duration(nanoseconds: float) -> str:
    """Write a time with three digits and its unit."""
    if not nanoseconds:
        return ""
    for unit, scale in (("ns", 1.0), ("us", 1e3), ("ms", 1e6)):
        if nanoseconds < 999.5 * scale:
            return f"{_three(nanoseconds / scale)} {unit}"
    return f"{_three(nanoseconds / 1e9)} s"


def with_spread(spread: Spread) -> str:
    """Write a median with its spread, where there is one."""
    known = spread.low < spread.high
    return f"{duration(spread.median)} +-{spread.relative:3.0%}" if known else duration(spread.median)


def _three(value: float) -> str:
    return f"{value:.2f}" if value < 9.995 else f"{value:.1f}" if value < 99.95 else f"{value:.0f}"


def size(count: float) -> str:
    """Write bytes with their unit."""
    for unit, scale in (("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10)):
        if count >= scale:
            return f"{_three(count / scale)} {unit}"
    return f"{count:.0f} B" if count else ""


def rate(value: float, unit: str) -> str:
    """Write a rate with its unit."""
    if not value:
        return ""
    for letter, scale in (("T", 1e12), ("G", 1e9), ("M", 1e6)):
        if value >= scale:
            return f"{_three(value / scale)} {letter}{unit}"
    return f"{value:.0f} {unit}"
