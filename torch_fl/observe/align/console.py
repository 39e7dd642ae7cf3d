# SPDX-License-Identifier: Apache-2.0
"""What an alignment shows in a terminal."""

from __future__ import annotations

from collections.abc import Iterable

from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from torch_fl.observe.align.judge import Accuracy, Verdict
from torch_fl.observe.align.layers import Layer
from torch_fl.observe.align.operators import Op
from torch_fl.observe.align.result import AlignReport

STYLES = {
    Verdict.EXACT: "green",
    Verdict.NOISE: "green",
    Verdict.RANDOM: "dim",
    Verdict.UNJUDGED: "dim",
    Verdict.INACCURATE: "bold yellow",
    Verdict.WRONG: "bold red",
}


def show(console: Console, report: AlignReport) -> None:
    """Print the operators, the layers, what precise settings change, and the conclusion."""
    console.print(_ops(report.ops))
    console.print(_layers(report.layers))
    _show_precision(console, report)
    for note in report.notes:
        console.print(note, style="dim", highlight=False)
    style = "green" if report.ok else "bold red"
    console.print(f"[{style}]{escape(report.conclusion())}[/]", highlight=False, soft_wrap=True)


def _table(title: str, columns: Iterable[tuple[str, str]]) -> Table:
    table = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False)
    for name, justify in columns:
        table.add_column(name, justify="right" if justify == "r" else "left", overflow="fold")
    return table


def _ops(ops: list[Op]) -> Table:
    words, figures = ("operator", "type", "route"), ("meets rtol", "CPU meets", "max abs", "max rel", "NMSE", "ULP")
    columns = [*((word, "l") for word in words), ("calls", "r"), ("verdict", "l"), *((each, "r") for each in figures)]
    columns.append(("first in", "l"))
    table = _table("Operators, in the order of their first call; errors against float64", columns)
    for op in ops:
        cells = [rtol(op.chip), rtol(op.cpu), *numbers(op.chip)] if judged(op) else [""] * len(figures)
        start = (escape(op.op), op.dtype, " ".join(op.routes), str(op.calls), _verdict(op))
        table.add_row(*start, *cells, escape(str(op.place)))
        if op.verdict.bad:
            how = f"only with {op.probe}: " if op.probe else ""
            table.add_row(f"[{STYLES[op.verdict]}]  {escape(how + op.reason)}[/]")
    return table


def _verdict(row: Op | Layer) -> str:
    return f"[{STYLES[row.verdict]}]{row.verdict.value}[/]"


def judged(op: Op) -> bool:
    """Tell whether an operator's results were compared number by number."""
    return op.verdict not in (Verdict.RANDOM, Verdict.UNJUDGED)


def rtol(accuracy: Accuracy) -> str:
    """Return the tightest tolerance that is met."""
    if accuracy.rtol is None:
        return "above 1e-3"
    return f"{accuracy.rtol:.0e}".replace("e-0", "e-") if accuracy.rtol else "exact"


def numbers(accuracy: Accuracy) -> list[str]:
    """Return the figures of an accuracy as texts."""
    values = (accuracy.max_abs, accuracy.max_rel, accuracy.nmse)
    return [f"{value:.1e}" if value else "0" for value in values] + [f"{accuracy.ulp:.2g}"]


def _layers(layers: list[Layer]) -> Table:
    columns = [("layer", "l"), ("kind", "l"), ("pass", "l"), ("verdict", "l"), ("own NMSE", "r"), ("CPU's", "r")]
    table = _table("Layers, each with the CPU's inputs; the drift is that of the whole run", [*columns, ("drift", "r")])
    for layer in layers:
        drift = "" if layer.drift is None else f"{layer.drift:.1e}"
        figures = (f"{layer.judgement.chip.nmse:.1e}", f"{layer.judgement.cpu.nmse:.1e}", drift)
        name = layer.name or "the model itself"
        table.add_row(escape(name), escape(layer.kind), layer.phase, _verdict(layer), *figures)
    return table


def _show_precision(console: Console, report: AlignReport) -> None:
    if report.precision is None:
        return
    if not report.precision:
        console.print('set_precision("high") changes no operator\'s accuracy', highlight=False)
        return
    columns = [("operator", "l"), ("type", "l"), ("NMSE", "r"), ("with high", "r"), ("route", "l"), ("with high", "l")]
    table = _table('What set_precision("high") changes', columns)
    for change in report.precision:
        nmse = (f"{change.default_nmse:.1e}", f"{change.high_nmse:.1e}")
        routes = (" ".join(change.default_routes), " ".join(change.high_routes))
        table.add_row(escape(change.op), change.dtype, *nmse, *routes)
    console.print(table)
